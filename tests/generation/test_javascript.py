# ruff: noqa: E501 (pieces of code, one to a line)
from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.generation import FunctionTest, JavaScriptLanguage, TestResult, TestRunner, freeze
from coderoom.judge.harness import run_inside
from coderoom.sandbox import Limits, Sandbox

from .examples import frozen, spec, test_of

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")
LANGUAGE = JavaScriptLanguage()


@pytest.fixture
def runner(node_runner: TestRunner) -> TestRunner:
    return node_runner


async def run_one(runner: TestRunner, source: str, **fields: Any) -> TestResult:
    (result,) = await runner.run({"f": source}, frozen("f", test_of(**fields)))
    return result


SAME = "function f(x) { return x }"
VALUES: list[Any] = [
    None, True, 0, -7, 1.5, 2**53, 2**53 + 1, -(2**90), 1e300, "", "text \u20ac \U0001f600 \u2028", [], [1, [2, "3"]],
    {"a": {"b": None}, "__proto__": 1, "constructor": 2, "toString": 3},
    {"$tuple": [1, 2]}, {"$set": [1, "a"]}, {"$set": [{"$tuple": [1, 2]}]}, {"$frozenset": [1]},
    {"$dict": [[1, "one"], [{"$tuple": [1, 2]}, []]]}, {"$dict": [["$x", 1]]}, {"$bytes": "aGk="}, {"$bytearray": "aGk="},
    {"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}, {"$int": hex(10**5_000)}, {"$int": hex(-(10**5_000))},
    {"$datetime": "2024-02-29T12:30:00"}, {"$datetime": "2024-02-29T12:30:00.250000+02:00"}, {"$date": "2024-02-29"},
    {"$str": "7aCA"}, {"$object": {"type": "Point", "fields": {"x": 1, "y": [2]}}},
    {"$namedtuple": {"type": "Point", "fields": {"x": 1}}},
    {"$enum": {"type": "Color", "name": "RED", "value": 1, "mixed": True}}, -0.0, 1e-300, 12345678901234567890.0,
]  # fmt: skip


RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("const f = (x, y = 2) => x * y", {"inputs": {"x": 2}, "expected_output": 4.0}),
    ("export default async function f(y, x) { await null; return x - y }", {"inputs": {"x": 3, "y": 1}, "expected_output": 2}),
    ("export const f = async x => x;\nexport { f as default };", {"inputs": {"x": 1}, "expected_output": 1}),
    ("function f(x) { return new Promise(done => setTimeout(() => done(x), 20)) }", {"inputs": {"x": 1}, "expected_output": 1}),
    ("function f() {}", {"expected_output": None}),
    ("function f(a, ...rest) { return rest }", {"inputs": {"a": 1, "rest": [2, 3]}, "expected_output": [2, 3]}),
    ("import fs, { readFileSync } from 'fs'\nfunction f() { return fs.readFileSync === readFileSync }", {"expected_output": True}),
    ("function f(x) { return new Map(Object.entries(x)) }", {"inputs": {"x": {"a": 1}}, "expected_output": {"$map": [["a", 1]]}}),
    ("function f(x) { return [x, new Map([[1, x]])] }", {"inputs": {"x": {"$bigint": "5"}}, "expected_output": [{"$bigint": "5"}, {"$dict": [[1, {"$bigint": "5"}]]}]}),
    ("function f() { return [2n ** 60n, 2 ** 60] }", {"expected_output": [2**60, 2**60]}),
    ("class P { #a = 1; constructor() { this.x = 1 } }\nfunction f() { return new P }", {"expected_output": {"$object": {"type": "P", "fields": {"x": 1}}}}),
    ("function f() { return [new Float64Array([1.5]), new Uint8Array([104, 105])] }", {"expected_output": [[1.5], {"$bytes": "aGk="}]}),
    ("function f(n) { let x = 1n; for (let i = 2n; i <= n; i++) x *= i; return x }", {"inputs": {"n": 25}, "expected_output": 15511210043330985984000000}),
    ("function f() { return 0.1 + 0.2 }", {"expected_output": 0.3}),
    ("function f() { null.x }", {"expected_error": "TypeError"}),
    ("function f() { null.x }", {"expected_error": "TypeError", "error_message": "CANNOT READ"}),
    ("class Own extends Error {}\nfunction f() { throw new Own('no') }", {"expected_error": "Error", "error_message": "NO"}),
    ("class Missing extends RangeError {}\nfunction f() { throw new Missing('no') }", {"expected_error": "Missing"}),
    ("class Lost extends RangeError {}\nfunction f() { throw new Lost('no') }", {"expected_error": "RangeError"}),
    ("async function f() { throw Object.assign(new Error('no'), {name: 'OddError'}) }", {"expected_error": "OddError"}),
    ("function f(x) { return x.reverse() }", {"inputs": {"x": [1, 2]}, "property": "result[0] == x[-1] and len(x) == 2"}),
    ("function f() { return new Map([[[1, 2], new Set([[3]])]]) }", {"property": "result[(1, 2)] == {(3,)}"}),
    ("class Q { constructor(x) { this.x = x } twice() { return 2 * this.x } }\nfunction f(p) { return p }", {"inputs": {"p": {"$name": "p"}}, "setup": [{"call": "Q", "args": [2], "name": "p"}, {"assign": "p.x", "value": 3}], "then": [{"call": "result.twice"}], "expected_output": 6}),
    ("import fs from 'fs'\nfunction f(x) { return fs.readFileSync(x, 'utf8') }", {"inputs": {"x": "a/b"}, "setup": [{"file": "a/b", "text": "c"}], "expected_output": "c"}),
    ("function f(n) { return (x) => x + n }", {"inputs": {"n": 1}, "then": [{"call": "result", "args": [4]}], "expected_output": 5}),
    ("function f() { setInterval(() => {}, 5); return 1 }", {"expected_output": 1}),
    ("function f(x) { const re = /[/`'\"]/g; return `${x.replace(re, `${'}'}`)}` }", {"inputs": {"x": "a`b"}, "expected_output": "a}b"}),
]  # fmt: skip
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("function f(x) { return [x, x + 1] }", {"inputs": {"x": 1}, "expected_output": [1, 3]}, "result[1]: expected 3, got 2"),
    ("function f() { let x = 1; for (let i = 2; i <= 25; i++) x *= i; return x }", {"expected_output": 15511210043330985984000001}, "expected"),
    ("function f() { return [5n] }", {"expected_output": [5]}, "result[0]: expected 5, got 5n"),
    ("function f() { return 5 }", {"expected_output": {"$bigint": "5"}}, "expected 5n, got 5"),
    ("function f() { return 2 ** 60 }", {"expected_output": {"$bigint": str(2**60)}}, f"expected {2**60}n, got {2**60}"),
    ("function f() { return new Map([['a', 1]]) }", {"expected_output": {"a": 1}}, "expected {'a': 1}, got Map{'a': 1}"),
    ("function f() { return { a: 1 } }", {"expected_output": {"$map": [["a", 1]]}}, "expected Map{'a': 1}, got {'a': 1}"),
    ("function f() { return new Set([1]) }", {"expected_output": [1]}, "of the type set instead of list"),
    ("function f() { return f }", {"expected_output": [1]}, "functions and classes have no value"),
    ("function f() { return Symbol('x') }", {"expected_output": [1]}, "symbols have no value"),
    ("function f() { const x = {}; x.x = x; return x }", {"expected_output": {}}, "it contains itself"),
    ("function f() { let x = []; for (let i = 0; i < 90; i++) x = [x]; return x }", {"expected_output": []}, "levels deep"),
    ("function* f() { yield 1 }", {"expected_output": [1]}, "it can be iterated only once"),
    ("function f() { return [1].values() }", {"expected_output": [1]}, "it can be iterated only once"),
    ("function f() { return new URL('http://x/') }", {"expected_output": {"$object": {"type": "URL", "fields": {}}}}, "no tagged form"),
    ("function f() { return new Proxy({}, {}) }", {"expected_output": {}}, "may change with each access"),
    ("function f() { return [Promise.resolve(1)] }", {"expected_output": [1]}, "it was not awaited"),
    ("function f() { return new Date(NaN) }", {"expected_output": None}, "invalid date"),
    ("function f() { return 'x'.repeat(10 ** 6) }", {"expected_output": 1}, "more than 400000 characters"),
    ("function f() { return new Array(10 ** 6).fill(1) }", {"expected_output": 1}, "more than 50000 items"),
    ("function f() { return 1 }", {"expected_error": "TypeError"}, "expected TypeError, but it returned 1"),
    ("function f() { throw new Error('TypeError') }", {"expected_error": "TypeError"}, "but it raised Error: TypeError"),
    ("function f() { null.x }", {"expected_error": "Error"}, "expected Error, but it raised TypeError: Cannot read"),
    ("function f() { throw 'text' }", {"expected_error": "Error"}, "but it raised string: text"),
    ("function f() { throw null }", {"expected_error": "Error"}, "but it raised null: null"),
    ("function f() { throw {message: 'm', name: 'Error'} }", {"expected_error": "Error"}, "but it raised"),
    ("function f() { return new Promise(() => {}) }", {"expected_error": "Error"}, "was not settled"),
    ("function f() { setTimeout(() => { throw new Error('late') }); return new Promise(() => {}) }", {"expected_error": "Error"}, "outside of the call: late"),
    ("function f() { throw new Error('no') }", {"property": "result is None"}, "but it raised Error: no"),
    ("function f() { return 1 }", {"property": "result == 2"}, "does not hold"),
    ("function f(a) { return 1 }", {"inputs": {"x": 1}, "expected_error": "TypeError"}, "f has no parameter x"),
    ("function g() { return 1 }", {"expected_error": "ReferenceError"}, "the function f is not defined"),
    ("function f(x) { return x }", {"inputs": {"x": {"$decimal": "1"}}, "expected_output": 1}, "x: JavaScript has no value for $decimal"),
]  # fmt: skip


