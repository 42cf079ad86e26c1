"""Problem sets whose tests are inputs: EvalPlus, LiveCodeBench, APPS, and programs of one's own."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.judge import Judge
from coderoom.judge.problem_sets import read_problems, read_programs, read_samples
from coderoom.judge.scoring import Score, score
from tests.support.commands import coderoom


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


ADD = "a, b = map(int, input().split())\nprint(a + b)"
PUBLIC = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
CALLS = [{"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional"}]
START = "class Solution:\n    def add(self, a: List[int], b: int) -> List[int]:\n        "
PROBLEMS: list[dict[str, Any]] = [
    {"question_id": "lcb", "public_test_cases": json.dumps(PUBLIC), "starter_code": "", "metadata": "{}",
     "private_test_cases": packed(json.dumps([{"input": "5 5", "output": "10", "testtype": "stdin"}]))},
    {"question_id": "lcb_call", "public_test_cases": json.dumps(CALLS), "starter_code": START,
     "metadata": '{"func_name": "add"}', "private_test_cases": "[]"},
    {"task_id": "plus", "prompt": "def mean(a, n):\n", "canonical_solution": "    return [sum(a) / len(a)] * n\n",
     "entry_point": "mean", "base_input": [[[1, 2], 1]], "plus_input": [[[1, 1, 0], 2], [[], 1]], "atol": 1e-6},
    {"task_id": "HumanEval/32", "prompt": "def find_zero(a):\n", "canonical_solution": "    return 1.0\n",
     "entry_point": "find_zero", "base_input": [[[-1, 0, 1]]], "plus_input": []},
    {"problem_id": 7, "input_output": json.dumps({"inputs": ["1 2"], "outputs": [["3"]]}), "starter_code": "",
     "solutions": json.dumps([ADD])},
    {"problem_id": 8, "input_output": json.dumps({"inputs": [[[1], 2]], "outputs": [[[3]]], "fn_name": "add"}),
     "solutions": json.dumps(["def add(a, b): return [a[0] + b]"])},
    {"problem_id": 9, "input_output": "", "solutions": ""},
    {"task_id": "own", "tests": [{"stdin": "2", "stdout": "0.5"}], "compare": "numbers", "prompt": "n = int(input())\n",
     "canonical_solution": "print(1 / n)"},
    {"task_id": "wrong", "tests": [{"stdin": "", "stdout": "1"}], "canonical_solution": "print(2)"},
    {"task_id": "empty", "tests": [{"stdin": "", "stdout": ""}]},
]  # fmt: skip
SAMPLES = [
    ({"question_id": "lcb", "code": ADD}, True),
    ({"question_id": "lcb", "code_list": [ADD, "print(3)"]}, True),
    ({"question_id": "lcb", "code_list": ["print(3)"]}, False),
    ({"question_id": "lcb_call", "code": f"{START}return [b + each for each in a]"}, True),
    ({"question_id": "lcb_call", "code": f"{START}print([4, 5])"}, False),
    ({"task_id": "plus", "completion": "    return [sum(a) / len(a) + 1e-9] * n"}, True),
    ({"task_id": "plus", "completion": "    return [1.5]"}, False),
    ({"task_id": "plus", "completion": "    class A(list):\n        __eq__ = lambda *_: True\n    return A()"}, False),
    ({"task_id": "HumanEval/32", "completion": "    return -1.0"}, True),
    ({"task_id": "HumanEval/32", "completion": "    return 0.5"}, False),
    ({"problem_id": 7, "solution": ADD}, True),
    ({"problem_id": 8, "solution": "class Solution:\n    def add(self, a, b): return [3]"}, True),
    ({"problem_id": 8, "solution": "def add(a, b): return 3"}, False),
    ({"task_id": "own", "completion": "print(1 / n + 1e-9)"}, True),
    ({"task_id": "own", "solution": "print(1)"}, False),
    ({"task_id": "wrong", "solution": "print(1)"}, False),
    ({"task_id": "empty", "solution": ""}, False),
]


def write(file: Path, lines: list[Any]) -> Path:
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return file


@pytest.mark.slow
async def test_samples_for_each_format(tmp_path: Path) -> None:
    problems = read_problems(write(tmp_path / "problems.jsonl", PROBLEMS))
    samples = read_samples(write(tmp_path / "samples.jsonl", [[line for line, _ in SAMPLES]]), problems)
    assert len(samples) == len(SAMPLES) + 1
    result = Score()
    seen: dict[int, bool] = {}
    async with Judge(timeout=10) as judge:
        async for sample, verdict in score(samples, result, judge):
            seen.setdefault(id(sample.line), verdict is not None and verdict.passed)
    assert [*seen.values()] == [passed for _, passed in SAMPLES]
    assert result.unsound == {
        "wrong": "its reference fails: test 1: line 1: '2' was printed, and '1' expected",
        "empty": "an empty answer passes",
    }
    assert result.without_reference == {"lcb", "lcb_call", "empty"}


class Attack:
    def __reduce__(self) -> Any:
        return print, ("executed",)


def test_a_pickle_of_tests_executes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = {**PROBLEMS[0], "private_test_cases": packed(Attack())}
    with pytest.raises(RequestError, match=r":1 is no problem of LiveCodeBench: .*only text was expected"):
        read_problems(write(tmp_path / "problems.jsonl", [problem]))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"question_id": 1, "public_test_cases": "[]", "private_test_cases": "[]"}], "tests: .*at least 1 item"),
        ([{"task_id": 1, "tests": [{"stdout": 5}]}], r"of programs: tests\.0\.stdout: Input should be a valid string"),
        ([{"problem_id": 1, "input_output": "{}"}], "no problem of APPS: KeyError: 'inputs'"),
    ],
)
def test_problems_that_are_none(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_problems(write(tmp_path / "problems.jsonl", lines))


def test_the_tests_of_a_program_in_files(tmp_path: Path) -> None:
    one, two = {"stdin": "1", "stdout": "1"}, {"name": "b", "stdin": "2", "stdout": "2"}
    for lines in ([one, two], [[one, two]], [{"tests": [one, two]}]):
        assert [each.name for each in read_programs(write(tmp_path / "a.json", lines)).tests] == ["", "b"]
    assert len(read_programs(write(tmp_path / "a.json", [one])).tests) == 1
    with pytest.raises(RequestError, match=r"a\.json has no tests of a program: tests\.0\.out: Extra inputs"):
        read_programs(write(tmp_path / "a.json", [{"out": "1"}]))


def test_a_program_on_the_command_line(tmp_path: Path) -> None:
    write(tmp_path / "cases.jsonl", [{"stdin": "1 2", "stdout": "3"}, {"name": "big", "stdin": "5 5", "stdout": "11"}])
    (tmp_path / "add.sh").write_text("read a b; echo $((a + b))")
    done = coderoom("judge", "cases.jsonl", "--candidate", "add.sh", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    one, big = json.loads(done.stdout)["tests"]
    assert (one["test"], one["passed"], one["outcome"], one["stdout"]) == ("1", True, "ok", "3\n")
    assert (big["test"], big["passed"]) == ("big", False)
    assert big["why"] == "line 1: '10' was printed, and '11' expected"
