"""JavaScript whose answers depend on earlier calls or on the process."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from coderoom.generation import JavaScriptLanguage, TestResult, TestRunner, freeze, make_sandbox
from coderoom.sandbox import Sandbox

from .examples import frozen, test_of

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")


async def run(sandbox: Sandbox, source: str, strict: bool = False, count: int = 3) -> list[TestResult]:
    tests = [test_of(f"{number}", inputs={"x": number}, expected_output=number) for number in range(count)]
    runner = TestRunner(sandbox, language=JavaScriptLanguage(), strict=strict)
    return await runner.run({"f": source}, frozen("f", *tests))


@needs_node
@pytest.mark.parametrize(
    "source",
    [
        "let last\nfunction f(x) { const again = x === last; last = x; return again ? -1 : x }",
        "function f(x) { Math.calls = (Math.calls ?? 0) + 1; return x + Math.calls - 1 }",
    ],
)
@pytest.mark.slow
async def test_code_that_keeps_state_is_noticed(node_sandbox: Sandbox, source: str) -> None:
    lenient = await run(node_sandbox, source)
    assert [each.passed for each in lenient] == [True] * 3
    assert "the code keeps state" in lenient[2].warning


@needs_node
@pytest.mark.slow
async def test_code_that_keeps_state_fails_where_it_may_not(node_sandbox: Sandbox) -> None:
    late = await run(node_sandbox, "let calls = 0\nfunction f(x) { return calls++ < 7 ? x : -1 }", strict=True)
    assert [each.passed for each in late] == [False] * 3


@needs_node
@pytest.mark.slow
async def test_a_value_that_a_later_call_changes_is_a_warning(node_sandbox: Sandbox) -> None:
    tests = [test_of(f"{number}", inputs={"x": number}, expected_output=[number]) for number in range(3)]
    sources = {"f": "const all = []\nfunction f(x) { all[0] = x; return all }", "g": "function g(x) { return [x] }"}
    runner = TestRunner(node_sandbox, language=JavaScriptLanguage())
    results = await runner.run(sources, freeze(dict.fromkeys(sources, tests)))
    assert [each.passed for each in results] == [True] * 6
    assert ["the returned value changes later" in each.warning for each in results] == [True, True, False] + [False] * 3


@needs_node
@pytest.mark.slow
async def test_code_that_starts_slowly_is_called_as_often_as_other_code(node_sandbox: Sandbox) -> None:
    source = """\
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600)  // As on a busy machine.
let calls = 0
function f(x) { return calls++ < 40 ? x : -1 }
"""
    assert [each.passed for each in await run(node_sandbox, source, strict=True, count=1)] == [False]


CONDITIONS = [
    "Math.random() < 0.5",
    "Math.random() < 0.8",
    "Error.stackTraceLimit > 10",
    "process.pid % 2",
    "Math.floor(process.memoryUsage().rss / 4096) % 2",
    "Math.floor(performance.now() * 1000) % 2",
    "new Error().stack.includes('harness')",
    "process.argv.length < 2",
]


@needs_node
@pytest.mark.slow
async def test_code_that_answers_differently_in_another_process_fails(node_sandbox: Sandbox) -> None:
    sources = {f"f{n}": f"function f{n}(x) {{ return {each} ? x : x + 1 }}" for n, each in enumerate(CONDITIONS)}
    tests = [test_of(f"{number}", inputs={"x": number}, expected_output=number) for number in range(3)]
    runner = TestRunner(node_sandbox, language=JavaScriptLanguage())
    results = await runner.run(sources, freeze(dict.fromkeys(sources, tests)))
    failed = {each.function for each in results if not each.passed}
    assert [CONDITIONS[n] for n, name in enumerate(sources) if name not in failed] == []


@needs_node
async def test_a_rejection_that_nobody_handles_fails(node_sandbox: Sandbox) -> None:
    source = "async function save(x) { throw new Error('it is full') }\nfunction f(x) { save(x); return x }"
    results = await run(node_sandbox, source)
    assert [each.passed for each in results] == [False] * 3
    assert "it is full" in results[0].why


@needs_node
@pytest.mark.slow
async def test_honest_code_gets_no_warning(node_sandbox: Sandbox) -> None:
    source = """
