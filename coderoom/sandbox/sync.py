"""A synchronous face of a sandbox, for scripts: `SyncSandbox`. An event loop in a thread of its own does the work."""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from coderoom._util.tasks import call_in_loop
from coderoom.errors import RequestError
from coderoom.sandbox.functions.callables import Offered
from coderoom.sandbox.processes import Process
from coderoom.sandbox.remote import RemoteSandbox
from coderoom.sandbox.sandbox import Sandbox
from coderoom.sandbox.session import Session

Behind = TypeVar("Behind")
P = ParamSpec("P")
T = TypeVar("T")
_CLOSING_SECONDS: Final = 10.0


class _Face(Generic[Behind]):
    """An object without `async`: the methods are those of another one, which an event loop calls."""

    def __init__(self, loop: _Loop, behind: Behind) -> None:
        self._loop = loop
        self._behind = behind


def _waiting(
    method: Callable[Concatenate[Behind, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[Behind], P], T]:
    """A method with the same arguments that waits for the result."""

    @functools.wraps(method)
    def wait(face: _Face[Behind], /, *arguments: P.args, **more: P.kwargs) -> T:
        return face._loop.wait_for(method(face._behind, *arguments, **more))

    return wait


def _iterating(
    method: Callable[Concatenate[Behind, P], AsyncGenerator[T]],
) -> Callable[Concatenate[_Face[Behind], P], Generator[T]]:
    """A method with the same arguments that yields what the other one does."""

    @functools.wraps(method)
    def iterate(face: _Face[Behind], /, *arguments: P.args, **more: P.kwargs) -> Generator[T]:
        return face._loop.iterate(lambda: method(face._behind, *arguments, **more))

    return iterate


class SyncSandbox(_Face[Sandbox]):
    """A sandbox without `async`; its methods are those of `Sandbox`, and wait.

        with SyncSandbox(preload=["numpy"]) as sandbox:
            print(sandbox.run("1 + 1").value)

    It can be used from any thread, but not within an event loop, which would stop.

    Args:
        sandbox: The sandbox, or the name of the wall of one that is made.
        url: The URL of a server, whose sandbox it is then; see `RemoteSandbox`.
        token: The token that the server knows.
        arguments: Other arguments of `Sandbox`.

    Raises:
        RequestError: An argument is wrong.
    """

    def __init__(self, sandbox: Sandbox | str = "auto", *, url: str = "", token: str = "", **arguments: Any) -> None:
        if isinstance(sandbox, Sandbox):
            if url or token or arguments:
                raise RequestError("SyncSandbox takes a sandbox, or the arguments of one, and not both.")
            self.sandbox = sandbox
        elif url or token:
            self.sandbox = RemoteSandbox(url, token, **({} if sandbox == "auto" else {"wall": sandbox}), **arguments)
        else:
            self.sandbox = Sandbox(sandbox, **arguments)
        super().__init__(_Loop(), self.sandbox)
        # For a sandbox that is never closed.
        self._dropped = weakref.finalize(self, _close, self._loop, self.sandbox)
        self._dropped.atexit = False  # The end of what the sandbox has made later would come before.
        atexit.register(self._dropped)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def wall(self) -> str:
        """See `Sandbox.wall`."""
        return self.sandbox.wall

    @property
    def facts(self) -> Mapping[str, Any]:
        """See `Sandbox.facts`."""
        return self.sandbox.facts

    def close(self) -> None:
        """See `Sandbox.close`."""
        atexit.unregister(self._dropped)
        self._dropped.detach()
        self._loop.end(self.sandbox.close())

    start = _waiting(Sandbox.start)
    run = _waiting(Sandbox.run)
    stream = _iterating(Sandbox.stream)

    def session(self, functions: Sequence[Offered] = ()) -> SyncSession:
        """See `Sandbox.session`. Functions that are not async run in threads, others in the thread of the sandbox."""
        return SyncSession(self._loop, self._loop.call(self.sandbox.session, functions))


class SyncSession(_Face[Session]):
    """A session without `async`; its methods are those of `Session`, and wait. Made by `SyncSandbox.session`.

    `on_output` is called in another thread, and `cancel` is for another thread than the one that waits for the cell.
    """

    def __init__(self, loop: _Loop, session: Session) -> None:
        super().__init__(loop, session)
        self.session = session

    def __enter__(self) -> Self:
        self._loop.wait_for(self.session.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, argv: Sequence[str], **how: Any) -> SyncProcess:
        """See `Session.start`."""
        return SyncProcess(self._loop, self._loop.wait_for(self.session.start(argv, **how)))

    run = _waiting(Session.run)
    stream = _iterating(Session.stream)
    cancel = _waiting(Session.cancel)
    checkpoint = _waiting(Session.checkpoint)
    rollback = _waiting(Session.rollback)
    release = _waiting(Session.release)
    restart = _waiting(Session.restart)
    changes = _waiting(Session.changes)
    diff = _waiting(Session.diff)
    commit = _waiting(Session.commit)
    discard = _waiting(Session.discard)
    put = _waiting(Session.put)
    close = _waiting(Session.close)

    def fork(self, count: int = 1, *, reseed: bool = False) -> list[SyncSession]:
        """See `Session.fork`."""
        forks = self._loop.wait_for(self.session.fork(count, reseed=reseed))
        return [SyncSession(self._loop, each) for each in forks]

    def become(self, fork: SyncSession) -> None:
        """See `Session.become`."""
        self._loop.wait_for(self.session.become(fork.session))


class SyncProcess(_Face[Process]):
    """A program that stays in a session, without `async`; its methods are those of `Process`, and wait."""

    def __init__(self, loop: _Loop, process: Process) -> None:
        super().__init__(loop, process)
        self.process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def exit_code(self) -> int | None:
        """See `Process`."""
        return self.process.exit_code

    read = _waiting(Process.read)
    write = _waiting(Process.write)
    close_input = _waiting(Process.close_input)
    wait = _waiting(Process.wait)
    send_signal = _waiting(Process.send_signal)
    kill = _waiting(Process.kill)
    stop = _waiting(Process.stop)

    def resize(self, rows: int, columns: int) -> None:
        """See `Process.resize`."""
        self._loop.call(self.process.resize, rows, columns)


class _Loop:
    """An event loop in a thread, which starts with the first work."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def is_here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def wait_for(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do something in the loop; an interrupt cancels it."""
        if self.is_here or self._loop.is_closed():
            work.close()
            if self.is_here:
                raise RequestError("An async function of the host cannot use SyncSandbox, which would wait for itself.")
            raise RequestError("The sandbox is closed; make a new one with SyncSandbox(...).")
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="coderoom-sandbox", daemon=True)
                self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in the loop."""

        async def work() -> T:
            return function(*arguments)

        return self.wait_for(work())

    def iterate(self, make: Callable[[], AsyncGenerator[T]]) -> Generator[T]:
        """What an asynchronous generator yields."""
        pieces = self.call(make)
        try:
            while True:
                try:
                    piece = self.wait_for(_next(pieces))
                except StopAsyncIteration:
                    return
                yield piece
        finally:
            self.wait_for(pieces.aclose())

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        """Do something, and end the thread; a second time does nothing."""
        if self._loop.is_closed():
            last.close()
        elif self.is_here:  # An object was collected while the loop was at work.
            self._ending = self._loop.create_task(self._end(last))
        else:
            try:
                self.wait_for(self._end(last), _CLOSING_SECONDS)
            finally:
                call_in_loop(self._loop, self._loop.stop)
                if self._thread is not None:
                    self._thread.join(_CLOSING_SECONDS)

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            with suppress(RuntimeError):  # At the end of the program, its threads have ended already.
                await self._loop.shutdown_default_executor()
            self._loop.call_soon(self._loop.stop)

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


async def _next(pieces: AsyncGenerator[T]) -> T:
    return await anext(pieces)


def _close(loop: _Loop, sandbox: Sandbox) -> None:
    with suppress(Exception):  # At the end of the program, parts of it have ended already.
        loop.end(sandbox.close())
