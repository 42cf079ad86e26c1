"""The class `Session`: an interpreter state of a sandbox that lasts from cell to cell. Made by `Sandbox.session`."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, overload

from coderoom._util.tasks import aside, call_in_loop, cancel_and_wait, run_uncancellable
from coderoom.errors import RequestError
from coderoom.sandbox.cell import Input, check, check_can_start, input_of, reporting_failures
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.contracts import EngineFork, EngineSession
from coderoom.sandbox.functions.callables import Offer
from coderoom.sandbox.functions.calls import calls_of
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.overlay import Changes, Committed, Overlay, Patch
from coderoom.sandbox.processes import Process
from coderoom.sandbox.result import ExecutionResult, NetworkUse, OutputChunk
from coderoom.sandbox.snapshots import OverlaySnapshot, Snapshot, take_snapshot

T = TypeVar("T")
OpenEngine = Callable[[Mapping[str, HostFunction]], Awaitable[EngineSession]]
_QUEUE = 256
_MOST_STREAMED = 1_000_000
_MOST_AT_ONCE = 100
"""How many chunks are passed on as they arrive. Later ones are combined, since showing each of them costs time."""
_GATHER_SECONDS = _MOMENT = 0.05
_NO_MORE = "\n[Further output of the code is not shown while it runs.]\n"
_CLOSED = "The session is closed; make a new one with sandbox.session()."


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A state that a session can return to, until it is released or this object is garbage-collected.

    Attributes:
        handle: The engine's object for it.
        files: The copy of the workspace's files, if one was requested.
        session: The session whose state it is.
    """

    handle: Any
    files: Snapshot | OverlaySnapshot | None
    session: Session = field(repr=False)


