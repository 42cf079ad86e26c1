from __future__ import annotations

import pytest

from coderoom._util.text import code_span, visible

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
