"""What tools that run code have in common: a session of the sandbox, and the text that a model sees."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final

from coderoom._util.distribution import install_command
from coderoom._util.text import with_line
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.sandbox import ExecutionResult, Limits, Sandbox, Session, remark_on
from coderoom.sandbox.config import network_in_words

NAME: Final = "run_code"
_DESCRIPTION: Final = """\
Run Python code in an isolated sandbox and return what it prints and the value of its last expression.

Variables, imports and files last from call to call. {reach} The last line says how the code ended if it failed."""
CODE: Final = "The Python code."
_CLOSED: Final = "The session is closed; make a new one."
_END_SECONDS: Final = 10.0
_MOST_SESSIONS: Final = 64
OUTPUT_BYTES: Final = 32_768
"""Of a longer output, a model sees the beginning and the end."""


def missing(name: str, extra: str) -> MissingDependencyError:
    """The error for a framework that is not installed."""
    return MissingDependencyError(f"{name} is not installed: {install_command(extra)}")


def describe_tool(options: Mapping[str, Any] | None = None) -> str:
    """What a model is told of the tool, by the arguments of its `Sandbox`."""
    given = options or {}
    reach = network_in_words(given.get("network", False), given.get("credentials") or ())
    return _DESCRIPTION.format(reach=reach)


def text_of(result: ExecutionResult, limits: Limits, *, in_session: bool = True) -> str:
    """What a model sees: the output, the value, remarks, the names of new files, and how it ended if it failed."""
    text = result.output
    remark = remark_on(result, limits, in_session)
    if result.value_repr is not None:
        text = with_line(text, result.value_repr)
    if remark and remark not in text:
        text = with_line(text, remark)
    if result.artifacts:
        text = with_line(text, f"[files: {', '.join(artifact.name for artifact in result.artifacts)}]")
    if not result.success:
        text = with_line(text, f"[outcome: {result.outcome}, exit code {result.exit_code}]")
    return text.rstrip("\n") or "(no output)"


class CodeSession(AbstractContextManager["CodeSession"]):
    """A session in a sandbox of its own. It starts with the first cell, and can be used from any thread and event loop.

    Conversations have sessions of their own in the sandbox, which do not see each other's variables and files. One is a
    text, or an object that lasts as long as it; `None` is the caller who knows of none.

    It has an event loop in a thread, because frameworks call a tool from several loops, or from none. What is not
    closed ends with this object or with the process.

    Args:
        functions: Functions of the host that the code may call.
        most: Of more conversations, the one that was idle for longest loses its variables; 0: none does.
        options: Arguments of `Sandbox`. `output_bytes` of `limits` is 32 KiB, and tables are described, unless
            that is set otherwise.
    """

    def __init__(self, functions: Sequence[Any] = (), *, most: int = _MOST_SESSIONS, **options: Any) -> None:
        limits = options.pop("limits", None) or {}
        if isinstance(limits, Mapping):
            limits = {"output_bytes": OUTPUT_BYTES, **limits}
        self._sandbox = Sandbox(limits=limits, **{"describe_tables": True, **options})
        self._functions = functions
        self._most = most
        self._sessions: dict[str | int | None, tuple[Any, Session]] = {None: (None, self._sandbox.session(functions))}
        self._running: Counter[str | int | None] = Counter()
        self._choosing = threading.Lock()
        self._loop, thread = start_loop("coderoom-session")
        self._end = weakref.finalize(self, _end, self._sandbox, self._sessions, self._loop, thread)
        self._end.atexit = False  # The sandbox ends with its host anyway.

    @property
    def limits(self) -> Limits:
        """What a cell may use."""
        return self._sandbox.limits

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its thread."""
        return self._loop

    async def run(self, code: str, conversation: Any = None, timeout: float | None = None) -> ExecutionResult:
        """Run a cell. A caller that is cancelled ends it."""
        return await asyncio.wrap_future(self._submit(code, conversation, timeout))

    def run_blocking(self, code: str, conversation: Any = None) -> ExecutionResult:
        """As `run`, for callers without an event loop. A caller that is interrupted ends it."""
        future = self._submit(code, conversation)
        try:
            return future.result()
        finally:
            future.cancel()

    async def answer(self, code: str, conversation: Any = None) -> str:
        """Run a cell; return what a model sees."""
        return self.describe(await self.run(code, conversation))

    def describe(self, result: ExecutionResult) -> str:
        """What a model sees of a result."""
        return text_of(result, self._sandbox.limits)

    def close(self) -> None:
        """End everything that the code has started; a second time does nothing."""
        self._end()

    async def end(self, conversation: Any) -> None:
        """End the session of a conversation."""
        _, session = self._sessions.pop(_key_of(conversation), (None, None))
        if session is not None and self._end.alive:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.close(), self._loop))

    def _session_of(self, conversation: Any) -> Session:
        key = _key_of(conversation)
        with self._choosing:
            # An object is kept with its session: another one could have its identity later.
            found = self._sessions.pop(key, None) or (conversation, self._sandbox.session(self._functions))
            self._sessions[key] = found  # As the last one.
            self._running[key] += 1
            idle = next((each for each in self._sessions if not self._running[each]), key)
            if 0 < self._most < len(self._sessions) and idle != key:
                _, oldest = self._sessions.pop(idle)
                asyncio.run_coroutine_threadsafe(oldest.close(), self._loop)
        return found[1]

    def _submit(self, code: str, conversation: Any, timeout: float | None = None) -> Future[ExecutionResult]:
        if not self._end.alive:
            raise RequestError(_CLOSED)
        work = self._session_of(conversation).run(code, timeout=timeout)
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # It was closed at this moment.
            work.close()
            raise RequestError(_CLOSED) from error
        key = _key_of(conversation)

        def ended(_: Future[ExecutionResult]) -> None:
            with self._choosing:
                self._running -= Counter([key])  # Without those that have none left.

        future.add_done_callback(ended)
        return future

    def __exit__(self, *_: object) -> None:
        self.close()


def _key_of(conversation: Any) -> str | int | None:
    return conversation if conversation is None or isinstance(conversation, str) else id(conversation)


def start_loop(name: str) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Start an event loop in a thread; `end_loop` ends it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop,), name=name, daemon=True)
    thread.start()
    return loop, thread


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def end_loop(closing: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Close what uses a loop, and end the loop."""

    async def end() -> None:
        try:
            await closing
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:  # They have ended, and their callers are to know it.
                _, left = await asyncio.wait(others, timeout=1)
                for other in left:
                    other.cancel()
                await asyncio.sleep(0)
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    if threading.current_thread() is not thread:  # The garbage collector may run there.
        thread.join(_END_SECONDS)


def _end(
    sandbox: Sandbox,
    sessions: Mapping[str | int | None, tuple[Any, Session]],
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
) -> None:
    async def close() -> None:  # A cell that runs has the outcome `cancelled`.
        await asyncio.gather(*(session.close() for _, session in list(sessions.values())))
        await sandbox.close()

    end_loop(close(), loop, thread)
