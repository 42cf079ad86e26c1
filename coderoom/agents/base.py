"""What agents share: a conversation, model calls, and turns as streams."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.state import BaseState
from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken, ComponentModel
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, Field

from coderoom._util.components import linked
from coderoom._util.connections import close_with_loop
from coderoom._util.structured import Answer, ask_structured
from coderoom._util.tasks import cancel_and_wait
from coderoom._util.text import encodable
from coderoom._util.watching import at_end_of_run, note_run
from coderoom.agents import metadata as keys
from coderoom.agents.code_runner import CodeRunner
from coderoom.approval import Approval, ApprovalFuncType

__all__ = ["CodingAgent", "Conversation", "ConversationState", "Item", "ModelAgent", "StreamingAgent"]

DecisionT = TypeVar("DecisionT", bound=BaseModel)

Item = BaseAgentEvent | BaseChatMessage | Response
"""What an agent's stream yields."""

_SOON: Final = 0.01
"""Seconds within which a chunk that is there already is read."""
_MOST_READY: Final = 100


class StreamingAgent(BaseChatAgent):
    """An agent whose turns are streams that end with a `Response`."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(name, description=description)
        note_run()
        at_end_of_run(self.close)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Take a turn and return its last item."""
        items = [item async for item in self.on_messages_stream(messages, cancellation_token)]
        assert isinstance(items[-1], Response)
        return items[-1]


class ModelAgent(StreamingAgent):
    """An agent with a conversation.

    Args:
        name: The agent's name.
        description: What it is for, for other agents.
        model_client: The model; `None` for an agent that asks none.
        model_context: Where the conversation is kept; `None`: an unbounded one.
        system_message: What every model call begins with, or `None`.

    Raises:
        ValueError: The model client is none.
    """

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        system_message: str | None,
    ) -> None:
        super().__init__(name, description)
        if model_client is not None and getattr(model_client, "model_info", None) is None:
            raise ValueError(
                f"model_client must be one of AutoGen's model clients, not {model_client!r}; for instance "
                "OpenAIChatCompletionClient(model=...) of autogen_ext.models.openai."
            )
        self._model_client = model_client
        self._model_context = UnboundedChatCompletionContext() if model_context is None else model_context
        self._system_message = system_message or None
        self._conversation = Conversation(self._model_context, self._system_message)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return (TextMessage,)

    @property
    def model_context(self) -> ChatCompletionContext:
        """Where the conversation is kept."""
        return self._model_context

    async def _ask_for(
        self, schema: type[DecisionT], question: str, cancellation_token: CancellationToken
    ) -> Answer[DecisionT]:
        """Ask about the conversation; neither the question nor the answer goes into it."""
        assert self._model_client is not None
        return await ask_structured(
            self._model_client,
            await self._conversation.for_model(self._model_client, UserMessage(content=question, source=self.name)),
            schema,
            source=self.name,
            cancellation_token=cancellation_token,
        )

    @property
    def _system_message_in_config(self) -> str:
        # AutoGen drops None from a dump, and what is left out means the default.
        return self._system_message or ""


class CodingAgent(ModelAgent):
    """An agent that has code run, and that can pause between model calls and runs.

    Args:
        name: The agent's name.
        description: What it is for, for other agents.
        model_client: The model; `None` for an agent that asks none.
        model_context: Where the conversation is kept; `None`: an unbounded one.
        model_client_stream: Whether to yield the model's chunks as they come.
        system_message: What every model call begins with, or `None`.
        runner: Runs the code.
    """

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        model_client_stream: bool,
        system_message: str | None,
        runner: CodeRunner,
    ) -> None:
        super().__init__(name, description, model_client, model_context, system_message)
        self._model_client_stream = model_client_stream
        self._runner = runner
        self._resumed = asyncio.Event()
        self._resumed.set()

    async def _recorded(self, turn: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
        """A turn whose `Response` has all that came before it, and that lets go of the executor's state at its end."""
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        try:
            async with aclosing(turn) as items:
                async for item in items:
                    if isinstance(item, Response):
                        item.inner_messages = inner
                        self._end_turn()
                    elif not isinstance(item, ModelClientStreamingChunkEvent):
                        inner.append(item)
                    yield item
        finally:
            await self._runner.let_go()

    def _end_turn(self) -> None:
        """The turn went well."""
        self._conversation.end_turn()

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Wait before the next model call or run, until `on_resume`."""
        self._resumed.clear()

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Go on after `on_pause`."""
        self._resumed.set()

    def ask_instead(self, approval: Approval) -> Approval | ApprovalFuncType | None:
        """Ask another approval before code runs; the config keeps the agent's own one.

        Returns:
            The one that was asked until now.
        """
        return self._runner.ask_instead(approval)

    async def _ask_model(
        self, message_id: str, cancellation_token: CancellationToken, hint: str | None = None
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent | ThoughtEvent | CreateResult, None]:
        """One model call; its reply goes into the context."""
        assert self._model_client is not None
        await self._wait_if_paused(cancellation_token)
        more = [] if hint is None else [UserMessage(content=hint, source=self.name)]
        call = call_model(
            self._model_client,
            await self._conversation.for_model(self._model_client, *more),
            stream=self._model_client_stream,
            source=self.name,
            message_id=message_id,
            cancellation_token=cancellation_token,
        )
        async with aclosing(call) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    if item.thought:
                        yield ThoughtEvent(content=item.thought, source=self.name)
                    await self._model_context.add_message(
                        AssistantMessage(content=item.content, thought=item.thought, source=self.name)
                    )
                yield item

    async def _add_to_context(self, text: str) -> None:
        await self._model_context.add_message(UserMessage(content=text, source=self.name))

    async def _wait_if_paused(self, cancellation_token: CancellationToken) -> None:
        await linked(self._resumed.wait(), cancellation_token)

    def _approval_config(self, approval: Approval | ApprovalFuncType | None) -> ComponentModel | None:
        """An approval as it stands in a config.

        Raises:
            ValueError: It is a function.
        """
        if approval is None or isinstance(approval, Approval):
            return None if approval is None else approval.dump_component()
        raise ValueError(
            f"Cannot serialize {type(self).__name__} with approval_func set to {approval!r}: a function cannot stand "
            "in a config. Use a component of coderoom.approval."
        )


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
            # Questions to a person are for people.
            if message.id in self._taken or keys.SHOWN in message.metadata:
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
    await close_with_loop(model_client)
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
            await cancel_and_wait(read)
        if read.cancelled() or read.exception() is not None:
            return
