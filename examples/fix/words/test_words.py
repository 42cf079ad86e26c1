"""Tests of words.py."""

from __future__ import annotations

from words import count, shorten


def test_words_are_counted() -> None:
    assert count("Not now, not then.") == {"not": 2, "now": 1, "then": 1}


def test_a_word_with_an_apostrophe_is_one() -> None:
    assert count("Don't. I don't.") == {"don't": 2, "i": 1}


def test_a_short_text_stays() -> None:
    assert shorten("as it is", 8) == "as it is"


def test_a_long_text_is_no_longer_than_allowed() -> None:
    for most in range(4, 16):
        assert len(shorten("one two three four", most)) <= most


def test_a_long_word_is_cut() -> None:
    assert shorten("incomprehensible", 8) == "incompr…"
