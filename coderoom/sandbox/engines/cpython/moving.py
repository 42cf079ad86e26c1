"""How a fork moves into the workspace of the session that becomes it; used by `CPythonSession`.

A fork's room has the workspace, too, with a copy in memory mounted over it. Once the folder has the files of the copy,
that is unmounted, and the process of the fork opens its files anew. Without mounts, the process goes on in the folder
of the session.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.engines.cpython.processes import ForkServerClient, Runner
from coderoom.sandbox.engines.cpython.room import Room
from coderoom.sandbox.overlay import mirror


async def move(
    first: Room,
    room: Room,
    alone: Callable[[], Awaitable[Runner | None]],
    folder: Path,
    guarded: Callable[[], Collection[str]],
) -> bool:
    """Give a folder the files of a fork, and have the fork work there; all that runs in the session's room ends.

    Args:
        first: The room of the session.
        room: The room of the fork.
        alone: Ends all in it but the process that has its state, and returns that; `None` if there is none.
        folder: The workspace of the session.
        guarded: Returns paths below it that stay as they are.

    Returns:
        Whether the process still has the state; what code has done in it may end it.

    Raises:
        RequestError: The files cannot be written, or the process does not answer; all is as before.
        SandboxUnavailable: The sandbox broke.
    """
    workspace = first.places.folders[0] if first.places.folders else "/workspace"
    replaced = False
    leaving: ForkServerClient | None = None
    try:
        if (live := await alone()) is not None:
            leaving = await _leave(room, live)
        async with first.frozen(), room.frozen(), room.uncovering() as (files, uncover):
            await asyncio.to_thread(lambda: mirror(files, folder, guarded()))
            replaced = True
            await first.kill()
            await uncover()
            await room.ask("moved", "moved", workspace=workspace)
            if room.places.folders:
                room.places = room.places.in_workspace(workspace)
        return leaving is None or await _arrive(room, leaving, workspace)
    except SandboxUnavailable as error:
        if replaced or first.lost:
            raise
        raise RequestError(f"The session cannot become this fork: {error}") from error
    finally:
        if leaving is not None:
            leaving.close()


async def _leave(room: Room, live: Runner) -> ForkServerClient:
    """Have a process wait for another workspace; it goes on in its own if the connection is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = ForkServerClient(ours, live.key)
    try:
        client.announce("leaving")
        with theirs:
            await room.wait_unless_stuck(live.channel.send({"op": "move"}, (theirs.fileno(),)))
        await room.wait_unless_stuck(client.expect("leaving"))
    except BaseException as error:
        client.close()
        if isinstance(error, ConnectionError):
            raise SandboxUnavailable("its process has ended.") from error
        raise
    return client


async def _arrive(room: Room, client: ForkServerClient, workspace: str) -> bool:
    try:
        await room.wait_unless_stuck(client.ask("go", "arrived", workspace=workspace))
    except SandboxUnavailable:
        return False
    return True
