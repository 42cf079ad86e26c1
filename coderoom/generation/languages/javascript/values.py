"""Converts test data for JavaScript, and writes tests as a file for `node --test`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

from coderoom.generation.specs import FunctionSpec
from coderoom.generation.values import tag_of

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


_CLOSE = 10**6  # Smaller whole floats are compared like integers.


def node_test_file(tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec]) -> str:
    """The content of the file, for a module in the same folder.

    The `specs` have the order of the arguments; without them, it is that of the inputs of each test.
    """
    orders = {spec.name: [each.name for each in spec.inputs] for spec in specs}
    folder = resources.files("coderoom.generation.languages.javascript") / "node"
    helpers, decoding = ((folder / name).read_text("utf-8") for name in ("tests.mjs", "decode.mjs"))
    cases = [
        _case(function, test, orders.get(function) or list(test.inputs))
        for function, several in tests.items()
        for test in several
    ]
    # As a plain key of an object literal, `__proto__` would set the prototype. Within strings, its quotes are escaped.
    lines = ["  " + json.dumps(case).replace('"__proto__":', '["__proto__"]:') + "," for case in cases]
    listed = "\n".join(["const CASES = [", *lines, "];\n"])
    program = f"import * as program from {json.dumps('./' + module)};\n\n"
    return f"{program}{listed}\n{decoding}\n{helpers}"


def _case(function: str, test: FunctionTest, names: Sequence[str]) -> dict[str, Any]:
    case: dict[str, Any] = {"name": f"{function}: {test.name}"}
    if test.expects == "property" or test.has_steps:
        what = "its property is a Python expression" if test.expects == "property" else "it has steps"
        return {**case, "omitted": what}
    # Omitted arguments at the end take their defaults.
    last = max((names.index(name) for name in test.inputs if name in names), default=-1)
    inputs = {name: for_node(data) for name, data in test.inputs.items()}
    case |= {"call": function, "order": names[: last + 1], "inputs": inputs}
    if test.expects == "error":
        return {**case, "error": test.expected_error, "message": test.error_message or ""}
    expected = _with_floats(for_node(as_expected(test.expected_output)))
    return {**case, "expected": expected, "rel": test.rel, "abs": test.abs}


def _with_floats(data: Any) -> Any:
    """Expected data with a tag for whole floats, which are compared with a tolerance, unlike integers."""
    if isinstance(data, float) and data.is_integer() and abs(data) > _CLOSE:
        return {"$whole": data}
    return _deeper(data, _with_floats)
