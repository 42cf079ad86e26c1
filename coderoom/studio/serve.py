"""AutoGen Studio's server, as the program that runs in its own environment: `python -m coderoom.studio.serve`.

This is the one module of CodeRoom that imports AutoGen Studio. Studio reads its settings from the process's environment
when it is imported, so that everything is set before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final

import uvicorn

from coderoom.executors import adopt_orphans, end_descendants
from coderoom.studio.guard import guarded
from coderoom.studio.looks import styled
from coderoom.studio.marks import end_orphans, set_mark
from coderoom.studio.runs import RunsLoop, with_messages

__all__ = ["serve"]

_GRACE_SECONDS: Final = 2
_LAST_SECONDS: Final = 3.5


def serve(appdir: str, port_fd: int, life_fd: int, *lock_fds: int) -> None:
    """Serve until the pipe's other end is closed, or a signal comes.

    Args:
        appdir: Studio's folder.
        port_fd: The descriptor of a socket that listens.
        life_fd: The descriptor of a pipe that nobody writes to. Its end is the end of whoever started this.
        lock_fds: Descriptors that are to be open as long as this lives.
    """
    for fd in (port_fd, life_fd, *lock_fds):
        os.set_inheritable(fd, False)
    adopt_orphans()
    with socket.socket(fileno=port_fd) as listening:
        host, port = listening.getsockname()
        _set_environment(appdir, host, port)
        set_mark()
        server = uvicorn.Server(
            uvicorn.Config(
                _studio,
                factory=True,
                access_log=False,
                use_colors=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        threading.Thread(target=_end_with, args=(life_fd, server), daemon=True).start()
        threading.Thread(target=end_orphans, daemon=True).start()
        loop = RunsLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_serve(server, listening, loop))
    end_descendants()


async def _serve(server: uvicorn.Server, listening: socket.socket, loop: RunsLoop) -> None:
    ending = asyncio.create_task(loop.end_runs(_going))
    try:
        await server.serve(sockets=[listening])
    finally:
        ending.cancel()


def _going() -> Collection[Any]:
    """Those of Studio's runs that nobody has stopped."""
    manager = getattr(sys.modules.get("autogenstudio.web.deps"), "_websocket_manager", None)
    tokens = {} if manager is None else manager._cancellation_tokens
    return [run for run, token in tokens.items() if not token.is_cancelled()]


def _set_environment(appdir: str, host: str, port: int) -> None:
    # What a user has set for a Studio of theirs, such as its database, is not for this one.
    for name in [name for name in os.environ if name.startswith("AUTOGENSTUDIO_")]:
        del os.environ[name]
    os.environ.update(AUTOGENSTUDIO_APPDIR=appdir, AUTOGENSTUDIO_HOST=host, AUTOGENSTUDIO_PORT=str(port))


def _studio() -> Any:
    from autogenstudio.web import app
    from autogenstudio.web.managers import connection
    from autogenstudio.web.routes import gallery, teams

    # Else the first run would wait for them, and a stop of it too.
    import coderoom.agents
    import coderoom.teams  # noqa: F401

    connection.TeamManager = with_messages(connection.TeamManager)
    for routes in (gallery, teams):
        routes.create_default_gallery = _without_traces(routes.create_default_gallery)
    return guarded(styled(app.app))


def _without_traces(make: Callable[[], Any]) -> Callable[[], Any]:
    """Have Studio make its default gallery without what that does besides.

    It sets keys that are none, which would hide that there is no key, and makes a folder where it is.
    """

    @functools.wraps(make)
    def made() -> Any:
        before = dict(os.environ)
        try:
            with contextlib.chdir(before["AUTOGENSTUDIO_APPDIR"]):
                return make()
        finally:
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)

    return made


def _end_with(life_fd: int, server: uvicorn.Server) -> None:
    os.read(life_fd, 1)
    server.should_exit = True  # This is how uvicorn itself does it, from a signal's handler.
    time.sleep(_LAST_SECONDS)
    # Something holds it up.
    end_descendants()
    os._exit(1)


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:]))
    os._exit(0)  # To take thousands of modules down one by one may last seconds.
