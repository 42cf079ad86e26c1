"""Runs one task with one team: loads the team, copies files into its workspace, and records the run."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken

from coderoom._util.autogen import (
    agents_of,
    closers_of,
    condition_of,
    executor_of,
    model_client_of,
    work_dir_of,
)
from coderoom._util.tasks import aside, await_with_token
from coderoom.agents import HumanApprovedAgent, ReviewerAgent
from coderoom.agents.base import CodingAgent
from coderoom.agents.replay import keeps_cut_code
from coderoom.approval import ChainApproval, HumanApproval
from coderoom.configs import Source, find_source, load_team, secrets_of
from coderoom.errors import (
    AgentError,
    BudgetExceeded,
    CodeRoomError,
    JournalError,
    RequestError,
    SandboxUnavailable,
)
from coderoom.executors import adopt_orphans, end_descendants
from coderoom.executors.base import SandboxedExecutor
from coderoom.models.budgets import Budget, Spending, make_budget
from coderoom.models.names import model_name_of
from coderoom.models.prices import price_table, priced_as
from coderoom.models.services import MODEL_VARIABLE, absolute_model, in_words, is_model_text
from coderoom.runs.controls import stoppable
from coderoom.runs.exec_view import NO_CODE_IS_RUN, NO_WALL
from coderoom.runs.interrupts import cancel_on_signal
from coderoom.runs.journal import FILES_IN, HOSTS_IN
from coderoom.runs.observers import run_span, tracers
from coderoom.runs.record import RunFacts, RunRecord, watching
from coderoom.runs.review import Ask, review
from coderoom.runs.run_log import RunLog
from coderoom.runs.words import Hearing
from coderoom.runs.workspace import FileChanges, check_writable, copy_in, usable_folder
from coderoom.sandbox import Sandbox
from coderoom.sandbox.config import OBSERVE
from coderoom.steps import StepObserver, observing
from coderoom.teams import BudgetTermination, conditions_of

WORKSPACE_VARIABLE = "CODEROOM_WORKSPACE"
"""Team files refer to this variable for the workspace."""
WALL_VARIABLE = "CODEROOM_WALL"
"""Team files refer to this variable for the wall."""
DEFAULT_WORKSPACE = "coderoom-workspace"


@runtime_checkable
class HasSandbox(Protocol):
    """A `SandboxCodeExecutor`, or an agent with a sandbox of its own, such as a `CodeGeneratorAgent`."""

    @property
    def wall(self) -> str:
        """The name of the wall; `auto` until the sandbox has started."""

    async def start(self) -> None:
        """Start the sandbox."""


@dataclass(frozen=True)
class RunRequest:
    """What is asked of a team. The journal keeps it, and a resumed run is prepared from it again.

    Attributes:
        team: A team file, or the name of a shipped team, or a file that was read before.
        task: What to do.
        model: The model that replaces the team's models.
        workspace: The folder that the code works in, for a team file that refers to `CODEROOM_WORKSPACE`.
        wall: The wall, for a team file that refers to `CODEROOM_WALL`.
        files: Files to copy into the workspace.
        trust: Namespaces of other packages whose components may be loaded.
        max_turns: The team's turns, in place of those of its file.
        network: Whether the code may use the network, or the hosts that it may reach, in place of what the team's
            file says.
        timeout: The seconds that code may run, in place of those of the team's file.
        packages: Packages for the code, besides those of the team's file.
        allowed_hosts: Hosts that the code may reach, besides those of the team's file.
        credentials: What the proxy adds to requests to a host, besides those of the team's file.
        local_network: Whether the code may run servers, in place of what the team's file says.
        workspace_mode: With `overlay`, the workspace stays as it is, in place of what the team's file says.
        server: The URL of a server that runs the code, in place of where the team's file says.
        budgets: Limits for agents, by their names: fields of a `Budget`, in place of those of the team's file.
        more_tasks: Whether tasks follow, so that the first one may be empty.
    """

    team: str | Source
    task: str
    model: str | None = None
    workspace: str | Path | None = None
    wall: str | None = None
    files: Sequence[Path] = ()
    trust: Sequence[str] = ()
    max_turns: int | None = None
    network: bool | Sequence[str] | None = None
    timeout: float | None = None
    packages: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    credentials: Mapping[str, Mapping[str, Any]] | None = None
    local_network: bool | None = None
    server: str | None = None
    workspace_mode: Literal["direct", "overlay"] | None = None
    budgets: Mapping[str, Mapping[str, float]] | None = None
    more_tasks: bool = False

    @property
    def kept(self) -> dict[str, Any]:
        """What the journal keeps besides the team's file and the task, as plain data."""
        not_kept = ("team", "task", "files", "more_tasks")
        kept = {name: value for name, value in vars(self).items() if name not in not_kept}
        # What names no variable is the secret itself.
        named = {host: each for host, each in (self.credentials or {}).items() if "${" in each["value"]}
        return {**kept, "credentials": named}

    def with_files(self, task: str) -> str:
        """A task that names the files that are copied into the workspace, and the hosts; empty if there is no task.

        The messages to models in a team's file know nothing of them.
        """
        for words, names in ((FILES_IN, [file.name for file in self.files]), (HOSTS_IN, self._hosts)):
            if task and names and words not in task:
                task += f"{words}{', '.join(names)}"
        return task

    @property
    def _hosts(self) -> list[str]:
        named = () if isinstance(self.network, bool | str | None) else self.network
        hosts = (*named, *self.allowed_hosts, *(self.credentials or ()))
        return [host for host in hosts if host != OBSERVE]

    def prepare(self) -> PreparedRun:
        """Load the team and copy the files into its workspace.

        Raises:
            ConfigError: The team file has mistakes.
            RequestError: A file or team does not exist, or an option does not fit the team.
            MissingDependencyError: The model needs a key or a package that is missing.
        """
        if not self.task.strip() and not self.more_tasks:
            raise RequestError("The task is empty. Write what the team must do.")
        named = self.workspace or os.environ.get(WORKSPACE_VARIABLE)
        own = Path(DEFAULT_WORKSPACE, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
        folder = usable_folder(Path(named or own))  # No run finds the files of another.
        env = {**os.environ, WORKSPACE_VARIABLE: str(folder)}
        source = find_source(self.team)
        if self.wall is not None:
            env[WALL_VARIABLE] = self.wall
        if self.wall is not None or (env.get(WALL_VARIABLE) and source.refers_to(WALL_VARIABLE)):
            Sandbox(env[WALL_VARIABLE])  # Rejects an unknown name.
        team = load_team(
            source,
            self.model,
            trust=self.trust,
            env=env,
            max_turns=self.max_turns,
            network=self.network,
            timeout=self.timeout,
            packages=self.packages,
            allowed_hosts=self.allowed_hosts,
            credentials=self.credentials,
            local_network=self.local_network,
            server=self.server,
            workspace_mode=self.workspace_mode,
            agents=self.budgets or (),
        )
        executors = executors_of(team)
        ours = [one for one in executors if isinstance(one, HasSandbox)]
        if self.wall is not None and not any(one.wall == self.wall for one in ours):
            raise RequestError(
                f"The team {source.name!r} does not let --wall choose the wall: that needs a SandboxCodeExecutor or a "
                f"CodeGeneratorAgent with 'wall: ${{{WALL_VARIABLE}:-auto}}'."
            )
        used = any(folder_of(executor) == folder for executor in executors)
        if (self.workspace is not None or self.files) and not used:
            raise RequestError(
                f"The team {source.name!r} does not let us choose its folder: --workspace and --file need an executor "
                f"with 'work_dir: ${{{WORKSPACE_VARIABLE}}}'."
            )
        if used and self.workspace_mode != "overlay":
            check_writable(folder)
        price_table()  # Refuses mistakes in the user's prices before the run.
        spendings = _limit_agents(team, self.budgets or {})
        replaced = copy_in(self.files, folder)
        default = os.environ.get(MODEL_VARIABLE, "")
        model = self.model or (default if is_model_text(default) else None)
        agents = list(agents_of(team, hidden=True))
        clients = {agent.name: model_client_of(agent) for agent in agents}
        record = RunRecord(
            team=source.name,
            task=self.with_files(self.task),
            model=model,
            models={name: model_name_of(client) for name, client in clients.items() if client is not None},
            priced_as={name: priced_as(client) for name, client in clients.items() if client is not None},
            isolation=isolation_of(executors),
            asks=asking_agents_of(team),
            notices=replaced,
        )
        workspace = str(folder) if used else None
        lasting = None if model is None else absolute_model(model)
        known = replace(self, team=source, model=lasting, workspace=workspace, trust=list(self.trust))
        return PreparedRun(team, record, known, spendings, None if named else folder)


@dataclass(frozen=True)
class PreparedRun:
    """A team, ready to run.

    Attributes:
        team: The team.
        record: The record to fill in.
        request: What was asked, with the file that was read and the folder and model that were chosen.
        spendings: What agents have used that take no budget themselves.
        own_folder: The new folder that the code works in, if none was named.
    """

    team: Team
    record: RunRecord
    request: RunRequest
    spendings: Sequence[StepObserver] = ()
    own_folder: Path | None = None

    def remove_empty_folder(self) -> None:
        """Remove the run's own folder if nothing was written to it. Called when the team is closed."""
        if self.own_folder is not None:
            with suppress(OSError):  # Something is in it, or in the folder that it shares with other runs.
                self.own_folder.rmdir()
                self.own_folder.parent.rmdir()


def prepare_run(team: str | Source, task: str, **options: Any) -> PreparedRun:
    """Load a team and copy files into its workspace.

    Args:
        team: A team file, or the name of a shipped team, or a file that was read before.
        task: What to do.
        options: Further fields of a `RunRequest`, whose `prepare` says what is raised.
    """
    return RunRequest(team, task, **options).prepare()


def _limit_agents(team: Team, budgets: Mapping[str, Mapping[str, float]]) -> list[Spending]:
    """Limit agents; return the budgets of those that take none themselves, such as AutoGen's."""
    agents = {agent.name: getattr(agent, "agent", agent) for agent in agents_of(team, hidden=True)}
    others = []
    for name, limits in budgets.items():
        agent: Any = agents.get(name)
        if hasattr(agent, "limit"):
            agent.limit(make_budget({**dict(agent.budget or {}), **limits}))
        elif budget := make_budget(limits):
            others.append(Spending(budget, f"agent {name!r}", name))
    return others


Watcher = Callable[[BaseAgentEvent | BaseChatMessage], None]


async def run_team(
    team: Team,
    record: RunRecord,
    watch: Watcher,
    *,
    begin: Callable[[], None] = lambda: None,
    owns_process: bool = False,
    budget: Budget | None = None,
    close: bool = True,
    log: RunLog | None = None,
    observers: Sequence[StepObserver] = (),
    token: CancellationToken | None = None,
    ask: Ask | None = None,
) -> RunRecord:
    """Run `team` on the task of `record` and fill the record in.

    Args:
        team: The team; this function starts and stops what it owns.
        record: The record to fill in.
        watch: Called with each message, including streaming chunks.
        begin: Called when the sandboxes have started and `record.isolation` is known, before any request to a model.
        owns_process: Whether the process does nothing else. Then no child process outlives the run, whatever executor
            started it, and a signal ends the process even if an agent does not end.
        budget: What the run may use. Its time also ends a request or code in the middle.
        close: Whether to close the team at the end. An open one goes on with its conversation and its sessions, also
            after a cancellation.
        log: The run's part of the journal; `None`: it is not kept.
        observers: Who else sees the steps of the run, such as a recorder.
        token: Ends the run cleanly, so that it is recorded as `cancelled`; `None`: SIGINT and SIGTERM do.
        ask: Asks whether changes that are kept apart from the workspace are written into it; `None`: they are not.

    Returns:
        The same record.

    Raises:
        SandboxUnavailable: A sandbox broke, or no wall works.
        RequestError: Code cannot run in the folder that the team names.
        MissingDependencyError: A package to preload is not installed.
        JournalError: The journal cannot be written, and the run requires it.
    """
    started = time.monotonic()
    log = RunLog(None) if log is None else log
    log.begin_task(record.task)

    def show(message: BaseAgentEvent | BaseChatMessage) -> None:
        if log.add(message):  # Else it is known from before the run was resumed.
            watch(message)

    if owns_process:
        adopt_orphans()
    executors = executors_of(team)
    record.runs_code = bool(executors)
    record.has_reviewer = any(isinstance(agent, ReviewerAgent) for agent in agents_of(team))
    folders = [folder for executor in executors if (folder := folder_of(executor))]
    changes = await asyncio.to_thread(FileChanges, folders, log.path)
    by_signal = token is None
    token = token or CancellationToken()
    spending = None if budget is None else Spending(budget)
    try:
        with (
            run_span(record.team, record.run) as span,
            _keeping_cut_code(not close),
            watching(team),
            cancel_on_signal(token, owns_process=owns_process) if by_signal else nullcontext(),
            observing(
                RunFacts(record, show),
                *_observers(team, log, spending),
                *observers,
                Hearing(log, lambda message: show(record.add(message))),  # Once the journal has them.
            ),
        ):
            with _noting_failure(record, token):
                if spending is not None:
                    for model in record.priced_as.values():
                        spending.check_price(model)
                async with stoppable(log, token.cancel):
                    await await_with_token(start_sandboxes(executors), token)
                    record.isolation = isolation_of(executors)
                    begin()
                    await _run(team, record, log, watch, token, spending)
                span.set_attribute("coderoom.outcome", record.outcome)
            if not record.cancelled and (close or ask is not None):  # What was changed before a failure, too.
                apart = [each for each in executors if getattr(each, "workspace_mode", "direct") == "overlay"]
                # A limit of time has cancelled the other token.
                token = CancellationToken() if token.is_cancelled() else token
                with _noting_failure(record, token):
                    for agent in agents_of(team, hidden=True) if apart else ():
                        if isinstance(agent, CodingAgent):
                            await agent.catch_up(token)
                    record.reviewed = await await_with_token(review(apart, ask), token)
    finally:
        record.lock = next((lock for each in executors if (lock := getattr(each, "lock", ""))), "")
        for agent in agents_of(team, hidden=True):
            if (event := getattr(agent, "interrupted", None)) is not None:
                show(record.add(event))
        record.seconds = time.monotonic() - started
        try:
            record.files = await asyncio.to_thread(changes.written)
        finally:
            if close:  # Else words are the next task.
                log.take_said()
                record.notices += map(_UNTOLD.format, log.words_waiting)
            log.end(record)
            if close:
                await close_team(team)
            if owns_process:
                end_descendants()
    return record


async def try_out(team: Team) -> str:
    """Start what the code of a team runs in, and close the team: what is missing is known before there is a task.

    Returns:
        What isolates its code.

    Raises:
        SandboxUnavailable: A sandbox broke, or no wall works.
        MissingDependencyError: A package to preload is not installed.
    """
    executors = executors_of(team)
    try:
        await start_sandboxes(executors)
        return isolation_of(executors)
    finally:
        await close_team(team)


async def close_team(team: Team) -> None:
    """Close everything that belongs to a team."""
    for close in closers_of(team):
        with suppress(Exception):
            await close()


@contextmanager
def _keeping_cut_code(keeps: bool) -> Iterator[None]:
    before = keeps_cut_code.set(keeps)
    try:
        yield
    finally:
        keeps_cut_code.reset(before)


@contextmanager
def _noting_failure(record: RunRecord, token: CancellationToken) -> Iterator[None]:
    """Record a cancellation or a failure of the team; other errors are recorded and raised."""
    try:
        yield
    except asyncio.CancelledError:
        record.cancelled = record.reached is None
        if not token.is_cancelled():
            raise
    except AgentError as error:
        cause = _root(error)
        if isinstance(cause, SandboxUnavailable | JournalError):
            record.error = str(cause)
            raise cause from error
        if isinstance(cause, BudgetExceeded):
            record.reached = cause
            return
        record.error, record.exception, record.cause = in_words(f"Agent {error.agent!r}", cause), error, cause
    except CodeRoomError as error:
        record.error = str(error)
        raise
    except Exception as error:
        # AutoGen's teams make one text of their agents' exceptions; the step that has failed had the exception.
        if isinstance(record.cause, BudgetExceeded):
            record.reached = record.cause
            return
        record.error, record.exception = in_words("The team", error), error
    except BaseException:  # The reader of the output is gone, as in `coderoom run ... | head`.
        record.cancelled = True
        raise


async def start_sandboxes(executors: Sequence[Any]) -> None:
    """Start the sandboxes among executors. Others start when there is code."""
    for executor in executors:
        if isinstance(executor, HasSandbox):
            await executor.start()


async def _run(
    team: Team, record: RunRecord, log: RunLog, watch: Watcher, token: CancellationToken, spending: Spending | None
) -> None:
    def stop() -> None:
        assert spending is not None
        record.reached = spending.exceeded("seconds")
        token.cancel()

    seconds = None
    if spending is not None:
        spending.reset()  # Not the start of the sandboxes.
        seconds = spending.budget.seconds
    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, stop)
    stream: Any = team.run_stream(task=record.task, cancellation_token=token)
    try:
        async for item in stream:
            if isinstance(item, TaskResult):
                record.stop_reason = item.stop_reason
            else:
                message = record.add(item)
                if await aside(log.add, message):  # Else it is known from before the run was resumed.
                    watch(message)
    finally:
        if timer is not None:
            timer.cancel()
        await stream.aclose()


