"""The log of a run: what a resumed run finds in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from autogen_core.models import UserMessage

from coderoom._util import database
from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel
from coderoom.errors import JournalError
from coderoom.models.watching import watch_client
from coderoom.runs import Journal, RunRecord, run_log
from coderoom.runs.run_log import RunLog, conversations
from coderoom.steps import observing


async def test_a_function_answers_old_code_from_the_journal_and_new_code_itself(tmp_path: Path) -> None:
    calls: list[int] = []

    def status() -> int:
        calls.append(len(calls))
        return len(calls)

    undone = "```python\nprint(f'status {status()}')\n1 / 0\n```"
    polls, journal = "```python\nseen = status()\nprint(f'status {seen}')\n```", Journal(tmp_path / "journal")
    log = RunLog(journal)
    log.begin("run", "t", "x", None, {})
    outputs = []
    for replies in ([polls, undone], [polls, undone, polls, "Done."]):
        model = ReplayModel(replies)
        watch_client(model)
        agent = CodeActAgent("actor", model, tools=[status], on_error="rollback")
        with observing(log), suppress(Exception):
            result = await agent.run(task="Poll.")
            outputs = re.findall(r"status \d", str([message.to_text() for message in result.messages[1:-1]]))
        await agent.close()
        assert log.doings.facts() == []  # Also what has failed has ended: here, the request after the last reply.
        log = RunLog(journal, run=log.run, known=list(journal.steps(str(log.run))))
    assert outputs == ["status 1", "status 2", "status 3"]
    assert len(calls) == 3


def test_conversations_that_grow_shrink_and_change_are_read_back(tmp_path: Path) -> None:
    chance, messages = Random(5), [UserMessage(content=f"{number}", source="user") for number in range(30)]
    journal = Journal(tmp_path / "journal.sqlite3")
    log = RunLog(journal)
    log.begin("run", "team", "Count.", None, {})
    asked: list[list[str]] = []
    given: list[UserMessage] = []
    for _ in range(300):
        cut = chance.randrange(len(given) + 1)
        given = chance.choice(
            [given, given[cut:], given[:cut], [*given[:cut], chance.choice(messages), *given[cut + 1 :]]]
        )
        given = given + chance.choices(messages, k=chance.randrange(4))
        request = {"messages": given, "model": "m"}
        assert log.find("model", request) is None
        log.keep("model", request, {"content": "Yes."}, 0.0, known=False)
        asked.append([message.content for message in given if isinstance(message.content, str)])
    steps = list(journal.steps(str(log.run)))
    contents = {name: json.loads(journal.content(str(log.run), name))["content"]
                for names in conversations(steps).values() for name in names}  # fmt: skip
    assert [[contents[name] for name in conversations(steps)[step.number]] for step in steps] == asked
    assert len({step.key for step in steps}) == len(set(map(tuple, asked)))


def test_files_are_kept_once_and_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "_LARGEST_FILE", 1_000)
    monkeypatch.setattr(run_log, "_MOST_KEPT", 2_500)
    sizes = {"a": 900, "same": 900, "b": 800, "large": 1_001, "c": 700, "beyond": 900}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(("a" if name == "same" else name[0]).encode() * size)
    (tmp_path / "secret").symlink_to("/etc/passwd")
    journal = Journal(tmp_path / "journal.sqlite3")
    runs = []
    for _ in range(2):
        log = RunLog(journal)
        log.begin("run", "t", "x", None, {})
        made = [{"name": name, "path": str(tmp_path / name)} for name in [*sizes, "secret"]]
        log.keep("code", {"blocks": []}, {"artifacts": made}, 0.0, known=False)
        record = RunRecord("t", "x")
        log.end(record)
        kept = {each["name"]: len(journal.content(str(log.run), each.get("hash", ""))) for each in made}
        assert kept == {"a": 900, "same": 900, "b": 800, "large": 0, "c": 700, "beyond": 0, "secret": 0}
        assert made[3]["hash"] == sha256((tmp_path / "large").read_bytes()).hexdigest()[:32]
        assert "Of 2 files" in str(record.notices)
        runs.append(str(log.run))
    with sqlite3.connect(journal.path) as database:
        assert database.execute("SELECT COUNT(*), SUM(LENGTH(data)) FROM data").fetchone() == (3, 2_400)
    journal.put(journal.take(runs[0]))
    journal.remove(runs[1:])
    assert journal.size(runs[0]) == 2_400
    journal.remove(runs[:1])
    with sqlite3.connect(journal.path) as database:
        assert database.execute("SELECT COUNT(*) FROM data").fetchone() == (0,)


def test_a_journal_of_the_version_before_is_read_also_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    with sqlite3.connect(path) as old:
        old.executescript(";".join(database._SCHEMAS[:3]))
        old.executescript(f"PRAGMA application_id = {database._APPLICATION}; PRAGMA user_version = 3")
        old.execute("INSERT INTO runs (id, command, name, task, started, request) VALUES ('r', 'run', '', '', 0, '{}')")
        old.execute("INSERT INTO contents VALUES ('r', 'h', X'78')")
    old.close()
    connection, copy = database._connect_read_only(path)
    connection.close()
    assert copy is not None
    for each in (path, copy / path.name):
        assert Journal(each).content("r", "h") == b"x"
    shutil.rmtree(copy)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize("required", [False, True])
def test_the_end_of_a_run_fits_on_a_full_disk(tmp_path: Path, required: bool) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", tmp_path], check=True)
    try:
        journal = Journal(tmp_path / "journal.sqlite3", required=required)
        log = RunLog(journal)
        log.begin("run", "t", "x", None, {})
        with suppress(OSError), (tmp_path / "all").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        record = RunRecord("t", "x")
        with pytest.raises(JournalError, match="is full") if required else nullcontext():
            log.write("code", {"output": "x" * 100_000})
        with pytest.raises(JournalError, match="is full") if required else nullcontext():
            log.end(record)
        assert required or "full" in str(record.notices)
        assert [entry.state for entry in journal.runs()] == [record.outcome]
        journal.close()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_read_only_folder_has_the_newest_runs(tmp_path: Path) -> None:
    folder, copies = tmp_path / "journal", tmp_path / "copies"
    journal = Journal(folder / "journal.sqlite3")
    journal.begin("run", "t", "live", None, {})
    shutil.copytree(folder, copies)
    (copies / "journal.sqlite3-shm").unlink()
    for each in (folder, copies):
        subprocess.run(["mount", "--bind", "-o", "ro", each, each], check=True)
        try:
            reader = Journal(each / "journal.sqlite3")
            assert [entry.task for entry in reader.runs()] == ["live"]
            reader.close()
        finally:
            subprocess.run(["umount", "-l", each], check=True)


def test_a_journal_that_is_removed_meanwhile_is_told_of(tmp_path: Path) -> None:
    log = RunLog(Journal(tmp_path / "journal.sqlite3"))
    log.begin("run", "t", "x", None, {})
    for file in tmp_path.iterdir():
        file.unlink()
    record = RunRecord("t", "x")
    log.end(record)
    assert "was removed or replaced" in str(record.notices)


@pytest.mark.slow
def test_forty_processes_write_to_one_journal(tmp_path: Path) -> None:
    code = (
        "import sys; from coderoom.runs import Journal, Step; journal = Journal(sys.argv[1])\n"
        "run = journal.begin('run', 't', 'x', None, {})\n"
        "for number in range(30): journal.add(run, Step(number, 'call', '', '', 0.0, 0.0, {}, 'x' * 5000))\n"
        "journal.end(run, 'ok', {})"
    )
    path = tmp_path / "journal.sqlite3"
    processes = [subprocess.Popen([sys.executable, "-c", code, path]) for _ in range(40)]
    assert not any(process.wait() for process in processes)
    assert len(Journal(path).runs(outcome="ok")) == 40
