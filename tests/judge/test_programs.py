"""Programs: what they print for an input, compared on the host or by a checker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from coderoom.errors import RequestError
from coderoom.judge import Judge, Programs, ProgramTest, Verdict

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
TWO = ({"stdin": "1 2\n", "stdout": "3\n"}, {"name": "negative", "stdin": "-1 -2", "stdout": "-3"})
CHECKER = "def check(input, output, expected):\n    return sum(map(int, output.split())) == int(expected)"


@pytest.fixture(scope="module")
async def judge() -> AsyncIterator[Judge]:
    async with Judge(timeout=5) as judge:
        yield judge


async def run(judge: Judge, code: str, name: str = "main.py", **tests: Any) -> list[Verdict]:
    return await judge.run({name: code}, Programs.model_validate({"tests": TWO, **tests}))


@pytest.mark.parametrize(
    ("code", "outcome", "why"),
    [
        (ADD, "ok", ""),
        ("print(*[sum(map(int, open(0).read().split()))], sep='', end='')\n'last value'", "ok", ""),
        ("print(5)", "ok", "line 1: '5' was printed, and '3' expected"),
        (f"{ADD}print('\\nmore')", "ok", "line 3: 'more' was printed after all that was expected"),
        ("pass", "ok", "the output ends too early: '3' was expected on line 1"),
        ("1 / 0", "error", "it raised ZeroDivisionError: division by zero"),
        (f"{ADD}raise SystemExit(3)", "error", "exit code 3"),
        (f"{ADD}while True: pass", "timeout", "stopped after 0.5 seconds"),
        (f"{ADD}import os\nos.kill(os.getpid(), 9)", "error", "SIGKILL"),
        (f"{ADD}x = bytearray(99_000_000)", "memory", "it used 1"),
        ("def f(:", "error", "SyntaxError"),
        # What a program returns, raises or leaves behind is no output.
        ("class Any:\n    __eq__ = lambda *_: True\nAny()", "ok", "the output ends too early"),
        ("import atexit, os\natexit.register(os._exit, 0)\nprint('PASSED', flush=True)", "ok", "'PASSED' was printed"),
    ],
)
async def test_a_program_has_to_print_what_is_expected(judge: Judge, code: str, outcome: str, why: str) -> None:
    one, other = await run(judge, code, timeout=0.5, memory_bytes=64 * 1024 * 1024)
    assert (one.test, one.passed, one.outcome) == ("1", not why, outcome), one
    assert (other.test, other.passed, other.outcome) == ("negative", not why, outcome), other
    assert why in one.why
    assert one.duration > 0


@pytest.mark.parametrize(
    ("actual", "expected", "passed"),
    [
        ("1 2\n3", "1\n2 3\n\n", ("words", "numbers")),
        ("a\n", "a\n", ("words", "numbers", "exact")),
        ("a\n", "a", ("words", "numbers")),
        ("a  b\n", "a b\n", ("words", "numbers")),
        ("A", "a", ()),
        ("0.1000001 x", "0.1 x", ("numbers",)),
        ("1000001", "1000000", ()),
        ("1000001.0", "1000000.0", ("numbers",)),
        ("1e6", "1000001", ()),
        ("1.0", "1", ("numbers",)),
        ("9007199254740993", "9007199254740992", ()),
        ("1e99999999999999999999", "1", ()),
        ("1e400", "1e401", ()),
        ("nan", "1", ()),
        ("1_0", "10", ()),
        ("0.1001", "0.1", ()),
    ],
)
async def test_ways_to_compare(judge: Judge, actual: str, expected: str, passed: tuple[str, ...]) -> None:
    for compare in ("words", "numbers", "exact"):
        tests = [{"stdin": actual, "stdout": expected}]
        [verdict] = await run(judge, "print(open(0).read(), end='')", tests=tests, compare=compare)
        assert verdict.passed == (compare in passed), verdict


async def test_other_languages(judge: Judge) -> None:
    javascript = "const n = require('fs').readFileSync(0, 'utf8').split(' ').map(Number)\nconsole.log(n[0] + n[1])"
    for name, code in (("add.sh", "read a b; echo $((a + b))"), ("add.js", javascript)):
        assert [each.result for each in await run(judge, code, name)] == ["passed", "passed"]
    with pytest.raises(RequestError, match=r"add\.pas: programs end in \.py, "):
        await run(judge, "", "add.pas")


C = '#include <stdio.h>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d", a + b); return 0; }'
JAVA = """import java.util.Scanner;
public class Main {
    public static void main(String[] args) {
        var in = new Scanner(System.in);
        System.out.println(in.nextInt() + in.nextInt());
    }
}
"""


@pytest.mark.parametrize(("name", "code"), [("add.c", C), pytest.param("Add.java", JAVA, marks=pytest.mark.slow)])
async def test_languages_that_are_compiled(judge: Judge, name: str, code: str) -> None:
    assert [each.result for each in await run(judge, code, name)] == ["passed", "passed"]
    wrong = await run(judge, f"{code}\n}}", name)
    assert [each.outcome for each in wrong] == ["error", "error"]
    assert wrong[0].why.startswith("it does not compile: ")


async def test_a_test_leaves_nothing_for_the_next_one(judge: Judge) -> None:
    code = "import os, subprocess\nseen = os.listdir('.') + os.listdir('/tmp')\nopen('/tmp/a', 'w'), open('a', 'w')\n"
    code += "subprocess.Popen(['sleep', '60'])\nprint('a' in seen, sum(each.isdigit() for each in os.listdir('/proc')))"
    first, second = await run(judge, code, tests=[{"stdout": "False 3"}, {"stdout": "False 3"}])
    assert first.stdout == second.stdout
    assert first.stdout.startswith("False ")


SEARCH = """
import gc, os, sys
def search():
    secret = "".join(map(chr, range(97, 110)))
    kinds = (str, bytes, dict, list, tuple)
    found = [1 for each in gc.get_objects() if isinstance(each, kinds) and secret in repr(each)]
    for name in ("environ", "cmdline"):
        with open(f"/proc/self/{name}") as file:
            found += [name] if secret in file.read() else []
    for folder, _, files in [*os.walk("/workspace"), *os.walk("/tmp")]:
        found += [] if folder.startswith(sys.prefix) else files  # The interpreter may be there.
    return len(found)
