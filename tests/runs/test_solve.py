"""`coderoom solve`, as a person types it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import PYTEST, ROOT, coderoom, environment, recording
from tests.support.openai_server import Failure, OpenAIServer, Stall
from tests.support.solving import GOOD, SPECS, TESTS, WRONG

TASK = "Write numbers as Roman numerals, and read them."
ROMAN = f"replay:{ROOT / 'examples' / 'solve.replay.yaml'}"
WORDS = [SPECS, TESTS, GOOD]


def solve(cwd: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return coderoom("solve", *arguments, "--cache-dir", str(cwd / "cache"), cwd=cwd, **options)


@pytest.mark.slow
def test_module_tests_and_report_are_written(tmp_path: Path) -> None:
    done = solve(tmp_path, TASK, "--model", ROMAN, "--out", "roman")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Code is isolated from this machine by: ")
    assert "13 of 13 tests passed" in done.stdout
    names = sorted(path.name for path in (tmp_path / "roman").iterdir())
    name = "numbers_roman_numerals"
    used = [f"{name}_checks.py"]
    assert names == [f"{name}.py", *used, "report.json", "report.md", f"test_{name}.py"]
    report = json.loads((tmp_path / "roman" / "report.json").read_text())
    assert report["all_tests_passed"] is True
    plain = subprocess.run(
        [sys.executable, *PYTEST],
        cwd=tmp_path / "roman",
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert plain.returncode == 0, plain.stdout.decode()
    assert b"13 passed" in plain.stdout


@pytest.mark.slow
def test_functions_may_be_in_bash(tmp_path: Path) -> None:
    good = "~~~bash\n# double(x: int) -> int\ndouble() {\n  echo $(( 2 * $1 ))\n}\n~~~"
    model = recording(tmp_path / "r.json", [SPECS, TESTS, good])
    done = solve(tmp_path, "Double.", "--model", model, "--language", "shell", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 of 3 tests passed" in done.stdout
    sourced = ["bash", "-c", "source out/double.sh; double 21"]
    assert subprocess.run(sourced, cwd=tmp_path, capture_output=True, check=True).stdout == b"42\n"


def test_without_a_folder_the_code_is_shown(tmp_path: Path) -> None:
    done = solve(tmp_path, "Double.", "--model", recording(tmp_path / "r.json", WORDS))
    assert done.returncode == 0
    assert "return 2 * x" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"r.json"}


def test_json_for_programs(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", WORDS)
    done = solve(tmp_path, "Double.", "--model", model, "--out", "out", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert (told["succeeded"], told["all_tests_passed"], told["missing"], told["error"]) == (True, True, [], "")
    assert sorted(Path(path).name for path in told["files"]) == sorted(
        path.name for path in (tmp_path / "out").iterdir()
    )


def test_what_is_missing_is_said_and_written_too(tmp_path: Path) -> None:
    repair = json.dumps(
        {"wrong": "implementation", "reason": "so", "implementation": "def double(x):\n    return x * x"}
    )
    model = recording(tmp_path / "r.json", [*WORDS[:2], WRONG, repair, WRONG])
    done = solve(tmp_path, "Double.", "--model", model, "--out", "out")
    assert done.returncode == 1
    assert "-3 gives -6" in done.stdout
    assert "double: attempt 2 (patch), 2 lines: so" in done.stdout
    assert "double: given up after 3 attempts: the model repeated the same code" in done.stdout
    assert "-6" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.slow
def test_the_second_time_it_comes_from_the_cache(tmp_path: Path) -> None:
    with OpenAIServer(WORDS) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        assert solve(tmp_path, "Double.", "--model", "openai:gpt-4o", env=env).returncode == 0
        done = solve(tmp_path, "Double.", "--model", "openai:gpt-4o", env=env)
        assert (done.returncode, "from the cache" in done.stdout) == (0, True)
        assert len(server.requests) == 3
        none = solve(tmp_path, "Double.", "--model", "openai:gpt-4o", "--no-cache", "--retries", "0", env=env)
        # The server fails, and is asked once more without a schema.
        assert (none.returncode, len(server.requests)) == (1, 5)


@pytest.mark.slow
def test_a_similar_instruction_is_found_in_the_cache(tmp_path: Path) -> None:
    similar = ["--model", "openai:gpt-4o", "--embeddings", "letters", "--similarity", "0.9"]
    with OpenAIServer(WORDS) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        assert solve(tmp_path, "Double.", *similar, env=env).returncode == 0
        done = solve(tmp_path, "Double!", *similar, env=env)
    assert (done.returncode, "that of a similar instruction" in done.stdout) == (0, True)


@pytest.mark.slow
def test_the_cache_is_shown_and_cleared(tmp_path: Path) -> None:
    def cache(*arguments: str) -> subprocess.CompletedProcess[str]:
        return coderoom("cache", *arguments, "--cache-dir", "cache", cwd=tmp_path)

    with OpenAIServer(WORDS) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        assert solve(tmp_path, "Double  it.", "--model", "openai:gpt-4o", env=env).returncode == 0
    shown = cache("show")
    assert (shown.returncode, shown.stderr) == (0, "")
    first, line = shown.stdout.splitlines()
    assert "1 solution, " in first
    assert line.split()[0].isdigit()
    assert line.endswith("  gpt-4o  Double it.")
    facts = json.loads(cache("show", "--json").stdout)
    assert (facts["solutions"], facts["replies"], facts["path"]) == (1, 0, str(tmp_path / "cache" / "journal.sqlite3"))
    assert (
        facts["entries"][0].items()
        >= {"instruction": "Double  it.", "model": "gpt-4o", "functions": ["double"]}.items()
    )
    assert facts["bytes"] == facts["entries"][0]["bytes"] > 100
    assert json.loads(cache("clear", "--json").stdout)["removed"] == 1
    assert cache("clear").stdout.endswith(": 0 solutions removed\n")
    assert json.loads(cache("show", "--json").stdout)["entries"] == []
    for each in (tmp_path / "cache").glob("journal.sqlite3-*"):  # From which the database could be read as well.
        each.unlink()
    (tmp_path / "cache" / "journal.sqlite3").write_text("no database" * 100)
    for word in ("clear", "show"):
        damaged = cache(word)
        assert (damaged.returncode, "The file is damaged" in damaged.stderr) == (3, True)


@pytest.mark.slow
def test_the_cache_is_in_the_journal(tmp_path: Path) -> None:
    def asked(*options: str, **more: str) -> int:
        """How many requests it takes to solve it."""
        with OpenAIServer(WORDS) as server:
            env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test", **more}
            done = coderoom("solve", "Double.", "--model", "openai:gpt-4o", *options, cwd=tmp_path, env=env)
            assert (done.returncode, done.stderr) == (0, "")
            return len(server.requests)

    journal = ("--journal", "j.sqlite3")
    assert (asked(*journal), asked(*journal), asked("--no-cache", *journal)) == (3, 0, 3)
    assert [asked("--no-journal", *journal) for _ in range(2)] == [3, 3]
    assert [asked("--no-journal", "--cache-dir", "cache") for _ in range(2)] == [3, 0]
    assert asked(CODEROOM_JOURNAL="j.sqlite3") == 0
    assert [asked(CODEROOM_JOURNAL="required", XDG_STATE_HOME=str(tmp_path)) for _ in range(2)] == [3, 0]
    assert (tmp_path / "coderoom" / "journal.sqlite3").exists()

    def of_json(*arguments: str) -> Any:
        return json.loads(coderoom(*arguments, *journal, "--json", cwd=tmp_path).stdout)

    assert len(of_json("runs")["runs"]) == 4
    assert (of_json("cache", "show")["solutions"], of_json("cache", "clear")["removed"]) == (1, 1)
    assert (of_json("cache", "show")["solutions"], len(of_json("runs")["runs"])) == (0, 4)
    none = coderoom("cache", "show", cwd=tmp_path)
    assert (none.returncode, "There is no journal, and so no cache" in none.stderr) == (2, True)


def test_debug_logs_each_step(tmp_path: Path) -> None:
    done = solve(tmp_path, "Double.", "--model", recording(tmp_path / "r.json", WORDS), "--json", "--debug")
    assert json.loads(done.stdout)["succeeded"] is True
    lines = [line for line in done.stderr.splitlines() if "coderoom.generation: " in line]
    assert lines[1].endswith(" coderoom.generation: Model request for specs begins.")
    assert "Done: " in lines[-1]


def test_a_report_is_written_also_where_there_is_no_code(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", ["I would rather not."] * 2)
    done = solve(tmp_path, "Double.", "--model", model, "--out", "out")
    assert done.returncode == 1
    assert "I would rather not." in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.md"]


def test_without_a_wall_that_is_said_first(tmp_path: Path) -> None:
    done = solve(tmp_path, "Double.", "--model", recording(tmp_path / "r.json", WORDS), "--wall", "none")
    assert done.returncode == 0
    assert "not isolated" in done.stdout.partition("\n")[0]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["  "], "empty"),
        (["x", "--language", "cobol"], "cobol"),
        (["x", "--wall", "paper"], "paper"),
        (["x", "--name", "json", "--out", "out"], "json"),
        (["x", "--name", "other"], "add --out DIR"),
        (["x", "--allowed-imports", "os,sys"], "'os,sys' is not a module name"),
        (["x", "--max-attempts", "0"], "max-attempts"),
        (["x", "--max-test-changes", "-1"], "max-test-changes"),
        (["x", "--block-severity", "much"], "block_severity='much'"),
        (["x", "--out", "r.json"], "r.json"),
    ],
)
def test_wrong_requests_are_refused_before_anything_is_asked(tmp_path: Path, arguments: list[str], word: str) -> None:
    model = recording(tmp_path / "r.json", [])
    done = solve(tmp_path, *arguments, "--model", model)
    assert done.returncode == 2
    assert word in done.stderr


IMPORTS = "import os\nimport json.decoder\nimport math\n\n\ndef double(x):\n    return 2 * x"
SHELL = "import subprocess\n\n\ndef double(x):\n    subprocess.run(f'test {x}', shell=True)\n    return 2 * x"


@pytest.mark.parametrize(
    ("code", "arguments", "problem"),
    [
        (IMPORTS, [], ""),
        (IMPORTS, ["--allowed-imports", "math", "--allowed-imports", "json"], "the module 'os' may not be imported"),
        pytest.param(
            IMPORTS,
            ["--allowed-imports=math", "--allowed-imports=json", "--allowed-imports=os"],
            "",
            marks=pytest.mark.slow,
        ),
        (SHELL, [], "B602"),
        pytest.param(SHELL, ["--block-severity", "low"], "B404", marks=pytest.mark.slow),
        pytest.param(SHELL, ["--block-severity", "none"], "", marks=pytest.mark.slow),
    ],
)
def test_what_code_may_do_can_be_said(tmp_path: Path, code: str, arguments: list[str], problem: str) -> None:
    words = [SPECS, TESTS, f"```python\n{code}\n```"]
    model = recording(tmp_path / "r.json", words)
    done = solve(tmp_path, "Double.", "--model", model, "--json", "--max-attempts", "1", *arguments)
    told = json.loads(done.stdout)
    assert told["all_tests_passed"] is (not problem)
    (attempt,) = told["functions"][0]["attempts"]
    assert problem in "\n".join(attempt["problems"])
    assert bool(attempt["problems"]) is bool(problem)


def test_how_many_tests_may_be_changed_can_be_said(tmp_path: Path) -> None:
    other = {"name": "21 gives 42", "inputs": {"x": 21}, "expected_output": 441}
    change = json.dumps({"wrong": "test", "reason": "so", "test": other})
    for most in (0, 1):
        model = recording(tmp_path / "r.json", [SPECS, TESTS, WRONG, change])
        arguments = ["--json", "--max-attempts", "2", "--max-test-changes", str(most)]
        told = json.loads(solve(tmp_path, "Double.", "--model", model, *arguments).stdout)
        assert len(told["test_changes"]) == most


def test_files_that_are_not_ours_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.md").write_text("mine")
    model = recording(tmp_path / "r.json", WORDS)
    done = solve(tmp_path, "Double.", "--model", model, "--out", "out")
    assert done.returncode == 2
    assert "report.md" in done.stderr
    assert (tmp_path / "out" / "report.md").read_text() == "mine"


def test_without_a_key_something_is_missing(tmp_path: Path) -> None:
    done = solve(tmp_path, "Double.")
    assert done.returncode == 3
    assert "OPENAI_API_KEY" in done.stderr


def test_a_service_that_fails_is_told_of(tmp_path: Path) -> None:
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "test"}
    done = solve(tmp_path, "Double.", "--model", "openai:gpt-4o", "--retries", "0", "--out", "out", env=env)
    assert done.returncode == 1
    assert "could not be called" in done.stdout
    assert not re.search(r"\b0 (requests|tokens|of 0)", done.stdout + (tmp_path / "out" / "report.md").read_text())
    assert "No model service could be reached at http" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_an_interrupt_ends_it_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with OpenAIServer([WORDS[0], Stall(60), *WORDS[1:]]) as server:
        env = environment({"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"})
        command = [
            sys.executable,
            "-m",
            "coderoom",
            "solve",
            "Double.",
            "--cache-dir",
            "cache",
            "--model",
            "openai:gpt-4o",
        ]
        child = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE)
        deadline = time.monotonic() + 40
        while len(server.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        output = child.communicate(timeout=20)[0].decode()
        assert (child.returncode, "Go on by the same command" in " ".join(output.split())) == (130, True)
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 4


@pytest.mark.slow
def test_the_same_command_goes_on_with_its_run_and_asks_nothing_twice(tmp_path: Path) -> None:
    with OpenAIServer([WORDS[0], WORDS[1], Failure(400, message="no"), WORDS[2]]) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        command = ("solve", "Double.", "--model", "openai:gpt-4o", "--journal", "j.sqlite3", "--json")
        cut = coderoom(*command, cwd=tmp_path, env=env)
        done = coderoom(*command, cwd=tmp_path, env=env)
        assert (cut.returncode, done.returncode) == (1, 0), done.stderr
        assert len(server.requests) == 4
    assert json.loads(done.stdout)["usage"].items() >= {"requests": 1, "replayed": 2}.items()
    [run] = json.loads(coderoom("runs", "--journal", "j.sqlite3", "--json", cwd=tmp_path).stdout)["runs"]
    assert run["state"] == "ok"
    facts = json.loads(coderoom("cache", "show", "--journal", "j.sqlite3", "--json", cwd=tmp_path).stdout)
    assert (facts["solutions"], facts["replies"]) == (1, 0)


MODULE = """\
UNIT = 1


