"""A chat with a team: tasks and commands that a person gives, one after the other. Used by `coderoom chat`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final

from rich.console import Console

from coderoom._util.pictures import protocol_of
from coderoom._util.terminal import pausing_for_questions
from coderoom.approval.human import standing_yes
from coderoom.errors import CodeRoomError, JournalError, RequestError, SandboxUnavailable
from coderoom.executors import adopt_orphans, end_descendants
from coderoom.runs.durable import Run
from coderoom.runs.journal import without_files
from coderoom.runs.prompt.chat import Chat
from coderoom.runs.prompt.commands import COMMANDS, attach_mentioned, find_command, tell
from coderoom.runs.prompt.lines import Reader, reading_tasks
from coderoom.runs.record import RunRecord
from coderoom.runs.team_run import executors_of, start_sandboxes
from coderoom.runs.view import RunView

_ENDS: Final = ("exit", "quit", "/exit", "/quit")
_ASKS_HELP: Final = ("help", "?")


async def chat(
    run: Run,
    console: Console,
    *,
    owns_process: bool = False,
    opener: Sequence[str] | None = None,
    commits: bool = False,
) -> list[RunRecord]:
    """Read tasks and commands from standard input, a line each, until there is none.

    Args:
        run: The team; its task comes first if it is not empty.
        console: Where to show the runs.
        owns_process: Whether the process does nothing else, so that no child process may outlive the chat.
        opener: The command that opens pictures which the code has made; `None`: they are not opened.
        commits: Whether to ask after each task whether what it has changed is committed.

    Returns:
        The records of the tasks; of a chat that goes on, those of the new ones.

    Raises:
        SandboxUnavailable: A sandbox broke, or no wall works.
        MissingDependencyError: A package to preload is not installed.
    """
    protocol_of(console.file)  # It may ask the terminal, which nobody else must read meanwhile.
    async with reading_tasks(console, COMMANDS, remembers=run.log.path is not None) as reader:
        has_prompt = reader.region is not None
        view = RunView(console, tasks_elsewhere=has_prompt, opener=opener, region=reader.region)
        chatting = Chat(run, console, view)
        standing_yes.set(chatting.standing_yes)
        reader.looks = partial(_look, chatting)
        reader.gives = partial(_give, chatting)
        chatting.got = reader.got
        chatting.ended_early = partial(_take_back, chatting, reader)
        with pausing_for_questions(chatting.view.pause):
            await _chat(chatting, run, reader, owns_process, commits)
    repeated = set(map(id, chatting.repeated))
    return [record for record in chatting.records if id(record) not in repeated]


async def _chat(chatting: Chat, run: Run, reader: Reader, owns_process: bool, commits: bool) -> None:
    record = run.prepared.record
    if owns_process:
        adopt_orphans()
    try:
        if run.past:
            await chatting.repeat()
        elif not record.task:  # What is missing is known before the first one.
            try:
                await start_sandboxes(executors_of(run.prepared.team))
            except CodeRoomError as error:
                record.error = str(error)
                run.log.end(record)
                raise
        chatting.begin()
        if commits:
            await chatting.edits.commit_tasks()
        if not run.task and sys.stdin.isatty():
            chatting.say(reader.how, "dim")
        if run.not_heard:
            chatting.say("Not heard before the chat was ended:", "yellow")
            for words in run.not_heard:
                chatting.say(f"> {without_files(words)}")
            if sys.stdin.isatty():
                reader.put([_as_task(words) for words in run.not_heard])
                reader.take_back()  # In the line, to be sent or cleared.
        line, is_task = run.task or await _ask(reader), bool(run.task)
        while line:
            last = await _do(chatting, line, is_task=is_task)
            _put_untold(chatting, reader)
            if last is not None and last.cancelled and not sys.stdin.isatty():
                break  # Ctrl-C ends a list of tasks; a person is asked for another one.
            line, is_task = await _ask(reader), False
        await chatting.edits.leave()
        if chatting.begun and reader.region is not None and chatting.run.log.run:
            chatting.say(f"To go on with this chat: coderoom chat --resume {chatting.run.log.run}", "dim")
    finally:
        if not chatting.begun and not record.error:
            chatting.run.log.discard()
        await chatting.close()
        if owns_process:
            end_descendants()


def _look(chat: Chat, line: str) -> Awaitable[Any] | None:
    """What does a command that only looks, so that it need not wait; `None` if the line is no such command."""
    try:
        command, argument = find_command(line)
    except RequestError:
        return None
    return command.do(chat, argument) if command.at_once else None


def _give(chat: Chat, line: str) -> Awaitable[None] | None:
    """What gives a line to the team at once; `None` if it is a command, or the team does not work on a task."""
    is_words = line[0] not in "/!" and line.lower() not in (*_ENDS, *_ASKS_HELP)
    return tell(chat, line) if chat.is_working and is_words else None


def _put_untold(chat: Chat, reader: Reader) -> None:
    reader.put([_as_task(words) for words in chat.run.untold()])


def _take_back(chat: Chat, reader: Reader) -> None:
    if sys.stdin.isatty():
        _put_untold(chat, reader)
        reader.take_back()


def _as_task(words: str) -> str:
    """The line that has what was said to the team as a task."""
    line = without_files(words)
    return f"{line[0]}{line}" if line[0] in "/!" else line


async def _do(chat: Chat, line: str, *, is_task: bool) -> RunRecord | None:
    """Do what a line says: a command, or a task, whose record is returned."""
    if is_task:
        return await chat.go(line)
    if line[0] not in "/!" or line[:2] in ("//", "!!"):  # Two, for a task that begins with what commands begin with.
        await attach_mentioned(chat, line)
        return await chat.go(line.removeprefix(line[0]) if line[0] in "/!" else line)
    try:
        command, argument = find_command(line)
        return await command.do(chat, argument)
    except (SandboxUnavailable, JournalError):
        raise
    except CodeRoomError as error:
        chat.say(str(error), "yellow")
    return None


async def _ask(reader: Reader) -> str:
    """The next line; empty: there is none."""
    line = await reader.read() or ""
    if line.lower() in _ASKS_HELP:
        return "/help"
    return "" if line.lower() in _ENDS else line
