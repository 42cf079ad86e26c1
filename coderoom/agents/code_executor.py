"""`CodeExecutorAgent`: runs code found in messages, or writes code, runs it, retries and sums up."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import BaseChatMessage, CodeGenerationEvent, TextMessage
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage
from pydantic import BaseModel, Field, model_validator

from coderoom._util.tasks import aside
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import Attempt, Ending, Turn, facts, final_message
from coderoom.agents.branch_judges import BranchJudge
from coderoom.agents.branching import BranchingAgent, BranchingAgentConfig
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.metadata import StopReason
from coderoom.agents.replay import PastCell
from coderoom.agents.selection import Selection, texts_of
from coderoom.agents.tools import with_help
from coderoom.agents.variations import Variation
from coderoom.approval import Approval, ApprovalFuncType
from coderoom.executors import Checkpoints
from coderoom.models.budgets import Budget
from coderoom.outcome import Outcome
from coderoom.steps import tell_step

RetryFrom = Literal["failed", "clean"]


class RetryDecision(BaseModel):
    """A model's decision on whether failed code is worth another attempt."""

    reason: str
    """What went wrong, and how the next attempt fixes it."""
    retry: bool
    """Whether to try again."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        # Strict structured output needs every field; other models may leave it out.
        return {"reason": "", **data} if isinstance(data, dict) else data


class CodeExecutorAgentConfig(BranchingAgentConfig):
    """The config of a `CodeExecutorAgent`. Each field is the constructor's argument of the same name."""

    code_executor: ComponentModel
    max_retries_on_error: int = Field(default=0, ge=0)
    sources: list[str] | None = None
    supported_languages: list[str] | None = None
    reflect: bool = True
    retry_from: RetryFrom = "failed"


