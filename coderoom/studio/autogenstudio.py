"""The private names of AutoGen Studio that CodeRoom uses; no other module has any. Used by Studio's server.

They hold for the version in `requirements.txt`; a test checks that each is there. Studio reads its settings from the
environment when it is imported, so the functions import it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Collection
from typing import Any, Final
from unittest import mock

SETTINGS: Final = "AUTOGENSTUDIO_"
"""How Studio's variables of the environment begin."""

NAMES: Final = (
    "web.app:app",
    "web.deps:_websocket_manager",
    "web.managers.connection:TeamManager._create_team",
    "web.managers.connection:TeamManager.run_stream",
    "web.managers.connection:WebSocketManager",
    "web.managers.connection:WebSocketManager._save_message",
    "web.managers.run_context:RunContext.current_run_id",
    "web.routes.gallery:create_default_gallery",
    "web.routes.teams:create_default_gallery",
)
"""The names, as `module:attribute` below `autogenstudio`."""

TOKENS: Final = "_cancellation_tokens"
"""An attribute of each `WebSocketManager`: the runs, each with a token that is cancelled when the run is stopped."""


def application(change_team_manager: Callable[[type[Any]], type[Any]]) -> Any:
    """Import Studio and return its ASGI application, with another class that makes and runs teams."""
    from autogenstudio.web import app
    from autogenstudio.web.managers import connection
    from autogenstudio.web.routes import gallery, teams

    connection.TeamManager = change_team_manager(connection.TeamManager)
    for routes in (gallery, teams):
        routes.create_default_gallery = _without_side_effects(routes.create_default_gallery)
    return app.app


def going_runs() -> Collection[Any]:
    """The runs that have not ended and that nobody has stopped."""
    manager = getattr(sys.modules.get("autogenstudio.web.deps"), "_websocket_manager", None)
    tokens = {} if manager is None else getattr(manager, TOKENS)
    return [run for run, token in tokens.items() if not token.is_cancelled()]


def current_run() -> Any:
    """The run that this is called in, or `None`."""
    module = sys.modules.get("autogenstudio.web.managers.run_context")
    with contextlib.suppress(RuntimeError):  # There is no run.
        return None if module is None else module.RunContext.current_run_id()
    return None


async def store(message: Any) -> None:
    """Add a message to the session of the current run."""
    from autogenstudio.web.deps import _websocket_manager as manager

    run = current_run()
    if manager is not None and run is not None:
        await manager._save_message(run, message)


def _without_side_effects(make: Callable[[], Any]) -> Callable[[], Any]:
    """Undo what Studio does to the process when it makes its default gallery.

    It sets fake keys in the environment, which would hide that there is no key, and makes a folder in the current one.
    """

    @functools.wraps(make)
    def made() -> Any:
        with contextlib.chdir(os.environ[f"{SETTINGS}APPDIR"]), mock.patch.dict(os.environ):
            return make()

    return made
