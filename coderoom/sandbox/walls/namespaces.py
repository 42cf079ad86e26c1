"""The wall `namespaces`, which needs no program but Python, and what it shares with `bubblewrap`."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom.sandbox.walls.base import WallReport, WallSpec
from coderoom.sandbox.walls.layout import HOSTNAME, INSIDE, ORDINARY, WORKSPACE, Layout, layout_for
from coderoom.sandbox.walls.local import (
    OUTSIDE,
    Facts,
    LocalWorker,
    ProbedWall,
    Start,
    identity_to_become,
    owner_of,
    python_arguments,
)
from coderoom.sandbox.walls.workspace import borrowed

__all__ = ["MountNamespaceWall", "NamespacesWall", "namespaces_remedy"]


class MountNamespaceWall(ProbedWall):
    """A wall with namespaces of every kind, a file tree with only what is needed, and no capabilities."""

    by_file_system = True  # Not every file system can show root's files as another user's.

    @abstractmethod
    def _prepare(self, spec: WallSpec, layout: Layout, boot: Mapping[str, Any], program: str, control_fd: int) -> Start:
        """How to start the program."""

    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        with contextlib.ExitStack() as unwind:
            identity = identity_to_become()
            if facts.idmap:
                identity = await borrowed(spec.workspace, unwind)
            layout = await asyncio.to_thread(layout_for, spec, ORDINARY if identity is None else identity[0])
            boot = _boot(spec, layout, identity, facts)
            return await LocalWorker.launch(
                lambda control_fd: self._prepare(spec, layout, boot, program, control_fd), unwind
            )

    def _report_made(self, by: str, facts: Facts) -> WallReport:
        detail = f"{by}: process, network, mount and IPC namespaces, and of the files only what is needed"
        if identity_to_become() is not None:
            detail += "; root's workers become an unprivileged user"
        if facts.nested:
            detail += f"; sessions share one process namespace ({facts.nested})"
        remedy = namespaces_remedy() if facts.nested else ""
        return WallReport(self.name, available=True, detail=detail + ".", remedy=remedy)


def _boot(spec: WallSpec, layout: Layout, identity: tuple[int, int] | None, facts: Facts) -> dict[str, Any]:
    mapped = identity is not None and not facts.idmap and spec.workspace is not None
    return {
        "identity": identity,
        "workspace": WORKSPACE,
        "owner": owner_of(Path(str(spec.workspace))) if mapped else None,
        "guarded": layout.guarded,
        "packages": layout.packages,
        "programs": layout.programs,
        # Another /tmp has to keep these visible.
        "below_tmp": [path for path in layout.targets if path.startswith("/tmp/")],
        "rooms": "plain" if facts.nested else "namespaces",
        # No socket of the host has a path inside; with the host's network, some have abstract names.
        "lockdown": {"own_pid_only": bool(facts.nested), "local_sockets": not spec.network},
    }


class NamespacesWall(MountNamespaceWall):
    """The same namespaces and file tree as with bubblewrap, made by the worker itself."""

    name = "namespaces"

    def _prepare(self, spec: WallSpec, layout: Layout, boot: Mapping[str, Any], program: str, control_fd: int) -> Start:
        root = {
            "read_only": layout.read_only,
            "symlinks": layout.symlinks,
            "files": layout.files,
            "workspace": layout.workspace,
            "size": spec.limits.disk_bytes,
            "owner": boot["identity"],
        }
        enter = {
            "user": boot["identity"] is None,
            "network": spec.network,
            "hostname": HOSTNAME,
            "inside": INSIDE,
            "root": root,
        }
        return Start(
            argv=python_arguments(layout.python, str(OUTSIDE), program, control_fd),
            # The environment comes later: a variable such as LD_PRELOAD must not act before the wall stands.
            boot={**boot, "enter": enter, "environment": dict(spec.env)},
        )

    def _report(self, facts: Facts) -> WallReport:
        if facts.error:
            return WallReport(self.name, available=False, detail=facts.error, remedy=namespaces_remedy())
        return self._report_made("without a program besides Python", facts)


def namespaces_remedy() -> str:
    """What would let an unprivileged user make namespaces here, as far as known."""
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "AppArmor restricts user namespaces here (Ubuntu 23.10 and later): a profile that allows `userns` to "
            "the program lifts that, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0` for all."
        )
    if _setting("kernel/unprivileged_userns_clone") == 0:
        return "User namespaces are switched off here; `sysctl kernel.unprivileged_userns_clone=1` switches them on."
    if _setting("user/max_user_namespaces") == 0:
        return "User namespaces are switched off here; a `sysctl user.max_user_namespaces` above 0 switches them on."
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "In a container it takes `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`."
    return "The kernel refuses namespaces here; see what security module or container rules apply."


def _setting(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
