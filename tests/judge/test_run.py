# ruff: noqa: E501 (pieces of code, one to a line)
from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import pytest

from coderoom.errors import GenerationError, RequestError
from coderoom.judge import Judge, Verdict, freeze
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox

from .examples import frozen, test_of


async def run_one(runner: Judge, source: str, **fields: Any) -> Verdict:
    (result,) = await runner.run({"f": textwrap.dedent(source)}, frozen("f", test_of(**fields)))
    return result


# Code, and the fields of a test that it passes; all are in one program, with names of their own.
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("def f(x): return x * 2", {"inputs": {"x": 2}, "expected_output": 4}),
    ("def f(): pass", {"expected_output": None}),
    ("def f(x): return tuple(x)", {"inputs": {"x": [1]}, "expected_output": [1]}),
    ("def f(x): return x[(1, 2)]", {"inputs": {"x": {"$dict": [[{"$tuple": [1, 2]}, "a"]]}}, "expected_output": "a"}),
    ("def f(x, /, *, y): return x - y", {"inputs": {"y": 1, "x": 3}, "expected_output": 2}),
    ("def f(x): raise KeyError(x)", {"inputs": {"x": 1}, "expected_error": "LookupError"}),
    ("import json\ndef f(): json.loads('')", {"expected_error": "JSONDecodeError", "error_message": "expecting"}),
    ("import json\ndef f(): json.loads('')", {"expected_error": "ValueError"}),
    ("def f(): next(iter([]))", {"expected_error": "StopIteration"}),
    ("def f(x): return x[::-1]", {"inputs": {"x": [1, 2]}, "property": "result[0] == x[-1] and len(x) == 2"}),
]  # fmt: skip
# Each of these runs a hundred times.
RIGHT_TOO: list[tuple[str, dict[str, Any]]] = [
    ("def f(x): return sorted(x)", {"inputs": {"x": {"$set": [2, 1]}}, "expected_output": [1, 2]}),
    ("async def f(x): return x", {"inputs": {"x": 1}, "expected_output": 1}),
    ("def f(x): return float(x)", {"inputs": {"x": "nan"}, "expected_output": {"$float": "nan"}}),
    ("class E(Exception): ...\nclass D(E): ...\ndef f(): raise D", {"expected_error": "E"}),
    ("import sys\ndef f(): sys.exit(3)", {"expected_error": "SystemExit"}),
    ("if __name__ == '__main__':\n    raise SystemExit(3)\ndef f(): return 1", {"expected_output": 1}),
    ("import pickle\nclass P: ...\ndef f(): return pickle.loads(pickle.dumps(P())).__class__ is P", {"expected_output": True}),
    (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\n    y: 'list[int]'\ndef f(): return P(1, [2])",
        {"expected_output": {"$object": {"type": "P", "fields": {"x": 1, "y": [2]}}}},
    ),
    (
        "class P:\n    def __init__(self): self.x = 1\ndef f(): return [P()]",
        {"property": "result[0].x == 1 and math.isclose(1.0, result[0].x)"},
    ),
    (
        "def f(path): return open(path).read()",
        {"inputs": {"path": "a"}, "setup": [{"file": "a", "text": "A"}], "expected_output": "A"},
    ),
    (
        "class P: ...\ndef f(p): return type(p).__name__",
        {"inputs": {"p": {"$name": "p"}}, "setup": [{"call": "P", "name": "p"}], "expected_output": "P"},
    ),
]  # fmt: skip
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("def f(x): return [x, x + 1]", {"inputs": {"x": 1}, "expected_output": [1, 3]}, "result[1]: expected 3, got 2"),
    ("def f(): return True", {"expected_output": 1}, "of the type bool instead of int"),
    ("def f(): return (1,)", {"expected_output": [1], "exact_types": True}, "expected the type list, got tuple"),
    ("def f(): return f", {"expected_output": [1]}, "functions have no value"),
    ("def f(): return 1 / 0", {"expected_output": 1}, "expected 1, but it raised ZeroDivisionError: division"),
    ("def f(): return 1", {"expected_error": "ValueError"}, "expected ValueError, but it returned 1"),
    ("def f(): raise KeyError", {"expected_error": "ValueError"}, "expected ValueError, but it raised KeyError"),
    ("def f(): raise ValueError('a')", {"expected_error": "ValueError", "error_message": "b"}, "with 'b' in its message"),
    ("def f(): return 1", {"property": "result == 2"}, "the property 'result == 2' does not hold"),
    ("def f(): return 1", {"property": "result"}, "must be True or False"),
    ("def f(): return [1]", {"property": "(each == 2 for each in result)"}, "must be True or False"),
    ("def f(): return 1", {"property": "result.x"}, "could not be evaluated: AttributeError"),
    ("def f(): return f", {"property": "result is not None"}, "cannot be decoded"),
    ("def f(): raise ValueError", {"property": "result is None"}, "but it raised ValueError"),
    ("def f(a): return 1", {"inputs": {"x": 1}, "expected_output": 1}, "unexpected keyword argument 'x'"),
    ("def g(): return 1", {"expected_output": 1}, "name 'f' is not defined"),
    ("def f(): return 1", {"setup": [{"call": "int", "args": ["x"]}], "expected_output": 1}, "StepError: ValueError: invalid literal"),
    ("def f(:", {"expected_output": 1}, "could not be loaded: SyntaxError"),
    ("raise ValueError('at once')", {"expected_output": 1}, "could not be loaded: ValueError: at once"),
    ("import os\nos._exit(0)", {"expected_output": None}, "ended its own process while it was loaded"),
    ("def f(): return 'x' * 10**7", {"expected_output": 1}, "more than 2000000 characters"),
]  # fmt: skip


