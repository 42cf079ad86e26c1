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


_SUBSTITUTION = r"`|\$\(\(|\$\(|\$\{|\$\["
# In the subscript of an assignment, `<<` is a shift.
_ELEMENT = r"\w{0,100}\[[^][\s'\"`$\\]{1,100}\]\+?="
_SHELL_CODE = re.compile(
    rf"\\.|{_ELEMENT}|\$?'|\$?\"|{_SUBSTITUTION}|\(\(|[()]|\#|<<<|<<-?|\bcase[ \t]+\S+[ \t]+in\b|\besac\b"
)
_SHELL_ARITHMETIC = rf"\\.|'|\"|{_SUBSTITUTION}"
_SHELL = {
    "'": re.compile("'"),
    "$'": re.compile(r"\\.|'"),
    '"': re.compile(rf"\\.|\"|{_SUBSTITUTION}"),
    "${": re.compile(rf"\\.|\$?'|\"|{_SUBSTITUTION}|\}}"),
    # In a parameter that stands in double quotes, a single quote is a character like any other.
    '"${': re.compile(rf"\\.|\"|{_SUBSTITUTION}|\}}"),
    "((": re.compile(rf"{_SHELL_ARITHMETIC}|[()]"),
    "[": re.compile(rf"{_SHELL_ARITHMETIC}|[][]"),
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
    "[": "]",
    "case": "esac",
}
_DELIMITER = re.compile(r"[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|<>()'\"\\`])+)")
_BEFORE_WORD = " \t;|&()`"
_BEFORE_ARITHMETIC = re.compile(r"(?:\A|[ \t;|&()`]|\b(?:if|elif|while|until|for|then|else|do))\Z")
# These have a pattern after them, in which quotes count even between double quotes.
_BEFORE_PATTERN = re.compile(r"!?(?:\w+|[@*])(?:\[[^][\s]{1,100}\])?[#%/^,]")
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
                before = line[max(0, match.start() - 10) : match.start()]
                if found == "$((" or _BEFORE_ARITHMETIC.search(before):
                    self._stack += ["((", "(("]
            elif found == "(":
                self._stack.append("((" if top == "((" else "(")
            elif found == "${":
                is_quoted = top in ('"', '"${') and not _BEFORE_PATTERN.match(line, position)
                self._stack.append('"${' if is_quoted else "${")
            elif found in ("$[", "["):
                self._stack.append("[")
            elif found.endswith("="):
                continue
            elif found.startswith("case"):
                self._stack.append("case")  # The parentheses after its patterns close nothing.
            elif found not in (")", "}", "<<<", "esac"):
                self._stack.append('"' if found == '$"' else found)
                opened_at = position
        return opened_at


_SCRIPT_CODE = re.compile(r"//|/\*|/|'|\"|`|[{}()]")
_SCRIPT = {"`": re.compile(r"\\.|`|\$\{"), "/*": re.compile(r"\*/")}
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\])*+\]|[^/\\\[])++/")
_CHANGES_READING = re.compile(r"['\"`/{}()]")
# What an expression begins after: then a slash begins a regular expression. After a value, it divides.
_BEFORE_VALUE = re.compile(
    r"(?:\A|[(,=:\[!&|?{};+\-*%~^<>]|(?<![.\w$])(?:return|typeof|case|in|of|delete|void|throw|new|else|do|yield|await"
    r"|default|instanceof))\Z"
)
# `x++ / 2` and, in TypeScript, `x! / 2`.
_POSTFIX = re.compile(r"(?:\+\+|--|(?<!return)[\w$)\]]!)\Z")
_CONTROL = re.compile(r"(?<![.\w$#])(?:if|while|for|with|for await)\Z")
_LONGEST_BEFORE = 30


