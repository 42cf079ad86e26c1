"""Measure tests per second beside one fresh `python` process for each test, in one run.

python benchmarks/generation.py [--wall NAME] [--tests N] [rounds]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from time import perf_counter

from coderoom.generation import FrozenTests, FunctionTest, TestRunner, freeze, make_sandbox
from coderoom.sandbox import Sandbox

SOURCES = {
    "clamp": "def clamp(x, low, high):\n    return max(low, min(high, x))\n",
    "digits": "def digits(x):\n    return [int(each) for each in str(abs(x))]\n",
    "count": "def count(x):\n    found = {}\n    for each in str(x):\n        found[each] = found.get(each, 0) + 1\n"
    "    return found\n",
}


def make_tests(count: int, wrong: bool = False, properties: bool = False) -> FrozenTests:
    """Tests of tiny functions."""
    tests: dict[str, list[FunctionTest]] = {name: [] for name in SOURCES}
    for number in range(count):
        name = list(SOURCES)[number % len(SOURCES)]
        inputs = {"x": number, **({"low": 10, "high": 90} if name == "clamp" else {})}
        names: dict[str, object] = {}
        exec(SOURCES[name], names)
        expected = names[name](**inputs)  # type: ignore[operator]
        kind = (
            {"property": f"result == {expected!r}"} if properties else {"expected_output": None if wrong else expected}
        )
        tests[name].append(FunctionTest.model_validate({"name": f"{name} {number}", "inputs": inputs, **kind}))
    return freeze(tests)


async def tests_per_second(
    sandbox: Sandbox, tests: FrozenTests, sources: Mapping[str, str], sessions: int, passed: bool
) -> float:
    """How many tests our runner does in a second, the loading of the functions included."""
    runner = TestRunner(sandbox, sessions=sessions)
    begin = perf_counter()
    results = await runner.run(sources, tests)
    took = perf_counter() - begin
    assert all(each.passed is passed for each in results)
    return len(results) / took


def processes_per_second(tests: FrozenTests, count: int) -> float:
    """How many tests are done in a second by a process for each, one after the other and without any wall."""
    program = "import json, sys\njob = json.loads(sys.argv[1])\nprint(json.dumps({name}(**job)))\n"
    cases = [(name, test) for name, several in tests.tests.items() for test in several][:: max(1, tests.count // count)]
    begin = perf_counter()
    for name, test in cases:
        code = SOURCES[name] + program.format(name=name)
        done = subprocess.run([sys.executable, "-c", code, json.dumps(test.inputs)], capture_output=True, check=True)
        assert json.loads(done.stdout) == test.expected_output
    return len(cases) / (perf_counter() - begin)


async def main(wall: str, count: int, rounds: int) -> None:
    """Print the table."""
    right, wrong, properties = make_tests(count), make_tests(count // 4, wrong=True), make_tests(count, properties=True)
    kinds = {
        "passing tests, 2 sessions": (right, 2, True),
        "passing tests, 1 session": (right, 1, True),
        "passing properties, 2 sessions": (properties, 2, True),
        "failing tests, 2 sessions": (wrong, 2, False),
    }
    ours: dict[str, list[float]] = {name: [] for name in kinds}
    theirs: list[float] = []
    async with make_sandbox(wall) as sandbox:
        print(f"wall {sandbox.wall}, {os.cpu_count()} processors, {count} tests, {rounds} rounds")
        await tests_per_second(sandbox, make_tests(10), SOURCES, 2, True)
        for _ in range(rounds):
            theirs.append(processes_per_second(right, 20))
            for name, (tests, sessions, passed) in kinds.items():
                ours[name].append(await tests_per_second(sandbox, tests, SOURCES, sessions, passed))
    base = statistics.median(theirs)
    print(f"{'a fresh python for each test':34} {base:8.0f} tests/s")
    for name, rates in ours.items():
        print(
            f"{name:34} {statistics.median(rates):8.0f} tests/s   {statistics.median(rates) / base:6.1f} times as many"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--tests", type=int, default=500)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.wall, arguments.tests, arguments.rounds))
