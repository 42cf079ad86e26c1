"""Commands and teams whose code runs at a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import coderoom
from tests.support.sandbox_server import TOKEN, shared_server

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


def test_exec(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("from here")
    (tmp_path / "cells.md").write_text(
        "```python\nx = open('given.txt').read()\n```\n```sh\necho at > there.txt\n```\n```python\nprint(x)\n```\n"
    )
    command = ("exec", "cells.md", "--server", shared_server()["url"], "--json")
    done = coderoom(*command, cwd=tmp_path, env={"CODEROOM_TOKEN": TOKEN})
    result = json.loads(done.stdout)
    assert (done.returncode, result["isolation"]) == (0, "remote"), result
    assert result["runs"][2]["output"] == "from here\n", result
    assert (tmp_path / "there.txt").read_text() == "at\n"
    done = coderoom(*command, cwd=tmp_path, env={"CODEROOM_TOKEN": "wrong-token"})
    assert (done.returncode, "does not know the token" in done.stderr) == (2, True), done.stderr


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
