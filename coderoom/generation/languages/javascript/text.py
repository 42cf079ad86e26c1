"""Splits JavaScript into tokens, enough to find what its top level declares."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

__all__ = ["Token", "lines_of", "tokens_of"]

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
        kind: What it is.
        text: How it is written.
        start: Where it begins.
        line: Its line, counted from 1.
        depth: How many brackets are open around it.
        first: Whether it is the first of its line.
    """

    kind: Kind
    text: str
    start: int
    line: int
    depth: int
    first: bool

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)


def lines_of(source: str) -> str:
    """The source with the ends of lines that this machine writes."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def tokens_of(source: str) -> list[Token]:
    """The tokens of a source. Of what is no JavaScript they are anything."""
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
        """Go over a space, an end of a line, or a comment."""
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
        """A piece of a template, up to its end or to the next expression in it."""
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
