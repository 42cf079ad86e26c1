# ruff: noqa: E501 (pieces of code, one to a line)
"""Functions in bash: what passes, what fails, what is refused, and what is written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.generation import (
    AICodeGenerator,
    FunctionSpec,
    Language,
    ShellLanguage,
    TestResult,
    TestRunner,
    freeze,
    make_sandbox,
    write_solution,
)
from coderoom.judge import Harness
from coderoom.sandbox import Sandbox
from tests.support.commands import PYTEST

from .examples import frozen, test_of
from .scripted import ScriptedModel

LANGUAGE = ShellLanguage()
HEAD = "# f(x: int) -> int\n"


@pytest.fixture(scope="module")
async def shells() -> AsyncIterator[Sandbox]:
    async with make_sandbox(language="shell") as sandbox:
        yield sandbox


def slow(text: str) -> Any:
    return pytest.param(text, marks=pytest.mark.slow)


def spec(output: str = "int", needs: tuple[str, ...] = (), /, **inputs: str) -> FunctionSpec:
    given = [{"name": name, "type": kind} for name, kind in inputs.items()]
    fields = {"name": "f", "purpose": "Something.", "inputs": given, "outputs": {"type": output}, "dependencies": needs}
    return FunctionSpec.model_validate(fields)


async def run(sandbox: Sandbox, source: str, *tests: Any, strict: bool = False) -> list[TestResult]:
    runner = TestRunner(sandbox, timeout=2, language=LANGUAGE, strict=strict)
    return await runner.run({"f": source}, frozen("f", *tests))


RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("# f(x: str) -> str\nf() { printf '%s' \"$1\"; }", {"inputs": {"x": "it's\n\n€ $(id) "}, "expected_output": "it's\n\n€ $(id) "}),
    ("# f(x: str) -> str\nf() { echo \"$1\"; }", {"inputs": {"x": "a\n"}, "expected_output": "a\n"}),
    ("# f(x: str, y: int) -> str\nf() { echo $2$1; }", {"inputs": {"y": 1, "x": "a"}, "expected_output": "1a"}),
    ("# f(x: int, y: list[str]) -> list[str]\nf() { shift; printf '%s\\n' \"$@\"; }", {"inputs": {"x": 1, "y": ["a b", ""]}, "expected_output": ["a b", ""]}),
    ("# f() -> list[int]\nf() { :; }", {"expected_output": []}),
    ("# f(x: bool) -> bool\nf() { [ $1 = true ] && echo false || echo true; }", {"inputs": {"x": True}, "expected_output": False}),
    ("# f(x: float) -> float\nf() { awk \"BEGIN { print $1 / 3 }\"; }", {"inputs": {"x": 1.5}, "expected_output": 0.5}),
    ("# f() -> None\nf() { :; }", {"expected_output": None}),
    ("# f() -> str\nf() { echo no such thing >&2; return 3; }", {"expected_error": "ExitStatus", "error_message": "3: no such"}),
    ("# f() -> str\nf() { exit 4; }", {"expected_error": "ExitStatus", "error_message": "4"}),
    ("# f(x: int) -> int\nf() { seq $1; }", {"inputs": {"x": 3}, "property": "result == '1\\n2\\n3'"}),
    ("# f() -> int\nf() { wc -l < a/b; }", {"setup": [{"file": "a/b", "text": "1\n2\n"}], "expected_output": 2}),
    ("# f() -> str\nf() { tr a-z A-Z; }", {"setup": [{"file": "-", "text": "abc"}], "expected_output": "ABC"}),
    ("# f() -> int\nf() { sleep 60 & echo 1; }", {"expected_output": 1}),
    ("# f() -> str\nf() { return 127; }", {"expected_error": "ExitStatus"}),
    ("# f(x: str) -> str\nf() { echo \"$1\" | tr [:lower:] [:upper:]; }", {"inputs": {"x": "what?"}, "expected_output": "WHAT?"}),
    ("# f(x: str) -> str\nf() { local IFS=,; printf '%s' \"$1\" [*] *.txt; }", {"inputs": {"x": "a,b"}, "expected_output": "a,b[*]*.txt"}),
    ("# f(x: str) -> int\nf() ( set -e; cd /; trap : EXIT; for x in $1; do [ ! -e \"$x\" ] || exit 3; done; echo 0 )", {"inputs": {"x": "/*.no"}, "expected_output": 0}),
]  # fmt: skip


async def run_all(sandbox: Sandbox, rows: list[tuple[str, dict[str, Any]]]) -> list[TestResult]:
    """Run all in one program, where `f` is called `f0`, `f1` and so on."""
    sources = {f"f{number}": re.sub(r"\bf\(", f"f{number}(", source) for number, (source, _) in enumerate(rows)}
    tests = freeze({name: [test_of(**fields)] for name, (_, fields) in zip(sources, rows, strict=True)})
    return await TestRunner(sandbox, timeout=10, language=LANGUAGE).run(sources, tests)


@pytest.mark.slow
async def test_what_is_right_passes(shells: Sandbox) -> None:
    results = await run_all(shells, RIGHT)
    assert [each for each in results if not each.passed or each.warning] == []
    assert len(results) == len(RIGHT)


@pytest.mark.slow
async def test_processes_that_each_call_leaves_behind_are_not_too_many(shells: Sandbox) -> None:
    (result,) = await run(shells, "# f() -> int\nf() { sleep 60 & echo 1; }", test_of(expected_output=1))
    assert (result.passed, result.why, result.warning) == (True, "", "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 7", "expected 1, got 7"),
        ("echo one", "got 'one'"),
        ("echo 1 | tee /dev/stderr; return 1", "but it raised ExitStatus: 1: 1"),
        ("echo '{\"value\": 1}'; printf '\\0%s\\n' 0", "expected 1"),
        ('for fd in /proc/*/fd/*; do echo \'{"value": "passed"}\' > $fd; done 2>/dev/null; exit 0', ""),
        ("exit 0", "expected 1"),
        ("kill -9 $$", "ExitStatus: 137"),
        ("kill -9 $PPID", "ended by SIGKILL"),
        ("while :; do :; done", "The code was stopped after 2 seconds."),
        ("yes", "more than 1,000,000 characters were printed"),
        ("if", "could not be loaded: SyntaxError"),
        ("echo }\n}\nexit 0\n{", "could not be loaded"),
    ],
)
@pytest.mark.slow
async def test_what_is_wrong_fails_and_says_why(shells: Sandbox, body: str, why: str) -> None:
    (result,) = await run(shells, f"{HEAD}f() {{\n{body}\n}}", test_of(inputs={"x": 0}, expected_output=1))
    assert not result.passed
    assert why in result.why


@pytest.mark.slow
async def test_what_only_a_user_would_notice_fails(shells: Sandbox) -> None:
    head, given = "# f(x: str) -> str\nf()", {"x": "2 * 3"}
    cases: list[tuple[str, dict[str, Any], str]] = [
        (f"{head} {{ echo $1; }}", {"expected_output": "2 * 3"}, "one run returned '2 * 3', and another"),
        (f'{head} ( set -e; [ -z "$1" ]; echo )', {"expected_error": "ExitStatus"}, "not repeatable"),
        (f"{head} {{ no-such; }}", {"expected_error": "ExitStatus"}, "raised RuntimeError: 127"),
        (f"{head} {{ y=$(no-such) || return 1; }}", {"expected_error": "ExitStatus"}, "RuntimeError: 1:"),
        ("# f(x: str) -> None\nf() { echo; }", {"expected_output": None}, "expected None"),
        ("# f(x: str) -> int\nf() { echo 08; }", {"expected_output": 8}, "got '08'"),
    ]
    results = await run_all(shells, [(source, {"inputs": given, **fields}) for source, fields, _ in cases])
    for (source, _, why), result in zip(cases, results, strict=True):
        assert not result.passed, source
        assert why in result.why, source


TESTS = [test_of(f"{number}", inputs={"x": number}, expected_output=number) for number in range(3)]


def keeps(assign: str) -> str:
    return f"{HEAD}calls=0\nf() {{\n  echo $(( $1 + calls ))\n  {assign}$(( calls + 1 ))\n}}"


@pytest.mark.slow
async def test_state_that_is_kept_is_noticed(shells: Sandbox) -> None:
    results = await run(shells, keeps("declare -g calls="), *TESTS)
    assert [each.passed for each in results] == [True] * 3
    assert "the code keeps state" in results[2].warning


@pytest.mark.slow
async def test_state_that_is_kept_fails_where_it_may_not_be(shells: Sandbox) -> None:
    results = await run(shells, keeps("calls="), *TESTS[:2], strict=True)
    assert [each.passed for each in results] == [False] * 2


@pytest.mark.parametrize(
    "body", ["readonly n=$1; echo $n", "false; echo $1; set -e", "cd /; echo $1", "IFS=,; echo $1"]
)
@pytest.mark.slow
async def test_constants_and_options_are_state_too(shells: Sandbox, body: str) -> None:
    results = await run(shells, f"{HEAD}f() {{\n  {body}\n}}", *TESTS[:2])
    assert any("the code keeps state" in each.warning for each in results), results


@pytest.mark.parametrize("noise", ["RANDOM", "$$", slow("BASHPID"), slow("10#${EPOCHREALTIME#*.}")])
async def test_code_that_answers_at_random_fails(shells: Sandbox, noise: str) -> None:
    results = await run(shells, f"{HEAD}f() {{\n  echo $(( $1 + ({noise}) % 2 ))\n}}", *TESTS)
    assert not all(each.passed for each in results), results


@pytest.mark.allwalls
@pytest.mark.parametrize("wall", ["bubblewrap", "landlock", "namespaces", "none"])
async def test_every_wall_has_what_a_shell_needs(wall: str) -> None:
    # A worker that gives up root cannot reach root's own interpreter.
    python = "/usr/bin/python3" if wall == "landlock" else None
    async with Sandbox(wall, python=python) as sandbox:
        results = await run(sandbox, f"{HEAD}f() {{\n  echo $1 | cat\n}}", TESTS[1])
    assert [(each.passed, each.warning) for each in results] == [(True, "")], results


@pytest.mark.slow
async def test_a_test_sees_no_files_of_another(shells: Sandbox) -> None:
    source = f"{HEAD}f() {{\n  echo >> here\n  echo $(( $1 + $(wc -l < here) - 1 ))\n}}"
    assert [(each.passed, each.warning) for each in await run(shells, source, *TESTS)] == [(True, "")] * 3


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("f() {\n  echo\n}", "the comment with its signature is missing: # f(x: int) -> int"),
        (f"{HEAD}g() {{\n  f\n}}", "does not define the function 'f' once"),
        (f"{HEAD}f() {{ :; }}\nf() {{ :; }}", "does not define the function 'f' once"),
        (f"{HEAD}f() {{\n  :\n}}\nf 1", "line 5: only functions, variables and comments"),
        (f"{HEAD}f() {{ :; }}\nhelp_me() {{ :; }}", "line 3: 'help_me' is already defined by the code of 'g'"),
        (f"{HEAD}f() {{ :; }}\ndep=1", "line 3: 'dep' is another function"),
    ],
)
def test_code_is_checked_before_it_runs(source: str, said: str) -> None:
    found = LANGUAGE.check(source, spec("int", ("dep",), x="int"), taken={"help_me": "g"})
    assert said in "\n".join(map(str, found))


def test_honest_code_has_no_problems() -> None:
    source = "#!/bin/bash\nLIMITS=(\n  1\n  2\n)\nreadonly WORD='a b'\nfunction helper\n{\n  :\n}\n# f(x: int) -> int\nf() (\n  helper\n)\n"
    assert LANGUAGE.check(source, spec(x="int")) == []
    assert LANGUAGE.names_defined(source) == ["LIMITS", "WORD", "helper", "f"]


@pytest.mark.parametrize("wrong", [{"x": "dict[str, int]"}, {"x": "list[str]", "y": "int"}, {"x": "list[list[int]]"}])
def test_a_spec_that_no_shell_function_can_have_is_refused(wrong: dict[str, str]) -> None:
    assert "must be str, int, float or bool" in str(LANGUAGE.spec_problem(spec(**wrong)))
    assert "must be str, int, float or bool" in str(LANGUAGE.spec_problem(spec("dict", x="int")))
    assert LANGUAGE.spec_problem(spec("list[int]", x="str", y="list[float]")) is None
    assert LANGUAGE.name_problem("echo")


SPEC = {
    "name": "initials",
    "purpose": "Initials.",
    "inputs": [{"name": "words", "type": "list[str]"}],
    "outputs": {"type": "str"},
}
CASES = [
    {"name": "two", "inputs": {"words": ["a b", "c"]}, "expected_output": "ac"},
    {"name": "none", "inputs": {"words": []}, "expected_error": "ExitStatus", "error_message": "2: no words"},
    {"name": "length", "inputs": {"words": ["xy", "z"]}, "property": "len(result) == len(words)"},
]
GOOD = """```bash
# initials(words: list[str]) -> str
initials() {
  if (( ! $# )); then
    echo 'no words' >&2
    return 2
  fi
  printf '%.1s' "$@"
}
```"""


def test_the_documentation_names_what_a_language_needs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "generation.md").read_text().split("### Adding a language")[1]
    table = re.findall(r"^\| (`.*?`) \|", text.split("\n## ")[0], re.MULTILINE)
    assert {name.strip("` ") for row in table for name in row.split(",")} == Language.__abstractmethods__
    declared = {*Harness.__annotations__, *Language.__annotations__}
    attributes = {name for name in declared if not hasattr(Language, name)}
    assert attributes == {"name", "labels", "suffix", "ways"}


def pytest_in(folder: Path) -> str:
    command = [sys.executable, *PYTEST, "-W", "error::ResourceWarning"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.slow
async def test_from_an_instruction_to_tested_files(shells: Sandbox, tmp_path: Path) -> None:
    bad = {**SPEC, "inputs": [{"name": "words", "type": "dict"}]}
    wrong = GOOD.replace("%.1s", "%.2s")
    model = ScriptedModel(
        [json.dumps({"function_specs": [each]}) for each in (bad, SPEC)],
        {"initials": CASES},
        {"initials": wrong},
        {"initials": GOOD},
    )
    generator = AICodeGenerator(model, sandbox=shells, cache=False, language="shell")
    solution = await generator.generate_solution("Initials of words.")
    assert solution.all_tests_passed, solution.missing
    assert "must be str, int, float or bool" in model.questions[1]
    write_solution(solution, tmp_path, name="words")
    names = [
        "report.json",
        "report.md",
        "test_words.py",
        "words.py",
        "words.sh",
        "words_checks.py",
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert "3 passed" in pytest_in(tmp_path)
    module = tmp_path / "words.sh"
    module.write_text(module.read_text().replace("%.1s", "%.2s").replace("return 2", "return 3"))
    assert "3 failed" in pytest_in(tmp_path)
    write_solution(solution, tmp_path, name="words")
    assert "3 passed" in pytest_in(tmp_path)
