from __future__ import annotations

import json
from pathlib import Path

import pytest

from coderoom.judge import FrozenTests, Judge, PythonHarness, TestCode
from coderoom.judge.mutants import Mutants
from coderoom.sandbox import Sandbox
from tests.support.commands import coderoom

from .examples import frozen, test_of

CLAMP = """\
def clamp(x, low, high):
    '''Keep x between 1 and 2.'''
    if x < low:
        return low
    if x > high:
        print("too much", 3)
        return high
    return x
"""
NAMES = ("x", "low", "high")
FEW = [(5, 1, 9, 5), (0, 1, 9, 1)]
MANY = [*FEW, (12, 1, 9, 9)]


def cases_of(*cases: tuple[int, ...]) -> FrozenTests:
    tests = [
        test_of(str(case), inputs=dict(zip(NAMES, case, strict=False)), expected_output=case[-1]) for case in cases
    ]
    return frozen("clamp", *tests)


def changes(source: str) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for each in Mutants(source):
        compile(each.source, "<mutant>", "exec")
        assert each.source != source
        found.setdefault(each.line, set()).add(each.change)
    return found


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("x < 1", '"<=" for "<"'),
        ("x < 1", '">=" for "<"'),
        ("x and y", '"or" for "and"'),
        ("x * (y + 1)", '"-" for "+"'),
        ("x is None", '"is not" for "is"'),
        ("not x", '"x" for "not x"'),
        ("x[1:y]", '":y" for "1:y"'),
        ("x[:y]", '"y + 1" for "y"'),
        ("f(1, 2)", '"2, 1" for "1, 2"'),
        ("x + 7", '"8" for "7"'),
        ("[a for a in x if a]", '"True" for "a"'),
        ("x", '"return None" for "return x"'),
        ("'é' * y < 'ü'", '"<=" for "<"'),
        ("'ü' if x else y", '"False" for "x"'),
    ],
)
def test_the_standard_operators(line: str, change: str) -> None:
    assert change in changes(f"def g(x, y):\n    return {line}\n")[2]


def test_statements_and_defaults_are_changed_and_texts_that_nobody_tests_are_not() -> None:
    found = changes(
        "def f(xs: 'list' = 3, *, end=False) -> 'int':\n    'Doc 1.'\n    for x in xs:\n        if x: continue\n"
        "        xs.sort()\n        xs[0] = x\n        xs += [1]\n    log.info('a %s', 5)\n"
        "    raise ValueError('no', 4)\n"
    )
    assert {'"4" for "3"', '"True" for "False"'} <= found[1]
    assert {'"break" for "continue"'} <= found[4]
    assert found[5] == {'"pass" for "xs.sort()"'}
    assert '"pass" for "xs[0] = x"' in found[6]
    assert {'"-=" for "+="', '"pass" for "xs += [1]"'} <= found[7]
    assert found[9] == {'"pass" for "raise ValueError(\'no\', 4)"'}
    assert found.keys() == {1, 4, 5, 6, 7, 9}


def test_mutants_are_the_same_each_time_and_come_from_all_lines_first() -> None:
    code = "def f(x):\n" + "".join(f"    x = x + {n} - {n}\n" for n in range(20)) + "    return x\n"
    first, again = list(Mutants(code)), list(Mutants(code))
    assert first == again
    assert len({each.line for each in first[:21]}) == 21


async def test_weak_tests_leave_mutants_alive(runner: Judge) -> None:
    found = await runner.strength({"clamp": CLAMP}, cases_of(*FEW))
    assert found.killed + len(found.survivors) == found.mutants
    assert {each.line for each in found.survivors} == {3, 5}
    assert (found.unreached, found.lines_unreached) == (1, (7,))
    assert str(found).endswith("1 more in lines that no test runs (7)")
    better = await runner.strength({"clamp": CLAMP}, cases_of(*MANY))
    assert better.rate > found.rate
    assert better.unreached == 0
    assert [str(each) for each in better.survivors] == ['line 3 "<=" for "<"', 'line 5 ">=" for ">"']
    assert str(better) == '9 of 11 mutants killed, 2 alive: line 3 "<=" for "<", line 5 ">=" for ">"'


