"""Runs one item of a batch and judges it. Used by `Batch`, and by the tasks of its Ray engine."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from autogen_core import CancellationToken
from autogen_core.models import RequestUsage

from coderoom._util.html import lines_html, shown_html
from coderoom._util.text import encodable
from coderoom.agents.checks import Check, verdict_on
from coderoom.configs import default_model, find_source, make_model
from coderoom.errors import BudgetExceeded, CodeRoomError, JournalError, MissingDependencyError, SandboxUnavailable
from coderoom.judge import Judge, Verdict
from coderoom.models.budgets import Budget
from coderoom.models.prices import cost_of, priced_as
from coderoom.models.services import is_transient
from coderoom.models.watching import watch_client
from coderoom.runs.durable import Run
from coderoom.runs.items import Item
from coderoom.runs.journal import Journal, Step
from coderoom.runs.record import FAILED, UNFINISHED, RunRecord
from coderoom.runs.team_run import WORKSPACE_VARIABLE, PreparedRun, RunRequest
from coderoom.steps import MODEL, StepObserver, observing

PASSED, NOT_PASSED, UNCHECKED, ERRORED = "passed", "failed", "unchecked", "errored"
OWNER: Final = "the batch"
"""Whose the budget of all items is, in words."""
_log = logging.getLogger("coderoom.runs")
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 60.0


@dataclass(frozen=True)
class Result:
    """The result of one run of an item.

    Attributes:
        id: The item.
        repeat: Which of its runs, counted from 1.
        status: `passed`: its check has passed. `failed`: the check has not, or the run has ended badly. `unchecked`:
            the run has ended well, and there is no check. `errored`: the service or the sandbox failed, which says
            nothing about the item.
        outcome: How the run ended.
        answer: Its final answer.
        why: Why it has not passed; empty if it has.
        prompt_tokens: The tokens of its prompts.
        completion_tokens: The tokens of its completions.
        cost_usd: What they cost; `None` if that is not known.
        runs_of_code: How often code ran.
        turns: The turns of the team.
        run: The run in the batch's journal.
        seconds: How long it took.
        digest: Tells whether the item has changed since.
        model_calls: The requests to models that were answered, those of a reviewer too.
        checked_by: What decided: `code`, `tests`, `stdout`, `expected` or `reviewer`; empty if nothing was checked.
        can_be_fooled: Whether the answer's code ran in the process that judged it.
        tags: The tags of the item.
    """

    id: str
    repeat: int
    status: str
    outcome: str
    answer: str
    why: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    runs_of_code: int
    turns: int
    run: str
    seconds: float
    digest: str = ""
    model_calls: int = 0
    checked_by: str = "unknown"  # In files of earlier versions.
    can_be_fooled: bool = False
    tags: Sequence[str] = ()

    def _repr_html_(self) -> str:
        tokens = self.prompt_tokens + self.completion_tokens
        facts = {
            "": self.status,
            "run": self.repeat if self.repeat > 1 else "",
            "by": self.checked_by,
            "took": f"{self.seconds:.1f} s",
            "tokens": f"{tokens:,}" if tokens else "",
        }
        success = None if self.status == UNCHECKED else self.status == PASSED
        return shown_html(self.id, success, facts, lines_html(self.why), lines_html(self.answer, "answer"))

    @classmethod
    def of_failure(cls, item: str, repeat: int, why: str, run: str) -> Self:
        """The result of a run that says nothing about its item."""
        return cls(item, repeat, ERRORED, FAILED, "", why, 0, 0, None, 0, 0, run, 0.0, checked_by="")


@dataclass(frozen=True)
class Setup:
    """What the runs of all items have in common: a request without its task, and the retries and budget of each run."""

    request: RunRequest
    retries: int
    budget: Budget | None

    @property
    def has_workspace(self) -> bool:
        """Whether the team works in a folder that the batch chooses."""
        return find_source(self.request.team).refers_to(WORKSPACE_VARIABLE)

    def prepare(self, task: str, files: Sequence[Path], workspace: Path) -> PreparedRun:
        """Make a team for one run."""
        chosen = workspace if self.has_workspace else None
        return replace(self.request, task=task, files=files, workspace=chosen).prepare()


@dataclass
class ItemRunner:
    """Runs items in this process.

    Attributes:
        setup: What all runs have in common.
        folder_of: The workspace of a run, by its name.
        journal: Where the runs are kept.
        observers: Refuse steps that the budget of all items does not cover, and delay requests to models.
        stopped: Why no more items may run; empty if they may.
        room: How many runs there are at a time, unless the user says another number.
        walls: What isolates the code, if that is only known now.
    """

    setup: Setup
    folder_of: Callable[[str], Path]
    journal: Journal
    observers: Sequence[StepObserver]
    stopped: str = ""
    room: ClassVar[int] = 4
    walls: ClassVar[Set[str]] = frozenset()
    _tokens: set[CancellationToken] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._judge = Judge(
            wall=self.setup.request.wall or "auto", server=self.setup.request.server, sessions=self.room
        )

    def stop(self, why: str) -> None:
        """End the runs that go on."""
        self.stopped = self.stopped or why
        for token in self._tokens:
            token.cancel()

    async def close(self) -> None:
        """End the sandbox of the checks."""
        await self._judge.close()

    async def run(self, item: Item, repeat: int) -> Result | None:
        """Run an item, again if the service or the sandbox fails.

        Returns:
            The result; `None` if it was stopped.

        Raises:
            JournalError: The journal cannot be written.
            MissingDependencyError: The team needs a package that is missing.
        """
        wait = _FIRST_WAIT
        for left in range(self.setup.retries, -1, -1):
            if self.stopped:
                return None
            _log.debug("%s, run %d: begins on %s", item.id, repeat, platform.node())
            result, may_pass = await self._run(item, repeat)
            if result is None:
                return None
            _log.debug("%s, run %d: %s after %.1f s %s", item.id, repeat, result.status, result.seconds, result.why)
            answer, why = encodable(result.answer), encodable(result.why)
            result = replace(result, answer=answer, why=why, digest=item.digest, tags=item.tags)
            if result.status != ERRORED or not left or not may_pass:
                return result
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        raise AssertionError("unreachable")

    async def _run(self, item: Item, repeat: int) -> tuple[Result | None, bool]:
        """The result of a run, `None` if it was stopped, and whether another one may fare better."""
        name = name_of(item.id, repeat)
        workspace = self.folder_of(name)
        try:
            facts, record = await self._facts_of(item, name, workspace)
            if facts["outcome"] == "cancelled":
                return None, False
            if record is not None and record.reached is not None and record.reached.owner == OWNER:
                self.stopped = record.limit
                return None, False
            result = await self._judged(item, repeat, name, workspace, facts)
            return result, record is not None and record.may_pass
        except BudgetExceeded:
            return None, False
        except (JournalError, MissingDependencyError):
            raise  # No other item could be run, or its run kept.
        except CodeRoomError as error:
            result = Result.of_failure(item.id, repeat, f"{type(error).__name__}: {error}", name)
            return result, isinstance(error, SandboxUnavailable) or is_transient(error)

    async def _facts_of(self, item: Item, name: str, workspace: Path) -> tuple[Mapping[str, Any], RunRecord | None]:
        """The facts of the item's run, which is in the journal already, or goes on, or begins; then its record too."""
        known = self.journal.runs(run=name)
        if known and known[0].task != item.task and known[0].state != "running":  # The items have changed.
            self.journal.remove([name])
            known = []
        if known and known[0].outcome not in (None, FAILED, UNFINISHED, "cancelled"):
            return known[0].facts, None
        if known:
            run = Run.resume(name, self.journal)
        else:
            prepared = self.setup.prepare(item.task, item.files, workspace)
            run = Run.begin(prepared, self.journal, command="batch", budget=self.setup.budget, run=name)
        token = CancellationToken()
        self._tokens.add(token)
        try:
            with observing(*self.observers):
                record = await run.go(lambda message: None, token=token)
        finally:
            self._tokens.discard(token)
        return record.facts(), record

    async def _judged(self, item: Item, repeat: int, name: str, workspace: Path, facts: Mapping[str, Any]) -> Result:
        outcome, answer = str(facts["outcome"]), str(facts["answer"])
        why = str(facts["error"] or facts["limit"] or "")
        status = ERRORED if outcome == FAILED else NOT_PASSED
        used, reviewing, checked_by, fooled = RequestUsage(0, 0), 0.0, "", False
        if outcome != FAILED and item.check is not None:
            checked_by = item.check.kind
            ended, (verdict, used, reviewing) = why, await self._check(item.check, item, answer, workspace)
            status, why, fooled = PASSED if verdict.passed else NOT_PASSED, verdict.why, verdict.can_be_fooled
            number = self.journal.last_step(name) + 1
            result = {"passed": verdict.passed, "why": why, "can_be_fooled": fooled}
            self.journal.add(name, Step(number, "verdict", "", "", time.time(), 0.0, None, result))
            why = f"{why}; {ended}" if why and ended else why
        elif outcome in ("ok", "no_code") and not answer.strip() and not facts["attempts"]:
            why = why or "there is no answer, and no code ran"
        elif outcome in ("ok", "no_code"):
            status = UNCHECKED
        else:
            why = why or f"the run ended with {outcome!r}"
        usage = facts["usage"]
        return Result(
            item.id,
            repeat,
            status,
            outcome,
            answer,
            why,
            usage["prompt_tokens"] + used.prompt_tokens,
            usage["completion_tokens"] + used.completion_tokens,
            None if facts["cost_usd"] is None else facts["cost_usd"] + reviewing,
            facts["attempts"],
            facts["turns"],
            name,
            facts["seconds"],
            model_calls=self.journal.count(name, MODEL) + (checked_by == "reviewer"),
            checked_by=checked_by,
            can_be_fooled=fooled,
        )

    async def _check(
        self, check: Check, item: Item, answer: str, workspace: Path
    ) -> tuple[Verdict, RequestUsage, float]:
        """The verdict on an answer, and the tokens and the price of a reviewer."""
        model = None if check.reviewer is None else make_model(self.setup.request.model or default_model())
        if model is not None:
            watch_client(model)
        try:
            with observing(*self.observers):
                verdict = await verdict_on(
                    check,
                    item.task,
                    answer,
                    item.variables,
                    workspace=made(workspace),
                    judge=self._judge,
                    model=model,
                )
            used = RequestUsage(0, 0) if model is None else model.total_usage()
            name = "" if model is None else priced_as(model)
            return verdict, used, cost_of(name, used.prompt_tokens, used.completion_tokens) or 0.0
        except BudgetExceeded as error:
            self.stopped = str(error)
            raise
        finally:
            if model is not None:
                await model.close()


def name_of(item: str, repeat: int) -> str:
    """The name of a run, which is also that of a folder and a page."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", item)[:60].lstrip(".-")
    exact = plain == item
    return f"{plain}{'' if exact else '-' + hashlib.sha256(item.encode()).hexdigest()[:24]}-{repeat}"


def made(folder: Path) -> Path:
    """A folder, which is created if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder
