"""Checks generated JavaScript by its tokens before it runs.

Nothing here parses JavaScript: a syntax error is found when Node loads the code in the sandbox.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from coderoom.generation.languages import CodeProblem
from coderoom.generation.languages.javascript.program import (
    Declared,
    Imported,
    Program,
    Token,
    lines_of,
    read_program,
)
from coderoom.generation.specs import FunctionSpec

__all__ = [
    "RESERVED",
    "check_source",
    "names_defined",
]

_SETTING: Final = frozenset(str.split("= += -= *= /= ??= ||= &&= %= &= |= ^= ++ --"))
_LONGEST = 200_000
_DOING = frozenset({"for", "while", "do", "switch", "throw", "with", "return", "await", "debugger"})
_FREE = ("if", "try")
_WORDS = (
    "arguments await break case catch class const continue debugger default delete do else enum eval export extends "
    "false finally for function if implements import in instanceof interface let new null package private protected "
    "public return static super switch this throw true try typeof undefined var void while with yield"
)
RESERVED = frozenset(_WORDS.split())


def check_source(
    source: str, spec: FunctionSpec, taken: Mapping[str, str] | None, allowed_imports: Collection[str] | None
) -> list[CodeProblem]:
    """See `Language.check`."""
    if len(source) > _LONGEST:
        return [_too_long(source)]
    program = read_program(lines_of(source))
    found = [*_of_statements(program), *_of_imports(program.tokens, program.imported, allowed_imports)]
    found += [*_of_function(program, spec), *_of_names(program, spec, taken or {})]
    return sorted(found, key=lambda problem: problem.line or 0)


def _near(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def names_defined(source: str) -> list[str]:
    """The names that code defines at its top level, without imports."""
    return [each.name for each in read_program(lines_of(source)).declared]


def _problem(line: int | None, text: str) -> CodeProblem:
    return CodeProblem(line=line, text=text)


def _too_long(source: str) -> CodeProblem:
    return _problem(None, f"the code has {len(source):,} characters; at most {_LONGEST:,} are allowed")


def _of_statements(program: Program) -> Iterator[CodeProblem]:
    for line in program.passed_on:
        yield _problem(line, "exports from other modules are not allowed here")
    for each in program.imported:
        if not each.simple:
            yield _problem(each.line, "this form of import is not supported; import names, a default, or *")
    for token in program.statements:
        if token.text in _FREE or (token.text not in _DOING and _sets(program.tokens, token)):
            continue
        what = token.text if token.text in _DOING else "an expression"
        text = f"only definitions, imports and assignments are allowed at the top level, not {what}"
        yield _problem(token.line, f"{text}; move it into a function")


def _sets(tokens: list[Token], first: Token) -> bool:
    """Whether the statement that starts with a token is an assignment to something in this code."""
    for token in tokens[tokens.index(first) :]:
        if token.depth == 0 and token.text in _SETTING:
            return first.text not in ("module", "exports")
        if token.depth == 0 and (token.text == ";" or (token.first and token is not first and token.kind == "word")):
            return False
    return False


def _of_imports(
    tokens: list[Token], imported: Sequence[Imported], allowed: Collection[str] | None
) -> Iterator[CodeProblem]:
    for each in imported:
        yield from _of_module(each.module, each.line, allowed)
    for index, token in enumerate(tokens):
        if token.kind != "word" or _near(tokens, index - 1) in (".", "?."):
            continue
        called = _near(tokens, index + 1) == "("
        if token.text == "require" and called and _near(tokens, index - 1) != "function":
            yield _problem(token.line, "modules have no require(); use import")
        elif token.text == "import" and called and index + 2 < len(tokens):
            module = tokens[index + 2]
            if module.kind == "text" and _near(tokens, index + 3) in (")", ","):
                yield from _of_module(module.text[1:-1], token.line, allowed)
            elif allowed is not None:
                yield _problem(token.line, "the module of import() must be a string literal")
    for token in tokens:
        if allowed is not None and token.text in ("getBuiltinModule", "createRequire", "binding"):
            yield _problem(token.line, f"{token.text} is not allowed here; use import")


def _of_module(name: str, line: int, allowed: Collection[str] | None) -> Iterator[CodeProblem]:
    if name.startswith((".", "/", "file:")):
        yield _problem(line, "imports of other files are not possible here")
        return
    plain = name.removeprefix("node:")
    parts = plain.split("/")
    known = {each.removeprefix("node:") for each in allowed} if allowed is not None else None
    if known is not None and not any("/".join(parts[:count]) in known for count in range(1, len(parts) + 1)):
        listed = ", ".join(sorted(allowed or ())) or "none"
        yield _problem(line, f"the module {name!r} may not be imported; allowed are {listed}")


def _of_names(program: Program, spec: FunctionSpec, taken: Mapping[str, str]) -> Iterator[CodeProblem]:
    others = {name: owner for name, owner in taken.items() if owner != spec.name}
    bound = [(each.name, each.line) for each in program.declared]
    bound += [(here, each.line) for each in program.imported for _, here in each.names]
    for name, line in bound:
        if name in others:
            yield _problem(line, f"{name!r} is already defined by the code of {others[name]!r}; use another name")
        elif name in spec.dependencies:
            yield _problem(line, f"{name!r} is another function, which exists when this code runs; remove it")


def _of_function(program: Program, spec: FunctionSpec) -> list[CodeProblem]:
    found = [each for each in program.declared if each.name == spec.name]
    functions = [each for each in found if each.parameters is not None]
    if not functions:
        return [_problem(None, f"it does not define the function {spec.name!r} at its top level")]
    if len(found) > 1:
        return [_problem(found[1].line, f"it defines {spec.name!r} twice")]
    return _of_parameters(functions[0], spec)


def _of_parameters(function: Declared, spec: FunctionSpec) -> list[CodeProblem]:
    parameters = function.parameters or ()
    names = [each.name for each in parameters]
    wanted = [each.name for each in spec.inputs]
    signature = f"{spec.name}({', '.join(wanted)})"
    found = [
        _problem(function.line, f"the parameter {name!r} of {signature} is missing")
        for name in wanted
        if name not in names
    ]
    found += [
        _problem(function.line, f"{each.name or 'a pattern'!r} is not a parameter of {signature}; remove it")
        for each in parameters
        if each.name not in wanted and not (each.optional and each.name)
    ]
    if not found and [name for name in names if name in wanted] != wanted:
        found.append(_problem(function.line, f"the parameters must be in the order of {signature}"))
    return found
