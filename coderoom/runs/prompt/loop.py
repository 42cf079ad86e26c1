"""A chat with a team: tasks and commands that a person gives, one after the other. Used by `coderoom chat`."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console

from coderoom._util.terminal import pausing_for_questions
from coderoom.approval.human import input_descriptor, read_line
from coderoom.errors import CodeRoomError, JournalError, SandboxUnavailable
from coderoom.executors import adopt_orphans, end_descendants
from coderoom.runs.durable import Run
from coderoom.runs.prompt.chat import Chat
from coderoom.runs.prompt.commands import find_command
from coderoom.runs.record import RunRecord
from coderoom.runs.team_run import executors_of, start_sandboxes
from coderoom.runs.view import RunView

_PROMPT: Final = "> "
_HOW: Final = (
    "Write one task after the other; /help lists the commands. Ctrl-C ends a task; an empty line, exit or Ctrl-D the "
    "chat."
)
_ENDS: Final = ("", "exit", "quit", "/exit", "/quit")
_ASKS_HELP: Final = ("help", "?")


async def chat(run: Run, console: Console, *, owns_process: bool = False) -> list[RunRecord]:
    """Read tasks and commands from standard input, a line each, until there is none.

    Args:
        run: The team; its task comes first if it is not empty.
        console: Where to show the runs.
        owns_process: Whether the process does nothing else, so that no child process may outlive the chat.

    Returns:
        The records of the tasks.

    Raises:
        SandboxUnavailable: A sandbox broke, or no wall works.
        MissingDependencyError: A package to preload is not installed.
    """
    chatting = Chat(run, console, RunView(console))
    record = run.prepared.record
    if owns_process:
        adopt_orphans()
    try:
        if not record.task:  # What is missing is known before the first one.
            try:
                await start_sandboxes(executors_of(run.prepared.team))
            except CodeRoomError as error:
                record.error = str(error)
                run.log.end(record)
                raise
        chatting.begin()
        with pausing_for_questions(chatting.view.pause):
            line = run.task or await _ask(console, _HOW)
            is_task = bool(run.task)
            while line:
                last = await _do(chatting, line, is_task=is_task)
                if last is not None and last.cancelled and not sys.stdin.isatty():
                    break  # Ctrl-C ends a list of tasks; a person is asked for another one.
                line, is_task = await _ask(console), False
    finally:
        if not chatting.spent and not record.error:
            run.log.discard()
        await chatting.close()
        if owns_process:
            end_descendants()
    return chatting.records


async def _do(chat: Chat, line: str, *, is_task: bool) -> RunRecord | None:
    """Do what a line says: a command, or a task, whose record is returned."""
    if is_task or line[0] not in "/!":
        return await chat.go(line)
    if line[:2] in ("//", "!!"):  # A task that begins with what commands begin with.
        return await chat.go(line[1:])
    try:
        command, argument = find_command(line)
        await command.do(chat, argument)
    except (SandboxUnavailable, JournalError):
        raise
    except CodeRoomError as error:
        chat.say(str(error), "yellow")
    return None


async def _ask(console: Console, how: str = "") -> str:
    descriptor = input_descriptor()
    if descriptor is None:
        return ""
    if sys.stdin.isatty():
        if how:
            console.print(how, style="dim")
        console.print(f"\n{_PROMPT}", end="", style="bold")
    line = (await read_line(descriptor) or "").strip()
    if line.lower() in _ASKS_HELP:
        return "/help"
    return "" if line.lower() in _ENDS else line
