"""Branches of coding agents: after a failure, several repairs are tried at the same time, and one of them goes on.

Each branch is the agent again, with a copy of its conversation and a fork of its session, and does one step. Then a
judge chooses; the winner's conversation and session become the agent's. Used by `CodeExecutorAgent` and `CodeActAgent`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Generic, Self

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, CodeGenerationEvent, TextMessage
from autogen_core import CancellationToken, ComponentModel
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import CreateResult, RequestUsage
from autogen_core.tools import BaseTool
from pydantic import Field

from coderoom._util.tasks import await_with_token, cancel_and_wait, run_uncancellable, together
from coderoom._util.text import output_name
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import Attempt, TurnT, calls_made
from coderoom.agents.base import NOT_KEPT, CodingAgent, CodingAgentConfig
from coderoom.agents.branch_judges import BranchJudge, Candidate, Mark, by_outcome
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.inverses import Undone
from coderoom.agents.replay import keeps_cut_code
from coderoom.agents.variations import MOST_BRANCHES, Variation, VariationConfig, variations_of
from coderoom.approval import ApprovalRequest, ApprovalResponse, ask_approval
from coderoom.errors import RequestError
from coderoom.executors import forks_of
from coderoom.models.compacting import CompactingContext
from coderoom.outcome import Outcome
from coderoom.steps import branch as current_branch
from coderoom.steps import once


class BranchingAgentConfig(CodingAgentConfig):
    """The fields for branches. Each is the constructor's argument of the same name."""

    branches: Annotated[int, Field(ge=1, le=MOST_BRANCHES)] | list[VariationConfig] = 1
    branch_judge: ComponentModel | None = None


class _Forks:
    """The forks of a session, which are made when a branch runs code, or before if it is known to be needed."""

    def __init__(self, runner: CodeRunner, count: int) -> None:
        self._runner = runner
        self._count = count
        self._lock = asyncio.Lock()
        self._made: list[Any] = []
        self._starting: list[asyncio.Task[Any]] = []

    def begin(self, token: CancellationToken) -> None:
        """Make them while the models write, unless code may be known from before the run was resumed."""
        if self._runner.is_current:
            self._starting = [asyncio.create_task(self.get(place, token)) for place in range(self._count)]

    async def get(self, place: int, token: CancellationToken) -> Any:
        async with self._lock:
            if not self._made:
                await self._runner.catch_up(token)
                self._made = await await_with_token(self._runner.given.fork(self._count), token)
        fork = self._made[place]
        await await_with_token(fork.start(), token)
        return fork

    async def close(self) -> None:
        for task in self._starting:
            await cancel_and_wait(task)
        await asyncio.gather(*(each.stop() for each in self._made))


class BranchRunner(CodeRunner):
    """Runs the code of a branch, in a fork that is made for the first code whose result is not known.

    Attributes:
        is_live: Whether code has run in the fork.
        name: The branch's name.
    """

    def __init__(self, trunk: CodeRunner, forks: _Forks, place: int, name: str, one_by_one: asyncio.Lock) -> None:
        vars(self).update(vars(trunk))
        self.name = name
        self.last_attempt, self.is_live = None, False
        self.mark = self._before = self.early = None
        self.past = replace(trunk.past, known=[], cells=list(trunk.past.cells), made=[])
        self._forks, self._place = forks, place
        self._to_keep: list[str] = []
        self._undoes, self._can_undo = trunk.can_undo, False
        if (asked := trunk.approval) is not None:

            async def ask(request: ApprovalRequest) -> ApprovalResponse:
                async with one_by_one:
                    return await ask_approval(asked, request)

            self.approval = ask

    async def catch_up(self, cancellation_token: CancellationToken) -> None:
        """Get the fork, whose session has the variables of all code before."""
        if not self.is_live:
            self.given = self.executor = await self._forks.get(self._place, cancellation_token)
            self.is_live = True
            for text in self._to_keep:
                await super().keep(text)
        await super().catch_up(cancellation_token)

    async def keep(self, text: str) -> Path:
        """Save a part of the conversation in the fork, once there is one."""
        if self.is_live:
            return await super().keep(text)
        self._to_keep.append(text)
        return Path(output_name(text.encode("utf-8", "replace"), "earlier"))

    @property
    def _is_overlaid(self) -> bool:
        return self.is_live or super()._is_overlaid  # A fork has no folder on this machine.

    def _lose_variables(self) -> None:
        """Those of the session stay, until it is known which branch goes on."""

    async def land(self, trunk: CodeRunner, token: CancellationToken) -> None:
        """Have the agent's own runner go on from here."""

        async def become() -> str:
            await trunk.given.become(self.given)
            return "done"

        async def catch_up() -> str:
            await trunk.catch_up(token)
            return "done"

        if self.is_live:
            await once("become", {}, become, str, str)
            trunk.go_on(self)
            return
        for text in self._to_keep:
            await trunk.keep(text)
        trunk.go_on(self)
        if self.past.known:  # If the run was killed before that, the files were in a fork, and have ended with it.
            await once("become", {}, catch_up, str, str)

    async def undo(self, cancellation_token: CancellationToken) -> str:
        """Say what the session from before the branches has: nobody goes on with the fork."""
        return "variables and files" if self._undoes else ""


