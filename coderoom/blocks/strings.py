"""What is text inside of code: readers that know whether a string, a template or a here-document is open at a line end.

They follow quotes, escapes and comments and nothing else, so they follow code that does not parse, too. Used by the
rules for fences: a fence inside of such text belongs to the code.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Protocol

from coderoom.blocks.thoughts import find_all


class Strings(Protocol):
    """The reader of a language."""

    @property
    def open(self) -> str:
        """What the next line is inside of, in words; empty if it is code."""

    @property
    def tail(self) -> str | None:
        """What follows the opening quotes on the last line, if that line opened a text and left it open."""

    @property
    def runs_backticks(self) -> bool:
        """Whether code between backticks in the open text is run, as in a double-quoted string of sh."""

    def feed(self, line: str, *, is_fence: bool = False) -> None:
        """Read one line, given without its line end; a fence in text is text, whatever backticks are there."""


# What is nested deeper is no real code; the state stays small, as it is copied to look ahead.
_DEEPEST = 100

_IN_CODE = re.compile(r"""\#|'''|\"""|'|\"""")
# A backslash takes the next character with it in raw strings too, so prefixes make no difference here.
_IN_STRING = {quotes: re.compile(rf"\\.|{quotes}") for quotes in ("'''", '"""', "'", '"')}


class PythonStrings:
    """Knows whether a triple-quoted string of Python is open."""

    __slots__ = ("_quotes", "tail")
    runs_backticks = False

    def __init__(self) -> None:
        self._quotes = ""
        self.tail: str | None = None

    @property
    def open(self) -> str:
        """What the next line is inside of."""
        return "a triple-quoted string" if len(self._quotes) == 3 else ""

    def feed(self, line: str, *, is_fence: bool = False) -> None:
        """Read one line."""
        quotes = self._quotes
        position, opened_at = 0, -1
        while match := _next(_IN_STRING[quotes] if quotes else _IN_CODE, line, position):
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


_SUBSTITUTION = r"`|\$\(\(|\$\(|\$\{"
_SHELL_CODE = re.compile(rf"\\.|\$?'|\$?\"|{_SUBSTITUTION}|\(\(|[()]|\#|<<<|<<-?|\bcase[ \t]+\S+[ \t]+in\b|\besac\b")
_SHELL_ARITHMETIC = re.compile(rf"\\.|'|\"|{_SUBSTITUTION}|[()]")
_SHELL = {
    "'": re.compile("'"),
    "$'": re.compile(r"\\.|'"),
    '"': re.compile(rf"\\.|\"|{_SUBSTITUTION}"),
    "${": re.compile(rf"\\.|\$?'|\"|{_SUBSTITUTION}|\}}"),
    # In a parameter that stands in double quotes, a single quote is a character like any other.
    '"${': re.compile(rf"\\.|\"|{_SUBSTITUTION}|\}}"),
    "((": _SHELL_ARITHMETIC,
}
_CLOSES = {
    "'": "'",
    "$'": "'",
    '"': '"',
    "`": "`",
    "${": "}",
    '"${': "}",
    "$(": ")",
    "(": ")",
    "((": ")",
    "case": "esac",
}
_DELIMITER = re.compile(r"[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|<>()'\"\\`])+)")
_BEFORE_WORD = " \t;|&()`"
_LONGEST_WORD = 1_000


