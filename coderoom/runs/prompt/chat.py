"""The state of a chat: its run, its records, what goes with the next task, and states to go back to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from coderoom.approval.human import StandingYes
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.models.services import absolute_model
from coderoom.runs.durable import DIFFERS, Run
from coderoom.runs.interrupts import route_signals
from coderoom.runs.journal import EARLIER_IN, FILES_IN, RAN_IN, without_files
from coderoom.runs.kept import overlaid_in
from coderoom.runs.prompt.edits import Edits
from coderoom.runs.prompt.folder import Facts, environment_words, facts_of, without_own
from coderoom.runs.prompt.marks import ANEW, Marks
from coderoom.runs.prompt.pending import left_by, left_words
from coderoom.runs.record import RunRecord
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
from coderoom.sandbox import ExecutionResult, OutputChunk

_MOST_TOLD: Final = 4_000
"""Characters of the output of a person's code that the model gets."""
_MOST_SHOWN: Final = 2_000
_MOST_EARLIER: Final = 10
_MOST_OF_EARLIER: Final = 500
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
_MOST_LINES: Final = 400
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


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
        standing_yes: Whether the person has agreed to all code of the chat beforehand.
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
        self.standing_yes = StandingYes("this and all later code of this chat, until /approve ask")
        self._console = console
        self._marks = Marks(self)

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
        folder = None if self.overlaid() is None else self.folder
        left = 0 if folder is None else await left_by(past, self.repeated, folder)
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
        if left:
            self.say(left_words(left), "yellow")

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
        await self._marks.set(words)
        self.files, self.told = [], []
        self.begun = True
        self.spent.append(record)
        self.records.append(record)
        try:
            await run.go_on(record, self._show, begin=partial(self.view.begin, record), close=False)
        finally:
            self.view.stop()
            run.log.hold()
            self._marks.note_files()
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
            self._marks.note_files()
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
        self.say(f"The next task goes to {name}. {'' if kept else ANEW}".rstrip(), "dim")

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
        self.run, self.begun = run, False
        self._marks.begin_anew()
        self.edits.note_team()
        if kept and self.overlaid() is not None:  # The new run has what the code of the old one had changed.
            await self.edits.keep(f"/team {name}")
        self.say(f"The next task goes to the team {name}. {'' if kept else ANEW}".rstrip(), "dim")

    async def undo(self, *, force: bool = False) -> list[str]:
        """Go back to before the last task.

        Args:
            force: Whether changes of others in the working folder are undone, too.

        Returns:
            What is as it was, and what is not.

        Raises:
            RequestError: There is no task to undo, or others have changed files since.
        """
        return await run_uncancellable(self._marks.undo(force=force))  # Not halfway.

    async def diff(self, *, whole: bool) -> list[str]:
        """What has changed in the working folder since the last task began, or since the first one did.

        Raises:
            RequestError: There is no copy of the files of then.
        """
        if self.overlaid() is not None:
            return await self.edits.diff()
        return await self._marks.diff(whole=whole)

    def forget_marks(self) -> None:
        """No task is undone any more: what is in the folder stays there."""
        self._marks.forget()

    @property
    def can_undo(self) -> bool:
        """Whether there is a task to undo."""
        return bool(self._marks)

    def tell(self, text: str) -> None:
        """Have the model told something with the next task, also if the chat goes on elsewhere."""
        self.told.append(text)
        self.run.log.add_said(Said("left", self.told[-1]))

    def note_kept(self, words: str, kept: str, changes: int) -> None:
        """Have what is kept apart be a step of the run, after a person has done something with it."""
        self.run.log.add_said(Said("kept", words, kept=kept, changes=changes))

    async def ask_beside(self, question: str) -> str:
        """Ask the team's model something beside the conversation; Ctrl-C ends it."""
        token = CancellationToken()
        with route_signals(token.cancel):
            answer, record = await self.run.ask_beside(question, token)
        self.spent.append(record)
        return answer

    def show_diff(self, lines: Sequence[str]) -> None:
        """Show a diff, without what only git reads; of a long one the first lines."""
        lines = [line for line in lines if not line.startswith("index ")]
        for line in lines[:_MOST_LINES]:
            style = "bold" if line[:3] in ("+++", "---") else _DIFF_STYLES.get(line[:1], "")
            self.say(line, style, folds=False)
        if len(lines) > _MOST_LINES:
            self.say(f"… and {len(lines) - _MOST_LINES:,} more lines", "dim")

    def _executors(self) -> list[Any]:
        return executors_of(self.run.prepared.team)

    async def look(self, code: str) -> ExecutionResult:
        """Run Python code that looks at the session and leaves nothing there."""
        token, is_ours = CancellationToken(), self._marks.has_all_changes
        try:
            with route_signals(token.cancel):
                return await self.run.look(code, token)
        finally:
            if is_ours:  # A session that was lost runs past code again, which writes files.
                self._marks.note_files()

    async def close(self) -> None:
        """Close the team, and leave the run to others."""
        self.run.log.let_go()
        await self.run.close()


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
