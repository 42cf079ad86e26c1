"""The wall made by sandlock: Landlock, and a supervisor that some system calls have to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox._inside import landlock
from coderoom.sandbox._layout import Layout, layout_for
from coderoom.sandbox._walls._base import WallReport, WallSpec
from coderoom.sandbox._walls._landlock import _boot, _check_reachable
from coderoom.sandbox._walls._lending import borrow
from coderoom.sandbox._walls._local import LocalWorker, Start, identity_to_become, python_arguments
from coderoom.sandbox._walls._probing import Facts, ProbedWall

__all__ = ["SandlockWall"]

_OURS = Path(__file__).resolve().parent.parent
_WARDEN = Path(__file__).with_name("_sandlock_warden.py")
# Later ones open files of /proc for whoever asks, with the supervisor's rights and past the rules that the runner is
# under: code could read the memory of other sessions.
_VERSION = "0.8.6"
_ABI = 6
_INSTALL = "Install it with `pip install 'coderoom[sandlock]'`."
_KERNEL = "It takes Linux 6.12 or later, with `landlock` among the security modules (`lsm=` at boot)."
_STRONGER = "Where user namespaces are allowed, `bubblewrap` and `namespaces` are stronger, and faster."

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/pts", "/dev/tty")
# Over all rooms, of which nobody knows how many there will be; each room's own limit is the keeper's.
_MOST_PROCESSES = 4096
# Where sandlock has a folder for each of its sandboxes, which stays when the supervisor is killed.
_RUNTIME = "/dev/shm/sandlock-{}"
# sandlock lets no process hide from its supervisor, which has to read the arguments of system calls.
_STAY_READABLE = (
    "from _inside import linux; call = linux.libc; PR_SET_DUMPABLE = 4; "
    "linux.libc = lambda name, *rest: 0 if name == 'prctl' and rest[0] == PR_SET_DUMPABLE else call(name, *rest); "
)
_TAKE_CONTROL = "import os; CONTROL = os.dup(0); NULL = os.open(os.devnull, os.O_RDWR); os.dup2(NULL, 0); os.close(NULL); "


class SandlockWall(ProbedWall):
    """What the wall `landlock` is, behind sandlock's own rules and its supervisor."""

    name = "sandlock"
    program = _STAY_READABLE + ProbedWall.program

    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        package, _ = _find()
        if landlock.abi() < _ABI:
            raise SandboxUnavailable(f"sandlock takes Landlock of ABI {_ABI}, and this kernel has {_has()}.")
        layout = await asyncio.to_thread(_layout, spec)
        with contextlib.ExitStack() as unwind:
            private = Path(tempfile.mkdtemp(prefix="coderoom-"))
            unwind.callback(shutil.rmtree, private, ignore_errors=True)
            identity, give_back = await asyncio.to_thread(borrow, spec.workspace)
            unwind.callback(give_back)
            boot = _boot(spec, layout, identity, private)

            def prepare(control_fd: int) -> Start:
                argv = python_arguments(layout.python, str(_OURS), _TAKE_CONTROL + program, 0)
                return _start(spec, boot, package, argv, private, control_fd)

            return await LocalWorker.launch(prepare, unwind)

    def _report(self, facts: Facts) -> WallReport:
        try:
            _, version = _find()
        except SandboxUnavailable as error:
            return WallReport(self.name, available=False, detail=str(error), remedy=_INSTALL)
        if facts.error:
            remedy = "" if landlock.abi() >= _ABI else _KERNEL
            return WallReport(self.name, available=False, detail=facts.error, remedy=remedy)
        return WallReport(self.name, available=True, detail=_describe(version), remedy=_STRONGER)


def _find() -> tuple[str, str]:
    """The folder that sandlock is installed in, and its version."""
    spec = importlib.util.find_spec("sandlock")
    if spec is None or spec.origin is None:
        raise SandboxUnavailable("The package sandlock is not installed.")
    version = importlib.metadata.version("sandlock")
    if version != _VERSION:
        raise SandboxUnavailable(
            f"The package sandlock is version {version}, and only {_VERSION} is known to keep sessions from each "
            "other's memory."
        )
    return str(Path(spec.origin).resolve().parent.parent), version


def _has() -> str:
    version = landlock.abi()
    return f"ABI {version}" if version else "none, or it is switched off"


def _describe(version: str) -> str:
    detail = (
        f"sandlock {version} on Landlock ABI {landlock.abi()}, a filter of system calls and limits, no namespaces: code "
        "can open only what it needs, and cannot see other processes or reach their sockets; but it can tell which "
        "files there are"
    )
    if identity_to_become() is None:
        detail += ", and can change the permissions and times of its user's files"
    return f"{detail}; sessions are not kept from each other's files, and opening a file and forking take longer."


def _layout(spec: WallSpec) -> Layout:
    layout = layout_for(spec)
    if spec.workspace is not None and layout.guarded:
        raise RequestError(
            f"The workspace {layout.workspace!r} contains {layout.guarded[-1][0]!r}, which the sandbox itself runs, "
            "and the wall 'sandlock' cannot keep a part of it from being changed; use another folder."
        )
    if identity_to_become() is not None:
        _check_reachable(layout)
    return layout


def _start(
    spec: WallSpec, boot: Mapping[str, Any], package: str, argv: Sequence[str], private: Path, control_fd: int
) -> Start:
    name = f"coderoom-{secrets.token_hex(8)}"
    config = {
        "paths": [str(_OURS), package],
        # It is the supervisor that becomes another user, and with it all that it starts.
        "boot": {"identity": boot["identity"], "workspace": boot["workspace"], "supervised": True, "environment": {}},
        "sandbox": {"name": name, **_policy(spec, boot, private)},
        "argv": list(argv),
    }
    config_fd = os.memfd_create(name)
    os.write(config_fd, json.dumps(config).encode())
    os.lseek(config_fd, 0, os.SEEK_SET)
    return Start(
        argv=[sys.executable, "-I", "-S", "-B", str(_WARDEN), str(control_fd), str(config_fd)],
        boot={**boot, "identity": None, "supervised": False},
        fds=[config_fd],
        tidy=functools.partial(_tidy, name, boot["identity"]),
    )


def _policy(spec: WallSpec, boot: Mapping[str, Any], private: Path) -> dict[str, Any]:
    """What sandlock allows: more than any code will be allowed, since the worker has to look after it."""
    read = [*boot["lockdown"]["read"], str(_OURS), "/proc"]
    write = [boot["workspace"], str(private), *_DEVICES]
    return {
        "fs_readable": [path for path in read if Path(path).exists()],
        "fs_writable": [path for path in write if Path(path).exists()],
        "net_allow": ["*:*"] if spec.network else [],
        "net_allow_bind": ["*"] if spec.network else [],
        # No limit on memory: each `mmap` would have to wait for the supervisor.
        "max_processes": _MOST_PROCESSES + spec.limits.processes,
        "clean_env": True,
        "cwd": "/",
    }


def _tidy(name: str, identity: tuple[int, int] | None) -> None:
    folder = Path(_RUNTIME.format(os.getuid() if identity is None else identity[0]))
    shutil.rmtree(folder / name, ignore_errors=True)
    with contextlib.suppress(OSError):  # Another sandbox of that user's may have one too.
        folder.rmdir()
