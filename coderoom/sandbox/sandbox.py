"""The class `Sandbox`: runs code behind a wall, in one-shot runs and in sessions."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from coderoom._util.tasks import cancel_and_wait, retrieve_exception, run_uncancellable
from coderoom.errors import RequestError
from coderoom.sandbox.cell import Input, check, check_cell, input_of, reporting_failures
from coderoom.sandbox.config import OWN, Credential, EngineName, Limits, SandboxConfig, SourceModule
from coderoom.sandbox.contracts import Engine, EngineSession
from coderoom.sandbox.functions.callables import Offer, Offered
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.registry import ENGINES, asked_in_vain
from coderoom.sandbox.result import ExecutionResult, OutputChunk
from coderoom.sandbox.session import Session, stream_whole


class Sandbox:
    """Runs cells behind a wall (isolation backend), which keeps them from the host.

    It starts with the first cell, or with `async with`. One worker process is kept warm, and each run and each session
    is a fork of it.

    Args:
        wall: `auto` for the strongest wall that works on this machine, or the name of one, as `probe_walls` lists
            them; `none` for no wall at all.
        preload: Modules that are imported once, for all runs and sessions; a `SourceModule` need not be installed.
        limits: `Limits`, or a mapping of those that differ from the defaults.
        workspace: A folder that the code may read and write, at `/workspace`; it is created if it does not exist.
            `None`: each run and each session has an empty one in memory.
        network: Whether the code may use the network of this machine; or a list of hosts that it may reach through a
            proxy, such as `api.example.org`, `api.example.org:443`, `*.example.org` or an address; or `observe`, an
            empty list that is known to be too short. See `docs/network.md`.
        policy: `open`, or `restricted` for a small subset of Python. Code that breaks its rules is rejected with an
            explanation. A policy is early feedback, never security.
        env: Environment variables for the code, besides the few that programs need.
        python: The interpreter that runs the code; `None`: the one that `CODEROOM_PYTHON` names, else the one that
            runs this.
        packages: Packages that the code may import, such as `polars>=1`, those of npm (`npm:lodash@^4`) for code in
            JavaScript and TypeScript, or requirements files (`.txt`, `.lock`),
            besides the packages of the interpreter. They are installed at the first start with them, outside of the
            sandbox and without running their code, and kept for all sandboxes (`pip install 'coderoom[packages]'`).
            With `allow-builds` in the list, those without a wheel are built, behind a wall. With `on-request`, alone or
            in the list, code may install more in its session: `!pip install polars`.
        allowed_packages: The names of the packages that code may install then, also as patterns; empty: all.
        readable: More folders that the code may read, at their own paths.
        engine: `cpython`, or `monty` for pydantic-monty's small Python, which needs no wall and starts at once
            (`pip install 'coderoom[monty]'`), or `remote` for a server; see `RemoteSandbox`.
        concurrency: How many runs and sessions there may be at a time; others wait.
        options: Options of the chosen wall, for instance `image` for `docker`; of the engine `remote` the `url` and the
            `token` of the server.
        local_network: Whether the processes of a session may talk to each other by TCP and UDP (`127.0.0.1`), so that
            code may run servers. Each session has a network of its own, in which there is nothing else. Otherwise, and
            without `network`, code can make no such socket.
        credentials: What the proxy adds to the code's requests to a host (`pip install 'coderoom[proxy]'`), such as
            `{"api.github.com": {"header": "Authorization", "value": "Bearer ${GITHUB_TOKEN}"}}`: the code can use the
            host and never has the value. See `Credential` and `docs/network.md`.
        terminals: Whether code may make terminals of its own, as tmux, script and pexpect do. `Session.start` has them
            without this.
        workspace_mode: `direct`: the code changes the files of the workspace. `overlay`: each run and each session sees
            the folder as it is, and what it changes is kept apart, up to `limits.disk_bytes`. `Session.changes` and
            `Session.diff` show it, `Session.commit` writes it into the folder. See `docs/overlay.md`.
        describe_tables: Whether a table (of pandas, Polars or PyArrow, or a long list of dicts) that is the value of a
            last expression, displayed or printed is described as models read it best, and not by its `repr`: its size,
            types, all columns, the first and the last rows.
        environment: A virtual environment, or one of conda, such as a project's: its programs come first on the `PATH`
            of programs that code starts, and it and the interpreter that it was made with can be read at their own
            paths, as can the workspace. Nothing of it runs outside, and cells do not run in it. `find_environment`
            finds that of a folder. A wall with an interpreter of its own (`docker`) does not use it.

    Raises:
        RequestError: An argument is wrong.
    """

    def __init__(
        self,
        wall: str = "auto",
        *,
        engine: EngineName = "cpython",
        preload: Sequence[str | SourceModule] = (),
        limits: Limits | Mapping[str, Any] | None = None,
        workspace: str | Path | None = None,
        network: bool | Sequence[str] = False,
        policy: str = "open",
        env: Mapping[str, str] | None = None,
        python: str | Path | None = None,
        packages: Sequence[str] = (),
        allowed_packages: Sequence[str] = (),
        readable: Sequence[str | Path] = (),
        concurrency: int = 256,
        options: Mapping[str, Any] | None = None,
        local_network: bool = False,
        credentials: Mapping[str, Credential | Mapping[str, Any]] | None = None,
        terminals: bool = False,
        workspace_mode: Literal["direct", "overlay"] = "direct",
        describe_tables: bool = False,
        environment: str | Path | None = None,
    ) -> None:
        self.config = SandboxConfig(
            wall=wall,
            engine=engine,
            preload=preload,
            limits={} if limits is None else limits,
            workspace=workspace,
            network=network,
            policy=policy,
            env={} if env is None else env,
            python=python,
            packages=packages,
            allowed_packages=allowed_packages,
            readable=readable,
            concurrency=concurrency,
            options={} if options is None else options,
            local_network=local_network,
            credentials={} if credentials is None else credentials,
            terminals=terminals,
            workspace_mode=workspace_mode,
            describe_tables=describe_tables,
            environment=environment,
        )
        self._engine: Engine = _make_engine(self.config)
        self._closed = False
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None

    @classmethod
    def from_config(cls, config: SandboxConfig) -> Self:
        """Make a sandbox from a configuration."""
        made = cls(**{name: value for name, value in config if name not in OWN})
        if config.bundles or config.place != made.config.place:
            made.config = made.config.model_copy(update={"place": config.place, "bundles": config.bundles})
            made._engine = _make_engine(made.config)
        return made

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def limits(self) -> Limits:
        """What a cell may use."""
        return self.config.limits

    @property
    def workspace(self) -> Path | None:
        """The folder that the code may read and write; `None`: it is in memory."""
        return self.config.workspace

    @property
    def preload(self) -> Sequence[str | SourceModule]:
        """The modules that the worker imports once."""
        return self.config.preload

    @property
    def concurrency(self) -> int:
        """How many runs and sessions there may be at a time."""
        return self.config.concurrency

    @property
    def wall(self) -> str:
        """The name of the wall; `auto` until one is chosen, `monty` for the engine that needs none."""
        return self._engine.wall

    @property
    def lock(self) -> str:
        """The packages that the code was given, and last asked for, as a requirements file with exact versions."""
        return str(getattr(self._engine, "lock", ""))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the worker reported about itself, for instance its `python` version; empty before the start."""
        return self._engine.facts

    async def start(self) -> None:
        """Start the worker and import the modules of `preload`; a second time does nothing.

        Raises:
            SandboxUnavailable: No wall works on this machine, or the chosen one cannot be built.
            MissingDependencyError: A module of `preload` cannot be imported.
            RequestError: The sandbox is closed, or the workspace cannot be used.
        """
        with reporting_failures():
            await self._get_engine()

    async def close(self) -> None:
        """End everything, sessions too; a closed sandbox cannot be started again. A second time does nothing."""
        self._closed = True
        if self._loop is asyncio.get_running_loop():
            await run_uncancellable(self._close())
        else:
            self._engine.kill()

    async def run(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        stdin: Input | None = None,
    ) -> ExecutionResult:
        """Run code in a fresh state.

        Args:
            code: The code.
            language: `python`, or one that a separate program runs; `LANGUAGES` has all.
            timeout: How many seconds it may take; `None`: `limits.wall_seconds`.
            stdin: What it reads from standard input; `None`: nothing. See `Session.run`.

        Returns:
            The result.

        Raises:
            SandboxUnavailable: The sandbox broke; that says nothing about the code.
            RequestError: An argument is wrong, the language is not supported, or the sandbox is closed.
        """
        return await self._run(code, language, timeout, stdin, None)

    def stream(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        stdin: Input | None = None,
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run code in a fresh state and yield its output while it runs; see `Session.stream`.

        Returns:
            Pieces of output, then the result.

        Raises:
            SandboxUnavailable: As `run`.
            RequestError: As `run`.
        """
        engines: list[EngineSession] = []

        def suspend(suspended: bool) -> None:
            for engine in engines:
                engine.suspend_output(suspended)

        return stream_whole(lambda on_chunk: self._run(code, language, timeout, stdin, on_chunk, engines), suspend)

    def session(self, functions: Sequence[Offered] = ()) -> Session:
        """Make a session, whose state lasts from cell to cell. Use it with `async with`.

        Args:
            functions: Functions of the host that the code may call by their names: plain or async ones of Python,
                AutoGen's tools, and AutoGen's workbenches with all their tools. Arguments and results are JSON-like
                data. Plain functions run in threads, async ones in the event loop.

        Raises:
            RequestError: Something cannot be offered, or a name is taken twice.
        """
        return Session(self.config, self._open, Offer(functions), self._sessions.add)

    def reject(self, code: str, language: str, timeout: float | None = None) -> ExecutionResult | None:
        """Return the result of code that the policy rejects; `None` for other code.

        Raises:
            RequestError: An argument is wrong, or the language is not supported.
        """
        return check_cell(self.config, code, language, timeout)[1]

    async def check(self, code: str, language: str) -> ExecutionResult | None:
        """As `reject`, without stopping the event loop for long code."""
        return (await check(self.config, code, language, None))[1]

    async def _run(
        self,
        code: str,
        language: str,
        timeout: float | None,
        stdin: Input | None,
        on_chunk: Any,
        engines: list[EngineSession] | None = None,
    ) -> ExecutionResult:
        given = input_of(self.config, stdin)
        program, rejected = await check(self.config, code, language, timeout)
        if rejected is not None:
            return rejected
        with reporting_failures():
            engine = await self._open({})
            try:
                if engines is not None:
                    engines.append(engine)
                run = getattr(engine, "run_once", engine.run)  # Of an engine for which this is less than a session.
                result: ExecutionResult = await run(code, program, timeout, final=True, on_chunk=on_chunk, **given)
                return result
            finally:
                await engine.close()

    async def _open(self, functions: Mapping[str, HostFunction]) -> EngineSession:
        engine = await self._get_engine()
        try:
            return await engine.open(functions)
        except Exception:
            if self._closed or not engine.lost:
                raise
        return await (await self._get_engine()).open(functions)  # The worker has just ended; a new one is started.

    async def _close(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            await cancel_and_wait(starting)
        await asyncio.gather(*(session.close() for session in list(self._sessions) if session.idle))
        await self._engine.close()  # This ends all waits for cells and rooms.
        for session in list(self._sessions):
            await session.close()

    async def _start_engine(self) -> None:
        if self.workspace is not None:
            await asyncio.to_thread(_make_workspace, self.workspace)
        await self._engine.start()

    async def _get_engine(self) -> Engine:
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # It was started in another event loop, whose worker cannot be used in this one.
            self._loop, self._starting = loop, None
            self._engine.kill()
        if self._engine.lost:
            if self._starting is None or self._starting.done():
                self._starting = loop.create_task(self._start_engine())
                self._starting.add_done_callback(retrieve_exception)
            starting = self._starting
            # A cancelled caller must not cancel the start, since others may wait for it too; only `close` does.
            await asyncio.wait((starting,))
            self._check_open()
            starting.result()
        return self._engine

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("The sandbox is closed; make a new one with Sandbox(...).")


def _make_engine(config: SandboxConfig) -> Engine:
    engine: type[Engine] = ENGINES.load(config.engine)
    for name in asked_in_vain(engine, config):
        value, elsewhere = getattr(config, name), "engine='cpython' runs all of Python"
        if name == "wall" and engine.name == "remote":
            raise RequestError(f"wall={value!r}: with the engine 'remote', the server has the wall.")
        if name == "wall":
            raise RequestError(f"The engine {engine.name!r} stands behind no wall, but got wall={value!r}.")
        raise RequestError(f"{name}={value!r}: the engine {engine.name!r} has no such thing; {elsewhere}.")
    return engine(config)


def _make_workspace(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise RequestError(f"The workspace {str(folder)!r} is a file; use a folder.") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"The workspace {str(folder)!r} does not exist and cannot be made: {why}.") from error
