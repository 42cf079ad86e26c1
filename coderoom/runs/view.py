"""Shows teams and their runs on the terminal, for `coderoom show`, `run` and `chat`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final, Protocol

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from coderoom._util.text import in_dollars, visible
from coderoom.agents import metadata as keys
from coderoom.approval.human import standing_yes
from coderoom.outcome import Outcome
from coderoom.runs.branches import Branches
from coderoom.runs.exec_view import NO_CODE_IS_RUN, NO_WALL, show_isolation
from coderoom.runs.markdown import markdown
from coderoom.runs.pictures import open_pictures, show_pictures
from coderoom.runs.record import RunRecord
from coderoom.runs.story import (
    USER,
    Approved,
    Branching,
    Code,
    Decision,
    Entry,
    Folding,
    Heard,
    Output,
    Story,
    Streamed,
    Summary,
    Verdict,
    Words,
)
from coderoom.runs.summary import bounded, run_summary, task_summary

_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")
_FRAMES_PER_SECOND: Final = 10
_STREAMED_LINES: Final = 12
_STREAMED_CHARACTERS: Final = 4000
_LONGEST_SETTING: Final = 100
_RECORDING: Final = "The model is a recording ({}): its replies were written beforehand."
_REAL: Final = "Everything else is real: the code runs, its output is its own, and the outcome is computed."


class Region(Protocol):
    """A part of the terminal that is drawn again and again, such as Rich's `Live`."""

    def start(self) -> object:
        """Begin to draw it."""

    def stop(self) -> object:
        """Remove it."""

    def refresh(self) -> object:
        """Draw it now."""