import fs from 'node:fs'
const CACHE = new Map()
async function f(x) {
  fs.writeFileSync('here', '', { flag: 'wx' })
  if (!CACHE.has(x)) CACHE.set(x, x)
  return CACHE.get(x)
}
"""
    results = await run(node_sandbox, source)
    assert [(each.passed, each.warning) for each in results] == [(True, "")] * 3, results


# Each call puts it off, so that it comes after the last one, however long they take.
AFTER_ALL = "0; clearTimeout(f.timer); f.timer = setTimeout(() => "
LEFT = [
    ("Math.max = () => 0", "another Math.max instead of the one of JavaScript"),
    pytest.param(
        "fs.readFileSync = () => ''", "another fs.readFileSync instead of the one of JavaScript", marks=pytest.mark.slow
    ),
    pytest.param("Object.prototype.y = 1", "a new Object.prototype.y", marks=pytest.mark.slow),
    pytest.param("globalThis.y = 1", "a new y", marks=pytest.mark.slow),
    pytest.param("process.exitCode = 3", "an exit code of its own", marks=pytest.mark.slow),
    pytest.param("setInterval(() => {}, 1000)", "a timer", marks=pytest.mark.slow),
    pytest.param(f"{AFTER_ALL}process.reallyExit(0), 120)", "what ends or blocks its process", marks=pytest.mark.slow),
    pytest.param(
        f"{AFTER_ALL}{{ throw new Error('late') }}, 60)", "an error outside of the calls", marks=pytest.mark.slow
    ),
    pytest.param(
        "cp.spawn('sleep', ['60'], { detached: true, stdio: 'ignore' }).unref()", "a process", marks=pytest.mark.slow
    ),
]


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize(("does", "left"), LEFT)
async def test_what_a_program_leaves_behind_is_a_warning(node_sandbox: Sandbox, does: str, left: str) -> None:
    imports = "import fs from 'node:fs'\nimport cp from 'node:child_process'\nlet done = false\n"
    results = await run(node_sandbox, f"{imports}function f(x) {{ if (!done) {does}; done = true; return x }}", count=1)
    assert [each.passed for each in results] == [True]
    assert results[0].warning == f"after the tests, the program leaves {left}"


@pytest.mark.slow
@needs_node
async def test_what_a_program_leaves_behind_fails_where_it_may_not(node_sandbox: Sandbox) -> None:
    results = await run(node_sandbox, "function f(x) { Math.max = () => 0; return x }", strict=True)
    assert [each.passed for each in results] == [True, True, False]


@needs_node
@pytest.mark.slow
async def test_what_ends_by_itself_is_not_left_behind(node_sandbox: Sandbox) -> None:
    source = """
import fs, { promises } from 'node:fs'
import { execFileSync } from 'node:child_process'
const WORDS = ['a', 'b'], TABLE = new Map([[1, 'one']])
class Node { static count = 0; get value() { return 1 } *[Symbol.iterator]() { yield this.value } }
async function f(x) {
  Error.stackTraceLimit = 20
  process.env.COLOUR = 'red'
  setTimeout(() => { Node.count = 0 }, 1)
  AbortSignal.timeout(60_000)
  await new Promise((done) => setTimeout(done, 1))
  await Promise.all([promises.writeFile('here', 'a'), crypto.subtle.digest('SHA-256', new Uint8Array(2))])
  console.log(new Intl.NumberFormat('de').format(x), new Date().toLocaleString('en'), /(?<a>a)/.exec('a').groups)
  execFileSync('true')
  new Blob(['a']), new TextEncoder().encode('a'), structuredClone(WORDS), new BroadcastChannel('a').close()
  for (const each of new Node()) TABLE.get(each), WORDS.map(String), fs.readFileSync('here')
  return x
}
"""
    results = await run(node_sandbox, source)
    assert [(each.passed, each.warning) for each in results] == [(True, "")] * 3, results


@needs_node
@pytest.mark.slow
async def test_a_large_answer_is_read_whole() -> None:
    test = test_of(inputs={"x": 100_000}, expected_output="\1" * 100_000)
    async with make_sandbox(language="javascript") as sandbox:
        runner = TestRunner(sandbox, language=JavaScriptLanguage())
        (result,) = await runner.run({"f": "function f(x) { return '\\x01'.repeat(x) }"}, frozen("f", test))
    assert (result.passed, result.warning) == (True, ""), result.why


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['tree_sitter'] = None\n"
        "from coderoom.errors import MissingDependencyError\n"
        "from coderoom.generation import JavaScriptLanguage, PythonLanguage\n"
        "PythonLanguage()\n"
        "try:\n    JavaScriptLanguage()\nexcept MissingDependencyError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'coderoom[javascript]'" in done.stdout
