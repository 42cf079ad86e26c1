"""Running a team on a task, once, from start to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken

from coderoom._util.advice import in_words
from coderoom._util.components import linked
from coderoom.agents import CodeGeneratorAgent
from coderoom.errors import AgentError, CodeRoomError, SandboxUnavailable
from coderoom.executors import SandboxCodeExecutor, adopt_orphans, end_descendants
from coderoom.runs.record import RunRecord
from coderoom.runs.signals import cancel_on_signal
from coderoom.runs.workspace import FileChanges, executors_of, folder_of, isolation_of

__all__ = ["run_team"]

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

    Ctrl-C (SIGINT) and SIGTERM end the run cleanly and are noted as `cancelled`.

    Args:
        team: The team; what it owns is started and stopped here.
        record: What is known beforehand.
        watch: Called with each message as it comes, streaming chunks too.
        begin: Called when the sandboxes stand and `record.isolation` is known, before anything is asked of a model.
        owns_process: Whether the run is all that this process is for. Then nothing below it outlives the run, whatever
            executor started it, and a signal ends the process even if an agent does not end.

    Returns:
        The same record.

    Raises:
        SandboxUnavailable: If the place where code runs broke, or cannot be had at all.
        RequestError: If the team asks for a place where code cannot run.
        MissingDependencyError: If what is to be imported there is not installed.
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
            await linked(_start(executors), token)
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
    """Note that the run was cancelled, or that the team failed; what is no fault of the team's is raised."""
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
    """Start the sandboxes. The others start when there is code, as they always did."""
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
    """Close what the team owns, its model clients too: nobody else has them."""
    close = getattr(team, "close", None)
    if callable(close):
        await close()
    for participant in getattr(team, "_participants", ()):
        if close is None:
            await participant.close()
        client = getattr(participant, "_model_client", None)
        if client is not None:
            await client.close()


def _root(error: BaseException) -> BaseException:
    while isinstance(error, AgentError) and error.__cause__ is not None:
        error = error.__cause__
    return error
