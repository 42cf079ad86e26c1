"""The state of a chat: its run, its records, what goes with the next task, and states to go back to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken
from rich.console import Console
from rich.text import Text

from coderoom._util.tasks import run_uncancellable
from coderoom._util.text import bound_output, visible
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import calls_made
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.executors import Checkpoints, SandboxCodeExecutor
from coderoom.models.services import absolute_model
from coderoom.runs.durable import DIFFERS, Run
from coderoom.runs.exec_view import NO_WALL
from coderoom.runs.interrupts import route_signals
from coderoom.runs.journal import EARLIER_IN, FILES_IN, RAN_IN, UNDONE_IN, without_files
from coderoom.runs.kept import overlaid_in
from coderoom.runs.prompt.edits import Edits
from coderoom.runs.prompt.folder import Facts, diff_of, differing, environment_words, facts_of, without_own
from coderoom.runs.record import RunRecord, network_words
from coderoom.runs.said import Said
from coderoom.runs.team_run import (
    RunRequest,
    close_team,
    coding_agents_of,
    executors_of,
    folder_of,
    hand_over_sessions,
)
from coderoom.runs.view import RunView
from coderoom.sandbox import Checkpoint, ExecutionResult, FunctionCall, OutputChunk
from coderoom.sandbox.snapshots import Snapshot

_MOST_TOLD: Final = 4_000
"""Characters of the output of a person's code that the model gets."""
_MOST_MARKS: Final = 5
"""How many tasks can be undone. Each has a copy of the working folder."""
_MOST_CALLS: Final = 10
_MOST_SHOWN: Final = 2_000
_MOST_EARLIER: Final = 10
_MOST_OF_EARLIER: Final = 500
_ANEW: Final = "The session begins anew: its variables are lost, unless the agent can run its code again."
_AGAIN: Final = "The session begins anew: the next task first runs the code of earlier tasks again."
_GIVEN_TO_TEAMS: Final = (
    "model",
    "workspace",
    "wall",
    "trust",
    "network",
    "timeout",
    "packages",
    "allowed_hosts",
    "credentials",
    "local_network",
    "workspace_mode",
    "server",
)
"""What the options of the chat say for all of its teams."""
_LONGEST_TASK: Final = 60
_MOST_LINES: Final = 400
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


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


