from __future__ import annotations

import json
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, Solution, StrengthMeasured, report_markdown
from coderoom.models import ReplayModel
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

SPECS = [function("fee", purpose="3 for an x of at least 10, and else 0.")]
WEAK = [test("large", 3, x=50), test("larger", 3, x=80), test("largest", 3, x=99)]
MORE = [test("the least", 3, x=10), test("too small", 0, x=9)]
CODE = "def fee(x):\n    return 3 if x >= 10 else 0"
WRONG = "def fee(x):\n    return 3 if x > 10 else 0"
ASKED = [("specs", ""), ("tests", "fee"), ("code", "fee"), ("tests", "fee")]


def scripted(more: Any, code: str = CODE, **repair: Any) -> ScriptedModel:
    return ScriptedModel(SPECS, {"fee": [{"tests": WEAK}, more]}, {"fee": code}, repair)


async def solve(model: ScriptedModel | ReplayModel, sandbox: Sandbox, **options: Any) -> Solution:
    options = {"cache": False, "retries": 0, "concurrency": 1} | options
    return await AICodeGenerator(model, sandbox=sandbox, **options).generate_solution("Fees.")


async def test_weak_tests_go_back_to_the_model_once(sandbox: Sandbox) -> None:
    model = scripted({"tests": MORE})
    events = []
    async for each in AICodeGenerator(model, sandbox=sandbox, cache=False).stream("Fees."):
        events.append(each)
    solution = events[-1]
    assert isinstance(solution, Solution)
    assert model.asked == ASKED
    assert '- line 2 ">" for ">="' in model.questions[-1]
    assert CODE in model.questions[-1]
    assert '"name": "larger"' in model.questions[-1]
    assert solution.all_tests_passed
    assert [each.test for each in solution.test_results] == ["large", "larger", "largest", "the least", "too small"]
    assert [(each.test, each.before, each.by) for each in solution.test_changes] == [
        ("the least", None, "the model"),
        ("too small", None, "the model"),
    ]
    before, after = [each.strength for each in events if isinstance(each, StrengthMeasured)]
    assert before.rate < 0.75 < after.rate
    assert solution.functions[0].strength == after
    assert f"{after.killed} of {after.mutants} mutants killed" in report_markdown(solution)


async def test_what_is_not_asked_for(sandbox: Sandbox) -> None:
    strong = ScriptedModel(SPECS, {"fee": [*WEAK, *MORE]}, {"fee": CODE})
    assert (await solve(strong, sandbox)).all_tests_passed
    assert strong.count("tests", "fee") == 1
    off = scripted({"tests": MORE})
    solution = await solve(off, sandbox, strength=False)
    assert solution.functions[0].strength is None
    assert off.asked == ASKED[:3]
    failing = scripted({"tests": MORE}, "def fee(x):\n    return 4", fee={"wrong": "implementation", "reason": "?"})
    assert not (await solve(failing, sandbox, max_attempts=1)).all_tests_passed
    assert failing.asked == ASKED[:3]


@pytest.mark.parametrize("more", ["nothing", {"tests": WEAK}, {"tests": [test("large", 3, x=51)]}, RuntimeError("no")])
async def test_an_answer_without_new_tests_changes_nothing(sandbox: Sandbox, more: Any) -> None:
    model = scripted(more)
    solution = await solve(model, sandbox)
    assert solution.all_tests_passed
    assert len(solution.test_results) == 3
    assert solution.test_changes == ()
    assert model.asked == ASKED
    assert 'line 2 "&gt;" for "&gt;="' in report_markdown(solution)
    assert any("was not asked" in each for each in solution.warnings) == isinstance(more, Exception)


async def test_a_new_test_may_show_that_the_code_is_wrong(sandbox: Sandbox) -> None:
    mended = {"wrong": "implementation", "reason": "at least", "implementation": CODE, "test": None}
    solution = await solve(scripted({"tests": MORE}, WRONG, fee=mended), sandbox)
    assert solution.all_tests_passed
    assert solution.implementations == {"fee": CODE}
    assert len(solution.test_results) == 5
    assert [each.approach for each in solution.functions[0].attempts] == ["first", "patch"]


async def test_a_new_test_may_be_wrong(sandbox: Sandbox) -> None:
    wrong = {"tests": [MORE[0], test("too small", 3, x=9)]}
    changed = {"wrong": "test", "reason": "9 is too small", "implementation": None, "test": MORE[1]}
    solution = await solve(scripted(wrong, fee=changed), sandbox)
    assert solution.all_tests_passed, "the tests that were frozen first are as they were"
    assert solution.implementations == {"fee": CODE}
    assert [each.expected_output for each in solution.tests["fee"]] == [3, 3, 3, 3, 0]


async def test_a_new_test_that_stays_in_doubt_is_left_out_with_a_warning(sandbox: Sandbox) -> None:
    wrong = {"tests": [MORE[0], test("too small", 3, x=9)]}
    worse = {"wrong": "implementation", "reason": "?", "implementation": "def fee(x):\n    return 0", "test": None}
    solution = await solve(scripted(wrong, fee=worse), sandbox)
    assert solution.all_tests_passed
    assert solution.implementations == {"fee": CODE}
    assert [each.test for each in solution.test_results] == ["large", "larger", "largest", "the least"]
    [warning] = [each for each in solution.warnings if "left out" in each]
    assert "either it is wrong, or the code: too small: " in warning


async def test_a_recording_from_before_still_works(sandbox: Sandbox) -> None:
    asked = [json.dumps({"function_specs": SPECS}), json.dumps({"tests": WEAK}), f"```python\n{CODE}\n```"]
    solution = await solve(ReplayModel(asked, name="old.yaml"), sandbox)
    assert solution.all_tests_passed
    assert solution.error == ""
    [warning] = [each for each in solution.warnings if "more tests" in each]
    assert "'old.yaml' has 3 replies" in warning
