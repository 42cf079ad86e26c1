"""Calls a model for a text, streamed or not, after its client and the pictures of the request were prepared."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

from autogen_core import CancellationToken, Image
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from autogen_core.tools import Tool

from coderoom._util.autogen import transports_of
from coderoom._util.tasks import aside, await_with_token, cancel_and_wait
from coderoom._util.text import encodable
from coderoom.errors import ModelError
from coderoom.models.names import innermost_client
from coderoom.models.replies import keep_whole

_SOON: Final = 0.01
"""The seconds to wait for a chunk that has arrived already."""
_MOST_READY: Final = 100


async def call_model(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    cancellation_token: CancellationToken,
    tools: Sequence[Tool] = (),
    on_chunk: Callable[[str], Awaitable[None]] | None = None,
    temperature: float | None = None,
) -> CreateResult:
    """Call a model, whose reply is streamed if there is an `on_chunk`.

    The token ends the call at once, even if the client ignores it. An answer that is not text is a `TypeError`, unless
    the model was offered tools. A stream without anything in it is a `ModelError`: a page of a web server is one.
    """
    more: dict[str, Any] = {"tools": tools} if tools else {}
    if temperature is not None:
        more["extra_create_args"] = {"temperature": temperature}
    await make_ready(model_client)
    messages = await with_encoded_pictures(messages)
    result: CreateResult | None
    if on_chunk is None:
        call = model_client.create(messages, cancellation_token=cancellation_token, **more)
        result = await await_with_token(call, cancellation_token)
    else:
        result = await _stream(model_client, messages, cancellation_token, more, on_chunk)
    if result is None:
        raise TypeError(f"{type(model_client).__name__} ended its stream without a result.")
    if result.finish_reason == "unknown" and not (result.content or result.thought or result.usage.prompt_tokens):
        raise ModelError("The answer was empty, and even its end was missing.")
    if isinstance(result.content, str):
        thought = None if result.thought is None else await aside(encodable, result.thought)
        return result.model_copy(update={"content": await aside(encodable, result.content), "thought": thought})
    if tools:
        return result
    names = ", ".join(repr(call.name) for call in result.content)
    raise TypeError(
        f"The model called {names} as a tool, but it has no tools and should answer with code in text. Try another "
        "model, or say so in `system_message`."
    )


async def _stream(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    cancellation_token: CancellationToken,
    more: Mapping[str, Any],
    on_chunk: Callable[[str], Awaitable[None]],
) -> CreateResult | None:
    # OpenAI's client counts the tokens of a stream only with this argument, which other clients do not have.
    asks = "include_usage" in inspect.signature(model_client.create_stream).parameters
    more = {**more, "include_usage": True} if asks else more
    # Cancelled by `_hang_up` only.
    own_token = CancellationToken()
    chunks = model_client.create_stream(messages, cancellation_token=own_token, **more)
    result, finished = None, False
    try:
        while True:
            if cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            item = await await_with_token(anext(chunks), cancellation_token)
            if isinstance(item, CreateResult):
                result = item
            else:
                await on_chunk(await aside(encodable, item))
    except StopAsyncIteration:
        finished = True
        return result
    finally:
        try:
            if not finished:
                await _hang_up(chunks, own_token)
        finally:
            await chunks.aclose()


async def _hang_up(chunks: AsyncGenerator[str | CreateResult, None], token: CancellationToken) -> None:
    """Make a client close its connection.

    If a stream is closed between two chunks, AutoGen's clients keep the connection open and the service goes on
    writing. They close it only if they are cancelled while waiting for a chunk.
    """
    # Chunks that have arrived already are read, up to a limit.
    for _ in range(_MOST_READY):
        read = asyncio.ensure_future(anext(chunks))
        try:
            await asyncio.wait([read], timeout=_SOON)
            if not read.done():
                token.cancel()
                await asyncio.wait([read], timeout=_SOON)
        finally:
            await cancel_and_wait(read)
        if read.cancelled() or read.exception() is not None:
            return


# --- What is prepared: replies are whole, connections end with the event loop, pictures are encoded ---


async def make_ready(model_client: Any) -> None:
    """Prepare a client for a request in this event loop."""
    found = _open.get(asyncio.get_running_loop())
    if found is None or model_client not in found[2]:  # Each request asks for it.
        await _close_with_loop(innermost_client(model_client))
        keep_whole(model_client)
        _open[asyncio.get_running_loop()][2].add(model_client)


class _Encoded(Image):
    """A picture that is encoded once. AutoGen's clients encode each of theirs for each request, in the event loop."""

    def __init__(self, picture: Image) -> None:
        self.image = picture.image
        self._base64 = picture.to_base64()

    def to_base64(self) -> str:
        return self._base64

    @property
    def data_uri(self) -> str:
        return f"data:image/png;base64,{self._base64}"


_encoded: Final[WeakKeyDictionary[Image, _Encoded]] = WeakKeyDictionary()


async def with_encoded_pictures(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """The messages of a request, whose pictures are encoded in a thread, so that the event loop goes on."""
    ready: list[LLMMessage] = []
    for message in messages:
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            content: list[Any] = []
            for part in message.content:
                if isinstance(part, Image) and not isinstance(part, _Encoded):
                    if part not in _encoded:
                        _encoded[part] = await aside(_Encoded, part)
                    part = _encoded[part]
                content.append(part)
            message = message.model_copy(update={"content": content})
        ready.append(message)
    return ready


Open = dict[ref[Any], list[Any]]

_open: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], Open, WeakSet[Any]]] = {}
"""For each event loop: what closes connections at its end, the connections, and the clients that are ready."""


async def _close_with_loop(model_client: Any) -> None:
    """Close a client's connections when the running event loop ends. The client can still be used in another loop.

    AutoGen's teams do not close clients. Open connections cause warnings when the interpreter ends, and an error when
    the client is used in a second event loop.
    """
    loop = asyncio.get_running_loop()
    if loop not in _open:
        for old in [old for old in _open if old.is_closed()]:
            del _open[old]
        opened: Open = {}
        # Asynchronous generators are closed when a loop ends.
        at_end = _close_at_end(loop, opened)
        _open[loop] = at_end, opened, WeakSet()
        await anext(at_end)
    opened = _open[loop][1]
    if ref(model_client) not in opened:
        for dead in [client for client in opened if client() is None]:
            await _close(opened.pop(dead))
        opened[ref(model_client)] = transports_of(model_client)


async def _close_at_end(loop: asyncio.AbstractEventLoop, opened: Open) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        for transports in list(opened.values()):
            await _close(transports)


async def _close(transports: list[Any]) -> None:
    for transport in transports:
        with suppress(Exception):
            await transport.aclose()
