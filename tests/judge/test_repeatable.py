"""A test passes only if every undisturbed run of it passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coderoom.generation import read_specs, read_tests
from coderoom.judge import FunctionTest, Judge, Verdict, freeze
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox

from .examples import frozen, test_of

# Each is true in some runs, and false in others.
CONDITIONS = {
    "the type of the stream": "type(sys.stdout.buffer).__name__ == 'Printed'",
    "another type of the stream": "type(sys.stdout.buffer).__name__ != 'Printed'",
    "random numbers": "random.random() < 0.5",
    "random numbers that are nearly always": "random.random() < 0.9",
    "bytes of the system": "os.urandom(1)[0] < 128",
    "time": "time.perf_counter_ns() // 1000 % 2",
    "page faults": "resource.getrusage(resource.RUSAGE_SELF).ru_minflt < 400",
    "the number of the process": "os.getpid() % 2",
    "an address": "id(object()) >> 16 & 1",
    "hashes": "hash('some text') % 2",
    "the order of a set": "list({'one', 'two'})[0] == 'one'",
    "modules of the harness": "'coderoom' in str(sys.modules)",
    "the name of the module": "__name__ == 'program'",
    "what is the main module": "hasattr(sys.modules['__main__'], 'even0')",
    "flags of the interpreter": "sys.flags.isolated",
    "more flags of the interpreter": "sys.flags.no_site",
    "flags that all of its other processes have": "sys.flags.ignore_environment",
    "the command line": "'-c' in open('/proc/self/cmdline').read().split(chr(0))",
    "the file of the caller": "'<' in sys._getframe(1).f_code.co_filename",
    "the calls around it": "len(inspect.stack()) > 3",
    "a test tool": "'pytest' not in sys.modules",
    "the user": "os.environ.get('USER') == 'coder'",
    "the main module has no file": "not hasattr(sys.modules['__main__'], '__file__')",
}
IMPORTS = "import inspect, os, random, resource, sys, time\n"


async def run(sandbox: Sandbox, source: str, count: int = 4, *, strict: bool = False) -> list[Verdict]:
    [spec] = read_specs([{"name": "even", "purpose": "p", "inputs": [{"name": "n", "type": "int"}],
                          "outputs": {"type": "bool"}}])  # fmt: skip
    cases = [{"name": f"{n}", "inputs": {"n": n}, "expected_output": n % 2 == 0} for n in range(count)]
    return await Judge(sandbox, strict=strict).run({"even": source}, freeze(read_tests({"even": cases}, [spec])))


def programs(conditions: Sequence[str]) -> dict[str, str]:
    """Functions that are right only if a condition holds."""
    body = "(n):\n    return (n % 2 == 0) == bool({})\n"
    return {f"even{n}": f"{IMPORTS}def even{n}{body.format(each)}" for n, each in enumerate(conditions)}


async def passing(sandbox: Sandbox, sources: dict[str, str], count: int = 3) -> list[str]:
    """The functions that pass their tests."""
    specs = read_specs([{"name": name, "purpose": "p", "inputs": [{"name": "n", "type": "int"}],
                         "outputs": {"type": "bool"}} for name in sources])  # fmt: skip
    cases = [{"name": f"{n}", "inputs": {"n": n}, "expected_output": n % 2 == 0} for n in range(count)]
    results = await Judge(sandbox).run(sources, freeze(read_tests(dict.fromkeys(sources, cases), specs)))
    return [name for name in sources if all(each.passed for each in results if each.function == name)]


@pytest.mark.slow
async def test_code_with_two_answers_does_not_pass(sandbox: Sandbox) -> None:
    names = [*CONDITIONS, *["random numbers that are nearly always"] * 4]
    passed = await passing(sandbox, programs([CONDITIONS[name] for name in names]))
    assert [names[int(name.removeprefix("even"))] for name in passed] == []


@pytest.mark.slow
async def test_both_answers_are_shown(sandbox: Sandbox) -> None:
    [result] = await run(
        sandbox, f"{IMPORTS}def even(n):\n    return type(sys.stdout.buffer).__name__ == 'Printed'\n", 1
    )
    assert result.why == "not repeatable: one run returned True, and another one returned False"


@pytest.mark.slow
async def test_why_all_new_processes_have_ended_is_told(sandbox: Sandbox) -> None:
    kill = "os.kill(int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1]), 9)"
    is_new = "sys.argv[0].endswith('main.py')"
    source = f"{IMPORTS}def even(n):\n    return n % 2 == 0\nif {is_new}:\n    {kill}\n    time.sleep(9)\n"
    [result] = await run(sandbox, source, 1)
    assert "process was ended by SIGKILL" in result.why
    assert (result.passed, result.outcome) == (False, Outcome.ERROR)


@pytest.mark.slow
async def test_bytes_may_be_printed(sandbox: Sandbox) -> None:
    body = "print('n', end='')\n    sys.stdout.buffer.write('ü'.encode())\n    return n % 2 == 0"
    results = await run(sandbox, f"{IMPORTS}def even(n):\n    {body}\n")
    assert [(each.passed, each.warning, each.stdout) for each in results] == [(True, "", "nü")] * 4


@pytest.mark.slow
async def test_random_numbers_may_be_used(sandbox: Sandbox) -> None:
    source = f"{IMPORTS}def even(n):\n    return n % 2 == 0 and random.random() < 2\n"
    assert all(each.passed and not each.warning for each in await run(sandbox, source))


@pytest.mark.slow
async def test_results_that_callers_do_not_share_are_no_warning(sandbox: Sandbox) -> None:
    sources = {
        "pairs": "import itertools\ndef pairs(xs):\n    return list(itertools.combinations(xs, 2))\n",
        "mixed": "import random\ndef mixed(xs):\n    random.shuffle(xs)\n    return xs\n",
    }
    tests = {
        "pairs": [FunctionTest(name="a", inputs={"xs": [[1], [2], [3]]}, property="len(result) == 3")],
        "mixed": [FunctionTest(name="a", inputs={"xs": [*range(9)]}, property="sorted(result) == sorted(xs)")],
    }
    results = await Judge(sandbox).run(sources, freeze(tests))
    assert [(each.passed, each.warning) for each in results] == [(True, "")] * 2


@pytest.mark.slow
async def test_state_that_is_kept_is_a_warning(sandbox: Sandbox) -> None:
    source = "def even(n, seen=[]):\n    seen.append(n)\n    return n % 2 == 0 and len(seen) < 3\n"
    results = await run(sandbox, source)
    assert [(each.passed, bool(each.warning)) for each in results] == [(True, each in (0, 2)) for each in range(4)]
    assert results[2].warning == ("it passes alone, but after the other tests it returned False: the code keeps state")
    strict = await run(sandbox, source, strict=True)
    assert [each.passed for each in strict] == [False, True, False, True]


@pytest.mark.slow
async def test_state_that_shows_in_some_processes_only_fails(sandbox: Sandbox) -> None:
    source = (
        "import sys\ndef even(n, seen=[]):\n    seen.append(n)\n"
        "    return n % 2 == 0 and (sys.flags.isolated == 1 or len(seen) < 3)\n"
    )
    results = await run(sandbox, source)
    assert [each.passed for each in results] == [False, True, False, True]


@pytest.mark.slow
async def test_state_that_spoils_a_second_call_with_the_same_arguments_is_a_warning(sandbox: Sandbox) -> None:
    source = "def even(n, seen=[]):\n    seen.append(n)\n    return (n % 2 == 0) == (seen.count(n) < 2)\n"
    assert all(each.passed and "the code keeps state" in each.warning for each in await run(sandbox, source, 3))
    assert not any(each.passed for each in await run(sandbox, source, 3, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["threading.Timer(0.05, os._exit, (0,)).start()", "atexit.register(os._exit, 3)"])
async def test_code_that_ends_the_process_later_fails(sandbox: Sandbox, end: str) -> None:
    source = f"import atexit, os, threading\ndef even(n):\n    {end}\n    return n % 2 == 0\n"
    assert not all(each.passed for each in await run(sandbox, source, 3))


@pytest.mark.slow
async def test_few_tests_of_a_function_that_hangs_are_run(sandbox: Sandbox) -> None:
    runner = Judge(sandbox, timeout=0.6)
    [spec] = read_specs([{"name": "f", "purpose": "p", "inputs": [], "outputs": {"type": "int"}}])
    cases = [{"name": f"{n}", "expected_output": n} for n in range(20)]
    results = await runner.run({"f": "def f():\n    while True: pass\n"}, freeze(read_tests({"f": cases}, [spec])))
    assert sum(each.outcome.value == "timeout" for each in results) == 3
    assert results[-1].why == "not run, since 3 tests of this function have exceeded their time limit"


async def test_the_order_in_which_a_test_names_its_inputs_does_not_count(sandbox: Sandbox) -> None:
    inputs = [{"name": name, "type": "int"} for name in "ab"]
    [spec] = read_specs([{"name": "f", "purpose": "p", "inputs": inputs, "outputs": {"type": "int"}}])
    source = "def f(*args, **kwargs):\n    found = dict(zip('ab', args)) | kwargs\n    return found['a'] - found['b']\n"
    tests = read_tests({"f": [{"name": "x", "inputs": {"b": 1, "a": 5}, "expected_output": 4}]}, [spec])
    [result] = await Judge(sandbox).run({"f": source}, freeze(tests))
    assert result.passed, result


@pytest.mark.slow
async def test_the_order_of_a_set_that_is_given_counts(sandbox: Sandbox) -> None:
    given = ["one", "two", "three", "four", "five", "six"]
    cases = [{"name": "a set", "inputs": {"words": {"$set": given}}, "property": "len(result) == 6"}]
    [spec] = read_specs([{"name": "f", "purpose": "p", "inputs": [{"name": "words", "type": "set"}],
                          "outputs": {"type": "list"}}])  # fmt: skip
    source = "def f(words):\n    first, *rest = words\n    return [first, *rest] if len(first) > 3 else []\n"
    passed = source.replace("len(first) > 3", "first")
    for code, expected in ((source, False), (passed, True)):
        [result] = await Judge(sandbox).run({"f": code}, freeze(read_tests({"f": cases}, [spec])))
        assert result.passed is expected, result


@pytest.mark.slow
async def test_the_order_of_a_set_that_a_step_makes_counts(sandbox: Sandbox) -> None:
    then = [{"call": "set", "args": [{"$name": "result"}], "name": "s"}, {"call": "list", "args": [{"$name": "s"}]}]
    for expected in (["one", "two"], ["two", "one"]):
        tests = frozen("f", test_of(inputs={"x": 2}, then=then, expected_output=expected))
        [result] = await Judge(sandbox).run({"f": "def f(x):\n    return ['one', 'two'][:x]\n"}, tests)
        assert not result.passed
