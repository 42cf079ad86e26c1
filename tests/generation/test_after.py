# ruff: noqa: E501 (pieces of code, one to a line)
"""Functions that change their arguments: properties see what the call has left of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from coderoom.generation import (
    AICodeGenerator,
    FunctionTest,
    PythonLanguage,
    TestResult,
    TestRunner,
    freeze,
    report_markdown,
    write_solution,
)
from coderoom.sandbox import Sandbox
from tests.support.commands import PYTEST

from .examples import frozen, test_of
from .scripted import ScriptedModel
from .test_pytest_file import agrees

SORTS = "result is None and after['xs'] == sorted(xs)"
RIGHT = "def f(xs):\n    xs.sort()"
WRONG = ["def f(xs):\n    pass", "def f(xs):\n    xs = sorted(xs)", "def f(xs):\n    xs.sort()\n    return xs"]


def sorting(name: str, *xs: Any) -> FunctionTest:
    return test_of(name, inputs={"xs": list(xs)}, property=SORTS)


async def run_one(runner: TestRunner, source: str, **fields: Any) -> TestResult:
    (result,) = await runner.run({"f": source}, frozen("f", test_of(**fields)))
    return result


@pytest.mark.slow
async def test_a_property_sees_what_the_call_has_left(runner: TestRunner) -> None:
    tests = frozen("f", sorting("three", 3, 1, 2), sorting("two", 2, 1))
    for source in (RIGHT, f"{RIGHT}\nclass Other: ...\nOther.seen = []"):  # Beside each other, and each in a fork.
        results = await runner.run({"f": source}, tests)
        assert [each.why for each in results] == ["", ""]
        assert [each.arguments_after for each in results] == [{"xs": [1, 2, 3]}, {"xs": [1, 2]}]
        assert [each.actual_output for each in results] == [None, None]
    for source in WRONG:
        results = await runner.run({"f": source}, tests)
        assert [each.passed for each in results] == [False, False], source
        assert all("does not hold" in each.why for each in results)
    assert results[0].arguments_after == {"xs": [1, 2, 3]}


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("def f(xs, /, *, y): xs.append(y)", {"inputs": {"y": 2, "xs": [1]}, "property": "after == {'xs': [1, 2], 'y': 2}"}),
        pytest.param("async def f(xs): xs.clear()", {"inputs": {"xs": [1]}, "property": "after['xs'] == [] and xs == [1]"}, marks=pytest.mark.slow),
        pytest.param("def f(d): d.update(a=1)\nclass P: ...", {"inputs": {"d": {}}, "property": "after['d'] == {'a': 1}"}, marks=pytest.mark.slow),
        ("def f(xs): return xs.pop()", {"inputs": {"xs": [1, 2]}, "property": "after['xs'] + [result] == xs"}),
        pytest.param("def f(s): s.discard(1)", {"inputs": {"s": {"$set": [1, 2]}}, "property": "after['s'] == {2}"}, marks=pytest.mark.slow),
        ("def f(xs): return len(xs)", {"inputs": {"xs": [1]}, "property": "result == 1 and after['xs'] == xs"}),
        ("def f(after): return after", {"inputs": {"after": 3}, "property": "result == after"}),
        (
            "def f(p): p.x += 1\nclass P:\n    x = 1",
            {"inputs": {"p": {"$name": "p"}}, "setup": [{"call": "P", "name": "p"}], "property": "result is None and after['p'].x == 2"},
        ),
    ],
)  # fmt: skip
async def test_whatever_the_function_is(runner: TestRunner, source: str, fields: dict[str, Any]) -> None:
    result = await run_one(runner, source, **fields)
    assert result.passed, result


@pytest.mark.parametrize(
    ("source", "fields", "why"),
    [
        ("def f(xs): xs.append(f)", {"inputs": {"xs": []}, "property": "len(after['xs']) == 1"}, "cannot be decoded"),
        ("def f(xs): xs += [10**4_000] * 1_200", {"inputs": {"xs": []}, "property": "len(after['xs']) == 1"}, "the arguments after the call cannot be read"),
        ("def f(xs): raise ValueError", {"inputs": {"xs": []}, "property": "after['xs'] == []"}, "it raised ValueError"),
        ("def f(xs): pass", {"inputs": {"xs": []}, "property": "after['ys'] == []"}, "KeyError"),
    ],
)  # fmt: skip
async def test_what_cannot_be_seen_fails(runner: TestRunner, source: str, fields: dict[str, Any], why: str) -> None:
    result = await run_one(runner, source, **fields)
    assert not result.passed
    assert why in result.why


async def test_the_function_changes_neither_what_is_expected_nor_the_inputs_as_they_were(runner: TestRunner) -> None:
    cheats = [
        "def f(xs):\n    xs[:] = []",
        "import gc\ndef f(xs):\n    for each in gc.get_objects():\n        if type(each) is dict and each.get('xs') is not None:\n            each['xs'] = []",
        "import sys\ndef f(xs):\n    frame = sys._getframe()\n    while frame:\n        frame.f_locals.get('job', {}).pop('property', None)\n        frame = frame.f_back",
    ]
    for source in cheats:
        results = await runner.run({"f": source}, frozen("f", sorting("three", 3, 1, 2), sorting("two", 2, 1)))
        assert [each.passed for each in results] == [False, False]


def test_what_may_stand_in_a_property() -> None:
    assert test_of(inputs={"xs": []}, property="after['xs'] == [1]").sees_after
    assert not test_of(inputs={"after": []}, property="result == after").sees_after
    assert not test_of(inputs={"xs": []}, property="[after for after in result] == xs").sees_after
    for name in ("xs", "after"):
        with pytest.raises(ValidationError, match="does not use result"):
            test_of(inputs={name: []}, property=f"{name} == []")


@pytest.mark.slow
async def test_the_file_for_pytest_says_the_same(runner: TestRunner, tmp_path: Path) -> None:
    tests = {
        "f": [sorting("three", 3, 1, 2), test_of("setup", inputs={"xs": {"$name": "x"}}, setup=[{"assign": "x", "value": [2, 1]}], property="after['xs'] == [1, 2]")],
        "g": [test_of(inputs={"y": 2, "xs": [{"$tuple": [1]}]}, property="after['xs'] == xs + [y]")],
        "after": [test_of(inputs={"xs": [1]}, property="after['xs'] == [] # said")],
    }  # fmt: skip
    right = {"f": RIGHT, "g": "def g(xs, /, *, y): xs.append(y)", "after": "async def after(xs): xs.clear()"}
    wrong = [
        {**right, "f": WRONG[0]},
        {**right, "f": WRONG[2], "g": "def g(xs, /, *, y): xs += [y, y]"},
        {**right, "after": "async def after(xs): return []"},
    ]
    await agrees(runner, tmp_path, right, freeze(tests), *wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["after", pytest.param("result", marks=pytest.mark.slow)])
def test_in_a_module_that_is_called_like_what_the_file_uses(tmp_path: Path, name: str) -> None:
    source = f"SEEN = []\ndef {name}(xs): SEEN.append(xs.pop())"
    tests = {name: [test_of(inputs={"xs": [1]}, property="result is None and after['xs'] == []")]}
    (tmp_path / f"{name}.py").write_text(source)
    for file, text in PythonLanguage().write_tests(tests, name).items():
        (tmp_path / file).write_text(text)
    command = [sys.executable, "-B", *PYTEST, f"test_{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")
@pytest.mark.slow
async def test_in_javascript_too(node_runner: TestRunner) -> None:
    tests = frozen(
        "f",
        sorting("three", 3, 1, 2),
        test_of("set", inputs={"xs": {"$set": [1]}}, property="after['xs'] == set()"),
    )
    right = "const f = (xs) => { if (xs.sort) xs.sort(); else xs.clear() }"
    wrong = "function f(xs) { xs = [1, 2, 3] }"
    assert [each.passed for each in await node_runner.run({"f": right}, tests)] == [True, True]
    assert [each.passed for each in await node_runner.run({"f": wrong}, tests)] == [False, False]


async def test_from_an_instruction_to_files(tmp_path: Path, sandbox: Sandbox) -> None:
    spec = {
        "name": "sort_in_place",
        "purpose": "Sort a list in place.",
        "inputs": [{"name": "xs", "type": "list[int]"}],
        "outputs": {"type": "None", "description": ""},
    }
    vacuous = {"name": "vacuous", "inputs": {"xs": [1]}, "property": "after == after"}
    tests = [sorting(str(len(xs)), *xs).model_dump(mode="json") for xs in ([], [2, 1], [3, 1, 2])]
    model = ScriptedModel(
        [spec],
        {"sort_in_place": [{"tests": [*tests, vacuous]}, {"tests": tests}]},
        {"sort_in_place": "def sort_in_place(xs):\n    return sorted(xs)"},
        {"sort_in_place": "```python\ndef sort_in_place(xs):\n    xs.sort()\n```"},
    )
    solution = await AICodeGenerator(model, sandbox=sandbox, cache=False).generate_solution("Sort in place.")
    assert solution.all_tests_passed, report_markdown(solution)
    assert "'vacuous' also holds for" in model.questions[2]
    assert "`after`" in model.questions[1]
    assert "Arguments after the call: {'xs': [2, 1]}" in model.questions[-1]
    written = write_solution(solution, tmp_path / "out")
    assert written.tests is not None
    assert "after['xs']" in written.tests.read_text()
