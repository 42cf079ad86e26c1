from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.generation import (
    AICodeGenerator,
    CodeRefused,
    CodeWritten,
    GenerationEvent,
    Reply,
    Solution,
    StopReason,
    TestChanged,
    write_solution,
)
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

DOUBLE = [function("double", "x", purpose="Twice x.")]
DOUBLE_TESTS = {"double": [test("two", 4, x=2), test("zero", 0, x=0), test("minus", -6, x=-3)]}
GOOD = "def double(x):\n    return 2 * x"
SQUARE = "def double(x):\n    return x * x"  # Right for 2 and 0.
WRONG = "def double(x):\n    return 7"


def mended(code: str, reason: str = "it is not doubled") -> dict[str, Any]:
    return {"wrong": "implementation", "reason": reason, "implementation": code, "test": None}


def other_test(name: str, expected: Any, reason: str = "the instruction says so", **inputs: Any) -> dict[str, Any]:
    return {"wrong": "test", "reason": reason, "implementation": None, "test": test(name, expected, **inputs)}


async def solve(model: ScriptedModel, sandbox: Sandbox, **options: Any) -> Solution:
    options = {"cache": False, "test_timeout": 2.0, "retries": 0} | options
    return await AICodeGenerator(model, sandbox=sandbox, **options).generate_solution("Double a number.")


async def test_an_instruction_becomes_tested_code(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    assert solution.stop_reason is StopReason.PASSED
    assert solution.implementations == {"double": GOOD}
    assert [result.passed for result in solution.test_results] == [True] * 3
    assert (solution.usage.requests, solution.usage.prompt_tokens) == (3, 300)
    assert solution.missing == []
    assert model.asked == [("specs", ""), ("tests", "double"), ("code", "double")]


async def test_solutions_of_an_open_generator_share_a_sandbox() -> None:
    before, model = children(), ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    async with AICodeGenerator(model, cache=False) as generator:
        solutions = [await generator.generate_solution("Double a number.")]
        sandbox = children() - before
        solutions.append(await generator.generate_solution("Double a number again."))
        assert children() - before == sandbox
    assert sandbox
    assert children() <= before
    assert all(solution.all_tests_passed for solution in solutions)


def children() -> set[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


@pytest.mark.parametrize(
    ("tests", "trivial"),
    [
        ([test(f"{n}", 4, x=n) for n in (2, -2, 3)], "always returns 4"),
        ([test(f"{n}", n, x=n) for n in (2, 0, 3)], "returns its first argument"),
        ([{"name": f"{n}", "inputs": {"x": n}, "expected_error": "ValueError"} for n in "abc"], "always fails"),
    ],
)
async def test_tests_that_a_useless_function_passes_are_a_warning(
    sandbox: Sandbox, tests: list[dict[str, Any]], trivial: str
) -> None:
    solution = await solve(ScriptedModel(DOUBLE, {"double": tests}, {"double": GOOD}), sandbox, max_attempts=1)
    assert any(warning.endswith(trivial) for warning in solution.warnings)


async def test_the_dump_has_the_keys_and_shapes_that_users_know(sandbox: Sandbox) -> None:
    solution = await solve(ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD}), sandbox)
    dump = solution.model_dump(mode="json")
    assert dump["instruction"] == "Double a number."
    assert dump["function_specs"][0]["inputs"] == [{"name": "x", "type": "int"}]
    assert dump["function_specs"][0]["outputs"] == {"type": "int", "description": ""}
    assert dump["implementations"] == {"double": GOOD}
    assert {"name": "two", "inputs": {"x": 2}, "expected_output": 4}.items() <= dump["tests"]["double"][0].items()
    assert {"function": "double", "test": "two", "passed": True, "actual_output": 4}.items() <= dump["test_results"][
        0
    ].items()
    assert dump["all_tests_passed"] is True
    assert solution["all_tests_passed"] is True
    assert Solution.model_validate_json(solution.model_dump_json()) == solution
    with pytest.raises(KeyError):
        solution["none"]