@dataclass
class Branch(Generic[TurnT]):
    """A branch of an agent.

    Attributes:
        name: The place in the tree: `2.1` is the first branch of the agent's second branching.
        agent: The agent, with the branch's conversation and runner.
        runner: What runs its code.
        turn: The turn as it is after the branch's step.
        before: How many attempts the turn had before.
        variation: What the branch does otherwise.
        mark: What the judge says.
        seconds: How long it took.
    """

    name: str
    agent: BranchingAgent[TurnT]
    runner: BranchRunner
    turn: TurnT
    before: int
    variation: Variation
    mark: Mark = field(default_factory=lambda: Mark(False, 0.0))
    seconds: float = 0.0

    @property
    def attempt(self) -> Attempt | None:
        """Its attempt; `None` if it has written no code."""
        return self.turn.attempts[-1] if len(self.turn.attempts) > self.before else None

    @property
    def candidate(self) -> Candidate:
        """What its judge sees."""
        answer = self.turn.answer.to_text() if self.turn.answer else ""
        ran = self.attempt is not None and self.attempt.ran
        return Candidate(int(self.name.rpartition(".")[2]), self.turn.attempts, ran, answer)

    @property
    def succeeded(self) -> bool:
        """Whether its code works and has passed."""
        return self.candidate.works and self.mark.passed

    @property
    def said(self) -> list[BaseAgentEvent | BaseChatMessage]:
        """What it has said, as messages of a branch."""
        items: list[BaseAgentEvent | BaseChatMessage] = list(self.agent.kept_back)
        if isinstance(answer := self.turn.answer, TextMessage):
            items.append(_words(self.agent.name, self.before, answer.content, answer.models_usage))
        return [item.model_copy(update={"metadata": {**item.metadata, keys.BRANCH: self.name}}) for item in items]

    def facts(self) -> dict[str, Any]:
        """The branch for programs."""
        attempt = self.attempt
        used = [item.models_usage for item in self.said if item.models_usage is not None]
        return {
            "branch": self.name,
            "variation": str(self.variation),
            "outcome": None if attempt is None else attempt.outcome.value,
            "exit_code": None if attempt is None else attempt.exit_code,
            "succeeded": self.succeeded,
            "verdict": self.mark.words,
            "score": round(self.mark.score, 3),
            "input_tokens": sum(usage.prompt_tokens for usage in used),
            "output_tokens": sum(usage.completion_tokens for usage in used),
            "seconds": round(self.seconds, 3),
        }


