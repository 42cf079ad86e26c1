"""What a wall and an engine are: the two places where other packages plug into the sandbox.

`docs/plugins.md` describes how; `coderoom.testing` has the tests that prove one.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.processes import Process
from coderoom.sandbox.result import ExecutionResult, OutputChunk

Program: TypeAlias = Any
"""A row of `coderoom.sandbox.PROGRAMS`."""


@dataclass(frozen=True)
class WallReport:
    """Whether a wall can be built here.

    Attributes:
        name: The wall's name.
        available: Whether it can.
        detail: How it is built here, or why it cannot be built.
        remedy: What would make it available or stronger; may be empty.
        auto: Whether `auto` may take it; walls of other packages have to say so.
    """

    name: str
    available: bool
    detail: str
    remedy: str = ""
    auto: bool = True


class StartedWorker(Protocol):
    """The process behind a wall that runs `coderoom_guest.main`."""

    @property
    def control(self) -> socket.socket:
        """The host's end of its control socket, of the family `AF_UNIX` and the type `SOCK_SEQPACKET`."""

    @property
    def boot(self) -> Mapping[str, Any]:
        """What it has to do at its start: see `coderoom.sandbox.guest.isolation.boot`."""

    async def end(self) -> None:
        """End it and everything behind the wall at once; a second call does nothing."""

    def kill(self) -> None:
        """As `end`, without an event loop."""

    def describe_death(self) -> str:
        """Why it ended by itself, as far as known."""


class Wall(Protocol):
    """A wall (isolation backend). A class of one is made without arguments.

    `coderoom.sandbox.walls.local.ProbedWall` has all of it for walls whose worker is a process of this machine.

    Attributes:
        name: Its name, which is also that of its entry point in the group `coderoom.walls`.
        auto: Whether `auto` may take it, if it can be built and none of CodeRoom's own walls can. `False` if missing.
        check_options: Refuses wrong options, which `start` refuses, too, with a `RequestError`. It may be missing.
    """

    name: ClassVar[str]

    async def probe(self) -> WallReport:
        """Try whether it can be built here, which takes a few seconds at most."""

    async def start(self, spec: SandboxConfig) -> StartedWorker:
        """Start a worker behind it; `spec.env` is the worker's whole environment.

        Raises:
            SandboxUnavailable: It cannot be built; the message says why and what to do.
            RequestError: An option is wrong.
        """


class EngineSession(Protocol):
    """An interpreter state.

    Its methods are called one after the other, but for `cancel`, `suspend_output`, `start` and `connect`.

    One that can be forked also has `async def fork(self, count: int, reseed: bool)`, which returns an `EngineFork` for
    each session with its state and copies of its files, and `async def become(self, fork: EngineSession)`, which
    returns the session that goes on in place of both; see `Session.fork` and `Session.become`.
    """

    async def run(
        self,
        code: str,
        program: Program | None,
        timeout: float | None,
        final: bool,
        on_chunk: Callable[[OutputChunk], None] | None,
        stdin: bytes | AsyncGenerator[bytes] = ...,
    ) -> ExecutionResult:
        """Run a cell.

        What the code does is in the result, with its outcome. An exception says that the engine has failed.

        Args:
            code: The cell.
            program: What runs it; `None` for Python, and for languages that the engine interprets itself.
            timeout: How many seconds it may take; `None`: `limits.wall_seconds`.
            final: Whether nothing follows, so that the state ends with it.
            on_chunk: Called with each piece of output, in the event loop.
            stdin: What the cell reads from standard input, as a whole or piece by piece; not given for a cell without
                one, nor to an engine that `lacks` it.
        """

    async def cancel(self) -> None:
        """End the cell that runs: its result has the outcome `cancelled`."""

    async def start(self, process: Process, **how: Any) -> None:
        """Start a program beside the cells; not called if the engine lacks `processes`.

        Args:
            process: It has the command, and the descriptors of the program in `remote_fds`: a terminal, or standard
                input, output and error. It is told the end of the program by `note_end`.
            how: The folder `cwd`, environment variables `env`, and whether there is a `terminal`.

        Raises:
            OSError: It cannot be started.
        """

    async def connect(self, port: int) -> socket.socket:
        """Return a stream to a port at which a process of the session listens; called as `start` is.

        Raises:
            OSError: Nothing listens there, or it does not accept the connection.
        """

    async def checkpoint(self) -> Any:
        """Keep the state; the result is what `rollback` and `release` are given."""

    async def rollback(self, handle: Any, /) -> None:
        """Return to a state that was kept; those that were kept after it are gone, which is a `RequestError`."""

    def release(self, handle: Any, /) -> None:
        """Forget a state that was kept; a second call does nothing."""

    async def restart(self) -> None:
        """Return to the fresh state; what was kept is gone."""

    def suspend_output(self, suspended: bool) -> None:
        """Stop (`True`) or continue the reading of output, and with it the code that prints."""

    def frozen(self) -> AbstractAsyncContextManager[None]:
        """A context in which nothing writes to the workspace, while its files are copied."""

    async def close(self) -> None:
        """End everything; a second call does nothing."""

    def abandon(self) -> None:
        """As `close`, for a session that nobody closed: without waiting, in the event loop."""


class EngineFork(Protocol):
    """A fork of a session that has not been used."""

    async def open(self, functions: Mapping[str, HostFunction], /) -> EngineSession:
        """Make the session at its first use; after a failure this may be called again."""

    async def fork(self, count: int, reseed: bool, /) -> Sequence[EngineFork]:
        """Make more forks of the same state, while this one has not been used."""

    def abandon(self) -> None:
        """Give up a fork that will not be used; nothing happens if it was."""


class Engine(Protocol):
    """What interprets cells. A class of one is made with the sandbox's configuration, and refuses what it cannot do.

    Attributes:
        name: Its name, which is also that of its entry point in the group `coderoom.engines`.
        languages: The languages of the cells that it runs.
        lacks: The arguments of `Sandbox` that it has no use for, so that they are refused: `wall` if it needs none.
            Also `stdin`, if its cells have no standard input, and `processes`, if its sessions have no `start` and
            `connect`.
    """

    name: ClassVar[str]
    languages: ClassVar[Sequence[str]]
    lacks: ClassVar[Collection[str]]

    def __init__(self, config: SandboxConfig) -> None: ...

    @property
    def wall(self) -> str:
        """The name of its wall; its own name if it needs none."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known of it once it is started, such as versions."""

    @property
    def lost(self) -> bool:
        """Whether it is not started, or has ended: then it is started again."""

    async def start(self) -> None:
        """Start it.

        Raises:
            SandboxUnavailable: It cannot be started; the message says why and what to do.
            MissingDependencyError: Something has to be installed.
        """

    async def open(self, functions: Mapping[str, HostFunction]) -> EngineSession:
        """Open a session with a fresh state, in which code can call these functions of the host."""

    async def close(self) -> None:
        """End everything, sessions too; a second call does nothing."""

    def kill(self) -> None:
        """As `close`, without an event loop; another event loop may start it again."""
