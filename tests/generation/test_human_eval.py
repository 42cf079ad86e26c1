"""The generator accepts reference solutions of HumanEval, and refuses each with a fault that the tests show."""

from __future__ import annotations

import pytest

from benchmarks.honesty import prove
from coderoom.sandbox import Sandbox


@pytest.mark.parametrize(
    ("first", "count"),
    [(20, 3), pytest.param(124, 40, marks=[pytest.mark.slow, pytest.mark.timeout(300)])],  # The last are the longest.
    ids=["sample", "many"],
)
async def test_claims_are_true(default_sandbox: Sandbox, first: int, count: int) -> None:
    right, faulty = await prove(default_sandbox, count, 1, first)
    assert [solution.missing for solution in right if not solution.all_tests_passed] == []
    assert [solution.implementations for solution in faulty if solution.all_tests_passed] == []
    assert len(right) == len(faulty) == count
