"""Makes the processes inside cages: forks of this one, which has imported already what they need.

Reads jobs as JSON, a line each, and answers each with two lines: the fork's number, and how it ended.
"""

from __future__ import annotations

import asyncio
import compileall  # noqa: F401 - an ordinary user may not be able to import it later
import concurrent.futures.thread  # noqa: F401 - nor this
import ctypes
import encodings.idna  # noqa: F401 - nor this
import importlib
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import coderoom.sandbox  # noqa: F401 - for the forks

__all__: list[str] = []

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


async def _drive(name: str, arguments: list[Any], errors: list[str]) -> Any:
    def note(_: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        errors.append(f"{context.get('message')}: {error!r}\n{text[-3000:]}")

    asyncio.get_running_loop().set_exception_handler(note)
    module, _, function = name.partition(":")
    return await getattr(sys.modules[module], function)(*arguments)


def _work(job: dict[str, Any]) -> None:
    """Be the first process of the cage: run the driver, and write down what came of it."""
    folder, user = job["folder"], job["user"]
    _check(_libc.mount(b"proc", b"/proc", b"proc", 0, None))
    output = os.open(f"{folder}/output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for number in (1, 2):
        os.dup2(output, number)
    os.environ.update(TMPDIR=folder, HOME=folder)
    tempfile.tempdir = None
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    errors: list[str] = []
    reported: dict[str, Any] = {"errors": errors}
    try:
        reported["value"] = asyncio.run(_drive(job["name"], job["arguments"], errors))
    except BaseException:
        reported["raised"] = traceback.format_exc()[-6000:]
    Path(folder, "answer").write_text(json.dumps(reported))


def _cage(job: dict[str, Any]) -> int:
    """Enter the control groups, and start the first process of a PID namespace, which ends with this one."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    for group in job["groups"]:
        Path(group, "cgroup.procs").write_text("0")
    _check(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID))
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    pid = os.fork()
    if not pid:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        _exit_after(_work, job)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _exit_after(function: Any, job: dict[str, Any]) -> None:
    status = 1
    try:
        status = function(job) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status & 0xFF)


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until there are no more jobs."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # Cages do not outlive the tests.
    for line in sys.stdin:
        job = json.loads(line)
        if "none" in job["arguments"]:
            raise SystemExit("attacks never run without a wall")
        importlib.import_module(job["name"].partition(":")[0])
        pid = os.fork()
        if not pid:
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            _exit_after(_cage, job)
        _answer(pid)
        _answer(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
