"""Commands and teams whose code runs at a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import coderoom, environment, recording
from tests.support.sandbox_server import TOKEN, shared_server
from tests.support.solving import GOOD, SPECS, TESTS

pytestmark = pytest.mark.slow

RECORDING = """\
replies:
- |
  ```python
  open("made.txt", "w").write(str(6 * 7))
  print(open("made.txt").read())
  ```
- It is 42.
"""
GOOD_IN_BASH = "~~~bash\n# double(x: int) -> int\ndouble() {\n  echo $(( 2 * $1 ))\n}\n~~~"


def test_exec(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("from here")
    (tmp_path / "cells.md").write_text(
        "```python\nx = open('given.txt').read()\n```\n```sh\necho at > there.txt\n```\n```python\nprint(x)\n```\n"
    )
    command = ("exec", "cells.md", "--server", shared_server()["url"], "--json")
    tokens = {"CODEROOM_SERVER_TOKEN": TOKEN, "CODEROOM_TOKEN": "of-our-callers"}
    done = coderoom(*command, cwd=tmp_path, env=tokens)
    result = json.loads(done.stdout)
    assert (done.returncode, result["isolation"]) == (0, "remote"), result
    assert result["runs"][2]["output"] == "from here\n", result
    assert (tmp_path / "there.txt").read_text() == "at\n"
    done = coderoom(*command, cwd=tmp_path, env={"CODEROOM_TOKEN": "wrong-token"})
    assert (done.returncode, "does not know the token" in done.stderr) == (2, True), done.stderr
    for door in (("serve", "code-act"), ("mcp", "--http", "0")):
        done = coderoom(*door, *command[2:4], cwd=tmp_path, env={"CODEROOM_TOKEN": "of-our-callers"})
        assert (done.returncode, "set CODEROOM_SERVER_TOKEN to" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("where", ["here", "there"])
def test_exec_reads_what_comes_through_a_pipe_without_an_end(tmp_path: Path, where: str) -> None:
    (tmp_path / "double.py").write_text("print(2 * int(input()), flush=True)\nprint(3 * int(input()))\n")
    server = ["--server", shared_server()["url"]] if where == "there" else []
    command = [sys.executable, "-m", "coderoom", "exec", "double.py", "--stdin", "-", *server]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    env = environment({"CODEROOM_TOKEN": TOKEN})
    with subprocess.Popen(command, cwd=tmp_path, env=env, **pipes) as running:  # type: ignore[call-overload]
        running.stdin.write("21\n")
        while "42" not in (line := running.stdout.readline()):
            assert line
        running.stdin.write("14\n")
        assert running.wait(60) == 0  # Its input has no end yet.
        assert "42\n" in running.stdout.read()


def test_a_team(tmp_path: Path) -> None:
    (tmp_path / "recording.yaml").write_text(RECORDING)
    arguments = (
        "--model",
        "replay:recording.yaml",
        "--workspace",
        "folder",
        "--server",
        shared_server()["url"],
        "--json",
    )
    done = coderoom("run", "coder-executor", "6 * 7?", *arguments, cwd=tmp_path, env={"CODEROOM_TOKEN": TOKEN})
    run = json.loads(done.stdout)
    assert (done.returncode, run["succeeded"], run["isolation"]) == (0, True, "remote"), done.stdout
    assert (tmp_path / "folder" / "made.txt").read_text() == "42"
    assert TOKEN not in done.stdout + done.stderr


def test_the_judge(tmp_path: Path) -> None:
    code = {"order.py": "def order(items):\n    return sorted(items)\n"}
    code["test_order.py"] = "from order import order\n\ndef test_order():\n    assert order([2, 1]) == [1, 2]\n"
    for folder in ("repository", "candidate"):
        (tmp_path / folder).mkdir()
        for name, text in code.items():
            (tmp_path / folder / name).write_text(text)
    (tmp_path / "candidate" / "order.py").write_text("def order(items):\n    return items\n")
    (tmp_path / "test_order.py").write_text(code["test_order.py"])
    (tmp_path / "cases.json").write_text('{"tests": [{"stdin": "2", "stdout": "4"}]}')
    (tmp_path / "double.py").write_text("print(2 * int(input()))\n")
    server, env = ("--server", shared_server()["url"]), {"CODEROOM_TOKEN": TOKEN}
    for arguments, passes in (
        (("test_order.py", "--candidate", "repository/order.py", "--strength"), True),
        (("test_order.py", "--candidate", "candidate/order.py"), False),
        (("repository", "--candidate", "candidate", "--command", "python -m pytest -q"), False),
        (("cases.json", "--candidate", "double.py"), True),
    ):
        done = coderoom("judge", *arguments, *server, cwd=tmp_path, env=env)
        assert done.returncode == (0 if passes else 1), (arguments, done.stdout, done.stderr)
        assert f"{int(passes)} of 1 tests passed" in done.stdout
    done = coderoom("judge", "gauntlet", "--against", "exec", *server, cwd=tmp_path, env=env)
    assert (done.returncode, "other harnesses run here" in done.stderr) == (2, True), done.stderr
    beside = ("repository/test_order.py", "--candidate", "candidate/order.py")
    done = coderoom("judge", *beside, cwd=tmp_path)
    assert (done.returncode, "they would import it, and not" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("language", "code"), [("python", GOOD), ("shell", GOOD_IN_BASH)])
def test_solve(tmp_path: Path, language: str, code: str) -> None:
    model = recording(tmp_path / "replies.json", [SPECS, TESTS, code])
    arguments = (
        "Double.",
        "--model",
        model,
        "--language",
        language,
        "--no-journal",
        "--server",
        shared_server()["url"],
    )
    done = coderoom("solve", *arguments, cwd=tmp_path, env={"CODEROOM_TOKEN": TOKEN})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Code runs at a server, and not on this machine.")
    assert "3 of 3 tests passed" in done.stdout
