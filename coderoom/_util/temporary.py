"""Temporary folders that go with the process that made them, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["clearing_pids", "janitor_pid", "remove_folder", "temporary_folder"]

_REMOVE: Final = 'chmod -R u+rwx -- "$1"; rm -rf -- "$1"'
# It waits for the end of a pipe that only its host writes to: that comes also if the host is killed. What the host has
# started may live a moment longer and still write, so it looks again.
_SCRIPT: Final = f"""
trap '' HUP INT QUIT TERM
cd /
while read -r _; do :; done
for _ in 1 2 3 4 5; do
    {_REMOVE}
    [ -e "$1" ] || break
    sleep 1
done
"""


@dataclass(frozen=True)
class _Janitor:
    host: int
    pid: int
    folder: Path
    pipe: int


_janitor: _Janitor | None = None
_removing: set[int] = set()
_lock = threading.Lock()


def temporary_folder() -> Path:
    """Make an empty folder that only this user can look into, and that is gone at the latest when this process is.

    Raises:
        OSError: It cannot be made.
    """
    global _janitor
    with _lock:
        # A fork of the process that made it has one of its own.
        if _janitor is None or _janitor.host != os.getpid() or not _janitor.folder.is_dir():
            _janitor = _start()
        return Path(tempfile.mkdtemp(prefix="work-", dir=_janitor.folder))


def janitor_pid() -> int | None:
    """The process that clears away after this one, if there is one: it must be the last that is left."""
    janitor = _janitor  # Another thread may dismiss it meanwhile.
    return None if janitor is None or janitor.host != os.getpid() else janitor.pid


def clearing_pids() -> set[int]:
    """The processes that clear away for this one, now or after it."""
    janitor = janitor_pid()
    return {*_removing, *(() if janitor is None else (janitor,))}


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, whatever code has made of it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists() and os.name == "posix":
        # Code may have taken its own rights away, or nested folders deeper than Python can follow.
        with (
            contextlib.suppress(OSError),
            subprocess.Popen(["/bin/sh", "-c", _REMOVE, "sh", str(path)], stderr=subprocess.DEVNULL) as removing,
        ):
            _removing.add(removing.pid)
            try:
                removing.wait()
            finally:
                _removing.discard(removing.pid)
    _dismiss_if_idle()


def _dismiss_if_idle() -> None:
    """End the process that clears away, if there is nothing left for it: the next folder has a new one."""
    global _janitor
    # Not waited for: a finalizer may call this in the midst of `temporary_folder`.
    if not _lock.acquire(blocking=False):
        return
    try:
        if _janitor is None or _janitor.host != os.getpid():
            return
        _janitor.folder.rmdir()
        idle, _janitor = _janitor, None
        # Before the pipe is closed: at its end it would start programs, which nobody would take note of.
        try:
            os.kill(idle.pid, signal.SIGKILL)
        finally:
            os.close(idle.pipe)
        os.waitpid(idle.pid, 0)
    except OSError:  # The folder is not empty, or the process has gone by itself.
        return
    finally:
        _lock.release()


def _start() -> _Janitor:
    folder = Path(tempfile.mkdtemp(prefix="coderoom-")).resolve()
    folder.chmod(0o711)  # Root's code runs as somebody else, who has to get to what is in there.
    reader, writer = os.pipe()
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (1, 2)]
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _SCRIPT, "coderoom-janitor", str(folder)],
            {"PATH": os.defpath},
            file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), *null],
            setpgroup=0,  # Ctrl-C at a terminal is not for it.
        )
    except BaseException:
        os.close(writer)
        folder.rmdir()
        raise
    finally:
        os.close(reader)
    return _Janitor(os.getpid(), pid, folder, writer)
