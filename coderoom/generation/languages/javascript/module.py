"""Writes a program in JavaScript as a module, and its tests as a file for `node --test`."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from coderoom.generation.languages.javascript.program import Imported, Token, lines_of, read_program, starts, tokens_of
from coderoom.generation.specs import FunctionSpec
from coderoom.generation.values import fields_of, tag_of

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = [
    "as_actual",
    "as_expected",
    "for_judge",
    "for_node",
    "imported_names",
    "javascript_module",
    "literal",
    "node_test_file",
    "without_ends",
    "without_repeats",
]

_SAFE = 2**53
_KINDS = {"$tuple": "list", "$frozenset": "$set", "$bytearray": "$bytes", "$namedtuple": "$object"}
_WITH_ITEMS = ("$tuple", "$set", "$frozenset")
_WITH_FIELDS = ("$object", "$namedtuple")


def for_node(data: Any) -> Any:
    """Tagged data without tags that the reader in Node does not know: large integers, lone surrogates, dates."""
    tag, content = tag_of(data)
    if tag == "int" and abs(content) > _SAFE:
        return {"$int": hex(content)}
    if tag == "$str":
        return base64.b64decode(content).decode("utf-8", "surrogatepass")
    return _moment(tag, content) or _deeper(data, for_node)


def as_expected(data: Any) -> Any:
    """An expected value as JavaScript can represent it: with one type each of lists, sets, bytes and moments."""
    tag, content = tag_of(data)
    if tag == "$enum" and content.get("mixed") is True:
        return as_expected(content["value"])
    found = _moment(tag, content)
    if found is not None:
        return found
    found = _deeper(data, as_expected)
    kind = _KINDS.get(tag)
    if kind is not None:
        found = found[tag] if kind == "list" else {kind: found[tag]}
    return found


def as_actual(data: Any) -> Any:
    """An actual value, with whole numbers as integers, so that expected integers are compared exactly."""
    if type(data) is float and data.is_integer():
        return int(data)
    return _deeper(data, as_actual)


def for_judge(data: Any, *, hashed: bool = False) -> Any:
    """An actual value as Python can represent it: in sets and as keys, lists become tuples and sets frozen sets."""
    tag, content = tag_of(data)
    if tag == "$set" and isinstance(content, list):
        return {"$frozenset" if hashed else "$set": [for_judge(item, hashed=True) for item in content]}
    if tag == "$dict" and type(data) is dict and "$dict" in data and isinstance(content, list):
        pairs = [pair for pair in content if isinstance(pair, list) and len(pair) == 2]
        return {"$dict": [[for_judge(key, hashed=True), for_judge(item)] for key, item in pairs]}
    found = _deeper(data, lambda item: for_judge(item, hashed=hashed))
    return {"$tuple": found} if hashed and tag == "list" else found


def _moment(tag: str, content: Any) -> dict[str, str] | None:
    """A moment in UTC, which is also the default time zone."""
    if tag not in ("$date", "$datetime") or not isinstance(content, str):
        return None
    moment = datetime.fromisoformat(content)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return {"$datetime": moment.isoformat()}


def _deeper(data: Any, change: Callable[[Any], Any]) -> Any:
    """The data with a change applied to each part."""
    if type(data) is list:
        return [change(item) for item in data]
    if type(data) is not dict:
        return data
    tag, content = tag_of(data)
    if tag == "$dict":
        if "$dict" not in data:
            return {key: change(item) for key, item in data.items()}
        if not isinstance(content, list):
            return data
        return {tag: [[change(part) for part in pair] if isinstance(pair, list) else pair for pair in content]}
    if tag in _WITH_ITEMS and isinstance(content, list):
        return {tag: [change(item) for item in content]}
    if tag in _WITH_FIELDS and isinstance(content, dict):
        fields = content.get("fields")
        if isinstance(fields, dict):
            changed: Any = {name: change(item) for name, item in fields.items()}
        else:
            changed = [[pair[0], change(pair[1])] for pair in fields or () if isinstance(pair, list) and len(pair) == 2]
        return {tag: {**content, "fields": changed}}
    return data


_MOST = 300
_INTO = (".", "?.", "[")
_SETTING = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "??=", "||=", "&&=", "++", "--"])


class _Statement(NamedTuple):
    """A top-level statement.

    Attributes:
        name: The one function, class or variable that it defines; empty otherwise.
        lasting: Whether its value is immutable, apart from assignments to the name.
        callable: Whether it is a function or a class.
        tokens: Its tokens.
    """

    name: str
    lasting: bool
    callable: bool
    tokens: Sequence[Token]

    @property
    def texts(self) -> tuple[str, ...]:
        """Its tokens as text, without spaces and comments."""
        texts = [each.text for each in self.tokens]
        return tuple(texts[1:] if texts[:1] == ["export"] else texts)

    @property
    def used(self) -> set[str]:
        """The names in it, and possibly keywords."""
        return {each.text for each in self.tokens if each.kind == "word"}


def without_repeats(source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """Remove definitions from code that repeat the functions that it calls; see the function for Python.

    Args:
        source: The code.
        known: The code of the functions that exist when it runs.

    Returns:
        The code, unchanged if nothing was removed, and the names of the removed definitions.
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
    while len(found) > count:  # Removing a repeat may leave others unused.
        count = len(found)
        for each in [one for one in own if one not in found]:
            used = any(each.name in other.used for other in own if other is not each and other not in found)
            if each.name in known:
                found += [each] if each.callable else []
            elif each.name in there and (not used or each.name in same):
                found.append(each)
    return found