@dataclass
class RetryTurn(Turn):
    """A turn in which failed code may be tried again, unless the model decides against it (`gave_up`)."""

    max_retries: int = 0
    gave_up: bool = False

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further attempt; `None` if there may be one."""
        if not self.attempts:
            return None
        if self.attempts[-1].outcome is Outcome.OK:
            return StopReason.SUCCEEDED
        if reason := super().stop_reason:
            return reason
        if len(self.attempts) > self.max_retries:
            if self.was_refused:
                return StopReason.REJECTED
            return StopReason.RETRIES_EXHAUSTED if self.max_retries else StopReason.FAILED
        return StopReason.NOT_RETRIED if self.gave_up else None


class CodeExecutorAgent(BranchingAgent[RetryTurn], Component[CodeExecutorAgentConfig]):
    """Runs code found in other agents' messages, or writes, runs and repairs its own.

    Without a `model_client` it runs the fenced code blocks in new messages and answers with their output. With one it
    writes code, runs it, lets the model decide after a failure whether to try again, and sums up at the end. A reply
    without code is the answer.

    It replaces AutoGen's agent of the same name: only the import changes. The executor starts on first use and stops
    in `close()`. Every model call has the system message and the cancellation token, and its tokens are counted in
    the messages. The last message contains the code, the exit code and the (bounded) output for other agents; its
    `metadata` has the outcome for programs.

    Args:
        name: The agent's name, a Python identifier.
        code_executor: Where the code runs: any AutoGen executor.
        model_client: The model that writes code; `None` to only run code found in messages.
        model_context: Where the conversation is kept; unbounded by default.
        model_client_stream: Whether to yield the model's chunks as they arrive.
        max_retries_on_error: The most further attempts after one that failed, or was refused with a reason, 0 or more.
        description: What the agent is for, for other agents.
        system_message: The first message of every model call; `None` or an empty string for none.
        sources: Run only the code of these participants. Only used without a model client.
        supported_languages: The languages that run; `python` and `sh` by default.
        approval_func: Is asked before code runs: a `coderoom.approval` component, or a sync or async function, as for
            AutoGen's agent. Only a component can be part of a config.
        reflect: Whether the model sums up at the end. If not, the last message is the report alone.
        max_output_chars: The most characters of output for the model and other agents, at least 200. Head and tail
            are kept; the whole output goes to a file that the message names.
        retry_from: The state in which a further attempt begins: `failed`, as the failed attempt left it, or `clean`,
            with the failed attempt undone, which the model is informed about. `clean` needs an executor with
            `coderoom.executors.Checkpoints`, such as `SandboxCodeExecutor`.
        memory: AutoGen's memories, each of which adds what it finds to the conversation at the beginning of a turn.
        handoffs: The agents that the model can hand over to, as in AutoGen's `AssistantAgent`: names, or `Handoff`s.
            The turn then ends with a `HandoffMessage` that has the report of the code that ran in it, and code beside
            the call is not run. The model must be able to call functions.
        budget: What the agent may use from its beginning on, or since it was reset. A request to a model or a run of
            code that is not covered raises `BudgetExceeded`, which ends a team's run.
        branches: How many repairs are tried at the same time after a failed attempt, each in a fork of the session: a
            number, or a list of `Variation`s. The model is not asked then whether to try again, and all branches are
            one retry.
        branch_judge: Who chooses between the branches, as `BranchTests`; `None`: the first whose code works.

    Raises:
        ValueError: `max_retries_on_error` is negative, or above 0 without a model client; `max_output_chars` is below
            200; `retry_from` is `clean` with an executor that has no checkpoints; or there are `branches` without a
            retry, or with an executor whose session cannot be forked.
    """

    DEFAULT_TERMINAL_DESCRIPTION = (
        "A computer terminal: it runs the Python scripts and sh shell scripts that it is given in fenced code blocks, "
        "and does nothing else."
    )
    DEFAULT_AGENT_DESCRIPTION = (
        "Writes Python and shell scripts to solve a task, runs them, fixes what fails and reports the result."
    )
    DEFAULT_SYSTEM_MESSAGE = (
        "You solve tasks by writing code that is run for you. Put Python code in ```python blocks and sh shell scripts "
        "in ```sh blocks, complete and ready to run: everything in them is run, in order, without anyone editing it. "
        "Print what you need to know, since the output is all that you see. No input can be typed in. "
        "When the code has run, report the result from what it printed and do not guess."
    )
    # The sentence of AutoGen's agent, since its users may search for it.
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
        memory: Sequence[Memory] | None = None,
        handoffs: Sequence[Handoff | str] | None = None,
        budget: Budget | None = None,
        branches: int | Sequence[Variation] = 1,
        branch_judge: BranchJudge | None = None,
    ) -> None:
        count, choices = max_retries_on_error, get_args(RetryFrom)
        if count < 0:
            raise ValueError(f"max_retries_on_error must be 0 or more, not {count}.")
        if count > 0 and model_client is None:
            raise ValueError(
                "max_retries_on_error needs a model_client: without one nothing can write the next attempt."
            )
        if retry_from not in choices:
            raise ValueError(f"retry_from must be one of {', '.join(map(repr, choices))}, not {retry_from!r}.")
        if retry_from == "clean" and not isinstance(code_executor, Checkpoints):
            raise ValueError(
                "retry_from='clean' needs an executor that can undo what code did, such as SandboxCodeExecutor; "
                f"{type(code_executor).__name__!r} cannot."
            )
        if isinstance(sources, str):
            raise ValueError(f"sources must be a list of names, not the one name {sources!r}.")
        if description is None:
            description = self.DEFAULT_TERMINAL_DESCRIPTION if model_client is None else self.DEFAULT_AGENT_DESCRIPTION
        can_undo = retry_from == "clean" and max_retries_on_error > 0
        runner = CodeRunner(code_executor, approval_func, max_output_chars, can_undo=can_undo)
        languages = self.DEFAULT_SUPPORTED_LANGUAGES if supported_languages is None else supported_languages
        super().__init__(
            name,
            description,
            model_client,
            model_context,
            model_client_stream,
            system_message,
            runner,
            languages,
            memory=memory,
            handoffs=handoffs,
            budget=budget,
        )
        self.branch_into(branches, branch_judge, code_executor)
        if branches != 1 and count == 0:
            raise ValueError("branches are tried after a failed attempt: set max_retries_on_error to 1 or more.")
        self._instructions = with_help(system_message or None, code_executor)
        self._max_retries_on_error = max_retries_on_error
        self._sources = None if sources is None else list(sources)
        self._supported_languages = list(languages)
        self._reflect = reflect
        self._interrupted: set[str] = set()
        self._retry_from: RetryFrom = retry_from

    # --- The interface of AutoGen's agents ---

    async def save_state(self) -> Mapping[str, Any]:
        """The conversation, and of a session that agents share the code that has run, as JSON-like data."""
        shared = self._runner.shared
        return await super().save_state() if shared is None else {**await super().save_state(), **shared.save()}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned; a session that agents share runs its code again before the next code."""
        await super().load_state(state)
        if self._runner.shared is not None:
            self._runner.shared.load([PastCell.model_validate(cell) for cell in state.get("cells", ())])

    async def close(self) -> None:
        """Stop the executor. It starts again if the agent is used again."""
        await self._runner.close()

    async def _turn(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Ending:
        if self._model_client is None:
            return await self._run_found_code(messages, cancellation_token)
        await self._take(messages)
        turn = RetryTurn(cancellation_token, max_retries=self._max_retries_on_error)
        try:
            await self._steps(turn)
        finally:
            await self._runner.release()
        return turn.answer or await self._sum_up(turn)

    # --- A turn with a model: write, run, decide, sum up ---

    async def _step(self, turn: RetryTurn) -> None:
        """A step, and the decision on another one after a failure; before branches nobody is asked for one.

        After a no with a reason the model has to try again, or to answer.
        """
        was_first = not turn.attempts
        await super()._step(turn)
        if turn.answer is not None or turn.stop_reason is not None or turn.was_refused:
            return
        if self.branches_out:
            if was_first and (undone := await self._runner.undo(turn.token)):
                await self._add_to_context(await self._also_undone(undone))
            return
        # The message before the question in the context has the output.
        attempt = turn.attempts[-1]
        question = (
            f"Attempt {attempt.number} failed ({attempt.outcome}, exit code {attempt.exit_code}); "
            "its output is in the message above. Is another attempt worth it? Say in `reason` what went wrong and how "
            "you would fix it, and in `retry` whether to try again."
        )
        await self._may_go_on(turn.token)
        answer = await self._ask_for(RetryDecision, question, turn.token)
        decision = answer.value or RetryDecision(retry=False, reason="The model's decision could not be read.")
        tell_step("decision", {"retry": decision.retry})
        await self.say(_decision_event(self.name, attempt, decision, answer.usage))
        if not decision.retry:
            turn.gave_up = True
            return
        plan = f"Try again. What went wrong and how to fix it: {decision.reason}"
        if undone := await self._runner.undo(turn.token):
            plan += f"\n{await self._also_undone(undone)}"
        await self._add_to_context(plan)

    async def _also_undone(self, undone: str) -> str:
        """Undo calls of functions, too, which agents with a shared session have; return what to tell the model."""
        calls = await self._runner.undo_calls()
        return "\n".join([_UNDONE.format(undone), *calls.words])

    async def _sum_up(self, turn: RetryTurn) -> TextMessage:
        assert turn.stop_reason is not None
        attempt, message_id = turn.attempts[-1], str(uuid.uuid4())
        summary: CreateResult | None = None
        if self._reflect and turn.stop_reason is not StopReason.REJECTED:
            hint = None
            if why := turn.stop_reason.why_no_more:  # So that a failure does not sound like a success.
                hint = (
                    f"There will be no further attempt: {why}. The last one ended with outcome "
                    f"{attempt.outcome.value!r} and exit code {attempt.exit_code}. Sum up plainly what failed and what "
                    "is missing. Write no code."
                )
            summary = await self._ask_model(message_id, turn.token, hint)
        return await aside(final_message, self.name, message_id, summary, attempt, turn.stop_reason)

    # --- A turn without a model ---

    async def _run_found_code(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> TextMessage:
        if new := [message for message in messages if message.id not in self._interrupted]:
            # Code that was interrupted is run again only if the turn is just repeated.
            messages = new
        self._interrupted |= {message.id for message in messages}
        selection = await aside(self._select, messages)
        no_code = "\n\n".join([self.NO_CODE_BLOCKS_FOUND_MESSAGE, *selection.notes])
        if not selection.is_code:
            self._interrupted = set()
            metadata = {keys.STOP_REASON: StopReason.NO_CODE.value}
            return TextMessage(content=no_code, source=self.name, metadata=metadata)
        context = [message.to_model_message() for message in messages]
        await self._may_go_on(cancellation_token)
        attempt = await self._run(
            lambda report: self._runner.attempt(1, selection, context, cancellation_token, report)
        )
        self._interrupted = set()
        await self._tell_end(attempt)
        stop_reason = RetryTurn(cancellation_token, [attempt]).stop_reason
        text = attempt.describe() if attempt.blocks else no_code
        return TextMessage(content=text, source=self.name, metadata=facts(attempt, stop_reason))

    def _select(self, messages: Sequence[BaseChatMessage]) -> Selection:
        texts = [
            text
            for message in messages
            # A report repeats code that was run already.
            if keys.OUTCOME not in message.metadata and (self._sources is None or message.source in self._sources)
            for text in texts_of(message)
        ]
        found = [self.find_code(text) for text in texts]
        return Selection(
            blocks=tuple(block for each in found for block in each.blocks),
            notes=tuple(note for each in found for note in each.notes),
            is_code=any(each.is_code or each.blocks for each in found),
            cut=any(each.cut for each in found),
            left_out=tuple(code for each in found for code in each.left_out),
        )

    # --- Other methods of AutoGen's agent ---

    async def extract_code_blocks_from_messages(self, messages: Sequence[BaseChatMessage]) -> list[CodeBlock]:
        """The code blocks that a turn without a model would run."""
        return list(self._select(messages).blocks)

    async def execute_code_block(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run blocks outside of a turn, with the same approval and the same limits.

        Returns:
            The exit code, and a description of what happened for a model.
        """
        context = await self._model_context.get_messages()
        selection = Selection(blocks=tuple(code_blocks), is_code=True)
        with self._within_budget():
            attempt = await self._runner.attempt(1, selection, context, cancellation_token)
        return CodeResult(exit_code=attempt.exit_code, output=attempt.describe())


_UNDONE = "The failed attempt was undone: {} are as they were before it. Write the whole code again."


def _decision_event(
    source: str, attempt: Attempt, decision: RetryDecision, usage: RequestUsage | None
) -> CodeGenerationEvent:
    """The model has decided on another attempt.

    It has one of AutoGen's types, since a team refuses types that it does not know; its metadata identifies it. The
    text for a retry is worded as by AutoGen's agent.
    """
    what = "Proposed correction" if decision.retry else "Not tried again"
    return CodeGenerationEvent(
        retry_attempt=attempt.number - 1,
        content=f"Attempt number: {attempt.number}\n{what}: {decision.reason}",
        code_blocks=[],
        source=source,
        models_usage=usage,
        metadata={
            keys.EVENT: keys.RETRY_DECISION,
            keys.RETRY: str(decision.retry).lower(),
            keys.REASON: decision.reason,
        },
    )
