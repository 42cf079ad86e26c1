"""The wall that needs no program but Python: the worker makes its namespaces by itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from coderoom.sandbox._layout import HOSTNAME, INSIDE, ORDINARY, WORKSPACE, Layout, layout_for
from coderoom.sandbox._walls._base import WallReport, WallSpec
from coderoom.sandbox._walls._local import LocalWorker, Start, identity_to_become, owner_of, python_arguments
from coderoom.sandbox._walls._probing import Facts, ProbedWall
from coderoom.sandbox._walls._remedies import namespaces_remedy

__all__ = ["NamespacesWall"]

_OUTSIDE = Path(__file__).resolve().parent.parent


class NamespacesWall(ProbedWall):
    """The same namespaces and the same file tree as with bubblewrap, made by our own Python."""

    name = "namespaces"

    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        identity = identity_to_become()
        layout = await asyncio.to_thread(layout_for, spec, ORDINARY if identity is None else identity[0])
        boot = _boot(spec, layout, identity, nested=not facts.nested)

        def prepare(control_fd: int) -> Start:
            argv = python_arguments(layout.python, str(_OUTSIDE), program, control_fd)
            # Its environment comes with the boot: a variable such as LD_PRELOAD is not for before the wall.
            return Start(argv=argv, boot=boot)

        return await LocalWorker.launch(prepare)

    def _report(self, facts: Facts) -> WallReport:
        if facts.error:
            return WallReport(self.name, available=False, detail=facts.error, remedy=namespaces_remedy(facts.error))
        detail = "user, process, network, mount and IPC namespaces, only what is needed of the files; made without bwrap"
        if os.geteuid() == 0:
            detail += "; root's workers become an unprivileged user"
        if facts.nested:
            detail += f"; sessions share one process namespace ({facts.nested})"
        remedy = namespaces_remedy(facts.nested) if facts.nested else ""
        return WallReport(self.name, available=True, detail=detail + ".", remedy=remedy)


def _boot(spec: WallSpec, layout: Layout, identity: tuple[int, int] | None, nested: bool) -> dict[str, Any]:
    root = {
        "read_only": layout.read_only,
        "symlinks": layout.symlinks,
        "files": layout.files,
        "workspace": layout.workspace,
        "size": spec.limits.disk_bytes,
        "owner": identity,
    }
    return {
        "enter": {
            "user": identity is None,
            "network": spec.network,
            "hostname": HOSTNAME,
            "inside": INSIDE,
            "root": root,
        },
        "identity": identity,
        "workspace": WORKSPACE,
        "owner": owner_of(spec.workspace) if spec.workspace is not None and identity is not None else None,
        "guarded": layout.guarded,
        "environment": dict(spec.env),
        "packages": layout.packages,
        "rooms": "namespaces" if nested else "plain",
        "lockdown": {"own_pid_only": not nested, "local_sockets": not spec.network},
    }