async def test_functions_are_written_in_the_order_of_their_dependencies(sandbox: Sandbox) -> None:
    specs = [function("four", needs=["double"]), function("double"), function("other")]
    tests = {**DOUBLE_TESTS, "four": [test("a", 12, x=3), test("b", 0, x=0), test("c", 4, x=1)]}
    tests["other"] = [test("a", 4, x=3), test("b", 1, x=0), test("c", 2, x=1)]
    code = {
        "double": GOOD,
        "four": "def four(x):\n    return double(double(x))",
        "other": "def other(x):\n    return x + 1",
    }
    model = ScriptedModel(specs, tests, code, seconds=0.05)
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    assert list(solution.implementations) == ["double", "other", "four"]
    assert model.asked.index(("code", "double")) < model.asked.index(("code", "four"))
    assert "return 2 * x" in model.questions[model.asked.index(("code", "four"))]
    assert model.most_at_once >= 2


async def test_no_more_requests_are_on_their_way_than_there_may_be(sandbox: Sandbox) -> None:
    names = [f"f{number}" for number in range(5)]
    tests = {name: [test("a", 3, x=3), test("b", 0, x=0), test("c", 1, x=1)] for name in names}
    code = {name: f"def {name}(x):\n    return x" for name in names}
    model = ScriptedModel([function(name) for name in names], tests, code, seconds=0.02)
    assert (await solve(model, sandbox, concurrency=2)).all_tests_passed
    assert model.most_at_once == 2


async def test_requests_begin_no_more_often_than_they_may(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await solve(model, sandbox, requests_per_minute=300)).all_tests_passed
    assert loop.time() - began >= 0.4, "three requests have to wait twice for a fifth of a second"


@pytest.mark.slow
def test_they_do_so_also_where_one_event_loop_follows_another() -> None:
    began: list[float] = []

    class Timed(ScriptedModel):
        async def complete(self, *arguments: Any) -> Reply:
            began.append(time.monotonic())
            return await super().complete(*arguments)

    model = Timed(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    generator = AICodeGenerator(model, cache=False, requests_per_minute=100)
    begin = time.monotonic()
    for _ in range(2):
        assert asyncio.run(generator.generate_solution("Double a number.")).all_tests_passed
    assert len(began) == 6
    assert all(each >= begin + number * 0.6 - 0.001 for number, each in enumerate(began))


async def test_a_circle_is_named_and_sent_back_once(sandbox: Sandbox) -> None:
    circle = {"function_specs": [function("a", needs=["b"]), function("b", needs=["a"])]}
    model = ScriptedModel(["x"], DOUBLE_TESTS, {"double": GOOD})
    model._left["specs", ""] = [circle, {"function_specs": DOUBLE}]
    assert (await solve(model, sandbox)).all_tests_passed
    assert "dependency cycle: " in model.questions[1]

    model._left["specs", ""] = [circle]
    model.asked.clear()
    solution = await solve(model, sandbox)
    assert model.asked == [("specs", "")] * 2
    assert "dependency cycle: " in solution.error
    assert solution.stop_reason is StopReason.UNUSABLE
    assert not solution.all_tests_passed


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("I would rather not.", "no JSON object"),
        ({"function_specs": []}, "at least one"),
        ({"function_specs": [function("a"), function("a")]}, "twice"),
        ({"function_specs": [function("2a")]}, "is not a valid identifier"),
        ({"function_specs": [function("a", needs=["b"])]}, "which is not among the functions"),
        (Reply("{", complete=False), "cut off"),
    ],
)
async def test_unusable_functions_are_sent_back_with_the_reason(sandbox: Sandbox, answer: Any, word: str) -> None:
    model = ScriptedModel([answer, "no"], {}, {})
    model._left["specs", ""] = [answer]
    solution = await solve(model, sandbox)
    assert word in model.questions[1]
    assert word in solution.error
    assert not solution.all_tests_passed
    assert solution.missing == [solution.error]


async def test_tests_that_are_wrong_are_sent_back_and_the_right_ones_are_kept(sandbox: Sandbox) -> None:
    some = [
        test("two", 4, x=2),
        test("three", 6, y=3),
        {**test("four", 8, x=4), "setup": [{"call": "triple", "args": [1]}]},
    ]
    model = ScriptedModel(DOUBLE, {"double": [{"tests": some}]}, {"double": GOOD})
    solution = await solve(model, sandbox)
    again = model.questions[2]
    assert "tests[1]" in again
    assert "setup[0]: 'triple' is unknown; a step may use 'double'" in again
    assert [each.name for each in solution.tests["double"]] == ["two"]
    assert any("tests of double" in warning for warning in solution.warnings)
    assert solution.all_tests_passed