def of_its_own(text: str, number: int) -> str:
    return re.sub(r"\b([fgDEP])\b", rf"\g<1>{number}", text)


async def run_together(runner: Judge, cases: Sequence[tuple[str, dict[str, Any]]]) -> list[Verdict]:
    sources = {f"f{number}": of_its_own(source, number) for number, (source, _) in enumerate(cases)}
    fields = [json.loads(of_its_own(json.dumps(each), number)) for number, (_, each) in enumerate(cases)]
    return await runner.run(
        sources, freeze({name: [test_of(**each)] for name, each in zip(sources, fields, strict=True)})
    )


class TestVerdicts:
    async def test_a_dump_has_the_keys_of_the_form(self, runner: Judge) -> None:
        result = await run_one(runner, "def f(x):\n    return [x]", inputs={"x": 1}, expected_output=[1])
        told = result.model_dump(mode="json")
        assert {key: told[key] for key in ("function", "test", "passed", "actual_output")} == {
            "function": "f",
            "test": "one",
            "passed": True,
            "actual_output": [1],
        }
        assert result.outcome is Outcome.OK
        assert result.duration > 0
        assert result.peak_memory

    @pytest.mark.parametrize("cases", [RIGHT, pytest.param(RIGHT_TOO, marks=pytest.mark.slow)], ids=["some", "others"])
    async def test_what_is_right_passes(self, runner: Judge, cases: Sequence[tuple[str, dict[str, Any]]]) -> None:
        results = await run_together(runner, cases)
        assert [(cases[number], each) for number, each in enumerate(results) if not each.passed] == []
        ends = [Outcome.ERROR if "expected_error" in fields else Outcome.OK for _, fields in cases]
        assert [each.outcome for each in results] == ends

    async def test_what_is_wrong_fails_and_says_why(self, runner: Judge) -> None:
        results = await run_together(runner, [(source, fields) for source, fields, _ in WRONG])
        for number, (result, (source, _, why)) in enumerate(zip(results, WRONG, strict=True)):
            assert not result.passed, source
            assert of_its_own(why, number) in result.why, source

    @pytest.mark.slow
    async def test_what_never_ends_is_stopped(self, runner: Judge) -> None:
        result = await run_one(runner, "def f():\n    while True: pass", expected_output=None)
        assert (result.passed, result.why) == (False, "The code was stopped after 2 seconds.")


