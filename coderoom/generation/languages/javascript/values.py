"""Converts test data for JavaScript, and writes tests as a file for `node --test`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

from coderoom.generation.specs import FunctionSpec
from coderoom.generation.values import fields_of, tag_of

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

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


_CLOSE = 10**6  # Smaller whole floats are written as plain numbers.
_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class _NoLiteralError(ValueError):
    """The value cannot be written in JavaScript."""


def node_test_file(tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec]) -> str:
    """The content of the file, for a module in the same folder.

    The `specs` have the order of the arguments; without them, it is that of the inputs of each test.
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
    """Tagged data as a JavaScript expression, with a template for whole floats; `_NoLiteralError` if there is none."""
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
