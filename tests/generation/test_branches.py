"""Repairs at the same time: which one goes on, what they cost, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.generation import AICodeGenerator, BranchesJudged, Solution, StopReason
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

SPECS = [function("double", "x", purpose="Twice x.")]
TESTS = {"double": [test("two", 4, x=2), test("zero", 0, x=0), test("minus", -6, x=-3), test("one", 2, x=1)]}
GOOD = "def double(x):\n    return 2 * x"
SQUARE = "def double(x):\n    return x * x"  # Right for 2 and 0.
ZERO = "def double(x):\n    return 0"
WRONG = "def double(x):\n    return 7"
NO_FUNCTION = "x = 1"


def repaired(code: str) -> dict[str, Any]:
    return {"wrong": "implementation", "reason": "it is not doubled", "implementation": code}


async def solve(
    sandbox: Sandbox, first: str, fresh: str, *repairs: Any, tests: Any = None, **options: Any
) -> tuple[Solution, list[BranchesJudged], ScriptedModel]:
    """Give a first code, one from scratch, and repairs in their order; branches are 3."""
    answers = [each if isinstance(each, dict | Exception) else repaired(each) for each in repairs]
    model = ScriptedModel(SPECS, tests or TESTS, {"double": [first, fresh]}, {"double": answers}, seconds=0.01)
    options = {"cache": False, "strength": False, "retries": 0, "branches": 3} | options
    events = []
    async for item in AICodeGenerator(model, sandbox=sandbox, **options).stream("Double a number."):
        events += [item] if isinstance(item, BranchesJudged) else []
    assert isinstance(item, Solution)
    return item, events, model


async def test_after_a_failure_several_repairs_are_asked_for_at_the_same_time(sandbox: Sandbox) -> None:
    solution, [judged], model = await solve(sandbox, WRONG, SQUARE, ZERO, GOOD)
    assert solution.all_tests_passed
    assert solution.implementations == {"double": GOOD}
    assert model.most_at_once == 3
    attempts = solution.functions[0].attempts
    assert [each.branch for each in attempts] == ["", "double 1.1", "double 1.2", "double 1.3"]
    assert [(each.number, each.passed) for each in attempts] == [(1, 0), (2, 1), (3, 2), (4, 4)]
    assert [each.approach for each in attempts] == ["first", "patch", "fresh", "patch"]
    assert (judged.won, judged.why) == ("double 1.3", "passed 4 of 4 tests")
    facts = [(each.outcome, each.exit_code, each.score, each.input_tokens) for each in judged.branches]
    assert facts == [("error", 1, 0.25, 100), ("error", 1, 0.5, 100), ("ok", 0, 1.0, 100)]
    assert len({each.variation for each in judged.branches}) == 3


async def test_the_branches_of_one_failure_are_asked_for_in_different_words(sandbox: Sandbox) -> None:
    _, _, model = await solve(sandbox, WRONG, SQUARE, SQUARE, branches=7, max_attempts=8)
    assert len(model.questions) == len(set(model.questions)) == 2 + 1 + 7


async def test_other_models_repair_in_turn(sandbox: Sandbox) -> None:
    first, other = (
        ScriptedModel(SPECS, TESTS, {"double": [code]}, {"double": [repaired(GOOD)]}, name=name)
        for name, code in (("first", WRONG), ("other", ZERO))
    )
    options: dict[str, Any] = {"cache": False, "strength": False, "branches": 3}
    found = AICodeGenerator(first, sandbox=sandbox, branch_models=[other, first], **options).stream("Double a number.")
    *_, judged, _finished, solution = [item async for item in found]
    assert isinstance(solution, Solution)
    assert isinstance(judged, BranchesJudged)
    assert [each.model for each in judged.branches] == ["other", "first", "other"]
    assert [len(model.asked) for model in (first, other)] == [4, 2]
    assert solution.usage.requests == 6
    assert solution.branch_usage["other"].requests == 2
    with pytest.raises(RequestError, match="set branches to 2 or more"):
        AICodeGenerator(first, branch_models=[other])


async def test_among_equals_the_first_one_goes_on(sandbox: Sandbox) -> None:
    solution, [judged], _ = await solve(sandbox, WRONG, GOOD, "def double(x):\n    return x + x", GOOD)
    assert judged.won == "double 1.1"
    assert solution.implementations == {"double": "def double(x):\n    return x + x"}


async def test_the_best_one_goes_on_if_none_passes(sandbox: Sandbox) -> None:
    solution, judged, model = await solve(sandbox, WRONG, SQUARE, ZERO, NO_FUNCTION, GOOD)
    assert [each.won for each in judged] == ["double 1.2", "double 2.1"]
    assert [each.outcome for each in judged[0].branches] == ["error", "error", "rejected"]
    assert any(SQUARE in text and "2 of its 4 tests pass" in text for text in model.questions)
    assert solution.all_tests_passed


async def test_each_branch_is_one_of_the_attempts(sandbox: Sandbox) -> None:
    repairs = [f"def double(x):\n    return x + {number}" for number in range(2, 9)]
    solution, judged, model = await solve(sandbox, WRONG, ZERO, *repairs, max_attempts=6)
    assert [len(each.branches) for each in judged] == [3, 2]
    assert solution.stop_reason is StopReason.ATTEMPTS
    assert len(solution.functions[0].attempts) == 6
    assert model.count("code", "double") + model.count("repair", "double") == 6


async def test_it_ends_if_no_branch_brings_anything_new(sandbox: Sandbox) -> None:
    solution, judged, _ = await solve(sandbox, WRONG, WRONG, WRONG, max_attempts=20)
    assert solution.stop_reason is StopReason.SAME_CODE
    assert len(judged) == 1


async def test_what_was_judged_counts_when_the_budget_ends(sandbox: Sandbox) -> None:
    # The specs, the tests, the code and one branch; the others find no tokens left.
    solution, [judged], _ = await solve(sandbox, WRONG, SQUARE, ZERO, concurrency=1, max_tokens=440)
    assert solution.stop_reason is StopReason.TOKENS
    assert [each.outcome for each in judged.branches] == ["error", "cancelled", "cancelled"]
    assert judged.won == "double 1.1"
    assert solution.implementations == {"double": ZERO}


async def test_a_branch_that_passes_counts_though_the_budget_ends(sandbox: Sandbox) -> None:
    solution, [judged], _ = await solve(sandbox, WRONG, SQUARE, GOOD, concurrency=1, max_tokens=440)
    assert solution.all_tests_passed
    assert [each.outcome for each in judged.branches] == ["ok", "cancelled", "cancelled"]


async def test_a_branch_changes_no_test(sandbox: Sandbox) -> None:
    tests = {"double": [*TESTS["double"], test("wrong", 7, x=3)]}
    change = {"wrong": "test", "reason": "twice 3 is 6", "test": test("wrong", 6, x=3)}
    solution, [judged], model = await solve(sandbox, WRONG, SQUARE, change, GOOD, tests=tests)
    assert judged.won == "double 1.3"
    assert [each.score for each in judged.branches] == [0.0, 0.4, 0.8]
    last = solution.functions[0].attempts[-1]
    assert (last.approach, last.code, last.branch) == ("changed test", GOOD, "")
    assert solution.functions[0].only_by_changed_tests
    assert not solution.all_tests_passed
    assert model.count("repair", "double") == 2, "the change was not asked for again"


async def test_a_branch_that_passes_needs_no_changed_test(sandbox: Sandbox) -> None:
    change = {"wrong": "test", "reason": "so", "test": test("two", 7, x=2)}
    solution, _, _ = await solve(sandbox, WRONG, GOOD, change, change)
    assert solution.all_tests_passed
    assert solution.test_changes == ()


@pytest.mark.parametrize("branches", [0, -1])
def test_there_is_at_least_one_branch(branches: int) -> None:
    with pytest.raises(RequestError, match=r"branches=.* must be at least 1"):
        AICodeGenerator(ScriptedModel([], {}, {}), branches=branches)