class RunView:
    """Shows the messages of a run, tokens while they stream, the output of code, and a summary.

    Args:
        console: Where to show it.
        all_branches: Whether the code and output of all branches is shown, and not only of those that went on.
        answer_elsewhere: Whether the answer is printed elsewhere, and is not in the summary.
        brief: Whether nothing is shown but what the run waits for, and the summary if it did not succeed.
        tasks_elsewhere: Whether tasks are shown elsewhere, as at a prompt.
        opener: The command that opens pictures which the code has made; `None`: they are not opened.
        region: Makes the region for what changes, of what tells its content; by default below what was shown last.
    """

    def __init__(
        self,
        console: Console,
        *,
        all_branches: bool = False,
        answer_elsewhere: bool = False,
        brief: bool = False,
        tasks_elsewhere: bool = False,
        opener: Sequence[str] | None = None,
        region: Callable[[Callable[[], RenderableType]], Region] | None = None,
    ) -> None:
        self._console = console
        self._all_branches = all_branches
        self._answer_elsewhere = answer_elsewhere
        self._brief = brief
        self._tasks_elsewhere = tasks_elsewhere
        self._opener = opener
        self._region = region or self._below
        self._folding = Folding()
        self._speaker: str | None = None
        self._colours: dict[str, str] = {}
        self._record: RunRecord | None = None
        self._live: Region | None = None
        self._spinner = Spinner("dots", style="cyan")
        self._streamed = ""
        self._story = Story()
        self._noticed = 0
        self._held: Code | None = None

    def begin(self, record: RunRecord) -> None:
        """Show how the code of the team is isolated from this machine, or that it is not."""
        if self._record is None:  # Else it is a further task for the same team.
            if not self._brief or record.isolation == NO_WALL:
                show_isolation(self._console, record.isolation)
            if not self._brief:
                kind, _, recording = (record.model or "").partition(":")
                if kind == "replay":
                    words = [_RECORDING.format(recording), *([_REAL] if record.isolation != NO_CODE_IS_RUN else [])]
                    self._console.print(Text(visible(" ".join(words)), style="yellow"))
                self._notices(record)
        self._record, self._speaker = record, None
        self._start()

    def show(self, message: BaseAgentEvent | BaseChatMessage) -> None:
        """Show a message."""
        if not self._brief:
            self.tell(self._story.tell(message))

    def tell(self, told: Entry) -> None:
        """Show an entry."""
        if isinstance(told, Streamed):
            if self._held is not None and told.source == self._held.source:  # It runs without a question.
                self._release()
            self._stream(told)
            return
        if (entry := self._folding.fold(told)) is None or (self._tasks_elsewhere and self._is_task(entry)):
            return
        self._streamed = ""
        self._release()
        if self._live is not None:
            self._live.refresh()
        standing = standing_yes.get()
        is_asked = standing is None or not standing.reason
        if isinstance(entry, Code) and self._record and entry.source in self._record.asks and is_asked:
            self._held = entry  # A question may show its code.
        elif isinstance(entry, Branching):
            self._show_branches(entry)
        elif (rendering := _render(entry)) is not None:
            self._print(entry, rendering)

    def _is_task(self, entry: Entry) -> bool:
        return self._record is not None and (entry.source, entry.text) == (USER, self._record.task)

    def _show_branches(self, entry: Branching) -> None:
        """Show what came of branches, and then what the one that goes on told, or all of them."""
        self._print(entry, branch_tree(entry.facts))
        for each in entry.facts.branches:
            if not self._all_branches and each.branch != entry.facts.won:
                continue
            told = [rendering for one in entry.told.get(each.branch, ()) if (rendering := _render(one)) is not None]
            if told:
                self._console.print(Text(f"branch {visible(each.branch)}", style="dim"), *told, sep="\n")

    def _release(self, *, asked: bool = False) -> None:
        """Show code that was held back, or the words around it if a question shows it."""
        held, self._held = self._held, None
        if held is not None:
            shown = [block.code for block in held.blocks] if asked else []
            self._print(held, markdown(held.text, shown))

    def _print(self, entry: Entry, rendering: RenderableType) -> None:
        self._name(entry.source)
        self._console.print(rendering)
        if isinstance(entry, Heard):
            self._console.print(Text(f"{visible(entry.by)} gets it with its next request.", style="dim"))

    def end(self, record: RunRecord) -> None:
        """Show the summary, and pictures that the code has made where the terminal can."""
        self._release()
        self.stop()
        if self._opener is not None:
            open_pictures(record.files, self._opener)
        if self._brief and record.succeeded:
            self._notices(record)
            return
        self.show_rest()
        if self._streamed:  # The run ended before the message was complete.
            self._console.print(Text(visible(self._streamed), style="dim"))
            self._streamed = ""
        if self._brief and not record.runs_code:  # A question that was not answered.
            self._console.print(task_summary(record))
            return
        self._console.print(Rule(style="dim"))
        show_pictures(self._console, record.files)
        if self._tasks_elsewhere:
            self._console.print(task_summary(record))
        else:
            self._console.print(run_summary(record, with_answer=not self._answer_elsewhere))
        self._notices(record)

    def show_rest(self) -> None:
        """Show what branches have told that did not end, as the run ended before."""
        for entry in self._folding.rest():
            if (rendering := _render(entry)) is not None:
                self._print(entry, rendering)

    def _notices(self, record: RunRecord) -> None:
        for notice in record.notices[self._noticed :]:
            self._console.print(Text(visible(notice), style="yellow"))
        self._noticed = len(record.notices)

    def stop(self) -> None:
        """End the region that shows what the run waits for, and what streams."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Leave the terminal to a question."""
        self._release(asked=True)
        is_shown = self._live is not None
        self.stop()
        try:
            yield
        finally:
            if is_shown:  # Else nothing works: a person's command has asked.
                self._start()

    def _start(self) -> None:
        if self._console.is_terminal and not self._console.quiet:
            self._live = self._region(self._now)
            self._live.start()

    def _below(self, content: Callable[[], RenderableType]) -> Region:
        return Live(
            console=self._console, get_renderable=content, transient=True, refresh_per_second=_FRAMES_PER_SECOND
        )

    def _name(self, source: str) -> None:
        if source == self._speaker:
            return
        self._speaker = source
        colour = self._colours.setdefault(source, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._console.print()
        self._console.print(Rule(Text(visible(source), style=f"bold {colour}"), align="left", style="dim"))

    # What streams is erased when the complete message is shown.

    def _stream(self, piece: Streamed) -> None:
        if self._live is None or piece.branch:  # What several branches write at the same time cannot be read.
            return
        self._name(piece.source)
        # Only the end is shown.
        self._streamed = (self._streamed + piece.text)[-_STREAMED_CHARACTERS:]

    def _now(self) -> RenderableType:
        """What streams, and what the run waits for."""
        record = self._record
        if record is None:
            return ""
        facts = [f"{monotonic() - record.since:.0f} s", f"turn {max(record.turns + bool(record.activity), 1)}"]
        if tokens := record.usage["total_tokens"]:
            facts.append(f"{tokens:,} tokens")
        waiting = Text(f"{visible(record.activity or record.team)} · {' · '.join(facts)}", style="dim")
        self._spinner.update(text=waiting)
        tail = visible(self._streamed).splitlines()[-_STREAMED_LINES:]
        return Group(Text("\n".join(tail), style="dim"), self._spinner) if tail else self._spinner


def _render(entry: Entry) -> RenderableType | None:
    match entry:
        case Output(text=output, outcome=outcome):
            style = "green" if outcome == Outcome.OK else "red"
            shown = bounded(output, entry.facts.get(keys.OUTPUT_FILE))
            return Panel(shown, title=f"{outcome} · {entry.end}", title_align="left", border_style=style)
        case Approved(text=text, approved=approved):
            return Text(f"{'✓' if approved else '✕'} {visible(text)}", style="green" if approved else "yellow")
        case Decision(text=text):
            return Text(f"↻ {visible(text)}", style="yellow")
        case Verdict(text=text, approved=approved):
            title, style = ("approved", "green") if approved else ("not approved", "yellow")
            return Panel(Text(visible(text)), title=title, title_align="left", border_style=style)
        case Summary(new=new):
            if entry.has_code:
                return Group(markdown(new), Text("The code in this summary was not run.", style="dim"))
            return markdown(new) if new else None
        case Words(text=text, is_event=True):
            return Text(visible(text), style="dim italic") if text else None
        case Words(text=text, is_prose=False):
            return Text(visible(text))
    return markdown(entry.text)


def branch_tree(facts: Branches) -> Tree:
    """What came of branches as a tree, in which the one that goes on is marked."""
    tree = Tree(Text(visible(facts.title), style="yellow"), guide_style="dim")
    outcomes = _aligned([each.outcome or "no code" for each in facts.branches])
    verdicts = _aligned([" ".join(each.verdict.split()) for each in facts.branches])
    for each, outcome, verdict in zip(facts.branches, outcomes, verdicts, strict=True):
        used = f"{each.input_tokens + each.output_tokens:,} tokens"
        used += "" if each.cost_usd is None else f", {in_dollars(each.cost_usd)}"
        mark, style = (">", "bold green") if each.branch == facts.won else (" ", "")
        line = f"{mark} {each.number}  {outcome}  {verdict}  {used}, {each.seconds:.1f} s  "
        tree.add(Text.assemble((visible(line), style), (visible(each.variation), "dim")))
    return tree


def _aligned(texts: Sequence[str]) -> list[str]:
    return [f"{text:<{max(map(len, texts))}}" for text in texts]


def team_tree(component: dict[str, Any], role: str = "") -> Tree:
    """A team file's content as a tree: each component with its settings, below the one that it belongs to.

    Args:
        component: The content, as `read_team` returns it.
        role: What it is to the one that it belongs to.
    """
    config = component.get("config")
    config = config if isinstance(config, dict) else {}
    kind = str(component["provider"]).rpartition(".")[2]
    title = Text(f"{role}: " if role else "", style="dim").append(visible(kind), style="bold")
    if config.get("name"):
        title.append(f" {visible(str(config['name']))}", style="cyan")
    tree = Tree(title, guide_style="dim")
    if description := component.get("description") or config.get("description"):
        tree.add(Text(visible(" ".join(str(description).split())), style="italic"))
    for key, value in config.items():
        if key not in ("name", "description"):
            _add(tree, key, value)
    return tree


def _add(tree: Tree, key: str, value: Any) -> None:
    if _is_component(value):
        tree.add(team_tree(value, key.replace("_", " ")))
    elif isinstance(value, list) and value and all(map(_is_component, value)):
        for each in value:
            tree.add(team_tree(each, key.replace("_", " ").removesuffix("s")))
    elif key == "tools" and isinstance(value, list) and all(isinstance(each, str) for each in value):
        for each in value:  # The source of a function.
            heads = [line for line in each.splitlines() if line.startswith(("def ", "async def "))]
            tree.add(Text.assemble(("tool: ", "dim"), _one_line((heads or [each])[0].rstrip(": "))))
    elif value not in (None, "", [], {}):
        listed = isinstance(value, list) and all(isinstance(each, str) for each in value)
        tree.add(Text.assemble((f"{visible(key)}: ", "dim"), _one_line(", ".join(value) if listed else value)))


def _is_component(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("provider"), str)


def _one_line(value: Any) -> str:
    value = str(value).lower() if isinstance(value, bool) else value
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= _LONGEST_SETTING else f"{text[:_LONGEST_SETTING]}…"