def _observers(team: Any, log: RunLog, spending: Spending | None) -> list[StepObserver]:
    """Who sees the steps of a run: the journal, its budget, and that of the team."""
    conditions = [each for each in conditions_of(condition_of(team)) if isinstance(each, BudgetTermination)]
    for condition in conditions:
        condition.is_checked = True
        condition.spending.reset()
    ours = [log] if spending is None else [log, spending]
    return [*ours, *(condition.spending for condition in conditions), *tracers(secrets_of(team))]


def _root(error: BaseException) -> BaseException:
    while isinstance(error, AgentError) and error.__cause__ is not None:
        error = error.__cause__
    return error


_UNTOLD = (
    "Nobody has got what you said last, since the task had ended: {!r}. `coderoom run TEAM TASK --continue` goes on."
)
_ISOLATING = frozenset({"ACADynamicSessionsCodeExecutor", "DockerCommandLineCodeExecutor", "DockerJupyterCodeExecutor"})


def executors_of(team: Any) -> list[Any]:
    """The executors of a team's agents, those of nested teams too, and agents that run code without one; each once."""
    found = [agent if isinstance(agent, HasSandbox) else executor_of(agent) for agent in agents_of(team)]
    return list({id(executor): executor for executor in found if executor is not None}.values())


def coding_agents_of(team: Any) -> list[CodingAgent[Any]]:
    """The agents of a team that write or run code in an executor, without what is around them."""
    agents = (getattr(agent, "agent", agent) for agent in agents_of(team))
    return [agent for agent in agents if isinstance(agent, CodingAgent)]


