"""Python's string literals, followed line by line."""

from __future__ import annotations

import re

__all__ = ["PythonStrings"]

_IN_CODE = re.compile(r"""\#|'''|\"""|'|\"""")
# A backslash takes the next character with it in raw strings too, so prefixes make no difference here.
_IN_STRING = {quotes: re.compile(rf"\\.|{quotes}") for quotes in ("'''", '"""', "'", '"')}


class PythonStrings:
    """Knows whether a triple-quoted string is open after the lines it was fed.

    It reads quotes, escapes and comments and nothing else, so it follows code that does not parse, too.

    Attributes:
        tail: What follows the opening quotes on the last line fed, if that line left a triple-quoted string open that
            it opened itself; else `None`.
    """

    __slots__ = ("_quotes", "tail")

    def __init__(self) -> None:
        self._quotes = ""
        self.tail: str | None = None

    @property
    def open(self) -> bool:
        """Whether the next line starts inside a triple-quoted string."""
        return len(self._quotes) == 3

    def feed(self, line: str) -> None:
        """Read one line, given without its line end."""
        quotes = self._quotes
        position, opened_at = 0, -1
        while match := (_IN_STRING[quotes] if quotes else _IN_CODE).search(line, position):
            found, position = match[0], match.end()
            if quotes:
                if found == quotes:
                    quotes = ""
            elif found == "#":
                break
            else:
                quotes, opened_at = found, position
        if len(quotes) == 1 and not (line.endswith("\\") and position < len(line)):
            quotes = ""  # such a string ends with its line, unless a backslash carries it over
        self._quotes = quotes
        self.tail = line[opened_at:] if self.open and opened_at >= 0 else None
