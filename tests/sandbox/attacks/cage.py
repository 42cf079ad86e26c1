# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Runs the host's side of an attack in a process of its own, so that a hole hits that process and not the machine.

The process has a PID namespace, a limit on memory and one on processes; when it ends the kernel ends all that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import os
import shutil
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
_PR_SET_PDEATHSIG = 1
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
    missing = [name for name in ("unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]!r}"
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
        answer = folder / "answer"
        with (folder / "output").open("wb") as output:
            status = _run(_command(driver, arguments, answer, user), groups, seconds, folder, output)
        said = (folder / "output").read_text(errors="replace")[-8000:]
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


def _command(driver: Callable[..., Any], arguments: Sequence[Any], answer: Path, user: int) -> list[str]:
    name = f"{driver.__module__}:{driver.__qualname__}"
    # The packages' folders may be hidden from an ordinary user, as root's home is.
    command = [sys.executable, "-m", f"{__package__}.driver", name, json.dumps(arguments), str(answer)]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    return ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", *become, *command]


def _run(command: list[str], groups: Sequence[Path], seconds: float, folder: Path, output: Any) -> str:
    def enter() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # A cage does not outlive the tests.
        for group in groups:
            (group / "cgroup.procs").write_text("0")

    libc = ctypes.CDLL(None)
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(_ROOT), "HOME": str(folder)}
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, preexec_fn=enter
    ) as process:
        try:
            return f"exit code {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            return f"no end within {seconds:g} seconds"
        finally:
            process.kill()  # `--kill-child`: and with it the first process of the namespace.


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
