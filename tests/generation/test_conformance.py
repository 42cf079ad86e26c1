# ruff: noqa: E501 (pieces of code, one to a line)
"""What every language has to give: the same questions to each, in its own words."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from coderoom.generation import JavaScriptLanguage, Language, PythonLanguage, TestResult, TestRunner, freeze
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox

from .examples import frozen, spec, test_of


@dataclass(frozen=True)
class Words:
    """A language, and code in it.

    Attributes:
        language: The language.
        sandbox: The fixture with its sandbox.
        timeout: The seconds that a test has.
        same: A function `f(x)` that returns what it is given.
        adds: One that returns a list of `x` and `x + 1`.
        raises: One that raises what `error` names, with `no` as its message.
        error: The name of an exception.
        twice: Code that calls `f` of `same` twice, as `g(x)`.
        waits: One that never ends.
        prints: One that prints much.
        alone: Functions that return 1 where no other test has been.
        failing: A function that fails, and one that calls it.
        traceback: What is told of that.
        unloadable: The code of `f`, `h` and `i`, none of which can be loaded.
        one: A function that returns 1, to be named.
    """

    language: Language
    sandbox: str
    timeout: float
    same: str
    adds: str
    raises: str
    error: str
    twice: str
    waits: str
    prints: str
    alone: Sequence[str]
    failing: Mapping[str, str]
    traceback: Sequence[str]
    unloadable: Mapping[str, str]
    one: str


PYTHON = Words(
    language=PythonLanguage(),
    sandbox="sandbox",
    timeout=2,
    same="def f(x): return x",
    adds="def f(x): return [x, x + 1]",
    raises="def f(x): raise TypeError('no')",
    error="TypeError",
    twice="def g(x): return [f(x), f(x)]",
    waits="def f(x):\n    while True: pass",
    prints="def f(): print('x' * 50_000)",
    alone=[
        "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)",
        "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
        "import os\ndef f(x):\n    open(f'{x}', 'w').close()\n    return len(os.listdir())",
        "import os, tempfile\ndef f(x):\n    here = tempfile.gettempdir() + '/mine'\n    os.makedirs(here, exist_ok=True)\n"
        "    open(f'{here}/{x}', 'w').close()\n    return len(os.listdir(here))",
        "import math\ndef f(x):\n    math.pi = getattr(math, 'n', 0) + 1\n    math.n = 1\n    return math.pi",
        "import os\ndef f(x):\n    os.environ['N'] = os.environ.get('N', '') + 'x'\n    return len(os.environ['N'])",
    ],
    failing={"g": "def g(x):\n    return 1 / x\n", "f": "def f(x):\n    y = g(x)\n    return y\n"},
    traceback=[
        "  in f, line 2 of f: y = g(x)",
        "  in g, line 2 of g: return 1 / x",
        "ZeroDivisionError: division by zero",
    ],
    unloadable={
        "f": "import os\nos._exit(1)",
        "h": "def h(: pass",
        "i": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    },
    one="def {name}(): return 1",
)
JAVASCRIPT = Words(
    language=JavaScriptLanguage(),
    sandbox="node_sandbox",
    timeout=5,
    same="function f(x) { return x }",
    adds="function f(x) { return [x, x + 1] }",
    raises="function f(x) { throw new TypeError('no') }",
    error="TypeError",
    twice="function g(x) { return [f(x), f(x)] }",
    waits="function f(x) { while (true); }",
    prints="function f() { console.log('x'.repeat(50_000)) }",
    alone=[
        "const seen = []\nfunction f(x) { seen.push(x); return seen.length }",
        "import fs from 'fs'\nfunction f(x) { fs.writeFileSync(`${x}`, ''); return fs.readdirSync('.').length }",
        "import fs from 'fs'\nfs.writeFileSync('a', '')\nfunction f(x) { fs.appendFileSync('a', 'x'); return fs.readFileSync('a').length }",
        "import fs from 'fs'\nfunction f(x) { fs.appendFileSync(new URL(import.meta.url).pathname, '\\nthrow 1'); return 1 }",
        "function f(x) { Math.n = (Math.n ?? 0) + 1; return Math.n }",
    ],
    failing={
        "g": "import fs from 'fs'\nexport function g(x) {\n  throw new TypeError('no')\n}",
        "f": "\nexport const f = (x) => {\n  const y = g(x)\n  return y\n}\n",
    },
    traceback=[
        "  in f, line 3 of f: const y = g(x)",
        "  in g, line 3 of g: throw new TypeError('no')",
        "TypeError: no",
    ],
    unloadable={"f": "process.exit(1)", "h": "function h( {", "i": "process.kill(process.pid, 'SIGKILL')"},
    one="function {name}() {{ return 1 }}",
)

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")


@pytest.fixture(
    params=[PYTHON, pytest.param(JAVASCRIPT, marks=[needs_node, pytest.mark.slow])],
    ids=lambda words: str(words.language.name),
)
def words(request: pytest.FixtureRequest) -> Words:
    found = request.param
    assert isinstance(found, Words)
    return found


@pytest.fixture
def runner(words: Words, request: pytest.FixtureRequest) -> TestRunner:
    sandbox = request.getfixturevalue(words.sandbox)
    return TestRunner(sandbox, timeout=words.timeout, language=words.language)


async def run_one(runner: TestRunner, source: str, **fields: Any) -> TestResult:
    (result,) = await runner.run({"f": source}, frozen("f", test_of(**fields)))
    return result


async def test_what_came_is_compared_with_what_was_expected(runner: TestRunner, words: Words) -> None:
    result = await run_one(runner, words.adds, inputs={"x": 1}, expected_output=[1, 2])
    assert (result.passed, result.actual_output, result.outcome) == (True, [1, 2], Outcome.OK)
    assert result.duration > 0
    assert result.peak_memory
    result = await run_one(runner, words.adds, inputs={"x": 1}, expected_output=[1, 3])
    assert (result.passed, result.why) == (False, "result[1]: expected 3, got 2")
    result = await run_one(runner, words.same, inputs={"x": 1}, expected_output=True)
    assert not result.passed


async def test_an_error_may_be_expected(runner: TestRunner, words: Words) -> None:
    expected = {"inputs": {"x": 1}, "expected_error": words.error}
    assert (await run_one(runner, words.raises, **expected, error_message="NO")).passed
    assert "'yes' in its message" in (await run_one(runner, words.raises, **expected, error_message="yes")).why
    assert f"expected {words.error}, but it returned 1" in (await run_one(runner, words.same, **expected)).why
    result = await run_one(runner, words.raises, inputs={"x": 1}, expected_error="RangeError")
    assert f"expected RangeError, but it raised {words.error}: no" in result.why
    result = await run_one(runner, words.raises, inputs={"x": 1}, expected_output=1)
    assert f"expected 1, but it raised {words.error}: no" in result.why


async def test_a_property_is_an_expression_of_python(runner: TestRunner, words: Words) -> None:
    assert (await run_one(runner, words.adds, inputs={"x": 1}, property="sum(result) == 2 * x + 1")).passed
    result = await run_one(runner, words.adds, inputs={"x": 1}, property="sum(result) == 2 * x")
    assert "does not hold" in result.why
    assert "but it raised" in (await run_one(runner, words.raises, inputs={"x": 1}, property="result is None")).why


async def test_steps_make_what_is_given_and_use_what_is_returned(runner: TestRunner, words: Words) -> None:
    setup = [{"call": "f", "args": [4], "name": "y"}]
    assert (await run_one(runner, words.same, inputs={"x": {"$name": "y"}}, setup=setup, expected_output=4)).passed
    then = [{"call": "f", "args": [{"$name": "result"}]}]
    assert (await run_one(runner, words.adds, inputs={"x": 1}, then=then[:0], expected_output=[1, 2])).passed
    assert (await run_one(runner, words.same, inputs={"x": 1}, then=then, expected_output=1)).passed
    result = await run_one(runner, words.raises, inputs={"x": 1}, setup=setup, expected_error=words.error)
    assert f"expected {words.error}, but it raised StepError" in result.why


async def test_functions_call_each_other(runner: TestRunner, words: Words) -> None:
    tests = frozen("g", test_of(inputs={"x": "a"}, expected_output=["a", "a"]))
    (result,) = await runner.run({"f": words.same, "g": words.twice}, tests)
    assert result.passed, result


async def test_what_never_ends_is_stopped(runner: TestRunner, words: Words) -> None:
    result = await run_one(runner, words.waits, inputs={"x": 1}, expected_output=None)
    assert f"The code was stopped after {words.timeout:g} seconds." in result.why


async def test_an_error_has_the_lines_of_the_program(runner: TestRunner, words: Words) -> None:
    (result,) = await runner.run(words.failing, frozen("f", test_of(inputs={"x": 0}, expected_output=1)))
    assert result.error.splitlines() == list(words.traceback)
    assert result.outcome is Outcome.ERROR


async def test_what_is_printed_is_kept_and_bounded(runner: TestRunner, words: Words) -> None:
    for expected in (None, 1):
        result = await run_one(runner, words.prints, expected_output=expected)
        assert result.passed == (expected is None)
        assert result.stdout == "x" * 10_000


@pytest.mark.slow
async def test_no_test_sees_what_another_did(runner: TestRunner, words: Words) -> None:
    for source in words.alone:
        tests = [test_of(f"{number}", inputs={"x": number}, expected_output=1) for number in range(3)]
        results = await runner.run({"f": source}, frozen("f", *tests))
        assert [each.passed for each in results] == [True] * 3, source


async def test_a_function_that_cannot_be_loaded_harms_no_other(runner: TestRunner, words: Words) -> None:
    tests = freeze({name: [test_of(expected_output=1)] for name in "fghi"})
    results = await runner.run({**words.unloadable, "g": words.one.format(name="g")}, tests)
    assert [each.passed for each in results] == [False, True, False, False]


async def test_it_needs_no_wall_and_no_preloaded_harness(words: Words) -> None:
    tests = [test_of(f"{n}", inputs={"x": n}, expected_output=n + n % 2) for n in range(30)]
    async with Sandbox("none") as sandbox:
        results = await TestRunner(sandbox, language=words.language).run({"f": words.same}, frozen("f", *tests))
    assert [each.passed for each in results] == [True, False] * 15


def test_code_is_checked_before_it_runs(words: Words) -> None:
    language = words.language

    def said(source: str, **more: Any) -> str:
        return "\n".join(map(str, language.check(source, spec("f", ["x"], ["dep"]), **more)))

    assert said(words.same) == ""
    assert "does not define the function 'f'" in said(words.twice)
    assert "the parameter 'x' of f(x) is missing" in said(words.one.format(name="f"))
    assert "'dep' is another function" in said(f"{words.same}\n{words.one.format(name='dep')}")
    taken = f"{words.same}\n{words.one.format(name='other')}"
    assert "'other' is already defined by the code of 'g'" in said(taken, taken={"other": "g"})
    assert language.names_defined(taken) == ["f", "other"]


def test_names_of_a_language_are_told_from_others(words: Words) -> None:
    assert words.language.name_problem("median") is None
    assert words.language.name_problem("class")
    assert words.language.name_problem("2a")
    assert words.language.tests_file("roman").endswith(words.language.suffix)
    assert words.language.as_declared([1], "Any") == [1]
    assert words.language.without_repeats(words.same, {}) == (words.same, [])
