"""One task for one team: loads the team, prepares its workspace and runs it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken

from coderoom._util.advice import in_words
from coderoom._util.autogen import model_client_of, participants_of
from coderoom._util.calls import await_with_token
from coderoom.agents import CodeGeneratorAgent
from coderoom.configs import load_team
from coderoom.errors import AgentError, CodeRoomError, RequestError, SandboxUnavailable
from coderoom.executors import SandboxCodeExecutor, adopt_orphans, end_descendants
from coderoom.runs.interrupts import cancel_on_signal
from coderoom.runs.record import RunRecord
from coderoom.runs.workspace import FileChanges, copy_in, executors_of, folder_of, isolation_of
from coderoom.sandbox import Sandbox

__all__ = ["DEFAULT_WORKSPACE", "WALL_VARIABLE", "WORKSPACE_VARIABLE", "PreparedRun", "prepare_run", "run_team"]


WORKSPACE_VARIABLE = "CODEROOM_WORKSPACE"
"""Team files refer to this variable for the workspace."""
WALL_VARIABLE = "CODEROOM_WALL"
"""Team files refer to this variable for the wall."""
DEFAULT_WORKSPACE = "coderoom-workspace"


@dataclass(frozen=True)
class PreparedRun:
    """A team, ready to run.

    Attributes:
        team: The team.
        record: The record to fill in.
    """

    team: Team
    record: RunRecord


def prepare_run(
    team: str,
    task: str,
    *,
    model: str | None = None,
    workspace: Path | None = None,
    wall: str | None = None,
    files: Sequence[Path] = (),
    trust: Sequence[str] = (),
) -> PreparedRun:
    """Load a team and copy files into its workspace.

    Args:
        team: A team file, or the name of a shipped team.
        task: What to do.
        model: The model that replaces the team's models.
        workspace: The folder that the code works in, for a team file that refers to `CODEROOM_WORKSPACE`.
        wall: The wall, for a team file that refers to `CODEROOM_WALL`.
        files: Files to copy into the workspace.
        trust: Namespaces of other packages whose components may be loaded.

    Raises:
        ConfigError: The team file has mistakes.
        RequestError: A file or team does not exist, or an option does not fit the team.
        MissingDependencyError: The model needs a key or a package that is missing.
    """
    if not task.strip():
        raise RequestError("The task is empty: say what to do.")
    folder = _folder(workspace or Path(DEFAULT_WORKSPACE))
    env = {**os.environ, WORKSPACE_VARIABLE: str(folder)}
    if wall is not None:
        Sandbox(wall)  # Rejects an unknown name.
        env[WALL_VARIABLE] = wall
    loaded = load_team(team, model=model, trust=trust, env=env)
    executors = executors_of(loaded)
    ours = [one for one in executors if isinstance(one, SandboxCodeExecutor | CodeGeneratorAgent)]
    if wall is not None and not any(one.wall == wall for one in ours):
        raise RequestError(
            f"The team {team!r} does not leave the wall to us: --wall needs a SandboxCodeExecutor or a "
            f"CodeGeneratorAgent with 'wall: ${{{WALL_VARIABLE}:-auto}}'."
        )
    used = any(folder_of(executor) == folder for executor in executors)
    if (workspace is not None or files) and not used:
        raise RequestError(
            f"The team {team!r} does not work in a folder of our choice: --workspace and --file need an executor with "
            f"'work_dir: ${{{WORKSPACE_VARIABLE}}}'."
        )
    names = copy_in(files, folder)
    if names:
        task = f"{task}\n\nFiles in the working folder: {', '.join(names)}"
    record = RunRecord(team=team, task=task, model=model, isolation=isolation_of(executors))
    return PreparedRun(loaded, record)


def _folder(workspace: Path) -> Path:
    try:
        folder = workspace.resolve()
        usable = folder.is_dir() or not folder.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {error}.") from error
    if not usable:
        raise RequestError(f"The workspace {str(folder)!r} is not a folder.")
    return folder


Watcher = Callable[[BaseAgentEvent | BaseChatMessage], None]


async def run_team(
    team: Team,
    record: RunRecord,
    watch: Watcher,
    *,
    begin: Callable[[], None] = lambda: None,
    owns_process: bool = False,
) -> RunRecord:
    """Run `team` on the task of `record` and fill the record in.

    SIGINT and SIGTERM end the run cleanly, and it is recorded as `cancelled`.

    Args:
        team: The team; what it owns is started and stopped here.
        record: The record to fill in.
        watch: Called with each message, including streaming chunks.
        begin: Called when the sandboxes have started and `record.isolation` is known, before any request to a model.
        owns_process: Whether the process does nothing else. Then no child process outlives the run, whatever executor
            started it, and a signal ends the process even if an agent does not end.

    Returns:
        The same record.

    Raises:
        SandboxUnavailable: A sandbox broke, or no wall works.
        RequestError: Code cannot run in the folder that the team names.
        MissingDependencyError: A package to preload is not installed.
    """
    started = time.monotonic()
    if owns_process:
        adopt_orphans()
    executors = executors_of(team)
    record.runs_code = bool(executors)
    changes = FileChanges([folder for executor in executors if (folder := folder_of(executor))])
    token = CancellationToken()
    try:
        with _noting_failure(record, token), cancel_on_signal(token, owns_process=owns_process):
            await await_with_token(_start(executors), token)
            record.isolation = isolation_of(executors)
            begin()
            await _run(team, record, watch, token)
    finally:
        record.seconds = time.monotonic() - started
        record.files = changes.written()
        with suppress(Exception):
            await _close(team)
        if owns_process:
            end_descendants()
    return record


@contextmanager
def _noting_failure(record: RunRecord, token: CancellationToken) -> Iterator[None]:
    """Record a cancellation or a failure of the team; other errors are raised."""
    try:
        yield
    except asyncio.CancelledError:
        if not token.is_cancelled():
            raise
        record.cancelled = True
    except AgentError as error:
        cause = _root(error)
        if isinstance(cause, SandboxUnavailable):
            raise cause from error
        record.error, record.exception = in_words(f"Agent {error.agent!r}", cause), error
    except CodeRoomError:
        raise
    except Exception as error:
        # AutoGen's own teams put the whole traceback into the message.
        record.error, record.exception = in_words("The team", error).partition("\nTraceback:")[0], error


async def _start(executors: Sequence[Any]) -> None:
    """Start the sandboxes. Other executors start when there is code."""
    for executor in executors:
        if isinstance(executor, SandboxCodeExecutor | CodeGeneratorAgent):
            await executor.start()


async def _run(team: Team, record: RunRecord, watch: Watcher, token: CancellationToken) -> None:
    stream: Any = team.run_stream(task=record.task, cancellation_token=token)
    try:
        async for item in stream:
            if isinstance(item, TaskResult):
                record.stop_reason = item.stop_reason
            else:
                record.add(item)
                watch(item)
    finally:
        await stream.aclose()


async def _close(team: Any) -> None:
    """Close the team and its model clients, which nobody else uses."""
    close = getattr(team, "close", None)
    if callable(close):
        await close()
    for participant in participants_of(team):
        if close is None:
            await participant.close()
        client = model_client_of(participant)
        if client is not None:
            await client.close()


def _root(error: BaseException) -> BaseException:
    while isinstance(error, AgentError) and error.__cause__ is not None:
        error = error.__cause__
    return error
