"""Calls a model for a text, streamed or not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage
from autogen_core.tools import Tool

from coderoom._util.tasks import aside, await_with_token, cancel_and_wait
from coderoom._util.text import encodable
from coderoom.errors import ModelError
from coderoom.models.ready import make_ready, with_encoded_pictures

_SOON: Final = 0.01
"""The seconds to wait for a chunk that has arrived already."""
_MOST_READY: Final = 100


async def call_model(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    cancellation_token: CancellationToken,
    tools: Sequence[Tool] = (),
    on_chunk: Callable[[str], Awaitable[None]] | None = None,
) -> CreateResult:
    """Call a model, whose reply is streamed if there is an `on_chunk`.

    The token ends the call at once, even if the client ignores it. An answer that is not text is a `TypeError`, unless
    the model was offered tools. A stream without anything in it is a `ModelError`: a page of a web server is one.
    """
    more: dict[str, Any] = {"tools": tools} if tools else {}
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
