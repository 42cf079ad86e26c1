"""A session of the engine `remote`: cells are requests, and calls to functions of the host are events of their answers.

The server learns of a session with its first cell. A session that the server has lost begins again, and its next result
says so.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import itertools
import json
import shlex
import socket
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from coderoom._util.tasks import aside, call_in_loop, cancel_and_wait, retrieve_exception, run_uncancellable
from coderoom.errors import CodeRoomError, RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox.cell import STATE_LOST
from coderoom.sandbox.config import Limits, SandboxConfig
from coderoom.sandbox.engines.remote.client import ANSWER_SECONDS, GoneError, id_of
from coderoom.sandbox.engines.remote.feed import Feed
from coderoom.sandbox.engines.remote.lease import Lease
from coderoom.sandbox.engines.remote.processes import Bridge
from coderoom.sandbox.engines.remote.wire import result_from_json
from coderoom.sandbox.functions.calls import Calls
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.languages import PROGRAMS, Program
from coderoom.sandbox.processes import Process
from coderoom.sandbox.result import ExecutionResult, FunctionCall, OutputChunk

_AGAIN_SECONDS: Final = 0.5
_QUEUE_SECONDS: Final = 60.0  # How long a cell may wait at the server for its turn.
_MOST_BYTES: Final = 64 * 1024 * 1024  # Of a result, besides what limits allow.
_GONE: Final = "This checkpoint is gone: it was released, or the session was rolled back past it, restarted or lost."


class Owner(Protocol):
    """The engine of a session."""

    config: SandboxConfig

    @property
    def lost(self) -> bool:
        """Whether there is no sandbox at the server, as far as is known."""

    @property
    def lease(self) -> Lease:
        """The sandbox at the server."""

    async def start_again(self) -> None:
        """Make another sandbox, unless that has been done."""


@dataclass(eq=False)
class RemoteCheckpoint:
    """A state that is kept at the server, of a session with an id."""

    id: str
    session: str


class RemoteSession:
    """An interpreter state at a server; made by `RemoteEngine.open`."""

    def __init__(self, engine: Owner, functions: Mapping[str, HostFunction], fork: str = "") -> None:
        self._engine = engine
        self._is_fork = bool(fork)  # Its files are in memory there, and nothing can replace it.
        self._limits = engine.config.limits
        self._functions = functions
        self._id = fork
        self._used = self._lost = self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._cancelling: asyncio.Task[None] | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._bridges: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
        stdin: bytes | AsyncGenerator[bytes] | None = None,
    ) -> ExecutionResult:
        """Run a cell; see `Session.run`."""
        return await self._run("", code, program, timeout, final, on_chunk, stdin)

    async def run_once(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = True,
        on_chunk: Callable[[OutputChunk], None] | None = None,
        stdin: bytes | AsyncGenerator[bytes] | None = None,
    ) -> ExecutionResult:
        """Run code in a fresh state with which nothing else happens; this is one request."""
        return await self._run("/run", code, program, timeout, None, on_chunk, stdin)

    async def _run(
        self,
        once: str,
        code: str,
        program: Program | None,
        timeout: float | None,
        final: bool | None,
        on_chunk: Callable[[OutputChunk], None] | None,
        stdin: bytes | AsyncGenerator[bytes] | None,
    ) -> ExecutionResult:
        language = "python" if program is None else next(name for name, row in PROGRAMS.items() if row is program)
        is_streamed = on_chunk is not None or (bool(self._functions) and program is None)
        is_streamed = is_streamed or isinstance(stdin, AsyncGenerator)
        body: dict[str, Any] = {"code": code, "language": language, "timeout": timeout, "stream": is_streamed}
        if final is not None:
            body["final"] = final
        feed: Feed | None = None
        if isinstance(stdin, bytes):
            body["stdin_base64"] = base64.b64encode(stdin).decode()
        elif stdin is not None:
            feed, body["stdin_follows"] = Feed(stdin), True
        seconds = timeout or self._limits.wall_seconds
        self._idle.clear()
        try:
            for is_last in (False, True):
                path = f"{self._engine.lease.path}/run" if once else f"{await self._opened()}/cells"
                files = None if self._is_fork else self._engine.lease.files
                try:
                    if files is not None:
                        await files.push()
                    asking = self._ask(path, body, seconds, on_chunk, is_streamed, feed)
                    facts, calls = await (asking if feed is None else feed.during(asking))
                    break
                except GoneError:
                    if is_last or (feed is not None and feed.has_begun):
                        raise
                    await self._begin_again(bool(once))
            if files is not None:
                await files.pull()
        finally:
            self._idle.set()
            if feed is not None:
                await feed.close()
            if self._cancelling is not None:  # It must not meet the next cell.
                await asyncio.wait((self._cancelling,))
        try:
            workspace = None if self._is_fork else self._engine.config.workspace
            result = await aside(result_from_json, facts, code, workspace, large=_is_large(facts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SandboxUnavailable(f"The server has sent something that is no result: {error!r:.200}") from error
        if calls is not None:
            result = replace(result, calls=_merged(result.calls, calls))
        if self._lost and not final:
            result = replace(
                result,
                state_lost=True,
                stderr=f"{STATE_LOST}\n{result.stderr}",
                output=f"{STATE_LOST}\n{result.output}",
            )
        self._lost = False
        if program is None and not once:
            self._used = not final
        return result

    async def _ask(
        self,
        path: str,
        body: Mapping[str, Any],
        seconds: float,
        on_chunk: Callable[[OutputChunk], None] | None,
        is_streamed: bool,
        feed: Feed | None,
    ) -> tuple[dict[str, Any], tuple[FunctionCall, ...] | None]:
        limits, client = self._limits, self._engine.lease.client
        most = _MOST_BYTES + 20 * limits.output_bytes + 8 * limits.value_bytes
        if not is_streamed:
            longest = seconds + limits.compile_seconds + _QUEUE_SECONDS + ANSWER_SECONDS
            return await client.ask("POST", path, body, most=most, seconds=longest, patience=seconds), None
        calls = RemoteCalls(self, path.removesuffix("/cells"), self._functions, limits) if self._functions else None
        try:
            sent = client.events(path, body, most=most, patience=seconds, gate=self._gate)
            async with sent as events, aclosing(events):
                async for name, facts in events:
                    if name == "result":
                        return facts, None if calls is None else await run_uncancellable(calls.close())
                    if name == "input" and feed is not None:
                        feed.begin(client, f"{self._engine.lease.path}/inputs/{id_of(facts)}")
                    elif name == "output" and on_chunk is not None:
                        stream = "stderr" if facts.get("stream") == "stderr" else "stdout"
                        on_chunk(OutputChunk(stream, str(facts.get("text"))))  # type: ignore[arg-type]
                    elif calls is not None and name in ("call", "left"):
                        calls.take(name, facts)
            raise AssertionError  # Such an answer has no end.
        finally:
            if calls is not None:
                await run_uncancellable(calls.close())

    async def cancel(self) -> None:
        """End the cell that runs."""
        if not self._idle.is_set() and (self._cancelling is None or self._cancelling.done()):
            self._cancelling = self._spawn(self._cancel())

    async def _cancel(self) -> None:
        """The cell may not have begun at the server: it is told until the cell has ended."""
        while not self._idle.is_set():
            if self._id:
                await self._tell("POST", f"{self._path}/cancel", _AGAIN_SECONDS * 10)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await self._idle.wait()

    async def start(self, process: Process, **how: Any) -> None:
        """Start a program beside the cells."""
        bridge = Bridge(self._engine.lease.client, process)
        try:
            await bridge.start(f"{await self._opened()}/processes", **how)
        except BaseException:
            bridge.close()
            raise
        carrying = self._spawn(bridge.carry())
        carrying.add_done_callback(lambda _: bridge.close())  # However it has ended, and if it has not begun.
        self._bridges.add(carrying)

    async def connect(self, port: int) -> socket.socket:
        """Refuse: streams do not go over a server."""
        raise RequestError("Ports of a session cannot be reached over a server; code in the session can use them.")

    async def checkpoint(self) -> RemoteCheckpoint:
        """Keep the state; see `Session.checkpoint`."""
        for is_last in (False, True):
            try:
                facts = await self._engine.lease.client.ask("POST", f"{await self._opened()}/checkpoints", {})
                return RemoteCheckpoint(id_of(facts), self._id)
            except GoneError:
                if is_last:
                    raise
                await self._begin_again(False)
        raise AssertionError

    async def fork(self, count: int, reseed: bool) -> list[RemoteSession]:
        """Make sessions with this one's state and copies of its files; see `Session.fork`."""
        if self._functions:
            raise RequestError("A session with functions of the host cannot be forked at a server.")
        path = f"{await self._opened()}/forks"
        if self._engine.lease.files is not None and not self._is_fork:
            await self._engine.lease.files.push()
        facts = await self._engine.lease.client.ask("POST", path, {"count": count, "reseed": reseed})
        made = facts.get("sessions")
        if not isinstance(made, list) or len(made) != count:
            raise SandboxUnavailable("The server has answered without the sessions.")
        forks = [RemoteSession(self._engine, {}, id_of({"id": each})) for each in made]
        for each in forks:
            each._used, each._lost = self._used, self._lost
        return forks

    async def open(self, functions: Mapping[str, HostFunction]) -> RemoteSession:
        """Use this session, a fork, which the server makes when it gets the first cell."""
        return self

    async def put(self, name: str, content: bytes) -> None:
        """Write a file into the workspace of a fork, which is in memory at the server; see `Session.put`."""
        folder, path = shlex.quote(f"./{name.rpartition('/')[0]}"), shlex.quote(f"./{name}")
        written = await self.run(f"mkdir -p {folder} && cat > {path}", PROGRAMS["sh"], stdin=content)
        if not written.success:
            raise OSError(errno.EIO, written.output.strip(), name)

    async def become(self, fork: RemoteSession) -> RemoteSession:
        """Go on as a fork, which is closed; see `Session.become`."""
        files = None if self._is_fork else self._engine.lease.files
        if files is not None:
            await files.push()  # So that what is not the fork's is removed here, too.
        await self._engine.lease.client.ask("POST", f"{self._path}/become", {"fork": fork._id})
        fork._closed, self._used, self._lost = True, fork._used, fork._lost
        if files is not None:
            await files.pull()
        return self

    async def rollback(self, handle: RemoteCheckpoint) -> None:
        """Return to a checkpoint; see `Session.rollback`."""
        if handle.session != self._id:
            raise RequestError(_GONE)
        try:
            path = f"{self._path}/checkpoints/{handle.id}/rollback"
            await run_uncancellable(self._engine.lease.client.ask("POST", path))
        except GoneError as error:
            raise RequestError(_GONE) from error
        self._lost = False

    def release(self, handle: RemoteCheckpoint) -> None:
        """Discard a checkpoint; see `Session.release`."""
        if handle.session == self._id and self._id and not self._engine.lost:
            handle.session = "-"
            self._spawn(self._tell("DELETE", f"{self._path}/checkpoints/{handle.id}"))

    async def restart(self) -> None:
        """Return to the fresh state; see `Session.restart`."""
        if self._id:
            try:
                await run_uncancellable(self._engine.lease.client.ask("POST", f"{self._path}/restart"))
            except GoneError:
                await self._begin_again(False)
        self._used = self._lost = False

    def suspend_output(self, suspended: bool) -> None:
        """Stop or continue to read what the server sends, which stops the code that prints."""
        if suspended:
            self._gate.clear()
        else:
            self._gate.set()

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Bring files from the server, and let no other session bring more within the context."""
        files = self._engine.lease.files
        if files is None:
            yield
            return
        async with files.at_rest():
            yield

    async def close(self) -> None:
        """End the session at the server; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._cancelling is not None:
            await cancel_and_wait(self._cancelling)
        if self._id and not self._engine.lost:
            await run_uncancellable(self._tell("DELETE", self._path))
        for carrying in self._bridges:
            await cancel_and_wait(carrying)

    def abandon(self) -> None:
        """As `close`, without waiting."""
        self._spawn(self.close())

    # --- The session at the server ---

    @property
    def _path(self) -> str:
        return f"/v1/sessions/{self._id}"

    async def _opened(self) -> str:
        """The path of the session, which is made if there is none."""
        if not self._id:
            offers = [function.to_offer() for function in self._functions.values()]
            for is_last in (False, True):
                lease = self._engine.lease
                try:
                    facts = await lease.client.ask("POST", f"{lease.path}/sessions", {"functions": offers})
                    break
                except GoneError:
                    if is_last:
                        raise
                    lease.lost = True
                    await self._engine.start_again()
            self._id = id_of(facts)
        return self._path

    async def _begin_again(self, once: bool) -> None:
        """After the server has said that it does not know the session, or the sandbox."""
        if self._is_fork:
            raise SandboxUnavailable("The server has lost this fork of a session; make another one.")
        if once:
            self._engine.lease.lost = True
            await self._engine.start_again()
            return
        self._lost, self._used, self._id = self._lost or self._used, False, ""

    async def _tell(self, method: str, path: str, seconds: float = ANSWER_SECONDS) -> None:
        with contextlib.suppress(CodeRoomError):  # What nobody uses is closed by the server.
            await self._engine.lease.client.ask(method, path, seconds=seconds, patience=0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve_exception)
        return task