async def run_all(runner: TestRunner, cases: Sequence[tuple[str, dict[str, Any]]]) -> list[TestResult]:
    """Run cases in one program: `f` is called `f0`, `f1` and so on there."""
    sources = {f"f{number}": re.sub(r"\bf\b", f"f{number}", source) for number, (source, _) in enumerate(cases)}
    tests = {name: [test_of(**fields)] for name, (_, fields) in zip(sources, cases, strict=True)}
    found = {each.function: each for each in await runner.run(sources, freeze(tests))}
    return [found[name] for name in sources]


@needs_node
class TestVerdicts:
    @pytest.mark.slow
    async def test_values_go_there_and_come_back(self, runner: TestRunner) -> None:
        tests = [test_of(f"{n}", inputs={"x": data}, expected_output=data) for n, data in enumerate(VALUES)]
        results = await runner.run({"f": SAME}, frozen("f", *tests))
        assert [(each.test, each.why) for each in results if not each.passed] == []

    @pytest.mark.slow
    async def test_other_values_are_told_apart(self, runner: TestRunner) -> None:
        pairs = [
            (1, True), (0, None), ("1", 1), ([], {}), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (2**53, 2**53 + 1),
            ({"$set": [1]}, [1]), ({"$bytes": "aGk="}, "hi"), ({"$datetime": "2024-02-29T12:30:00"}, "2024-02-29"),
            ({"$object": {"type": "P", "fields": {"x": 1}}}, {"x": 1}), ({"$float": "nan"}, 0), (10**30, 10**30 + 1),
            ({"$dict": [[1, 2]]}, {"1": 2}), ("ab", ["a", "b"]), (1.5, 1.5000001),
        ]  # fmt: skip
        tests = [test_of(f"{n}", inputs={"x": one}, expected_output=two) for n, (one, two) in enumerate(pairs)]
        results = await runner.run({"f": SAME}, frozen("f", *tests))
        assert [each.test for each in results if each.passed] == []

    @pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
    async def test_what_is_right_passes(self, runner: TestRunner, step: int) -> None:
        results = await run_all(runner, RIGHT[::step])
        assert [each for each in results if not each.passed] == []

    @pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
    async def test_what_is_wrong_fails_and_says_why(self, runner: TestRunner, step: int) -> None:
        cases = WRONG[::step]
        results = await run_all(runner, [(source, fields) for source, fields, _ in cases])
        for number, ((_, _, why), result) in enumerate(zip(cases, results, strict=True)):
            assert not result.passed
            assert re.sub(r"\bf\b", f"f{number}", why) in result.why, result

    @pytest.mark.parametrize(
        ("source", "fields", "why"),
        [
            ("function f(", {"expected_output": 1}, "could not be loaded: SyntaxError"),
            pytest.param("throw new Error('at once')\nfunction f() {}", {"expected_output": 1}, "could not be loaded: Error: at once", marks=pytest.mark.slow),
            pytest.param("import x from 'lodash'\nfunction f() {}", {"expected_output": 1}, "could not be loaded: Error: Cannot find package 'lodash'", marks=pytest.mark.slow),
            ("process.exit(0)\nfunction f() {}", {"expected_output": None}, "ended its own process while it was loaded"),
            pytest.param("function f() { while (true); }", {"expected_output": None}, "The code was stopped after 5 seconds.", marks=pytest.mark.slow),
            pytest.param("function f() { const x = []; while (true) x.push(new Array(1000).fill(x.length)) }", {"expected_output": None}, "more memory than", marks=pytest.mark.slow),
        ],
    )  # fmt: skip
    async def test_what_ends_a_program_fails_and_says_why(
        self, runner: TestRunner, source: str, fields: dict[str, Any], why: str
    ) -> None:
        result = await run_one(runner, source, **fields)
        assert not result.passed
        assert why in result.why, result

    async def test_an_error_of_what_cannot_be_loaded_has_its_line(self, runner: TestRunner) -> None:
        result = await run_one(runner, "function f() {\n  let x = 1\n  let x = 2\n}", expected_output=1)
        assert "line 3 of f: let x = 2" in result.error