@pytest.mark.parametrize(
    "answer",
    [
        'Here:\n\n```json\n{"tests": [{"name": "two", "inputs": {"x": 2}, "expected_output": 4, // twice\n},]}\n```',
        "{'tests': [{'name': 'two', 'inputs': {'x': 2}, 'expected_output': 4, 'setup': None}]}",
        '<think>{"tests": []}</think>{"tests": [{"name": "two", "inputs": {"x": 2}, "expected_output": 4}]}',
        '{"tests": {"double": [{"name": "two", "inputs": {"x": 2}, "expected_output": 4, "why": "2 * 2"}]}}',
        '[{"inputs": [2], "expected_output": 4, "expected_error": "", "kind": "typical"}]',
    ],
)
async def test_tests_are_read_as_they_were_meant(sandbox: Sandbox, answer: str) -> None:
    solution = await solve(ScriptedModel(DOUBLE, {"double": [answer]}, {"double": GOOD}), sandbox)
    assert [(each.inputs, each.expected_output) for each in solution.tests["double"]] == [({"x": 2}, 4)]


async def test_several_lists_of_tests_are_one_and_no_test_is_lost_unseen(sandbox: Sandbox) -> None:
    fenced = "\n".join(
        f'```json\n{{"tests": [{{"inputs": {{"x": {x}}}, "expected_output": {2 * x}}}]}}\n```' for x in range(4)
    )
    solution = await solve(ScriptedModel(DOUBLE, {"double": [fenced]}, {"double": GOOD}), sandbox)
    assert len(solution.tests["double"]) == 4
    pair = "{'inputs': {'x': (1, 2)}, 'expected_output': (2, 4)}"
    literals = f"{{'tests': [{pair}, {{'inputs': {{'x': None}}, 'expected_error': 'TypeError: no'}}]}}"
    solution = await solve(ScriptedModel(DOUBLE, {"double": [literals]}, {"double": GOOD}), sandbox)
    assert solution.tests["double"][0].inputs == {"x": {"$tuple": [1, 2]}}
    assert solution.tests["double"][1].expected_error == "TypeError"
    assert not solution.all_tests_passed


async def test_functions_are_read_as_they_were_meant(sandbox: Sandbox) -> None:
    short = {"name": "double()", "purpose": "Twice x.", "inputs": {"x": "int"}, "outputs": "int", "dependencies": None}
    model = ScriptedModel([{**short, "complexity": "O(1)", "errors": []}], DOUBLE_TESTS, {"double": GOOD})
    assert (await solve(model, sandbox)).all_tests_passed


async def test_two_tests_that_contradict_each_other_are_not_both_taken(sandbox: Sandbox) -> None:
    some = [*DOUBLE_TESTS["double"], test("again", 5, x=2)]
    model = ScriptedModel(DOUBLE, {"double": some}, {"double": GOOD})
    solution = await solve(model, sandbox)
    assert "expects a different result of the same call" in model.questions[2]
    assert solution.all_tests_passed
    assert len(solution.tests["double"]) == 3


async def test_without_tests_nothing_passes(sandbox: Sandbox) -> None:
    solution = await solve(ScriptedModel(DOUBLE, {"double": [{"tests": []}]}, {"double": GOOD}), sandbox)
    assert not solution.all_tests_passed
    assert "no usable tests" in solution.error


async def test_a_function_whose_tests_are_missing_does_not_pass(sandbox: Sandbox) -> None:
    tests = {**DOUBLE_TESTS, "other": [{"tests": []}]}
    model = ScriptedModel([*DOUBLE, function("other")], tests, {"double": GOOD, "other": "def other(x):\n    return x"})
    solution = await solve(model, sandbox)
    assert not solution.all_tests_passed
    assert solution.implementations == {"double": GOOD}
    assert "other: there is no code" in solution.missing


async def test_failing_code_is_mended_by_what_the_tests_saw(sandbox: Sandbox) -> None:
    bad = "def double(x):\n    if x < 0:\n        raise KeyError(x)\n    return x * 3"
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": bad}, {"double": mended(GOOD)})
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    question = model.questions[-1]
    assert "1 of its 3 tests pass" in question
    assert "Returned: 6" in question
    assert "raise KeyError(x)" in question
    assert "in double, line 3 of double" in question
    attempts = solution.functions[0].attempts
    assert [(each.approach, each.passed, each.failed) for each in attempts] == [("first", 1, 2), ("patch", 3, 0)]
    assert attempts[1].reason == "it is not doubled"


