from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coderoom.runs.prompt.command import Command
from coderoom.runs.prompt.completing import candidates, paths, teams
from coderoom.runs.prompt.history import TaskHistory


async def _do(*_: object) -> None: ...


COMMANDS = {
    "/file": Command("PATH", "Takes a file.", _do, paths),
    "/files": Command("", "Lists files.", _do),
    "!": Command("COMMAND", "Runs it.", _do),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("sales.csv", "sales of may.csv", ".hidden", "team.yaml", "bad\x1b[2J.csv", "übung.txt"):
        (tmp_path / name).touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/fi", ["/file", "/files"]),
        ("/file s", ["/file sales of may.csv", "/file sales.csv", "/file src/"]),
        ("/file src/", ["/file src/main.py"]),
        ("/files s", []),
        ("Look at @sr", ["Look at @src/"]),
        ("Look at @src/m", ["Look at @src/main.py"]),
        ("@.", ["@.hidden"]),
        ("@ü", ["@übung.txt"]),
        ("@bad", []),  # Its name would control the terminal.
        ("a@s", []),
        ("@none/", []),
        ("@~nobody-of-this-name/", []),
        ("!ls s", []),
        ("", []),
    ],
)
def test_what_a_text_may_go_on_with(before: str, after: list[str]) -> None:
    found = [before[: len(before) - each.replaced] + each.text for each in candidates(before, COMMANDS)]
    assert found == after


@pytest.mark.slow
def test_teams_are_shipped_ones_and_files() -> None:
    assert list(teams("code")) == ["code-act", "coder-executor", "coder-reviewer"]
    assert list(teams("te")) == ["test-driven", "team.yaml"]


def test_the_history_of_many_long_tasks_stays_small_and_ends_with_the_last_one(folder: Path) -> None:
    file = folder / "state" / "tasks.jsonl"
    first = TaskHistory(file)
    for number in range(30):
        first.append_string(f"{number}\n" + "x" * 100_000)
    file.write_bytes(file.read_bytes() + b'"cut by a full d')

    async def load() -> list[str]:
        return [task async for task in TaskHistory(file).load()]

    tasks = asyncio.run(load())
    assert [task.partition("\n")[0] for task in tasks] == [str(number) for number in range(29, 20, -1)]
    assert file.stat().st_size <= 1_000_000
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_costs_only_the_history(folder: Path) -> None:
    (folder / "state").touch()
    history = TaskHistory(folder / "state" / "tasks.jsonl")
    history.append_string("a task")
    assert history.get_strings() == ["a task"]
