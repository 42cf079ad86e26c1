"""Answers that end when the client leaves, streams of events, and calls to functions of the client."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from typing import Any, Final, TypeVar

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from coderoom._util.tasks import Deadline, cancel_and_wait, resolve, run_uncancellable, within
from coderoom.integrations.service.failures import NotFoundError, failure_of
from coderoom.sandbox import while_a_person_decides
from coderoom.sandbox.functions.function import DescribedError

T = TypeVar("T")
Event = tuple[str, dict[str, Any]]
"""Its name and its data."""
Aside = Callable[[], AbstractAsyncContextManager[None]]
_KEEP_ALIVE_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 60.0
_MOST_QUEUED: Final = 256


class CallError(BaseModel):
    """An exception of a function of the client: its built-in class, its arguments, and its text."""

    model_config = ConfigDict(extra="forbid")

    type: str
    args: list[Any] = []
    message: str = ""


class CallAnswer(BaseModel):
    """What a function of the client has returned or raised."""

    model_config = ConfigDict(extra="forbid")

    value: Any = None
    error: CallError | None = None


_Item = CallAnswer | asyncio.Future[None] | None
"""What is new of a call: its answer; that a person decides, with what to set once the cell stands still; or no more."""
_News = asyncio.Queue[_Item]


class LimitedStream(StreamingResponse):
    """A stream that ends after a time, however slowly its client reads; what makes it ends with it.

    The time does not run while the code that it is about stands still.

    Args:
        content: The pieces.
        seconds: The time.
        more: Further arguments of `StreamingResponse`.
    """

    def __init__(self, content: AsyncGenerator[bytes], seconds: float, **more: Any) -> None:
        super().__init__(content, **more)
        self._content = content
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `StreamingResponse`."""
        try:
            async with asyncio.timeout(None) as timeout:
                with within(Deadline(self._seconds, lambda: timeout.reschedule(0))):
                    await super().__call__(scope, receive, send)
        except TimeoutError:  # The answer is not complete, which the client notices.
            pass
        finally:
            await run_uncancellable(self._content.aclose())


class InputPiece(BaseModel):
    """A piece of what code or a program reads."""

    model_config = ConfigDict(extra="forbid")

    data: Base64Bytes = Field(default=b"", description="In base64.")
    end: bool = Field(default=False, description="Whether nothing follows.")


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do work, which ends when the client leaves."""
    task = asyncio.current_task()
    assert task is not None
    leaving = asyncio.ensure_future(_leave(request))
    is_over = has_left = False

    def stop(_: object) -> None:
        nonlocal has_left
        if not is_over:
            has_left = True
            task.cancel()

    leaving.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and not task.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        is_over = True
        leaving.cancel()


async def _leave(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def kept_alive(items: AsyncGenerator[T], seconds: float = _KEEP_ALIVE_SECONDS) -> AsyncGenerator[T | None]:
    """The items of a stream, and `None` after each so many seconds in which nothing came."""
    queue: asyncio.Queue[tuple[T] | Exception | None] = asyncio.Queue(_MOST_QUEUED)

    async def fill() -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    async with asyncio.timeout(_PATIENCE_SECONDS):  # Of a client that does not read.
                        await queue.put((item,))
        except Exception as error:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(error)
        else:
            await queue.put(None)

    filling = asyncio.ensure_future(fill())
    try:
        while True:
            try:
                async with asyncio.timeout(seconds):
                    found = await queue.get()
            except TimeoutError:
                yield None
                continue
            if found is None:
                return
            if isinstance(found, Exception):
                raise found
            yield found[0]
    finally:
        await cancel_and_wait(filling)


async def sent_events(events: AsyncGenerator[Event]) -> AsyncGenerator[bytes]:
    """Server-sent events, with a comment now and then; a failure becomes an event, too."""
    async with aclosing(kept_alive(events)) as found:
        try:
            async for event in found:
                if event is None:
                    yield b": waiting\n\n"
                else:
                    yield f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode()
        except Exception as error:
            _, facts, _ = failure_of(error)
            yield f"event: error\ndata: {json.dumps(facts)}\n\n".encode()


class ClientInput:
    """What code reads from standard input, as its client sends it piece by piece. A piece waits until it is wanted."""

    def __init__(self) -> None:
        self._given: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._is_over = False

    async def write(self, piece: InputPiece) -> None:
        """Take a piece.

        Raises:
            NotFoundError: The code has ended.
        """
        for each in (piece.data, *([None] if piece.end else ())):
            await self._given.put(each)
            if self._is_over:
                self.close()
                raise NotFoundError("The code does not read any more.")

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The pieces, up to the end."""
        while (piece := await self._given.get()) is not None:
            yield piece

    def close(self) -> None:
        """Tell who waits that the code has ended."""
        self._is_over = True
        if self._given.full():
            self._given.get_nowait()