def _same(own: Sequence[_Statement], known: Mapping[str, str], beside: Sequence[_Statement]) -> set[str]:
    """The names whose definitions are the same and constant on both sides, including everything that they use."""
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
    """The names that a statement may assign or whose fields it may change."""
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
    named = words[at : at + 1] == [declared.name]  # Not a part of a pattern.
    callable_ = words[0] == "class" or declared.parameters is not None
    return _Statement(declared.name if named else "", function or plain, callable_ and named, tokens)


def _without(text: str, repeats: Sequence[_Statement]) -> str:
    parts, at = [], 0
    for each in sorted(repeats, key=lambda one: one.tokens[0].start):
        end = each.tokens[-1].end
        parts.append(text[at : each.tokens[0].start])
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return "".join([*parts, text[at:]])


_MODULES = (
    "assert async_hooks buffer child_process console constants crypto dgram diagnostics_channel dns events fs http "
    "http2 https inspector module net os path perf_hooks process punycode querystring readline stream string_decoder "
    "timers tls tty url util v8 vm wasi worker_threads zlib"
)
_OF_NODE = frozenset(_MODULES.split())


def without_ends(source: str) -> tuple[str, list[str]]:
    """The source with imports and `export` keywords blanked out, and its imports, one per binding."""
    source = lines_of(source)
    program = read_program(source)
    parts, at = [], 0
    for first, last in sorted(program.spans):
        parts += [source[at:first], "".join("\n" if char == "\n" else " " for char in source[first:last])]
        at = last
    imports = [text for each in program.imported for text in _import_statements(each)]
    return "".join([*parts, source[at:]]), imports


def imported_names(source: str) -> dict[str, str]:
    """The names that a source imports, and what each refers to."""
    kinds = {"*": "all of {}", "default": "the default of {}"}
    return {
        here: kinds.get(there, f"{{}}.{there}").format(each.module.removeprefix("node:"))
        for each in read_program(lines_of(source)).imported
        for there, here in each.names
    }


def javascript_module(implementations: Mapping[str, str], about: str) -> str:
    """The source of the module.

    Args:
        implementations: The code of each function, dependencies first.
        about: The purpose of the module, which becomes a comment.
    """
    bodies, imports, names = [], dict[str, None](), dict[str, None]()
    for source in implementations.values():
        body, needed = without_ends(source)
        program = read_program(body)
        # A bracket would continue the previous statement.
        guard = ";" if program.tokens and program.tokens[0].kind in ("sign", "regex", "template") else ""
        bodies.append(guard + body.strip())
        imports.update(dict.fromkeys(needed))
        names.update(dict.fromkeys(each.name for each in program.declared))
    parts = [_comment(about), "\n".join(imports), *bodies, f"export {{ {', '.join(names)} }};" if names else ""]
    return "\n\n".join(filter(None, parts)) + "\n"


def _import_statements(imported: Imported) -> Iterable[str]:
    """An import for each name, so that duplicates can be found."""
    own = imported.module.split("/")[0] in _OF_NODE
    module = json.dumps(f"node:{imported.module}" if own else imported.module)
    if not imported.names:
        yield f"import {module};"
    for there, here in imported.names:
        if there == "*":
            yield f"import * as {here} from {module};"
        elif there == "default":
            yield f"import {here} from {module};"
        else:
            yield f"import {{ {there if there == here else f'{there} as {here}'} }} from {module};"


def _comment(about: str) -> str:
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in about).strip() or "Functions."
    return "\n".join(f"// {line}".rstrip() for line in text.split("\n"))


_CLOSE = 10**6  # Smaller whole floats are written as plain numbers.
_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class _NoLiteralError(ValueError):
    """The value cannot be written in JavaScript."""


