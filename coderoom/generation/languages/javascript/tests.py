"""Exports tests as a file for `node --test`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from coderoom.generation.languages.javascript.values import as_expected, for_node
from coderoom.generation.specs import FunctionSpec
from coderoom.generation.testing.values import fields_of, tag_of

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = ["literal", "node_test_file"]

_SAFE = 2**53
_CLOSE = 10**6  # Floats that are whole and smaller are written as they are.
_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class _NoLiteralError(ValueError):
    """JavaScript has no such value."""


def node_test_file(tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec]) -> str:
    """The text of the file.

    Args:
        tests: The tests by the names of the functions.
        module: The name of the module's file, which is beside it.
        specs: The functions. Without them the order of each test's inputs is that of the arguments.
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
        return f"// Not here, since its property is an expression of Python: {title}"
    try:
        lines = _body(function, test, names)
    except _NoLiteralError as error:
        return f"// Not here, since JavaScript has no {error}: {title}"
    return "\n".join([f"test({title}, async () => {{", *(f"  {line}" for line in lines), "});"])


def _body(function: str, test: FunctionTest, names: Sequence[str]) -> list[str]:
    lines = [f"const given = {_object({name: for_node(data) for name, data in test.inputs.items()})};"]
    inputs = "given"
    if test.setup:
        lines.append(f"const inputs = await prepared(given, {json.dumps(test.setup)});")
        inputs = "inputs"
    # What is left out at the end takes its default; setup code may add what is not there.
    last = max((names.index(name) for name in test.inputs if name in names), default=-1)
    given = names if test.setup else names[: last + 1]
    call = f"program.{function}({', '.join(f'{inputs}.{name}' for name in given)})"
    if test.expects == "error":
        name, message = json.dumps(test.expected_error), json.dumps(test.error_message or "")
        return [*lines, f"await assert.rejects(async () => {call}, (error) => isA(error, {name}, {message}));"]
    expected = literal(as_expected(test.expected_output), "new Float({})")
    return [*lines, f"equal(await {call}, {expected}, {test.rel!r}, {test.abs!r});"]


def literal(data: Any, whole: str = "{}") -> str:
    """Tagged data as an expression of JavaScript.

    Args:
        data: The data.
        whole: What to make of a float that is whole.

    Raises:
        ValueError: JavaScript has no such value.
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
    # As a name in the text of an object, this one would set its prototype.
    pairs = [(f"[{json.dumps(key)}]" if key == "__proto__" else json.dumps(key), item) for key, item in fields.items()]
    return f"{{{', '.join(f'{key}: {literal(item, whole)}' for key, item in pairs)}}}"