async def test_code_in_a_fence_counts_too_as_a_remedy(sandbox: Sandbox) -> None:
    answer = f'Oh.\n\n{{"wrong": "implementation", "reason": "so"}}\n\n```python\n{GOOD}\n```'
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": WRONG}, {"double": answer})
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    assert solution.functions[0].attempts[1].reason == "so"


async def test_after_two_patches_that_fail_there_is_another_approach(sandbox: Sandbox) -> None:
    patches = [mended(SQUARE), mended("def double(x):\n    return x + 2"), mended(WRONG)]
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": [WRONG, GOOD]}, {"double": patches})
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    assert [each.approach for each in solution.functions[0].attempts] == ["first", "patch", "patch", "fresh"]
    assert "with a different approach" in model.questions[-1]
    assert "return x + 2" not in model.questions[-1]


async def test_the_same_code_again_ends_it(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": WRONG}, {"double": mended(WRONG)})
    solution = await solve(model, sandbox, max_attempts=50)
    assert solution.stop_reason is StopReason.SAME_CODE
    assert len(solution.functions[0].attempts) == 3
    assert not solution.all_tests_passed


async def test_the_same_error_again_ends_it(sandbox: Sandbox) -> None:
    codes = [f"def double(x):\n    # {number}\n    raise ValueError(object())" for number in range(9)]
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": codes[:2]}, {"double": [mended(each) for each in codes[2:]]})
    solution = await solve(model, sandbox, max_attempts=50)
    assert solution.stop_reason is StopReason.SAME_ERROR
    assert len(solution.functions[0].attempts) == 3


async def test_the_best_code_is_never_lost(sandbox: Sandbox) -> None:
    worse = [f"def double(x):\n    return {number}" for number in (1, 4, 9)]
    model = ScriptedModel(
        DOUBLE, DOUBLE_TESTS, {"double": [SQUARE, worse[0]]}, {"double": [mended(each) for each in worse]}
    )
    solution = await solve(model, sandbox, max_attempts=4)
    assert solution.stop_reason is StopReason.ATTEMPTS
    assert solution.implementations["double"] == SQUARE
    assert sum(result.passed for result in solution.test_results) == 2
    assert any("minus" in line for line in solution.missing)


OTHER = """\
def _helper(x):
    return x + 1


def other(x):
    return _helper(x)"""
OTHER_TESTS = [test("two", 3, x=2), test("zero", 1, x=0), test("minus", -2, x=-3)]


async def test_the_best_code_keeps_its_names_when_worse_code_was_tried_after_it(sandbox: Sandbox) -> None:
    square = "def _helper(x):\n    return x * x\n\n\ndef double(x):\n    return _helper(x)"
    model = ScriptedModel(
        [*DOUBLE, function("other", needs=["double"])],
        {**DOUBLE_TESTS, "other": OTHER_TESTS},
        {"double": square, "other": OTHER},
        {"double": mended(WRONG), "other": mended(OTHER.replace("_helper", "_more"))},
    )
    solution = await solve(model, sandbox, max_attempts=2)
    assert "'_helper' is already defined by the code of 'double'" in solution.functions[1].attempts[0].problems[0]
    assert solution.implementations["double"] == square
    assert [(each.function, each.tests_passed) for each in solution.functions] == [("double", 2), ("other", 3)]


async def test_code_that_was_tried_and_is_not_the_best_keeps_no_names(sandbox: Sandbox) -> None:
    worse = "def _helper(x):\n    return 7\n\n\ndef double(x):\n    return _helper(x)"
    model = ScriptedModel(
        [*DOUBLE, function("other", needs=["double"])],
        {**DOUBLE_TESTS, "other": OTHER_TESTS},
        {"double": SQUARE, "other": OTHER},
        {"double": mended(worse)},
    )
    solution = await solve(model, sandbox, max_attempts=2)
    assert [(each.function, each.tests_passed) for each in solution.functions] == [("double", 2), ("other", 3)]
    assert len(solution.functions[1].attempts) == 1


async def test_a_test_changes_only_by_a_recorded_decision(sandbox: Sandbox) -> None:
    tests = {"double": [test("two", 5, x=2), test("zero", 0, x=0), test("minus", -6, x=-3)]}
    model = ScriptedModel(DOUBLE, tests, {"double": GOOD}, {"double": other_test("two", 4, x=2)})
    events: list[Any] = []
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False)
    async for event in generator.stream("Double a number."):
        events.append(event)
    solution = events[-1]
    assert any(isinstance(event, TestChanged) for event in events)
    (change,) = solution.test_changes
    assert (change.before.expected_output, change.after.expected_output) == (5, 4)
    assert change.reason == "the instruction says so"
    assert change.hash_before == solution.tests_hash != change.hash_after
    assert all(result.passed for result in solution.test_results)
    assert solution.functions[0].only_by_changed_tests
    assert not solution.all_tests_passed, "a model that changes the tests has shown nothing"
    assert solution.stop_reason is StopReason.PASSED_CHANGED_TESTS
    assert solution.missing == ["double: it passes its tests only because they were changed"]


