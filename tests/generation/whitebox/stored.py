"""Solutions that passed, and what is in the folder of their cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from coderoom.generation import FunctionReport, Solution, SolutionCache, StopReason, TestResult

from ...support.commands import ROOT
from ..examples import frozen, spec, test_of

__all__ = ["REPORT", "TESTS", "age", "names_in", "only_file", "solution", "started"]

TESTS = frozen("f", test_of("a", inputs={"x": 1}, expected_output=1), test_of("b", expected_output=[2.5, "é"]))
REPORT = FunctionReport(function="f", passed=True, tests=2, tests_passed=2, attempts=(), stop_reason=StopReason.PASSED)


def solution(instruction: str = "double it", code: str = "def f(x):\n    return x\n", **more: Any) -> Solution:
    return Solution(
        **{
            "instruction": instruction,
            "function_specs": (spec("f"),),
            "implementations": {"f": code},
            "tests": TESTS.tests,
            "test_results": tuple(TestResult(function="f", test=name, passed=True) for name in "ab"),
            "all_tests_passed": True,
            "functions": (REPORT,),
            "tests_hash": TESTS.hash,
            "stop_reason": StopReason.PASSED,
            **more,
        }
    )


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def only_file(cache: SolutionCache, pattern: str = "*") -> Path:
    (path,) = cache.path.glob(pattern)
    return path


def age(path: Path, seconds: float) -> None:
    """Let a file look as if it was used so many seconds earlier."""
    used = path.stat().st_mtime - seconds
    os.utime(path, (used, used))


def started(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
