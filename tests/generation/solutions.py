"""A solution to write and to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coderoom.generation import Attempt, FunctionReport, FunctionTest, Solution, StopReason, TestResult, Usage

from .examples import spec, test_of

__all__ = ["solution_of"]


def solution_of(
    implementations: Mapping[str, str] | None = None,
    tests: Mapping[str, Sequence[FunctionTest]] | None = None,
    failing: Mapping[str, str] | None = None,
    **fields: Any,
) -> Solution:
    sources = implementations if implementations is not None else {"add": "def add(x, y):\n    return x + y\n"}
    cases = tests if tests is not None else {"add": [test_of("sums", inputs={"x": 1, "y": 2}, expected_output=3)]}
    failing = failing or {}
    results = [
        TestResult(function=name, test=test.name, passed=test.name not in failing, actual_output=test.expected_output,
                   why=failing.get(test.name, ""))
        for name, each in cases.items() for test in each
    ]  # fmt: skip
    reports = [
        FunctionReport(
            function=name, passed=not failing, tests=len(each), tests_passed=len(each) - len(failing),
            attempts=(Attempt(number=1, approach="first", code=sources.get(name, "")),),
            stop_reason=StopReason.PASSED if not failing else StopReason.ATTEMPTS,
            seconds=0.25, slowest=0.125, peak_memory=12_345_678,
        )
        for name, each in cases.items()
    ]  # fmt: skip
    told: dict[str, Any] = {
        "instruction": "Add numbers.",
        "function_specs": [spec(name) for name in cases],
        "implementations": dict(sources),
        "tests": {name: tuple(each) for name, each in cases.items()},
        "test_results": tuple(results),
        "functions": tuple(reports),
        "all_tests_passed": bool(results) and not failing,
        "usage": Usage(requests=3, prompt_tokens=1_000, completion_tokens=234),
        "duration": 75.2,
    }
    return Solution(**{**told, **fields})
