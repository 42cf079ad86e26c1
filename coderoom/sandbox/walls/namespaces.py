"""The wall that needs no program but Python: the worker makes its namespaces by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coderoom.sandbox.walls.base import WallReport, WallSpec
from coderoom.sandbox.walls.layout import HOSTNAME, INSIDE, Layout
from coderoom.sandbox.walls.local import OUTSIDE, Start, python_arguments
from coderoom.sandbox.walls.mount_namespaces import MountNamespaceWall
from coderoom.sandbox.walls.probe import Facts
from coderoom.sandbox.walls.remedies import namespaces_remedy

__all__ = ["NamespacesWall"]


class NamespacesWall(MountNamespaceWall):
    """The same namespaces and the same file tree as with bubblewrap, made by our own Python."""

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
            # The environment comes with the boot: a variable such as LD_PRELOAD is not for before the wall.
            boot={**boot, "enter": enter, "environment": dict(spec.env)},
        )

    def _report(self, facts: Facts) -> WallReport:
        if facts.error:
            return WallReport(self.name, available=False, detail=facts.error, remedy=namespaces_remedy())
        return self._report_made("without a program besides Python", facts)
