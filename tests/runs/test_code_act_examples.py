"""The examples of `CodeActAgent`, as a person starts them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.runs.answers import python
from tests.support.commands import ROOT, coderoom, recording, run_script
from tests.support.openai_server import OpenAIServer

SCRIPT = ROOT / "examples" / "code_act.py"
TEAM = ROOT / "examples" / "code_act_team.yaml"


def run(cwd: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = run_script(SCRIPT, *arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return done


def sum_of_fibonacci(count: int) -> int:
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return sum(numbers[:count])


def test_the_walk_through_runs_without_a_key(tmp_path: Path) -> None:
    done = run(tmp_path)
    answers = [sum(range(1, 11)), (5 + 3) * 2, sum_of_fibonacci(10), sum_of_fibonacci(20)]
    printed = [line for line in done.stdout.splitlines() if line.startswith("[exit code")]
    # What the code gave is what the recorded words say.
    assert printed == [f"[exit code 0] {answer}" for answer in answers]
    for answer in answers:
        assert f" {answer}.\n(answered)\n" in done.stdout
    assert done.stdout.count("def fibonacci") == 1
    assert done.stderr == "The model is a recording: its words were written beforehand, all else is real.\n"
    assert list(tmp_path.iterdir()) == []


def test_it_asks_a_real_model(tmp_path: Path) -> None:
    script = [python("divide(subtract(9, 2), 2)"), "3.5.", "Two.", "Three.", "Four."]
    with OpenAIServer(script) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        done = run(tmp_path, "--model", "openai:some-new-model", **env)
        requests = server.requests
    assert "[exit code 0] 3.5\n" in done.stdout
    assert done.stderr == ""
    system = requests[0].messages[0]["content"]
    for name in ("add", "subtract", "multiply", "divide"):
        assert f"def {name}(a: int, b: int) -> " in system


def test_the_team_is_valid_and_runs(tmp_path: Path) -> None:
    assert coderoom("validate", str(TEAM), cwd=tmp_path).returncode == 0
    review = '{"approved": true, "issues": [], "summary": "It was computed."}'
    replies = [python("x = 2 ** 50"), python("print(x ** 2)"), "It is 1267650600228229401496703205376.", review]
    model = recording(tmp_path / "replies.json", replies)
    done = coderoom("run", str(TEAM), "What is 2 to the power of 100?", "--model", model, "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["approved"], found["outcome"]) == (0, True, "ok")
    assert str(2**100) in done.stdout


def test_the_teams_comment_is_a_workbench_that_can_be_put_in(tmp_path: Path) -> None:
    lines = TEAM.read_text().splitlines(keepends=True)
    comment = [line.removeprefix("# ").removeprefix("#") for line in lines if line.startswith("#         ")]
    place = next(number for number, line in enumerate(lines) if "max_steps" in line)
    file = tmp_path / "team.yaml"
    file.write_text("".join([*lines[:place], *comment, *lines[place:]]).replace("#         ", "# "))
    assert "workbench:" in file.read_text()
    done = coderoom("validate", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