class ClientCalls:
    """Calls that a cell makes to functions of the client: events of the stream of the cell, and their answers.

    While persons at the client decide about a call, the cell stands still, with its time limits.
    """

    def __init__(self) -> None:
        self._asked: asyncio.Queue[dict[str, Any]] | None = None
        self._waiting: dict[str, _News] = {}
        self._aside: Aside = nullcontext
        self._until = 0.0

    async def ask(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Ask the client for the result of a call."""
        if self._asked is None:
            raise RuntimeError(f"{name}() cannot be called: the client does not stream this cell")
        key = secrets.token_hex(8)
        news = self._waiting[key] = asyncio.Queue()
        self._asked.put_nowait({"call": key, "name": name, "args": args, "kwargs": kwargs})
        try:
            found = await news.get()
            while not isinstance(found, CallAnswer):
                found = await (news.get() if found is None else self._stand_still(found, news))
        except asyncio.CancelledError:
            self._asked.put_nowait({"call": key})  # The client need not go on.
            raise
        finally:
            self._waiting.pop(key, None)
            while not news.empty():
                if isinstance(left := news.get_nowait(), asyncio.Future):
                    resolve(left)
        if found.error is not None:
            raise DescribedError(found.error.model_dump())
        return found.value

    async def pause(self, call: str) -> None:
        """Have the cell stand still until `resume`, or an answer; when this returns, it does.

        Raises:
            NotFoundError: Nobody waits for the call.
        """
        begun = asyncio.get_running_loop().create_future()
        self._news_of(call).put_nowait(begun)
        await begun

    def resume(self, call: str) -> None:
        """Let the cell go on; raises as `pause`."""
        self._news_of(call).put_nowait(None)

    def answer(self, call: str, found: CallAnswer) -> None:
        """Take an answer; raises as `pause`."""
        self._news_of(call).put_nowait(found)
        del self._waiting[call]

    def _news_of(self, call: str) -> _News:
        if (news := self._waiting.get(call)) is None:
            raise NotFoundError("There is no such call, or the code does not wait for it any more.")
        return news

    async def _stand_still(self, begun: asyncio.Future[None], news: _News) -> _Item:
        """Stop the cell until there is news of a call, but not for too long."""
        if asyncio.get_running_loop().time() >= self._until:  # However often it is asked to.
            resolve(begun)
            return None
        try:
            async with while_a_person_decides(), self._aside():
                resolve(begun)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._until):
                        return await news.get()
                return None
        finally:
            resolve(begun)

    async def among(
        self, pieces: AsyncGenerator[T], aside: Aside, most_seconds: float
    ) -> AsyncGenerator[T | dict[str, Any]]:
        """The pieces of a cell's stream, and among them its calls.

        Args:
            pieces: The pieces.
            aside: What the cell is in while it stands still.
            most_seconds: How long after its beginning it may stand still.
        """
        asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._asked, self._aside = asked, aside
        self._until = asyncio.get_running_loop().time() + most_seconds
        call: asyncio.Task[Any] = asyncio.ensure_future(asked.get())
        piece: asyncio.Task[Any] | None = None
        try:
            async with aclosing(pieces):
                while True:
                    piece = piece or asyncio.ensure_future(anext(pieces))
                    await asyncio.wait((piece, call), return_when=asyncio.FIRST_COMPLETED)
                    if call.done():
                        yield call.result()
                        call = asyncio.ensure_future(asked.get())
                    elif piece.done():
                        done, piece = piece, None
                        try:
                            yield done.result()
                        except StopAsyncIteration:
                            return
        finally:
            if self._asked is asked:
                self._asked = None
            call.cancel()
            if piece is not None:
                await cancel_and_wait(piece)
