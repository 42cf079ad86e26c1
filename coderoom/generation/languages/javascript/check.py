"""Checks generated JavaScript and setup code by their tokens before they run.

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
    tokens_of,
)
from coderoom.generation.specs import FunctionSpec

__all__ = [
    "MODULES",
    "RESERVED",
    "SETTING",
    "check_setup",
    "check_source",
    "names_defined",
    "problems_of_setup",
]

SETTING: Final = frozenset(str.split("= += -= *= /= ??= ||= &&= %= &= |= ^= ++ --"))
MODULES: Final = frozenset(
    str.split("assert buffer crypto events fs fs/promises os path querystring stream string_decoder timers url util")
)
_GLOBALS: Final = frozenset(
    str.split(
        "AggregateError Array ArrayBuffer BigInt Boolean Buffer DataView Date Error EvalError Float32Array "
        "Float64Array Infinity Int16Array Int32Array Int8Array Intl JSON Map Math NaN Number Object Promise "
        "Proxy RangeError ReferenceError RegExp Set String Symbol SyntaxError TextDecoder TextEncoder "
        "TypeError URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array WeakMap WeakSet "
        "clearInterval clearTimeout console inputs isFinite isNaN parseFloat parseInt process queueMicrotask "
        "setImmediate setInterval setTimeout structuredClone undefined"
    )
)
_BEHIND: Final = frozenset(
    str.split(
        "__defineGetter__ __defineSetter__ __proto__ arguments caller callee constructor createRequire "
        "createWriteStream defineProperties defineProperty eval getBuiltinModule getOwnPropertyDescriptor "
        "getPrototypeOf global globalThis openSync prototype require setPrototypeOf writeSync Function "
        "Reflect WebAssembly"
    )
)
_PATCHED: Final = frozenset({("Date", "now"), ("Math", "random"), ("process", "env"), ("console", "log")})
_INTO_FILES: Final = frozenset({"appendFile", "appendFileSync", "writeFile", "writeFileSync"})
_CHANGING: Final = frozenset(
    str.split("add append clear copyWithin delete fill pop push reverse set shift sort splice unshift")
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_SOMETIMES_WORDS: Final = ("as", "async", "from", "get", "of", "set", "static", "constructor")
_VARIABLES: Final = ("const", "let", "var")
_BEFORE_EXPRESSIONS: Final = (*_VARIABLES, "return", "of", "in", "await", "typeof", "case", "throw", "else", "yield")
_WAY_OUT: Final = "setup code builds inputs, calls the program's functions, and changes only objects of its own"


def problems_of_setup(
    tokens: list[Token], functions: Collection[str], reserved: Collection[str], known: bool
) -> Iterator[tuple[int, str]]:
    """Find what setup code does besides building inputs and calling the program's functions: lines and problems.

    Args:
        tokens: The code.
        functions: The names of the program's functions.
        reserved: The reserved words of the language.
        known: Whether `functions` is complete.
    """
    own = _declared(tokens) - {"inputs"}
    for index, token in enumerate(tokens):
        before, after = _near(tokens, index - 1), _near(tokens, index + 1)
        defined = token.text == "constructor" and token.kind == "word" and before in ("{", "}", ";")
        if (token.text.strip("'\"`") in _BEHIND and not defined) or (token.kind != "word" and "/proc" in token.text):
            yield token.line, f"setup code may not use {token.text}: {_WAY_OUT}"
        elif token.kind == "word" and before not in (".", "?.") and token.text not in reserved:
            yield from _of_name(tokens, index, own, functions, known)
        if token.text in _INTO_FILES and after == "(":
            named = tokens[index + 2 : index + 3]
            if named and named[0].kind not in ("text", "template"):
                yield token.line, f"in setup code, the file name of {token.text}() must be a string literal"
        for written in _written(tokens, index):
            if not _may_be_written(tokens, written, own):
                what = tokens[written].text
                yield token.line, f"setup code may not change {what!r}, which belongs to the program: {_WAY_OUT}"


def _of_name(
    tokens: list[Token], index: int, own: set[str], functions: Collection[str], known: bool
) -> Iterator[tuple[int, str]]:
    token, before, after = tokens[index], _near(tokens, index - 1), _near(tokens, index + 1)
    name = token.text
    if name in own or (after == ":" and before in ("{", ",")) or name in _SOMETIMES_WORDS:
        return
    if name == "process" and (after != "." or _near(tokens, index + 2) != "env"):
        yield token.line, "setup code may use only process.env of process"
    elif name == "import" or name in _GLOBALS:
        return
    elif (
        after == "("
        and before in ("{", "}", ",", ";", "get", "set", "async", "static", "*")
        and _opens_body(tokens, index + 1)
    ):
        return  # A method that the setup code defines.
    elif known and name not in functions and not _may_be_class(name, before):
        called = ", ".join(map(repr, functions))
        yield token.line, f"{name!r} is not known in setup code; it may call {called} and use classes of the program"


def _may_be_class(name: str, before: str) -> bool:
    return name[0].isupper() and (not name.isupper() or len(name) == 1 or before == "new")


def _written(tokens: list[Token], index: int) -> list[int]:
    """The indexes of the names at the root of a write target, if a token writes."""
    token, after = tokens[index], _near(tokens, index + 1)
    if token.text == "delete" and _near(tokens, index - 1) not in (".", "?."):
        return [index + 1]
    if token.text in ("++", "--"):
        return _roots(tokens, index - 1) if index and not token.first and _ends(tokens[index - 1]) else [index + 1]
    if token.kind == "sign" and token.text in SETTING:
        return _roots(tokens, index - 1)
    if token.text == "assign" and after == "(":
        return [index + 2]
    if token.kind == "word" and token.text in _CHANGING and after == "(" and _near(tokens, index - 1) in (".", "?."):
        # Methods of an object may change it, but methods must not change what a function returned.
        return [each for each in _roots(tokens, index) if _near(tokens, each + 1) == "("]
    return []


def _may_be_written(tokens: list[Token], index: int, own: set[str]) -> bool:
    token = tokens[index] if index < len(tokens) else None
    if token is None or token.kind != "word" or token.text in own or token.text in ("inputs", "this", "super", "new"):
        return True
    return (token.text, _near(tokens, index + 2)) in _PATCHED


def _roots(tokens: list[Token], index: int) -> list[int]:
    """The indexes of the root names of an expression that ends at a token; several for a pattern."""
    while index >= 0:
        token = tokens[index]
        if token.text in _CLOSE:
            end = index
            index = _opening(tokens, index)
            if index > 0 and _ends(tokens[index - 1]) and tokens[index].text != "{":
                index -= 1
                continue
            if _near(tokens, index - 1) in _VARIABLES:
                return []
            inside = range(index + 1, end)
            return [at for at in inside if tokens[at].kind == "word" and _near(tokens, at - 1) not in (".", "?.")]
        if token.kind != "word":
            return []
        if _near(tokens, index - 1) not in (".", "?."):
            return [index]
        index -= 2
    return []


def _opening(tokens: list[Token], index: int) -> int:
    depth = 1
    while depth and index > 0:
        index -= 1
        depth += (tokens[index].text in _CLOSE) - (tokens[index].text in _OPEN)
    return index


def _ends(token: Token) -> bool:
    return token.text in (")", "]") or (token.kind == "word" and token.text not in _BEFORE_EXPRESSIONS)


def _declared(tokens: list[Token]) -> set[str]:
    """The names that the code binds."""
    found: set[str] = set()
    for index, token in enumerate(tokens):
        if token.text in ("const", "let", "var"):
            found |= _names_in(tokens, index + 1, token.depth)
        elif token.text in ("function", "class", "catch"):
            found |= {each.text for each in tokens[index + 1 : index + 3] if each.kind == "word"} - {"extends"}
        elif token.text == "=>" and index and tokens[index - 1].kind == "word":
            found.add(tokens[index - 1].text)
        if token.text == "(" and _opens_body(tokens, index):
            found |= _names_in(tokens, index + 1, token.depth + 1)
    return found


def _opens_body(tokens: list[Token], index: int) -> bool:
    """Whether a bracket encloses parameters."""
    if _near(tokens, index - 1) in ("if", "for", "while", "switch", "with", "await"):
        return False
    end = next((at for at in range(index + 1, len(tokens)) if tokens[at].depth <= tokens[index].depth), len(tokens))
    return _near(tokens, end) in (")",) and _near(tokens, end + 1) in ("{", "=>")


def _names_in(tokens: list[Token], start: int, depth: int) -> set[str]:
    """The names of a pattern that starts at a token, without those in default values."""
    found: set[str] = set()
    skipped: int | None = None
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token.depth < depth or (token.depth == depth and token.text in (")", ";", "of", "in")):
            break
        if skipped is not None and (token.depth < skipped or (token.depth == skipped and token.text == ",")):
            skipped = None
        if skipped is None and token.text == "=":
            skipped = token.depth
        if skipped is None and token.kind == "word" and _near(tokens, index + 1) != ":":
            found.add(token.text)
        if token.depth == depth and index > start and token.first and token.kind == "word" and skipped == depth:
            break
    return found


def _near(tokens: list[Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


_LONGEST = 200_000
_DOING = frozenset({"for", "while", "do", "switch", "throw", "with", "return", "await", "debugger"})
_FREE = ("if", "try")
_DECLARING = ("function", "class", "const", "let", "var", "*")
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


def check_setup(
    source: str, functions: Collection[str], allowed_imports: Collection[str] | None, known: bool = True
) -> list[CodeProblem]:
    """See `Language.check_setup`."""
    if len(source) > _LONGEST:
        return [_too_long(source)]
    tokens = tokens_of(lines_of(source))
    found = list(_of_imports(tokens, (), allowed_imports))
    for index, token in enumerate(tokens):
        if token.kind != "word":
            continue
        before, after = _near(tokens, index - 1), _near(tokens, index + 1)
        if token.text == "import" and after not in ("(", "."):
            text = "setup code is not a module; write const { name } = await import('module')"
            found.append(_problem(token.line, text))
        elif token.text in functions and before not in (".", "?.") and (before in _DECLARING or after in SETTING):
            text = f"setup code may not define or change {token.text!r}, which is under test"
            found.append(_problem(token.line, text))
    if not found:
        found = list(_of_imports(tokens, (), MODULES))
        problems = dict.fromkeys(problems_of_setup(tokens, functions, RESERVED, known))
        found += [_problem(line, text) for line, text in problems]
    return sorted(found, key=lambda problem: problem.line or 0)


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
        if token.depth == 0 and token.text in SETTING:
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
