"""Runs whose code a person decides on at a terminal, which are killed, and go on where they were."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import coderoom, environment
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

QUESTION = b"[y/N/e] "
WRITES = "```python\nopen('written', 'w')\n```"
COMPUTES = "```python\nimport os, time\nopen('begun', 'w').close()\nprint(6 * 6)\n```"
EDITS = r"""#!/bin/sh
sed -i 's/6 \* 6/6 * 7/; s/^print/while not os.path.exists("go"): time.sleep(0.05)\n&/' "$1"
"""


class Person:
    """Answers the questions of a command at its terminal, one after the other, in a thread."""

    question = QUESTION

    def __init__(self, process: subprocess.Popen[bytes], terminal: int, answers: list[str]) -> None:
        self.process, self.shown = process, b""
        self._terminal, self._answers = terminal, answers
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        asked = 0
        with suppress(OSError):  # The other side is closed.
            while data := os.read(self._terminal, 65_536):
                self.shown += data
                if self.shown.count(self.question) > asked and self._answers:
                    asked += 1
                    os.write(self._terminal, self._answers.pop(0).encode())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> str:
        self.process.wait(60)
        self._thread.join(60)
        return self.shown.decode()


class Room:
    """A folder with a journal, an editor and a model."""

    def __init__(self, path: Path, server: OpenAIServer) -> None:
        self.path = path
        self.work = path / "work"
        (path / "edits").write_text(EDITS)
        (path / "edits").chmod(0o755)
        self.env = {
            "TERM": "xterm",
            "EDITOR": str(path / "edits"),
            "VISUAL": "",
            "OPENAI_API_KEY": "test-key-1234",
            "OPENAI_BASE_URL": server.base_url,
            "CODEROOM_MODEL": "gpt-4o-2024-08-06",
            "CODEROOM_JOURNAL": str(path / "journal.sqlite3"),
        }

    def begin(self, *arguments: str, answers: list[str]) -> Person:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "coderoom", *arguments]
        process = subprocess.Popen(
            command, cwd=self.path, env=environment(self.env), stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        return Person(process, ours, answers)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer([WRITES, COMPUTES, "It is 42."]) as server:
        yield server


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


RUN = ("run", "human-approves", "What is 6 times 7?", "--workspace", "work")


def test_a_question_is_asked_again_and_only_that_one(tmp_path: Path, server: OpenAIServer) -> None:
    room = Room(tmp_path, server)
    person = room.begin(*RUN, answers=["n because it writes a file\n"])
    wait_for(lambda: person.shown.count(QUESTION) == 2)
    person.kill()
    room.work.mkdir(exist_ok=True)
    (room.work / "go").touch()
    shown = room.begin("resume", answers=["e\n", "y\n"]).end()
    assert "It is 42." in shown
    assert shown.count("Run this code?") == 2
    assert [len(request.messages) for request in server.requests] == [2, 5, 7]
    assert "Reason: it writes a file" in server.requests[1].messages[3]["content"]
    assert "6 * 7" in server.requests[2].messages[-1]["content"]
    assert not (room.work / "written").exists()


def test_edited_code_runs_again_without_a_question(tmp_path: Path, server: OpenAIServer) -> None:
    room = Room(tmp_path, server)
    person = room.begin(*RUN, answers=["n because it writes a file\n", "e\n", "y\n"])
    wait_for((room.work / "begun").exists)  # It waits for the other file.
    person.kill()
    (room.work / "go").touch()
    done = coderoom("resume", "--json", cwd=tmp_path, env=room.env)
    run = json.loads(done.stdout)
    assert (run["outcome"], run["answer"]) == ("ok", "It is 42."), done.stderr
    assert "Run this code?" not in done.stderr
    assert len(server.requests) == 3
    seen = server.requests[2].messages[-1]["content"]
    assert "A person has edited the code" in seen
    assert "6 * 7" in seen
    assert "```\n\n42\n" in seen
