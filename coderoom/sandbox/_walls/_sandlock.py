"""The wall `landlock` with a second one around it, which sandlock makes: the worker is behind rules too."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coderoom._janitor import temporary_folder
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox._inside import landlock
from coderoom.sandbox._layout import Layout, layout_for
from coderoom.sandbox._walls._base import WallReport, WallSpec
from coderoom.sandbox._walls._landlock import _boot, _check_reachable, code_for
from coderoom.sandbox._walls._lending import borrow
from coderoom.sandbox._walls._local import LocalWorker, Start, identity_to_become, python_arguments
from coderoom.sandbox._walls._probing import Facts, ProbedWall

__all__ = ["SandlockWall"]

_OURS = Path(__file__).resolve().parent.parent
_WARDEN = Path(__file__).with_name("_sandlock_warden.py")
_OLDEST, _TOO_NEW = (0, 8), (0, 10)
_ABI = 6
_INSTALL = "Install it with `pip install 'coderoom[sandlock]'`."
_KERNEL = "It takes Linux 6.12 or later, with `landlock` among the security modules (`lsm=` at boot)."
_STRONGER = "Where user namespaces are allowed, `bubblewrap` and `namespaces` are stronger."

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/pts", "/dev/tty")


class SandlockWall(ProbedWall):
    """What the wall `landlock` is, with the worker itself behind sandlock's rules.

    sandlock's supervisor is not used. It opens files of `/proc` for whoever asks, past the rules that a runner is
    under, so that code could read the memory of other sessions; and it hides processes from the keeper, who could
    neither count nor end them.
    """

    name = "sandlock"

    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        package, _ = _find()
        if landlock.abi() < _ABI:
            raise SandboxUnavailable(f"sandlock takes Landlock of ABI {_ABI}, and this kernel has {_has()}.")
        layout = await asyncio.to_thread(_layout, spec)
        with contextlib.ExitStack() as unwind:
            private = temporary_folder()
            unwind.callback(shutil.rmtree, private, ignore_errors=True)
            identity, give_back = await asyncio.to_thread(borrow, spec.workspace)
            unwind.callback(give_back)
            code = await asyncio.to_thread(code_for, identity, private)
            boot = _boot(spec, layout, identity, private, code)

            def prepare(control_fd: int) -> Start:
                argv = python_arguments(layout.python, str(code), program, control_fd)
                return _start(package, _rules(boot, private), argv, boot)

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
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not _OLDEST <= number < _TOO_NEW:
        raise SandboxUnavailable(f"The package sandlock is version {version}, and only 0.8 and 0.9 are known to work.")
    return str(Path(spec.origin).resolve().parent.parent), version


def _has() -> str:
    version = landlock.abi()
    return f"ABI {version}" if version else "none, or it is switched off"


def _describe(version: str) -> str:
    detail = (
        f"Landlock ABI {landlock.abi()} twice, by sandlock {version} around the worker and closer around the code, a "
        "filter of system calls and limits, no namespaces: code can open only what it needs, and cannot reach other "
        "processes or sockets; but it can tell which files and processes there are"
    )
    if identity_to_become() is None:
        detail += ", and can change the permissions and times of its user's files"
    return f"{detail}; sessions are not kept from each other's files, and what is written to the disk is not bounded."


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


def _rules(boot: Mapping[str, Any], private: Path) -> dict[str, list[str]]:
    """What the worker may open: what code will be allowed to, our own modules, and all of `/proc` to look after it."""
    read = [*boot["lockdown"]["read"], str(_OURS), "/proc"]
    write = [boot["workspace"], str(private), *_DEVICES]
    return {
        "fs_readable": [path for path in read if Path(path).exists()],
        "fs_writable": [path for path in write if Path(path).exists()],
    }


def _start(package: str, rules: Mapping[str, Any], argv: Sequence[str], boot: Mapping[str, Any]) -> Start:
    config_fd = os.memfd_create("sandlock")
    os.write(config_fd, json.dumps({"path": package, "rules": rules, "argv": argv}).encode())
    os.lseek(config_fd, 0, os.SEEK_SET)
    # In a process of its own: what sandlock does to a process it does for good, and loading it takes 12 MB.
    own = [sys.executable, "-I", "-S", "-B", str(_WARDEN), str(config_fd)]
    return Start(argv=own, boot=boot, fds=[config_fd])
