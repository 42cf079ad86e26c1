"""Removes definitions from JavaScript code that the program already has."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from coderoom.generation.languages.javascript.program import read_program, starts
from coderoom.generation.languages.javascript.text import Token, lines_of, tokens_of

__all__ = ["without_repeats"]

_MOST = 300
_INTO = (".", "?.", "[")
_SETTING = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "??=", "||=", "&&=", "++", "--"])


class _Statement(NamedTuple):
    """A statement of the top level.

    Attributes:
        name: What it defines, if it defines one function, class or variable; empty otherwise.
        lasting: Whether nobody can change what that is, unless by setting the name.
        callable: Whether it is a function or a class.
        tokens: Its tokens.
    """

    name: str
    lasting: bool
    callable: bool
    tokens: Sequence[Token]

    @property
    def texts(self) -> tuple[str, ...]:
        """How it is written, but for spaces and comments."""
        texts = [each.text for each in self.tokens]
        return tuple(texts[1:] if texts[:1] == ["export"] else texts)

    @property
    def used(self) -> set[str]:
        """The names in it, and maybe words that are none."""
        return {each.text for each in self.tokens if each.kind == "word"}


def without_repeats(source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """Code without what it repeats of the functions that it calls; `_python.repeats` tells what that is.

    Args:
        source: The code.
        known: The code of the functions that are there when it runs.

    Returns:
        The code, and the names that it defines no more. If nothing is left out, it is what it was.
    """
    text = lines_of(source)
    own = _statements(text) if known else []
    if not own or len(own) > _MOST:
        return source, []
    beside = [each for code in known.values() for each in _statements(lines_of(code))]
    repeats = _repeats(own, known, beside)
    kept = [token.text for each in own if each not in repeats for token in each.tokens]
    left = _without(text, repeats)
    if not repeats or [token.text for token in tokens_of(left)] != kept:
        return source, []
    return left, list(dict.fromkeys(each.name for each in repeats))


def _repeats(own: Sequence[_Statement], known: Mapping[str, str], beside: Sequence[_Statement]) -> list[_Statement]:
    found: list[_Statement] = []
    there = {each.name for each in beside if each.name}
    same = _same(own, known, beside)
    count = -1
    while len(found) > count:  # What only a repeat has used is used by nobody any more.
        count = len(found)
        for each in [one for one in own if one not in found]:
            used = any(each.name in other.used for other in own if other is not each and other not in found)
            if each.name in known:
                found += [each] if each.callable else []
            elif each.name in there and (not used or each.name in same):
                found.append(each)
    return found


def _same(own: Sequence[_Statement], known: Mapping[str, str], beside: Sequence[_Statement]) -> set[str]:
    """The names that mean the same on both sides, in all that they use too, and cannot be changed by either."""
    here = _by_name(own)
    there = _by_name(beside)
    found = {
        name
        for name in here.keys() & there.keys()
        if len({each.texts for each in (*here[name], *there[name])}) == 1 and all(each.lasting for each in here[name])
    }
    found -= {name for each in (*own, *beside) for name in _set_in(each)}
    count = -1
    while len(found) != count:
        count = len(found)
        other = here.keys() - known.keys() - found
        found -= {name for name in found if any(each.used & other for each in here[name])}
    return found


def _by_name(statements: Iterable[_Statement]) -> dict[str, list[_Statement]]:
    found: dict[str, list[_Statement]] = {}
    for each in statements:
        if each.name:
            found.setdefault(each.name, []).append(each)
    return found


def _set_in(statement: _Statement) -> set[str]:
    """The names that may get another value, or another field, in a statement."""
    tokens = statement.tokens
    words = [index for index, each in enumerate(tokens) if each.kind == "word"]
    texts = ["", *(each.text for each in tokens), ""]
    return {
        tokens[index].text
        for index in words
        if (texts[index] in ("++", "--") or texts[index + 2] in _SETTING or texts[index + 2] in _INTO)
        and not (tokens[index].text == statement.name and tokens[index].depth == 0)
    }


def _statements(text: str) -> list[_Statement]:
    tokens = tokens_of(text)
    first = [index for index, each in enumerate(tokens) if each.depth == 0 and starts(tokens, index)]
    if first[:1] != [0] or not _is_balanced(tokens):
        return []
    return [_statement(text, tokens[at:end]) for at, end in zip(first, [*first[1:], len(tokens)], strict=True)]


def _is_balanced(tokens: Sequence[Token]) -> bool:
    signs = "".join(each.text for each in tokens if each.kind == "sign" and each.text in "()[]{}")
    depths = [*itertools.accumulate(1 if each in "([{" else -1 for each in signs)]
    return not depths or (min(depths) >= 0 and not depths[-1])


def _statement(text: str, tokens: Sequence[Token]) -> _Statement:
    program = read_program(text[tokens[0].start : tokens[-1].end])
    words = [each.text for each in tokens if each.text not in ("export", "default", "async")]
    if len(program.declared) != 1 or program.imported or program.passed_on or program.statements:
        return _Statement("", False, False, tokens)
    declared = program.declared[0]
    function = words[0] == "function"
    value = [each for each in tokens if each.text not in ("export", ";")][3:]
    plain = words[0] == "const" and [each.kind in ("number", "text") for each in value] == [True]
    at = 2 if words[1:2] == ["*"] else 1
    named = words[at : at + 1] == [declared.name]  # And not a part of a pattern.
    callable_ = words[0] == "class" or declared.parameters is not None
    return _Statement(declared.name if named else "", function or plain, callable_ and named, tokens)


def _without(text: str, repeats: Sequence[_Statement]) -> str:
    parts, at = [], 0
    for each in sorted(repeats, key=lambda one: one.tokens[0].start):
        end = each.tokens[-1].end
        parts.append(text[at : each.tokens[0].start])
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return "".join([*parts, text[at:]])