class ShellStrings:
    """Knows whether a string or a here-document of sh or bash is open."""

    __slots__ = ("_document", "_pending", "_stack", "tail")

    def __init__(self) -> None:
        self._stack: list[str] = []
        # Of each here-document: its delimiter, whether tabs before that count, and whether it is quoted.
        self._pending: deque[tuple[str, bool, bool]] = deque(maxlen=_DEEPEST)
        self._document: tuple[str, bool, bool] | None = None
        self.tail: str | None = None

    @property
    def open(self) -> str:
        """What the next line is inside of."""
        if self._document is not None:
            return f"the here-document {self._document[0]!r}"
        return "a quoted string" if self._stack and self._stack[-1] in ("'", "$'", '"') else ""

    @property
    def runs_backticks(self) -> bool:
        """Whether the open text is a double-quoted string, or a here-document whose delimiter is not quoted."""
        if self._document is not None:
            return not self._document[2]
        return bool(self._stack) and self._stack[-1] == '"'

    def feed(self, line: str, *, is_fence: bool = False) -> None:
        """Read one line."""
        self.tail = None
        if self._document is not None:
            delimiter, strips, _ = self._document
            if (line.lstrip("\t") if strips else line) == delimiter:
                self._document = self._pending.popleft() if self._pending else None
        elif not (is_fence and self.open):
            depth, opened_at = len(self._stack), self._read(line)
            if self._pending and not self.open:
                self._document, self.tail = self._pending.popleft(), ""
            elif self.open and len(self._stack) > depth:
                self.tail = line[opened_at:]
            del self._stack[:-_DEEPEST]

    def _read(self, line: str) -> int:
        """Read a line that is not in a here-document; return the offset after the last quote that opened."""
        position, opened_at = 0, len(line)
        while match := _next(_SHELL.get(self._stack[-1] if self._stack else "", _SHELL_CODE), line, position):
            found, position = match[0], match.end()
            top = self._stack[-1] if self._stack else ""
            if found[0] == "\\":
                continue
            if top and found == _CLOSES[top]:
                self._stack.pop()
            elif found == "#":
                if match.start() == 0 or line[match.start() - 1] in _BEFORE_WORD:
                    break
            elif found in ("<<", "<<-"):
                if delimiter := _DELIMITER.match(line, position, position + _LONGEST_WORD):
                    word, position = delimiter[1], delimiter.end()
                    bare = re.sub(r"['\"]|\\(?=.)", "", word)
                    self._pending.append((bare, found == "<<-", bare != word))
            elif found in ("$((", "(("):
                if found == "$((" or match.start() == 0 or line[match.start() - 1] in _BEFORE_WORD:
                    self._stack += ["((", "(("]
            elif found == "(":
                self._stack.append("((" if top == "((" else "(")
            elif found == "${":
                self._stack.append('"${' if top in ('"', '"${') else "${")
            elif found.startswith("case"):
                self._stack.append("case")  # The parentheses after its patterns close nothing.
            elif found not in (")", "}", "<<<", "esac"):
                self._stack.append('"' if found == '$"' else found)
                opened_at = position
        return opened_at


_SCRIPT_CODE = re.compile(r"\\.|//|/\*|/|'|\"|`|[{}]")
_SCRIPT = {"`": re.compile(r"\\.|`|\$\{"), "/*": re.compile(r"\*/")}
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[])+/")
_LONGEST_REGEX = 200
_BEFORE_REGEX = re.compile(
    r"(?:\A|[(,=:\[!&|?{};+\-*%~^<>]|\b(?:return|typeof|case|in|of|delete|void|throw|new|else|do|yield|await))\s*\Z"
)


class ScriptStrings:
    """Knows whether a template literal or a comment of JavaScript or TypeScript is open."""

    __slots__ = ("_quote", "_stack", "tail")
    runs_backticks = False

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._quote = ""  # of a string that a backslash carries over to the next line
        self.tail: str | None = None

    @property
    def open(self) -> str:
        """What the next line is inside of."""
        top = self._stack[-1] if self._stack else ""
        return {"`": "a template literal", "/*": "a comment"}.get(top, "")

    def feed(self, line: str, *, is_fence: bool = False) -> None:
        """Read one line."""
        self.tail = None
        if is_fence and self.open:
            return
        position, opened_at, depth = 0, len(line), len(self._stack)
        if self._quote:
            position = self._read_string(line, 0, self._quote)
        while match := _next(_SCRIPT.get(top := self._stack[-1] if self._stack else "", _SCRIPT_CODE), line, position):
            found, position = match[0], match.end()
            if found == "//":
                break
            if found in ("'", '"'):
                position = self._read_string(line, position, found)
            elif found == "/":
                # After an operator it begins a regular expression, after a value it divides.
                regex = _REGEX.match(line, match.start(), match.start() + _LONGEST_REGEX)
                before = line[max(0, match.start() - 20) : match.start()]
                position = regex.end() if regex and _BEFORE_REGEX.search(before) else position
            elif found in ("*/", "}") or (found == "`" and top == "`"):
                if top:
                    self._stack.pop()
            elif found in ("/*", "`", "{", "${"):
                self._stack.append("{" if found == "${" else found)
                opened_at = position
        if self.open and len(self._stack) > depth:
            self.tail = line[opened_at:]
        del self._stack[:-_DEEPEST]

    def _read_string(self, line: str, position: int, quote: str) -> int:
        self._quote = ""
        while match := _next(_IN_STRING[quote], line, position):
            position = match.end()
            if match[0] == quote:
                return position
        self._quote = quote if line.endswith("\\") and position < len(line) else ""
        return len(line)


def _next(pattern: re.Pattern[str], line: str, position: int) -> re.Match[str] | None:
    return next(find_all(pattern, line, position, len(line)), None)


def strings_of(language: str) -> Strings | None:
    """Return a reader of the language, given by its usual name; `None` if there is none."""
    if language == "python":
        return PythonStrings()
    if language == "sh":
        return ShellStrings()
    return ScriptStrings() if language in {"javascript", "typescript", "jsx", "tsx"} else None