print(search(), input())
"""


@pytest.mark.parametrize("more", [{}, {"checker": "def check(*given): return given[1] == '0 abc\\n'"}])
async def test_what_is_expected_is_not_where_the_program_is(judge: Judge, more: dict[str, str]) -> None:
    secret = "".join(map(chr, range(97, 110)))
    [verdict] = await run(judge, SEARCH, tests=[{"name": secret, "stdin": "abc", "stdout": secret}], **more)
    assert (verdict.stdout, verdict.passed) == ("0 abc\n", bool(more))


async def test_a_checker_decides(judge: Judge) -> None:
    assert [each.passed for each in await run(judge, "print(*input().split())", checker=CHECKER)] == [True, True]
    [wrong, _] = await run(judge, "print('__import__(\\'os\\')._exit(0)')", checker=CHECKER)
    assert wrong.why.startswith("the checker does not accept it: ValueError: invalid literal")
    [unsaid, _] = await run(judge, ADD, checker="def check(input, output, expected):\n    output == expected")
    assert unsaid.why == "the checker does not accept it: it returned None, not True"
    [said, _] = await run(judge, ADD, checker="def check(input, output, expected): return f'{output!r} is odd'")
    assert said.why == "the checker does not accept it: '3\\n' is odd"


@pytest.mark.parametrize("checker", ["def check(:", "1 / 0", "x = 1", "def check(a, b, c): return chek(a)"])
async def test_a_broken_checker_says_nothing_about_the_program(judge: Judge, checker: str) -> None:
    with pytest.raises(RequestError, match=r"^The checker is broken"):
        await run(judge, ADD, checker=checker)


async def test_tests_after_a_failure_can_be_skipped(judge: Judge) -> None:
    verdicts = await run(judge, "print(4)", stop_at_first_failure=True)
    assert [each.skipped for each in verdicts] == [False, True]
    assert verdicts[1].why == "1 has failed before"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def add(a, b): return a + b", ""),
        ("class Solution:\n    def add(self, a, b): return (*a, *b)\nif __name__ == '__main__': 1 / 0", ""),
        ("def add(a, b): return a", "expected length 2, got 1"),
        ("def add(a, b):\n    class A:\n        __eq__ = lambda *_: True\n    return A()", "which is not JSON"),
        ("def add(a, b): print([1, 2])", "None"),
        ("", "NameError"),
    ],
)
async def test_a_function_is_called_with_json(judge: Judge, code: str, why: str) -> None:
    [verdict] = await run(judge, code, tests=[{"stdin": "[1]\n[2]", "stdout": "[1, 2]"}], function="add")
    assert verdict.passed == (not why)
    assert why in verdict.why


@pytest.mark.slow
async def test_large_outputs(judge: Judge) -> None:
    tests = [{"stdin": "", "stdout": "x" * 5_000_000}]
    assert (await run(judge, "print('x' * 5_000_000)", tests=tests))[0].passed
    [verdict] = await run(judge, "for _ in range(10): print('x' * 10_000_000)", tests=tests)
    assert verdict.why == "it printed 100,000,010 bytes, more than the 67,108,864 that are compared"
    assert len(verdict.stdout) <= 10_000


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tests": []}, "at least 1 item"),
        ({"tests": [{"stdin": ""}]}, r"tests\[0\]\.stdout: without a checker it is required"),
        ({"tests": [{"stdin": "{", "stdout": "1"}], "function": "f"}, r"tests\[0\]: its stdin and stdout must be JSON"),
    ],
)
def test_what_are_no_tests(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Programs.model_validate(given)
    assert ProgramTest(name="a").stdout is None
