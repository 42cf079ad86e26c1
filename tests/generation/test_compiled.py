# ruff: noqa: E501 (pieces of code, one to a line)
"""Functions in Go and TypeScript: what passes, what fails, what is refused, and what is written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.generation import (
    AICodeGenerator,
    FunctionSpec,
    GoLanguage,
    Language,
    TestResult,
    TestRunner,
    TypeScriptLanguage,
    freeze,
    make_sandbox,
    write_solution,
)
from coderoom.sandbox import Sandbox
from tests.support.commands import PYTEST

from .examples import frozen, test_of
from .scripted import ScriptedModel

LANGUAGES: dict[str, Language] = {"go": GoLanguage(), "typescript": TypeScriptLanguage()}
GO = "// f(x: int) -> int\nfunc f(x int) (int, error) {"
TS = "// f(x: int) -> int\nfunction f(x: number): number {"


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with make_sandbox(language="go") as sandbox:
        yield sandbox


async def run(sandbox: Sandbox, name: str, source: str, *tests: Any) -> list[TestResult]:
    return await TestRunner(sandbox, timeout=3, language=LANGUAGES[name]).run({"f": source}, frozen("f", *tests))


X: dict[str, Any] = {"inputs": {"x": 1}}
LIST_GO = "// f(x: list[int]) -> list[int]\nfunc f(x []int) ([]int, error) {"
LIST_TS = "// f(x: list[int]) -> list[int]\nfunction f(x: number[]): number[] {"
DICT_TS = "// f(x: int) -> dict[str, int]\nfunction f(x: number): Record<string, number> {"
RIGHT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "go": [
        (f"{GO} return x + 1, nil }}", {**X, "expected_output": 2}),
        (f"{GO} return x - 1, nil }}", {"inputs": {"x": 2**63 - 1}, "expected_output": 2**63 - 2}),
        (f'import "errors"\n{GO} return 0, errors.New("bad x") }}', {**X, "expected_error": "Error", "error_message": "bad"}),
        (f'import (\n\t"fmt"\n\tsystem "os"\n)\ntype Bad struct{{ n int }}\nfunc (b *Bad) Error() string {{ return fmt.Sprint(b.n) }}\n{GO} fmt.Println(1); system.Stderr.WriteString("e"); return 0, &Bad{{x}} }}', {**X, "expected_error": "Bad"}),
        (f'import "fmt"\ntype Inner struct{{}}\nfunc (Inner) Error() string {{ return "in" }}\n{GO} return 0, fmt.Errorf("out: %w", Inner{{}}) }}', {**X, "expected_error": "Inner"}),
        ("// f(x: list[str], y: dict[str, list[float]]) -> dict[str, list[float]]\nfunc f(x []string, y map[string][]float64) (map[string][]float64, error) { for _, each := range x { y[each] = append(y[each], 1.5) }; return y, nil }", {"inputs": {"x": ["é", "b"], "y": {"b": [1]}}, "expected_output": {"é": [1.5], "b": [1.0, 1.5]}}),
        ("// f(x: int | None) -> str | None\nfunc f(x *int) (*string, error) { if x == nil { return nil, nil }; said := \"one\"; return &said, nil }", {"inputs": {"x": None}, "expected_output": None}),
        ("import \"math\"\n// f() -> list[float]\nfunc f() ([]float64, error) { return []float64{math.Inf(1), 2}, nil }", {"expected_output": [{"$float": "inf"}, 2.0]}),
        ("// f(x: int) -> None\nfunc f(x int) error { return nil }", {**X, "expected_output": None}),
        ("import (\"io\"; \"os\")\n// f() -> str\nfunc f() (string, error) { data, err := io.ReadAll(os.Stdin); return string(data), err }", {"setup": [{"file": "-", "text": "abc"}], "expected_output": "abc"}),
        ("import \"os\"\n// f() -> str\nfunc f() (string, error) { data, err := os.ReadFile(\"a/b\"); return string(data), err }", {"setup": [{"file": "a/b", "text": "abc"}], "expected_output": "abc"}),
        ("// f() -> list[int]\nfunc f() ([]int, error) { return nil, nil }", {"expected_output": []}),
        ("import \"sort\"\n// f(x: list[int]) -> None\nfunc f(x []int) error { sort.Ints(x); return nil }", {"inputs": {"x": [3, 1, 2]}, "property": "after['x'] == [1, 2, 3]"}),
        (f"type num interface {{ ~int | ~float64 }}\nfunc sum[T num](x []T) T {{ var all T; for _, each := range x {{ all += each }}; return all }}\n{GO} c := make(chan int); go func() {{ c <- sum([]int{{x, x}}) }}(); return <-c, nil }}", {**X, "expected_output": 2}),
    ],
    "typescript": [
        (f"{TS} return x + 1; }}", {**X, "expected_output": 2}),
        ("// f(x: int) -> int\nasync function f(x: number): Promise<number> { await new Promise((done) => setTimeout(done, 1)); return x + 1; }", {**X, "expected_output": 2}),
        (f"class Bad extends Error {{}}\n{TS} throw new Bad('né'); }}", {**X, "expected_error": "Bad", "error_message": "né"}),
        (f"class Worse extends Error {{}}\n{TS} throw new Worse('no'); }}", {**X, "expected_error": "Error"}),
        (f"{TS} throw new RangeError('no'); }}", {**X, "expected_error": "RangeError"}),
        ("import { readFileSync } from 'node:fs';\n// f(x: list[str]) -> dict[str, int]\nfunction f(x: string[]): Record<string, number> { console.log(1); return { [x[0]!]: readFileSync('a/b', 'utf8').length }; }", {"inputs": {"x": ["é"]}, "setup": [{"file": "a/b", "text": "abc"}], "expected_output": {"é": 3}}),
        ("// f(x: str | None) -> str | None\nfunction f(x: string | null): string | null { return x; }", {"inputs": {"x": None}, "expected_output": None}),
        ("// f(x: list[int]) -> int | None\nfunction f(x: number[]): number | null { return x[5]; }", {"inputs": {"x": [1]}, "expected_output": None}),
        ("// f() -> float\nfunction f(): number { return NaN; }", {"expected_output": {"$float": "nan"}}),
        ("// f(x: int) -> None\nfunction f(x: number): void {}", {**X, "expected_output": None}),
        ("// f(x: list[int]) -> None\nfunction f(x: number[]): void { x.reverse(); }", {"inputs": {"x": [3, 1, 2]}, "property": "after['x'] == [2, 1, 3]"}),
        ("// f(x: str) -> dict[str, list[float]]\nfunction f(x: string): Record<string, number[]> { return JSON.parse(x); }", {"inputs": {"x": '{"__proto__": [1, 1e21]}'}, "expected_output": {"__proto__": [1.0, 1e21]}}),
        ("enum Color { Red = 'red👍' }\n// f(x: str) -> list[str]\nfunction f(x: string): string[] { return [...(x.match(/(a)(b)/) ?? []), Color.Red]; }", {"inputs": {"x": "ab"}, "expected_output": ["ab", "a", "b", "red👍"]}),
    ],
}  # fmt: skip
ONE, SORTED = {**X, "expected_output": 1}, {"inputs": {"x": [2, 1]}, "property": "after['x'] == [2, 1]"}
ERROR, RANGE = {**X, "expected_error": "Error"}, {**X, "expected_error": "RangeError"}
HOLDS = {**X, "property": "result != 7"}
FORGED_GO = 'for fd := 3; fd < 40; fd++ {{ fmt.Fprintln(os.NewFile(uintptr(fd), ""), `{{"value":1,"after":[1]}}`) }}'
FORGED_TS = 'for (let fd = 3; fd < 60; fd++) try { fs.writeSync(fd, \'{"value":1,"after":[1]}\\n\'); } catch {}'
WRONG: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "go": [
        (f"{GO} return 7, nil }}", ONE, "expected 1, got 7"),
        (f'import "errors"\n{GO} return 1, errors.New("no") }}', ONE, "but it raised Error: no"),
        (f'{GO} panic("no") }}', ONE, "raised RuntimeError: panic: no"),
        (f'{GO} panic("no") }}', ERROR, "raised RuntimeError: panic: no"),
        (f'{GO} panic("no") }}', {**X, "expected_error": "RuntimeError"}, "raised RuntimeError: panic: no"),
        (f'import "os"\n{GO} os.Exit(0); return 1, nil }}', ONE, "the code ended its process"),
        (f'import "runtime"\n{GO} runtime.Goexit(); return 1, nil }}', ONE, "the code ended its process"),
        (f"{GO} defer func() {{ recover() }}(); panic(1) }}", ERROR, "but it returned 0"),
        (f'import "fmt"\n{GO} fmt.Println(`{{"value": 1}}`); return 2, nil }}', ONE, "expected 1, got 2"),
        (f'import ("fmt"; "os")\n{GO} {FORGED_GO.format()}; return 2, nil }}', ONE, "the code ended its process"),
        (f"{GO} for {{}} }}", ONE, "stopped after 3 seconds"),
        ("// f(x: int) -> int\nfunc f(x int) (string, error) { return `1`, nil }", ONE, "could not be loaded: SyntaxError"),
        ("type Ints []int\n// f(x: list[int]) -> list[int]\nfunc f(x []int) (Ints, error) { return x, nil }", SORTED, "could not be loaded: SyntaxError"),
        (f'import "program/harness"\n{GO} harness.Serve(nil); return 1, nil }}', ONE, "could not be loaded: SyntaxError"),
        (f"{GO} return 1, nil }}\n/*", ONE, "comment not terminated"),
        (f'import ("math/rand"; "time")\n{GO} rand.Seed(time.Now().UnixNano()); return 1 + rand.Intn(2), nil }}', ONE, ""),
        (f'import "sort"\n{LIST_GO} sort.Ints(x); return x, nil }}', SORTED, "does not hold"),
        ('// f(x: int) -> str\nfunc f(x int) (string, error) { return "\\xff", nil }', {**X, "expected_output": "\ufffd"}, "not of the type str"),
        (f"{GO} return x, nil }}", {"inputs": {"x": "a"}, "expected_error": "TypeError"}, "the input 'a' is not of the type int"),
    ],
    "typescript": [
        (f"{TS} return 7; }}", ONE, "expected 1, got 7"),
        (f"{TS} throw new TypeError('no'); }}", ONE, "but it raised TypeError: no"),
        (f"{TS} process.exit(0); return 1; }}", ONE, "the code ended its process"),
        (f"{TS} for (;;) {{}} }}", ONE, "stopped after 3 seconds"),
        (f"{TS} return '1'; }}", ONE, "Type 'string' is not assignable to type 'number'"),
        (f"// @ts-nocheck\n{TS.replace(': number', '')} return '1'; }}", ONE, "could not be loaded"),
        (f"{TS} return y; }}", ONE, "Cannot find name 'y'"),
        (f"{TS} return Math.random() < 0.5 ? 1 : 2; }}", ONE, ""),
        (f"import fs from 'node:fs';\n{TS} {FORGED_TS} return 2; }}", ONE, "the code ended its process"),
        (f"{TS} return 1; }}\n/*", {**X, "expected_error": "TypeError"}, "'*/' expected"),
        (f"{TS} return 5n as any; }}", ERROR, "a value that is not data was returned"),
        (f"{TS} return new Number(1) as any; }}", ONE, "a value that is not data was returned"),
        (f"{TS} return [] as any; }}", HOLDS, "it returned [], which is not of the type int"),
        (f"{TS} return 1.5; }}", HOLDS, "it returned 1.5, which is not of the type int"),
        (f"{TS} return undefined as any; }}", HOLDS, "it returned None, which is not of the type int"),
        (f"{TS} return {{ $float: 'nan' }} as any; }}".replace("-> int", "-> float"), {**X, "expected_output": {"$float": "nan"}}, "code of its own"),
        (f"{TS} return new Promise<number>(() => {{}}); }}".replace("): number", "): Promise<number>"), ONE, "the code ended its process"),
        (f"{TS} Promise.reject(new Error('late')); return 1; }}", ONE, "the code ended its process"),
        (f"{DICT_TS} return {{ get a(): number {{ throw new Error('no'); }} }}; }}", ERROR, "code of its own"),
        (f"{DICT_TS} return new Proxy({{}}, {{ ownKeys: () => {{ throw new Error('no'); }} }}); }}", ERROR, "not data"),
        (f"{LIST_TS} const made: any = [2, 1]; made.map = () => [9]; return made; }}", {**SORTED, "property": "result == [2, 1]"}, "code of its own"),
        (f"{LIST_TS} return x.sort(); }}", SORTED, "does not hold"),
        (f"{TS} throw 'no'; }}", ERROR, "something was thrown that is no Error"),
        (f"{TS} throw Object.assign(new Error('no'), {{ constructor: RangeError, name: 'RangeError' }}); }}", RANGE, "but it raised Error: no"),
        (f"{TS} throw new (class RangeError extends Error {{}})('no'); }}", RANGE, "but it raised Error: no"),
        (f"{TS} return x; }}", {"inputs": {"x": "a"}, "expected_error": "TypeError"}, "the input 'a' is not of the type int"),
    ],
}  # fmt: skip


async def run_all(sandbox: Sandbox, name: str, rows: list[Any], timeout: float) -> list[TestResult]:
    """Run all in one program, where `f` is called `f0`, `f1` and so on."""
    sources = {f"f{number}": re.sub(r"\bf\(", f"f{number}(", row[0]) for number, row in enumerate(rows)}
    tests = freeze({each: [test_of(**row[1])] for each, row in zip(sources, rows, strict=True)})
    return await TestRunner(sandbox, timeout=timeout, language=LANGUAGES[name]).run(sources, tests)


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
async def test_what_is_right_passes(sandbox: Sandbox, name: str) -> None:
    results = await run_all(sandbox, name, RIGHT[name], 5)
    assert [each for each in results if not each.passed or each.warning] == []
    assert len(results) == len(RIGHT[name])


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", LANGUAGES)
async def test_what_is_wrong_fails_and_says_why(sandbox: Sandbox, name: str) -> None:
    for result, (source, _, why) in zip(await run_all(sandbox, name, WRONG[name], 3), WRONG[name], strict=True):
        assert not result.passed, source
        assert why in result.why, (source, result.why)


AT_LOAD = {
    "reads the request": (
        "go",
        'import ("bufio"; "fmt"; "os"; "strconv"; "strings")\nvar _ = 1; func init() { data, _ := os.ReadFile("/proc/self/cmdline"); parts := strings.Split(string(data), "\\x00"); there, _ := strconv.Atoi(parts[1]); here, _ := strconv.Atoi(parts[2]); '
        'line, _ := bufio.NewReader(os.NewFile(uintptr(there), "")).ReadString(10); fmt.Fprintln(os.NewFile(uintptr(here), ""), strings.Split(line, "{")[0] + `{"value":1,"after":[1]}`); os.Exit(0) }\n' + GO + " return 2, nil }",
    ),
    "the type error": ("go", f'type error = any\n{GO} return 1, "no" }}'),
    "JSON.stringify": ("typescript", f"JSON.stringify = (() => '1') as any; (globalThis as any).String = () => '1';\n{TS} return 2; }}"),
    "JSON.parse": ("typescript", f"const old = JSON.parse; JSON.parse = ((text: string) => ({{ ...old(text), inputs: [0] }})) as any;\n{TS} return x + 1; }}"),
    "Reflect.apply": ("typescript", f"Reflect.apply = (() => 1) as any;\n{TS} return 2; }}"),
    "Promise.then": ("typescript", "const old = Promise.prototype.then; Promise.prototype.then = function (this: any, next: any, no: any) { return old.call(this, () => next(1), no); } as any;\n// f(x: int) -> int\nasync function f(x: number): Promise<number> { return 2; }"),
    "fs.writeSync": ("typescript", f"import fs from 'node:fs';\nimport {{ syncBuiltinESMExports as sync }} from 'node:module';\nconst old = fs.writeSync; fs.writeSync = (fd: any, text: any) => old(fd, String(text).replace(':2', ':1')); sync();\n{TS} return 2; }}"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", AT_LOAD)
async def test_code_that_changes_what_reads_its_answers_fails(sandbox: Sandbox, what: str) -> None:
    (result,) = await run(sandbox, *AT_LOAD[what], test_of(**ONE))
    assert not result.passed
    assert "loaded" not in result.why


# What else JavaScript can leave behind is the same for TypeScript: see `test_javascript_order.py`.
STATE = {
    "go": [
        (f"var calls = 0\n{GO} calls++; return x * calls, nil }}", "the code keeps state"),
        (f"{GO} go func() {{ select {{}} }}(); return x, nil }}", "leaves a goroutine"),
    ],
    "typescript": [(f"let calls = 0;\n{TS} return x * ++calls; }}", "the code keeps state")],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
async def test_state_that_is_kept_is_noticed(sandbox: Sandbox, name: str) -> None:
    for source, why in STATE[name]:
        (result,) = await run(sandbox, name, source, test_of(**ONE))
        assert why in result.warning


@pytest.mark.slow
async def test_results_that_share_a_list_do_not_pass(sandbox: Sandbox) -> None:
    source = f"var all []int\n{LIST_GO} all = append(all[:0], x...); return all, nil }}"
    tests = [test_of(f"{each}", inputs={"x": [each]}, expected_output=[each]) for each in (1, 2)]
    results = await run(sandbox, "go", source, *tests)
    assert "another value now" in "".join(each.why + each.warning for each in results)


@pytest.mark.parametrize("name", LANGUAGES)
async def test_a_compiler_that_is_missing_is_named_before_the_model_is_asked(name: str) -> None:
    class Lacking(type(LANGUAGES[name])):  # type: ignore[misc]
        commands = {"no-such-compiler": "the-package"}

    model = ScriptedModel([], {}, {})
    with pytest.raises(MissingDependencyError, match="no no-such-compiler; install it with apt-get install the-pa"):
        await AICodeGenerator(model, cache=False, language=Lacking()).generate_solution("Initials of words.")
    assert not model.asked


def spec(**types: str) -> FunctionSpec:
    result = types.pop("result", "int")
    inputs = [{"name": each, "type": kind} for each, kind in types.items()]
    return FunctionSpec.model_validate({"name": "f", "purpose": "?", "inputs": inputs, "outputs": {"type": result}})


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("go", "func f(x int) (int, error) {\n}", "the comment with its signature is missing: // f(x: int) -> int"),
        ("go", "// f(x: int) -> int\n", "does not define the function 'f' once"),
        ("go", f"func init() {{\n}}\n{GO}\n}}", "'init' is reserved"),
        ("go", f"const (\n\tlimit = 1\n)\n{GO}\n}}", "'limit' is already defined by the code of 'g'"),
        ("go", f'import (\n\tx "net/http" // The web.\n)\n{GO}\n}}', "the module 'net/http' may not be imported"),
        ("typescript", f"type limit = number;\n{TS}\n}}", "'limit' is already defined by the code of 'g'"),
        ("typescript", f'import {{ get }} from "node:http";\n{TS}\n}}', "the module 'http' may not be imported"),
    ],
)
def test_code_is_checked_before_it_runs(name: str, source: str, said: str) -> None:
    found = LANGUAGES[name].check(source, spec(x="int"), taken={"limit": "g"}, allowed_imports=["fmt", "fs"])
    assert said in "\n".join(map(str, found))


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_spec_that_no_function_can_have_is_refused(name: str) -> None:
    language = LANGUAGES[name]
    for wrong in ({"x": "set[int]"}, {"x": "dict[int, str]"}, {"result": "tuple[int, int]"}, {"x": "None"}):
        assert "must be str, int" in str(language.spec_problem(spec(**wrong)))
    assert language.spec_problem(spec(x="list[dict[str, float | None]]", y="bool", result="None")) is None


def test_types_of_python_become_those_of_the_language() -> None:
    asked = spec(x="list[dict[str, float | None]]", y="bool", result="str | None")
    comment = "// f(x: list[dict[str, float | None]], y: bool) -> str | None\n"
    go, typescript = (language.signature(asked) for language in LANGUAGES.values())
    assert go == f"{comment}func f(x []map[string]*float64, y bool) (*string, error) {{"
    assert typescript == f"{comment}function f(x: Array<Record<string, number | null>>, y: boolean): string | null {{"
    nothing = [language.signature(spec(result="None")).splitlines()[1] for language in LANGUAGES.values()]
    assert nothing == ["func f() error {", "function f(): void {"]
    assert LANGUAGES["go"].imports('import (\n\tx "net/http" // The web.\n\t"os"\n)\n') == {"x": "net/http", "os": "os"}


CASES = [
    {"name": "two", "inputs": {"words": ["a b", "c"]}, "expected_output": "ac"},
    {"name": "none", "inputs": {"words": []}, "expected_error": "Error", "error_message": "no words"},
    {"name": "length", "inputs": {"words": ["xy", "z"]}, "property": "len(result) == len(words)"},
]
SPEC = {"name": "initials", "purpose": "Initials.", "inputs": [{"name": "words", "type": "list[str]"}], "outputs": {"type": "str"}}  # fmt: skip
GOOD = {
    "go": """```go
package main

import "errors"

// initials(words: list[str]) -> str
func initials(words []string) (string, error) {
	if len(words) == 0 {
		return "", errors.New("no words")
	}
	found := ""
	for _, word := range words {
		found += word[:1]
	}
	return found, nil
}
```""",
    "typescript": """```ts
// initials(words: list[str]) -> str
export function initials(words: string[]): string {
  if (words.length === 0) throw new Error("no words");
  return words.map((word) => word.slice(0, 1)).join("");
}
```""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
async def test_from_an_instruction_to_tested_files(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    wrong = re.sub(r":1\]|0, 1\)", lambda found: found[0].replace("1", "2"), GOOD[name])
    model = ScriptedModel([json.dumps({"function_specs": [SPEC]})], {"initials": CASES}, {"initials": wrong}, {"initials": GOOD[name]})  # fmt: skip
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False, language=name)
    solution = await generator.generate_solution("Initials of words.")
    assert solution.all_tests_passed, solution.missing
    write_solution(solution, tmp_path, name="words")
    command = [sys.executable, *PYTEST]
    for text, said in (("words", "3 passed"), ("word", "3 failed")):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert said in done.stdout, (text, done.stdout)
        module = tmp_path / f"words{LANGUAGES[name].suffix}"
        module.write_text(
            module.read_text()
            .replace("no words", "nothing")
            .replace("len(words) == 0", "false")
            .replace(":1]", ":0]")
            .replace("0, 1", "0, 0")
        )
