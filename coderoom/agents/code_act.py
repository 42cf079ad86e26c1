"""`CodeActAgent`: writes code, runs it in one session and reads the results, until it answers without code."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self, get_args

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, UserMessage
from autogen_core.tools import BaseTool, Workbench
from pydantic import Field, model_validator

from coderoom._util.tasks import Deadline, aside, await_with_token, within
from coderoom.agents.attempt import Attempt, Ending, LimitedTurn, final_message
from coderoom.agents.branch_judges import BranchJudge
from coderoom.agents.branching import BranchingAgentConfig, BranchRunner
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.code_session import CodeActSession, OnError
from coderoom.agents.contexts import AgentWithContexts
from coderoom.agents.conversation import ConversationState
from coderoom.agents.eager import Eager, check_eager, check_settings
from coderoom.agents.inverses import Undone
from coderoom.agents.maps import check_map, map_of
from coderoom.agents.metadata import StopReason
from coderoom.agents.replay import PastCell
from coderoom.agents.selection import CodeFormat, Selection
from coderoom.agents.skills import describe_skills, skills_for
from coderoom.agents.tool_search import ToolSearch, ToolsInPrompt
from coderoom.agents.tools import (
    check_dump,
    check_executor,
    check_imports,
    check_limits,
    check_tools,
    check_variables,
    dump_tool,
    load_tool,
    unrun_code,
    with_functions,
    with_help,
)
from coderoom.agents.type_check import TypeCheck
from coderoom.agents.variations import Variation
from coderoom.approval import Approval, ApprovalFuncType, CallGate, CallRule
from coderoom.executors import SandboxCodeExecutor, keeps_variables
from coderoom.models.budgets import Budget
from coderoom.models.compacting import CompactingContext
from coderoom.sandbox import ExecutionResult, OnOutput
from coderoom.skills import Skills


class CodeActAgentConfig(BranchingAgentConfig):
    """The config of a `CodeActAgent`. Each field is the constructor's argument of the same name."""

    tools: list[ComponentModel] = Field(default_factory=list)
    workbench: list[ComponentModel] = Field(default_factory=list)
    code_format: CodeFormat = "fence"
    max_steps: int = Field(default=10, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    on_error: OnError = "keep"
    initial_variables: dict[str, Any] = Field(default_factory=dict)
    initial_imports: dict[str, str] = Field(default_factory=dict)
    skills: str | None = None
    call_approval: ComponentModel | None = None
    call_rules: list[CallRule] = Field(default_factory=list)
    check_types: bool = False
    tools_in_prompt: ToolsInPrompt = "auto"
    max_tool_tokens: int = Field(default=2_000, ge=200)
    eager: bool = False
    map_tokens: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _can_be_eager(self) -> Self:
        if self.eager:
            check_settings(self.model_client_stream, self.approval is not None or self.check_types)
        return self


class CodeActAgentState(ConversationState):
    """The saved state of a `CodeActAgent`."""

    cells: list[PastCell] = Field(default_factory=list)
    failed: int = 0
    workbench: list[Mapping[str, Any]] = Field(default_factory=list)
    found_tools: list[str] = Field(default_factory=list)


_STAY = "in a session: variables, imports and functions that you define stay there for later."
_GO = "in a new process each time: variables, imports and functions do not stay for later, and files do."


class CodeActAgent(AgentWithContexts[LimitedTurn], Component[CodeActAgentConfig]):
    """Solves tasks step by step: writes code, runs it in one session, and reads the result.

    The code can call functions of the host: Python functions, AutoGen's tools, and all tools of a workbench (of an MCP
    server, for instance). They run on the host; everything else runs in the sandbox. The turn ends when the model
    answers without code, or at a limit. Variables are kept from step to step and from turn to turn.

    Args:
        name: The agent's name, a Python identifier.
        model_client: The model that writes code; by default that of the variable `CODEROOM_MODEL`, else OpenAI's
            `gpt-4o`.
        code_executor: Where the code runs; a `SandboxCodeExecutor` by default. In one that keeps no variables, as
            AutoGen's command-line executors, the model is informed about that.
        tools: Functions and AutoGen tools that the code can call by their names.
        workbench: An AutoGen workbench, or several, all of whose tools the code can call. They are started on first
            use and stopped in `close()`.
        model_context: Where the conversation is kept; a `CompactingContext` by default.
        model_client_stream: Whether to yield the model's chunks as they arrive, and the output of the code from its
            beginning. Otherwise, only output of code that goes on for more than a quarter of a second is yielded.
        description: What the agent is for, for other agents.
        system_message: The first message of every model call; the functions' signatures follow it.
        code_format: Where code is in the model's replies: in fenced blocks (`fence`), or in `<execute>` tags
            (`execute`).
        max_steps: The most attempts in a turn, 1 or more.
        max_tokens: The most tokens that the model may use in a turn; `None`: unlimited.
        max_seconds: The most seconds that a turn may take, without those in which a person decides on a call; `None`:
            unlimited.
        on_error: What happens to the variables and files after failed code: they stay (`keep`), or are restored as
            they were before it (`rollback`). Of function calls, only those with an inverse are undone; the model is
            informed about the others.
        approval_func: Is asked before code runs, as in `CodeExecutorAgent`.
        max_output_chars: The most characters of output for the model and other agents, at least 200.
        memory: AutoGen's memories, each of which adds what it finds to the conversation at the beginning of a turn.
        handoffs: The agents that the model can hand over to, as in AutoGen's `AssistantAgent`: names, or `Handoff`s.
            The turn then ends with a `HandoffMessage` that has the report of the code that ran in it, and code beside
            the call is not run. The model must be able to call functions.
        budget: What the agent may use from its beginning on, or since it was reset. A request to a model or a run of
            code that is not covered raises `BudgetExceeded`, which ends a team's run.
        initial_variables: Variables that are set in the session before the first code: numbers, texts, bytes, lists,
            tuples, dicts and sets.
        initial_imports: Modules that are imported in the session before the first code, by their names there:
            `{"np": "numpy"}`.
        branches: How many repairs are tried at the same time after a failed attempt, each in a fork of the session: a
            number, or a list of `Variation`s. All branches are one step.
        branch_judge: Who chooses between the branches, as `BranchTests`; `None`: the first whose code works.
        skills: The folder of functions that code has saved and later code imports, or a `Skills`; `None`: none.
        call_approval: Is asked before calls of functions whose effect is `write`; meanwhile the code stands still.
        call_rules: What calls do, by functions and arguments; the first match counts, before a function's own effect.
        check_types: Whether code with calls that are surely wrong is not run: the model gets the errors instead. This
            needs the extra `types`.
        tools_in_prompt: What the model is shown of the functions, all of which can be called: signatures (`all`), names
            with one line each (`names`), or how to find them (`search`). `auto`: the first that fits.
        max_tool_tokens: The most tokens for that, at least 200, and again for functions that were found.
        eager: Whether a statement of a reply's first block runs once the next one begins, while the model still writes.
            What has run is taken back if the reply turns out to have other code. Calls of functions wait for the end
            of the reply, but for those whose effect is `read`. It needs `model_client_stream` and no `approval_func`.
        map_tokens: The most tokens of a map of the repository in the executor's folder, which the model gets as it is
            at the beginning of each turn; 0: none. It needs an executor with `editing`.

    Raises:
        ValueError: A limit is out of range, a tool cannot be offered, a variable cannot be set, or there are `branches`
            with an executor whose session cannot be forked.
    """

    DEFAULT_DESCRIPTION = "Solves tasks step by step by writing and running Python, and calls functions from it."
    DEFAULT_SYSTEM_MESSAGE = (
        f"You solve tasks by writing Python code, which is run for you {_STAY} Write code when you need to compute or "
        "look something up; you then see what it printed and the value of its last expression, and can write more. "
        "When you know the answer, give it in words, without code. Report only what the code has shown. No input can "
        "be typed in."
    )

    LANGUAGES: Sequence[str] = ("python", "sh")
    TAKES_DEFAULT_MODEL = True
    """A `--model` is for it too, if its config names no model."""
    _code_format: CodeFormat

    component_config_schema = CodeActAgentConfig
    component_provider_override = "coderoom.agents.CodeActAgent"

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient | None = None,
        code_executor: CodeExecutor | None = None,
        *,
        tools: Sequence[BaseTool[Any, Any] | Callable[..., Any]] = (),
        workbench: Workbench | Sequence[Workbench] = (),
        model_context: ChatCompletionContext | None = None,
        model_client_stream: bool = False,
        description: str | None = None,
        system_message: str | None = DEFAULT_SYSTEM_MESSAGE,
        code_format: CodeFormat = "fence",
        max_steps: int = 10,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        on_error: OnError = "keep",
        approval_func: Approval | ApprovalFuncType | None = None,
        max_output_chars: int = 10_000,
        memory: Sequence[Memory] | None = None,
        handoffs: Sequence[Handoff | str] | None = None,
        budget: Budget | None = None,
        initial_variables: Mapping[str, Any] | None = None,
        initial_imports: Mapping[str, str] | None = None,
        branches: int | Sequence[Variation] = 1,
        branch_judge: BranchJudge | None = None,
        skills: Skills | str | Path | None = None,
        call_approval: Approval | ApprovalFuncType | None = None,
        call_rules: Sequence[CallRule] = (),
        check_types: bool = False,
        tools_in_prompt: ToolsInPrompt = "auto",
        max_tool_tokens: int = 2_000,
        eager: bool = False,
        map_tokens: int = 0,
    ) -> None:
        description = self.DEFAULT_DESCRIPTION if description is None else description
        context = CompactingContext() if model_context is None else model_context
        executor = SandboxCodeExecutor() if code_executor is None else code_executor
        self._keeps_variables = keeps_variables(executor)
        has_initial = {"initial_variables": bool(initial_variables), "initial_imports": bool(initial_imports)}
        check_executor(executor, bool(tools or workbench), on_error == "rollback", has_initial)
        for what, value, known in (("code_format", code_format, CodeFormat), ("on_error", on_error, OnError)):
            if value not in get_args(known):
                raise ValueError(f"{what} must be one of {', '.join(map(repr, get_args(known)))}, not {value!r}.")
        self._takes_default_model = model_client is None
        if model_client is None:
            from coderoom.configs import default_model, make_model  # It is above this package.

            model_client = make_model(default_model())
        runner = CodeRunner(executor, approval_func, max_output_chars, can_undo=on_error == "rollback")
        languages = [name for name in self.LANGUAGES if name in getattr(executor, "languages", self.LANGUAGES)]
        super().__init__(
            name,
            description,
            model_client,
            context,
            model_client_stream,
            system_message,
            runner,
            languages,
            memory,
            handoffs,
            budget,
        )
        self.branch_into(branches, branch_judge, executor)
        check_limits(max_steps, max_tokens, max_seconds)
        self._max_steps, self._max_tokens, self._max_seconds = max_steps, max_tokens, max_seconds
        self._tools, offer = check_tools(tools)
        self._workbench = [workbench] if isinstance(workbench, Workbench) else list(workbench)
        self._code_format = code_format
        self._on_error = on_error
        self._initial_variables = check_variables(initial_variables or {})
        self._initial_imports = check_imports(initial_imports or {}, self._tools)
        self._skills = skills_for(skills, executor)
        self._call_approval, self._call_rules = call_approval, list(map(CallRule.model_validate, call_rules))
        self._tools_in_prompt, self._max_tool_tokens = tools_in_prompt, max_tool_tokens
        gate, search = CallGate(name, call_approval, self._call_rules), ToolSearch(tools_in_prompt, max_tool_tokens)
        initial = self._initial_variables, self._initial_imports
        self._session = CodeActSession(runner, offer, self._workbench, on_error, *initial, self._skills, gate, search)
        self._check_types, self._types = check_types, TypeCheck(max_output_chars) if check_types else None
        check_map(map_tokens, executor)
        self._map_tokens, self._map = map_tokens, ""
        self._eager = eager
        if eager:
            check_eager(executor, model_client_stream, approval_func is not None or check_types)
            self._session.early = Eager(runner, self.find_code, code_format, self._session.begin)
        if model_client_stream:
            self._quiet_seconds = 0.0

    @property
    def call_approval(self) -> Approval | ApprovalFuncType | None:
        """What is asked about calls of functions that write; `None`: nothing."""
        return self._call_approval

    # --- The interface of AutoGen's agents ---

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Clear the conversation and restart the session."""
        await super().on_reset(cancellation_token)
        await self._session.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """The conversation, and the code that succeeded with the results of its function calls, as JSON-like data."""
        return CodeActAgentState(**await super().save_state(), **await self._session.save()).model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned. Before the next turn the code is run again to restore the variables.

        Functions are not called again; their recorded results are used. If some code fails this time (because of the
        time, the network, missing files), the model is informed about what was not restored.
        """
        loaded = CodeActAgentState.model_validate(state)
        await self._load_conversation(loaded)
        await self._session.load(loaded.cells, loaded.failed, loaded.workbench, loaded.found_tools)

    async def run_given(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None = None,
        *,
        kept: bool = True,
    ) -> ExecutionResult:
        """Run code of a person in the session; see `CodingAgent.run_given`."""
        await await_with_token(self._session.functions(), cancellation_token)
        await self._session.restore(cancellation_token)
        if kept:  # Else the next turn tells it.
            await self._tell_news(0)
        return await self._session.run_given(blocks, cancellation_token, on_output, kept=kept)

    def ran(self) -> Any:
        """What code has run so far, for `go_back`."""
        return super().ran(), self._session.state()

    def go_back(self, ran: Any) -> None:
        """Go on from the code that had run; see `CodingAgent.go_back`."""
        by_runner, in_session = ran
        super().go_back(by_runner)
        self._session.go_back(in_session)

    @property
    def runs_again(self) -> bool:
        """Whether code of earlier turns is run again in the next one."""
        return super().runs_again or self._session.runs_again

    async def start(self) -> None:
        """Start the sandbox and the workbenches now and not on first use."""
        await self._session.functions()
        await self._runner.executor.start()

    async def close(self) -> None:
        """Stop the sandbox and the workbenches. They start again if the agent is used again."""
        await self.close_contexts()
        await self._session.close()

    # --- A turn: write, run, read, and again ---

    async def _turn(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Ending:
        turn = LimitedTurn(CancellationToken(), max_steps=self._max_steps, max_tokens=self._max_tokens)
        cancellation_token.add_callback(turn.token.cancel)
        task, seconds = asyncio.current_task(), self._max_seconds
        try:
            with nullcontext() if seconds is None else within(Deadline(seconds, turn.end_late)):
                await self._prepare(messages, turn.token)
                await self._steps(turn)
        except asyncio.CancelledError:
            if not turn.late or cancellation_token.is_cancelled() or (task is not None and task.cancelling()):
                raise
            if turn.interrupted:
                self._runner.last_attempt = None
                await self._tell_end(turn.attempts[-1])
        finally:
            if self._session.early is not None:
                await self._session.early.take_back()
        return turn.answer or self._stopped(turn)

    def _end_turn(self) -> None:
        super()._end_turn()
        self._session.end_turn()

    async def _prepare(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> None:
        await self._take(messages)
        await await_with_token(self._session.functions(), cancellation_token)
        system_message = self._system_message
        if system_message and not self._keeps_variables:
            system_message = system_message.replace(_STAY, _GO)
        system_message = with_help(system_message, self._code_executor)
        parts = self._session.tool_search.instructions, self._initial_variables, self._initial_imports
        self._instructions = with_functions(system_message, self._code_format, self._languages, *parts)
        if self._skills is not None:
            self._instructions += f"\n\n{await describe_skills(self._skills, cancellation_token)}"
        await self._session.restore(cancellation_token)
        await self._tell_news(len(messages))
        if self._map_tokens:
            self._map = await map_of(self._runner, self._map_tokens, cancellation_token)

    async def _tell_news(self, unread: int) -> None:
        if news := await self._session.take_news(unread):
            await self._add_to_context(news)

    async def _conversation(self, *more: LLMMessage) -> list[LLMMessage]:
        messages, search = await super()._conversation(*more), self._session.tool_search
        if self._map:
            at = 0 if self._instructions is None else 1
            messages.insert(at, UserMessage(content=self._map, source=self.name))
        return search.with_found(messages) if search.found else messages

    async def _answer(self, turn: LimitedTurn, message_id: str, reply: CreateResult) -> TextMessage | None:
        """The reply as the answer; but if it has code in the wrong place, the model is asked again, once in a turn."""
        if not turn.asked_again and turn.stop_reason is None:
            notice = await aside(unrun_code, str(reply.content), self._languages, self._code_format, turn.known_texts)
            if notice:
                turn.asked_again = True
                await self._add_to_context(notice)
                return None
        reason = StopReason.ANSWERED if turn.attempts else StopReason.NO_CODE
        return await aside(final_message, self.name, message_id, reply, turn.whole, reason)

    async def _ask_model(
        self, message_id: str, cancellation_token: CancellationToken, *more: Any, **how: Any
    ) -> CreateResult:
        reply = super()._ask_model(message_id, cancellation_token, *more, **how)
        early = self._session.early
        return await (reply if early is None else early.reading(reply, cancellation_token))

    async def _read(self, message_id: str, text: str) -> None:
        await super()._read(message_id, text)
        if self._session.early is not None:
            await self._session.early.read(text)

    async def _attempt(
        self, turn: LimitedTurn, selection: Selection, context: Sequence[LLMMessage], on_output: OnOutput
    ) -> Attempt:
        run = self._session.run if self._types is None else partial(self._types.run, self._session)
        return await run(turn.number, selection, context, turn.token, on_output)

    async def _twin(self, variation: Variation, runner: BranchRunner) -> Self:
        made = await super()._twin(variation, runner)
        made._session = self._session.branch(runner, runner.name)
        made._types = self._types and self._types.copy()
        return made

    async def _step_in_branches(self, turn: LimitedTurn) -> None:
        await self._session.set_variables(turn.token)
        await super()._step_in_branches(turn)

    async def _join(self, twins: Sequence[Self], kept: Self | None) -> Undone:
        return await self._session.join([twin._session for twin in twins], None if kept is None else kept._session)

    def _stopped(self, turn: LimitedTurn) -> TextMessage:
        """The message of a turn that ended without an answer."""
        reason = turn.stop_reason
        assert reason is not None
        return final_message(self.name, str(uuid.uuid4()), None, turn.whole, reason, reason.why_without_answer)

    def _dump_argument(self, name: str, value: Any) -> Any:
        if name == "model_client" and self._takes_default_model:
            return None
        if name == "skills":
            return value and value.source
        if name == "workbench":
            for workbench in self._workbench:
                check_dump(workbench)
        return [dump_tool(tool) for tool in value] if name == "tools" else super()._dump_argument(name, value)

    @classmethod
    def _load_argument(cls, name: str, value: Any) -> Any:
        return [load_tool(tool) for tool in value] if name == "tools" else super()._load_argument(name, value)