def asking_agents_of(team: Any) -> frozenset[str]:
    """The names of the agents of a team that may ask a person before their code runs."""
    agents = agents_of(team, hidden=True)
    return frozenset(
        agent.name
        for agent in agents
        if isinstance(agent, HumanApprovedAgent) or (isinstance(agent, CodingAgent) and _asks_person(agent.approval))
    )


def _asks_person(approval: Any) -> bool:
    if isinstance(approval, ChainApproval):
        return any(map(_asks_person, approval.members))
    return isinstance(approval, HumanApproval)


def hand_over_sessions(old: Any, new: Any) -> bool:
    """Have the executors of a new team go on with the sessions of an old one, if their settings are equal.

    Returns:
        Whether all of the new team's do.
    """
    pairs = zip_longest(executors_of(old), executors_of(new))
    taken = [isinstance(other, SandboxedExecutor) and other.take_over(one) for one, other in pairs]
    return all(taken)


def folder_of(executor: Any) -> Path | None:
    """The folder on this machine that an executor works in by its configuration, or `None`."""
    folder = work_dir_of(executor)
    return Path(folder).resolve() if isinstance(folder, str | Path) else None


def isolation_of(executors: Sequence[Any]) -> str:
    """The names of what isolates the code of these executors from this machine; `none` if one of them does not.

    A sandbox with the wall `auto` says so until it has started.
    """
    if not executors:
        return NO_CODE_IS_RUN
    names = set()
    for executor in executors:
        # By name, because Docker's and Azure's packages may not be imported. Unknown executors do not isolate.
        kinds = (kind.__name__ for kind in type(executor).__mro__ if kind.__name__ in _ISOLATING)
        names.add(executor.wall if isinstance(executor, HasSandbox) else next(kinds, NO_WALL))
    return NO_WALL if NO_WALL in names else ", ".join(sorted(names))
