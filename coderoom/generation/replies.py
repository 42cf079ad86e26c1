"""Reads the replies of models: finds their code and JSON, and turns them into specs, tests and decisions."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from coderoom._util.text import encodable
from coderoom.blocks import Block, extract_code_blocks, without_thoughts
from coderoom.generation.languages import Language
from coderoom.generation.languages.python.declared import literal
from coderoom.generation.specs import FunctionSpec
from coderoom.judge import FunctionTest, encode
from coderoom.judge.cases import EXPECTATIONS
from coderoom.judge.source import UNREADABLE
from coderoom.models.json_output import json_objects

_LONGEST_REASON = 2_000


class Form(BaseModel):
    """The schema of a reply as JSON; it is `closed` if it names every part and can be used as a strict schema."""

    closed: ClassVar[bool] = True


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Input(_Strict):
    name: str
    type: str


class _Output(_Strict):
    type: str
    description: str


class _Spec(_Strict):
    name: str
    purpose: str
    inputs: list[_Input]
    outputs: _Output
    dependencies: list[str]
    complexity: Literal["simple", "medium", "complex"]


class SpecsForm(Form):
    """The functions of a program."""

    function_specs: list[_Spec]


class TestsForm(Form):
    """The tests of a function, with arbitrary data."""

    __test__: ClassVar[bool] = False
    closed: ClassVar[bool] = False

    tests: list[dict[str, Any]]


class RepairForm(Form):
    """A diagnosis and a repair."""

    closed: ClassVar[bool] = False

    wrong: Literal["implementation", "test"]
    reason: str
    implementation: str | None = None
    test: dict[str, Any] | None = None


SPECS_KEYS = ("function_specs", "functions", "specs")
TESTS_KEYS = ("tests", "test_cases")


def listed(text: str, keys: Sequence[str], function: str = "") -> list[Any] | None:
    """The lists in a reply, as a whole or under a key or the name of a function, joined to one list.

    It is `None` if there is no list.
    """
    lists = []
    for data in values_in(text):
        if isinstance(data, list):
            lists.append(data)
            continue
        found = next((data[key] for key in (*keys, function) if data.get(key) is not None), None)
        if isinstance(found, Mapping):
            found = found.get(function)
        if isinstance(found, list):
            lists.append(found)
    return [each for one in lists for each in one] if lists else None


def read_repair(text: str, function: str, language: Language) -> RepairForm | None:
    """The diagnosis and repair in a reply; `None` if there is no repair."""
    for data in _values(text):
        test, wrong, reason = data.get("test"), data.get("wrong"), str(data.get("reason") or "")[:_LONGEST_REASON]
        code = next((data[key] for key in ("implementation", "code") if isinstance(data.get(key), str)), "")
        if wrong == "test" and isinstance(test, Mapping):
            return RepairForm(wrong="test", reason=reason, test=dict(test))
        code = _bare(code, language) or (code_in(text, function, language) if "wrong" in data else "")
        if code.strip():
            return RepairForm(wrong="implementation", reason=reason, implementation=code)
    code = code_in(text, function, language)
    return RepairForm(wrong="implementation", reason="", implementation=code) if code else None


def code_in(text: str, function: str, language: Language) -> str:
    """The code of a function in a reply; empty if there is none."""
    text = without_thoughts(text)
    blocks = _blocks(text, language)
    defining = [code for code in blocks if function in language.names_defined(code)]
    if defining:
        return defining[-1]
    for data in _values(text):
        for key in ("implementation", "code", function):
            if isinstance(data.get(key), str):
                return _bare(data[key], language)
        inner = data.get("implementations")
        if isinstance(inner, Mapping) and isinstance(inner.get(function), str):
            return _bare(inner[function], language)
    if blocks:
        return "\n\n".join(blocks)
    return text if function in language.names_defined(text) else ""


def _bare(code: str, language: Language) -> str:
    """Code from a JSON string, without fences."""
    if "```" not in code and "~~~" not in code:
        return code
    return "\n\n".join(_blocks(code, language)) or code


def _blocks(text: str, language: Language) -> list[str]:
    return [block.code for block in _all_blocks(text) if block.language.lower() in ("", *language.labels)]


@functools.lru_cache(maxsize=4)
def _all_blocks(text: str) -> tuple[Block, ...]:
    """The code blocks of a reply. Cached, since a reply is searched more than once."""
    return tuple(extract_code_blocks(text))


def _values(text: str) -> list[dict[str, Any]]:
    return [value for value in values_in(text) if isinstance(value, dict)]


_DATA = frozenset({"", "json", "json5", "jsonc", "python", "py"})
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_LARGEST_LITERAL = 100_000
_WRONG_TYPES = ("TypeError", "AttributeError")  # Tests that expect these may intend a value of a wrong type.
_EMPTY = ("expected_error", "property", "setup", "then", "error_message")


def values_in(text: str) -> list[Any]:
    """The JSON values in a reply: the whole reply, fenced blocks, or objects within prose.

    JSON with comments or trailing commas and Python literals are accepted, too. Parts of an unreadable object and the
    model's thoughts are ignored.
    """
    stripped = without_thoughts(text).strip()
    blocks = _all_blocks(stripped) if "```" in stripped or "~~~" in stripped else ()  # Searching takes time.
    fenced = [block.code for block in blocks if block.language.lower() in _DATA]
    # From the first opening bracket to the last closing one of its kind.
    start = min((at for at in (stripped.find("{"), stripped.find("[")) if at >= 0), default=len(stripped))
    widest = stripped[start : stripped.rfind("}" if stripped[start : start + 1] == "{" else "]") + 1]
    found: list[Any] = []
    for candidates in ([stripped], fenced, [widest]):
        found = [value for value in map(_read, candidates) if isinstance(value, dict | list)]
        if found:
            return found
    for value, raw in json_objects(stripped):
        before = stripped[: stripped.find(raw)]
        # Prose may contain braces; only objects that no bracket encloses count.
        if all(before.count(opening) <= before.count(closing) for opening, closing in ("{}", "[]")):
            found.append(value)
    return found


def as_specs(found: Sequence[Any]) -> list[Any]:
    """Normalize specs: without unknown fields, and with short forms written in full."""
    return [_as_spec(each) if isinstance(each, Mapping) else each for each in found]


def as_tests(found: Sequence[Any], spec: FunctionSpec, language: Language) -> list[Any]:
    """Normalize tests: without unknown fields, with short forms written in full, and with values of declared types."""
    names: set[str] = set()
    return [
        _of_types(_as_test(each, number, spec, names), spec, language) if isinstance(each, Mapping) else each
        for number, each in enumerate(found, 1)
    ]


def unclear_values(test: FunctionTest, spec: FunctionSpec, language: Language) -> list[str]:
    """Questions about values that are ambiguous for their declared types."""
    types = {each.name: each.type for each in spec.inputs}
    questions = []
    if _are_read(test.inputs, test.expected_error, types, language):
        questions += [(f"inputs[{name!r}]", language.unclear(data, types[name])) for name, data in test.inputs.items()]
    if test.expects == "output":
        questions.append(("expected_output", language.unclear(test.expected_output, spec.outputs.type)))
    return [f"{place}: {what}" for place, what in questions if what]


def _as_spec(data: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: data[key] for key in FunctionSpec.model_fields if key in data}
    if isinstance(spec.get("name"), str):
        spec["name"] = spec["name"].strip().removesuffix("()")
    inputs = spec.get("inputs") or []
    if isinstance(inputs, Mapping):
        inputs = [{"name": name, "type": kind} for name, kind in inputs.items()]
    spec["inputs"] = inputs
    if isinstance(inputs, list):
        spec["inputs"] = found = []
        for each in inputs:
            if isinstance(each, str):
                name, _, kind = each.partition(":")
                each = {"name": name.strip(), "type": kind.strip() or "Any"}
            elif isinstance(each, Mapping) and "name" in each:
                each = {"name": each["name"], "type": each.get("type") or "Any"}
            found.append(each)
    outputs = spec.get("outputs") or "Any"
    outputs = {"type": outputs} if isinstance(outputs, str) else outputs
    if isinstance(outputs, Mapping):
        given = {key: outputs[key] for key in ("type", "description") if outputs.get(key) is not None}
        spec["outputs"] = {"type": "Any", **given}
    needs = spec.get("dependencies") or []
    spec["dependencies"] = [each for each in needs if each != spec.get("name")] if isinstance(needs, list) else needs
    if spec.get("complexity") not in ("simple", "medium", "complex"):
        spec.pop("complexity", None)
    return spec


def _as_test(data: Mapping[str, Any], number: int, spec: FunctionSpec, names: set[str]) -> dict[str, Any]:
    test = {key: data[key] for key in FunctionTest.model_fields if key in data}
    given = [key for key in EXPECTATIONS if test.get(key) not in (None, "")]
    for key in _EMPTY:  # Models often fill fields that do not apply with empty strings.
        if test.get(key) == "":
            test[key] = None
    if test.get("expected_output") == "" and given:
        del test["expected_output"]
    if test.get("kind") not in ("normal", "edge", "error"):
        test.pop("kind", None)
    name = str(test.get("name") or f"test {number}")
    test["name"] = name if name not in names else f"{name} ({number})"
    names.add(test["name"])
    error = test.get("expected_error")
    if isinstance(error, str):
        test["expected_error"] = error.partition(":")[0].strip().rpartition(".")[2]
    inputs = test.get("inputs")
    if isinstance(inputs, list) and len(inputs) == len(spec.inputs):
        test["inputs"] = {each.name: value for each, value in zip(spec.inputs, inputs, strict=True)}
    return test


def _of_types(test: dict[str, Any], spec: FunctionSpec, language: Language) -> dict[str, Any]:
    inputs = test.get("inputs")
    types = {each.name: each.type for each in spec.inputs}
    if isinstance(inputs, Mapping) and _are_read(inputs, test.get("expected_error"), types, language):
        test["inputs"] = {
            name: language.as_declared(data, types[name]) if name in types else data for name, data in inputs.items()
        }
    if "expected_output" in test:
        test["expected_output"] = language.as_declared(test["expected_output"], spec.outputs.type, result=True)
    return test


def _are_read(inputs: Mapping[str, Any], error: Any, types: Mapping[str, str], language: Language) -> bool:
    """Whether plain JSON is converted to the declared types.

    It is not, if a type error is expected and all inputs are otherwise of fitting types: then the plain JSON may be the
    wrong type.
    """
    known = [language.fits(data, types[name]) for name, data in inputs.items() if name in types]
    return error not in _WRONG_TYPES or not all(known)


def _read(text: str) -> Any:
    """The value of a text that is JSON or similar; `None` if it is not."""
    for candidate in (text, _TRAILING.sub(_kept, _COMMENT.sub(_kept, text))):
        try:
            return _as_data(json.loads(candidate, strict=False))
        except (ValueError, RecursionError):
            continue
    if len(text) > _LARGEST_LITERAL:
        return None
    with contextlib.suppress(*UNREADABLE, TypeError):
        return _as_data(literal(text.lstrip()))
    return None


def _kept(found: re.Match[str]) -> str:
    return found[1] or ""


def _as_data(value: Any) -> Any:
    """The value with tags for types that JSON lacks."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float | bytes | complex):
        return encode(value)
    if isinstance(value, list):
        return [_as_data(item) for item in value]
    if isinstance(value, tuple | set):
        items = sorted(value, key=repr) if isinstance(value, set) else value
        return {f"${type(value).__name__}": [_as_data(item) for item in items]}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {encodable(key): _as_data(item) for key, item in value.items()}
        return {"$dict": [[_as_data(key), _as_data(item)] for key, item in value.items()]}
    return value
