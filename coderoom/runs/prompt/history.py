"""The tasks that were typed in earlier chats: a file that only its owner can read, of bounded size."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

from coderoom._util.database import state_folder

_FILE_NAME: Final = "tasks.jsonl"
_MOST_BYTES: Final = 1_000_000
"""What is kept when a chat begins; within a chat, the file grows."""


def history_file() -> Path | None:
    """The file of all chats of this user; `None` without a home folder."""
    try:
        return state_folder() / _FILE_NAME
    except RuntimeError:
        return None


class TaskHistory(History):
    """The history of a prompt: each task is a line of a file, a JSON string. One that begins with a space is not kept.

    Without a file, or where it cannot be written, the history ends with the chat.
    """

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """The tasks, the last one first."""
        if self._file is None:
            return []
        try:
            data = self._file.read_bytes()
        except OSError:
            return []
        if len(data) > _MOST_BYTES:
            data = data[-_MOST_BYTES:].partition(b"\n")[2]
            with suppress(OSError):
                descriptor, name = tempfile.mkstemp(dir=self._file.parent)  # Only for its owner, too.
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(name).replace(self._file)
        tasks = []
        for line in reversed(data.splitlines()):
            with suppress(ValueError):  # Cut by a full disk.
                task = json.loads(line)
                if isinstance(task, str):
                    tasks.append(task)
        return tasks

    def store_string(self, string: str) -> None:
        """Add a task."""
        if self._file is None or string.startswith(" "):
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                file.write(json.dumps(string).encode() + b"\n")
