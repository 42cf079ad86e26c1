"""The forms of models' replies, and the readers of code and repairs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from coderoom._util.json_output import without_thoughts
from coderoom.blocks import Block, extract_code_blocks
from coderoom.generation.languages.base import Language
from coderoom.generation.replies import values_in

__all__ = [
    "Form",
    "Repair",
    "RepairForm",
    "SpecsForm",
    "TestsForm",
    "code_in",
    "read_repair",
    "read_specs_data",
    "read_tests_data",
]


class Form(BaseModel):
    """What an answer has to be as JSON.

    Attributes:
        closed: Whether every part of it is named, so that a model can be held to it by a strict schema.
    """

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
    """The tests of a function; their data can be anything."""

    __test__: ClassVar[bool] = False
    closed: ClassVar[bool] = False

    tests: list[dict[str, Any]]


class RepairForm(Form):
    """What is wrong, and the remedy."""

    closed: ClassVar[bool] = False

    wrong: Literal["implementation", "test"]
    reason: str
    implementation: str | None = None
    test: dict[str, Any] | None = None


class Repair(BaseModel):
    """A model's diagnosis and remedy, as far as it could be read.

    Attributes:
        wrong: What it says is wrong.
        reason: Why.
        code: The new code; empty if there is none.
        test: The test as it should be; `None` if there is none.
    """

    wrong: Literal["implementation", "test"]
    reason: str = ""
    code: str = ""
    test: dict[str, Any] | None = None


def read_specs_data(text: str) -> Any:
    """The list of specs in an answer; `None` if there is none."""
    return _listed(text, ("function_specs", "functions", "specs"))


def read_tests_data(text: str, function: str) -> Any:
    """The list of tests of a function in an answer; `None` if there is none."""
    return _listed(text, ("tests", "test_cases", function), function)


def _listed(text: str, keys: Sequence[str], function: str = "") -> list[Any] | None:
    """What an answer lists under one of some keys, or as its whole; several lists are one."""
    lists = []
    for data in values_in(text):
        if isinstance(data, list):
            lists.append(data)
            continue
        found = next((data[key] for key in keys if data.get(key) is not None), None)
        if isinstance(found, Mapping):
            found = found.get(function)
        if isinstance(found, list):
            lists.append(found)
    return [each for one in lists for each in one] if lists else None


def read_repair(text: str, function: str, language: Language) -> Repair | None:
    """The diagnosis and the remedy in an answer; `None` if there is no remedy."""
    for data in _values(text):
        test = data.get("test")
        wrong = data.get("wrong")
        code = next((data[key] for key in ("implementation", "code") if isinstance(data.get(key), str)), "")
        if wrong == "test" and isinstance(test, Mapping):
            return Repair(wrong="test", reason=str(data.get("reason") or ""), test=dict(test))
        code = _bare(code, language) or (code_in(text, function, language) if "wrong" in data else "")
        if code.strip():
            return Repair(wrong="implementation", reason=str(data.get("reason") or ""), code=code)
    code = code_in(text, function, language)
    return Repair(wrong="implementation", code=code) if code else None


def code_in(text: str, function: str, language: Language) -> str:
    """The code of a function in an answer; empty if there is none."""
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
    """Code in JSON may stand in a fence there too."""
    if "```" not in code and "~~~" not in code:
        return code
    return "\n\n".join(_blocks(code, language)) or code


def _blocks(text: str, language: Language) -> list[str]:
    return [block.code for block in _all_blocks(text) if block.language.lower() in ("", *language.labels)]


@functools.lru_cache(maxsize=4)
def _all_blocks(text: str) -> tuple[Block, ...]:
    """The blocks of an answer, which is looked at more than once; a large one takes its time."""
    return tuple(extract_code_blocks(text))


def _values(text: str) -> list[dict[str, Any]]:
    return [value for value in values_in(text) if isinstance(value, dict)]