@needs_node
class TestStates:
    @pytest.mark.slow
    async def test_a_function_that_cannot_be_loaded_harms_no_other(self, runner: TestRunner) -> None:
        tests = freeze({name: [test_of(expected_output=1)] for name in "efghij"})
        sources = {
            "e": "function e() { return 1 } /*",
            "f": "process.exit(1)",
            "g": "import fs from 'node:fs'\nfunction g() { return 1 }",
            "h": "function h( {",
            "i": "process.kill(process.pid, 'SIGKILL')",
            "j": "import fs from 'fs'\nfunction j() { return fs ? g() : 2 }",
        }
        results = await runner.run(sources, tests)
        assert [each.passed for each in results] == [False, False, True, False, False, True]

    @pytest.mark.slow
    async def test_little_memory_is_enough_without_a_compiler(self) -> None:
        async with Sandbox(limits=Limits(processes=32, memory_bytes=128 * 1024 * 1024)) as sandbox:
            result = await run_one(TestRunner(sandbox, language=LANGUAGE), SAME, inputs={"x": 1}, expected_output=1)
        assert result.passed, result


class Elsewhere(JavaScriptLanguage):
    """Where programs are looked for in vain."""

    def load(self, sources: Collection[str]) -> str:
        return f"import os\nos.environ['PATH'] = '/nowhere'\n{super().load(sources)}"


