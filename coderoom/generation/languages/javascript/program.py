"""Reads JavaScript by its tokens: lines, definitions, imports and statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = [
    "Declared",
    "Imported",
    "Parameter",
    "Program",
    "Token",
    "lines_of",
    "read_program",
    "starts",
    "tokens_of",
]

Kind = Literal["word", "text", "template", "number", "regex", "sign"]

_SPACE = re.compile(r"(?:[^\S\n]|\ufeff|//[^\n]*|/\*(?:(?!\*/)[^\n])*\*/)+")
_LONG_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_TEXT = re.compile(r""""(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?""", re.DOTALL)
_WORD = re.compile(r"[#@]?[^\W\d][\w$]*|[#@]?\$[\w$]*")
_NUMBER = re.compile(r"\.?\d(?:[eE][+-]|[\w.])*")
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/\w*")
_SIGN = re.compile(r"=>|\.\.\.|[=!]==?|[<>]=|\?\?=|\|\|=|&&=|\?\.|\+\+|--|[-+*/%&|^]=|.", re.DOTALL)
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*", re.DOTALL)
_BEFORE_REGEX = frozenset(
    {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "instanceof", "else", "do", "yield"}
    | {"await"}
)


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: Its kind.
        text: Its source text.
        start: Its offset.
        line: Its line, counted from 1.
        depth: The number of brackets open around it.
        first: Whether it is the first token of its line.
    """

    kind: Kind
    text: str
    start: int
    line: int
    depth: int
    first: bool

    @property
    def end(self) -> int:
        """The offset of its end."""
        return self.start + len(self.text)


def lines_of(source: str) -> str:
    """The source with Unix line ends."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def tokens_of(source: str) -> list[Token]:
    """The tokens of a source. For invalid JavaScript they are arbitrary."""
    return _Scanner(source).scan()


class _Scanner:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._line = 1
        self._first = True
        self._open: list[str] = []
        self._tokens: list[Token] = []

    def scan(self) -> list[Token]:
        while self._at < len(self._source):
            if not self._skip():
                self._take()
        return self._tokens

    def _skip(self) -> bool:
        """Skip white space, a line end or a comment."""
        if self._source[self._at] == "\n":
            self._line, self._at, self._first = self._line + 1, self._at + 1, True
            return True
        found = _SPACE.match(self._source, self._at) or _LONG_COMMENT.match(self._source, self._at)
        if found is None:
            return False
        lines = found[0].count("\n")
        self._line, self._at, self._first = self._line + lines, found.end(), self._first or lines > 0
        return True

    def _take(self) -> None:
        char = self._source[self._at]
        if char in "\"'":
            self._add("text", _TEXT)
        elif char == "`":
            self._template("`")
        elif char.isdigit() or (char == "." and self._source[self._at + 1 : self._at + 2].isdigit()):
            self._add("number", _NUMBER)
        elif _WORD.match(self._source, self._at):
            self._add("word", _WORD)
        elif char == "/" and self._regex_may_begin() and _REGEX.match(self._source, self._at):
            self._add("regex", _REGEX)
        elif char == "}" and self._open[-1:] == ["`"]:
            self._open.pop()
            self._template("}")
        else:
            self._sign(char)

    def _sign(self, char: str) -> None:
        if char in ")]}" and self._open:
            self._open.pop()
        self._add("sign", _SIGN)
        if char in "([{":
            self._open.append(char)

    def _template(self, opening: str) -> None:
        """A part of a template literal, up to its end or the next expression in it."""
        found = _TEMPLATE.match(self._source, self._at + len(opening))
        end = len(self._source) if found is None else found.end()
        whole = self._source[end : end + 2] == "${"
        self._put("template", self._source[self._at : end + (2 if whole else 1)])
        if whole:
            self._open.append("`")

    def _add(self, kind: Kind, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._source, self._at)
        self._put(kind, self._source[self._at] if found is None else found[0])

    def _put(self, kind: Kind, text: str) -> None:
        self._tokens.append(Token(kind, text, self._at, self._line, len(self._open), self._first))
        self._at += len(text)
        self._line += text.count("\n")
        self._first = False

    def _regex_may_begin(self) -> bool:
        if not self._tokens:
            return True
        last = self._tokens[-1]
        if last.kind == "word":
            return last.text in _BEFORE_REGEX
        if last.kind == "sign":
            return last.text not in (")", "]", "}", "++", "--") or (last.text == "}" and self._first)
        return False


