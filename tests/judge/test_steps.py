# ruff: noqa: E501 (programs, one to a line)
"""Steps of tests build inputs, use what is returned, and change nothing of the program."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.judge import Judge, Verdict, freeze

from .examples import test_of

PROGRAM = {
    "cache": "CACHE = {}\nORDER = []\nclass Solver:\n    memo = {}\n    def __init__(self, known=None):\n        self.known = known or {}\n"
    "    def solve(self, x):\n        return self.memo.get(x, self.known.get(x, -x))\n    def learn(self, x, y):\n        self.known[x] = y\n        return self\n"
    "    @classmethod\n    def of(cls, x, y):\n        return cls({x: y})\nSOLVER = Solver()\ndef cache():\n    return CACHE",
    "order": "def order():\n    return ORDER",
    "solver": "def solver():\n    return SOLVER",
    "kind": "def kind():\n    return Solver",
    "square": "def square(x):\n    return CACHE.get(x, ORDER[-1] if ORDER else SOLVER.solve(x))",
    "solve": "def solve(s, x):\n    return s.solve(x)",
    "apply": "def apply(f, x):\n    return f(x)",
    "counter": "def counter(start):\n    while True:\n        yield start\n        start += 1",
    "adder": "def adder(n):\n    return lambda x: x + n",
    "pow": "def pow(x):\n    return -1",
    "total": "def total(*numbers, **more):\n    return sum(numbers) + sum(more.values())",
}  # fmt: skip
VARYING = {
    "env": "import os\ndef env(name):\n    return os.environ.get(name)",
    "roll": "import random\ndef roll():\n    return random.random()",
    "ask": "def ask():\n    return [input(), input()]",
}
RESULT = {"$name": "result"}
S = {"$name": "s"}
HONEST: list[tuple[str, dict[str, Any]]] = [
    ("solve", {"inputs": {"s": S, "x": 3}, "setup": [{"call": "Solver", "args": [{"$dict": [[3, 9]]}], "name": "s"}], "expected_output": 9}),
    ("solve", {"inputs": {"s": S, "x": 3}, "setup": [{"call": "Solver", "name": "s"}, {"call": "s.learn", "args": [3, 9]}], "expected_output": 9}),
    ("solve", {"inputs": {"s": S, "x": 3}, "setup": [{"call": "Solver.of", "args": [3, 9], "name": "s"}], "expected_output": 9}),
    ("solve", {"inputs": {"s": S, "x": 3}, "setup": [{"call": "Solver", "name": "s"}, {"assign": "s.known", "value": {"$dict": [[3, 9]]}}], "expected_output": 9}),
    ("solver", {"then": [{"call": "result.learn", "args": [3, 8]}, {"call": "square", "args": [3]}], "expected_output": 8}),
    ("apply", {"inputs": {"f": {"$name": "len"}, "x": "abc"}, "expected_output": 3}),
    ("apply", {"inputs": {"f": {"$name": "square"}, "x": 3}, "expected_output": -3}),
    ("counter", {"inputs": {"start": 3}, "then": [{"call": "next", "args": [RESULT]}, {"call": "next", "args": [RESULT]}], "expected_output": 4}),
    ("counter", {"inputs": {"start": 3}, "then": [{"call": "zip", "args": [RESULT, [0, 0]], "name": "two"}, {"call": "list", "args": [{"$name": "two"}]}], "expected_output": [{"$tuple": [3, 0]}, {"$tuple": [4, 0]}]}),
    ("adder", {"inputs": {"n": 2}, "then": [{"call": "result", "args": [3]}], "expected_output": 5}),
    ("adder", {"inputs": {"n": 2}, "then": [{"call": "result", "args": ["a"]}], "expected_error": "TypeError"}),
    ("total", {"inputs": {"numbers": [1, 2], "more": {"a": 3}}, "expected_output": 6}),
    ("apply", {"inputs": {"f": {"$name": "pow"}, "x": 3}, "expected_output": -1}),
]  # fmt: skip
OF_VARYING: list[tuple[str, dict[str, Any]]] = [
    ("env", {"inputs": {"name": "HOUSE"}, "setup": [{"assign": "os.environ.HOUSE", "value": "red"}], "expected_output": "red"}),
    ("roll", {"setup": [{"call": "random.seed", "args": [1]}], "expected_output": 0.13436424411240122}),
    ("ask", {"setup": [{"file": "-", "text": "a\nb\n"}], "expected_output": ["a", "b"]}),
]  # fmt: skip
ATTACKS: list[tuple[str, dict[str, Any]]] = [
    ("square", {"setup": [{"call": "cache", "name": "c"}, {"call": "c.update", "args": [{"$dict": [[3, 9]]}]}]}),
    ("square", {"setup": [{"call": "order", "name": "o"}, {"call": "o.append", "args": [9]}]}),
    ("square", {"setup": [{"call": "solver", "name": "s"}, {"assign": "s.known", "value": {"$dict": [[3, 9]]}}]}),
    ("square", {"setup": [{"call": "kind", "name": "K"}, {"assign": "K.memo", "value": {"$dict": [[3, 9]]}}]}),
    ("square", {"setup": [{"assign": "Solver.memo", "value": {"$dict": [[3, 9]]}}]}),
    ("square", {"setup": [{"assign": "x", "value": {"$name": "Solver"}}, {"assign": "x.memo", "value": {"$dict": [[3, 9]]}}]}),
    ("square", {"setup": [{"call": "iter", "args": [[1]], "name": "c"}, {"call": "cache", "name": "c"}, {"call": "c.update", "args": [{"$dict": [[3, 9]]}]}]}),
    ("square", {"setup": [{"call": "dict.update", "args": [{"$name": "cache"}, {}]}]}),
    ("square", {"setup": [{"assign": "square", "value": {"$name": "abs"}}]}),
    ("square", {"setup": [{"call": "Solver.solve", "args": [1], "name": "x"}]}),
    ("square", {"setup": [{"file": "program.py", "text": "def square(x): return 9"}, {"file": "random.py", "text": "x = 1"}]}),
]  # fmt: skip


async def run(
    runner: Judge, cases: list[tuple[str, dict[str, Any]]], program: dict[str, str] = PROGRAM
) -> list[Verdict]:
    tests: dict[str, list[Any]] = {}
    for number, (function, fields) in enumerate(cases):
        tests.setdefault(function, []).append(test_of(str(number), **fields))
    results = await runner.run(program, freeze(tests))
    return sorted(results, key=lambda each: int(each.test))


@pytest.mark.slow
@pytest.mark.parametrize(("cases", "program"), [(HONEST, PROGRAM), (OF_VARYING, VARYING)])
async def test_what_steps_are_for(
    runner: Judge, cases: list[tuple[str, dict[str, Any]]], program: dict[str, str]
) -> None:
    results = await run(runner, cases, program)
    assert [(each.test, each.why) for each in results if not each.passed] == []


async def test_they_change_nothing_of_the_program(runner: Judge) -> None:
    cases = [(name, {**fields, "inputs": {"x": 3}, "expected_output": 9}) for name, fields in ATTACKS]
    results = await run(runner, cases)
    assert [each.test for each in results if each.passed] == []


@pytest.mark.parametrize("expected", ["TypeError", "NameError", "RuntimeError"])
async def test_no_test_can_expect_that_a_step_before_the_call_fails(runner: Judge, expected: str) -> None:
    step = {"assign": "Solver.memo", "value": 1}
    [result] = await run(runner, [("adder", {"inputs": {"n": 1}, "setup": [step], "expected_error": expected})])
    assert f"expected {expected}, but it raised StepError: TypeError: 'Solver' was not made by a step" in result.why
