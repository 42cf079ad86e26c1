"""Writes tagged data as Python source that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from coderoom._util.text import visible
from coderoom.judge import decode
from coderoom.judge.values import tag_of

_WIDTH: Final = 100
_SHORT: Final = 12
"""Parts of which none is longer share lines."""
_MOST_BITS: Final = 14_000
_ENCLOSED: Final = {"list": ("[", "]"), "$tuple": ("(", ")"), "$set": ("{", "}"), "$frozenset": ("frozenset({", "})")}
_OF_TEXT: Final = {
    "$datetime": "datetime.datetime.fromisoformat",
    "$date": "datetime.date.fromisoformat",
    "$time": "datetime.time.fromisoformat",
    "$decimal": "decimal.Decimal",
    "$uuid": "uuid.UUID",
}
_OF_NUMBERS: Final = {
    "$timedelta": "datetime.timedelta",
    "$fraction": "fractions.Fraction",
    "$complex": "complex",
}
MODULES: Final = ("datetime", "decimal", "fractions", "math", "uuid")
"""What the source of a value may use of the standard library."""


@dataclass(frozen=True)
class Group:
    """Source with parts that get lines of their own if they do not fit into one."""

    opening: str
    parts: Sequence[Group | str]
    closing: str
    is_tuple: bool = False

    def __str__(self) -> str:
        comma = "," if self.is_tuple and len(self.parts) == 1 else ""
        return f"{self.opening}{', '.join(map(str, self.parts))}{comma}{self.closing}"


def laid_out(source: Group | str, indent: int = 0, before: str = "", after: str = "") -> str:
    """Source in lines that are not too long, where that can be; `before` and `after` stand around it."""
    line = f"{' ' * indent}{before}{source}{after}"
    if isinstance(source, str) or not source.parts or len(line) <= _WIDTH:
        return line
    if all(isinstance(part, str) and len(part) <= _SHORT for part in source.parts):
        parts = _packed([str(part) for part in source.parts], indent + 4)
    else:
        parts = [laid_out(part, indent + 4, after=",") for part in source.parts]
    return "\n".join([f"{' ' * indent}{before}{source.opening}", *parts, f"{' ' * indent}{source.closing}{after}"])


def _packed(parts: Sequence[str], indent: int) -> list[str]:
    """Lines with as many parts as fit."""
    lines = [f"{' ' * indent}{parts[0]},"]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 <= _WIDTH:
            lines[-1] += f" {part},"
        else:
            lines.append(f"{' ' * indent}{part},")
    return lines


def call_of(function: str, *arguments: Group | str) -> Group:
    """The source of a call."""
    return Group(f"{function}(", arguments, ")")


def literal(data: Any, named: Callable[[str], str] = str) -> Group | str:
    """The source of tagged data of built-in types and `MODULES`; `named` gives that of what `$name` stands for."""
    tag, content = tag_of(data)
    if tag == "$name":
        return named(content)
    if tag == "str":
        return text_literal(content)
    if tag == "int" or tag == "$int":
        return _integer(int(content, 16) if tag == "$int" else content)
    if tag in _ENCLOSED and isinstance(content, list):
        if tag in ("$set", "$frozenset") and not content:
            return f"{tag[1:]}()"
        items = [literal(each, named) for each in content]
        return Group(_ENCLOSED[tag][0], items, _ENCLOSED[tag][1], tag == "$tuple")
    if tag == "$dict":
        return dict_literal(((literal(key, named), item) for key, item in content), named)
    if tag in ("$bytes", "$bytearray"):
        return repr(decode(data))
    if tag == "$str":
        return ascii(decode(data))
    if tag == "$float":
        return {"nan": "math.nan", "inf": "math.inf", "-inf": "-math.inf"}[content]
    if tag in _OF_TEXT:
        return call_of(_OF_TEXT[tag], text_literal(content))
    if tag in _OF_NUMBERS:
        return call_of(_OF_NUMBERS[tag], *map(literal, content))
    return repr(content)


def _integer(number: int) -> str:
    """The source of an integer. Python reads decimal ones of at most 4,300 digits."""
    return str(number) if number.bit_length() <= _MOST_BITS else hex(number)


def prefixed(before: str, source: Group | str) -> Group | str:
    """Source with something before it, such as `key: `."""
    if isinstance(source, str):
        return before + source
    return Group(before + source.opening, source.parts, source.closing, source.is_tuple)


def dict_literal(items: Iterable[tuple[Group | str, Any]], named: Callable[[str], str] = str) -> Group:
    """The source of a dict, from the sources of its keys and the data of its items."""
    return Group("{", [prefixed(f"{key}: ", literal(item, named)) for key, item in items], "}")


def inputs_literal(inputs: Mapping[str, Any]) -> Group:
    """The source of a dict with named arguments."""
    return dict_literal((text_literal(name), item) for name, item in inputs.items())


def text_literal(text: str) -> str:
    """The source of text, in which all characters can be seen."""
    source = repr(text) if visible(text, exact=True) == text else ascii(text)
    return source if '"' in source else f'"{source[1:-1]}"'
