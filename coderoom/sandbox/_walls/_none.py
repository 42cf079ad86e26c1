"""No wall at all, for code that one would run oneself."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from pathlib import Path

from coderoom.sandbox._interpreter import Interpreter
from coderoom.sandbox._walls._base import WallReport, WallSpec
from coderoom.sandbox._walls._local import LocalWorker, Start, python_arguments
from coderoom.sandbox._walls._probing import Facts, ProbedWall

__all__ = ["NoWall"]

_OURS = Path(__file__).resolve().parent.parent


class NoWall(ProbedWall):
    """The worker is an ordinary process: with an environment of its own and limits, and everything else open to it."""

    name = "none"

    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        interpreter = await asyncio.to_thread(Interpreter.of, spec.python, spec.workspace)
        return await LocalWorker.launch(lambda fd: _start(interpreter, spec, program, fd))

    def _report(self, facts: Facts) -> WallReport:
        if facts.error:
            return WallReport(self.name, available=False, detail=facts.error)
        return WallReport(self.name, available=True, detail="no wall: code can do whatever the user can who starts it.")


def _start(interpreter: Interpreter, spec: WallSpec, program: str, control_fd: int) -> Start:
    own = None if spec.workspace is not None else tempfile.mkdtemp(prefix="coderoom-")
    workspace = own or str(spec.workspace)
    return Start(
        argv=python_arguments(interpreter.executable, str(_OURS), program, control_fd),
        boot={
            "environment": dict(spec.env),
            "workspace": workspace,
            "packages": interpreter.packages,
            "rooms": "plain",
            "lockdown": {"use_seccomp": False, "local_sockets": True},
        },
        namespaces=False,
        tidy=(lambda: None) if own is None else functools.partial(shutil.rmtree, own, ignore_errors=True),
    )
