"""What the model is told of the functions of a program, and of code that failed."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.generation import FunctionSpec, GeneratorOptions, PythonLanguage
from coderoom.generation.program import MORE_TESTS, SPECS, Program, again, code_request, failures, refusals, request
from coderoom.judge import Verdict
from tests.judge.examples import test_of


def spec(name: str, *dependencies: str) -> FunctionSpec:
    data = {"name": name, "purpose": f"Does {name}.", "inputs": [{"name": "x", "type": "int"}]}
    return FunctionSpec.model_validate({**data, "outputs": {"type": "int"}, "dependencies": dependencies})


@pytest.fixture
def program() -> Program:
    made = Program("Compute it.", PythonLanguage(), GeneratorOptions(allowed_imports=["math"]))
    made.take_specs([spec("main", "half", "twice"), spec("half"), spec("twice", "half")])
    return made


def source(name: str, body: str = "return x", before: str = "") -> str:
    return f"{before}def {name}(x: int) -> int:\n    {body}\n"


def test_functions_are_in_order(program: Program) -> None:
    assert [*program.specs] == ["half", "twice", "main"]
    assert program.in_order({"main", "half"}) == ["half", "main"]
    program.warn("Look.")
    assert program.warnings == ["Look."]


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("half", source("half", before="import os\n"), "'os' may not be imported"),
        ("half", source("half") + source("main"), "'main' is another function of the program"),
        ("half", source("half", before="from math import *\n"), "could replace names of other functions"),
        (
            "twice",
            source("twice", before="from math import sqrt as floor\n"),
            "'floor' is math.sqrt here, but math.floor in",
        ),
        ("twice", source("twice", before="def floor():\n    pass\n"), "'floor' is something else here"),
        ("twice", source("twice", before="LIMIT = 2\n"), "'LIMIT' is already defined by the code of 'half'"),
        ("twice", source("twice", before="from math import floor\n"), ""),
    ],
)
def test_code_that_may_not_be_run(program: Program, name: str, code: str, why: str) -> None:
    wrong, _ = program.check(program.specs["half"], source("half", before="from math import floor\nLIMIT = 1\n"))
    assert wrong == []
    wrong, _ = program.check(program.specs[name], code)
    assert bool(wrong) is bool(why)
    assert why in "\n".join(wrong)


@pytest.mark.parametrize(("severity", "blocked"), [(None, False), ("high", False), ("medium", True), ("low", True)])
def test_the_scanner_blocks_from_a_severity_on(severity: Any, blocked: bool) -> None:
    program = Program("Compute it.", PythonLanguage(), GeneratorOptions(block_severity=severity))
    program.take_specs([spec("half")])
    wrong, findings = program.check(program.specs["half"], source("half", "return eval('1')"))
    assert [each.severity for each in findings] == ["medium"]
    assert bool(wrong) is blocked
    assert program.check(program.specs["half"], source("half", "return hash(__import__('hashlib').md5(b''))"))[0] == []


def test_a_dependency_is_shown_with_its_code_if_it_passes(program: Program) -> None:
    program.code = {"half": source("half", "return x // 2"), "twice": source("twice", "return 2 * x")}
    program.passed = {"half"}
    system, user = code_request(program, program.specs["main"])
    assert (system.role, user.role) == ("system", "user")
    assert "return x // 2" in user.content
    assert "return 2 * x" not in user.content
    assert "# Does twice." in user.content
    assert "Write the function `main`:\n" in user.content
    anew = code_request(program, program.specs["half"], "It failed.")[1].content
    assert "with a different approach" in anew
    assert "It failed." in anew
    assert "These functions of the program exist" not in anew
    assert "Compute it." in request(SPECS, program)[1].content
    more = request(MORE_TESTS, program, program.specs["half"], code="C", tests="T", alive="A")[1].content
    assert '{"tests": [...]}' in more


def test_replies_go_back_with_their_problems(program: Program) -> None:
    sent = again([], "", [f"p{number}" for number in range(25)])
    assert [each.role for each in sent] == ["assistant", "user"]
    assert sent[0].content == "(nothing)"
    assert "- p19\n" in sent[1].content
    assert "p20" not in sent[1].content
    assert refusals(["a"], ["b"]) == "It was not run:\n\n- a\n\nNote: b."


def verdict(name: str, passed: bool, **facts: Any) -> Verdict:
    return Verdict(function="f", test=name, passed=passed, why="" if passed else "expected 1", **facts)


def test_failures_in_words() -> None:
    tests = [test_of(f"t{number}", expected_output=1) for number in range(9)]
    few = failures([verdict("t0", True), verdict("t1", False, actual_output=2, error="ValueError")], tests)
    assert few.startswith("1 of its 2 tests pass. These do not:\n\nTest: ")
    assert '"name": "t1"' in few
    assert few.endswith("Returned: 2\nFailed because: expected 1\nRaised:\nValueError")
    many = failures([verdict(each.name, False, arguments_after={"x": [1]}) for each in tests], tests, ["n"])
    assert many.count("Test: ") == 6
    assert many.count("Arguments after the call: {'x': [1]}") == 6
    assert many.endswith("... and 3 more.\n\nNote: n.")
    assert "more." not in failures([verdict(each.name, False) for each in tests[:6]], tests)
