"""A session behind a wall, started by this user or, where this is root, by an ordinary one."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - an ordinary user may not be able to import it later
import encodings.idna  # noqa: F401 - nor this
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import coderoom
from coderoom.sandbox import Sandbox, SandboxUnavailable, Session

__all__ = ["ORDINARY", "PYTHON", "Inside", "as_user", "behind"]

ORDINARY = 0x7A5C32
# Root's workers do not stay root: without mounts they cannot read a virtual environment below /root.
PYTHON = Path("/usr/bin/python3") if os.geteuid() == 0 else None


class Inside:
    """What a check is given.

    Attributes:
        sandbox: The sandbox.
        session: A session of it.
        workspace: Its workspace on the host, a new folder of the user's.
    """

    def __init__(self, sandbox: Sandbox, session: Session, workspace: Path) -> None:
        self.sandbox = sandbox
        self.session = session
        self.workspace = workspace

    async def ask(self, code: str) -> Any:
        """Run code; the answer is the value of its last line, or the name of the exception's class."""
        result = await self.session.run(f"import os, socket, sys\n{code}")
        return result.value if result.error is None else result.error.type


def behind(
    wall: str,
    user: str,
    check: Callable[[Inside], Awaitable[None]],
    *,
    before: Callable[[Path], None] = lambda workspace: None,
    **asked: Any,
) -> None:
    """Start a session behind a wall and check something; skip where the wall cannot be built.

    Args:
        wall: The wall's name.
        user: `self` or `ordinary`.
        check: What is to be checked.
        before: Fills the workspace.
        asked: More arguments of the sandbox.
    """

    async def main() -> str:
        if not os.access(coderoom.__file__, os.R_OK):
            return "skip: this user cannot read CodeRoom"
        workspace = Path(tempfile.mkdtemp(prefix="coderoom-test-"))
        before(workspace)
        arguments = {"workspace": workspace, "python": _python(), **asked}
        try:
            async with Sandbox(wall, **arguments) as sandbox, sandbox.session() as session:
                await check(Inside(sandbox, session, workspace))
        except SandboxUnavailable as error:
            return f"skip: {error}"
        finally:
            shutil.rmtree(workspace)
        return ""

    as_user(user, lambda: asyncio.run(main()))


def as_user(user: str, main: Callable[[], str]) -> None:
    """Call a function as a user; what it returns is why the test fails, or after `skip: ` why it is skipped."""
    said = main() if user == "self" else _as_ordinary_user(main)
    if said.startswith("skip: "):
        pytest.skip(said[6:])
    if said:
        pytest.fail(said)


def _python() -> Path | None:
    """An interpreter that this user can run; `None`: the one that runs this."""
    own = os.path.realpath(sys.executable)
    if all(os.access(path, os.R_OK | os.X_OK) for path in (own, os.path.dirname(os.__file__))):  # noqa: PTH120
        return None
    return Path("/usr/bin/python3")


def _as_ordinary_user(main: Callable[[], str]) -> str:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        said = "It ended without a word."
        try:
            os.setgroups([])
            os.setresgid(ORDINARY, ORDINARY, ORDINARY)
            os.setresuid(ORDINARY, ORDINARY, ORDINARY)
            said = main()
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said
