"""Text that comes from elsewhere, made safe to show."""

from __future__ import annotations

import re

__all__ = ["encodable", "visible"]

# Letters and marks that a terminal shows as nothing, and that Python nevertheless counts as printable.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def visible(text: str) -> str:
    """The text with every character that could move, hide or recolour something shown by its number or picture."""
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


def encodable(text: str) -> str:
    """The text without halves of characters, which JSON can name and no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