class RemoteCalls:
    """The calls of one cell, with the same limits and the same log as in local engines; see `Calls`."""

    def __init__(
        self, session: RemoteSession, path: str, functions: Mapping[str, HostFunction], limits: Limits
    ) -> None:
        self._session = session
        self._path = path
        self._calls = _Calls(session, functions, limits, self)
        self._calls.at_server = self._standing_still
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._keys: dict[int, str] = {}

    def take(self, name: str, facts: Mapping[str, Any]) -> None:
        """Take an event of the server: a call, or that the code does not wait for one any more."""
        key = facts.get("call")
        if name == "left":
            for number, known in self._keys.items():
                if known == key:
                    self._calls.leave(number)
                    return
        elif isinstance(key, str) and key.isalnum():
            number = next(self._numbers)
            self._keys[number] = key
            self._calls.take({**facts, "call": number}, len(json.dumps(facts)))

    async def close(self) -> tuple[FunctionCall, ...]:
        """End the calls that still run, and return all of them."""
        return await self._calls.close()

    def send_now(self, message: dict[str, Any]) -> bool:
        """Take an answer, from any thread; see `Calls`."""
        call_in_loop(self._loop, self._answer, message)
        return True

    async def send(self, message: dict[str, Any]) -> None:
        """As `send_now`, which never has to wait."""
        self.send_now(message)

    def suspend_reading(self, suspended: bool) -> None:
        """Stop or continue to read calls."""
        self._session.suspend_output(suspended)

    def limit_input(self) -> None:
        """Nothing to do: the size of an answer has a limit."""

    @contextlib.asynccontextmanager
    async def _standing_still(self, number: int) -> AsyncIterator[None]:
        """Have the server stop the code, and its time limits, while somebody here decides about a call."""
        path = f"{self._path}/calls/{self._keys.get(number, '-')}"
        await self._session._tell("POST", f"{path}/pause")
        try:
            yield
        finally:
            await run_uncancellable(self._session._tell("POST", f"{path}/resume"))

    def _answer(self, message: dict[str, Any]) -> None:
        key = self._keys.pop(message.get("call", 0), "")
        if key:
            body: dict[str, Any] = {name: message[name] for name in ("value", "error") if name in message}
            self._session._spawn(self._send(f"{self._path}/calls/{key}", body))

    async def _send(self, path: str, body: dict[str, Any]) -> None:
        with contextlib.suppress(GoneError):  # The code does not wait for it any more.
            await self._session._engine.lease.client.ask("POST", path, body)


class _Calls(Calls):
    """Calls of a cell that the server stops; it counts the calls that are decided about by itself."""

    at_server: Callable[[int], contextlib.AbstractAsyncContextManager[None]]

    def standing_still(self, number: int) -> contextlib.AbstractAsyncContextManager[None]:
        return self.at_server(number)


def _merged(told: tuple[FunctionCall, ...], own: tuple[FunctionCall, ...]) -> tuple[FunctionCall, ...]:
    """The calls in the order of their arrival at the server: what it has refused, and what has happened here.

    The server has refused what did not get here; of the rest it knows less, except for time limits that it met first.
    """
    found, left = [], list(own)
    for call in told:
        if left and left[0].name == call.name and call.outcome is not Outcome.REJECTED:
            here = left.pop(0)
            found.append(call if here.outcome is Outcome.CANCELLED else here)
        else:
            found.append(call)
    return (*found, *left)


def _is_large(facts: Mapping[str, Any]) -> bool:
    return len(str(facts.get("output"))) > 50_000 or bool(facts.get("artifacts")) or facts.get("value") is not None
