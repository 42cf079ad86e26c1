"""The walls `landlock` and `sandlock`, for machines that allow no namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import stat
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coderoom._util.distribution import install_command
from coderoom._util.tasks import run_uncancellable
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.walls.layout import NO_ENTRY_POINTS, Layout, layout_for
from coderoom.sandbox.walls.local import (
    OUTSIDE,
    Facts,
    ProbedWall,
    Start,
    copy_for_all,
    identity_to_become,
    python_arguments,
    with_own_places,
)
from coderoom.sandbox.walls.workspace import borrowed

# The files of /proc that reveal nothing about other processes.
_HARMLESS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/sys/vm/overcommit_memory")
_FOR_NETWORK = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/gai.conf")
# Versions of Landlock's ABI.
_WITH_TRUNCATE, _WITH_TCP = 3, 4

_NEEDED = "It takes Linux 6.2 or later, with `landlock` among the security modules (`lsm=` at boot)."

# For sandlock.
_OLDEST, _TOO_NEW = (0, 8), (0, 10)
_ABI = 6
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


class PathRuleWall(ProbedWall):
    """A wall without namespaces: code sees the host's paths, and the kernel lets it open only those that it needs."""

    @abstractmethod
    def _check(self) -> None:
        """Check the requirements; a `SandboxUnavailable` says what this machine lacks."""

    def _start(self, argv: Sequence[str], boot: Mapping[str, Any]) -> Start:
        return Start(argv, boot)

    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        """See `ProbedWall.prepare`."""
        self._check()
        layout = await asyncio.to_thread(_layout, spec, self.name)
        private = temporary_folder()
        tidying.callback(remove_folder, private)
        identity = await borrowed(spec.workspace, tidying)
        code = OUTSIDE
        if identity is not None:  # Another user may not be able to read ours.
            await run_uncancellable(asyncio.to_thread(copy_for_all, OUTSIDE / "guest", private / "code"))
            code = private / "code"
        temporary, own = private / "tmp", private / "workspace"
        temporary.mkdir()
        own.mkdir()
        if identity is not None:
            for folder in (private, temporary, own):
                os.chown(folder, *identity)
        workspace = layout.workspace or str(own)
        readable = [*dict.fromkeys(source for source, _ in layout.read_only), str(code), *_HARMLESS]
        # Keep pytest from plugins of editable installs whose source is not visible: it would fail. Walls with mounts
        # hide all entry points of such installs.
        lists = [Path(target) for source, target in layout.read_only if Path(source) == NO_ENTRY_POINTS]
        points = [point for each in lists for point in importlib.metadata.Distribution.at(each.parent).entry_points]
        options = [f"-p no:{point.name}" for point in points if point.group == "pytest11"]
        env = spec.env
        if options:
            env = {**env, "PYTEST_ADDOPTS": " ".join([*options, env.get("PYTEST_ADDOPTS", "")])}
        boot = {
            "identity": identity,
            "workspace": workspace,
            "scratch": str(temporary),
            "private": str(private),
            "environment": {**with_own_places(env, str(temporary), workspace), **_kept(spec)},
            "packages": layout.packages,
            "programs": layout.programs,
            "rooms": "plain",
            "supervised": True,
            "lockdown": {
                "read": [*readable, *(_FOR_NETWORK if spec.host_network else ())],
                "write": [workspace, str(temporary)],
                "own_pid_only": True,
                "local_sockets": False,
            },
        }
        return self._start(python_arguments(layout.python, str(code), program), boot)

    def _describe_as(self, by: str, but: str) -> tuple[str, str]:
        detail = (
            f"{by}, a filter of system calls and limits, no namespaces: code can open only what it needs, and cannot "
            "reach other processes or sockets; but it can tell which files and processes there are"
        )
        if identity_to_become() is None:
            detail += ", and can change the permissions and times of its user's files"
        return f"{detail}; {but}.", "Where user namespaces are allowed, `bubblewrap` and `namespaces` are stronger."


def _kept(spec: SandboxConfig) -> dict[str, str]:
    """Variables that name folders of this machine, which may be in its `/tmp`."""
    return {} if spec.node_modules is None else {"NODE_PATH": str(spec.node_modules)}


