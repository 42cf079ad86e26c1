"""Commands in a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.commands import environment

__all__ = ["in_terminal"]

_SECONDS = 30
"""How long a command may say nothing."""


def in_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, answers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command whose streams are a terminal.

    Args:
        command: The command.
        cwd: Its folder.
        env: Variables besides those of `environment`.
        answers: What is typed when this is the end of what is shown, each once.

    Returns:
        Its exit code, and all that was shown.
    """
    ours, theirs = pty.openpty()
    told = environment({"TERM": "xterm", **(env or {})})
    left, shown = dict(answers or {}), b""
    with subprocess.Popen(
        command, cwd=cwd, env=told, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        with suppress(OSError):  # The other side is closed.
            while True:
                if not select.select([ours], [], [], _SECONDS)[0]:
                    process.kill()  # It waits for an answer that it does not get.
                    break
                shown += os.read(ours, 65_536)
                asked = next((words for words in left if shown.endswith(words.encode())), None)
                if asked is not None:
                    os.write(ours, left.pop(asked).encode() + b"\n")
    os.close(ours)
    return process.returncode, shown.decode()
