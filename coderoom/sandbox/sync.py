"""A synchronous face of a sandbox, for scripts: `SyncSandbox`. An event loop in a thread of its own does the work."""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from coderoom._util.tasks import call_in_loop
from coderoom.errors import RequestError
from coderoom.sandbox.cell import Input
from coderoom.sandbox.functions.callables import Offered
from coderoom.sandbox.processes import Process
from coderoom.sandbox.remote import RemoteSandbox
from coderoom.sandbox.result import ExecutionResult, OutputChunk
from coderoom.sandbox.sandbox import Sandbox
from coderoom.sandbox.session import Checkpoint, Session

T = TypeVar("T")
_CLOSING_SECONDS: Final = 10.0


class SyncSandbox:
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
        self._loop = _Loop()
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

    def start(self) -> None:
        """See `Sandbox.start`."""
        self._loop.wait_for(self.sandbox.start())

    def close(self) -> None:
        """See `Sandbox.close`."""
        atexit.unregister(self._dropped)
        self._dropped.detach()
        self._loop.end(self.sandbox.close())

    def run(
        self, code: str, *, language: str = "python", timeout: float | None = None, stdin: Input | None = None
    ) -> ExecutionResult:
        """See `Sandbox.run`."""
        return self._loop.wait_for(self.sandbox.run(code, language=language, timeout=timeout, stdin=stdin))

    def stream(
        self, code: str, *, language: str = "python", timeout: float | None = None, stdin: Input | None = None
    ) -> Generator[OutputChunk | ExecutionResult]:
        """See `Sandbox.stream`."""
        return self._loop.iterate(lambda: self.sandbox.stream(code, language=language, timeout=timeout, stdin=stdin))

    def session(self, functions: Sequence[Offered] = ()) -> SyncSession:
        """See `Sandbox.session`. Functions that are not async run in threads, others in the thread of the sandbox."""
        return SyncSession(self._loop, self._loop.call(self.sandbox.session, functions))


class SyncSession:
    """A session without `async`; its methods are those of `Session`, and wait. Made by `SyncSandbox.session`."""

    def __init__(self, loop: _Loop, session: Session) -> None:
        self._loop = loop
        self.session = session

    def __enter__(self) -> Self:
        self._loop.wait_for(self.session.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, argv: Sequence[str], **how: Any) -> SyncProcess:
        """See `Session.start`."""
        return SyncProcess(self._loop, self._loop.wait_for(self.session.start(argv, **how)))

    def run(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        stdin: Input | None = None,
        on_output: Callable[[OutputChunk], None] | None = None,
        final: bool = False,
    ) -> ExecutionResult:
        """See `Session.run`; `on_output` is called in another thread."""
        return self._loop.wait_for(
            self.session.run(code, language=language, timeout=timeout, stdin=stdin, on_output=on_output, final=final)
        )

    def stream(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        stdin: Input | None = None,
        final: bool = False,
    ) -> Generator[OutputChunk | ExecutionResult]:
        """See `Session.stream`."""
        return self._loop.iterate(
            lambda: self.session.stream(code, language=language, timeout=timeout, stdin=stdin, final=final)
        )

    def cancel(self) -> None:
        """See `Session.cancel`; for another thread than the one that waits for the cell."""
        self._loop.wait_for(self.session.cancel())

    def checkpoint(self, *, files: bool = False) -> Checkpoint:
        """See `Session.checkpoint`."""
        return self._loop.wait_for(self.session.checkpoint(files=files))

    def rollback(self, checkpoint: Checkpoint) -> None:
        """See `Session.rollback`."""
        self._loop.wait_for(self.session.rollback(checkpoint))

    def release(self, checkpoint: Checkpoint) -> None:
        """See `Session.release`."""
        self._loop.wait_for(self.session.release(checkpoint))

    def fork(self, count: int = 1, *, reseed: bool = False) -> list[SyncSession]:
        """See `Session.fork`."""
        forks = self._loop.wait_for(self.session.fork(count, reseed=reseed))
        return [SyncSession(self._loop, each) for each in forks]

    def restart(self) -> None:
        """See `Session.restart`."""
        self._loop.wait_for(self.session.restart())

    def close(self) -> None:
        """See `Session.close`."""
        self._loop.wait_for(self.session.close())


class SyncProcess:
    """A program that stays in a session, without `async`; its methods are those of `Process`, and wait."""

    def __init__(self, loop: _Loop, process: Process) -> None:
        self._loop = loop
        self.process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def exit_code(self) -> int | None:
        """See `Process`."""
        return self.process.exit_code

    def read(self, timeout: float | None = None) -> str:
        """See `Process.read`."""
        return self._loop.wait_for(self.process.read(timeout))

    def write(self, data: str | bytes) -> None:
        """See `Process.write`."""
        self._loop.wait_for(self.process.write(data))

    def close_input(self) -> None:
        """See `Process.close_input`."""
        self._loop.wait_for(self.process.close_input())

    def wait(self) -> int:
        """See `Process.wait`."""
        return self._loop.wait_for(self.process.wait())

    def send_signal(self, number: int) -> None:
        """See `Process.send_signal`."""
        self._loop.wait_for(self.process.send_signal(number))

    def kill(self) -> int:
        """See `Process.kill`."""
        return self._loop.wait_for(self.process.kill())

    def stop(self, timeout: float = 2.0) -> int:
        """See `Process.stop`."""
        return self._loop.wait_for(self.process.stop(timeout))

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
