"""Makes untrusted text safe to show: in Markdown, on a terminal, and in encodings."""

from __future__ import annotations

import re

# Characters that a terminal does not show although Python counts them as printable.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

# Names in which Markdown changes nothing.
_PLAIN_NAME = re.compile(r"[^\W_](?:[ ._/-]?[^\W_])*")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")


def named(name: str) -> str:
    """A name in Markdown that shows every character."""
    return name if _PLAIN_NAME.fullmatch(name) else code_span(name)


def code_span(text: str) -> str:
    """A short text as a Markdown code span: one line, no invisible characters."""
    shown = visible(text).replace("\n", "\u240a").replace("\t", "\u2409")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def without_escapes(text: str) -> str:
    """The text without terminal escape sequences."""
    return _ESCAPES.sub("", text)


def visible(text: str) -> str:
    """The text with control and invisible characters replaced by visible symbols."""
    text = text.replace("\r\n", "\n")
    if text.isascii() and all(line.isprintable() for line in re.split("[\n\t]", text)):
        return text
    return "".join(char if _is_plain(char) else _picture(char) for char in text)


def _is_plain(char: str) -> bool:
    return char in "\n\t" or (char.isprintable() and not _INVISIBLE.match(char))


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things in words, for instance "1,000 tests"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def in_dollars(cost: float) -> str:
    """A price in US dollars."""
    return "less than $0.0001" if 0 < cost < 0.0001 else f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"


def encodable(text: str) -> str:
    """The text without lone surrogates, which JSON can contain but no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