class BranchingAgent(CodingAgent[TurnT]):
    """A coding agent that can try several repairs at the same time."""

    _branchings = 0
    _variation: Variation | None = None
    """What is different in this branch; `None` outside of one."""

    def branch_into(
        self, branches: int | Sequence[Variation], judge: BranchJudge | None, executor: CodeExecutor
    ) -> None:
        """Take the arguments `branches` and `branch_judge`.

        Raises:
            ValueError: They are wrong, or sessions of the executor cannot be forked.
        """
        self._branches = branches if isinstance(branches, int) else list(branches)
        self._branch_judge = judge
        self._variations = variations_of(branches)
        self._clients = [each.model_client for each in self._variations if each.model_client is not None]
        self.kept_back: list[BaseAgentEvent | BaseChatMessage] = []
        if len(self._variations) > 1:
            try:
                forks_of(executor)
            except RequestError as error:
                raise RequestError(f"branches need forks of the session. {error}") from error
        elif judge is not None:
            raise ValueError("branch_judge needs branches, between which it chooses: set branches to 2 or more.")

    @property
    def branches_out(self) -> bool:
        """Whether the next step after a failure is taken in branches."""
        if len(self._variations) < 2 or self._variation is not None:
            return False
        return self._runner.past.branchings < forks_of(self._runner.given).most_forks_in_a_row

    @property
    def goes_on_after_cut(self) -> bool:
        """Whether a turn that was cancelled stays in the conversation, with what its code has done.

        It does if the model was asked and no code was cut off, of which nobody knows what it has left behind. In a chat
        the latter stays, too, as long as the session does. If not, a team puts the agent back to before the turn.
        """
        last = self._runner.last_attempt
        if last is not None and last.outcome is Outcome.CANCELLED and (last.state_lost or not keeps_cut_code.get()):
            return False
        return bool(self._taken)

    async def say(self, item: BaseAgentEvent | BaseChatMessage) -> None:
        """Say something, in a branch when all branches have ended."""
        if self._variation is None:
            await super().say(item)
        elif not isinstance(item, NOT_KEPT):
            self.kept_back.append(item)

    async def _step(self, turn: TurnT) -> None:
        """Take a step; after a failure, one in each branch."""
        failed = bool(turn.attempts) and turn.attempts[-1].outcome is not Outcome.OK and not turn.was_refused
        if self.branches_out and failed:
            await self._step_in_branches(turn)
        else:
            await super()._step(turn)

    async def _ask_model(
        self,
        message_id: str,
        cancellation_token: CancellationToken,
        hint: str | None = None,
        *,
        tools: Sequence[BaseTool[Any, Any]] = (),
        temperature: float | None = None,
    ) -> CreateResult:
        if self._variation is not None:
            hint, temperature = self._variation.prompt, self._variation.temperature
        try:
            return await super()._ask_model(message_id, cancellation_token, hint, tools=tools, temperature=temperature)
        except (TypeError, ValueError) as error:
            if temperature is None:
                raise
            raise RequestError(
                f"A branch of {self.name!r} asks for temperature {temperature:g}, which "
                f"{type(self._model_client).__name__} does not take ({error}). Leave it out, or give the variation a "
                "model_client of its own that has this temperature."
            ) from error

    async def _step_in_branches(self, turn: TurnT) -> None:
        """Take a step in each branch, and go on with the best one."""
        self._branchings += 1
        forks, one_by_one = _Forks(self._runner, len(self._variations)), asyncio.Lock()
        branches: list[Branch[TurnT]] = []
        for place, variation in enumerate(self._variations):
            name = f"{self._branchings}.{place + 1}"
            runner = BranchRunner(self._runner, forks, place, name, one_by_one)
            agent = await self._twin(variation, runner)
            own = replace(turn, attempts=list(turn.attempts), tokens=0)
            branches.append(Branch(name, agent, runner, own, len(turn.attempts), variation))
        try:
            forks.begin(turn.token)
            await together([_take_step(each) for each in branches])
            await self._judge(branches, turn.token)
            won = max(branches, key=lambda each: (each.succeeded, each.mark.score))
            note = await run_uncancellable(self._go_on_from(won, branches, turn))
        finally:
            await run_uncancellable(forks.close())
        await self._tell(branches, won, turn)
        if note:
            await self._add_to_context(note)

    async def _twin(self, variation: Variation, runner: BranchRunner) -> Self:
        """This agent as a branch of it."""
        made = copy(self)
        made._variation, made._runner, made.kept_back = variation, runner, []
        if variation.model_client is not None:
            made.use_model(variation.model_client)
        made._model_client_stream = False  # The pieces of several texts would be mixed.
        made._model_context = copy(self._model_context)
        if isinstance(made._model_context, CompactingContext):
            made._model_context.keep_by(runner.keep)
        await made._model_context.load_state(await self._model_context.save_state())
        return made

    async def _judge(self, branches: Sequence[Branch[TurnT]], token: CancellationToken) -> None:
        candidates = [each.candidate for each in branches]
        marks = by_outcome(candidates)
        if self._branch_judge is not None:
            conversation = await self._model_context.get_messages()
            with self._within_budget():
                marks = await self._branch_judge.judge(candidates, conversation, token)
        for each, mark in zip(branches, marks, strict=True):
            each.mark = mark

    async def _go_on_from(self, won: Branch[TurnT], branches: Sequence[Branch[TurnT]], turn: TurnT) -> str:
        """Make the conversation and the session of a branch those of the agent; return what else its model must know.

        If failed code is undone, the session stays as it was before the branches, unless the branch has succeeded.
        """
        is_kept = won.succeeded or not self._runner.can_undo
        if is_kept:
            await won.runner.land(self._runner, turn.token)
        undone = await self._join([each.agent for each in branches], won.agent if is_kept else None)
        await self._model_context.load_state(await won.agent._model_context.save_state())
        tokens = turn.tokens + sum(each.turn.tokens for each in branches)
        vars(turn).update(vars(won.turn), tokens=tokens, attempts=[*won.turn.attempts])
        notes: list[str] = []
        if (attempt := won.attempt) is not None and attempt.ran:
            attempt = replace(attempt, artifacts=self._runner.placed(attempt.artifacts) if is_kept else ())
            if won.candidate.works and not won.succeeded:  # So that there is another attempt.
                notes.append(f"This code ran to its end, but {won.mark.words}.")
                attempt = replace(attempt, outcome=Outcome.ERROR, exit_code=1)
            if not is_kept and not attempt.undone:
                attempt = replace(attempt, not_undone=())
                notes.append("This attempt was undone: variables and files are as they were before it.")
            told = replace(attempt.selection, notes=(*attempt.selection.notes, *notes))
            turn.attempts[-1] = replace(attempt, selection=told)
        known = () if attempt is None else attempt.not_undone or ()  # By the attempt itself.
        left = [call for call in undone.left if call not in known]
        if left or undone.words:
            made = [calls_made(left)] if left else []
            notes.append("\n".join(["Other repairs were tried at the same time.", *undone.words, *made]))
        return "\n".join(notes)

    async def _join(self, twins: Sequence[Any], kept: Any) -> Undone:
        """Take what the branches of this agent have besides their runners, turns and conversations.

        Returns:
            What became of the calls of functions of those that are not kept.
        """
        return Undone((), ())

    async def _tell(self, branches: Sequence[Branch[TurnT]], won: Branch[TurnT], turn: TurnT) -> None:
        """Say what the branches have said, the winner last, as its output is that of the agent; then the verdicts."""
        for each in sorted(branches, key=lambda branch: branch is won):
            for item in each.said if each is not won else each.said[: len(each.agent.kept_back)]:
                await self.say(item)
        why = won.mark.words if won.succeeded else f"none has succeeded; this one {won.mark.words}"
        found = {
            "branching": self._branchings,
            "won": won.name,
            "why": why,
            "branches": [each.facts() for each in branches],
        }
        lines = [
            f"Branch {each.name} ({each.variation}): {each.mark.words}{' <- goes on' if each is won else ''}"
            for each in branches
        ]
        event = _words(self.name, won.before, "\n".join(lines))
        event.metadata |= {keys.EVENT: keys.BRANCHING, keys.BRANCHES: json.dumps(found)}
        await self.say(event)

    def _dump_argument(self, name: str, value: Any) -> Any:
        if name == "branches" and isinstance(value, list):
            return [each.dump() for each in value]
        return super()._dump_argument(name, value)

    @classmethod
    def _load_argument(cls, name: str, value: Any) -> Any:
        if name != "branches" or isinstance(value, int):
            return super()._load_argument(name, value)
        load: Any = super()._load_argument
        return [Variation(each.prompt, each.temperature, load(name, each.model_client), each.name) for each in value]


async def _take_step(branch: Branch[TurnT]) -> None:
    """Take the step of a branch, whose steps in the journal have its name."""
    begin = perf_counter()
    current_branch.set(branch.name)
    await CodingAgent._step(branch.agent, branch.turn)
    branch.seconds = perf_counter() - begin


def _words(source: str, before: int, text: str, usage: RequestUsage | None = None) -> CodeGenerationEvent:
    """An event without code, for which AutoGen has no type of its own."""
    return CodeGenerationEvent(retry_attempt=before, content=text, code_blocks=[], source=source, models_usage=usage)