async def test_whoever_asks_for_it_takes_changed_tests(sandbox: Sandbox) -> None:
    tests = {"double": [test("two", 5, x=2), test("zero", 0, x=0), test("minus", -6, x=-3)]}
    model = ScriptedModel(DOUBLE, tests, {"double": GOOD}, {"double": other_test("two", 4, x=2)})
    solution = await solve(model, sandbox, accept_changed_tests=True)
    assert solution.all_tests_passed
    assert solution.functions[0].only_by_changed_tests
    assert solution.missing == []


async def test_code_that_passes_the_tests_as_they_were_has_passed(sandbox: Sandbox) -> None:
    looser = {"name": "two", "inputs": {"x": 2}, "property": "result > 3"}
    repairs = [{"wrong": "test", "reason": "too narrow", "test": looser}, mended(GOOD)]
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": WRONG}, {"double": repairs})
    solution = await solve(model, sandbox)
    assert len(solution.test_changes) == 1
    assert solution.all_tests_passed
    assert not solution.functions[0].only_by_changed_tests
    assert solution.functions[0].stop_reason is StopReason.PASSED


async def test_only_so_many_tests_may_be_changed(sandbox: Sandbox) -> None:
    repairs = [other_test(name, 7, x=x) for name, x in (("two", 2), ("zero", 0), ("minus", -3))]
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": WRONG}, {"double": repairs})
    solution = await solve(model, sandbox, max_test_changes=1)
    assert len(solution.test_changes) == 1
    assert not solution.all_tests_passed
    assert any("which is the limit" in problem for each in solution.functions[0].attempts for problem in each.problems)


@pytest.mark.parametrize(
    "repair",
    [
        other_test("none", 7, x=2),
        other_test("two", 4, x=2),
        other_test("two", 7, reason=" ", x=2),
        other_test("two", 7, y=2),
        {"wrong": "test", "reason": "so", "test": {"name": "two", "inputs": {"x": 2}}},
        {"wrong": "test", "reason": "so", "test": {**test("two", 7, x=2), "setup": [{"call": "triple"}]}},
        {
            "wrong": "test",
            "reason": "so",
            "test": {"name": "two", "inputs": {"x": 2}, "property": "result is not None"},
        },
        {"wrong": "test", "reason": "so", "test": {**test("two", 7.5, x=2), "abs": 5}},
        {"wrong": "test", "reason": "so", "test": None},
        {"wrong": "both", "reason": "so"},
        "nothing",
    ],
)
async def test_a_change_that_makes_no_sense_is_none(sandbox: Sandbox, repair: Any) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": WRONG}, {"double": repair})
    solution = await solve(model, sandbox, max_attempts=3)
    assert solution.test_changes == ()
    assert not solution.all_tests_passed
    assert solution.functions[0].attempts[1].problems


async def test_dangerous_code_is_not_run(sandbox: Sandbox) -> None:
    bad = "import subprocess\n\ndef double(x):\n    subprocess.run(str(x), shell=True)\n    return 2 * x"
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": bad}, {"double": mended(GOOD)})
    events: list[GenerationEvent | Solution] = []
    async for event in AICodeGenerator(model, sandbox=sandbox, cache=False).stream("Double a number."):
        events.append(event)
    (refused,) = [event for event in events if isinstance(event, CodeRefused)]
    assert "B602" in refused.problems[0]
    assert [event.attempt for event in events if isinstance(event, CodeWritten)] == [2]
    assert "B602" in model.questions[-1]


