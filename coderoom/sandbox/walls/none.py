"""The wall `none`: no isolation, for trusted code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.sandbox.config import DEFAULTS, SandboxConfig
from coderoom.sandbox.walls import WallReport
from coderoom.sandbox.walls.layout import Interpreter
from coderoom.sandbox.walls.local import (
    OUTSIDE,
    Facts,
    LocalWorker,
    ProbedWall,
    Start,
    python_arguments,
    with_own_places,
)


class NoWall(ProbedWall):
    """The worker is an ordinary process with its own environment and limits, and no other restrictions."""

    name = "none"

    async def _launch(self, spec: SandboxConfig, program: str, facts: Facts) -> LocalWorker:
        interpreter = await asyncio.to_thread(Interpreter.of, spec.python, spec.workspace)
        with contextlib.ExitStack() as unwind:
            scratch = str(temporary_folder())
            unwind.callback(remove_folder, Path(scratch))
            workspace = scratch if spec.workspace is None else str(spec.workspace)
            boot = {
                "environment": _environment(spec.env, scratch, workspace),
                "workspace": workspace,
                "scratch": scratch,
                "private": scratch,
                "packages": interpreter.packages,
                "programs": [str(Path(interpreter.executable).parent)],
                "rooms": "plain",
                "supervised": True,
                "keep_privileges": True,
                "lockdown": {"use_seccomp": False, "local_sockets": True},
            }

            def prepare(control_fd: int) -> Start:
                argv = python_arguments(interpreter.executable, str(OUTSIDE), program, control_fd)
                return Start(argv=argv, boot=boot)

            return await LocalWorker.launch(prepare, unwind)

    def _report(self, facts: Facts) -> WallReport:
        if facts.error:
            return WallReport(self.name, available=False, detail=facts.error)
        return WallReport(
            self.name, available=True, detail="no wall: code can do whatever the user who starts it can do."
        )


def _environment(env: Mapping[str, str], scratch: str, workspace: str) -> dict[str, str]:
    """The environment of a worker that sees the host's `/tmp`: only default values must not name it."""
    moved = {name: value for name, value in env.items() if not value.startswith("/tmp") or DEFAULTS.get(name) == value}
    return {**env, **with_own_places(moved, scratch, workspace)}
