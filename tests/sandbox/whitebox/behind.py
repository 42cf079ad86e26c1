"""A stub behind a real wall, started by this user or, where this is root, by an ordinary one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Limits, SandboxConfig, guest
from coderoom.sandbox.walls import make_wall
from coderoom.sandbox.walls.local import LocalWorker, ProbedWall

from ..walls.behind import as_user

__all__ = ["STUB", "USERS", "Inside", "Started", "behind", "start_stub"]

USERS = [
    "self",
    pytest.param(
        "ordinary",
        marks=[pytest.mark.allwalls, pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")],
    ),
]

# Boots, then runs what it is sent and answers with what is in `r` then.
_STUB = """
import json, socket
from coderoom_guest.isolation import boot
sock = socket.socket(fileno=CONTROL)
sock.set_inheritable(False)
try:
    boot.boot(json.loads(sock.recv(1 << 20))["boot"])
    sock.send(b"true")
except OSError as error:
    sock.send(json.dumps(str(error)).encode())
    raise
while True:
    code = sock.recv(1 << 20)
    if not code:
        break
    names = {}
    try:
        exec(code.decode(), names)
        answer = names.get("r")
    except Exception as error:
        answer = type(error).__name__
    sock.send(json.dumps(answer).encode())
"""
STUB = f"exec({_STUB!r})"
_PATIENCE = 20


class Inside:
    """The stub, as the host sees it."""

    def __init__(self, worker: LocalWorker) -> None:
        self.worker = worker
        worker.control.setblocking(False)

    async def boot(self) -> Any:
        return await self._exchange(json.dumps({"boot": self.worker.boot}))

    async def ask(self, code: str) -> Any:
        """Run code inside; the answer is what it leaves in `r`, or the name of the exception's class."""
        return await self._exchange(code)

    async def attempt(self, expression: str) -> Any:
        return await self.ask(f"import os, socket, sys; r = {expression}")

    async def _exchange(self, text: str) -> Any:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.worker.control, text.encode())
        said = await asyncio.wait_for(loop.sock_recv(self.worker.control, 1 << 20), _PATIENCE)
        if not said:
            raise AssertionError(self.worker.describe_death())
        return json.loads(said)


class Started:
    """What a check is given.

    Attributes:
        inside: The stub.
        workspace: Its workspace on the host, a new folder of the user's.
        spec: What the wall was asked for.
    """

    def __init__(self, inside: Inside, workspace: Path, spec: SandboxConfig) -> None:
        self.inside = inside
        self.workspace = workspace
        self.spec = spec


async def start_stub(wall: str, spec: SandboxConfig, program: str = STUB) -> Inside:
    """Start a stub behind a wall."""
    made = make_wall(wall)
    assert isinstance(made, ProbedWall)
    made.program = program
    worker = await made.start(spec)
    assert isinstance(worker, LocalWorker)
    return Inside(worker)


def behind(
    wall: str,
    user: str,
    check: Callable[[Started], Awaitable[None]],
    *,
    program: str = STUB,
    before: Callable[[Path], None] = lambda workspace: None,
    **asked: Any,
) -> None:
    """Start a stub behind a wall and check something; skip where the wall cannot be built.

    Args:
        wall: The wall's name.
        user: `self` or `ordinary`.
        check: What is to be checked.
        program: The stub.
        before: Fills the workspace.
        asked: Of the wall: the fields of `SandboxConfig`.
    """

    async def main() -> str:
        python = asked.pop("python", None) or _python()
        if python == "":
            return "skip: nothing here that this user can run"
        report = await make_wall(wall).probe()
        if not report.available and python is None:
            return f"skip: {report.detail}"
        workspace = Path(tempfile.mkdtemp(prefix="coderoom-test-"))
        before(workspace)
        fields = {"workspace": workspace, "network": False, "env": {}, "limits": Limits(), "python": python, **asked}
        spec = SandboxConfig(**fields)
        inside = await start_stub(wall, spec, program)
        try:
            said = await inside.boot()
            assert said is True, said
            await check(Started(inside, workspace, spec))
        finally:
            await inside.worker.end()
            shutil.rmtree(workspace)
        return ""

    as_user(user, lambda: asyncio.run(main()))


def _python() -> Any:
    """An interpreter that this user can run; `None`: the one that runs this. Empty: none."""
    if not os.access(guest.__file__, os.R_OK):
        return ""
    if all(os.access(path, os.R_OK | os.X_OK) for path in (os.path.realpath(sys.executable), os.__file__[:-6])):
        return None
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    return "" if found is None else Path(found)
