"""The agent that runs the code of others, or writes, runs, retries and sums up its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseChatMessage,
    TextMessage,
)
from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

from coderoom._util.components import DumpsAsItself, load_if_given
from coderoom.agents import metadata as keys
from coderoom.agents import prompts
from coderoom.agents.attempt import (
    Attempt,
    CodeRunner,
    RetryDecision,
    Selection,
    StopReason,
    select_blocks,
    texts_of,
    why_stop,
)
from coderoom.agents.base import CodingAgent, Item
from coderoom.agents.configs import (
    CodeExecutorAgentConfig,
    CodeExecutorAgentState,
    RetryFrom,
    check_retries,
)
from coderoom.agents.messages import (
    code_event,
    decision_event,
    execution_event,
    facts,
    final_message,
    plain_answer,
)
from coderoom.approval import Approval, ApprovalFuncType

__all__ = ["CodeExecutorAgent"]


class CodeExecutorAgent(DumpsAsItself, CodingAgent, Component[CodeExecutorAgentConfig]):
    """Runs the code of others, or writes, runs and repairs its own.

    Without a `model_client` it runs the fenced code blocks that it finds in new messages and answers with what
    they printed. With one it writes code, runs it, lets the model decide after a failure whether to try again, and
    sums up at the end. A reply without code is the answer as it stands.

    It takes the place of AutoGen's agent of the same name: only the import changes. The executor starts on first
    use and stops in `close()`. Every model call carries the system message and the cancellation token, and its
    tokens are counted in the messages. The last message tells other agents the code, the exit code and the
    (bounded) output; its `metadata` tells programs the outcome.

    Args:
        name: The agent's name, a Python identifier.
        code_executor: Where the code runs: any AutoGen executor.
        model_client: The model that writes code; `None` to only run that of others.
        model_context: Where the conversation is kept; unbounded by default.
        model_client_stream: Whether to yield the model's chunks as they come.
        max_retries_on_error: How many further attempts may follow a failed one, 0 or more.
        description: What the agent is for, for other agents.
        system_message: What every model call begins with; `None` or an empty string for nothing.
        sources: Run only the code of these participants. Only without a model client.
        supported_languages: The languages that run here; `python` and `sh` by default.
        approval_func: Who must agree before code runs: a `coderoom.approval` component, or a function, sync or
            async, as AutoGen takes it. Only a component can stand in a config.
        reflect: Whether the model sums up at the end. If not, the last message is the bare report.
        max_output_chars: How many characters of output the model and other agents see, at least 200; head and
            tail are kept, and the whole goes to a file that the message names.
        retry_from: Where a further attempt begins: `failed`, with all that the failed one has left behind, or `clean`,
            with the failed one undone; the model is told. Undoing takes an executor of the kind
            `coderoom.executors.Checkpoints`, such as `SandboxCodeExecutor`.

    Raises:
        ValueError: If `max_retries_on_error` is negative, or above 0 without a model client, or
            `max_output_chars` is below 200, or `retry_from` is `clean` with an executor that cannot go back.
    """

    DEFAULT_TERMINAL_DESCRIPTION = (
        "A computer terminal: it runs the Python scripts and sh shell scripts that it is given in fenced code blocks, "
        "and does nothing else."
    )
    DEFAULT_AGENT_DESCRIPTION = (
        "Writes Python and shell scripts to solve a task, runs them, mends what fails and reports the result."
    )
    DEFAULT_SYSTEM_MESSAGE = (
        "You solve tasks by writing code that is run for you. Put Python code in ```python blocks and sh shell scripts "
        "in ```sh blocks, complete and ready to run: everything in them is run, in order, without anyone editing it. "
        "Print what you need to know, since the output is all that you see. No input can be typed in. "
        "When the code has run, tell the result from what it printed and do not guess."
    )
    # The sentence by which users of AutoGen's agent recognise the case.
    NO_CODE_BLOCKS_FOUND_MESSAGE = (
        "No code blocks found in the thread. Please provide at least one markdown-encoded code block to execute "
        "(i.e., quoting code in ```python or ```sh code blocks)."
    )
    DEFAULT_SUPPORTED_LANGUAGES: Sequence[str] = ("python", "sh")

    component_config_schema = CodeExecutorAgentConfig
    component_provider_override = "coderoom.agents.CodeExecutorAgent"

    def __init__(
        self,
        name: str,
        code_executor: CodeExecutor,
        *,
        model_client: ChatCompletionClient | None = None,
        model_context: ChatCompletionContext | None = None,
        model_client_stream: bool = False,
        max_retries_on_error: int = 0,
        description: str | None = None,
        system_message: str | None = DEFAULT_SYSTEM_MESSAGE,
        sources: Sequence[str] | None = None,
        supported_languages: Sequence[str] | None = None,
        approval_func: Approval | ApprovalFuncType | None = None,
        reflect: bool = True,
        max_output_chars: int = 10_000,
        retry_from: RetryFrom = "failed",
    ) -> None:
        check_retries(max_retries_on_error, model_client, retry_from, code_executor)
        if isinstance(sources, str):
            raise ValueError(f"sources must be a list of names, not the one name {sources!r}.")
        if description is None:
            description = self.DEFAULT_TERMINAL_DESCRIPTION if model_client is None else self.DEFAULT_AGENT_DESCRIPTION
        runner = CodeRunner(code_executor, approval_func, max_output_chars)
        super().__init__(name, description, model_client, model_context, model_client_stream, system_message, runner)
        self._code_executor = code_executor
        self._max_retries_on_error = max_retries_on_error
        self._sources = None if sources is None else list(sources)
        self._supported_languages = list(
            self.DEFAULT_SUPPORTED_LANGUAGES if supported_languages is None else supported_languages
        )
        self._approval_func = approval_func
        self._reflect = reflect
        self._max_output_chars = max_output_chars
        self._retry_from: RetryFrom = retry_from

    # --- What AutoGen asks of an agent ---

    @property
    def code_executor(self) -> CodeExecutor:
        """Where the code runs."""
        return self._code_executor

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the conversation, and put the executor back to its beginning."""
        await self._conversation.reset()
        self._resumed.set()
        await self._runner.executor.restart()

    async def save_state(self) -> Mapping[str, Any]:
        """The conversation, as JSON-like data."""
        return CodeExecutorAgentState(**await self._conversation.save()).model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` gave; the empty state of AutoGen's agent is taken too."""
        loaded = CodeExecutorAgentState.model_validate(state)
        await self._conversation.load(loaded.llm_context, loaded.taken)

    async def start(self) -> None:
        """Start the executor now and not on first use."""
        await self._runner.executor.start()

    async def close(self) -> None:
        """Stop the executor. It starts again if the agent is used again."""
        await self._runner.close()

    def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        """Take a turn: yield what happens as it happens, and the `Response` last.

        Args:
            messages: What is new since the last turn.
            cancellation_token: Ends the turn at once, also while code runs; nothing is left running.

        Raises:
            SandboxUnavailable: The place where code runs broke.
            asyncio.CancelledError: The token was cancelled.
        """
        turn = self._run_found_code if self._model_client is None else self._write_and_run
        return self._recorded(turn(messages, cancellation_token))

    # --- A turn without a model ---

    async def _run_found_code(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        selection = self._select(self._from_sources(messages))
        no_code = "\n\n".join([self.NO_CODE_BLOCKS_FOUND_MESSAGE, *selection.notes])
        if not selection.is_code:
            metadata = {keys.STOP_REASON: StopReason.NO_CODE.value}
            yield Response(chat_message=TextMessage(content=no_code, source=self.name, metadata=metadata))
            return
        context = [message.to_model_message() for message in messages]
        await self._wait_if_paused(cancellation_token)
        attempt = await self._runner.attempt(1, selection, context, cancellation_token)
        yield execution_event(self.name, attempt)
        stop_reason = why_stop([attempt], 0)
        text = attempt.describe() if attempt.blocks else no_code
        yield Response(chat_message=TextMessage(content=text, source=self.name, metadata=facts(attempt, stop_reason)))

    def _from_sources(self, messages: Sequence[BaseChatMessage]) -> list[BaseChatMessage]:
        return [
            message
            for message in messages
            # A report shows code and output that were there before: neither is code to run now.
            if keys.OUTCOME not in message.metadata and (self._sources is None or message.source in self._sources)
        ]

    # --- A turn with a model: write, run, decide, sum up ---

    async def _write_and_run(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        await self._conversation.take(messages)
        attempts: list[Attempt] = []
        stop_reason: StopReason | None = None
        reply: CreateResult | None = None
        while stop_reason is None:
            message_id = str(uuid.uuid4())
            async with aclosing(self._ask_model(message_id, cancellation_token)) as parts:
                async for part in parts:
                    if isinstance(part, CreateResult):
                        reply = part
                    else:
                        yield part
            assert reply is not None
            number = len(attempts) + 1
            selection = select_blocks([str(reply.content)], self._supported_languages)
            if not selection.is_code:
                for note in selection.notes:
                    await self._add_to_context(note)
                yield Response(chat_message=plain_answer(self.name, message_id, reply, attempts))
                return
            yield code_event(self.name, message_id, reply, number, selection.blocks)
            attempt = await self._run(number, selection, cancellation_token)
            attempts.append(attempt)
            yield execution_event(self.name, attempt)
            stop_reason = why_stop(attempts, self._max_retries_on_error)
            if stop_reason is None:
                decision, usage = await self._decide(attempt, cancellation_token)
                yield decision_event(self.name, attempt, decision, usage)
                if decision.retry:
                    undone = await self._runner.undo(cancellation_token)
                    await self._add_to_context(prompts.retry_plan(decision, undone))
                else:
                    stop_reason = StopReason.NOT_RETRIED
        async with aclosing(self._sum_up(attempts[-1], stop_reason, cancellation_token)) as items:
            async for item in items:
                yield item

    async def _run(self, number: int, selection: Selection, cancellation_token: CancellationToken) -> Attempt:
        """Run the code; what came of it goes into the context."""
        await self._wait_if_paused(cancellation_token)
        context = await self._model_context.get_messages()
        if self._retry_from == "clean" and self._max_retries_on_error > 0:
            await self._runner.keep_state(cancellation_token)
        try:
            attempt = await self._runner.attempt(number, selection, context, cancellation_token)
        except asyncio.CancelledError:
            await self._add_to_context(prompts.CANCELLED)
            raise
        await self._add_to_context(attempt.describe())
        return attempt

    async def _decide(
        self, attempt: Attempt, cancellation_token: CancellationToken
    ) -> tuple[RetryDecision, RequestUsage | None]:
        """Let the model decide on another attempt; an answer that cannot be read means no."""
        await self._wait_if_paused(cancellation_token)
        answer = await self._ask_for(RetryDecision, prompts.ask_for_retry(attempt), cancellation_token)
        unreadable = RetryDecision(retry=False, reason="The model's decision could not be read.")
        return answer.value or unreadable, answer.usage

    async def _sum_up(
        self, attempt: Attempt, stop_reason: StopReason, cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        message_id = str(uuid.uuid4())
        summary: CreateResult | None = None
        if self._reflect and stop_reason is not StopReason.REJECTED:
            hint = prompts.before_reflection(attempt, stop_reason)
            async with aclosing(self._ask_model(message_id, cancellation_token, hint)) as parts:
                async for part in parts:
                    if isinstance(part, CreateResult):
                        summary = part
                    else:
                        yield part
        yield Response(chat_message=final_message(self.name, message_id, summary, attempt, stop_reason))

    # --- Small parts ---

    def _select(self, messages: Sequence[BaseChatMessage]) -> Selection:
        return select_blocks([text for message in messages for text in texts_of(message)], self._supported_languages)

    # --- What AutoGen's agent offers beside its turn ---

    async def extract_code_blocks_from_messages(self, messages: Sequence[BaseChatMessage]) -> list[CodeBlock]:
        """The code blocks that a turn without a model would run."""
        return list(self._select(self._from_sources(messages)).blocks)

    async def execute_code_block(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run blocks outside of a turn, with the same approval and the same bounds.

        Returns:
            The exit code, and what happened in words for a model.
        """
        context = await self._model_context.get_messages()
        selection = Selection(blocks=tuple(code_blocks), is_code=True)
        attempt = await self._runner.attempt(1, selection, context, cancellation_token)
        return CodeResult(exit_code=attempt.exit_code, output=attempt.describe())

    def _to_config(self) -> CodeExecutorAgentConfig:
        return CodeExecutorAgentConfig(
            name=self.name,
            code_executor=self._code_executor.dump_component(),
            model_client=None if self._model_client is None else self._model_client.dump_component(),
            model_context=self._model_context.dump_component(),
            model_client_stream=self._model_client_stream,
            max_retries_on_error=self._max_retries_on_error,
            description=self.description,
            system_message=self._system_message_in_config,
            sources=self._sources,
            supported_languages=self._supported_languages,
            approval=self._approval_config(self._approval_func),
            reflect=self._reflect,
            max_output_chars=self._max_output_chars,
            retry_from=self._retry_from,
        )

    @classmethod
    def _from_config(cls, config: CodeExecutorAgentConfig) -> Self:
        given = "system_message" in config.model_fields_set
        return cls(
            config.name,
            CodeExecutor.load_component(config.code_executor),
            model_client=load_if_given(config.model_client, ChatCompletionClient.load_component),
            model_context=load_if_given(config.model_context, ChatCompletionContext.load_component),
            model_client_stream=config.model_client_stream,
            max_retries_on_error=config.max_retries_on_error,
            description=config.description,
            system_message=config.system_message if given else cls.DEFAULT_SYSTEM_MESSAGE,
            sources=config.sources,
            supported_languages=config.supported_languages,
            approval_func=load_if_given(config.approval, Approval.load_component),
            reflect=config.reflect,
            max_output_chars=config.max_output_chars,
            retry_from=config.retry_from,
        )