_VARIABLES = ("const", "let", "var")
_JOINING = frozenset({"in", "instanceof", "of", "else", "catch", "finally", "while", "as", "from"})
_CLOSING = (")", "]", "}", "++", "--")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        name: Its name; empty if it is a pattern.
        optional: Whether it may be omitted.
        rest: Whether it is a rest parameter.
    """

    name: str
    optional: bool = False
    rest: bool = False


@dataclass(frozen=True)
class Declared:
    """A top-level declaration.

    Attributes:
        name: Its name.
        line: Its line.
        parameters: The parameters of a function; `None` for other declarations.
    """

    name: str
    line: int
    parameters: tuple[Parameter, ...] | None = None


@dataclass(frozen=True)
class Imported:
    """An import statement.

    Attributes:
        module: The module's name.
        line: Its line.
        names: The exported and local name of each binding; the exported name may be `default` or `*`.
        simple: Whether these attributes describe all of it.
    """

    module: str
    line: int
    names: tuple[tuple[str, str], ...] = ()
    simple: bool = True


@dataclass
class Program:
    """The top level of a source.

    Attributes:
        tokens: All tokens.
        declared: Its declarations.
        imported: Its imports.
        spans: The parts to remove when sources are joined to one module: imports and `export` keywords.
        passed_on: The lines of statements that re-export from another module.
        statements: The first tokens of all other statements.
    """

    tokens: list[Token]
    declared: list[Declared] = field(default_factory=list)
    imported: list[Imported] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    passed_on: list[int] = field(default_factory=list)
    statements: list[Token] = field(default_factory=list)


def read_program(source: str) -> Program:
    """Read a source. For invalid JavaScript the result is arbitrary."""
    program = Program(tokens_of(source))
    reader = _Reader(program)
    for index, token in enumerate(program.tokens):
        if index >= reader.done and token.depth == 0 and starts(program.tokens, index):
            reader.statement(index)
    return program


def starts(tokens: list[Token], index: int) -> bool:
    """Whether a top-level token starts a statement."""
    token = tokens[index]
    if index == 0:
        return True
    last = tokens[index - 1]
    if token.kind == "sign":
        return last.text == ";" and token.text not in (";", "}")
    if last.text in (";", "}") and last.depth == 0:
        return token.text not in _JOINING
    return token.first and (last.kind != "sign" or last.text in _CLOSING) and token.text not in _JOINING


class _Reader:
    """Reads top-level statements into a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._tokens = program.tokens
        self.done = 0

    def statement(self, index: int) -> None:
        """Read the statement that starts with a token."""
        token = self._tokens[index]
        if token.text == "import" and self._text(index + 1) not in ("(", "."):
            self._import(index)
        elif token.text == "export":
            self._export(index)
        elif not self._declaration(index) and token.kind not in ("text",):
            self._program.statements.append(token)

    def _text(self, index: int) -> str:
        return self._tokens[index].text if index < len(self._tokens) else ""

    def _name(self, index: int) -> str:
        return self._text(index) if index < len(self._tokens) and self._tokens[index].kind == "word" else ""

    def _declaration(self, index: int) -> bool:
        word = self._text(index)
        at = index + 1 if word == "async" and self._text(index + 1) == "function" else index
        if self._text(at) == "function":
            at += 2 if self._text(at + 1) == "*" else 1
            if self._name(at):
                parameters = self._parameters(at + 1) if self._text(at + 1) == "(" else None
                self._add(at, parameters)
            return bool(self._name(at))
        if word == "class" and self._name(index + 1):
            self._add(index + 1, None)
            return True
        if word in _VARIABLES:
            for place in self._variables(index + 1):
                self._add(place, self._of_value(place + 1))
            return True
        return False

    def _add(self, index: int, parameters: tuple[Parameter, ...] | None) -> None:
        token = self._tokens[index]
        self._program.declared.append(Declared(token.text, token.line, parameters))

    def _variables(self, index: int) -> Iterator[int]:
        """The indexes of the names in a declaration of variables."""
        while index < len(self._tokens):
            if self._name(index):
                yield index
            elif self._text(index) in ("{", "["):
                yield from self._pattern(index)
            index = self._after(index)
            if self._text(index) != ",":
                return
            index += 1

    def _pattern(self, index: int) -> Iterator[int]:
        """The indexes of the names that a pattern binds."""
        for at in range(index + 1, self._closing(index)):
            follows = self._text(at + 1)
            if self._name(at) and follows in (",", "}", "]", "=") and self._text(at - 1) not in ("=", "."):
                yield at

    def _after(self, index: int) -> int:
        """The end of a declarator: a comma, a semicolon, or the next statement."""
        index += 1
        while index < len(self._tokens):
            token = self._tokens[index]
            if token.depth == 0 and (token.text in (",", ";") or (token.first and starts(self._tokens, index))):
                break
            index += 1
        return index

    def _of_value(self, index: int) -> tuple[Parameter, ...] | None:
        """The parameters of the function that is assigned to a variable."""
        if self._text(index) != "=":
            return None
        index += 2 if self._text(index + 1) == "async" else 1
        if self._text(index) == "function":
            index += 1
            index += 1 if self._text(index) == "*" else 0
            index += 1 if self._name(index) else 0
            return self._parameters(index) if self._text(index) == "(" else None
        if self._name(index) and self._text(index + 1) == "=>":
            return (Parameter(self._name(index)),)
        if self._text(index) == "(" and self._text(self._closing(index) + 1) == "=>":
            return self._parameters(index)
        return None

    def _closing(self, index: int) -> int:
        depth = self._tokens[index].depth
        for at in range(index + 1, len(self._tokens)):
            if self._tokens[at].depth == depth:
                return at
        return len(self._tokens)

    def _parameters(self, index: int) -> tuple[Parameter, ...]:
        """The parameters between the bracket at a token and its closing bracket."""
        depth, end = self._tokens[index].depth + 1, self._closing(index)
        groups: list[list[Token]] = [[]]
        for token in self._tokens[index + 1 : end]:
            if token.text == "," and token.depth == depth:
                groups.append([])
            else:
                groups[-1].append(token)
        found = []
        for group in filter(None, groups):
            rest = group[0].text == "..."
            head = group[1:] if rest else group
            name = head[0].text if head and head[0].kind == "word" else ""
            optional = rest or any(token.text == "=" and token.depth == depth for token in group)
            found.append(Parameter(name, optional, rest))
        return tuple(found)

    def _import(self, index: int) -> None:
        end = index + 1
        while end < len(self._tokens) and self._tokens[end].kind != "text":
            end += 1
        if end == len(self._tokens):
            return
        names, simple = _bindings(self._tokens[index + 1 : end])
        more = self._text(end + 1) in ("with", "assert") and self._text(end + 2) == "{"
        module = self._text(end)[1:-1]
        self._program.imported.append(Imported(module, self._tokens[index].line, names, simple and not more))
        if more:
            end = self._closing(end + 2)
        self._blank(index, end + 1 if self._text(end + 1) == ";" else end)

    def _export(self, index: int) -> None:
        follows = self._text(index + 1)
        if follows in ("{", "*"):
            end = self._closing(index + 1) if follows == "{" else index + 1
            if follows == "*" or self._text(end + 1) == "from":
                self._program.passed_on.append(self._tokens[index].line)
                return
            self._blank(index, end + 1 if self._text(end + 1) == ";" else end)
            return
        last = index + 1 if follows == "default" else index
        self._blank(index, last)
        self._declaration(last + 1)

    def _blank(self, first: int, last: int) -> None:
        last = min(last, len(self._tokens) - 1)
        self._program.spans.append((self._tokens[first].start, self._tokens[last].end))
        self.done = last + 1


def _bindings(tokens: list[Token]) -> tuple[tuple[tuple[str, str], ...], bool]:
    """The bindings of `import a, * as b, {c as d} from`, and whether all of it was understood."""
    words = [token.text for token in tokens]
    if not words:
        return (), True
    if words.pop() != "from":
        return (), False
    found: list[tuple[str, str]] = []
    while words:
        if words[0] in ("{", "}", ","):
            words.pop(0)
            continue
        if words[1:2] == ["as"] and len(words) > 2:
            found.append((words[0], words[2]))
            del words[:3]
        else:
            braced = "}" in words and "{" not in words
            found.append((words[0] if braced else "default", words[0]))
            del words[:1]
    return tuple(found), True
