"""Texts that are safe to show and to keep; what hides secrets is in `test_masking.py`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coderoom._util.text import (
    bound_output,
    code_span,
    counted,
    dump_json,
    encodable,
    in_dollars,
    in_texts,
    is_secret_name,
    named,
    save_output,
    visible,
    with_line,
    without_escapes,
)

WRITTEN = (
    "\u2764\ufe0f",  # a red heart
    "\U0001f469\u200d\U0001f4bb",  # a woman at a computer
    "1\ufe0f\u20e3",  # a keycap
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # the flag of Scotland
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
    "\u0915\u094d\u200d\u0937",  # Hindi
    "\u845b\U000e0100",  # a variant of a Chinese character
    "\u65e5\u672c\u3000Bonjour\u202f! 5\u00a0\u20ac",  # spaces of other languages
    "\u05e9\u05dc\u05d5\u05dd!\u200f \u06dd",  # a mark of direction and a sign, in Hebrew and Arabic
    "\u1820\u180e\u1821",  # Mongolian
    "\u2800\u2801\u28ff",  # a plot drawn in braille
    "co\u00adoperate \ue0b0",  # a hyphen for the end of a line, and a symbol of a font
)
DECEIVING = (
    ("a\u202eb", "a<U+202E>b"),
    ("\u0645\u2066x", "\u0645<U+2066>x"),
    ("a\u200bdmin", "a<U+200B>dmin"),
    ("a\ufe0f", "a<U+FE0F>"),
    ("\u00e9" + "\U000e0101" * 3, "\u00e9\U000e0101\U000e0101<U+E0101>"),
    ("\x1b[2J", "\u241b[2J"),
    ("\u05d0\u200f\u200e", "\u05d0<U+200F><U+200E>"),
    ("\U000e0041\ufff0", "<U+E0041><U+FFF0>"),
)


@pytest.mark.parametrize("text", WRITTEN)
def test_what_languages_and_emoji_are_written_with_stays_but_in_code_and_names(text: str) -> None:
    assert visible(text) == text
    assert "<U+" in visible(text, exact=True)
    assert "<U+" in code_span(text)


@pytest.mark.parametrize(("text", "shown"), DECEIVING)
def test_what_deceives_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_code_span_has_more_ticks_than_its_text() -> None:
    assert code_span("a\n\tb") == "`a\u240a\u2409b`"
    assert code_span("a``b`c") == "```a``b`c```"
    assert (code_span("`a"), code_span("a`")) == ("`` `a ``", "`` a` ``")
    assert (named("train-2.csv"), named("a  b")) == ("train-2.csv", "`a  b`")


def test_numbers_and_prices_in_words() -> None:
    assert [counted(0, "test"), counted(1, "test"), counted(1000, "test")] == ["0 tests", "1 test", "1,000 tests"]
    assert counted(2, "branch", "branches") == "2 branches"
    prices = [in_dollars(cost) for cost in (0, 0.00009, 0.0001, 0.99999, 1)]
    assert prices == ["$0.0000", "less than $0.0001", "$0.0001", "$1.0000", "$1.00"]


def test_texts_of_data_change_with_its_keys() -> None:
    data = {"a": ["b", ("c", 1)], 2: None}
    assert in_texts(data, str.upper) == {"A": ["B", ["C", 1]], 2: None}


@pytest.mark.parametrize("size", [32_767, 32_768, 32_769, 65_537])
def test_long_texts_are_written_and_repaired_as_short_ones(size: int) -> None:
    text = '"' + "\n" * (size - 2) + "\U0001f600"
    data = {"b": [text, text], "a": text[:10]}
    assert dump_json(data) == json.dumps(data)
    assert dump_json(data, sort_keys=True) == json.dumps(data, sort_keys=True)
    halves = "x" * (size - 1) + "\ud83d\ude00" + "\ud800"
    assert encodable(halves) == "x" * (size - 1) + "\U0001f600\ufffd"


def test_a_long_output_loses_its_middle_at_the_ends_of_lines() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    short = bound_output(text, 400, whole=Path("all.txt"))
    head, notice, tail = (
        short.partition("[...")[0],
        short.partition("[...")[2].partition("]\n")[0],
        short.partition("]\n")[2],
    )
    assert text.startswith(head)
    assert text.endswith(tail)
    assert (head[-1], tail[:4]) == ("\n", "line")
    assert f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters" in notice
    assert "the whole output is in all.txt" in notice
    assert 350 <= len(short) <= 400
    assert bound_output(text[:400], 400) == text[:400]
    assert "more of its beginning and its end is in all.txt" in bound_output(
        text, 400, whole=Path("all.txt"), partly=True
    )
    assert "of 1,000,000 characters" in bound_output(text, 200, total=1_000_000)
    with pytest.raises(ValueError, match="at least 200"):
        bound_output(text, 199)


def test_the_newest_outputs_are_kept(tmp_path: Path) -> None:
    for number in range(22):
        saved = save_output(f"output {number}", tmp_path)
        os.utime(saved, (number, number))
    kept = {path.read_text("utf-8") for path in saved.parent.iterdir()}
    assert kept == {f"output {number}" for number in range(2, 22)}


def test_a_line_begins_on_a_line_of_its_own() -> None:
    assert [with_line(output, "b") for output in ("", "a", "a\n")] == ["b\n", "a\nb\n", "a\nb\n"]
    assert without_escapes("\x1b[1;31mred\x1b[0m\x1b]0;title\x07") == "red"
    names = ("OPENAI_API_KEY", "token", "db_password_1", "MONKEY", "TOKENIZER", "PATH")
    assert [is_secret_name(name) for name in names] == [True, True, True, False, False, False]