class ScriptStrings:
    """Knows whether a template literal or a comment of JavaScript or TypeScript is open.

    A slash that may begin a regular expression or divide, and matters, leaves the rest `open` for good.
    """

    __slots__ = ("_after_closing", "_before", "_quote", "_stack", "_unclear", "tail")
    runs_backticks = False

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._quote = ""  # of a string that a backslash carries over to the next line
        self._before = ""  # the last code that was read
        self._after_closing = ""  # what a slash is after the last closing parenthesis or brace
        self._unclear = False
        self.tail: str | None = None

    @property
    def open(self) -> str:
        """What the next line is inside of."""
        if self._unclear:
            return "code after a slash that has two readings"
        top = self._stack[-1] if self._stack else ""
        return {"`": "a template literal", "/*": "a comment"}.get(top, "")

    def feed(self, line: str, *, is_fence: bool = False) -> None:
        """Read one line."""
        self.tail = None
        if self._unclear or (is_fence and self.open):
            return
        depth, opened_at = len(self._stack), self._read(line)
        if self.open and not self._unclear and len(self._stack) > depth:
            self.tail = line[opened_at:]
        del self._stack[:-_DEEPEST]

    def _read(self, line: str) -> int:
        """Read a line; return the offset after the last text that opened."""
        opened_at = len(line)
        position = self._read_string(line, 0, self._quote) if self._quote else 0
        while match := _next(_SCRIPT.get(top := self._stack[-1] if self._stack else "", _SCRIPT_CODE), line, position):
            found = match[0]
            if top not in _SCRIPT:
                self._keep(line, position, match.start())
            position = match.end()
            if found == "//":
                return opened_at
            if found in ("'", '"'):
                position = self._read_string(line, position, found)
            elif found == "/":
                position = self._read_slash(line, match.start())
            elif found in (")", "}"):
                self._close(found)
            elif found == "*/" or (found == "`" and top == "`"):
                self._stack.pop()
            elif found == "(":
                self._stack.append("(regex" if _CONTROL.search(self._before) else "(division")
            elif found == "{":
                self._stack.append("{" + self._after_brace())
            elif found[0] != "\\":
                self._stack.append("{" if found == "${" else found)
                opened_at = position
            if found not in ("/*", "*/", "/"):
                self._before = self._before[-_LONGEST_BEFORE:] + found[-1]
            if self._unclear:
                break
        if not self._stack or self._stack[-1] not in _SCRIPT:
            self._keep(line, position, len(line))
        return opened_at

    def _keep(self, line: str, begin: int, end: int) -> None:
        """Keep the end of the code between the offsets."""
        text = line[max(begin, end - _LONGEST_BEFORE) : end]
        if words := text.strip():
            space = " " if begin == 0 or text[0].isspace() else ""
            self._before = (self._before + space + words)[-_LONGEST_BEFORE:]

    def _after_brace(self) -> str:
        """What a slash is after the brace that closes the one which opens here."""
        if self._before.endswith(":"):
            return "unclear"  # The value of a key, or a block after a label.
        is_value = not self._before.endswith((";", "{", "}", "=>", "else", "do")) and _BEFORE_VALUE.search(self._before)
        return "division" if is_value and self._before else "regex"

    def _close(self, found: str) -> None:
        opening = "(" if found == ")" else "{"
        while opening == "{" and self._stack and self._stack[-1][0] == "(":
            self._stack.pop()  # A parenthesis that was never closed.
        if self._stack and self._stack[-1][0] == opening:
            self._after_closing = self._stack.pop()[1:]

    def _read_slash(self, line: str, start: int) -> int:
        """Read a regular expression, or a slash that divides; return the offset after it."""
        before = self._before
        reading = "regex" if _BEFORE_VALUE.search(before) and not _POSTFIX.search(before) else "division"
        if before.endswith((")", "}")):
            reading = self._after_closing
        # In JSX, the slash of `</b>` or `<b c={1} />` is neither.
        is_tag = line.startswith("<", start - 1) if start else False
        is_tag = is_tag or (before.endswith("}") and line.startswith("/>", start))
        regex = None if reading == "division" or is_tag else _REGEX.match(line, start)
        if regex is None:
            # Code that is wrong, or too unusual to be told.
            self._unclear = reading != "division" and not is_tag
            self._before = before[-_LONGEST_BEFORE:] + "/"
            return start + 1
        if reading == "unclear":
            self._unclear = bool(_CHANGES_READING.search(regex[0], 1, len(regex[0]) - 1))
        self._before = "/a"  # a value
        return regex.end()

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