class Session:
    """One interpreter state in a sandbox; made by `Sandbox.session`.

    Variables, imports, the current folder and files last from cell to cell, also over a cell that fails. Cells run one
    after the other; several sessions run at the same time.
    """

    def __init__(
        self,
        config: SandboxConfig,
        open: OpenEngine,
        offer: Offer,
        register: Callable[[Session], None],
        fork: EngineFork | None = None,
    ) -> None:
        self._config = config
        self._register = register  # It has the sandbox close the session at the latest.
        register(self)
        self._open = open if fork is None else fork.open
        self._fork = fork
        self._offer = offer
        self._has_functions = bool(offer)
        self._engine: EngineSession | None = None
        self._dropped: weakref.finalize[..., Any]
        self._lock = asyncio.Lock()
        self._closed = False
        self._network_after: tuple[NetworkUse, ...] = ()
        self._overlay: Overlay | None = None  # Once this is closed.
        if fork is not None:
            self._drop_with_this(fork.abandon)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def idle(self) -> bool:
        """Whether no cell runs."""
        return not self._lock.locked()

    @property
    def network_after(self) -> tuple[NetworkUse, ...]:
        """What its code has asked for after the last cell, once the session is closed, as `ExecutionResult.network`."""
        return self._network_after

    @overload
    async def start(self) -> None: ...

    @overload
    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        size: tuple[int, int] = (24, 80),
        wait_for_reader: bool = False,
    ) -> Process: ...

    async def start(
        self,
        argv: Sequence[str] | None = None,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        size: tuple[int, int] = (24, 80),
        wait_for_reader: bool = False,
    ) -> Process | None:
        """Start a program that stays beside the cells. Without `argv`, start the session, as the first cell does.

        The program does not wait for a cell, nor a cell for it. It ends with the session at the latest, and with all
        that ends what cells have left running: a rollback, a restart, a limit that is met, a cell that is stopped.

        Args:
            argv: Its command, such as `["python", "-m", "http.server"]`.
            cwd: Its folder, below the workspace.
            env: More environment variables for it.
            pty: Whether it has a terminal, as which it reads and writes.
            size: The rows and the columns of the terminal.
            wait_for_reader: Whether it waits while `limits.output_bytes` of its output were not read. Otherwise the
                oldest is dropped, which the next piece says.

        Returns:
            The process.

        Raises:
            SandboxUnavailable: The sandbox cannot be started.
            RequestError: The session is closed, it has as many processes as it may have, an argument is wrong, or the
                engine runs no programs.
            OSError: The program cannot be started: there is none of that name, for instance.
        """
        if argv is None:
            async with self._use():
                return None
        how = check_can_start(self._config, argv, cwd, env, size if pty else None)
        engine = await self._started()
        process = Process(argv, size if pty else None, self._config.limits.output_bytes, wait_for_reader)
        await engine.start(process, **how)
        return process

    async def connect(self, port: int, *, timeout: float = 0.0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a TCP port at which a process of this session listens, and to no other one.

        Processes can listen in a sandbox with `local_network=True` or a network. This does not wait for a cell.

        Args:
            port: The port.
            timeout: How many seconds to wait for something to listen.

        Returns:
            A reader and a writer, as those of `asyncio.open_connection`.

        Raises:
            ConnectionRefusedError: Nothing in the session listens at the port.
            OSError: It does not accept the connection, or there are too many.
            SandboxUnavailable: The sandbox broke.
            RequestError: The session is closed, or nothing in it can listen.
        """
        if not isinstance(port, int) or not 0 < port < 65_536:
            raise RequestError(f"port={port!r:.100} is not a number from 1 to 65535.")
        config = self._config
        if not (config.local_network or config.network or config.wall == "none"):
            raise RequestError("Nothing in this sandbox can listen at a port: local_network=True allows it.")
        check_can_start(config)
        engine, end = await self._started(), asyncio.get_running_loop().time() + timeout
        while True:
            try:
                return await asyncio.open_unix_connection(sock=await engine.connect(port))
            except ConnectionRefusedError:
                if asyncio.get_running_loop().time() >= end:
                    raise
            await asyncio.sleep(_MOMENT)

    async def run(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        stdin: Input | None = None,
        on_output: Callable[[OutputChunk], None] | None = None,
        final: bool = False,
    ) -> ExecutionResult:
        """Run a cell.

        Args:
            code: The cell.
            language: `python`; or another of `LANGUAGES`, for a separate program in the same workspace.
            timeout: How many seconds it may take; `None`: the sandbox's `limits.wall_seconds`.
            stdin: What the cell, and all that it starts, reads from standard input: text, bytes, or an iterable of
                them, async or plain, whose pieces are passed on as they come; `None`: nothing. Such a cell prints as a
                program in a pipe does: its standard output is buffered.
            on_output: Called with each piece of output while the cell runs. What it raises ends the cell.
            final: Whether the variables end with this cell. Then all happens that happens at the end of a Python
                script: threads and processes are waited for, `atexit` is called, files are closed.

        Returns:
            The result.

        Raises:
            SandboxUnavailable: The sandbox broke; that says nothing about the code.
            RequestError: The language is not supported, or the session is closed.
            MissingDependencyError: The compiler or the interpreter of the language is not installed.
        """
        given = input_of(self._config, stdin)
        program, rejected = await check(self._config, code, language, timeout)
        if rejected is not None:
            return rejected
        errors: list[Exception] = []
        stopping: list[asyncio.Task[None]] = []

        def take(chunk: OutputChunk) -> None:
            try:
                if on_output is not None and not errors:
                    on_output(chunk)
            except Exception as error:
                errors.append(error)
                stopping.append(asyncio.ensure_future(self.cancel()))

        async with self._use() as engine:
            result = await engine.run(code, program, timeout, final, None if on_output is None else take, **given)
        if errors:
            raise errors[0]
        return result

    def stream(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        stdin: Input | None = None,
        final: bool = False,
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run a cell and yield its output while it runs; the result comes last.

        If the output is not consumed, the code blocks while it prints. Closing the stream before its end ends the cell.
        The arguments are those of `run`.

        Returns:
            Pieces of output, then the result.

        Raises:
            SandboxUnavailable: As `run`.
            RequestError: As `run`.
        """

        def suspend(suspended: bool) -> None:
            if self._engine is not None:
                self._engine.suspend_output(suspended)

        return stream_whole(
            lambda take: self.run(code, language=language, timeout=timeout, stdin=stdin, on_output=take, final=final),
            suspend,
        )

    async def cancel(self) -> None:
        """End the cell that runs; its result has the outcome `cancelled` and the output so far.

        As after a timeout, variables stay if the code reacts to an interrupt; if they are lost, the next result says
        so. The same holds for a cell whose task is cancelled and for a stream that is closed early.
        """
        if self._engine is not None:
            await self._engine.cancel()

    async def checkpoint(self, *, files: bool = False) -> Checkpoint:
        """Keep the state as it is, to return to it later. Running threads and programs are not part of it.

        Args:
            files: Keep a copy of the workspace's files too.

        Returns:
            The checkpoint. It is kept until it is released or the object is garbage-collected; there is a limit to
            their number.

        Raises:
            SandboxUnavailable: The sandbox broke.
            RequestError: The session is closed, there are too many checkpoints, or the workspace is too large to be
                kept.
        """
        async with self._use() as engine:
            handle: Any = await engine.checkpoint()
            try:
                snapshot = await take_snapshot(self._config, engine) if files else None
            except BaseException:
                engine.release(handle)
                raise
            checkpoint = Checkpoint(handle, snapshot, self)
            loop = asyncio.get_running_loop()
            weakref.finalize(checkpoint, call_in_loop, loop, engine.release, handle).atexit = False
            return checkpoint

    async def rollback(self, checkpoint: Checkpoint) -> None:
        """Return to a checkpoint, any number of times. Checkpoints that were made after it are discarded.

        Args:
            checkpoint: The checkpoint. If files were kept with it, the workspace gets those again.

        Raises:
            SandboxUnavailable: The sandbox broke.
            RequestError: The checkpoint belongs to another session, or was discarded.
        """
        self._check(checkpoint)
        async with self._use() as engine:
            await run_uncancellable(_go_back(engine, checkpoint))

    async def release(self, checkpoint: Checkpoint) -> None:
        """Discard a checkpoint that is not needed any longer; one that was discarded already is no error.

        Args:
            checkpoint: The checkpoint.

        Raises:
            RequestError: It is not a checkpoint, or belongs to another session.
        """
        self._check(checkpoint)
        if self._engine is not None:
            self._engine.release(checkpoint.handle)
        if checkpoint.files is not None:
            await run_uncancellable(asyncio.to_thread(checkpoint.files.remove))

    async def changes(self) -> Changes:
        """List what code has changed in a workspace with `workspace_mode="overlay"`, also after `close`.

        Returns:
            The changes by path, renames as such; without those that leave a file as it was.

        Raises:
            RequestError: The workspace has another mode.
            SandboxUnavailable: The sandbox broke.
        """
        async with self._overlaid() as overlay:
            return await aside(overlay.changes, large=True)

    async def diff(self, paths: Collection[str] | None = None) -> Patch:
        """The changes as a unified diff that `git apply` takes: with binary files, modes, renames and links.

        Args:
            paths: Files, and folders with all that is in them, that it is about; `None`: all changes.

        Returns:
            The diff. What is not in it is named in its `left_out`: what is in `.git`, empty folders, large files.

        Raises:
            RequestError: As `changes`.
            SandboxUnavailable: As `changes`.
        """
        async with self._overlaid() as overlay:
            return await aside(overlay.diff, paths, large=True)

    async def commit(
        self, patch: Patch | None = None, *, unsafe: bool = False, paths: Collection[str] | None = None
    ) -> Committed:
        """Write the changes into the workspace, unless somebody has changed the same files there meanwhile.

        Each file is replaced at once; if a content cannot be written, nothing is changed. No link is followed. The
        session goes on with the new state of the folder.

        Args:
            patch: The result of `diff` that somebody has agreed to: if the code has changed anything after it, nothing
                is written. `None`: what there is now is written.
            unsafe: Also write what is refused otherwise: what is in `.git`, `.hg` and `.jj`, where hooks and settings
                run programs on this machine, and links that lead out of the workspace.
            paths: See `diff`; those that it was made with, if there is a `patch`. The other changes stay apart.

        Returns:
            What was written and what was refused.

        Raises:
            ChangedMeanwhile: Files were changed by others since the session was opened; its `paths` names them.
            RequestError: As `changes`; or the folder cannot be written to, or there are other changes than in `patch`.
            SandboxUnavailable: As `changes`.
        """
        async with self._overlaid() as overlay:
            return await aside(overlay.commit, patch, unsafe, paths, large=True)

    async def discard(self, paths: Collection[str] | None = None) -> None:
        """Undo the changes: the session sees the workspace as it is.

        Args:
            paths: Files, and folders with all that is in them, that the session is to see as they are now, also if
                others have changed them; `None`: all.

        Raises:
            RequestError: As `changes`.
            SandboxUnavailable: As `changes`.
        """
        async with self._overlaid() as overlay:
            await run_uncancellable(asyncio.to_thread(overlay.discard, paths))

    async def save_changes(self, paths: Collection[str]) -> bytes:
        """The changes at some paths as data, for `load_changes` of a later session of the same folder.

        Args:
            paths: Files, and folders with all that is in them, where something has changed.

        Raises:
            RequestError: As `changes`; or they are too large, or nothing has changed at a path.
            SandboxUnavailable: As `changes`.
        """
        async with self._overlaid() as overlay:
            return await aside(overlay.as_data, paths, large=True)

    async def load_changes(self, data: bytes) -> None:
        """Have changes that another session of the same folder had, besides those that there are.

        Args:
            data: What `save_changes` has returned.

        Raises:
            RequestError: As `changes`; or they cannot be written.
            SandboxUnavailable: As `changes`.
        """
        async with self._overlaid() as overlay:
            await run_uncancellable(asyncio.to_thread(overlay.load, data))

    async def put(self, name: str, content: bytes) -> None:
        """Write a file into the workspace of a fork, or of a session with `workspace_mode="overlay"`, as its change.

        Args:
            name: Its path below the workspace.
            content: Its content.

        Raises:
            OSError: A folder or a link is in the way.
            RequestError: As `changes`.
            SandboxUnavailable: As `changes`.
        """
        failure: OSError | None = None  # In a context of the engine, it would be taken for one of the sandbox.
        if self._fork is not None and self._config.workspace_mode != "overlay":
            async with self._use() as engine:
                if not hasattr(engine, "put"):
                    raise RequestError(f"Files cannot be written into a fork of the engine {self._config.engine!r}.")
                try:
                    await engine.put(name, content)
                except OSError as error:
                    failure = error
        else:
            async with self._overlaid() as overlay:
                try:
                    await aside(overlay.put, name, content, large=True)
                except OSError as error:
                    failure = error
        if failure is not None:
            raise failure

    async def take_over(self, other: Session) -> None:
        """Get the changes of another session of the sandbox, also of a closed one, in place of one's own.

        Raises:
            RequestError: As `changes`.
            SandboxUnavailable: As `changes`.
        """
        async with other._overlaid() as theirs, self._overlaid() as ours:
            await run_uncancellable(asyncio.to_thread(ours.take_over, theirs))

    async def fork(self, count: int = 1, *, reseed: bool = False) -> list[Session]:
        """Make sessions with the state of this one, which go on from it on their own.

        They share memory with it until somebody writes to it, and have its variables, environment and current folder,
        and copies of the files in its workspace and in `/tmp`. These are in memory, or at other paths behind walls
        without mounts, and nothing that they change is seen elsewhere; with `workspace_mode="overlay"`, each has an
        overlay with the same changes. Its running threads and programs are not part of the state, and forks begin
        without checkpoints. They count as sessions of the sandbox, and stay when this one is closed.

        This only keeps the state and the files as they are. Each fork gets its process, its namespaces and its files
        when it is first used: by its first cell, or by `start()` and `async with`. Forks of a fork that has not been
        used are further ones of the same state, which costs nothing.

        Args:
            count: How many.
            reseed: Whether each gets random numbers of its own, from `random` and from `numpy.random`. Otherwise all
                go on with the same ones.

        Returns:
            The sessions. Close them, or use each with `async with`.

        Raises:
            SandboxUnavailable: The sandbox broke.
            RequestError: The session is closed, the sandbox cannot have so many sessions, the files are too large, or
                sessions cannot be forked here.
        """
        if type(count) is not int or count < 1:
            raise RequestError(f"count={count!r:.100} is not a number from 1 on.")
        if (forks := await self._more_forks(count, reseed)) is None:
            async with self._use() as engine:
                if not hasattr(engine, "fork"):
                    raise RequestError(f"A session of the engine {self._config.engine!r} cannot be forked.")
                forks = await engine.fork(count, reseed)
        return [Session(self._config.of_fork, self._open, self._offer, self._register, each) for each in forks]

    async def _more_forks(self, count: int, reseed: bool) -> Sequence[EngineFork] | None:
        """More forks of the same state, if this is a fork that has not been used."""
        async with self._lock:
            if self._fork is None or self._engine is not None or self._closed:
                return None
            with reporting_failures():
                return await self._fork.fork(count, reseed)

    async def become(self, fork: Session) -> None:
        """Go on as a fork of this session: with its variables, environment and current folder, and with its files.

        The workspace gets exactly the files of the fork: what the fork has changed, made or removed, and nothing of
        what was written there after it was made, by whomever. Only files that differ are written, each at once. What
        this session has running ends, and so do programs that the fork has started; its threads stay. Checkpoints of
        both are gone, other forks stay. The fork is closed then.

        Args:
            fork: What `fork` of this session has made, or of one of its forks.

        Raises:
            SandboxUnavailable: The sandbox broke.
            RequestError: It is not a fork of this session, it or this one is closed, or its files cannot be written;
                then both are as they were, but for what the fork had running.
        """
        if fork is self or fork._fork is None or fork._offer is not self._offer:
            raise RequestError("A session can only become a fork of its own, and this is none.")
        async with fork._use() as theirs, self._use() as ours:
            await run_uncancellable(self._replace(ours, fork, theirs))

    async def _replace(self, ours: EngineSession, fork: Session, theirs: EngineSession) -> None:
        engine = await ours.become(theirs)  # type: ignore[attr-defined]
        for each in (self, fork):
            each._dropped.detach()
        fork._closed, fork._engine = True, None
        self._have(engine)

    async def restart(self) -> None:
        """Return to a fresh state; files stay, checkpoints are discarded.

        Raises:
            SandboxUnavailable: The sandbox broke.
            RequestError: The session is closed.
        """
        async with self._use() as engine:
            await engine.restart()

    async def close(self) -> None:
        """End everything that the session has started; a second time does nothing."""
        self._closed = True
        await self.cancel()
        await run_uncancellable(self._close())

    @contextlib.asynccontextmanager
    async def _overlaid(self) -> AsyncGenerator[Overlay]:
        """The changes, while nothing writes to them."""
        if self._config.workspace_mode != "overlay":
            raise RequestError('This needs a sandbox with workspace_mode="overlay", which keeps the changes apart.')
        if not self._closed:
            async with self._use() as engine, engine.frozen():
                yield engine.overlay  # type: ignore[attr-defined]
        elif self._overlay is None:
            raise RequestError("The session was never started: it has no changes of its own.")
        else:
            async with self._lock:
                yield self._overlay

    @contextlib.asynccontextmanager
    async def _use(self) -> AsyncGenerator[EngineSession]:
        """Wait for the session's turn, and start it if it is not; what breaks is reported as `unavailable` says."""
        if self._has_functions and self._engine is not None and calls_of(self._engine):
            raise RequestError(
                "A function that code in this session has called cannot use the same session: it would wait for itself."
            )
        async with self._lock:
            with reporting_failures():
                yield await self._get_engine()

    async def _started(self) -> EngineSession:
        """The engine's session for what does not wait for its turn; started if it is not."""
        engine = self._engine
        if engine is None:
            async with self._use() as engine:
                pass
        if self._closed:
            raise RequestError(_CLOSED)
        return engine

    def _check(self, checkpoint: object) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise RequestError(f"A checkpoint is what session.checkpoint() returns, and this is {checkpoint!r:.100}.")
        if checkpoint.session is not self:
            raise RequestError("This checkpoint is another session's; only that one can use it.")

    async def _get_engine(self) -> EngineSession:
        """Return the engine's session, started if it is not; the caller holds the lock."""
        if self._closed:
            raise RequestError(_CLOSED)
        engine = self._engine
        if engine is None:
            engine = await self._open(await self._offer.list())
            self._have(engine)
            overlay: Overlay | None = getattr(engine, "overlay", None)
            if overlay is not None and self._fork is None:
                overlay.layer.begin()
            if self._closed:  # Closed meanwhile; `close` is waiting for the lock.
                raise RequestError(_CLOSED)
        return engine

    def _have(self, engine: EngineSession) -> None:
        self._engine = engine
        if self._fork is not None:
            self._dropped.detach()
        self._drop_with_this(engine.abandon)

    def _drop_with_this(self, abandon: Callable[[], None]) -> None:
        # For a session that is never closed.
        self._dropped = weakref.finalize(self, call_in_loop, asyncio.get_running_loop(), abandon)
        self._dropped.atexit = False

    async def _close(self) -> None:
        async with self._lock:
            engine, self._engine = self._engine, None
            if engine is not None:
                self._dropped.detach()
                self._overlay = getattr(engine, "overlay", None)
                await engine.close()
                self._network_after = getattr(engine, "network_after", ())
            elif self._fork is not None:
                self._dropped.detach()
                self._fork.abandon()


async def stream_whole(
    run: Callable[[Callable[[OutputChunk], None]], Any], suspend: Callable[[bool], None]
) -> AsyncGenerator[OutputChunk | ExecutionResult]:
    """Stream a run for a reader who wants all of its output, as `Session.stream` does: the code waits for the reader.

    The buffer is bounded. `suspend` stops (`True`) or continues the reading of output; code that prints then blocks.
    """
    queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()
    suspended = left = False

    def take(chunk: OutputChunk) -> None:
        nonlocal suspended
        if left:
            return
        queue.put_nowait(chunk)
        if queue.qsize() >= _QUEUE and not suspended:
            suspended = True
            suspend(True)

    task = asyncio.ensure_future(run(take))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (chunk := await queue.get()) is not None:
            if suspended and queue.qsize() < _QUEUE // 4:
                suspended = False
                suspend(False)
            yield chunk
        yield await task
    finally:
        left = True
        await cancel_and_wait(task)


async def stream_gathered(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]], quiet_seconds: float = 0.0
) -> AsyncGenerator[OutputChunk | T, None]:
    """Stream a run for a reader who shows it, as agents do: the code does not wait, so that much output is gathered.

    A piece becomes a message, which takes far longer than to print it. So pieces are combined after the first ones,
    none come beyond a limit, and none if the run ends within `quiet_seconds` of its first output: the result has all.
    """
    waiting: deque[OutputChunk] = deque()
    news = asyncio.Event()
    size = 0

    def report_output(chunk: OutputChunk) -> None:
        nonlocal size
        if size < _MOST_STREAMED:
            size += len(chunk.text)
            waiting.append(chunk if size < _MOST_STREAMED else OutputChunk("stderr", _NO_MORE))
            news.set()

    task = asyncio.ensure_future(run(report_output))
    task.add_done_callback(lambda _: news.set())
    pieces = 0
    try:
        while waiting or not task.done():
            if not waiting:
                news.clear()
                await news.wait()
                if quiet_seconds and not pieces and (await asyncio.wait([task], timeout=quiet_seconds))[0]:
                    waiting.clear()
                continue
            pieces += 1
            if pieces > _MOST_AT_ONCE:
                await asyncio.wait([task], timeout=_GATHER_SECONDS)
                while waiting:
                    yield _gathered(waiting)
            else:
                yield waiting.popleft()
        yield await task
    finally:
        await cancel_and_wait(task)


def _gathered(waiting: deque[OutputChunk]) -> OutputChunk:
    """The first chunk, combined with those after it of the same stream."""
    first = waiting.popleft()
    texts = [first.text]
    while waiting and waiting[0].stream == first.stream:
        texts.append(waiting.popleft().text)
    return OutputChunk(first.stream, "".join(texts))


with_output = stream_gathered
"""Its earlier name."""


async def _go_back(engine: EngineSession, checkpoint: Checkpoint) -> None:
    await engine.rollback(checkpoint.handle)
    if checkpoint.files is not None:
        await checkpoint.files.restore()
