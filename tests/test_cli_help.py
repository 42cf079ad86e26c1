"""The examples in the help of commands are words that they take, and the quick ones run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from coderoom.cli import app
from coderoom.cli.examples import EXAMPLES
from tests.support.commands import ROOT, coderoom, recording
from tests.support.openai_server import OpenAIServer

QUICK = [
    "ask",
    "exec",
    "teams",
    "show",
    "init",
    "validate",
    "convert",
    "gallery",
    "schema",
    "doctor",
    "packages",
    "cache show",
    "runs",
    "runs show",
    "runs export",
    "runs policy",
    "runs lock",
    "runs rm",
    "runs prune",
]


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """All commands that are listed, by their words."""
    yield " ".join(path), group
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            yield from commands(command, *path, name)


def words_of(line: str) -> list[str]:
    """The words of the command in a line, after its name."""
    return shlex.split(line.rpartition(" | ")[2].removeprefix("coderoom "))


def test_each_command_has_examples_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["coderoom", *EXAMPLES])
    app.add_fields()
    known = dict(commands(typer.main.get_command(app.app)))
    assert known.keys() == EXAMPLES.keys()
    for lines in EXAMPLES.values():
        for line in lines:
            words, path = words_of(line), ""
            while words and f"{path} {words[0]}".strip() in known:
                path, words = f"{path} {words[0]}".strip(), words[1:]
            known[path].make_context(path, words)


def test_the_help_ends_with_the_examples(tmp_path: Path) -> None:
    for path in ("", "ask", "runs show"):
        shown = coderoom(*path.split(), "--help", cwd=tmp_path).stdout
        assert shown.endswith("Examples:\n" + "".join(f"  {line}\n" for line in EXAMPLES[path]))


@pytest.mark.slow
def test_the_quick_ones_run(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "notes.md").write_text("```python\nprint(6 * 7)\n```\n")
    (tmp_path / "script.py").write_text("import sys\nassert sys.argv[1:] == ['--verbose'] and input() == 'a,b'\n")
    (tmp_path / "autogen.json").write_bytes((ROOT / "examples" / "autogen.json").read_bytes())
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal.sqlite3"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = (
        "run",
        "code-act",
        "One.",
        "--json",
        "-m",
        recording(tmp_path / "r.json", ["```python\nprint(1)\n```", "One."]),
    )
    first = json.loads(coderoom(*run, cwd=tmp_path, env=env).stdout)["run"]
    coderoom(*run, cwd=tmp_path, env=env)
    with OpenAIServer(respond=lambda request: "Fine.") as server:
        env |= {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": server.base_url}
        for line in (line for command in QUICK for line in EXAMPLES[command] if "--package" not in line):  # Slow.
            (tmp_path / "team.yaml").unlink(missing_ok=True)
            if "init" not in line and "--out team.yaml" not in line:
                coderoom("init", "team.yaml", "-y", cwd=tmp_path)
            words = [first if word == "20261128-1322" else word for word in words_of(line)]
            done = coderoom(*words, cwd=tmp_path, env=env)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
