"""What the walls that are made of mounts and namespaces have in common."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom.sandbox.walls.base import WallReport, WallSpec
from coderoom.sandbox.walls.layout import ORDINARY, WORKSPACE, Layout, layout_for
from coderoom.sandbox.walls.lending import borrowed
from coderoom.sandbox.walls.local import LocalWorker, Start, identity_to_become, owner_of
from coderoom.sandbox.walls.probe import Facts, ProbedWall
from coderoom.sandbox.walls.remedies import namespaces_remedy

__all__ = ["MountNamespaceWall"]


class MountNamespaceWall(ProbedWall):
    """Namespaces of every kind, a file tree of only what is needed, no capabilities."""

    by_file_system = True  # Not all of them can show root's files as another user's.

    @abstractmethod
    def _prepare(self, spec: WallSpec, layout: Layout, boot: Mapping[str, Any], program: str, control_fd: int) -> Start:
        """Say how to start the program."""

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
        # Whoever mounts another /tmp has to keep these visible.
        "below_tmp": [path for path in layout.targets if path.startswith("/tmp/")],
        "rooms": "plain" if facts.nested else "namespaces",
        # Of the host's sockets none can be reached by a path; with its network, some can by an abstract name.
        "lockdown": {"own_pid_only": bool(facts.nested), "local_sockets": not spec.network},
    }
