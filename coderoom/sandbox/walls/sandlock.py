"""The wall `sandlock`: the wall `landlock`, and sandlock's rules around the worker as well."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.walls.base import WallReport
from coderoom.sandbox.walls.landlock import PathRuleWall
from coderoom.sandbox.walls.local import OUTSIDE, Facts, Start

__all__ = ["SandlockWall"]

_OLDEST, _TOO_NEW = (0, 8), (0, 10)
_ABI = 6
_INSTALL = "Install it with `pip install 'coderoom[sandlock]'`."
_KERNEL = "It takes Linux 6.12 or later, with `landlock` among the security modules (`lsm=` at boot)."

# Puts itself under sandlock's rules and becomes the worker. In a process of its own: what sandlock does to a process it
# does for good, and loading it takes 12 MB.
_WARDEN = """
import importlib, json, os, sys
with open(int(sys.argv[1]), "rb") as file:
    config = json.load(file)
sys.path.append(config["path"])
sandlock = importlib.import_module("sandlock")
sandlock.confine(sandlock.Sandbox(**config["rules"]))
os.execve(config["argv"][0], config["argv"], {})
"""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/pts", "/dev/tty")


class SandlockWall(PathRuleWall):
    """The wall `landlock`, with the worker behind sandlock's rules.

    sandlock's supervisor is not used. It opens files of `/proc` for any process, past the rules of a runner, so that
    code could read the memory of other sessions; and it hides processes from the supervisor of a room, which could
    neither count nor end them.
    """

    name = "sandlock"

    def _check(self) -> None:
        _find()
        if landlock.abi() < _ABI:
            raise SandboxUnavailable(f"sandlock takes Landlock of ABI {_ABI}, and this kernel has {_has()}.")

    def _prepare(self, argv: Sequence[str], boot: Mapping[str, Any]) -> Start:
        package, _ = _find()
        config_fd = os.memfd_create("sandlock")
        os.write(config_fd, json.dumps({"path": package, "rules": _rules(boot), "argv": argv}).encode())
        os.lseek(config_fd, 0, os.SEEK_SET)
        own = [sys.executable, "-I", "-S", "-B", "-c", _WARDEN, str(config_fd)]
        return Start(argv=own, boot=boot, fds=[config_fd])

    def _report(self, facts: Facts) -> WallReport:
        try:
            _, version = _find()
        except SandboxUnavailable as error:
            return WallReport(self.name, available=False, detail=str(error), remedy=_INSTALL)
        if facts.error:
            remedy = "" if landlock.abi() >= _ABI else _KERNEL
            return WallReport(self.name, available=False, detail=facts.error, remedy=remedy)
        by = f"Landlock ABI {landlock.abi()} twice, by sandlock {version} around the worker and closer around the code"
        but = "sessions are not kept from each other's files, and what is written to the disk is not bounded"
        return self._report_made(by, but)


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


def _rules(boot: Mapping[str, Any]) -> dict[str, list[str]]:
    """What the worker may open: what code may, our own modules, and all of `/proc` to supervise code."""
    read = [*boot["lockdown"]["read"], str(OUTSIDE), "/proc"]
    write = [boot["workspace"], boot["private"], *_DEVICES]
    return {
        "fs_readable": [path for path in read if Path(path).exists()],
        "fs_writable": [path for path in write if Path(path).exists()],
    }
