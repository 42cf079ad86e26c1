"""Temporary folders that are removed when the process that made them ends, also if it is killed.

A small shell process, the janitor, waits on a pipe that only its host holds open. Used by sandboxes and executors.
"""

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

_REMOVE: Final = 'chmod -R u+rwx -- "$1"; rm -rf -- "$1"'
# The pipe ends also when the host is killed. Processes of the host may write for a moment longer, so it tries again.
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
    """Make an empty folder for this user only, which is removed at the latest when this process ends."""
    global _janitor
    with _lock:
        # A fork of this process starts a janitor of its own.
        if _janitor is None or _janitor.host != os.getpid() or not _janitor.folder.is_dir():
            _janitor = _start()
        return Path(tempfile.mkdtemp(prefix="work-", dir=_janitor.folder))


def janitor_pid() -> int | None:
    """The janitor of this process, if there is one; it must outlive this process."""
    janitor = _janitor  # Another thread may end it in the meantime.
    return None if janitor is None or janitor.host != os.getpid() else janitor.pid


def clearing_pids() -> set[int]:
    """The processes that remove folders for this process."""
    janitor = janitor_pid()
    return {*_removing, *(() if janitor is None else (janitor,))}


def remove_folder(path: Path) -> None:
    """Remove a folder with its content, whatever permissions and depth code has given it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        # Code may have removed permissions, or nested folders deeper than Python can follow.
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


def empty_folder(path: Path) -> None:
    """Remove the content of a folder, as far as that is possible."""
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):  # Code may have removed permissions.
        with contextlib.suppress(OSError):
            path.chmod(0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(Path(entry.path))
        else:
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()


def _dismiss_if_idle() -> None:
    """End the janitor if it has no folder left; the next folder starts a new one."""
    global _janitor
    # No waiting: a finalizer may call this inside of `temporary_folder`.
    if not _lock.acquire(blocking=False):
        return
    try:
        if _janitor is None or _janitor.host != os.getpid():
            return
        _janitor.folder.rmdir()
        idle, _janitor = _janitor, None
        # Before the pipe is closed, or it would start its removal programs.
        try:
            os.kill(idle.pid, signal.SIGKILL)
        finally:
            os.close(idle.pipe)
        os.waitpid(idle.pid, 0)
    except OSError:  # The folder is not empty, or the janitor has ended.
        return
    finally:
        _lock.release()


def _start() -> _Janitor:
    folder = Path(tempfile.mkdtemp(prefix="coderoom-")).resolve()
    folder.chmod(0o711)  # Root's code runs as another user, who must reach the folders inside.
    reader, writer = os.pipe()
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (1, 2)]
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _SCRIPT, "coderoom-janitor", str(folder)],
            {"PATH": os.defpath},
            file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), *null],
            setpgroup=0,  # Ctrl-C at a terminal must not reach it.
        )
    except BaseException:
        os.close(writer)
        folder.rmdir()
        raise
    finally:
        os.close(reader)
    return _Janitor(os.getpid(), pid, folder, writer)
