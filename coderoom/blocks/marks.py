"""What a text has in it, by offsets: thoughts, `<execute>` tags, and strings of code. Used by the rules for blocks."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

_PIECE = 100_000
_LONGEST_MATCH = 2_000


def find_all(pattern: re.Pattern[str], text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    """Find what a pattern matches, piece by piece, so that other threads go on meanwhile.

    The pattern must not need more than 2,000 characters.
    """
    while begin < end:
        stop = min(begin + _PIECE, end)
        for match in pattern.finditer(text, begin, min(stop + _LONGEST_MATCH, end)):
            if match.start() >= stop:
                break
            begin = match.end()
            yield match
        begin = max(begin, stop)


# --- The thoughts in a model's reply, such as `<think>...</think>` ---

# As most models write them, and as those of Mistral and Moonshot do.
THOUGHT = re.compile(
    r"<[ \t]?/?[ \t]?(?:ant|seed:)?(?:think(?:ing)?|thoughts?|reasoning)(?:\s[^<>\n]{0,1000}+)?(?<!/)>"
    r"|\[/?(?-i:THINK)\]|\u25c1/?think\u25b7",
    re.IGNORECASE,
)
_NAME = re.compile(r"[a-z:]+", re.IGNORECASE)
_BEFORE_MENTION = re.compile(r"[\w,][ \t]+\Z|\([ \t]*\Z")
_AFTER_MENTION = re.compile(r"[ \t]+[a-z(]|[ \t]*[,.;:)!?]")


class Thoughts:
    """The tags of thoughts in a reply, and the thoughts that the rules have found by where such a tag stands.

    A tag in quotes or backticks is a word. One that is never closed has all that follows as its thought; before a
    closing one without an opening one, all is thought. Alone, either may also be a word in a sentence.

    Attributes:
        lone: The tag without a partner that made a thought, as written; empty if all have one.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        # Only numbers, since Python's collector stops all threads while it looks at objects.
        self._ends: dict[int, int] = {}
        self._closing: dict[str, list[int]] = {"": []}
        for match in find_all(THOUGHT, source, 0, len(source)):
            start, end = match.span()
            before = source[start - 1 : start]
            # Three backticks are a fence that is glued to the tag.
            is_fence = source.startswith("```", start - 3)
            if before and before in "\"'`" and source[end : end + 1] == before and not is_fence:
                continue
            self._ends[start] = end
            if _is_closing(match[0]):
                self._closing[""].append(start)
                self._closing.setdefault(_name_of(match[0]), []).append(start)
        self._spans: list[tuple[int, int]] = []
        self.lone = ""

    def __bool__(self) -> bool:
        """Whether any thought was found."""
        return bool(self._spans)

    def has_tag_at(self, offset: int) -> bool:
        """Return whether a tag stands at the offset."""
        return offset in self._ends

    def close_at(self, offset: int) -> bool:
        """Return whether a closing tag stands at the offset."""
        return _is_closing(self._tag(offset))

    def closes_all(self, offset: int) -> bool:
        """Read the tag at the offset; return whether everything before it is thought."""
        tag = self._tag(offset)
        is_read = bool(self._spans) and offset < self._spans[-1][1]
        if not _is_closing(tag) or is_read or self._is_mention(offset):
            return False
        self._spans = [(0, offset + len(tag))]
        self.lone = tag
        return True

    def read(self, offset: int, limit: int) -> int | None:
        """Read the thought that the tag at the offset begins or ends, up to the limit; return its end.

        It is `None` if the tag is only mentioned.
        """
        tag = self._tag(offset)
        after = offset + len(tag)
        if not tag:
            return None
        if _is_closing(tag):
            return after
        end = self._closed_at(_name_of(tag), after, limit) or self._closed_at("", after, limit)
        if end is None and self._is_mention(offset):
            return None
        if end is None:
            self.lone, end = tag, limit
        self._spans.append((offset, end))
        return end

    def without(self) -> str:
        """The reply without its thoughts, with the lines where they were."""
        parts: list[str] = []
        position = 0
        for start, end in self._spans:
            parts += [self._source[position:start], "\n" * self._source.count("\n", start, end)]
            position = end
        return "".join([*parts, self._source[position:]])

    def _tag(self, offset: int) -> str:
        return self._source[offset : self._ends.get(offset, offset)]

    def _closed_at(self, name: str, offset: int, limit: int) -> int | None:
        """Return the end of the next closing tag of this name, or of any."""
        tags = self._closing.get(name, [])
        index = bisect_left(tags, offset)
        end = self._ends[tags[index]] if index < len(tags) else limit + 1
        return end if end <= limit else None

    def _is_mention(self, offset: int) -> bool:
        """Whether a tag without a partner is a word in a sentence."""
        before = self._source[max(0, offset - 20) : offset].rpartition("\n")[2]
        return bool(_BEFORE_MENTION.search(before) and _AFTER_MENTION.match(self._source, self._ends[offset]))


def _is_closing(tag: str) -> bool:
    return "/" in tag[:3]


def _name_of(tag: str) -> str:
    return tag[0] + "".join(_NAME.findall(tag)[:1]).lower()


# --- The `<execute>` tags of a document ---

TAG = re.compile(r"<(/?)execute[ \t]{0,100}>", re.IGNORECASE)
_PREFIX = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+){0,50}")


class Tag(NamedTuple):
    """A tag, its offsets, and the offsets of the next one and of the one that ends its content; -1: there is none.

    A closing one ends it, or a leading one, which has only the markers of quotes and lists before it on its line.
    """

    start: int
    end: int
    closing: bool
    leading: bool
    following: int
    ended_by: int


class TagIndex:
    """The `<execute>` tags of a document by their offsets, so that each is searched for once.

    A tag in quotes does not count: it is a string in code, or a word in prose.
    """

    def __init__(self, source: str) -> None:
        found: list[tuple[int, int, bool, bool]] = []
        self._fences: list[int] = []
        begin = 0
        while (end := source.find("\n", begin)) >= 0:
            prefix = _PREFIX.match(source, begin, end)
            text = begin if prefix is None else prefix.end()
            if source.startswith(("```", "~~~"), text):
                self._fences.append(begin)
            for match in find_all(TAG, source, begin, end):
                start, stop = match.span()
                before = source[start - 1] if start else ""
                if not before or before not in "\"'" or before != source[stop : stop + 1]:
                    found.append((start, stop, match[1] != "", start == text))
            begin = end + 1
        # Plain tuples of numbers, since Python's collector stops all threads while it looks at objects.
        self._tags: dict[int, tuple[int, int, bool, bool, int, int]] = {}
        following = ended_by = -1
        for start, stop, closing, leading in reversed(found):
            self._tags[start] = start, stop, closing, leading, following, ended_by
            following = start
            if closing or leading:
                ended_by = start

    def get(self, offset: int) -> Tag | None:
        """Return the tag at an offset."""
        found = self._tags.get(offset)
        return None if found is None else Tag(*found)

    def has_fence(self, start: int, stop: int) -> bool:
        """Return whether a line that looks like a fence begins between the offsets."""
        index = bisect_left(self._fences, start)
        return index < len(self._fences) and self._fences[index] < stop


# --- What is text inside of code ---
#
# Readers that know whether a string, a template or a here-document is open at a line end: a fence inside of such text
# belongs to the code. They follow quotes, escapes and comments and nothing else, so they follow code that does not
# parse, too.


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
