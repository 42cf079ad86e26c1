"""Runs of teams that the journal keeps: how they begin, and how they go on after their process was killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom._util.autogen import agents_of, executor_of
from coderoom._util.text import MASK, counted
from coderoom.agents import HumanApprovedAgent
from coderoom.agents.base import CodingAgent
from coderoom.agents.inverses import Undone, undo_since
from coderoom.agents.replay import catch_up, is_behind, note_changes
from coderoom.approval import Approval, ChainApproval, HumanApproval
from coderoom.configs import Source, find_source, secrets_of
from coderoom.errors import RequestError
from coderoom.models.budgets import Budget, make_budget
from coderoom.outcome import Outcome
from coderoom.runs.journal import EVENT, MESSAGE, TASK, Journal, RunEntry
from coderoom.runs.kept import overlaid_in, put_back
from coderoom.runs.observers import Recorder
from coderoom.runs.record import FAILED, UNFINISHED, RunRecord, watching
from coderoom.runs.review import Ask
from coderoom.runs.run_log import RunLog
from coderoom.runs.said import Said, not_heard_in, said_in
from coderoom.runs.team_run import (
    HasSandbox,
    PreparedRun,
    Watcher,
    asking_agents_of,
    close_team,
    coding_agents_of,
    hand_over_sessions,
    prepare_run,
    run_team,
)
from coderoom.sandbox import ExecutionResult, OnOutput
from coderoom.steps import CODE, StepObserver, observing

_TEAM_COMMANDS: Final = ("run", "chat", "ask", "batch", "fix")
_NOT_OF_THE_TEAM: Final = ("budget", "source", "digest", "fix", "folder")
GO_ON: Final = frozenset({"killed", FAILED, UNFINISHED, Outcome.CANCELLED.value})
"""The states in which a run has more to do."""
DIFFERS: Final = (
    "The last task had ended, but it came out otherwise when it was gone through again: the team only knows what it "
    "did until then, and what its code had set after that is lost."
)


@dataclass
class Run:
    """A run of a team: its task, and what was said to it before.

    Attributes:
        prepared: The team.
        past: What was said before, in order.
        task: The task.
        log: Its part of the journal.
        budget: What each task may use; `None`: no limit.
        recorder: Records the model traffic, that of tasks before too; `None`: nobody does.
        asks: Whether a person is asked before code runs, whatever the team says.
        differs: Whether the last task had ended, and stopped in the middle when `repeat` went through it.
        not_heard: What was said to the team while it worked on the last task, and no agent had got.
    """

    prepared: PreparedRun
    past: list[Said]
    task: str
    log: RunLog
    budget: Budget | None = None
    recorder: Recorder | None = None
    asks: bool = False
    differs: bool = False
    not_heard: Sequence[str] = ()
    _ended: RunEntry | None = None
    _own_approvals: list[tuple[CodingAgent[Any], Any]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        prepared: PreparedRun,
        journal: Journal | None,
        *,
        command: str = "run",
        budget: Budget | None = None,
        cached: bool = False,
        run: str | None = None,
        recording: Path | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Self:
        """Begin a run.

        Args:
            prepared: The team and its task.
            journal: Where the run is kept; `None`: nowhere.
            command: The command that began it.
            budget: What each task may use.
            cached: Whether requests to models that were answered in a run of this journal get the same reply again.
            run: Its id, which no run of the journal has; `None`: a new one.
            recording: Record the model traffic in this file.
            more: What else the command was given, as plain data by its name.

        Raises:
            JournalError: The journal cannot be written, and is required.
            RequestError: `cached` needs a journal, or the recording cannot be written.
        """
        if cached and journal is None:
            raise RequestError("The cache of replies is the journal, and there is none.")
        recorder = _recorder(prepared, recording)
        record, log = prepared.record, RunLog(journal, cached=cached)
        if journal is not None:
            journal.hide_values(secrets_of(prepared.team))
            data = find_source(prepared.request.team).data
            request = {
                **prepared.request.kept,
                "budget": None if budget is None else budget.model_dump(exclude_none=True),
                "source": data.decode("utf-8", "replace"),
                "digest": sha256(data).hexdigest(),
                **(more or {}),
            }
            log.begin(command, record.team, record.task, record.model, request, run)
            record.run = log.run
        return cls(prepared, [], record.task, log, budget, recorder)

    @classmethod
    def resume(
        cls,
        run: str,
        journal: Journal | None = None,
        *,
        task: str | None = None,
        budget: Mapping[str, float] | None = None,
        budgets: Mapping[str, Mapping[str, float]] | None = None,
        max_turns: int | None = None,
        recording: Path | None = None,
        workspace: Path | None = None,
    ) -> Self:
        """Go on with a run that was killed, cancelled, failed, or ended at a limit.

        Args:
            run: Its id, the beginning of that, or `last`.
            journal: The journal; `None`: the default one.
            task: A further task for a run, which may have succeeded; `None`: finish the last one.
            budget: Limits of each task, by the names of a `Budget`, in place of those before.
            budgets: Limits of agents, by their names, in place of those before.
            max_turns: The team's turns, in place of those before.
            recording: Record the model traffic in this file, that of before too.
            workspace: The folder that the code works in, in place of the one before.

        Raises:
            RequestError: There is no such run, it has nothing left to do, another process works on it, or the
                recording cannot be written.
            JournalError: The journal cannot be used.
        """
        journal = Journal() if journal is None else journal
        entry = journal.find(run)
        if entry.command not in _TEAM_COMMANDS:
            hint = "`coderoom resume` goes on with it" if entry.command == "solve" else "it ran code without a team"
            raise RequestError(f"The run {entry.id} is not one of a team, but of `{entry.command}`: {hint}.")
        is_over = entry.state != "running" and entry.state not in GO_ON
        if task is None and is_over and entry.command != "fix":  # What a fix has changed may not have been judged.
            raise RequestError(
                f"The run {entry.id} has ended with {entry.state!r}, so that nothing is left to do. "
                f'`coderoom run TEAM "TASK" --continue` gives it a further task.'
            )
        request = {**entry.request, "budget": {**(entry.request["budget"] or {}), **(budget or {})}}
        request["budgets"] = of_agents = dict(request["budgets"] or {})
        for agent, limits in (budgets or {}).items():
            of_agents[agent] = {**of_agents.get(agent, {}), **limits}
        if max_turns is not None:
            request["max_turns"] = max_turns
        if workspace is not None:
            request["workspace"] = str(workspace)
        asked = {name: value for name, value in request.items() if name not in _NOT_OF_THE_TEAM}
        prepared = prepare_run(_source(entry), entry.task, more_tasks=True, **asked)
        prepared.record.run = entry.id
        allowed = make_budget(request["budget"])
        recorder = _recorder(prepared, recording)
        journal.claim(entry.id, request)
        journal.hide_values(secrets_of(prepared.team))
        known = list(journal.steps(entry.id, with_values=True))
        past = said_in(known)
        if not any(step.kind == TASK for step in known):
            past.append(Said("task", entry.task))
        last_kind = next((said.kind for said in reversed(past) if said.kind in ("task", "undo")), "")
        ended = entry if is_over and task is not None and last_kind == "task" else None
        if finishes := task is None:  # The last one is finished. What was said after it belongs to no task.
            last = max((place for place, said in enumerate(past) if said.kind == "task"), default=-1)
            task = past[last].text if past else entry.task
            past = [
                *past[: max(last, 0)],
                *(said for said in past[last + 1 :] if said.kind in ("undo", "left")),
            ]
        log = RunLog(journal, run=entry.id, known=known)
        done = [step for step in known if step.kind not in (TASK, MESSAGE, EVENT)]
        if any(MASK in json.dumps(step.result) for step in done):
            log.note(f"Something like a key was in what was answered before; the journal has {MASK} in its place.")
        if finishes and done and done[-1].kind != CODE and entry.state in ("killed", Outcome.CANCELLED):
            log.note("If code was running when the run ended, it is run again from its beginning, with all its blocks.")
        return cls(prepared, past, task, log, allowed, recorder, not_heard=not_heard_in(known), _ended=ended)

    async def go(
        self,
        watch: Watcher,
        *,
        begin: Callable[[RunRecord], None] = lambda record: None,
        owns_process: bool = False,
        close: bool = True,
        token: CancellationToken | None = None,
        ask: Ask | None = None,
    ) -> RunRecord:
        """Run the task, after what was said before. The arguments are those of `run_team`.

        Returns:
            The record of the task.
        """
        try:
            await self.repeat()
            record = self.record_of(self.task)
            if self.log.known:
                done = counted(self.log.known, "step")
                record.notices.append(f"Resumed, with {done} from before, which nobody does again.")
            if self.differs:
                record.notices.append(DIFFERS)
            shown = partial(begin, record)
            return await self.go_on(
                record, watch, begin=shown, owns_process=owns_process, close=close, token=token, ask=ask
            )
        except BaseException:
            if close:
                await close_team(self.prepared.team)
            raise
        finally:
            if close:
                self.prepared.remove_empty_folder()

    def tell(self, words: str) -> None:
        """Say something to the team while it works on a task; from any thread.

        Each agent that has a conversation with a model gets it before its next request. Words that no agent has got
        when the task ends are in `untold`.
        """
        self.log.add_said(Said("told", words))
        self.log.words_waiting.append(words)

    def untold(self) -> list[str]:
        """What was said, also on a page, and no agent has got; each time once."""
        self.log.take_said()
        words = list(self.log.words_waiting)
        self.log.words_waiting.clear()
        if words:
            self.log.add_said(Said("told", ""))
        return words

    async def repeat(self) -> list[RunRecord]:
        """Go through what was said before, of which all steps are known, so that the team has its conversation.

        Returns:
            The records of the tasks.
        """
        records = []
        past, self.past = self.past, []
        for said in past:
            end = CancellationToken()
            with observing(_OnlyKnown(end)):
                if said.kind == "task":
                    record = self.record_of(said.text)
                    records.append(await self.go_on(record, lambda message: None, close=False, token=end))
                elif said.kind == "run":
                    with suppress(asyncio.CancelledError):  # It was cut off.
                        await self.run_given(said, end)
                elif said.kind == "model":
                    await self.use_model(said)
                elif said.kind == "ask":
                    self.ask_before_code(said.asks)
            if said.kind == "undo":
                await self.undo_calls(None)
            elif said.kind == "kept":
                for agent in coding_agents_of(self.prepared.team):
                    if executor := overlaid_in([executor_of(agent)]):
                        note_changes(agent, partial(put_back, said.kept, executor))
                        break
        if self._ended is not None and records and records[-1].cancelled:
            self.differs = True
            self.log.close(str(self._ended.outcome), self._ended.facts)
        return records

    async def undo_calls(self, ran: Sequence[Any] | None) -> Undone:
        """Undo the calls that code of the agents has made, as steps of the run; see `undo_since`."""
        with observing(self.log):
            return await undo_since(coding_agents_of(self.prepared.team), ran)

    async def run_given(
        self, said: Said, token: CancellationToken, on_output: OnOutput | None = None
    ) -> ExecutionResult:
        """Run a person's code where the team's first agent that runs code does so, as a step of the run.

        Args:
            said: The code.
            token: Ends it.
            on_output: Called with output while it runs.

        Raises:
            RequestError: No agent of the team runs code in a session.
            asyncio.CancelledError: The token was cancelled.
        """
        agent = self.coder()
        blocks = [CodeBlock(code=said.code, language=said.language)]
        with observing(self.log):
            return await agent.run_given(blocks, token, on_output)

    async def look(self, code: str, token: CancellationToken) -> ExecutionResult:
        """Run Python code that looks at the session of `coder`, and leaves nothing there or in the journal."""
        with observing(self.log):
            return await self.coder().run_given([CodeBlock(code=code, language="python")], token, kept=False)

    @property
    def is_behind(self) -> bool:
        """Whether `catch_up` would run code."""
        return is_behind(coding_agents_of(self.prepared.team))

    async def catch_up(self) -> None:
        """Have the sessions of agents what code had set before the run was resumed."""
        with observing(self.log):
            await catch_up(coding_agents_of(self.prepared.team))

    async def ask_beside(self, question: str, token: CancellationToken) -> tuple[str, RunRecord]:
        """Ask the model of `coder` something that is not part of the conversation, as a step of the run.

        Returns:
            The answer, and a record of what it has used.
        """
        agent, record = self.coder(), self.record_of("")
        recorders = [] if self.recorder is None else [self.recorder]
        with watching(self.prepared.team), observing(self.log, *self.prepared.spendings, *recorders):
            reply = await agent.ask_beside(question, token)
        record.without_messages[agent.name] = [reply.usage]
        return str(reply.content), record

    async def use_model(self, said: Said) -> bool:
        """Go on with another model: with a team of the same file that gets the conversation and the sessions.

        Returns:
            Whether it has the sessions. If not, a `CodeActAgent` runs its code again, and other variables are lost.

        Raises:
            RequestError: There is no such model, or it needs something that is missing.
        """
        await self.catch_up()
        old = self.prepared
        new = replace(old.request, model=said.model, task="", files=(), more_tasks=True).prepare()
        await new.team.load_state(await old.team.save_state())
        kept = hand_over_sessions(old.team, new.team)
        if kept:
            for one, other in zip(coding_agents_of(old.team), coding_agents_of(new.team), strict=True):
                other.go_back(one.ran())
        await close_team(old.team)
        self.prepared = replace(new, own_folder=old.own_folder)
        self.prepared.record.run = old.record.run
        if self.log.journal is not None:
            self.log.journal.hide_values(secrets_of(new.team))
        self.ask_before_code(self.asks)
        return kept

    def ask_before_code(self, asks: bool) -> None:
        """Have a person at the terminal asked before code runs, besides the team's own approvals; or no longer.

        Raises:
            RequestError: An agent of the team cannot ask.
        """
        agents = list(agents_of(self.prepared.team))
        for agent in agents if asks else ():
            runs_code = isinstance(agent, HasSandbox) or executor_of(agent) is not None
            if runs_code and not isinstance(agent, CodingAgent | HumanApprovedAgent):
                raise RequestError(f"The agent {agent.name!r} cannot ask before its code runs.")
        for agent, own in self._own_approvals:
            agent.ask_instead(own)
        self.asks, self._own_approvals = asks, []
        for agent in agents if asks else ():
            if not isinstance(agent, CodingAgent):  # It asks already.
                continue
            own = agent.ask_instead(HumanApproval(timeout=None))
            self._own_approvals.append((agent, own))
            if isinstance(own, HumanApproval):
                agent.ask_instead(own)
            elif isinstance(own, Approval):
                agent.ask_instead(ChainApproval([own, HumanApproval(timeout=None)], "all"))
        self.prepared.record.asks = asking_agents_of(self.prepared.team)

    def coder(self) -> CodingAgent[Any]:
        """The team's first agent that runs code, in whose session a person's code runs.

        Raises:
            RequestError: There is none.
        """
        found = next(iter(coding_agents_of(self.prepared.team)), None)
        if found is None:
            raise RequestError(
                f"No agent of the team {self.prepared.record.team!r} runs code in a session: choose a team with a "
                "CodeExecutorAgent or a CodeActAgent of coderoom.agents."
            )
        return found

    async def go_on(self, record: RunRecord, watch: Watcher, **how: Any) -> RunRecord:
        """Run the task of a record of this run. The other arguments are those of `run_team`."""
        recorders = [] if self.recorder is None else [self.recorder]
        observers = [*self.prepared.spendings, *recorders]
        return await run_team(
            self.prepared.team, record, watch, budget=self.budget, log=self.log, observers=observers, **how
        )

    async def close(self) -> None:
        """Close the team, and remove the run's own folder if nothing was written to it."""
        await close_team(self.prepared.team)
        self.prepared.remove_empty_folder()

    def record_of(self, task: str) -> RunRecord:
        """A record for a task of this run."""
        made = self.prepared.record
        return replace(
            made,
            task=task,
            since=monotonic(),
            messages=[],
            notices=list(made.notices),
            without_messages={},
            network=(),
            _output="",
            _results={},
            _seen={},
        )


class _OnlyKnown(StepObserver):
    """Ends a task that was ended early before at its first step that is new."""

    def __init__(self, end: CancellationToken) -> None:
        self._end = end

    def before(self, kind: str, request: Any) -> None:
        self._end.cancel()
        raise asyncio.CancelledError


def _recorder(prepared: PreparedRun, file: Path | None) -> Recorder | None:
    if file is None:
        return None
    recorder = Recorder(file, prepared.record.model)
    recorder.hide_values(secrets_of(prepared.team))
    return recorder


def _source(entry: RunEntry) -> Source:
    """The team's file as it was; from the file itself, if that has not changed, since the journal has no keys."""
    file, data = Path(entry.name), entry.request["source"].encode()
    found = file.read_bytes() if file.is_file() else b""
    if sha256(found).hexdigest() == entry.request.get("digest"):
        data = found
    elif MASK.encode() in data:
        raise RequestError(
            f"The file {entry.name!r} has changed, and the journal does not have the keys that were in it."
        )
    return Source(entry.name, data, is_json=entry.name.lower().endswith(".json"))