def node_test_file(tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec]) -> str:
    """The content of the file.

    Args:
        tests: The tests by function name.
        module: The file name of the module, in the same folder.
        specs: The functions; by default, the inputs of each test are in the order of the arguments.
    """
    orders = {spec.name: [each.name for each in spec.inputs] for spec in specs}
    helpers = (resources.files("coderoom.generation.languages.javascript") / "node" / "alike.mjs").read_text("utf-8")
    parts = [
        "import assert from 'node:assert/strict';\nimport test from 'node:test';\n"
        "import { inspect } from 'node:util';\n\n"
        f"import * as program from {json.dumps('./' + module)};"
    ]
    for function, cases in tests.items():
        for test in cases:
            parts.append(_test(function, test, orders.get(function) or list(test.inputs)))
    return "\n\n".join([*parts, helpers])


def _test(function: str, test: FunctionTest, names: Sequence[str]) -> str:
    title = json.dumps(f"{function}: {test.name}")
    if test.expects == "property":
        return f"// Omitted, since its property is a Python expression: {title}"
    if test.has_steps:
        return f"// Omitted, since it has steps: {title}"
    try:
        lines = _body(function, test, names)
    except _NoLiteralError as error:
        return f"// Omitted, since JavaScript has no  {error}: {title}"
    return "\n".join([f"test({title}, async () => {{", *(f"  {line}" for line in lines), "});"])


def _body(function: str, test: FunctionTest, names: Sequence[str]) -> list[str]:
    lines = [f"const given = {_object({name: for_node(data) for name, data in test.inputs.items()})};"]
    # Omitted arguments at the end take their defaults.
    last = max((names.index(name) for name in test.inputs if name in names), default=-1)
    call = f"program.{function}({', '.join(f'given.{name}' for name in names[: last + 1])})"
    if test.expects == "error":
        name, message = json.dumps(test.expected_error), json.dumps(test.error_message or "")
        return [*lines, f"await assert.rejects(async () => {call}, (error) => isA(error, {name}, {message}));"]
    expected = literal(as_expected(test.expected_output), "new Float({})")
    return [*lines, f"equal(await {call}, {expected}, {json.dumps(test.rel)}, {json.dumps(test.abs)});"]


def literal(data: Any, whole: str = "{}") -> str:
    """Tagged data as a JavaScript expression.

    Args:
        data: The data.
        whole: The template for whole floats.

    Raises:
        ValueError: The value cannot be written in JavaScript.
    """
    if data is None or isinstance(data, bool | str):
        return json.dumps(data)
    tag, content = tag_of(data)
    if tag == "float":
        return (whole if data.is_integer() and abs(data) > _CLOSE else "{}").format(_number(data))
    if tag in ("list", "$tuple"):
        return f"[{', '.join(literal(item, whole) for item in content)}]"
    if tag in ("$set", "$frozenset"):
        return f"new Set([{', '.join(literal(item, whole) for item in content)}])"
    if tag == "$dict":
        if all(isinstance(key, str) for key, _ in content):
            return _object(dict(content), whole)
        return f"new Map([{', '.join(f'[{literal(key)}, {literal(item, whole)}]' for key, item in content)}])"
    if tag == "$enum" and content.get("mixed") is True:
        return literal(content["value"], whole)
    if tag in ("$object", "$namedtuple", "$enum"):
        fields = fields_of(content) if tag != "$enum" else [(name, content[name]) for name in ("name", "value")]
        return f"instance({json.dumps(content['type'])}, {_object(dict(map(tuple, fields)), whole)})"
    return literal(content["items"], whole) if tag == "$array" else _leaf(tag, content)


def _leaf(tag: str, content: Any) -> str:
    if tag == "int":
        return str(content) if abs(content) <= _SAFE else f"{content}n"
    if tag == "$float":
        return _NUMBERS[content]
    if tag == "$int":
        return f"{content}n"  # Hexadecimal in both languages.
    if tag in ("$bytes", "$bytearray"):
        return f"Uint8Array.from(Buffer.from({json.dumps(content)}, 'base64'))"
    if tag == "$datetime":
        return f"new Date({json.dumps(content)})"
    if tag == "$str":
        return json.dumps(for_node({tag: content}))
    raise _NoLiteralError(f"value for {tag}")


def _number(value: float) -> str:
    return "-0" if value == 0 and math.copysign(1, value) < 0 else repr(value)


def _object(fields: Mapping[str, Any], whole: str = "{}") -> str:
    # As a plain key of an object literal, `__proto__` would set the prototype.
    pairs = [(f"[{json.dumps(key)}]" if key == "__proto__" else json.dumps(key), item) for key, item in fields.items()]
    return f"{{{', '.join(f'{key}: {literal(item, whole)}' for key, item in pairs)}}}"