def double(x: int) -> int:
    \"\"\"Twice the number.\"\"\"
    return 2 * x * UNIT


def triple(x: int = 1) -> int:
    return 2 * x


def _helper(): ...
"""


@pytest.mark.slow
def test_tests_for_code_that_exists(tmp_path: Path) -> None:
    (tmp_path / "numbers_of.py").write_text(MODULE)
    cases = [{"name": f"{x}", "inputs": {"x": x}, "expected_output": 2 * x} for x in (1, 2, 3)]
    wrong = [{"name": f"{x}", "inputs": {"x": x}, "expected_output": 3 * x} for x in (0, 1, 2)]
    model = recording(tmp_path / "r.json", [json.dumps({"tests": cases}), json.dumps({"tests": wrong})])
    done = solve(tmp_path, "--tests-for", "numbers_of.py", "--model", model, "--out", "out")
    assert (done.returncode, "triple: 1: result: expected 3, got 2" in done.stdout) == (1, True)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    used = {"numbers_of_checks.py"}
    assert names == {"test_numbers_of.py", *used, "report.md", "report.json"}
    assert "a fault of the code or of the test" in (tmp_path / "out" / "report.md").read_text()
    beside = solve(tmp_path, "--tests-for", "numbers_of.py", "--model", model, "--out", ".")
    assert (beside.returncode, (tmp_path / "numbers_of.py").read_text()) == (1, MODULE)
    for folder in ("out", "."):  # The tests find the module wherever they are started.
        files = [str(path) for path in (tmp_path / folder).glob("test_*.py")]
        command = [sys.executable, "-I", *PYTEST, *files]
        tested = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        assert "4 passed" in tested.stdout, tested.stdout
    one = solve(tmp_path, "--tests-for", "numbers_of.py:double", "--model", model, "--json")
    assert (one.returncode, list(json.loads(one.stdout)["tests"])) == (0, ["double"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["numbers_of.py:half"], "The module has no function 'half' at its top level; there are 'double'"),
        (["nowhere.py"], "The module 'nowhere.py' cannot be read: No such file or directory."),
        (["."], "The module '.' cannot be read: Is a directory."),
        (["beside.py"], "No module named 'numbers_of'. In the sandbox it can import installed packages"),
        (["numbers_of.py", "--name", "other"], "--name other: tests are named after the module."),
        (["numbers_of.py", "--language", "shell"], "Tests for existing code are written for Python only"),
        (["numbers_of.py:double", "--tests-for", "other.py"], "one module at a time, not for numbers_of.py, other.py"),
    ],
)
def test_tests_for_what_is_not_there(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "numbers_of.py").write_text(MODULE)
    (tmp_path / "beside.py").write_text(
        "from numbers_of import double\n\n\ndef four(x):\n    return double(double(x))\n"
    )
    model = recording(tmp_path / "r.json", ["{}"])
    done = solve(tmp_path, "--tests-for", *arguments, "--model", model)
    assert (done.returncode, message in " ".join(done.stderr.split())) == (2, True), done.stderr
