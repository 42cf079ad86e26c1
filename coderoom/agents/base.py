"""The base classes of all agents: their conversation, the loop of those that write code, and what they say.

`ModelAgent` has a conversation with a model. `CodingAgent` writes code in it and has it run. At the end are the events,
reports of code and pictures that they say.
"""

from __future__ import annotations

import asyncio
import io
import json
import uuid
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, TypeVar

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Handoff, Response, TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    MemoryQueryEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.state import BaseState
from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken, ComponentModel, FunctionCall, Image
from autogen_core.code_executor import CodeBlock
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool
from PIL import Image as PILImage
from pydantic import BaseModel, Field

from coderoom._util.closing import at_end_of_run, note_run
from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom._util.files import read_inside
from coderoom._util.tasks import aside, await_with_token, cancel_and_wait
from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import (
    EDITED,
    MOST_CALLS,
    Attempt,
    CodeFormat,
    CodeRunner,
    Selection,
    select_blocks,
    select_from_reply,
)
from coderoom.agents.metadata import StopReason
from coderoom.approval import Approval, ApprovalFuncType
from coderoom.blocks import extract_code_blocks, fence
from coderoom.models.budgets import Budget, Spending
from coderoom.models.calling import call_model
from coderoom.models.compacting import CompactingContext
from coderoom.models.structured import Answer, ask_structured
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, ExecutionResult, OnOutput, stream_gathered

DecisionT = TypeVar("DecisionT", bound=BaseModel)


class StreamingAgent(BaseChatAgent):
    """An agent whose turns are streams that end with a `Response`."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(name, description=description)
        note_run()
        at_end_of_run(self.close)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Take a turn and return its last item."""
        items = [item async for item in self.on_messages_stream(messages, cancellation_token)]
        assert isinstance(items[-1], Response)
        return items[-1]


class ConversationState(BaseState):
    """An agent's saved state: its conversation, and which messages of an unfinished turn it contains."""

    llm_context: Mapping[str, Any] = Field(default_factory=dict)
    taken: list[str] = Field(default_factory=list)


