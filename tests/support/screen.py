"""A real terminal: tmux, whose screen a person would see."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.commands import environment, recording

__all__ = ["Screen"]


class Screen:
    """A chat in a terminal of its own."""

    def __init__(
        self,
        folder: Path,
        replies: Sequence[str],
        team: str = "code-act",
        options: Sequence[str] | None = None,
        term: str = "tmux-256color",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._socket = folder, str(folder / f"tmux-{len(list(folder.glob('tmux-*')))}")
        self.history = folder / "state" / "coderoom" / "tasks.jsonl"
        (folder / "w").mkdir(exist_ok=True)
        if options is None:
            options = ["--model", recording(folder / "replies.json", replies), "--workspace", "w"]
        state = {"XDG_STATE_HOME": str(folder / "state"), "CODEROOM_JOURNAL": str(folder / "journal.sqlite3")}
        kept = {**environment({**state, **(env or {})}), "TERM": "xterm", "PYTHONPATH": str(folder / "own")}
        del kept["COLUMNS"]
        chat = shlex.join([sys.executable, "-m", "coderoom", "chat", team, *options])
        line = f"TERM={term} {chat}; echo ended with $?; stty -a | grep -o ' -*icanon'; exec cat"
        settings = ["-f", os.devnull, "set-option", "-g", "history-limit", "20000", ";"]
        self.tmux(*settings, "new-session", "-d", "-x", "100", "-y", "40", "-c", str(folder), line, env=kept)
        try:
            self.until("\n>")
        except BaseException:
            self.end()
            raise

    def tmux(self, *arguments: str, env: dict[str, str] | None = None, given: str = "") -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, *arguments],
            env=env,
            input=given,
            capture_output=True,
            text=True,
            check=arguments[0] not in ("kill-server", "list-panes"),  # It ends with its last terminal.
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        """Press keys by their names in tmux, or type texts."""
        for key in keys:
            named = re.fullmatch(r"(?:[CM]-)?(?:[\w\\]|Enter|Tab|Up|Down|Left|Home|BSpace)", key)
            self.tmux("send-keys", *([] if named else ["-l"]), "--", key)

    def paste(self, text: str) -> None:
        self.tmux("load-buffer", "-", given=text)
        self.tmux("paste-buffer", "-p", "-r")

    @property
    def text(self) -> str:
        """All that was shown so far and not removed."""
        lines = self.tmux("capture-pane", "-p", "-J", "-S", "-").splitlines()
        return "\n".join(line.rstrip() for line in lines).rstrip()

    @property
    def line(self) -> str:
        """What stands at the prompt, with its further lines."""
        return re.split(r"^>(?: |$)", self.text, flags=re.MULTILINE)[-1]

    def until(self, wanted: str | Callable[[], bool]) -> None:
        """Wait for a text, or until something is so."""
        deadline = time.monotonic() + 40
        while not (wanted in self.text if isinstance(wanted, str) else wanted()):
            assert time.monotonic() < deadline, f"{wanted!r} did not come:\n{self.text}"
            time.sleep(0.1)

    def until_line(self, wanted: str) -> None:
        self.until(lambda: self.line == wanted)

    def tasks(self) -> list[str]:
        """The tasks that the team was given."""
        found = re.findall(r"^> (.+(?:\n  .+)*)\n(?!  )", self.text, re.MULTILINE)
        return [task.replace("\n  ", "\n") for task in found]

    def _chats(self) -> list[int]:
        panes = [int(pid) for pid in self.tmux("list-panes", "-s", "-F", "#{pane_pid}").split()]
        return [pid for pane in panes for pid in _children(pane)]

    def kill(self) -> None:
        """End the chat at once, as the kernel would for want of memory."""
        for pid in self._chats():
            os.kill(pid, signal.SIGKILL)
        self.until("ended with 137")

    def end(self) -> None:
        """Close the terminal, and end a chat that goes on without it."""
        chats = self._chats()
        self.tmux("kill-server")
        deadline = time.monotonic() + 10
        while (left := [pid for pid in chats if _runs(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _runs(pid: int) -> bool:
    try:
        return b"coderoom" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