def _layout(spec: SandboxConfig, wall: str) -> Layout:
    layout = layout_for(spec)
    if spec.workspace is not None and layout.guarded:
        raise RequestError(
            f"The workspace {layout.workspace!r} contains {layout.guarded[-1][0]!r}, which the sandbox itself runs, "
            f"and the wall {wall!r} cannot keep a part of it from being changed; use another folder."
        )
    if identity_to_become() is not None:
        needed = [Path(layout.python).resolve(), *(Path(source) for source, _ in layout.read_only)]
        needed = [path for path in needed if not path.is_relative_to(OUTSIDE)]
        needed += [Path(layout.workspace)] if layout.workspace is not None else []
        for path in needed:
            for folder in path.parents:
                if not folder.stat().st_mode & stat.S_IXOTH:
                    raise SandboxUnavailable(
                        f"The worker gives up root, and other users cannot reach {str(path)!r} in {str(folder)!r}: use "
                        "an interpreter and a workspace that every user can reach, or do not start this as root."
                    )
    return layout


class LandlockWall(PathRuleWall):
    """The rules that each runner applies to itself, and nothing else."""

    name = "landlock"

    def _check(self) -> None:
        version = landlock.abi()
        if not version:
            raise SandboxUnavailable("The kernel has no Landlock, or it is switched off.")
        if version < _WITH_TRUNCATE and identity_to_become() is None:
            raise SandboxUnavailable(
                f"The kernel's Landlock is of ABI {version}, which lets code empty its user's files; it takes ABI 3."
            )

    def remedy(self) -> str:
        """See `ProbedWall.remedy`."""
        return "" if landlock.abi() >= _WITH_TRUNCATE else _NEEDED

    def describe(self, facts: Facts) -> tuple[str, str]:
        """See `ProbedWall.describe`."""
        version = landlock.abi()
        but = "how much it writes to its temporary folder is not bounded"
        if version < landlock.WITH_SCOPES:
            but += "; before ABI 6 signals are kept in by the filter only: code cannot end what it has started"
        if version < _WITH_TCP:
            but += "; before ABI 4 the network is kept away by the filter only"
        return self._describe_as(f"Landlock ABI {version}", but)


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
            has = f"ABI {landlock.abi()}" if landlock.abi() else "none, or it is switched off"
            raise SandboxUnavailable(f"sandlock takes Landlock of ABI {_ABI}, and this kernel has {has}.")

    def _start(self, argv: Sequence[str], boot: Mapping[str, Any]) -> Start:
        package, _ = _find()
        config_fd = os.memfd_create("sandlock")
        os.write(config_fd, json.dumps({"path": package, "rules": _rules(boot), "argv": argv}).encode())
        os.lseek(config_fd, 0, os.SEEK_SET)
        own = [sys.executable, "-I", "-S", "-B", "-c", _WARDEN, str(config_fd)]
        return Start(own, boot, fds=[config_fd])

    def remedy(self) -> str:
        """See `ProbedWall.remedy`."""
        try:
            _find()
        except SandboxUnavailable:
            return f"Install it with `{install_command('sandlock')}`."
        return "" if landlock.abi() >= _ABI else _KERNEL

    def describe(self, facts: Facts) -> tuple[str, str]:
        """See `ProbedWall.describe`."""
        _, version = _find()
        by = f"Landlock ABI {landlock.abi()} twice, by sandlock {version} around the worker and closer around the code"
        but = "sessions are not kept from each other's files, and what is written to the disk is not bounded"
        return self._describe_as(by, but)


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


def _rules(boot: Mapping[str, Any]) -> dict[str, list[str]]:
    """What the worker may open: what code may, our own modules, and all of `/proc` to supervise code."""
    read = [*boot["lockdown"]["read"], str(OUTSIDE), "/proc"]
    write = [boot["workspace"], boot["private"], *landlock.DEVICES, *landlock.TERMINALS]
    return {
        "fs_readable": [path for path in read if Path(path).exists()],
        "fs_writable": [path for path in write if Path(path).exists()],
    }