async def test_where_there_is_no_node_it_is_said(sandbox: Sandbox) -> None:
    runner = TestRunner(sandbox, language=Elsewhere())
    with pytest.raises(MissingDependencyError, match="it has no node; install it with apt-get install nodejs"):
        await run_one(runner, SAME, inputs={"x": 1}, expected_output=1)


class TestChecks:
    @pytest.mark.parametrize(
        "source",
        [
            "function f(x) { return x }",
            "export async function f(x, y = 2, ...z) {}",
            "const a = 1, f = (x) => x",
            "let f = async function (x) {}",
            "import fs from 'node:fs/promises'\n'use strict'\nclass A extends Error {}\nexport const f = x => x",
            "const T = new Map()\nT.max = 3\nfunction f(x) {\n  for (;;) {}\n}\nexport { f }",
            "// function f() {}\n/* const f */\nconst t = `${'function f() {'}`\nfunction f(x) { return /}/.test(x) }",
        ],
    )
    def test_what_is_right(self, source: str) -> None:
        assert LANGUAGE.check(source, spec("f"), allowed_imports=["fs"]) == []

    @pytest.mark.parametrize(
        ("source", "said"),
        [
            ("const g = 1", "does not define the function 'f'"),
            ("const f = 1", "does not define the function 'f'"),
            ("// function f(x) {}", "does not define"),
            ("function g() { function f(x) {} }", "does not define"),
            ("function f(x) {}\nfunction f(x) {}", "line 2: it defines 'f' twice"),
            ("function f() {}", "the parameter 'x' of f(x) is missing"),
            ("function f({x}) {}", "the parameter 'x' of f(x) is missing"),
            ("function f(x, y) {}", "'y' is not a parameter of f(x)"),
            ("function f(x) {}\nconsole.log(1)", "line 2: only definitions"),
            ("function f(x) {}\nfor (const a of []) {}", "line 2: only definitions"),
            ("function f(x) {}\nmodule.exports = f", "line 2: only definitions"),
            ("import http from 'node:http'\nfunction f(x) {}", "line 1: the module 'node:http' may not be imported"),
            ("function f(x) {\n return import('http') }", "line 2: the module 'http' may not"),
            ("function f(x) { return import(x) }", "must be a string literal"),
            ("const a = require('fs')\nfunction f(x) {}", "modules have no require()"),
            ("import a from './a.mjs'\nfunction f(x) {}", "imports of other files"),
            ("export * from 'fs'\nfunction f(x) {}", "exports from other modules"),
            ("function f(x) {}\nconst helper = 1", "line 2: 'helper' is already defined by the code of 'g'"),
            ("function f(x) {}\nfunction dep() {}", "line 2: 'dep' is another function"),
            ("import { dep } from 'fs'\nfunction f(x) {}", "'dep' is another function"),
            ("x" * 200_001, "the code has 200,001 characters"),
        ],
    )
    def test_what_is_wrong(self, source: str, said: str) -> None:
        found = LANGUAGE.check(source, spec("f", needs=["dep"]), taken={"helper": "g"}, allowed_imports=["fs"])
        assert any(said in str(each) for each in found), found

    def test_names_and_heads(self) -> None:
        source = "import a from 'b'\nconst {c, d: [e]} = {}, g = 1\nclass H {}\nexport function f() { const z = 1 }"
        assert LANGUAGE.names_defined(source) == ["c", "e", "g", "H", "f"]
        assert LANGUAGE.name_problem("f") is None
        assert LANGUAGE.name_problem("function")
        assert LANGUAGE.name_problem("a b")
        head = LANGUAGE.signature(spec("f", ["x", "y"], kind="list[int] */"))
        assert head.endswith("function f(x, y)")
        assert head.count("*/") == 1
        assert (LANGUAGE.name, LANGUAGE.suffix) == ("javascript", ".mjs")
        assert LANGUAGE.scan("eval(x)") == []

    @pytest.mark.parametrize(
        ("expected", "types", "base", "matches"),
        [
            ("TypeError", [], "TypeError", True),
            ("Error", [], "Error", True),
            ("Error", [], "TypeError", False),
            ("Error", ["Own"], "Error", True),
            ("Own", ["Other", "Own"], "Error", True),
            ("RangeError", ["RangeError"], "TypeError", False),
            ("ValueError", [], "TypeError", False),
            ("Error", [], "string", False),
            ("Own", ["Own"], "object", False),
        ],
    )
    def test_one_line_of_classes_counts(self, expected: str, types: list[str], base: str, matches: bool) -> None:
        assert LANGUAGE.error_matches(expected, types, base) is matches

    def test_nothing_in_a_job_is_code(self) -> None:
        nasty = '\'); import os; os._exit(3) #\n""" \\ {} `${1}` \u2028 \0'
        cell = run_inside("nodes", "alone", 1_000, LANGUAGE.job({"function": "f", "inputs": {"x": nasty}}))
        assert "\n" not in cell
        compile(cell, "cell", "eval")