class Chat:
    """A chat with a team.

    Args:
        run: The team, and its part of the journal.
        console: Where to show what happens.
        view: Shows tasks there.

    Attributes:
        run: The same; another one after `/team`.
        view: The same.
        spent: The records of all tasks.
        records: The records of those that were not undone.
        files: The names of files that go with the next task.
        told: What else the model is told with the next task.
        begun: Whether the run has a task.
        repeated: The records of tasks from before, in a chat that goes on.
        files_before: The files of the working folder when the chat began.
        is_working: Whether the team works on a task.
        got: Called with what a person has said meanwhile, without the files, once an agent has got it.
        ended_early: Called when a person has ended a task, before they see that.
        edits: What code has changed in an overlay, and what becomes of it.
    """

    def __init__(self, run: Run, console: Console, view: RunView) -> None:
        self.run = run
        self.view = view
        self.spent: list[RunRecord] = []
        self.records: list[RunRecord] = []
        self.repeated: list[RunRecord] = []
        self.files = [] if run.task else [file.name for file in run.prepared.request.files]
        self.told: list[str] = []
        self.begun = run.log.last > 0
        self.files_before: Facts = {}
        self.is_working = False
        self.got: Callable[[str], None] = lambda words: None
        self.ended_early: Callable[[], None] = lambda: None
        self.edits = Edits(self)
        self._console = console
        self._marks: list[Mark] = []
        self._first: Mark | None = None
        self._is_written = False

    def begin(self) -> None:
        """Note the files at the beginning."""
        self.edits.note_team()
        if words := environment_words(self.overlaid(), self.folder):
            self.say(words, "dim")
        self.files_before = {} if self.folder is None else without_own(facts_of(self.folder))

    async def repeat(self) -> None:
        """Go through the tasks of a chat that goes on, of which nothing is asked or run again, and show them."""
        past = list(self.run.past)
        self.repeated = await self.run.repeat()
        asked = "".join(said.text for said in past if said.kind == "task")
        self.told = [said.text for said in past if said.kind == "left" and said.text not in asked]
        self.spent, self.records = list(self.repeated), list(self.repeated)
        self.run.log.hold()
        if not self.repeated:
            return
        for record in self.repeated:
            self.say(f"> {without_files(record.task)}", "dim")
        last = self.repeated[-1]
        if self.run.differs:
            self.say(DIFFERS, "yellow")
        elif last.cancelled:
            self.say("The last task had not ended. The team knows what was done until then.", "yellow")
        elif last.answer:
            self.say(bound_output(last.answer, _MOST_SHOWN))

    def overlaid(self) -> SandboxCodeExecutor | None:
        """The executor that keeps changes apart from the working folder; `None` if there is none."""
        return overlaid_in(self._executors())

    @property
    def writes_directly(self) -> bool:
        """Whether some code of the team could write to the working folder itself."""
        return not all(
            isinstance(each, SandboxCodeExecutor) and each.workspace_mode == "overlay" and each.wall != "none"
            for each in self._executors()
        )

    def say(self, text: str, style: str = "", *, folds: bool = True) -> None:
        """Show a text, which need not be ours; long lines are folded, unless they are code."""
        self._console.print(Text(visible(text), style=style), soft_wrap=not folds)

    @property
    def console(self) -> Console:
        """Where to show things; texts that are not ours go through `say`."""
        return self._console

    @property
    def folder(self) -> Path | None:
        """The folder that the code works in; `None` if that is none of this machine."""
        folders = (folder_of(executor) for executor in executors_of(self.run.prepared.team))
        return next(filter(None, folders), None)

    async def go(self, words: str) -> RunRecord:
        """Run a task, with what goes with it."""
        self.is_working = True
        try:
            record = await self._go(words)
        finally:
            self.is_working = False
        await self.edits.show()
        return record

    async def _go(self, words: str) -> RunRecord:
        run, request = self.run, self.run.prepared.request
        task = words + "".join(self.told)
        if self.files:
            task += f"{FILES_IN}{', '.join(self.files)}"
        record = run.record_of(task if self.spent else request.with_files(task))
        await self.edits.refresh()
        await self._mark(words)
        self.files, self.told = [], []
        self.begun = True
        self.spent.append(record)
        self.records.append(record)
        try:
            await run.go_on(record, self._show, begin=partial(self.view.begin, record), close=False)
        finally:
            self.view.stop()
            run.log.hold()
            self._note_files()
        if record.cancelled:  # What is typed from now on is a new task.
            self.ended_early()
        self.view.end(record)
        if record.cancelled and any(agent.runs_again for agent in coding_agents_of(run.prepared.team)):
            self.say(_AGAIN, "dim")
        return record

    def _show(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        self.view.show(message)
        if keys.HEARD_BY in message.metadata:
            self.got(without_files(message.to_text()))

    async def run_code(self, words: str, code: str, language: str) -> ExecutionResult | None:
        """Run code in the team's session, and show its output; `None` if Ctrl-C ended it.

        The model is told with the next task.
        """
        said = Said("run", words, code, language)
        self.run.coder()
        self.run.log.add_said(said)
        token, streamed = CancellationToken(), []

        def show(chunk: OutputChunk) -> None:
            if chunk.stream == "shown":  # It is JSON.
                return
            streamed.append(chunk.text)
            self._console.print(Text(visible(chunk.text)), end="", soft_wrap=True)

        try:
            with route_signals(token.cancel):
                result = await self.run.run_given(said, token, show)
        except BaseException:
            if not token.is_cancelled():
                raise
            self.say("\nThe code was ended.", "yellow")
            self.told.append(_told(code, language, f"{''.join(streamed)}\n[The person ended it.]", "cancelled"))
            return None
        finally:
            self._note_files()
        shown = "".join(streamed)
        rest = result.output.removeprefix(shown) if result.output.startswith(shown) else ""
        if rest.strip():
            self.say(rest.rstrip("\n"), folds=False)
        elif shown and not shown.endswith("\n"):
            self._console.print()
        if not result.output.strip():
            self.say("(no output)", "dim")
        if result.exit_code:
            self.say(f"{result.outcome} · exit code {result.exit_code}", "red")
        self.told.append(_told(code, language, result.output, f"{result.outcome}, exit code {result.exit_code}"))
        return result

    async def use_model(self, name: str) -> None:
        """Go on with another model."""
        said = Said("model", f"/model {name}", model=absolute_model(name))
        kept = await self.run.use_model(said)
        self.run.log.add_said(said)
        self.say(f"The next task goes to {name}. {'' if kept else _ANEW}".rstrip(), "dim")

    async def use_team(self, name: str) -> None:
        """Go on with another team in the same folder, as a run of its own, which is told of the tasks so far."""
        old = self.run
        given = {each: getattr(old.prepared.request, each) for each in _GIVEN_TO_TEAMS}
        new = RunRequest(name, "", more_tasks=True, **given).prepare()
        more = {"folder": str(Path.cwd())}
        run = Run.begin(new, old.log.journal, command="chat", budget=old.budget, more=more)
        try:
            run.ask_before_code(old.asks)
        except RequestError:
            run.log.discard()
            await close_team(new.team)
            raise
        await old.catch_up()
        kept = hand_over_sessions(old.prepared.team, new.team)
        await close_team(old.prepared.team)
        run.recorder = old.recorder
        run.prepared = replace(new, own_folder=new.own_folder or old.prepared.own_folder)
        if not self.begun:
            old.log.discard()
        old.log.let_go()
        asked = [record for record in self.records if record.run == old.prepared.record.run]
        if asked:
            self.told.append(_earlier(old.prepared.record.team, asked))
        self.run, self.begun, self._marks = run, False, []
        self.edits.note_team()
        if kept and self.overlaid() is not None:  # The new run has what the code of the old one had changed.
            await self.edits.keep(f"/team {name}")
        self.say(f"The next task goes to the team {name}. {'' if kept else _ANEW}".rstrip(), "dim")

    async def undo(self, *, force: bool = False) -> list[str]:
        """Go back to before the last task.

        Args:
            force: Whether changes of others in the working folder are undone, too.

        Returns:
            What is as it was, and what is not.

        Raises:
            RequestError: There is no task to undo, or others have changed files since.
        """
        return await run_uncancellable(self._undo(force))  # Not halfway.

    async def _undo(self, force: bool) -> list[str]:
        if not self._marks:
            written = " Tasks before something was written into the folder or committed are not undone."
            raise RequestError(
                f"There is no task to undo: /undo goes back over the last {_MOST_MARKS} tasks that this team had in "
                f"this process.{written * self._is_written}"
            )
        mark = self._marks[-1]
        others = differing(mark.after, self._facts())
        if others and not force and any(isinstance(saved.files, Snapshot) for saved in mark.saved.values()):
            raise RequestError(
                f"Since the task has ended, others have changed {', '.join(others[:5])}"
                f"{' and more' if len(others) > 5 else ''}, which /undo would undo, too. Write /undo force to do it."
            )
        team, executors = self.run.prepared.team, self._executors()
        restored, lost, is_whole = ["conversation"], list(mark.lost), True
        for number, saved in mark.saved.items():
            try:
                restored.append(await executors[number].rollback(saved))
            except RequestError as error:
                is_whole = False
                if isinstance(saved.files, Snapshot):  # Its session was restarted, which Ctrl-C leads to.
                    await saved.files.put_back()
                    restored.append("files")
                    lost.append(f"The session was restarted since. {_ANEW}")
                else:
                    lost.append(str(error))
        await team.load_state(mark.state)
        self.run.log.add_said(Said("undo", "/undo", first=mark.first))  # If it is killed now, the rest is undone later.
        calls = await self.run.undo_calls(mark.ran)
        if is_whole:
            for agent, ran in zip(coding_agents_of(team), mark.ran, strict=True):
                agent.go_back(ran)
        self._marks.pop()
        await self._release(mark)
        undone = self.records[mark.records :]
        del self.records[mark.records :]
        # What is left of a task that was undone before stays there.
        left = [each for each in self.told if each.startswith(UNDONE_IN) and each not in mark.told]
        self.told, self.files = [*mark.told, *left], mark.files
        if calls.left:
            self.told.append(f"{UNDONE_IN}{calls_made(calls.left)}")
            self.run.log.add_said(Said("left", self.told[-1]))
        self._note_files()
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
        if self.overlaid() is not None:
            return await self.edits.diff()
        if self._first is None:
            return []
        mark = self._first if whole or not self._marks else self._marks[-1]
        files = next((saved.files for saved in mark.saved.values() if isinstance(saved.files, Snapshot)), None)
        if files is None or self.folder is None:
            raise RequestError(" ".join(["There is no copy of the files before the task.", *mark.lost]))
        return await asyncio.to_thread(lambda folder: list(diff_of(files.folder, folder)), self.folder)

    def forget_marks(self) -> None:
        """No task is undone any more: what is in the folder stays there."""
        self._marks.clear()
        self._is_written = True

    @property
    def can_undo(self) -> bool:
        """Whether there is a task to undo."""
        return bool(self._marks)

    def tell(self, text: str) -> None:
        """Have the model told something with the next task, also if the chat goes on elsewhere."""
        self.told.append(text)
        self.run.log.add_said(Said("left", self.told[-1]))

    def note_kept(self, words: str, kept: str) -> None:
        """Have what is kept apart be a step of the run, after a person has done something with it."""
        self.run.log.add_said(Said("kept", words, kept=kept))

    async def ask_beside(self, question: str) -> str:
        """Ask the team's model something beside the conversation; Ctrl-C ends it."""
        token = CancellationToken()
        with route_signals(token.cancel):
            answer, record = await self.run.ask_beside(question, token)
        self.spent.append(record)
        return answer

    def show_diff(self, lines: Sequence[str]) -> None:
        """Show a diff, of which only the first lines may be shown."""
        for line in lines[:_MOST_LINES]:
            style = "bold" if line[:3] in ("+++", "---") else _DIFF_STYLES.get(line[:1], "")
            self.say(line, style, folds=False)
        if len(lines) > _MOST_LINES:
            self.say(f"… and {len(lines) - _MOST_LINES:,} more lines", "dim")

    def _executors(self) -> list[Any]:
        return executors_of(self.run.prepared.team)

    def _facts(self) -> Facts:
        return {} if self.folder is None else facts_of(self.folder)

    def _note_files(self) -> None:
        """Note the files after code has run: what others change from now on is not undone silently."""
        if self._marks:
            self._marks[-1].after = self._facts()

    async def _mark(self, task: str) -> None:
        """Save the state before a task."""
        team = self.run.prepared.team
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
        first = self.run.log.last + 1
        mark = Mark(task, first, len(self.records), self.told, self.files, state, ran, saved, lost)
        self._marks.append(mark)
        if self._first is None:
            self._first = mark
        while len(self._marks) > _MOST_MARKS:
            await self._release(self._marks.pop(0))

    async def _release(self, mark: Mark) -> None:
        if mark is not self._first:
            for number, saved in mark.saved.items():
                await self._executors()[number].release(saved)

    async def look(self, code: str) -> ExecutionResult:
        """Run Python code that looks at the session and leaves nothing there."""
        token, is_ours = CancellationToken(), not self._marks or self._marks[-1].after == self._facts()
        try:
            with route_signals(token.cancel):
                return await self.run.look(code, token)
        finally:
            if is_ours:  # A session that was lost runs past code again, which writes files.
                self._note_files()

    async def close(self) -> None:
        """Close the team, and leave the run to others."""
        self.run.log.let_go()
        await self.run.close()


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


def _earlier(team: str, records: Sequence[RunRecord]) -> str:
    """What another team was asked and has answered."""
    told = []
    for record in records[-_MOST_EARLIER:]:
        parts = [without_files(record.task), record.answer or f"({record.outcome})"]
        told.append("\n\n".join(fence(bound_output(part, _MOST_OF_EARLIER), "text", "no-run") for part in parts))
    return f"{EARLIER_IN}{team!r} was asked this, and answered:\n\n" + "\n\n".join(told)


def _told(code: str, language: str, output: str, outcome: str) -> str:
    # Marked `no-run`, so that no agent takes it for code to run.
    parts = [f"{RAN_IN}{outcome}):", fence(code, language, "no-run")]
    if output.strip():
        parts += ["Output:", fence(bound_output(output.rstrip(), _MOST_TOLD), "text", "no-run")]
    return "\n\n".join(parts)
