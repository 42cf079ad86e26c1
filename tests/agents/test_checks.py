"""What a check of a batch may be, and answers that are compared with what is expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.agents.checks import make_check, verdict_on
from coderoom.errors import RequestError
from coderoom.judge import Judge


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("assert answer == '1'", "code"),
        ({"tests": ["assert f(1) == 2", "assert f(2) == 3"], "code": None}, "tests"),
        ('{"expected": 5, "compare": "number"}', "expected"),
        ({"stdin": ["1", "2"], "stdout": ["2", "3"]}, "stdout"),
        ({"reviewer": "It is kind."}, "reviewer"),
    ],
)
def test_kinds_of_checks(given: Any, kind: str) -> None:
    check = make_check(given)
    assert check.kind == kind
    assert kind != "tests" or check.tests == "assert f(1) == 2\nassert f(2) == 3"
    assert kind != "stdout" or [(each.stdin, each.stdout) for each in check.programs.tests] == [("1", "2"), ("2", "3")]


def test_output_is_compared_by_words() -> None:
    assert make_check({"stdin": ["1"], "stdout": "2"}).programs.compare == "words"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "a check has one of"),
        ({"code": "1", "expected": 1}, "a check has one of"),
        ({"code": "# nothing"}, "its code is empty"),
        ({"tests": "def"}, "its tests is not Python"),
        ({"stdin": ["1"], "stdout": ["2", "3"]}, "two lists of the same length"),
        ({"stdout": "2", "compare": "contains"}, "compared as a whole"),
        ({"expected": "many", "compare": "number"}, "'many' has no number"),
        ({"expected": "1e999", "compare": "number"}, "has no number"),
        ({"expected": 1, "timeout": 0}, "timeout"),
        ({"expected": 1, "tolerance": 1}, "tolerance"),
    ],
)
def test_checks_that_are_wrong(given: Any, why: str) -> None:
    with pytest.raises(RequestError, match=f"the check is wrong: .*{why}"):
        make_check(given)


@pytest.mark.parametrize(
    ("expected", "compare", "answer", "passed"),
    [
        (" 42 ", "equal", "42\n", True),
        ("42", "equal", "It is 42", False),
        ({"a": 1}, "equal", '{"a": 1}', True),
        ("42", "contains", "It is 42.", True),
        ("42", "contains", "It is 4 2", False),
        ("42", "contains", "<think>42</think>No.", False),
        (5, "number", "Of 3, it is 5.0 m", True),
        (5, "number", "It is 5, and not 6", False),
        (1_000_000, "number", "about 1,000,000.5", True),
        (1_000_000, "number", "1,000,002", False),
        (-2, "number", "x = \N{MINUS SIGN}2", True),
        (2, "number", "1-2", True),
        (0, "number", "1e-7", True),
        (0, "number", "1e-5", False),
        (5, "number", "none", False),
    ],
)
async def test_answers_that_are_expected(
    expected: Any, compare: str, answer: str, passed: bool, tmp_path: Path
) -> None:
    check, judge = make_check({"expected": expected, "compare": compare}), Judge(wall="none")
    verdict = await verdict_on(check, "?", answer, {}, workspace=tmp_path, judge=judge, model=None)
    assert verdict.passed is passed
    assert passed != verdict.why.startswith("expected ")
