"""Chats that go on in another process, with a model service that counts what it is asked."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from coderoom.runs import Journal
from tests.support.commands import chat_process, coderoom, environment
from tests.support.openai_server import OpenAIServer, Stall
from tests.support.screen import Screen

pytestmark = pytest.mark.slow

SETS = ["```python\nx = 41\nprint('x is', x)\n```", "It is set."]
ADDS = ["```python\nx += 1\n```", "One more."]
SHOWS = ["```python\nprint('x is now', x)\n```", "That is it."]


class Service:
    """A model service, and chats with it in a folder."""

    def __init__(self, path: Path, server: OpenAIServer) -> None:
        self.path, self.server = path, server
        self.env = {"CODEROOM_JOURNAL": str(path / "journal"), "CODEROOM_API_KEY": "k", "COLUMNS": "200"}
        self.first = ["code-act", "--model", f"{server.base_url}#m", "--workspace", "work"]

    def chat(self, *arguments: str, lines: str = "", code: int = 0) -> str:
        done = coderoom("chat", *arguments, cwd=self.path, env=self.env, stdin=lines)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def asked(self) -> str:
        """The messages of the last request."""
        return str(self.server.requests[-1].body["messages"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with OpenAIServer([*SETS, *ADDS, *SHOWS]) as server:
        yield Service(tmp_path, server)


def test_a_chat_goes_on_after_what_was_said_run_and_undone(service: Service) -> None:
    service.chat(*service.first, lines="Set x.\n/run x = 7\nAdd one.\n/undo\n")
    shown = service.chat("--continue", lines="/vars\nShow x.\n/tokens\n")
    assert "> Set x.\nIt is set.\n" in shown
    assert "x is now 7" in shown
    assert "Add one." not in shown + service.asked()
    assert "Set x." in service.asked()
    assert len(service.server.requests) == 6
    entry = Journal(service.path / "journal").find("last")
    assert (entry.command, entry.outcome, len(Journal(service.path / "journal").runs())) == ("chat", "ok", 1)


def test_a_chat_whose_tasks_were_all_undone_goes_on_without_them(service: Service) -> None:
    service.chat(*service.first, lines="Set x.\n/undo\n")
    assert "There are no variables." in service.chat("--continue", lines="/vars\n")
    shown = service.chat("--continue", lines="/run x = 1\nAdd one.\n/vars\n")
    assert "x  int  2" in shown
    assert "Set x." not in shown + service.asked()


def test_a_chat_that_was_killed_in_a_task_goes_on_without_paying_twice(tmp_path: Path) -> None:
    endless = "```python\nopen('ran', 'a').write('x')\nwhile True: pass\n```"
    with OpenAIServer([*SETS, endless, *SHOWS]) as server:
        service = Service(tmp_path, server)
        with chat_process(
            *service.first, cwd=tmp_path, env=environment(service.env), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            process.stdin.write(b"Set x.\nLoop.\n")
            process.stdin.flush()
            while process.poll() is None and not (tmp_path / "work" / "ran").exists():
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        shown = service.chat("--continue", "code-act", lines="Show x.\n")
        assert "The last task had not ended." in shown
        assert "x is now 41" in shown
        assert "Loop." in service.asked()
        assert (tmp_path / "work" / "ran").read_text() == "x"
        assert len(server.requests) == 5


def test_a_chat_is_chosen_by_its_id_or_from_a_list(service: Service) -> None:
    service.chat(*service.first, lines="Set x.\nAdd one.\n")
    service.chat(*service.first, "--max-turns", "1", code=1, lines="Set x.\n")
    newer, older = (entry.id for entry in Journal(service.path / "journal").runs())
    shown = service.chat("--resume", code=2)
    assert shown.index(newer) < shown.index(older)
    assert shown.count("Set x.") == 2
    assert "2 tasks, the last one: Add one." in shown.split(older)[1]
    assert "has no chat with the team 'analyst'" in service.chat("--resume", "analyst", code=2)
    assert "has no chat with the team '1999', and none whose id begins so," in service.chat("--resume", "1999", code=2)
    assert "> Set x." in service.chat("--resume", older)
    ours, theirs = pty.openpty()
    with chat_process(
        "--resume", cwd=service.path, env=environment(service.env), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        text = b""
        with suppress(OSError):  # The other side is closed.
            while data := os.read(ours, 65536):
                text += data
                if data.endswith(b"[1] "):
                    os.write(ours, b"2\n")
                if b"/help lists" in data:
                    os.write(ours, b"\x04")
    os.close(ours)
    assert process.returncode == 0, text
    assert b"> Set x." in text


def test_what_does_not_go_with_a_past_chat_is_refused(service: Service) -> None:
    assert "has no chat to go on with" in service.chat("--continue", code=2)
    assert "leave out --wall" in service.chat("--continue", "--wall", "none", code=2)
    assert "leave one of them out" in service.chat("--continue", "--resume", code=2)
    assert "Name a team" in service.chat(code=2)


def test_a_chat_goes_on_after_a_task_that_was_ended_and_a_good_one(tmp_path: Path) -> None:
    looks = "```python\nimport os\nprint('was there:', os.path.exists('f'))\nopen('f', 'w').close()\n```"
    endless = "```python\nprint('has begun', flush=True)\nwhile True: pass\n```"
    with OpenAIServer([looks, "Looked.", endless, *SETS, *SHOWS]) as server:
        service = Service(tmp_path, server)
        arguments = [*service.first, "--workspace-mode", "overlay"]
        ours, theirs = pty.openpty()
        with chat_process(
            *arguments, cwd=tmp_path, env=environment(service.env), stdin=theirs, stdout=subprocess.PIPE, text=True
        ) as process:
            os.close(theirs)
            assert process.stdout is not None
            os.write(ours, b"Look.\nLoop.\n")
            shown = _until(process.stdout, "has begun")
            process.send_signal(signal.SIGINT)
            shown += _until(process.stdout, "cancelled ·")
            os.write(ours, b"Set x.\n/apply\n/exit\n")
            shown += process.stdout.read()
        os.close(ours)
        assert "x is 41" in shown, shown
        assert re.search("was stopped from outside|was ended before the code above", service.asked())
        assert Journal(tmp_path / "journal").find("last").outcome == "ok"
        (tmp_path / "work" / "f").unlink()  # So that the first code comes out as it did first.
        assert "x is now 41" in service.chat("--continue", lines="Show x.\n")
        assert len(server.requests) == 7


def test_a_reply_that_ctrl_c_has_cut_off_costs_nothing_else(tmp_path: Path) -> None:
    half = "Half of an answer that nobody has asked for any more. "
    begins = "```python\ny = x + 1\nopen('ran', 'a').write('x')\n```"
    shows = "```python\nprint('y is', y)\n```"
    with OpenAIServer([*SETS, begins, Stall(30, content=half), Stall(30), shows, "That is it.", *SHOWS]) as server:
        service = Service(tmp_path, server)
        screen = Screen(tmp_path, (), options=service.first[1:], env={**service.env, "COLUMNS": ""})
        try:
            screen.type("Set x.", "Enter")
            screen.until("It is set.")
            screen.type("Begin.", "Enter")
            screen.until("nobody has asked")
            screen.type("C-c")
            screen.until("cancelled")
            screen.type("Again.", "Enter")
            server.wait_for_requests(5)
            assert screen.text.count("nobody has asked") == 1, "the old text is shown once, and not with the next task"
            screen.type("C-c")
            screen.until(lambda: screen.text.count("cancelled") == 2)
            assert screen.text.count("nobody has asked") == 1
            screen.type("Show y.", "Enter")
            screen.until("That is it.")
            assert "y is 42" in screen.text
            assert "runs the code of earlier tasks again" not in screen.text
            assert (tmp_path / "work" / "ran").read_text() == "x"
            assert "y = x + 1" in service.asked()
            assert half not in service.asked()
            screen.type("exit", "Enter")
            screen.until("ended with")
        finally:
            screen.end()
        assert "x is now 41" in service.chat("--continue", lines="Show x.\n")
        assert len(server.requests) == 9


def _until(stream: IO[str], words: str) -> str:
    """What is shown until these words are."""
    shown = ""
    while words not in shown:
        line = stream.readline()
        assert line, shown
        shown += line
    return shown
