"""`CodingAgent`: the loop of all agents that write code and have it run."""

from __future__ import annotations

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Any, Generic

from autogen_agentchat.base import Handoff, Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    HandoffMessage,
    MemoryQueryEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import CancellationToken, ComponentModel, FunctionCall, Image
from autogen_core.code_executor import CodeBlock
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    UserMessage,
)
from autogen_core.tools import BaseTool
from pydantic import Field

from coderoom._util.components import StrictConfig
from coderoom._util.tasks import aside, await_with_token, cancel_and_wait
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import (
    Attempt,
    Ending,
    TurnT,
    code_event,
    edited_event,
    execution_event,
    final_message,
)
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.conversation import ModelAgent
from coderoom.agents.handing_over import HandingOver
from coderoom.agents.pictures import with_pictures
from coderoom.agents.selection import CodeFormat, Selection, select_blocks, select_from_reply
from coderoom.approval import Approval, ApprovalFuncType
from coderoom.errors import RequestError
from coderoom.models.budgets import Budget
from coderoom.models.calling import call_model
from coderoom.models.compacting import CompactingContext
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, OnOutput, stream_gathered

Item = BaseAgentEvent | BaseChatMessage | Response
"""What an agent's stream yields."""

Said = asyncio.Queue[BaseAgentEvent | BaseChatMessage | None]
"""The items of a turn, each of which is done when it has been read; `None` at the end of the turn."""

_said: ContextVar[Said | None] = ContextVar("_said", default=None)
NOT_KEPT = (ModelClientStreamingChunkEvent, UserInputRequestedEvent)
"""What is in the stream, but not among the inner messages of the response."""
_QUIET_SECONDS = 0.25
"""Code that ends sooner after its first output has none streamed, since the event that follows has it all."""
_TRY_AGAIN = "Nothing of this code was run. Write other code that heeds the reason, or say why there is none."
_NOT_RUN = "The turn was ended before the code above was run."


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
        self._handing_over = HandingOver(handoffs or (), model_client)
        self._model_client_stream = model_client_stream
        self._runner = runner
        if isinstance(self._model_context, CompactingContext):
            self._model_context.keep_by(runner.keep)
        self._approval = runner.approval
        self._max_output_chars = runner.max_output_chars
        applies_diffs = "diff" not in languages and getattr(runner.given, "editing", False)
        self._languages = [*languages, *(["diff"] if applies_diffs else [])]
        self._quiet_seconds = _QUIET_SECONDS
        self._readers: set[Said] = set()
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
        self._readers.add(said)

        async def take_turn() -> Ending:
            _said.set(said)
            self._runner.last_attempt = None
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
            self._readers.discard(said)
            await cancel_and_wait(turn)
        self._end_turn()
        yield Response(chat_message=answer, inner_messages=inner)

    async def say(self, item: BaseAgentEvent | BaseChatMessage) -> None:
        """Put an item into the stream of the agent's current turn; outside of one, do nothing.

        It has been read when this returns: the reader has asked for the next item, as after a `yield`.
        """
        said = _said.get()
        if said is not None and said in self._readers:
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
        reply = await self._ask_model(message_id, turn.token, tools=self._handing_over.tools)
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
            await self.say(edited_event(self.name, attempt))
        await self.say(execution_event(self.name, attempt))

    async def _hand_over(self, turn: TurnT, calls: list[FunctionCall], usage: RequestUsage) -> HandoffMessage:
        """Hand over as the model's first call says. The next agent gets the report of the code that has run."""
        answer, results = self._handing_over.answer(calls, self.name, turn.whole)
        await self._model_context.add_message(FunctionExecutionResultMessage(content=results))
        await self.say(ToolCallRequestEvent(content=calls, source=self.name, models_usage=usage))
        await self.say(ToolCallExecutionEvent(content=results, source=self.name))
        return answer

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
        content: str | list[str | Image] = attempt.describe()
        if attempt.artifacts and self._sees:
            content = await with_pictures(attempt.describe(), attempt.artifacts, await self._conversation())
        await self._model_context.add_message(UserMessage(content=content, source=self.name))

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

    async def ask_beside(self, question: str, cancellation_token: CancellationToken) -> CreateResult:
        """Ask the agent's model something that is not part of the conversation.

        Raises:
            RequestError: It has no model.
        """
        if self._model_client is None:
            raise RequestError(f"The agent {self.name!r} has no model.")
        with self._within_budget():
            asked = [UserMessage(content=question, source=self.name)]
            return await call_model(self._model_client, asked, cancellation_token)

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
    def runs_again(self) -> bool:
        """Whether code of earlier turns is run again in the next one."""
        past = self._runner.past
        return past.to_restore and bool(past.cells)

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
        return self._runner.given

    _code_executor = code_executor

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
        await self._hear()
        messages = await self._conversation(*([] if hint is None else [UserMessage(content=hint, source=self.name)]))
        on_chunk = partial(self._read, message_id) if self._model_client_stream else None
        with self._within_budget():
            reply = await call_model(self._model_client, messages, cancellation_token, tools, on_chunk, temperature)
        if reply.thought:
            await self.say(ThoughtEvent(content=reply.thought, source=self.name))
        message = AssistantMessage(content=reply.content, thought=reply.thought, source=self.name)
        await self._model_context.add_message(message)
        return reply

    async def _read(self, message_id: str, text: str) -> None:
        """Take a piece of a reply as it arrives."""
        await self._say_chunk(message_id, text)

    async def _add_to_context(self, text: str) -> None:
        await self._model_context.add_message(UserMessage(content=text, source=self.name))

    async def _may_go_on(self, cancellation_token: CancellationToken) -> None:
        """Wait while the agent is paused. Nothing begins in a turn whose reader has left."""
        await await_with_token(self._resumed.wait(), cancellation_token)
        if _said.get() not in self._readers:
            raise asyncio.CancelledError

    def _dump_argument(self, name: str, value: Any) -> Any:
        if name not in ("approval", "call_approval") or value is None or isinstance(value, Approval):
            return super()._dump_argument(name, value)
        argument = self.ARGUMENTS.get(name, name)
        raise ValueError(
            f"Cannot serialize {type(self).__name__} with {argument} set to {value!r}: a function cannot be part of a "
            "config. Use a component of coderoom.approval."
        )
