"""A place where code runs, kept from the host."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox._cpython import CPythonSession
from coderoom.sandbox._environment import environment
from coderoom.sandbox._files import Snapshot
from coderoom.sandbox._limits import Limits
from coderoom.sandbox._policy import Policy
from coderoom.sandbox._languages import program_for
from coderoom.sandbox._result import CodeError, ExecutionResult, OutputChunk
from coderoom.sandbox._session import Session, stream_of, with_paths
from coderoom.sandbox._walls import choose, make_wall
from coderoom.sandbox._walls._base import Wall, WallSpec
from coderoom.sandbox._worker import Worker

__all__ = ["Sandbox"]

Engine = Literal["cpython", "monty"]


class Sandbox:
    """A place where cells run, behind a wall that keeps them from the host.

    It starts with the first cell, or with `async with`. One worker is kept warm; a run is a fork of it.

    Args:
        wall: `auto` for the strongest that this machine has, or `bubblewrap`, `namespaces`, `sandlock`, `landlock`,
            `docker`; `none` for no wall at all.
        preload: Modules that are imported once, for all runs and sessions.
        limits: What a cell may use.
        workspace: A folder that the code may read and write, seen inside as `/workspace`; it is made if it is not
            there. `None`: each run and each session has an empty one in memory.
        network: Whether the code may use the network.
        policy: `open`, or `restricted` for a small safe-looking Python whose rules are told to whoever wrote the code.
            A policy is early feedback and no wall.
        env: Variables of the code's environment, besides the few that programs need.
        python: The interpreter inside; `None`: the one that runs this.
        readable: More folders that the code may read, at their own paths.
        concurrency: How many runs and sessions there may be at a time; others wait.
        options: What only the chosen wall understands, for instance `image` for `docker`.

    Raises:
        RequestError: An argument is wrong.
    """

    def __init__(
        self,
        wall: str = "auto",
        *,
        preload: Sequence[str] = (),
        limits: Limits | None = None,
        workspace: str | Path | None = None,
        network: bool = False,
        policy: str = "open",
        env: Mapping[str, str] | None = None,
        python: str | Path | None = None,
        readable: Sequence[str | Path] = (),
        concurrency: int = 256,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(preload, str) or isinstance(readable, str):
            raise RequestError("preload and readable are lists, not one string")
        if concurrency < 1:
            raise RequestError(f"concurrency={concurrency!r} must be at least 1")
        self.limits = limits or Limits()
        self.workspace = None if workspace is None else Path(os.path.abspath(Path(workspace).expanduser()))
        self._wall_name = wall
        self._wall: Wall | None = None if wall == "auto" else make_wall(wall)
        self._policy = Policy.named(policy)
        self._result_name = "result" if policy == "restricted" else None
        self._preload = list(preload)
        self._spec = WallSpec(
            workspace=self.workspace,
            network=network,
            env=environment(env or {}),
            limits=self.limits,
            python=None if python is None else Path(python),
            readable=[Path(folder) for folder in readable],
            options=dict(options or {}),
        )
        self._concurrency = concurrency
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[Worker] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def wall(self) -> str:
        """The name of the wall; `auto` as long as none is chosen."""
        return self._wall_name if self._wall is None else self._wall.name

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the worker says of itself, for instance its `python`; empty before the start."""
        return {} if self._worker is None else self._worker.facts

    async def start(self) -> None:
        """Start the worker and import what is to be imported; a second time does nothing.

        Raises:
            SandboxUnavailable: There is no wall to be had here, or it cannot be built.
            MissingDependencyError: A module of `preload` cannot be imported.
        """
        await self._get_worker()

    async def close(self) -> None:
        """End everything; a second time does nothing. The next cell starts it again."""
        starting, self._starting = self._starting, None
        if starting is not None and not starting.done() and self._loop is asyncio.get_running_loop():
            starting.cancel()
            await asyncio.wait((starting,))
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if self._loop is asyncio.get_running_loop():
            await worker.close()
        else:
            worker.kill()

    async def run(self, code: str, *, language: str = "python", timeout: float | None = None) -> ExecutionResult:
        """Run code in a fresh state.

        Args:
            code: The code.
            language: `python`, `sh`, `bash` or `javascript`.
            timeout: The seconds that it has; `None`: `limits.wall_seconds`.

        Returns:
            What came of it.

        Raises:
            SandboxUnavailable: The sandbox broke; that says nothing about the code.
            RequestError: The language is not known here.
        """
        return await self._run(code, language, timeout, None)

    async def stream(
        self, code: str, *, language: str = "python", timeout: float | None = None
    ) -> AsyncIterator[OutputChunk | ExecutionResult]:
        """Run code in a fresh state and give what it prints while it prints it; see `Session.stream`.

        Yields:
            Pieces of output, then the result.

        Raises:
            SandboxUnavailable: As `run`.
            RequestError: As `run`.
        """
        engines: list[CPythonSession] = []

        def hold(held: bool) -> None:
            for engine in engines:
                engine.hold_output(held)

        async with contextlib.aclosing(
            stream_of(lambda on_chunk: self._run(code, language, timeout, on_chunk, engines), hold)
        ) as items:
            async for item in items:
                yield item

    def session(self) -> Session:
        """A state that lasts from cell to cell, to be used with `async with`."""
        return Session(self)

    @contextlib.asynccontextmanager
    async def open_engine(self) -> AsyncIterator[CPythonSession]:
        """A fresh state of the engine, for as long as the context lasts."""
        worker = await self._get_worker()
        async with worker.room() as room:
            engine = CPythonSession(room, self.limits, self._result_name)
            try:
                yield engine
            finally:
                engine.close()

    def reject(self, code: str, language: str) -> ExecutionResult | None:
        """The result of code that the policy refuses; `None` if it does not."""
        if program_for(language) is None:
            error = self._policy.check(code)
        elif self._policy.rules is not None:
            error = CodeError("PolicyError", f"Only Python runs under the policy {self._policy.name!r}, no {language!r}.")
        else:
            error = None
        if error is None:
            return None
        text = f"{error}\n"
        return ExecutionResult(Outcome.REJECTED, 126, stderr=text, output=text, error=error, code=code)

    def with_paths(self, result: ExecutionResult) -> ExecutionResult:
        """The result with the places of its artifacts on this machine."""
        return with_paths(result, self.workspace)

    async def snapshot(self, engine: CPythonSession) -> Snapshot:
        """The workspace's files as they are now."""
        return await Snapshot.take(self.workspace, engine, self.limits)

    async def _run(
        self, code: str, language: str, timeout: float | None, on_chunk: Any, engines: list[CPythonSession] | None = None
    ) -> ExecutionResult:
        rejected = self.reject(code, language)
        if rejected is not None:
            return rejected
        async with self.open_engine() as engine:
            if engines is not None:
                engines.append(engine)
            result = await engine.run(code, language, timeout, final=True, on_chunk=on_chunk)
        return self.with_paths(result)

    async def _get_worker(self) -> Worker:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Used in another event loop before; nothing of that can be used here.
            worker, self._worker, self._starting, self._loop = self._worker, None, None, loop
            if worker is not None:
                worker.kill()
        if self._worker is not None and not self._worker.lost:
            return self._worker
        if self._starting is None:
            self._starting = loop.create_task(self._start())
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        finally:
            if starting.done() and self._starting is starting:
                self._starting = None

    async def _start(self) -> Worker:
        if self._worker is not None:
            await self._worker.close()
            self._worker = None
        if self._wall is None:
            self._wall = await choose()
        if self.workspace is not None:
            self.workspace.mkdir(parents=True, exist_ok=True)
        worker = Worker(self._wall, self._spec, self._preload, self._policy.rules, self._concurrency)
        await worker.start()
        self._worker = worker
        return worker