async def test_mutants_that_do_not_end_or_end_the_process_are_killed(runner: Judge) -> None:
    code = (
        "import os\ndef total(n):\n    found = 0\n    while n > 0:\n        found += n\n        n -= 1\n"
        "    if n < 0:\n        os._exit(3)\n    return found\n"
    )
    tests = frozen("total", *(test_of(f"{n}", inputs={"n": n}, expected_output=sum(range(n + 1))) for n in (0, 1, 5)))
    found = await runner.strength({"total": code}, tests)
    # At 0, the loop adds nothing.
    assert {str(each) for each in found.survivors} <= {'line 7 "False" for "n < 0"', 'line 7 "-1" for "0"'}
    assert found.killed >= 8


async def test_properties_and_the_functions_that_use_a_mutant_count(runner: Judge) -> None:
    code = {"half": "def half(x):\n    return x // 2\n", "both": "def both(x):\n    return [half(x), x - half(x)]\n"}
    tests = frozen("both", test_of("seven", inputs={"x": 7}, property="sum(result) == x and result[0] == 3"))
    found = await runner.strength(code, tests)
    assert (found.killed, found.survivors) == (found.mutants, ())
    assert found.inputs == 0, "this property is about 7"


async def test_properties_are_tried_with_generated_inputs(runner: Judge) -> None:
    code = {"ordered": "def ordered(xs: list[int], least: int) -> list[int]:\n    return sorted(xs)[1:]\n"}
    good = test_of(
        "good", inputs={"xs": [3, 1], "least": 0}, property="all(x in xs for x in result) and least == least"
    )
    bad = test_of("bad", inputs={"xs": [], "least": 0}, property="len(result) == len(xs) and least == least")
    found = await runner.strength(code, frozen("ordered", good))
    assert found.inputs > 10
    assert (found.held, found.runs, found.counterexample) == (found.inputs, found.inputs, "")
    assert str(found).endswith(
        f"properties hold for {found.inputs} of {found.inputs} generated inputs in {found.runs} runs"
    )
    found = await runner.strength(code, frozen("ordered", bad))
    assert 0 < found.held < found.inputs
    assert found.counterexample.startswith("xs=[")


async def test_tests_of_other_kinds_are_measured_apart() -> None:
    async with Judge() as judge:
        test = TestCode(test="assert clamp(5, 1, 9) == 5\nassert clamp(0, 1, 9) == 1")
        found = await judge.strength({"solution.py": CLAMP}, test, most=6)
        assert (found.mutants, 0 < found.killed < 6) == (6, True)
        nothing = await judge.strength({"solution.py": CLAMP}, TestCode(test="assert False"))
        assert nothing.unavailable == "no test passes"


@pytest.mark.slow
def test_the_command_shows_it_for_files_and_for_samples(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def fee(x):\n    return 3 if x >= 10 else 0\n")
    (tmp_path / "test_shop.py").write_text("import shop\n\ndef test_fee():\n    assert shop.fee(50) == 3\n")
    done = coderoom("judge", "test_shop.py", "--candidate", "shop.py", "--strength", cwd=tmp_path)
    assert done.returncode == 0, done
    assert 'line 2 ">" for ">="' in done.stdout
    problem = {"task_id": "a", "code": "def f(x): return x < 3", "test_list": ["assert f(2)", "assert not f(3)"]}
    (tmp_path / "problems.jsonl").write_text(json.dumps(problem))
    (tmp_path / "samples.jsonl").write_text(json.dumps({"task_id": "a", "solution": problem["code"]}))
    done = coderoom("judge", "problems.jsonl", "samples.jsonl", "--strength", cwd=tmp_path)
    assert "their tests kill 5 of 5 mutants" in done.stdout, done
    [line] = map(json.loads, (tmp_path / "samples.jsonl_results.jsonl").read_text().splitlines())
    assert line["strength"]["killed"] == 5


async def test_other_languages_have_none(sandbox: Sandbox) -> None:
    class Other(PythonHarness):
        name = "other"

    judge = Judge(sandbox, language=Other())
    assert str(await judge.strength({}, cases_of(*FEW))) == "no evidence: there are no mutants of other"