class TestStates:
    @pytest.mark.slow
    async def test_a_file_that_was_there_is_there_as_it_was(self, runner: Judge) -> None:
        source = "open('a', 'w').close()\ndef f(x):\n    with open('a', 'a') as file: file.write('x')\n    return open('a').read()"
        tests = [test_of(f"{number}", inputs={"x": number}, expected_output="x") for number in range(3)]
        results = await runner.run({"f": source}, frozen("f", *tests))
        assert all(each.passed for each in results)

    async def test_results_stand_in_the_order_of_the_tests(self, runner: Judge) -> None:
        tests = {
            name: [test_of(f"{name}{number}", inputs={"x": number}, expected_output=number % 3) for number in range(40)]
            for name in "fg"
        }
        sources = {"f": "def f(x): return x % 3", "g": "def g(x): return f(x) if x < 20 else None"}
        results = await runner.run(sources, freeze(tests))
        assert [each.test for each in results] == [each.name for cases in tests.values() for each in cases]
        assert [each.passed for each in results] == [True] * 60 + [False] * 20

    async def test_some_functions_only(self, runner: Judge) -> None:
        tests = freeze({name: [test_of(expected_output=1)] for name in "fg"})
        (result,) = await runner.run({"f": "def f(): return 1"}, tests, functions=["f"])
        assert (result.function, result.passed) == ("f", True)

    async def test_code_that_breaks_all_at_once(self, runner: Judge) -> None:
        source = "import sys\nsys.modules['_coderoom_tests_.batches'].begin = None\ndef f(): return 1"
        result = await run_one(runner, source, expected_output=1)
        assert not result.passed
        assert "could no longer be run" in result.why

    @pytest.mark.slow
    async def test_large_results_have_a_state_to_themselves(self, runner: Judge) -> None:
        tests = [test_of(f"{n}", inputs={"x": n}, expected_output=[n] * 20_000) for n in range(5)]
        assert all(
            each.passed for each in await runner.run({"f": "def f(x): return [x] * 20_000"}, frozen("f", *tests))
        )


class TestRequests:
    async def test_changed_tests_do_not_run(self, runner: Judge) -> None:
        tests = frozen("f", test_of(inputs={"x": []}, expected_output=1))
        tests.tests["f"][0].inputs["x"].append(1)
        with pytest.raises(GenerationError, match="frozen"):
            await runner.run({"f": "def f(x): return 1"}, tests)

    async def test_a_function_without_code(self, runner: Judge) -> None:
        with pytest.raises(GenerationError, match="no implementation of 'f'"):
            await runner.run({}, frozen("f", test_of(expected_output=1)))

    @pytest.mark.parametrize(
        "arguments", [{"policy": "restricted"}, {"engine": "monty"}, {"limits": Limits(value_bytes=1_000)}], ids=str
    )
    async def test_a_sandbox_of_another_kind(self, arguments: dict[str, Any]) -> None:
        async with Sandbox(**arguments) as sandbox:
            with pytest.raises(RequestError):
                await Judge(sandbox).run({"f": "def f(): return 1"}, frozen("f", test_of(expected_output=1)))

    def test_a_workspace_is_refused(self, tmp_path: object) -> None:
        with pytest.raises(RequestError, match="without workspace"):
            Judge(Sandbox(workspace=str(tmp_path)))

    @pytest.mark.parametrize("arguments", [{"timeout": 0}, {"sessions": 0}])
    def test_nothing_is_no_time(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(RequestError):
            Judge(Sandbox(), **arguments)

    def test_one_place_is_too_few(self) -> None:
        with pytest.raises(RequestError, match="concurrency=2"):
            Judge(Sandbox(concurrency=1))

    @pytest.mark.parametrize("places", [2, 3])
    async def test_few_places_are_enough(self, places: int) -> None:
        tests = [test_of(f"{n}", inputs={"x": n}, property="result == x") for n in range(60)]
        async with Sandbox(concurrency=places) as sandbox:
            results = await Judge(sandbox, sessions=8).run({"f": "def f(x): return x"}, frozen("f", *tests))
        assert all(each.passed for each in results)

    @pytest.mark.slow
    async def test_many_runs_at_a_time_do_not_wait_for_each_other_for_ever(self) -> None:
        tests = frozen("f", *(test_of(f"{n}", inputs={"x": n}, property="result == x") for n in range(60)))
        async with Sandbox(concurrency=5) as sandbox:
            runner = Judge(sandbox)
            runs = await asyncio.gather(*(runner.run({"f": "def f(x): return x"}, tests) for _ in range(6)))
        assert all(each.passed for results in runs for each in results)