WRITTEN = {
    "g": "import fs from 'fs'\nexport class Missing extends Error {}\nconst H = 1\nexport function g(x) { if (x === 'missing') throw new Missing('There is none'); return x }",
    "f": "import { readFileSync } from 'node:fs'\nimport fs from 'node:fs'\n\nexport default async function f(x, y = 1) { return g(x) }",
}  # fmt: skip
ERROR = {"$object": {"type": "E", "fields": {"message": "1"}}}
ERRORS = [
    test_of("of its own", inputs={"x": "missing"}, expected_error="Missing", error_message="there is"),
    test_of("above it", inputs={"x": "missing"}, expected_error="Error"),
    test_of("setup", inputs={"x": 1}, setup=[{"file": "a"}], expected_output=1),
    test_of("a property", inputs={"x": 1}, property="result == 1"),
]
RETURNED: list[tuple[str, Any, bool]] = [
    ("5n", 5, False),
    ("[5n]", [5], False),
    ("5n", 5.0, False),
    ("5n", {"$bigint": "5"}, True),
    ("5", {"$bigint": "5"}, False),
    ("[2n ** 60n, 2 ** 60]", [2**60, 2**60], True),
    ("2 ** 60", {"$bigint": str(2**60)}, False),
    ("new Map([['a', 1]])", {"a": 1}, False),
    ("new Map([['a', 1]])", {"$map": [["a", 1]]}, True),
    ("({ a: 1 })", {"$map": [["a", 1]]}, False),
    ("({ calls: 0, get a() { return ++this.calls } })", {"calls": 0, "a": 1}, False),
    ("((k) => ({ get stack() { return ++k } }))(0)", {"stack": 1}, False),
    ("new (class E extends Error { #k = 0; get message() { return `${++this.#k}` } })()", ERROR, False),
    ("new (class E extends Error {})('1')", ERROR, True),
    ("new (class D extends Date { getTime() { return 0 } })(5)", {"$date": "1970-01-01"}, False),
    ("new (class S extends Set { [Symbol.iterator]() { return [1].values() } })([2])", {"$set": [1]}, False),
    (
        "new (class M extends Map { [Symbol.iterator]() { return [['a', 1]].values() } })()",
        {"$map": [["a", 1]]},
        False,
    ),
]
THROWN = [
    ("new TypeError('no')", "TypeError", True),
    ("new (class Lost extends RangeError {})('no')", "Error", False),
    ("new (class Lost extends Error {})('no')", "Error", True),
    ("Object.assign(new Error('no'), { name: 'EvalError' })", "EvalError", False),
]