@pytest.mark.slow
async def test_findings_that_do_not_matter_so_much_are_told(sandbox: Sandbox) -> None:
    code = "import random\nimport hashlib\n\ndef double(x):\n    hashlib.md5(b'')\n    return 2 * x"
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": code})
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    assert [each.id for each in solution.functions[0].findings] == ["B324"]


async def test_modules_that_may_not_be_imported_are_not(sandbox: Sandbox) -> None:
    bad = f"import os\n\n{GOOD}"
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": bad}, {"double": mended(GOOD)})
    solution = await solve(model, sandbox, allowed_imports=["math"])
    assert solution.all_tests_passed
    assert "the module 'os' may not be imported" in solution.functions[0].attempts[0].problems[0]


@pytest.mark.slow
async def test_python_says_nothing_of_what_a_model_wrote(
    sandbox: Sandbox, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    backslash = "\\d"
    code = f"import re\n\n\ndef double(x):\n    return 2 * x if re.match('{backslash}', '1') else x"
    by_property = f"result == 2 * x and __import__('re').match('{backslash}', str(abs(x))) is not None"
    tests = [*DOUBLE_TESTS["double"], {"name": "property", "inputs": {"x": 4}, "property": by_property}]
    literal = f"{{'tests': [{{'name': '{backslash}', 'inputs': {{'x': 5}}, 'expected_output': 10}}]}}"
    setup = [{**test("setup", 12, x=6), "setup": [{"file": "a", "text": backslash}]}]
    specs = [{**DOUBLE[0], "inputs": [{"name": "x", "type": f"Literal['{backslash}'] | int"}]}]
    answer = f"```json\n{json.dumps([*tests, *setup])}\n```\n```python\n{literal}\n```"
    model = ScriptedModel(specs, {"double": [answer]}, {"double": code})
    solution = await solve(model, sandbox)
    assert solution.missing == []
    assert len(solution.tests["double"]) == 6
    write_solution(solution, tmp_path)
    assert [str(each.message) for each in recwarn] == []


async def test_the_budget_of_tokens_is_kept_and_what_there_is_is_not_lost(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": SQUARE}, {"double": mended(GOOD)})
    solution = await solve(model, sandbox, max_tokens=330)
    assert solution.stop_reason is StopReason.TOKENS
    assert solution.implementations == {"double": SQUARE}
    assert solution.usage.total_tokens == 330
    assert not solution.all_tests_passed


async def test_the_budget_of_seconds_is_kept(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD}, seconds=0.4)
    solution = await solve(model, sandbox, max_seconds=0.6)
    assert solution.stop_reason is StopReason.SECONDS
    assert [spec.name for spec in solution.function_specs] == ["double"]


async def test_a_model_that_fails_in_the_middle_leaves_what_was_reached(sandbox: Sandbox, tmp_path: Path) -> None:
    broken = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": OSError("no line")})
    solution = await solve(broken, sandbox, cache=True, cache_dir=tmp_path)
    assert solution.stop_reason is StopReason.MODEL_FAILED
    assert "no line" in solution.error
    assert len(solution.tests["double"]) == 3
    assert not solution.all_tests_passed

    whole = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    solution = await solve(whole, sandbox, cache=True, cache_dir=tmp_path)
    assert solution.all_tests_passed
    assert whole.asked == [("code", "double")], "what was paid for is not asked again"
    assert solution.usage.replayed == 2


async def test_a_line_that_breaks_is_tried_again(sandbox: Sandbox) -> None:
    answers = [ConnectionError("gone"), TimeoutError("late"), GOOD]
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": answers})
    assert (await solve(model, sandbox, retries=2)).all_tests_passed
    assert model.count("code", "double") == 3


async def test_a_solution_is_found_again_and_its_tests_are_run_again(sandbox: Sandbox, tmp_path: Path) -> None:
    first = await solve(ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD}), sandbox, cache=True, cache_dir=tmp_path)
    silent = ScriptedModel(["no"], {}, {})
    again = await solve(silent, sandbox, cache=True, cache_dir=tmp_path)
    assert (first.cached, again.cached) == (False, True)
    assert again.all_tests_passed
    assert {each.function for each in again.test_results} == {"double"}
    assert again.test_results != first.test_results  # How long they took was measured anew.
    assert silent.asked == []
    other = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD}, name="another")
    assert not (await solve(other, sandbox, cache=True, cache_dir=tmp_path)).cached


