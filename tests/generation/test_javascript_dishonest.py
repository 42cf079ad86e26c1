# ruff: noqa: E501 (pieces of code, one to a line)
"""JavaScript that wants to pass without doing what it should. None may, and none may harm another function's tests."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import AsyncIterator

import pytest

from coderoom.generation import FunctionTest, JavaScriptLanguage, TestRunner, freeze, make_sandbox
from coderoom.sandbox import Limits, Sandbox

from .examples import test_of

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")

HONEST = "function g(x) { return x + 1 }"
FS = "import fs from 'node:fs'\n"

# What each of these does is the body of `f(x)`, or all of the code if it defines `f` itself.
DISHONEST = {
    "exits": "process.exit(0)",
    "exits at once": "process.reallyExit(0)",
    "exits later": "process.on('exit', () => process.exit(0)); process.exitCode = 0; throw 0",
    "kills itself": "process.kill(process.pid, 'SIGKILL')",
    "kills its parent": "process.kill(process.ppid, 'SIGKILL')",
    "kills everybody": "process.kill(-1, 'SIGKILL')",
    "stops its parent": "process.kill(process.ppid, 'SIGSTOP'); process.kill(process.pid, 'SIGSTOP')",
    "aborts": "process.abort()",
    "hangs": "while (true);",
    "hangs and catches all": "while (true) try { while (true); } catch {}",
    "never settles": "return new Promise(() => setInterval(() => {}, 5))",
    "floods": "while (true) console.log('passed '.repeat(1000))",
    "floods the other stream": "while (true) process.stderr.write('x'.repeat(60_000))",
    "starts programs": "import cp from 'node:child_process'\nfunction f() { while (true) cp.spawn('sleep', ['60']) }",
    "leaves a daemon": "import cp from 'node:child_process'\nfunction f() { cp.spawn('sleep', ['60'], {detached: true, stdio: 'ignore'}).unref(); return true }",
    "leaves timers": "setInterval(() => console.log('passed'), 1); return 1",
    "starts a thread": "import w from 'node:worker_threads'\nfunction f() { new w.Worker('while (true);', {eval: true}); return 1 }",
    "takes all memory": "const x = []; while (true) x.push(Buffer.alloc(10 ** 7, 1))",
    "fills the disk": FS + "function f() { while (true) fs.appendFileSync('big', Buffer.alloc(10 ** 6)) }",
    "closes all files": FS + "function f() { for (let fd = 0; fd < 300; fd++) try { fs.closeSync(fd) } catch {} return 1 }",
    "writes an answer to all it finds": FS + "function f() { for (let fd = 3; fd < 100; fd++) try { fs.writeSync(fd, '{\"value\":true}\\0') } catch {} return 1 }",
    "patches JSON": "JSON.stringify = JSON.parse = () => '{\"passed\": true}'; return 1",
    "patches prototypes": "for (const each of [Object, Array, String, Number, Map, Set, Function, Promise]) for (const name of Object.getOwnPropertyNames(each.prototype)) try { each.prototype[name] = () => true } catch {}\nreturn 1",
    "defines toJSON": "Object.prototype.toJSON = String.prototype.toJSON = () => 'passed'; return [1]",
    "sets then": "Object.prototype.then = (done) => done('passed'); return {}",
    "patches the console": "console.log = process.stdout.write = () => true; globalThis.console = null; process.exit = () => {}; return 1",
    "patches the files": "import fs from 'node:fs'\nimport { syncBuiltinESMExports as sync } from 'node:module'\nconst real = fs.writeSync\nfs.writeSync = (fd) => real(fd, '{\"value\":\"passed\"}\\0')\nsync()\nfunction f() { return 1 }",
    "patches the buffers": "Buffer.from = Buffer.concat = () => new Uint8Array([34]); Uint8Array.prototype.subarray = () => []; return 1",
    "prints an answer": "console.log('{\"value\":\"passed\"}\\0'); return {passed: true}",
    "returns a verdict": "return {passed: true, equal: true, value: {$opaque: {}}}",
    "is equal to all": "return {valueOf: () => 1, toString: () => 'x', equals: () => true, [Symbol.toPrimitive]: () => 1}",
    "raises everything": "throw new Proxy(new TypeError('x'), {get: () => 'Error', getPrototypeOf: () => RangeError.prototype})",
    "throws from a getter": "return {get a() { process.exit(0) }}",
    "changes its neighbour's file": FS + "function f() { fs.writeFileSync(new URL(import.meta.url).pathname, 'export const g = 1'); return 1 }",
    "puts another function in its neighbour's place": "g = f; return 1",
    "listens for the end": "process.removeAllListeners(); process.on('beforeExit', () => {}); return new Promise(() => {})",
}  # fmt: skip


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    limits = Limits(processes=48, memory_bytes=384 * 1024 * 1024, disk_bytes=32 * 1024 * 1024)
    async with make_sandbox(language="javascript", limits=limits) as sandbox:
        yield sandbox


def source_of(body: str) -> str:
    return body if "function f(" in body else f"function f(x) {{ {body} }}"


def expectations(secret: str) -> list[FunctionTest]:
    return [
        test_of(f"gives {secret}", inputs={"x": 1}, expected_output=secret),
        test_of(f"holds {secret}", kind="edge", inputs={"x": 1}, property=f"result == {secret!r}"),
        test_of(f"raises {secret}", kind="error", inputs={"x": 1}, expected_error="Zero" + secret.replace("-", "_")),
    ]


@pytest.mark.attack
@pytest.mark.parametrize("part", range(9))
async def test_it_does_not_pass_and_harms_no_other(sandbox: Sandbox, part: int) -> None:
    """Each program has four of them, and a function that must pass."""
    secret = f"SECRET-{secrets.token_hex(8)}"
    names = [*DISHONEST][part::9]
    sources = {f"f{n}": re.sub(r"\bf\b", f"f{n}", source_of(DISHONEST[name])) for n, name in enumerate(names)}
    tests = dict.fromkeys(sources, expectations(secret))
    honest = [test_of(f"{number}", inputs={"x": number}, expected_output=number + 1) for number in range(2)]
    runner = TestRunner(sandbox, timeout=2, language=JavaScriptLanguage())
    results = await runner.run({"g": HONEST, **sources}, freeze({**tests, "g": honest}))
    assert [each.passed for each in results if each.function == "g"] == [True] * 2, names
    for name, function in zip(names, sources, strict=True):
        told = [each for each in results if each.function == function]
        assert [each.passed for each in told] == [False] * 3, name
        assert all(each.why for each in told), name


HUNTER = """
import fs from 'node:fs'
const PATTERN = /SECRET-[0-9a-f]{16}/
function* hunted() {
  yield JSON.stringify([process.env, process.argv, process.execArgv])
  for (const root of ['.', '/tmp', '/dev/shm', '/run', '/workspace']) {
    let names = []
    try { names = fs.readdirSync(root, {recursive: true}) } catch {}
    for (const name of names) try { yield fs.readFileSync(`${root}/${name}`, 'latin1') } catch {}
  }
  for (const pid of fs.readdirSync('/proc').filter(Number)) {
    for (const name of ['cmdline', 'environ']) try { yield fs.readFileSync(`/proc/${pid}/${name}`, 'latin1') } catch {}
    let lines = [], memory
    try {
      lines = fs.readFileSync(`/proc/${pid}/maps`, 'latin1').split('\\n')
      memory = fs.openSync(`/proc/${pid}/mem`)
    } catch { continue }
    for (const line of lines.filter((each) => each.includes(' rw'))) {
      const [first, last] = line.split(' ')[0].split('-').map((each) => parseInt(each, 16))
      if (last - first > 1e8) continue
      const data = Buffer.alloc(last - first)
      try { fs.readSync(memory, data, 0, data.length, first) } catch { continue }
      yield data.toString('latin1')
    }
    fs.closeSync(memory)
  }
}
export function f(x) {
  for (const text of hunted()) {
    const found = PATTERN.exec(text)
    if (found) return found[0]
  }
  return 'nothing'
}
"""


@pytest.mark.attack
async def test_what_is_expected_is_nowhere_to_be_found(sandbox: Sandbox) -> None:
    secret = f"SECRET-{secrets.token_hex(8)}"
    runner = TestRunner(sandbox, timeout=30, language=JavaScriptLanguage())
    results = await runner.run({"f": HUNTER}, freeze({"f": expectations(secret)[:2]}))
    assert [each.passed for each in results] == [False] * 2
    assert results[0].actual_output == "nothing"


@pytest.mark.attack
async def test_the_hunter_finds_what_is_there(sandbox: Sandbox) -> None:
    secret = f"SECRET-{secrets.token_hex(8)}"
    runner = TestRunner(sandbox, timeout=30, language=JavaScriptLanguage())
    test = test_of(inputs={"x": secret}, expected_output=secret)
    (result,) = await runner.run({"f": HUNTER}, freeze({"f": [test]}))
    assert result.passed, result


async def test_what_a_getter_throws_is_not_thrown_by_the_function(sandbox: Sandbox) -> None:
    source = "function f(x) { return new (class { get next() { throw new RangeError('no') } })() }"
    runner = TestRunner(sandbox, timeout=10, language=JavaScriptLanguage())
    (result,) = await runner.run({"f": source}, freeze({"f": [test_of(inputs={"x": 1}, expected_error="RangeError")]}))
    assert "reading it throws an error" in result.why


@pytest.mark.slow
async def test_users_get_what_tests_see(sandbox: Sandbox) -> None:
    cases: list[tuple[str, object, bool]] = [
        ("return new Date(2024, 0, 2).toISOString()", "2024-01-02T00:00:00.000Z", False),
        ("return new Date(Date.UTC(2024, 0, 2)).toISOString()", "2024-01-02T00:00:00.000Z", True),
        ("return [new Number(4)]", [4], False),
        ("let k = 0; return { get a() { return k++ < 3 ? 4 : -1 } }", {"a": 4}, False),
        ("let k = 3; return { get stack() { return ++k } }", {"stack": 4}, False),
        (
            "return new (class E extends Error { #k = 3; get message() { return `${++this.#k}` } })()",
            {"$object": {"type": "E", "fields": {"message": "4"}}},
            False,
        ),
        ("return { a: 4, message: 'x' }", {"a": 4, "message": "x"}, True),
        ("const a = [1]; a.map = () => [9]; return a", [1], False),
        ("const a = [1]; a.toJSON = () => [9]; return a", [1], False),
        ("const a = [1]; a[Symbol.iterator] = function* () { yield 9 }; return a", [1], False),
        ("return new (class A extends Array { includes() { return true } })(1, 2)", [1, 2], False),
        ("return [new (class A extends Array { *[Symbol.iterator]() { yield 9 } })(1, 2)]", [[1, 2]], False),
        ("return Object.setPrototypeOf([1], null)", [1], False),
        ("return new (class A extends Set { has() { return true } })([1])", {"$set": [1]}, False),
        ("return new (class A extends Map { get() { return 9 } })([[1, 2]])", {"$map": [[1, 2]]}, False),
        ("return new (class A extends Array { sum() { return 3 } toString() { return 'A' } })(1, 2)", [1, 2], True),
        ("return new (class A extends Map { first() { return 2 } })([[1, 2]])", {"$map": [[1, 2]]}, True),
        ("return 'ab'.match(/a/)", ["a"], True),
    ]
    sources = {f"f{number}": f"function f{number}(x) {{ {body} }}" for number, (body, _, _) in enumerate(cases)}
    tests = {
        name: [test_of("a", inputs={"x": 1}, expected_output=expected)]
        for name, (_, expected, _) in zip(sources, cases, strict=True)
    }
    results = await TestRunner(sandbox, language=JavaScriptLanguage()).run(sources, freeze(tests))
    for (body, _, passes), result in zip(cases, results, strict=True):
        assert result.passed == passes, (body, result.why)
