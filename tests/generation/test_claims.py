"""No wrong answer, empty test or malformed reply of `claims` becomes a success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, FunctionSpec, PythonLanguage, TestResult, TestRunner, freeze
from coderoom.generation.replies import TESTS_KEYS, code_in, listed, read_repair
from coderoom.judge.other_values import vacuous_tests
from coderoom.sandbox import Sandbox
from tests.judge.test_repeatable import CONDITIONS

from .claims import COMPARISONS, HARNESS, REPLIES, SILENT, STATES, VARYING
from .examples import test_of
from .hostile import AT_CALL, AT_LOAD
from .scripted import ScriptedModel
from .test_dishonest import DISHONEST, LIES
from .test_honesty import IN_CODE, IN_TESTS, NO_TESTS, NOISE, REPAIRS, SETUPS

HELPERS = """import datetime, gc, inspect, linecache, os, random, resource, secrets, signal, sys, threading, time, uuid
class C: pass
def depth():
    frame, count = sys._getframe(1), 0
    while frame:
        frame, count = frame.f_back, count + 1
    return count
"""


def renamed(source: str, number: int) -> str:
    """The source with names of its own, so that many can be in one program."""
    for name in ("CALLS", "COUNT", "NUMBERS", "LEFT", "FIRST", "class A", "A.", "make", "box"):
        source = source.replace(name, f"{name[:-1]}{number}." if name == "A." else f"{name}{number}")
    return source.replace("def f(", f"def f{number}(").replace("f.calls", f"f{number}.calls").replace(
        "getattr(f,", f"getattr(f{number},").replace("return f\nf = ", f"return f{number}\nf{number} = ")  # fmt: skip


async def passing(sandbox: Sandbox, sources: Sequence[str]) -> list[int]:
    """The numbers of the sources that pass, run as functions of one program."""
    functions = {f"f{number}": renamed(source, number) for number, source in enumerate(sources)}
    tests = [test_of(f"{n}", inputs={"n": n}, expected_output=n * n) for n in range(3)]
    results: list[TestResult] = await TestRunner(sandbox, timeout=2, strict=True).run(
        functions, freeze(dict.fromkeys(functions, tests))
    )
    failed = {each.function for each in results if not each.passed}
    return [number for number, name in enumerate(functions) if name not in failed]


def test_how_many_there_are() -> None:
    new = (VARYING, HARNESS, STATES, COMPARISONS, SILENT, REPLIES)
    old = (AT_CALL, AT_LOAD, DISHONEST, LIES, IN_CODE, IN_TESTS, NO_TESTS, NOISE, REPAIRS, SETUPS, CONDITIONS)
    assert sum(map(len, new)) >= 300
    assert sum(map(len, (*new, *old))) >= 500


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("conditions", [VARYING, HARNESS], ids=["varying", "harness"])
async def test_answers_that_depend_on_the_run(sandbox: Sandbox, conditions: list[str]) -> None:
    code = (
        "{}def f(n):\n    try:\n        right = {}\n    except Exception:\n        right = False\n"
        "    return n * n if right else -1\n"
    )
    sources = [code.format(HELPERS, each) for each in conditions]
    assert [conditions[number] for number in await passing(sandbox, sources)] == []


@pytest.mark.slow
async def test_answers_that_depend_on_state(sandbox: Sandbox) -> None:
    assert [[*STATES][number] for number in await passing(sandbox, [*STATES.values()])] == []


@pytest.mark.slow
async def test_values_that_are_not_equal(sandbox: Sandbox) -> None:
    functions = {
        f"f{number}": f"def f{number}():\n    return {text}\n" for number, (_, text, _) in enumerate(COMPARISONS)
    }
    tests = {
        name: [test_of(expected_output=expected, **fields)]
        for name, (expected, _, fields) in zip(functions, COMPARISONS, strict=True)
    }
    results = await TestRunner(sandbox).run(functions, freeze(tests))
    assert [COMPARISONS[number] for number, each in enumerate(results) if each.passed] == []


async def silent(sandbox: Sandbox, kind: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tests of a function that are kept."""
    spec = {"name": "f", "purpose": "p", "inputs": [{"name": "n", "type": "int"}],
            "outputs": {"type": kind, "description": ""}, "dependencies": [], "complexity": "simple"}  # fmt: skip
    named = [{"name": f"{number}", **each} for number, each in enumerate(cases)]
    model = ScriptedModel([spec], {"f": [{"tests": named}]}, {"f": "def f(n):\n    return 0\n"}, {"f": "No."})
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False, max_attempts=1)
    solution = await generator.generate_solution("Square a number.")
    assert not solution.all_tests_passed or solution.tests.get("f")
    return [cases[int(each.name)] for each in solution.tests.get("f", ())]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "int" else ()) for kind in dict(SILENT)]
)
async def test_tests_that_say_nothing(sandbox: Sandbox, kind: str) -> None:
    cases = [case for each, case in SILENT if each == kind]
    for first in range(0, len(cases), 40):
        assert await silent(sandbox, kind, cases[first : first + 40]) == []


@pytest.mark.parametrize(
    ("kind", "silent", "telling"),
    [
        ("list[dict[str, Any]]", "all(isinstance(x, dict) for x in result)", "[x['id'] for x in result] == [n]"),
        ("list[Point]", "isinstance(result, list)", "all(x.x > 0 for x in result)"),
        ("tuple[Any, ...]", "isinstance(result, tuple)", "all(x == n for x in result)"),
        ("Literal['even', 'odd']", "result in ('even', 'odd')", "result == 'odd'"),
        ("str (the text)", "isinstance(result, str)", "result.isdigit()"),
        ("number", "isinstance(result, int)", "result > 0"),
        ("Promise<Array<object>> | null", "result is None or len(result) >= 0", "result is not None"),
        ("Record<string, number>[][]", "isinstance(result, list)", "result != []"),
        ("list of strings", "isinstance(result, list)", "all(isinstance(x, str) for x in result)"),
    ],
)
async def test_types_known_in_part(runner: TestRunner, kind: str, silent: str, telling: str) -> None:
    spec = FunctionSpec.model_validate({"name": "f", "purpose": "p", "outputs": {"type": kind}})
    tests = [test_of(text, inputs={"n": 1}, property=text) for text in (silent, telling)]
    assert [each.name for each, _ in await vacuous_tests(tests, spec.name, spec.outputs.type, runner)] == [silent]


async def test_nothing_is_expected_beside_an_error(runner: TestRunner) -> None:
    spec = FunctionSpec.model_validate({"name": "f", "purpose": "p", "outputs": {"type": "None"}})
    silent = test_of("right", inputs={"n": 1}, expected_output=None)
    fails = test_of("wrong", inputs={"n": -1}, expected_error="ValueError")
    assert [each.name for each, _ in await vacuous_tests([silent], spec.name, spec.outputs.type, runner)] == ["right"]
    assert await vacuous_tests([silent, fails], spec.name, spec.outputs.type, runner) == []


@pytest.mark.slow
def test_replies_without_content() -> None:
    for text in REPLIES:
        assert not [each for each in listed(text, TESTS_KEYS, "f") or () if isinstance(each, dict)], text[:80]
        assert read_repair(text, "f", PythonLanguage()) is None, text[:80]
        assert "return 4" not in code_in(text, "f", PythonLanguage()), text[:80]