async def test_the_log_tells_each_step(sandbox: Sandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "coderoom")
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": SQUARE}, {"double": mended(GOOD, "a\n\x1b[31mred")})
    for _ in range(2):
        assert (await solve(model, sandbox, cache=True, cache_dir=tmp_path)).all_tests_passed
    said = [record.getMessage() for record in caplog.records if "coderoom" in record.name]
    said = [re.sub(r"sha256 \w+", "sha256 HASH", re.sub(r"\d+\.\d+ s", "N s", line)) for line in said]
    assert said == [
        "The cache has no solution.",
        "Model request for specs begins.",
        "Model request for specs is answered after N s.",
        "functions: specs: reply, 100 prompt tokens, 10 completion tokens",
        "1 function: double",
        "Model request for tests of double begins.",
        "Model request for tests of double is answered after N s.",
        "double: tests: reply, 100 prompt tokens, 10 completion tokens",
        "double: 3 tests written",
        "3 tests frozen, sha256 HASH",
        "Model request for code of double begins.",
        "Model request for code of double is answered after N s.",
        "double: code: reply, 100 prompt tokens, 10 completion tokens",
        "double: attempt 1 (first), 2 lines",
        "double: 2 of 3 tests passed in N s",
        "Model request for repair of double begins.",
        "Model request for repair of double is answered after N s.",
        "double: repair: reply, 100 prompt tokens, 10 completion tokens",
        "double: attempt 2 (patch), 2 lines: a ␛[31mred",
        "double: 3 of 3 tests passed in N s",
        "double: passed after 2 attempts",
        "double: 4 of 4 mutants killed",
        "Done: 3 of 3 tests passed (passed) after N s.",
        "found in the cache: double; its tests run again",
        "The tests of the cached solution ran in N s.",
    ]


async def test_what_fails_is_not_kept_and_is_asked_anew(sandbox: Sandbox, tmp_path: Path) -> None:
    bad = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": WRONG}, {"double": mended(WRONG)})
    assert not (await solve(bad, sandbox, cache=True, cache_dir=tmp_path)).all_tests_passed
    good = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    solution = await solve(good, sandbox, cache=True, cache_dir=tmp_path)
    assert solution.all_tests_passed
    assert (solution.cached, good.count("specs")) == (False, 1)


@pytest.mark.parametrize("instruction", ["", "  \n", None, 3, b"x", "x" * 100_001])
async def test_an_instruction_that_is_none(instruction: Any) -> None:
    generator = AICodeGenerator(ScriptedModel(["no"], {}, {}), cache=False)
    with pytest.raises(RequestError, match="instruction"):
        await generator.generate_solution(instruction)


async def test_an_instruction_with_halves_of_characters_does_no_harm(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD})
    solution = await AICodeGenerator(model, sandbox=sandbox, cache=False).generate_solution("Double \ud800 {x} %s")
    assert solution.all_tests_passed
    assert solution.model_dump_json()


async def test_leaving_the_stream_ends_the_work(sandbox: Sandbox) -> None:
    model = ScriptedModel(DOUBLE, DOUBLE_TESTS, {"double": GOOD}, seconds=0.2)
    stream = AICodeGenerator(model, sandbox=sandbox, cache=False).stream("Double a number.")
    await anext(stream)
    await stream.aclose()
    asked = len(model.asked)
    await asyncio.sleep(0.3)
    assert len(model.asked) == asked


@pytest.mark.parametrize(
    "arguments",
    [
        {"block_severity": "HIGH"},
        {"allowed_imports": "math"},
        {"allowed_imports": [1]},
        {"max_seconds": "x"},
        {"wall": "paper"},
        {"max_attempts": 0},
        {"concurrency": 0},
        {"language": "cobol"},
        {"test_timeout": float("nan")},
        {"api_key": "x"},
        {"requests_per_minute": 0},
    ],
)
def test_arguments_that_are_wrong(arguments: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        AICodeGenerator(ScriptedModel(["no"], {}, {}), **arguments)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(RequestError, match="expected a model client"):
        AICodeGenerator(3)


def test_without_a_model_there_has_to_be_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(MissingDependencyError, match="OPENAI_API_KEY"):
        AICodeGenerator()