@needs_node
class TestWritten:
    def run(self, folder: Path, module: str) -> subprocess.CompletedProcess[str]:
        values = [
            test_of(f'it\'s "{n}" \u2028\n', inputs={"x": data}, expected_output=data) for n, data in enumerate(VALUES)
        ]
        (folder / "solution.mjs").write_text(module)
        [(name, text)] = LANGUAGE.write_tests({"f": [*values, *ERRORS]}, "solution", [spec("f", ["x", "y"])]).items()
        (folder / name).write_text(text)
        command = ["node", "--test", "--test-reporter=tap", "solution.test.mjs"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    def test_what_is_right_passes(self, tmp_path: Path) -> None:
        done = self.run(tmp_path, LANGUAGE.write_module(WRITTEN, "About\nit. */"))
        assert done.returncode == 0, done.stdout
        assert f"# pass {len(VALUES) + len(ERRORS) - 2}" in done.stdout

    def test_it_judges_like_the_harness(self, tmp_path: Path) -> None:
        tests = [test_of(returned, expected_output=expected) for returned, expected, _ in RETURNED]
        module = "".join(f"export const f{n} = () => {returned}\n" for n, (returned, _, _) in enumerate(RETURNED))
        assert self.passing(tmp_path, module, tests) == [passes for _, _, passes in RETURNED]

    @pytest.mark.slow
    async def test_it_expects_errors_like_the_harness(self, runner: TestRunner, tmp_path: Path) -> None:
        tests = [test_of(thrown, expected_error=expected) for thrown, expected, _ in THROWN]
        sources = {
            f"f{n}": f"export const f{n} = () => {{ throw {thrown} }}" for n, (thrown, _, _) in enumerate(THROWN)
        }
        results = await runner.run(sources, freeze({name: [each] for name, each in zip(sources, tests, strict=True)}))
        assert [each.passed for each in results] == [passes for _, _, passes in THROWN]
        assert self.passing(tmp_path, "\n".join(sources.values()), tests) == [passes for _, _, passes in THROWN]

    def passing(self, folder: Path, module: str, tests: Sequence[FunctionTest]) -> list[bool]:
        """Whether the written tests pass, the first one of which calls `f0`, and so on."""
        (folder / "solution.mjs").write_text(module)
        cases = {f"f{number}": [test] for number, test in enumerate(tests)}
        [(name, text)] = LANGUAGE.write_tests(cases, "solution", [spec(each, []) for each in cases]).items()
        (folder / name).write_text(text)
        command = ["node", "--test", "--test-reporter=tap", name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        found = re.findall(r"^ *(not )?ok \d+ - f(\d+)\b", done.stdout, re.M)
        assert [int(number) for _, number in found] == [*range(len(tests))], done.stdout
        return [not failed for failed, _ in found]

    def passes(self, folder: Path, module: str, *tests: FunctionTest, names: Sequence[str] = ()) -> bool:
        (folder / "solution.mjs").write_text(module)
        [(name, text)] = LANGUAGE.write_tests({"f": tests}, "solution", [spec("f", names)]).items()
        (folder / name).write_text(text)
        return not subprocess.run(["node", "--test", name], cwd=folder, capture_output=True, check=False).returncode

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("function f(...x) { return x.length }", 2),
            pytest.param("const f = async (... x // All.\n) => x.length", 2, marks=pytest.mark.slow),
            pytest.param("function f(x) { return Math.max(...x) }", 7, marks=pytest.mark.slow),
            pytest.param("function f(x) { return ((...x) => x.length)(x, x, x) }", 3, marks=pytest.mark.slow),
        ],
    )
    async def test_a_rest_parameter_takes_the_items(
        self, runner: TestRunner, tmp_path: Path, source: str, expected: int
    ) -> None:
        test = test_of(inputs={"x": [5, 7]}, expected_output=expected)
        assert (await runner.run({"f": source}, frozen("f", test)))[0].passed
        assert self.passes(tmp_path, f"export {source}", test, names=["x"])

    @pytest.mark.parametrize("returned", ["'wrong'", "x && typeof x === 'object' ? new Proxy(x, {}) : 'wrong'"])
    def test_what_is_wrong_fails(self, tmp_path: Path, returned: str) -> None:
        done = self.run(tmp_path, f"export class Missing extends Error {{}}\nexport const f = (x) => {returned}")
        assert f"# fail {len(VALUES) + len(ERRORS) - 2}" in done.stdout, done.stdout
        assert "# pass 0" in done.stdout
