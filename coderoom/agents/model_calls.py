"""The one way in which agents call their model: system message, token, images and usage are never forgotten."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, ModelClientStreamingChunkEvent
from autogen_agentchat.state import BaseState
from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, SystemMessage
from pydantic import Field

from coderoom._util.components import linked
from coderoom._util.tasks import ended
from coderoom._util.text import encodable

__all__ = ["Conversation", "ConversationState", "call_model"]

_SOON: Final = 0.01
"""Seconds within which a chunk that is there already is read."""
_MOST_READY: Final = 100


class ConversationState(BaseState):
    """What an agent's state holds of its conversation; the fields are what `Conversation.load` takes."""

    llm_context: Mapping[str, Any] = Field(default_factory=dict)
    taken: list[str] = Field(default_factory=list)


class Conversation:
    """An agent's memory: the model context, the system message before it, and what has gone in already.

    Args:
        context: Where the messages are kept.
        system_message: What every model call begins with, or `None` for nothing.
    """

    def __init__(self, context: ChatCompletionContext, system_message: str | None) -> None:
        self.context = context
        self.system_message = system_message
        self._taken: set[str] = set()
        self._initial: Mapping[str, Any] | None = None

    async def take(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add what came in, each message once, also when a turn that failed is tried again."""
        await self._remember_beginning()
        for message in messages:
            if message.id in self._taken:
                continue
            self._taken.add(message.id)
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self.context.add_message(earlier)
            await self.context.add_message(message.to_model_message())

    async def save(self) -> dict[str, Any]:
        """The fields of a `ConversationState`: the context, and what of a turn that failed is in it already."""
        return {"llm_context": dict(await self.context.save_state()), "taken": sorted(self._taken)}

    def end_turn(self) -> None:
        """The turn went well: the same message given again is meant again."""
        self._taken.clear()

    async def reset(self) -> None:
        """Go back to what the context held before the first message."""
        await self._remember_beginning()
        await self.load(self._initial or {})

    async def load(self, llm_context: Mapping[str, Any], taken: Sequence[str] = ()) -> None:
        """Take over what `save` gave; an empty context clears it."""
        await self._remember_beginning()
        self._taken = set(taken)
        if llm_context:
            await self.context.load_state(llm_context)
        else:
            await self.context.clear()

    async def _remember_beginning(self) -> None:
        if self._initial is None:
            self._initial = await self.context.save_state()

    async def for_model(self, model_client: ChatCompletionClient, *more: LLMMessage) -> list[LLMMessage]:
        """What to send: system message, context, then `more`; without images for a model that sees none."""
        system = [] if self.system_message is None else [SystemMessage(content=self.system_message)]
        messages = [*system, *await self.context.get_messages(), *more]
        return messages if model_client.model_info.get("vision") else remove_images(messages)


async def call_model(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    *,
    stream: bool,
    source: str,
    message_id: str,
    cancellation_token: CancellationToken,
) -> AsyncGenerator[ModelClientStreamingChunkEvent | CreateResult, None]:
    """Call the model and yield its chunks, if asked for, and its result last.

    Args:
        model_client: The model.
        messages: All that it gets.
        stream: Whether to yield chunks as they come.
        source: The agent's name, for the chunks.
        message_id: The id of the message that this call becomes, by which a UI joins the chunks.
        cancellation_token: Ends the call at once, also for a client that does not look at it.

    Raises:
        TypeError: If the model answers with anything but text.
    """
    result: CreateResult | None = None
    if stream:
        async with aclosing(_stream(model_client, messages, cancellation_token)) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    result = item
                else:
                    text = encodable(item)
                    yield ModelClientStreamingChunkEvent(content=text, source=source, full_message_id=message_id)
        if result is None:
            raise TypeError(f"{type(model_client).__name__} ended its stream without a result.")
    else:
        result = await linked(model_client.create(messages, cancellation_token=cancellation_token), cancellation_token)
    if not isinstance(result.content, str):
        names = ", ".join(repr(call.name) for call in result.content)
        raise TypeError(
            f"The model called {names} as a tool. It is offered none, and is to answer with text, in which its code "
            "stands. Try another model, or tell it so in `system_message`."
        )
    thought = None if result.thought is None else encodable(result.thought)
    yield result.model_copy(update={"content": encodable(result.content), "thought": thought})


async def _stream(
    model_client: ChatCompletionClient, messages: Sequence[LLMMessage], cancellation_token: CancellationToken
) -> AsyncGenerator[str | CreateResult, None]:
    # OpenAI's client tells a stream's tokens only if it is asked to, by an argument that others do not have.
    asks = "include_usage" in inspect.signature(model_client.create_stream).parameters
    more: dict[str, Any] = {"include_usage": True} if asks else {}
    # A token of its own: see `_hang_up`.
    own_token = CancellationToken()
    chunks = model_client.create_stream(messages, cancellation_token=own_token, **more)
    finished = False
    try:
        while not finished:
            if cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            try:
                item = await linked(anext(chunks), cancellation_token)
            except StopAsyncIteration:
                finished = True
            else:
                yield item
    finally:
        try:
            if not finished:
                await _hang_up(chunks, own_token)
        finally:
            await chunks.aclose()


async def _hang_up(chunks: AsyncGenerator[str | CreateResult, None], token: CancellationToken) -> None:
    """Make a client end its connection.

    AutoGen's clients keep it open, and the service goes on writing, if their stream is closed between two chunks.
    They end it when they are cancelled while they wait for the next one.
    """
    # What is there already may be read, but not the whole of a service that never pauses.
    for _ in range(_MOST_READY):
        read = asyncio.ensure_future(anext(chunks))
        try:
            await asyncio.wait([read], timeout=_SOON)
            if not read.done():
                token.cancel()
                await asyncio.wait([read], timeout=_SOON)
        finally:
            await ended(read)
        if read.cancelled() or read.exception() is not None:
            return
