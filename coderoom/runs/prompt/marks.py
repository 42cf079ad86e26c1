"""States that a chat can go back to: its conversation, variables and files before each of the last tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from coderoom.agents.attempt import calls_made
from coderoom.errors import RequestError
from coderoom.executors import Checkpoints
from coderoom.runs.durable import Run
from coderoom.runs.exec_view import NO_WALL
from coderoom.runs.journal import UNDONE_IN
from coderoom.runs.prompt.folder import Facts, diff_of, differing, facts_of
from coderoom.runs.record import RunRecord, network_words
from coderoom.runs.said import Said
from coderoom.runs.team_run import coding_agents_of, executors_of
from coderoom.sandbox import Checkpoint, FunctionCall
from coderoom.sandbox.snapshots import Snapshot

ANEW: Final = "The session begins anew: its variables are lost, unless the agent can run its code again."
_MOST_MARKS: Final = 5
"""How many tasks can be undone. Each has a copy of the working folder."""
_MOST_CALLS: Final = 10
_LONGEST_TASK: Final = 60


@dataclass
class Mark:
    """The state before a task.

    Attributes:
        task: The task.
        first: The number of its first step in the journal.
        records: How many tasks there were before.
        told: What went with it.
        files: The files that went with it.
        state: The team's.
        ran: What its agents had run.
        saved: The checkpoints of its executors, by their places.
        lost: Why something cannot be undone.
        after: The files of the working folder when the task, and what was run after it, had ended.
    """

    task: str
    first: int
    records: int
    told: list[str]
    files: list[str]
    state: Mapping[str, Any]
    ran: list[Any]
    saved: dict[int, Checkpoint]
    lost: list[str]
    after: Facts = field(default_factory=dict)


class _Chat(Protocol):
    """What is needed of a `Chat`, which has the same documented."""

    run: Run
    records: list[RunRecord]
    files: list[str]
    told: list[str]

    @property
    def folder(self) -> Path | None: ...


class Marks:
    """The states before the last tasks of a chat.

    Args:
        chat: The chat.
    """

    def __init__(self, chat: _Chat) -> None:
        self._chat = chat
        self._marks: list[Mark] = []
        self._first: Mark | None = None
        self._is_written = False

    def __bool__(self) -> bool:
        """Whether there is a task to undo."""
        return bool(self._marks)

    def begin_anew(self) -> None:
        """Another team goes on: no task of the one before is undone."""
        self._marks = []

    def forget(self) -> None:
        """No task is undone any more: what is in the folder stays there."""
        self._marks.clear()
        self._is_written = True

    @property
    def has_all_changes(self) -> bool:
        """Whether nobody has changed files since code ran last."""
        return not self._marks or self._marks[-1].after == self._facts()

    def note_files(self) -> None:
        """Note the files after code has run: what others change from now on is not undone silently."""
        if self._marks:
            self._marks[-1].after = self._facts()

    async def set(self, task: str) -> None:
        """Save the state before a task."""
        chat, team = self._chat, self._chat.run.prepared.team
        saved: dict[int, Checkpoint] = {}
        lost: list[str] = []
        try:
            for agent in coding_agents_of(team):
                await agent.start()  # A session begins anew when functions are offered to it.
            for number, executor in enumerate(self._executors()):
                if not isinstance(executor, Checkpoints):
                    lost.append(f"{type(executor).__name__} keeps no checkpoints: its variables and files stay.")
                    continue
                try:
                    saved[number] = mark = await executor.checkpoint()
                except RequestError as error:
                    lost.append(str(error))
                    continue
                if mark.files is None:
                    lost.append("The files stay as they are: there are too many for a copy.")
            state = await team.save_state()
        except Exception:  # The task will say what is wrong.
            return
        ran = [agent.ran() for agent in coding_agents_of(team)]
        first = chat.run.log.last + 1
        mark = Mark(task, first, len(chat.records), chat.told, chat.files, state, ran, saved, lost)
        self._marks.append(mark)
        if self._first is None:
            self._first = mark
        while len(self._marks) > _MOST_MARKS:
            await self._release(self._marks.pop(0))

    async def undo(self, *, force: bool) -> list[str]:
        """Go back to before the last task; see `Chat.undo`."""
        if not self._marks:
            written = " Tasks before something was written into the folder or committed are not undone."
            raise RequestError(
                f"There is no task to undo: /undo goes back over the last {_MOST_MARKS} tasks that this team had in "
                f"this process.{written * self._is_written}"
            )
        chat, mark = self._chat, self._marks[-1]
        others = differing(mark.after, self._facts())
        if others and not force and any(isinstance(saved.files, Snapshot) for saved in mark.saved.values()):
            raise RequestError(
                f"Since the task has ended, others have changed {', '.join(others[:5])}"
                f"{' and more' if len(others) > 5 else ''}, which /undo would undo, too. Write /undo force to do it."
            )
        team, executors = chat.run.prepared.team, self._executors()
        restored, lost, is_whole = ["conversation"], list(mark.lost), True
        for number, saved in mark.saved.items():
            try:
                restored.append(await executors[number].rollback(saved))
            except RequestError as error:
                is_whole = False
                if isinstance(saved.files, Snapshot):  # Its session was restarted, which Ctrl-C leads to.
                    await saved.files.put_back()
                    restored.append("files")
                    lost.append(f"The session was restarted since. {ANEW}")
                else:
                    lost.append(str(error))
        await team.load_state(mark.state)
        chat.run.log.add_said(Said("undo", "/undo", first=mark.first))  # If it is killed now, the rest is undone later.
        calls = await chat.run.undo_calls(mark.ran)
        if is_whole:
            for agent, ran in zip(coding_agents_of(team), mark.ran, strict=True):
                agent.go_back(ran)
        self._marks.pop()
        await self._release(mark)
        undone = chat.records[mark.records :]
        del chat.records[mark.records :]
        # What is left of a task that was undone before stays there.
        left = [each for each in chat.told if each.startswith(UNDONE_IN) and each not in mark.told]
        chat.told, chat.files = [*mark.told, *left], mark.files
        if calls.left:
            chat.told.append(f"{UNDONE_IN}{calls_made(calls.left)}")
            chat.run.log.add_said(Said("left", chat.told[-1]))
        self.note_files()
        before = " ".join(mark.task.split())[:_LONGEST_TASK]
        *most, last = dict.fromkeys(word for words in restored for word in words.split(" and "))
        return [
            f"As before the task {before!r}: {', '.join(most)}{' and ' if most else ''}{last}.",
            *lost,
            *calls.words,
            *_not_undone(calls.left, undone),
        ]

    async def diff(self, *, whole: bool) -> list[str]:
        """What has changed in the working folder since the last task began, or since the first one did.

        Raises:
            RequestError: There is no copy of the files of then.
        """
        if self._first is None:
            return []
        mark = self._first if whole or not self._marks else self._marks[-1]
        files = next((saved.files for saved in mark.saved.values() if isinstance(saved.files, Snapshot)), None)
        if files is None or self._chat.folder is None:
            raise RequestError(" ".join(["There is no copy of the files before the task.", *mark.lost]))
        return await asyncio.to_thread(lambda folder: list(diff_of(files.folder, folder)), self._chat.folder)

    async def _release(self, mark: Mark) -> None:
        if mark is not self._first:
            for number, saved in mark.saved.items():
                await self._executors()[number].release(saved)

    def _executors(self) -> list[Any]:
        return executors_of(self._chat.run.prepared.team)

    def _facts(self) -> Facts:
        return {} if self._chat.folder is None else facts_of(self._chat.folder)


def _not_undone(calls: Sequence[FunctionCall], records: Sequence[RunRecord]) -> list[str]:
    """What tasks have done that nothing undoes."""
    lines = []
    if calls:
        more = f" and {len(calls) - _MOST_CALLS} more" if len(calls) > _MOST_CALLS else ""
        lines.append(f"Not undone: the calls of functions {', '.join(map(str, calls[:_MOST_CALLS]))}{more}.")
    if used := network_words([use for record in records for use in record.network]):
        lines.append(f"Not undone: what was sent over the network ({used}).")
    if any(NO_WALL in record.isolation for record in records):
        lines.append("Not undone: what the code did outside of its folder, since no wall kept it there.")
    return lines