class ModelAgent(ArgumentsConfig, StreamingAgent):
    """An agent with a conversation, which is unbounded without a `model_context`."""

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        system_message: str | None,
        budget: Budget | None,
    ) -> None:
        super().__init__(name, description)
        if model_client is not None and getattr(model_client, "model_info", None) is None:
            raise ValueError(
                f"model_client must be one of AutoGen's model clients, not {model_client!r}; for instance "
                "OpenAIChatCompletionClient(model=...) of autogen_ext.models.openai."
            )
        self._model_client = model_client
        self._model_context = UnboundedChatCompletionContext() if model_context is None else model_context
        self._initial_context: Mapping[str, Any] | None = None
        self._taken: set[str] = set()
        self._system_message = self._instructions = system_message or None
        self.limit(budget)

    def use_model(self, model_client: ChatCompletionClient) -> None:
        """Ask another model from now on."""
        self._model_client = model_client

    @property
    def model_context(self) -> ChatCompletionContext:
        """Where the conversation is kept."""
        return self._model_context

    async def _take(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add messages to the conversation, each of them once, also if a failed turn is repeated."""
        await self._save_initial_context()
        for message in messages:
            # A question to a person is not for models.
            if message.id in self._taken or keys.SHOWN in message.metadata:
                continue
            self._taken.add(message.id)
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self._model_context.add_message(earlier)
            await self._model_context.add_message(message.to_model_message())

    def _end_turn(self) -> None:
        """The turn succeeded: from now on the same message may be added again."""
        self._taken.clear()

    async def _conversation(self, *more: LLMMessage) -> list[LLMMessage]:
        """What the model gets: instructions, messages, then `more`; without images if it has no vision."""
        assert self._model_client is not None
        system = [] if self._instructions is None else [SystemMessage(content=self._instructions)]
        messages = [*system, *await self._model_context.get_messages(), *more]
        return messages if self._model_client.model_info.get("vision") else remove_images(messages)

    async def _ask_for(
        self, schema: type[DecisionT], question: str, cancellation_token: CancellationToken
    ) -> Answer[DecisionT]:
        """Ask a question about the conversation, without adding question and answer to it."""
        assert self._model_client is not None
        messages = await self._conversation(UserMessage(content=question, source=self.name))
        with self._within_budget():
            return await ask_structured(
                self._model_client, messages, schema, source=self.name, cancellation_token=cancellation_token
            )

    # --- Its budget ---

    @property
    def budget(self) -> Budget | None:
        """What the agent may use."""
        return self._budget

    def limit(self, budget: Budget | None) -> None:
        """Replace the agent's budget, and begin to count anew."""
        self._budget = budget
        self._spending = None if budget is None else Spending(budget, f"agent {self.name!r}")

    def _within_budget(self) -> AbstractContextManager[None]:
        """Check and charge the agent's budget, if it has one, for what it does in this context."""
        return nullcontext() if self._spending is None else self._spending.limiting(self)

    # --- Its state and its config ---

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Return to the conversation before the first message, and begin to count anew."""
        await self._save_initial_context()
        await self._load_conversation(ConversationState(llm_context=self._initial_context or {}))
        self.limit(self._budget)

    async def save_state(self) -> Mapping[str, Any]:
        """The conversation, as JSON-like data."""
        context = dict(await self._model_context.save_state())
        state = ConversationState(type=f"{type(self).__name__}State", llm_context=context, taken=sorted(self._taken))
        return state.model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned; the empty state of AutoGen's agent is accepted too."""
        await self._load_conversation(ConversationState.model_validate(state))

    async def _load_conversation(self, state: ConversationState) -> None:
        await self._save_initial_context()
        self._taken = set(state.taken)
        if state.llm_context:
            await self._model_context.load_state(state.llm_context)
        else:
            await self._model_context.clear()

    async def _save_initial_context(self) -> None:
        if self._initial_context is None:
            self._initial_context = await self._model_context.save_state()

    def _dump_argument(self, name: str, value: Any) -> Any:
        # AutoGen leaves None out of a dump, and a missing system message means the default one.
        return value or "" if name == "system_message" else super()._dump_argument(name, value)


# --- Agents that write code ---

Item = BaseAgentEvent | BaseChatMessage | Response
"""What an agent's stream yields."""

Ending = TextMessage | HandoffMessage
"""The message that ends a turn."""
Said = asyncio.Queue[BaseAgentEvent | BaseChatMessage | None]
"""The items of a turn, each of which is done when it has been read; `None` at the end of the turn."""

_said: ContextVar[Said | None] = ContextVar("_said", default=None)
NOT_KEPT = (ModelClientStreamingChunkEvent, UserInputRequestedEvent)
"""What is in the stream, but not among the inner messages of the response."""
_QUIET_SECONDS = 0.25
"""Code that ends sooner after its first output has none streamed, since the event that follows has it all."""
_TRY_AGAIN = "Nothing of this code was run. Write other code that heeds the reason, or say why there is none."
_NOT_RUN = "The turn was ended before the code above was run."


@dataclass
class Turn:
    """What has happened in a turn so far. The agents' own turns add their limits.

    Attributes:
        token: Ends the turn's model calls and its code.
        attempts: The attempts so far, in order.
        tokens: How many tokens the model calls have used.
        answer: The message that ends the turn, once there is one.
        interrupted: Whether the last attempt was cut short by the end of the turn.
    """

    token: CancellationToken
    attempts: list[Attempt] = field(default_factory=list)
    tokens: int = 0
    answer: Ending | None = None
    interrupted: bool = False

    @property
    def number(self) -> int:
        """The number of the next attempt, from 1."""
        return len(self.attempts) + 1

    @property
    def was_refused(self) -> bool:
        """Whether the last attempt was rejected."""
        return bool(self.attempts) and self.attempts[-1].outcome is Outcome.REJECTED

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further attempt, whatever the limits; `None` if there may be one."""
        if not self.attempts:
            return None
        *earlier, last = self.attempts
        refused = [each.blocks for each in earlier if each.outcome is Outcome.REJECTED]
        if self.was_refused and (last.is_final or last.blocks in refused):
            return StopReason.REJECTED
        if last.outcome is Outcome.CANCELLED:
            return StopReason.CANCELLED
        if last.failure is not None and any(last.failure == attempt.failure for attempt in earlier):
            return StopReason.SAME_FAILURE
        return None


TurnT = TypeVar("TurnT", bound=Turn)


class CodingAgentConfig(StrictConfig):
    """The fields that the configs of all coding agents have. Each is the constructor's argument of the same name."""

    name: str
    model_client: ComponentModel | None = None
    code_executor: ComponentModel | None = None
    model_context: ComponentModel | None = None
    model_client_stream: bool = False
    description: str | None = None
    system_message: str | None = None
    """Missing: the default one. Null or an empty string: none."""
    approval: ComponentModel | None = None
    """The constructor's `approval_func`, which must be a component here."""
    max_output_chars: int = Field(default=10_000, ge=200)
    memory: list[ComponentModel] | None = None
    # `Handoff` itself refuses a text with an `AttributeError`.
    handoffs: list[Annotated[str | Handoff, Field(union_mode="left_to_right")]] | None = None
    budget: Budget | None = None


class CodingAgent(ModelAgent, Generic[TurnT]):
    """An agent that writes code and has it run, step by step, and that can pause between model calls and runs."""

    ARGUMENTS = {"approval": "approval_func"}  # noqa: RUF012 (AutoGen's agents do not declare theirs either)
    _code_format: CodeFormat | None = None

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        model_client_stream: bool,
        system_message: str | None,
        runner: CodeRunner,
        languages: Sequence[str],
        memory: Sequence[Memory] | None,
        handoffs: Sequence[Handoff | str] | None,
        budget: Budget | None,
    ) -> None:
        super().__init__(name, description, model_client, model_context, system_message, budget)
        if memory and model_client is None:
            raise ValueError("memory needs a model_client, whose conversation it adds to.")
        self._memory = None if memory is None else list(memory)
        self._handoffs = None if handoffs is None else list(handoffs)
        self._targets = _handoffs_by_name(handoffs or (), model_client)
        self._handoff_tools: list[BaseTool[Any, Any]] = [each.handoff_tool for each in self._targets.values()]
        self._model_client_stream = model_client_stream
        self._runner = runner
        if isinstance(self._model_context, CompactingContext):
            self._model_context.keep_by(runner.keep)
        self._code_executor = runner.given
        self._approval = runner.approval
        self._max_output_chars = runner.max_output_chars
        applies_diffs = "diff" not in languages and getattr(runner.given, "editing", False)
        self._languages = [*languages, *(["diff"] if applies_diffs else [])]
        self._quiet_seconds = _QUIET_SECONDS
        self._shows_pictures = False
        self._read: set[Said] = set()
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return (TextMessage, HandoffMessage) if self._handoffs else (TextMessage,)

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        """Take a turn: yield what happens as it happens, and the `Response` last.

        The token ends the turn at once, also while code runs; nothing is left running.
        """
        said: Said = asyncio.Queue()
        self._read.add(said)

        async def take_turn() -> Ending:
            _said.set(said)
            return await self._turn(messages, cancellation_token)

        turn = asyncio.create_task(take_turn())
        turn.add_done_callback(lambda _: said.put_nowait(None))
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        try:
            while (item := await said.get()) is not None:
                if not isinstance(item, NOT_KEPT) and keys.SHOWN not in item.metadata:
                    inner.append(item)
                yield item
                said.task_done()
            answer = await turn
            if changes := await self._runner.changes(cancellation_token):
                answer.metadata[keys.CHANGES] = changes
        finally:
            self._read.discard(said)
            await cancel_and_wait(turn)
        self._end_turn()
        yield Response(chat_message=answer, inner_messages=inner)

    async def say(self, item: BaseAgentEvent | BaseChatMessage) -> None:
        """Put an item into the stream of the agent's current turn; outside of one, do nothing.

        It has been read when this returns: the reader has asked for the next item, as after a `yield`.
        """
        said = _said.get()
        if said is not None and said in self._read:
            said.put_nowait(item)
            await said.join()

    @abstractmethod
    async def _turn(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Ending:
        """Take a turn, `say` what happens, and return the answer."""

    async def _attempt(
        self, turn: TurnT, selection: Selection, context: Sequence[LLMMessage], on_output: OnOutput
    ) -> Attempt:
        """Run the selected code as the turn's next attempt."""
        return await self._runner.attempt(turn.number, selection, context, turn.token, on_output)

    async def _answer(self, turn: TurnT, message_id: str, reply: CreateResult) -> TextMessage | None:
        """The message that ends a turn with a reply without code; `None` if the model is to reply again."""
        last = turn.attempts[-1] if turn.attempts else None
        return await aside(final_message, self.name, message_id, reply, last)

    def find_code(self, reply: str) -> Selection:
        """Find the code to run in a text: a reply of the model, or a message of another agent, without its thoughts.

        A subclass may replace this, for a model that writes its code otherwise. `Selection(blocks=(...,))` of
        `autogen_core.code_executor.CodeBlock`s is enough; a selection without blocks is an answer.
        """
        return select_blocks([reply], self._languages, self._code_format)

    # --- The loop: write, run, look at the result ---

    async def _steps(self, turn: TurnT) -> None:
        """Take steps until there is an answer or a reason to stop."""
        for memory in self._memory or ():  # Adds what it finds to the conversation.
            updated = await await_with_token(memory.update_context(self._model_context), turn.token)
            if updated.memories.results:
                await self.say(MemoryQueryEvent(content=updated.memories.results, source=self.name))
        while turn.answer is None and turn.stop_reason is None:
            await self._step(turn)

    async def _step(self, turn: TurnT) -> None:
        """Call the model once, and run the code that it writes."""
        message_id = str(uuid.uuid4())
        reply = await self._ask_model(message_id, turn.token, tools=self._handoff_tools)
        turn.tokens += reply.usage.prompt_tokens + reply.usage.completion_tokens
        if not isinstance(reply.content, str):
            turn.answer = await self._hand_over(turn, reply.content, reply.usage)
            return
        selection = await aside(select_from_reply, reply.content, self.find_code)
        if not (selection.is_code or selection.blocks):
            for note in selection.notes:
                await self._add_to_context(note)
            turn.answer = await self._answer(turn, message_id, reply)
            if turn.answer is None:
                await self.say(code_event(self.name, message_id, reply, turn.number, ()))
            return
        number = turn.number
        self._runner.last_attempt = None
        try:
            await self.say(code_event(self.name, message_id, reply, number, selection.blocks))
            await self._may_go_on(turn.token)
            context = await self._model_context.get_messages()
            await self._keep(turn, await self._run(lambda report: self._attempt(turn, selection, context, report)))
        except asyncio.CancelledError:
            if turn.number == number:
                await self._keep_unfinished(turn)
            raise
        await self._tell_end(turn.attempts[-1])
        if turn.was_refused and turn.stop_reason is None:
            await self._add_to_context(_TRY_AGAIN)

    async def _tell_end(self, attempt: Attempt) -> None:
        """Say that an attempt has ended, and before that what a person has made of its code."""
        if attempt.edited:
            text = "\n\n".join([EDITED, *attempt.fenced()])
            await self.say(
                CodeGenerationEvent(
                    retry_attempt=attempt.number - 1,
                    content=text,
                    code_blocks=list(attempt.blocks),
                    source=self.name,
                    metadata={keys.EVENT: keys.EDITED},
                )
            )
        await self.say(execution_event(self.name, attempt))

    async def _hand_over(self, turn: TurnT, calls: list[FunctionCall], usage: RequestUsage) -> HandoffMessage:
        """Hand over as the model's first call says. The next agent gets the report of the code that has run."""
        for call in calls:
            if call.name not in self._targets:
                raise TypeError(f"The model called {call.name!r}, and its tools are: {', '.join(self._targets)}.")
        results = [
            FunctionExecutionResult(content=self._targets[call.name].message, name=call.name, call_id=call.id)
            for call in calls
        ]
        await self._model_context.add_message(FunctionExecutionResultMessage(content=results))
        await self.say(ToolCallRequestEvent(content=calls, source=self.name, models_usage=usage))
        await self.say(ToolCallExecutionEvent(content=results, source=self.name))
        chosen, last = self._targets[calls[0].name], turn.attempts[-1] if turn.attempts else None
        return HandoffMessage(
            content=chosen.message,
            target=chosen.target,
            source=self.name,
            context=[] if last is None else [UserMessage(content=report("", last), source=self.name)],
            metadata={} if last is None else facts(last),
        )

    async def _run(self, run: Callable[[OnOutput], Coroutine[Any, Any, Attempt]]) -> Attempt:
        """Run code within the budget, and say its output while it runs."""
        message_id = str(uuid.uuid4())

        async def within_budget(on_output: OnOutput) -> Attempt:
            with self._within_budget():
                return await run(on_output)

        async with aclosing(stream_gathered(within_budget, self._quiet_seconds)) as items:
            async for item in items:
                if isinstance(item, Attempt):
                    attempt = item
                    continue
                # The event has one of AutoGen's types; its metadata identifies it.
                await self._say_chunk(message_id, item.text, {keys.EVENT: keys.OUTPUT})
        return attempt

    async def _say_chunk(self, message_id: str, text: str, metadata: dict[str, str] | None = None) -> None:
        await self.say(
            ModelClientStreamingChunkEvent(
                content=text, source=self.name, full_message_id=message_id, metadata=metadata or {}
            )
        )

    async def _keep(self, turn: TurnT, attempt: Attempt) -> None:
        """Add an attempt to the turn and to the context, with the code's pictures if the model has vision."""
        turn.attempts.append(attempt)
        text = attempt.describe()
        shown = attempt.artifacts if self._shows_pictures else ()
        pictures = [await asyncio.to_thread(picture_of, artifact) for artifact in shown]
        found = [picture for picture in pictures if picture is not None]
        await self._model_context.add_message(UserMessage(content=[text, *found] if found else text, source=self.name))

    async def _keep_unfinished(self, turn: TurnT) -> None:
        """Add what is known about code that was not run to its end."""
        if self._runner.last_attempt is None:
            await self._add_to_context(_NOT_RUN)
        else:
            turn.interrupted = True
            await self._keep(turn, self._runner.last_attempt)

    async def catch_up(self, cancellation_token: CancellationToken) -> None:
        """In a resumed run, run the code again whose results are known, so that what it has changed is there."""
        await self._runner.catch_up(cancellation_token)

    async def start(self) -> None:
        """Start the executor now and not on first use."""
        await self._runner.executor.start()

    async def run_given(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None = None,
        *,
        kept: bool = True,
    ) -> ExecutionResult:
        """Run code of a person where the agent's code runs, without approval; the conversation stays as it is.

        Args:
            blocks: The code.
            cancellation_token: Ends it.
            on_output: Called with output while it runs.
            kept: Whether it is a step of the run. What only looks at the session is none.
        """
        return await self._runner.run_given(blocks, cancellation_token, on_output, kept=kept)

    def ran(self) -> Any:
        """What code has run so far, for `go_back`."""
        return self._runner.state()

    def go_back(self, ran: Any) -> None:
        """Go on from the code that had run, after conversation and executor were restored.

        Args:
            ran: What `ran` returned, of this agent or of one with the same config.
        """
        self._runner.go_back(ran)

    @property
    def interrupted(self) -> CodeExecutionEvent | None:
        """The run of code that a cancellation has ended, with its output so far; `None` if there was none.

        A team's stream ends with the cancellation, so it does not have this event.
        """
        last = self._runner.last_attempt
        return None if last is None or last.outcome is not Outcome.CANCELLED else execution_event(self.name, last)

    @property
    def code_executor(self) -> Any:
        """Where the code runs."""
        return self._code_executor

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Clear the conversation and restart the executor."""
        await super().on_reset(cancellation_token)
        self._resumed.set()
        await self._runner.restart()

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Wait before the next model call or run, until `on_resume`."""
        self._resumed.clear()

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Continue after `on_pause`."""
        self._resumed.set()

    @property
    def approval(self) -> Approval | ApprovalFuncType | None:
        """What is asked before code runs; `None`: nothing."""
        return self._runner.approval

    def ask_instead(self, approval: Approval | ApprovalFuncType | None) -> Approval | ApprovalFuncType | None:
        """Replace the approval that is asked before code runs, and return it. The config keeps the original one."""
        own, self._runner.approval = self._runner.approval, approval
        return own

    async def _ask_model(
        self,
        message_id: str,
        cancellation_token: CancellationToken,
        hint: str | None = None,
        *,
        tools: Sequence[BaseTool[Any, Any]] = (),
        temperature: float | None = None,
    ) -> CreateResult:
        """Call the model and add its reply to the context. The hint is the end of this request only."""
        assert self._model_client is not None
        await self._may_go_on(cancellation_token)
        messages = await self._conversation(*([] if hint is None else [UserMessage(content=hint, source=self.name)]))
        on_chunk = partial(self._say_chunk, message_id) if self._model_client_stream else None
        with self._within_budget():
            reply = await call_model(self._model_client, messages, cancellation_token, tools, on_chunk, temperature)
        if reply.thought:
            await self.say(ThoughtEvent(content=reply.thought, source=self.name))
        message = AssistantMessage(content=reply.content, thought=reply.thought, source=self.name)
        await self._model_context.add_message(message)
        return reply

    async def _add_to_context(self, text: str) -> None:
        await self._model_context.add_message(UserMessage(content=text, source=self.name))

    async def _may_go_on(self, cancellation_token: CancellationToken) -> None:
        """Wait while the agent is paused. Nothing begins in a turn whose reader has left."""
        await await_with_token(self._resumed.wait(), cancellation_token)
        if _said.get() not in self._read:
            raise asyncio.CancelledError

    def _dump_argument(self, name: str, value: Any) -> Any:
        if name != "approval" or value is None or isinstance(value, Approval):
            return super()._dump_argument(name, value)
        raise ValueError(
            f"Cannot serialize {type(self).__name__} with approval_func set to {value!r}: a function cannot be part "
            "of a config. Use a component of coderoom.approval."
        )


def _handoffs_by_name(
    handoffs: Sequence[Handoff | str], model_client: ChatCompletionClient | None
) -> dict[str, Handoff]:
    made = [Handoff(target=each) if isinstance(each, str) else each for each in handoffs]
    if made and model_client is None:
        raise ValueError("handoffs need a model_client, which chooses when to hand over.")
    if made and model_client is not None and not model_client.model_info["function_calling"]:
        raise ValueError("handoffs need a model that can call functions (function_calling in its model_info).")
    by_name = {handoff.name: handoff for handoff in made}
    if len(by_name) < len(made):
        raise ValueError(f"Two handoffs have the same name: {[handoff.name for handoff in made]}.")
    return by_name


# --- What agents say ---


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent that runs code found in messages does not run it again.
    """
    parts = [summary.strip()] if summary.strip() else []
    if not all(block.closed for block in extract_code_blocks(summary.strip())):
        parts = [fence(summary.strip(), "text", "no-run")]  # A fence without an end would contain the report after it.
    if attempt.ran:
        parts.append(f"Attempt {attempt.number}: {attempt.outcome}, exit code {attempt.exit_code}.")
    else:
        parts.append(f"Attempt {attempt.number} was not run. {attempt.refusal}".strip())
    parts += [EDITED] if attempt.edited else []
    parts += attempt.fenced()
    if attempt.output.strip():
        parts += ["Output:", fence(attempt.output, "text", "no-run")]
    if attempt.artifacts:
        parts.append(f"Files: {', '.join(named(artifact.name) for artifact in attempt.artifacts)}")
    return "\n\n".join([*parts, *attempt.selection.notes])


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """An attempt as metadata, for programs."""
    found = {
        keys.OUTCOME: attempt.outcome.value,
        keys.EXIT_CODE: str(attempt.exit_code),
        keys.RAN: str(attempt.ran).lower(),
        keys.ATTEMPTS: str(attempt.number),
        **({keys.EDITED_CODE: "true"} if attempt.edited else {}),
    }
    if stop_reason is not None:
        found[keys.STOP_REASON] = stop_reason.value
    if attempt.failure is not None:
        found[keys.FAILURE] = attempt.failure
    if attempt.artifacts:
        listed = [
            {"name": item.name, "media_type": item.media_type, "path": None if item.path is None else str(item.path)}
            for item in attempt.artifacts
        ]
        found[keys.ARTIFACTS] = json.dumps(listed)
    if attempt.output_file is not None:
        found[keys.OUTPUT_FILE] = str(attempt.output_file)
    return found


def code_event(
    source: str, message_id: str, reply: CreateResult, attempt: int, blocks: Sequence[CodeBlock]
) -> CodeGenerationEvent:
    """The model has written code, as attempt number `attempt`."""
    return CodeGenerationEvent(
        id=message_id,
        retry_attempt=attempt - 1,
        content=str(reply.content),
        code_blocks=list(blocks),
        source=source,
        models_usage=reply.usage,
    )


def execution_event(source: str, attempt: Attempt) -> CodeExecutionEvent:
    """The code has run, or was rejected."""
    found = facts(attempt)
    if attempt.calls:
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:MOST_CALLS]])
    return CodeExecutionEvent(
        retry_attempt=attempt.number - 1, result=attempt.code_result, source=source, metadata=found
    )


