# ruff: noqa: E501 (pieces of code, one to a line)
"""Functions in Go and TypeScript: what passes, what fails, what is refused, and what is written."""

from __future__ import annotations

import json
import os
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


RIGHT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "go": [
        (f"{GO} return x + 1, nil }}", {"inputs": {"x": 1}, "expected_output": 2}),
        (f'import "errors"\n{GO} return 0, errors.New("bad x") }}', {"inputs": {"x": 1}, "expected_error": "Error", "error_message": "bad"}),
        (f'import (\n\t"fmt"\n\tsystem "os"\n)\ntype Bad struct{{ n int }}\nfunc (b *Bad) Error() string {{ return fmt.Sprint(b.n) }}\n{GO} fmt.Println(1); system.Stderr.WriteString("e"); return 0, &Bad{{x}} }}', {"inputs": {"x": 1}, "expected_error": "Bad"}),
        ("// f(x: list[str], y: dict[str, list[float]]) -> dict[str, list[float]]\nfunc f(x []string, y map[string][]float64) (map[string][]float64, error) { for _, each := range x { y[each] = append(y[each], 1.5) }; return y, nil }", {"inputs": {"x": ["é", "b"], "y": {"b": [1]}}, "expected_output": {"é": [1.5], "b": [1.0, 1.5]}}),
        ("// f(x: int | None) -> str | None\nfunc f(x *int) (*string, error) { if x == nil { return nil, nil }; said := \"one\"; return &said, nil }", {"inputs": {"x": None}, "expected_output": None}),
        ("import \"math\"\n// f() -> list[float]\nfunc f() ([]float64, error) { return []float64{math.Inf(1), 2}, nil }", {"expected_output": [{"$float": "inf"}, 2.0]}),
        ("// f(x: int) -> None\nfunc f(x int) error { return nil }", {"inputs": {"x": 1}, "expected_output": None}),
        ("import (\"io\"; \"os\")\n// f() -> str\nfunc f() (string, error) { data, err := io.ReadAll(os.Stdin); return string(data), err }", {"setup": [{"file": "-", "text": "abc"}], "expected_output": "abc"}),
        ("import \"os\"\n// f() -> str\nfunc f() (string, error) { data, err := os.ReadFile(\"a/b\"); return string(data), err }", {"setup": [{"file": "a/b", "text": "abc"}], "expected_output": "abc"}),
        ("// f() -> list[int]\nfunc f() ([]int, error) { return nil, nil }", {"expected_output": []}),
    ],
    "typescript": [
        (f"export {TS[20:]} return x + 1; }}", {"inputs": {"x": 1}, "expected_output": 2}),
        ("// f(x: int) -> int\nasync function f(x: number): Promise<number> { return x + 1; }", {"inputs": {"x": 1}, "expected_output": 2}),
        (f"class Bad extends Error {{}}\n{TS} throw new Bad('no'); }}", {"inputs": {"x": 1}, "expected_error": "Bad", "error_message": "no"}),
        (f"class Worse extends Error {{}}\n{TS} throw new Worse('no'); }}", {"inputs": {"x": 1}, "expected_error": "Error"}),
        (f"{TS} throw new RangeError('no'); }}", {"inputs": {"x": 1}, "expected_error": "RangeError"}),
        ("import { readFileSync } from 'node:fs';\n// f(x: list[str]) -> dict[str, int]\nfunction f(x: string[]): Record<string, number> { console.log(1); return { [x[0]!]: readFileSync('a/b', 'utf8').length }; }", {"inputs": {"x": ["é"]}, "setup": [{"file": "a/b", "text": "abc"}], "expected_output": {"é": 3}}),
        ("// f(x: str | None) -> str | None\nfunction f(x: string | null): string | null { return x; }", {"inputs": {"x": None}, "expected_output": None}),
        ("// f() -> float\nfunction f(): number { return NaN; }", {"expected_output": {"$float": "nan"}}),
        ("// f(x: int) -> None\nfunction f(x: number): void {}", {"inputs": {"x": 1}, "expected_output": None}),
    ],
}  # fmt: skip
RIGHT["typescript"][0] = (f"{TS} return x + 1; }}", {"inputs": {"x": 1}, "expected_output": 2})


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
async def test_what_is_right_passes(sandbox: Sandbox, name: str) -> None:
    """All in one program, where `f` is called `f0`, `f1` and so on."""
    sources = {f"f{number}": re.sub(r"\bf\(", f"f{number}(", source) for number, (source, _) in enumerate(RIGHT[name])}
    tests = freeze({each: [test_of(**fields)] for each, (_, fields) in zip(sources, RIGHT[name], strict=True)})
    results = await TestRunner(sandbox, timeout=5, language=LANGUAGES[name]).run(sources, tests)
    assert [each for each in results if not each.passed or each.warning] == []
    assert len(results) == len(RIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("go", f"{GO} return 7, nil }}", "expected 1, got 7"),
        ("go", f'import "errors"\n{GO} return 1, errors.New("no") }}', "but it raised Error: no"),
        ("go", f'{GO} panic("no") }}', "raised RuntimeError: panic: no"),
        ("go", f'import "os"\n{GO} os.Exit(0); return 1, nil }}', "the code ended its process"),
        ("go", f'import "fmt"\n{GO} fmt.Println(`{{"value": 1}}`); return 2, nil }}', "expected 1, got 2"),
        ("go", f"{GO} for {{}} }}", "stopped after 3 seconds"),
        (
            "go",
            "// f(x: int) -> int\nfunc f(x int) (string, error) { return `1`, nil }",
            "could not be loaded: SyntaxError",
        ),
        (
            "go",
            f'import ("math/rand"; "time")\n{GO} rand.Seed(time.Now().UnixNano()); return 1 + rand.Intn(2), nil }}',
            "",
        ),
        ("typescript", f"{TS} return 7; }}", "expected 1, got 7"),
        ("typescript", f"{TS} throw new TypeError('no'); }}", "but it raised TypeError: no"),
        ("typescript", f"{TS} process.exit(0); return 1; }}", "the code ended its process"),
        ("typescript", f"{TS} for (;;) {{}} }}", "stopped after 3 seconds"),
        ("typescript", f"{TS} return '1'; }}", "Type 'string' is not assignable to type 'number'"),
        ("typescript", f"{TS} return y; }}", "Cannot find name 'y'"),
        ("typescript", f"{TS} return Math.random() < 0.5 ? 1 : 2; }}", ""),
    ],
)
async def test_what_is_wrong_fails_and_says_why(sandbox: Sandbox, name: str, source: str, why: str) -> None:
    (result,) = await run(sandbox, name, source, test_of(inputs={"x": 0}, expected_output=1))
    assert not result.passed
    assert why in result.why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source"),
    [("go", f"var calls = 0\n{GO} calls++; return x * calls, nil }}"), ("typescript", f"let calls = 0;\n{TS} return x * ++calls; }}")],
)  # fmt: skip
async def test_state_that_is_kept_is_noticed(sandbox: Sandbox, name: str, source: str) -> None:
    (result,) = await run(sandbox, name, source, test_of(inputs={"x": 1}, expected_output=1))
    assert "the code keeps state" in result.warning


@pytest.mark.parametrize("name", LANGUAGES)
async def test_a_compiler_that_is_missing_is_named_with_its_package(name: str) -> None:
    class Lacking(type(LANGUAGES[name])):  # type: ignore[misc]
        commands = {"no-such-compiler": "the-package"}  # noqa: RUF012

    async with make_sandbox() as sandbox:
        with pytest.raises(MissingDependencyError, match="no no-such-compiler; install it with apt-get install the-pa"):
            await TestRunner(sandbox, language=Lacking()).why_not_loaded({"f": ""})


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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
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
