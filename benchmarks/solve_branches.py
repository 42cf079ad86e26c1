"""Measure `branches` of `solve` beside repair in a row, with a scripted model, interleaved.

python benchmarks/solve_branches.py [--branches 4] [--right 0.4] [--latency 1.0] [--attempts 13] [seeds]

The first code is wrong. Each repair is right with the same probability, independently of the others, and takes the same
time. What is measured begins with the first failure: the seconds until the tests pass or the attempts are used up, and
the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence

from pydantic import BaseModel

from coderoom.generation import AICodeGenerator, Message, Reply, Solution, TestsRun, make_sandbox
from coderoom.sandbox import Sandbox

SPECS = {
    "function_specs": [
        {
            "name": "double",
            "purpose": "Twice x.",
            "inputs": [{"name": "x", "type": "int"}],
            "outputs": {"type": "int", "description": ""},
            "dependencies": [],
            "complexity": "simple",
        }
    ]
}
TESTS = {"tests": [{"name": f"of {x}", "inputs": {"x": x}, "expected_output": 2 * x} for x in (0, 21, -3, 5, 1000)]}


class Scripted:
    """Writes wrong code, and repairs that are right with a probability."""

    name = "scripted"

    def __init__(self, seed: int, right: float, latency: float) -> None:
        self._random = random.Random(seed)
        self._right = right
        self._latency = latency
        self.repairs = 0

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """Answer at once, but for repairs."""
        question = messages[-1].content
        if "Name the functions" in question:
            return Reply(json.dumps(SPECS))
        if "Write the tests" in question:
            return Reply(json.dumps(TESTS))
        wrong = f"return x + {self._random.randint(1_001, 1_000_000)}"  # Each in a way of its own.
        if "tests pass" not in question:
            return Reply(f"~~~python\ndef double(x):\n    {wrong}\n~~~")
        self.repairs += 1
        body = "return 2 * x" if self._random.random() < self._right else wrong
        await asyncio.sleep(self._latency)
        return Reply(f"~~~python\ndef double(x):\n    {body}\n~~~")


async def solve(model: Scripted, sandbox: Sandbox, branches: int, attempts: int) -> tuple[float, bool]:
    """The seconds since the first failure, and whether all tests passed."""
    options = {"cache": False, "strength": False, "branches": branches, "max_attempts": attempts, "concurrency": 16}
    begin = 0.0
    async for item in AICodeGenerator(model, sandbox=sandbox, **options).stream("Double a number."):  # type: ignore[arg-type]
        if isinstance(item, TestsRun) and not begin:
            begin = time.perf_counter()
    assert isinstance(item, Solution)
    return time.perf_counter() - begin, item.all_tests_passed


async def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="?", type=int, default=50)
    parser.add_argument("--branches", type=int, default=4)
    parser.add_argument("--right", type=float, default=0.4)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--attempts", type=int, default=13)
    given = parser.parse_args()
    ways = (1, given.branches)
    seconds: dict[int, list[float]] = {way: [] for way in ways}
    repairs: dict[int, list[int]] = {way: [] for way in ways}
    passed: dict[int, int] = dict.fromkeys(ways, 0)
    async with make_sandbox() as sandbox:
        for seed in range(given.seeds):
            for way in ways:
                model = Scripted(seed * 100 + way, given.right, given.latency)
                took, whole = await solve(model, sandbox, way, given.attempts)
                seconds[way].append(took)
                repairs[way].append(model.repairs)
                passed[way] += whole
    for way in ways:
        fails = (1 - given.right) ** way
        levels = (given.attempts - 1) // way
        predicted = way * sum(fails**level for level in range(levels))
        mean, middle = statistics.mean(seconds[way]), statistics.median(seconds[way])
        print(
            f"branches {way}: passed {passed[way]} of {given.seeds}; seconds: mean {mean:.2f}, median {middle:.2f}; "
            f"repairs: mean {statistics.mean(repairs[way]):.2f}, predicted {predicted:.2f}"
        )
    one, other = (statistics.mean(seconds[way]) for way in ways)
    print(f"with branches, it takes {other / one:.2f} times as long")


if __name__ == "__main__":
    asyncio.run(main())
