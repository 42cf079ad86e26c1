"""Sessions that work in copies of the workspace, where its files cannot be shown as an overlay.

`CPythonEngine` uses it for `workspace_mode="overlay"`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

from coderoom._util.tasks import run_uncancellable
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import RequestError
from coderoom.sandbox.contracts import Engine
from coderoom.sandbox.engines.cpython.session import CPythonSession
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.overlay import CopyLayer, Overlay


class Copies:
    """Engines with one session each, whose workspace is a copy; one is started ahead.

    Args:
        workspace: The folder.
        make: Makes an engine for a copy.
        guarded: What of the folder this machine runs.
        concurrency: How many sessions there may be at a time.
    """

    def __init__(
        self, workspace: Path, make: Callable[[Path], Engine], guarded: Collection[str], concurrency: int
    ) -> None:
        self._workspace = workspace
        self._make = make
        self._guarded = guarded
        self._free = asyncio.Semaphore(concurrency)
        self._spare: tuple[Engine, Path] | None = None
        self._all: weakref.WeakSet[Engine] = weakref.WeakSet()
        self.facts: Mapping[str, Any] = {}

    async def start(self) -> None:
        """Start the first engine."""
        self._spare = await self._started()

    async def open(self, functions: Mapping[str, HostFunction]) -> CPythonSession:
        """Open a session with a copy of the folder as it is now."""
        await self._free.acquire()
        try:
            spare, self._spare = self._spare, None
            engine, place = spare or await self._started()
            try:
                copying = asyncio.to_thread(CopyLayer, self._workspace, place)
                layer = await run_uncancellable(copying)
                session = cast(CPythonSession, await engine.open(functions))
            except OSError as error:
                await engine.close()
                raise RequestError(f"The workspace {str(self._workspace)!r} cannot be copied: {error}") from error
            except BaseException:
                await engine.close()
                raise
        except BaseException:
            self._free.release()
            raise
        session.overlay = Overlay(self._workspace, layer, self._guarded)
        session.after = self._ender(engine)
        return session

    async def close(self) -> None:
        """End all of them."""
        for engine in list(self._all):
            await engine.close()

    def kill(self) -> None:
        """As `close`, without an event loop."""
        for engine in list(self._all):
            engine.kill()

    async def _started(self) -> tuple[Engine, Path]:
        place = temporary_folder()
        engine = self._make(place)
        self._all.add(engine)
        try:
            await engine.start()
        except BaseException:
            remove_folder(place)
            raise
        self.facts = engine.facts
        return engine, place

    def _ender(self, engine: Engine) -> Callable[[], Any]:
        async def end() -> None:
            self._free.release()
            await engine.close()

        return end
