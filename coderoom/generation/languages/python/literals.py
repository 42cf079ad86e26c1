"""Writes tagged data as Python literals."""

from __future__ import annotations

import re
from typing import Any

from coderoom._util.text import visible
from coderoom.generation.testing.values import decode, fields_of, tag_of

__all__ = ["Literals", "text_literal", "wrapped"]

_WIDTH = 100
_MOST_BITS = 13_000  # Python reads no decimal integer of more than 4,300 digits.
_MODULES = {
    "$decimal": "decimal.",
    "$fraction": "fractions.",
    "$datetime": "",
    "$date": "",
    "$time": "",
    "$timedelta": "",
}


class Literals:
    """Writes tagged data as expressions, and keeps in mind what these need.

    Attributes:
        needs: The modules and helpers that what was written needs.
    """

    def __init__(self) -> None:
        self.needs: set[str] = set()

    def given(self, data: Any) -> str:
        """What a function is called with: the same as `decode` gives."""
        return self._write(data, False)

    def expected(self, data: Any) -> str:
        """What a result is compared with; members of enums and arrays are stand-ins of themselves."""
        return self._write(data, True)

    def _write(self, data: Any, expected: bool) -> str:
        tag, content = tag_of(data)
        if tag == "list":
            return wrapped("[", [self._write(item, expected) for item in content], "]")
        if tag in ("$tuple", "$set", "$frozenset"):
            return _of_items(tag, [self._write(item, expected) for item in content])
        if tag == "$dict":
            pairs = [f"{self._write(key, expected)}: {self._write(item, expected)}" for key, item in content]
            return wrapped("{", pairs, "}")
        if tag in ("int", "$int"):
            number = content if tag == "int" else int(content, 16)
            return repr(number) if number.bit_length() <= _MOST_BITS else hex(number)
        if tag == "$float":
            self.needs.add("math")
            return f"-math.{content[1:]}" if content.startswith("-") else f"math.{content}"
        if tag == "$complex":
            return f"complex({', '.join(self._write(part, expected) for part in content)})"
        if tag in ("$object", "$namedtuple", "$enum", "$array"):
            return self._of_class(tag, content, expected)
        return self._leaf(tag, data)

    def _leaf(self, tag: str, data: Any) -> str:
        value = decode(data)
        if isinstance(value, str):
            return text_literal(value)
        if tag in _MODULES:
            text = f"{_MODULES[tag]}{value!r}"
            self.needs.update(re.findall(r"\b(datetime|decimal|fractions)\.", text))
            return text
        return repr(value)

    def _of_class(self, tag: str, content: Any, expected: bool) -> str:
        if tag == "$array":
            return self._array(content) if expected else self._write(content["items"], False)
        if tag == "$enum" and expected:
            self.needs.add("Member")
            return f"Member({text_literal(content['type'])}, {text_literal(str(content['name']))})"
        if tag == "$enum" and content.get("mixed") is True:
            return self._write(content["value"], False)
        if tag == "$enum":
            fields = [["name", content["name"]], ["value", content["value"]]]
        else:
            named: dict[str, Any] = {}
            for name, item in fields_of(content):
                named[name] = item  # The last of those with one name counts.
            fields = [[*pair] for pair in named.items()]
        kind = text_literal(content["type"])
        if tag == "$namedtuple":
            self.needs.add("collections")
            names = ", ".join(text_literal(name) for name, _ in fields)
            values = [self._write(item, expected) for _, item in fields]
            return wrapped(f"collections.namedtuple({kind}, [{names}])(", values, ")")
        self.needs.add("Record")
        pairs = [f"{text_literal(name)}: {self._write(item, expected)}" for name, item in fields]
        return wrapped(f"Record({kind}, {{", pairs, "})")

    def _array(self, content: Any) -> str:
        self.needs.add("Array")
        facts = [self._write(content["items"], True)]
        for name in ("dtype", "shape"):
            if content.get(name) is not None:
                facts.append(f"{name}={self._write(content[name], True)}")
        return wrapped("Array(", facts, ")")


def text_literal(text: str) -> str:
    """Text as a literal of one line, in which nothing hides."""
    plain = visible(text) == text and "\x7f" not in text
    return repr(text) if plain else ascii(text)


def _of_items(tag: str, items: list[str]) -> str:
    if tag == "$tuple":
        return f"({items[0]},)" if len(items) == 1 else wrapped("(", items, ")")
    if tag == "$set":
        return wrapped("{", items, "}") if items else "set()"
    return wrapped("frozenset({", items, "})") if items else "frozenset()"


def wrapped(opening: str, items: list[str], closing: str) -> str:
    """Items in one line, or each in its own if they are too long for that."""
    line = f"{opening}{', '.join(items)}{closing}"
    if (len(line) <= _WIDTH and "\n" not in line) or not items:
        return line
    rows = "".join(f"    {item},\n".replace("\n", "\n    ")[:-4] for item in items)
    return f"{opening}\n{rows}{closing}"