def final_message(
    source: str,
    message_id: str,
    reply: CreateResult | None,
    attempt: Attempt | None,
    stop_reason: StopReason = StopReason.NO_CODE,
    otherwise: str = "",
) -> TextMessage:
    """The turn has ended, with a reply of the model, `otherwise` without one, and a report if it has run code."""
    text, usage = ("", None) if reply is None else (str(reply.content), reply.usage)
    if reply is not None and not text.strip():
        text, otherwise = "", keys.EMPTY_REPLY
    cut = None if reply is None else keys.WHY_CUT.get(reply.finish_reason)
    if cut:
        text = f"{text.rstrip()}\n\n(The model's reply is incomplete: {cut}.)".lstrip()
    if attempt is None:
        content, metadata = text or otherwise, {keys.STOP_REASON: stop_reason.value}
    else:
        # An answer does not change the result of the code.
        content, metadata = report(text or otherwise, attempt), facts(attempt, stop_reason) | {keys.SUMMARY: text}
    if reply is not None and cut:
        metadata[keys.CUT] = reply.finish_reason
    return TextMessage(id=message_id, content=content, source=source, models_usage=usage, metadata=metadata)


_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000


def picture_of(artifact: Artifact) -> Image | None:
    """The picture in a file; `None` if it is too large or not a picture."""
    if artifact.media_type not in _PICTURES or artifact.size > _LARGEST_PICTURE:
        return None
    try:
        data, path = artifact.data, artifact.path
        if path is not None:  # The code may have put something else there since.
            root = path.parents[len(PurePosixPath(artifact.name).parts) - 1]
            data = read_inside(root, artifact.name, _LARGEST_PICTURE)
        if data is None:
            return None
        picture = PILImage.open(io.BytesIO(data), formats=[_PICTURES[artifact.media_type]])
        return Image.from_pil(picture) if picture.width * picture.height <= _MOST_PIXELS else None
    except Exception:  # Pillow raises many kinds of errors for a broken file.
        return None


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})
