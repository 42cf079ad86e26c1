"""A journal or a workspace on a full disk or in a read-only folder; an old journal; a clock that jumps."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coderoom.generation import Reply, SolutionCache
from coderoom.runs import Journal
from tests.support.commands import coderoom, coderoom_process, environment, recording
from tests.support.openai_server import OpenAIServer

CODE = "```python\nimport random\nprint(random.randbytes(20_000).hex())\n```"
RUN = ("run", "code-act", "Compute it.", "--wall", "none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("size=1300k", "disk is full"),
        pytest.param("ro", "unable to open database file|Read-only file system", marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_takes_no_more_loses_no_answer(tmp_path: Path, options: str, words: str) -> None:
    model = recording(
        tmp_path / "r.json", [*[CODE.replace("20_000", f"2{number}_000") for number in range(9)], "Done."]
    )
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    kept.mkdir()
    command = [sys.executable, "-m", "coderoom", *RUN, "--model", model, "--json"]
    script = f'mount -t tmpfs -o {options} tmpfs {disk} && "$@"; cp {disk}/* {kept} 2>/dev/null'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command],
        cwd=tmp_path,
        env=environment({"CODEROOM_JOURNAL": str(disk / "journal.sqlite3")}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    record = json.loads(done.stdout)
    assert (record["answer"], record["outcome"], record["run"]) == ("Done.", "ok", None), done.stderr
    notices = "\n".join(record["notices"])
    assert any(each in notices for each in words.split("|")), notices
    if options != "ro":
        journal = Journal(kept / "journal.sqlite3")
        steps = list(journal.steps(journal.find("last").id))
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert len([step for step in steps if step.kind == "code"]) > 1


@pytest.mark.slow
def test_a_journal_in_a_read_only_folder_can_be_read(tmp_path: Path) -> None:
    journal, model = tmp_path / "disk" / "journal.sqlite3", recording(tmp_path / "r.json", ["Done."])
    (tmp_path / "disk").mkdir()
    coderoom_process(*RUN, "--model", model, "--journal", str(journal), cwd=tmp_path)
    runs = [sys.executable, "-m", "coderoom", "runs"]
    script = f'mount --bind {tmp_path}/disk {tmp_path}/disk && mount -o remount,ro,bind {tmp_path}/disk && "$@"'
    for command, code in (("show", 0), ("rm", 3)):
        arguments = [command, "last", "--journal", str(journal)]
        done = subprocess.run(
            [*["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"], script, "sh", *runs, *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert ("Done." in done.stdout) or ("readonly" in done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "folder", "words"),
    [
        ("size=4k", ".", "No space left on device"),
        pytest.param("ro", "new", "Read-only file system", marks=pytest.mark.slow),
    ],
)
def test_a_workspace_that_takes_nothing_is_refused_before_a_model_is_asked(
    tmp_path: Path, options: str, folder: str, words: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with OpenAIServer(["It is done."]) as server:
        command = [sys.executable, "-m", "coderoom", *RUN, "--model", f"{server.base_url}#mine", "--workspace"]
        script = f'mount -t tmpfs -o {options} tmpfs {disk} && echo x 2>/dev/null >{disk}/full; "$@"'
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command, str(disk / folder)],
            env=environment({"CODEROOM_JOURNAL": "off"}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert server.requests == []
    assert (done.returncode, done.stdout) == (2, "")
    said = f"coderoom: The workspace {str((disk / folder).resolve())!r} cannot be written to: {words}.\n"
    assert done.stderr == f"team code-act\n{said}"


# Each run had its own contents, and there was no list of runs, and no question.
OLD_CONTENTS = """
    DROP VIEW listed; DROP TABLE listing; DROP TABLE searched; DROP TABLE stops; DROP TABLE questions;
    CREATE TABLE old (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, hash TEXT NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (run, hash)
    );
    INSERT INTO old SELECT run, hash, data FROM contents;
    DROP VIEW contents; DROP TABLE kept; DROP TABLE data; ALTER TABLE old RENAME TO contents;
"""


@pytest.mark.parametrize("schema", ["DROP INDEX steps_model; PRAGMA user_version = 1", "PRAGMA user_version = 2"])
def test_a_journal_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path, schema: str) -> None:
    file = tmp_path / "journal.sqlite3"
    options = ("--model", recording(tmp_path / "r.json", ["Hello."]), "--journal", str(file), "--json")
    first = json.loads(coderoom(*RUN, *options, cwd=tmp_path).stdout)
    with sqlite3.connect(file) as database:
        newer = "".join(f"DROP TABLE {name};" for name in ("solutions", "doings", "said", "chats"))
        database.executescript(f"{OLD_CONTENTS} {newer} {schema}")
    SolutionCache(file).journal("k").add("r", Reply("x"))
    second = json.loads(coderoom(*RUN, *options, cwd=tmp_path).stdout)
    journal = Journal(file)
    assert [entry.id for entry in journal.runs()] == [second["run"], first["run"]]
    assert list(journal.steps(first["run"]))
    assert SolutionCache(file).stats().answers == 1
    with sqlite3.connect(file) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (12,)
        assert database.execute("SELECT name FROM sqlite_master WHERE name = 'steps_model'").fetchone()


def test_a_clock_that_jumps_back_does_not_change_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, now = Journal(tmp_path / "journal.sqlite3"), time.time()
    runs = []
    for jump in (0, -86_400, 3_600, -60):
        monkeypatch.setattr(time, "time", lambda at=now + jump: at)
        runs.append(journal.begin("run", "team", "x", None, {}))
    assert [entry.id for entry in journal.runs()] == runs[::-1]
    assert journal.find("last").id == runs[-1]
    assert journal.runs(most=1)[0].id == runs[-1]
