# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Runs the host's side of an attack in a process of its own, so that a hole hits that process and not the machine.

The process has a PID namespace, a limit on memory and one on processes; when it ends the kernel ends all that it started.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Escaped", "ordinary_user", "run", "why_not"]

_MEMORY = 3 << 30
_PROCESSES = 400
_ROOT = Path(__file__).resolve().parents[3]
_CGROUPS = Path("/sys/fs/cgroup")
_ORDINARY = 54_321  # Nobody's number: nothing on this machine belongs to it.
_numbers = itertools.count(1)


class Escaped(AssertionError):  # noqa: N818
    """The driver did not come to its end: it was killed, or hung."""


@functools.cache
def why_not() -> str:
    """Why there can be no cage here; empty if there can."""
    if not sys.platform.startswith("linux"):
        return "cages need Linux"
    if os.geteuid() != 0:
        return "cages take root: limits of their own for memory and processes"
    try:
        with _cgroups(_MEMORY, _PROCESSES):
            pass
    except OSError as error:
        return f"no limits for a cage: {error}"
    return ""


def run(
    driver: Callable[..., Any],
    *arguments: Any,
    seconds: float = 60,
    memory: int = _MEMORY,
    processes: int = _PROCESSES,
    user: int = 0,
    allow: Sequence[str] = (),
) -> Any:
    """Run a coroutine function of a test module in a cage.

    Args:
        driver: The function; it returns what JSON can carry.
        arguments: What it is called with; as JSON too.
        seconds: The most that it may take.
        memory: The bytes of memory that it may have, with all that it starts.
        processes: How many processes there may be.
        user: Whose process it is.
        allow: Beginnings of what may be reported as an error in the event loop.

    Raises:
        Escaped: It was killed or hung.
        AssertionError: It raised, or something was raised that nobody was there to catch.
    """
    if "none" in arguments:
        raise ValueError("attacks never run without a wall")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attack-")))
        if user:
            os.chown(folder, user, user)
        groups = stack.enter_context(_cgroups(memory, processes))
        answer, output = folder / "answer", folder / "output"
        job = {
            "name": f"{driver.__module__}:{driver.__qualname__}",
            "arguments": arguments,
            "folder": str(folder),
            "user": user,
            "groups": [str(group) for group in groups],
        }
        status = _factory().run(job, seconds)
        said = output.read_text(errors="replace")[-8000:] if output.exists() else ""
        if not answer.exists():
            raise Escaped(f"the host's side ended with {status}, having said: {said}")
        told = json.loads(answer.read_text())
    if "raised" in told:
        raise AssertionError(f"the host's side raised: {told['raised']}\n{said}")
    errors = [error for error in told["errors"] if not error.startswith(tuple(allow))] if allow else told["errors"]
    if errors:
        raise AssertionError("nobody caught: " + "\n".join(errors))
    return told["value"]


def ordinary_user() -> int:
    """A user that is nobody else here."""
    return _ORDINARY


class _Factory:
    """The process whose forks are in the cages."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.driver"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, job: dict[str, Any], seconds: float) -> str:
        """Run a job in a cage; how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not readable:
            os.kill(pid, signal.SIGKILL)  # With it goes the first process of the namespace, and all others.
        status = self._process.stdout.readline().strip()
        return f"exit code {status}" if readable else f"no end within {seconds:g} seconds"

    def close(self) -> None:
        with self._process:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()


@functools.cache
def _factory() -> _Factory:
    factory = _Factory()
    atexit.register(factory.close)
    return factory


@contextlib.contextmanager
def _cgroups(memory: int, processes: int) -> Iterator[list[Path]]:
    """Groups below the ones that this process is in, so that nothing leaves those."""
    name = f"attack-{os.getpid()}-{next(_numbers)}"
    made: list[Path] = []
    try:
        for controller, limits in (
            ("memory", {"memory.limit_in_bytes": memory, "memory.max": memory}),
            ("pids", {"pids.max": processes}),
        ):
            group = _own_group(controller) / name
            if group not in made:
                group.mkdir()
                made.append(group)
            found = [group / file for file in limits if (group / file).exists()]
            if not found:
                raise OSError(f"the control group {str(group)!r} bounds no {controller}")
            found[0].write_text(str(next(iter(limits.values()))))
        yield made
    finally:
        for group in made:
            _remove(group)


def _own_group(controller: str) -> Path:
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return _CGROUPS / controller / path.lstrip("/")
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        if line.startswith("0::"):
            return _CGROUPS / line[3:].lstrip("/")
    raise OSError(f"there is no control group for {controller}")


def _remove(group: Path) -> None:
    end = time.monotonic() + 10
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # Ours: the group is, and only what we started is in it.
                os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return
