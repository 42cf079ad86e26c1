"""The story on the page of a run: its turns, each with code, output, files, decisions and verdicts, and its outline."""

from __future__ import annotations

import difflib
import json
import math
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final
from zlib import crc32

from coderoom._util.text import counted, in_dollars
from coderoom.agents import metadata as keys
from coderoom.generation import TestsRun
from coderoom.runs.branches import Branch
from coderoom.runs.journal import Journal, RunEntry, Step, without_files
from coderoom.runs.pages.frame import Parts, badge, code_html, folded_html, prose_html, text_html
from coderoom.runs.pages.run_files import file_html
from coderoom.runs.prose import without_code
from coderoom.runs.said import undone_in
from coderoom.runs.story import (
    USER,
    Approved,
    Branching,
    Cell,
    Check,
    Code,
    Decision,
    Edit,
    Entry,
    Folding,
    Heard,
    Output,
    Progress,
    Question,
    StepStory,
    Summary,
    Task,
    Thought,
    Verdict,
    Words,
)
from coderoom.runs.tables import without_table
from coderoom.steps import MODEL

FOOLED: Final = f" {badge('can be fooled: the code ran in the process that judged it', 'warn')}"
UNRUN: Final = f"<p>{badge('the code in this summary was not run', 'warn')}</p>"
_MOST_LINES: Final = 2_000
_FEW_CALLS: Final = 5
_LONG_TASK: Final = 40
"""A task of more lines, such as a paste, is folded."""
_LONGEST_MARK: Final = 60
"""Characters of a task in the outline."""
_OPEN_LINES: Final = 40
"""A difference with so many lines is open, if most of the code is as before."""
_MOST_HIGHLIGHTED: Final = 20_000
"""Words of code in a page that are highlighted: each is an element, and a browser must keep them all."""


@dataclass(frozen=True)
class _Turn:
    who: str
    head: str
    parts: Parts


@dataclass
class Mark:
    """A line of the outline: where it leads, its words, its level, and how it ended."""

    place: str
    words: str
    level: int
    style: str = ""
    outcome: str = ""


class StoryHtml:
    """The story of a run as HTML, which can be told further.

    Args:
        entry: The run.

    Attributes:
        outline: Its outline.
        shown: The steps that have a place in it.
        places: For each agent, the steps that it told, with the ids of their turns.
        files: The names of the files that code has made, with the ids of what they were at last.
        reviewer: Who gave the last verdict.
        unrun: What says, as HTML, that the last answer has code that was not run; empty if it has none.
        is_whole: Whether it has no branches that have not ended. Else it cannot be told further.
    """

    def __init__(self, entry: RunEntry) -> None:
        self.outline: list[Mark] = []
        self.shown: list[int] = []
        self.places: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self.files: dict[str, str] = {}
        self.reviewer = self.unrun = ""
        self.is_whole = True
        self._entry, self._steps, self._folding = entry, StepStory(), Folding()
        self._journal: Journal
        self._turns: list[_Turn] = []
        self._undone: set[int] = set()
        self._models: Mapping[str, str] = entry.facts.get("models") or {}
        self._before: dict[str, str] = {}  # The code of each agent before.
        self._attempts: dict[str, Mark] = {}  # The line of each agent's last code.
        self._requests: defaultdict[str, deque[int]] = defaultdict(deque)
        self._room = _MOST_HIGHLIGHTED
        self._depth = 0
        self._has_ended = False
        self._at: dict[int, float] = {}  # When the steps that are told now were done.

    def add(self, journal: Journal, steps: Sequence[Step]) -> None:
        """Tell the next steps, which undo none of those before."""
        self._journal = journal
        self._undone |= undone_in(steps)
        self._at |= {step.number: step.at for step in steps}
        for step in steps:
            if step.kind == MODEL and not (step.request or {}).get("branch"):
                self._requests[step.actor].append(step.number)
            for told in self._steps.tell(step):
                self._add(self._folding.fold(told))
        for told in self._folding.rest():
            self.is_whole = False
            self._add(told)
        self.shown.sort()

    def html(self, have: Container[str] = (), *, packed: bool = False) -> str:
        """The story. The arguments are those of the `html` of `Parts`."""
        return "".join(f"{turn.head}{turn.parts.html(have, packed=packed)}</section>" for turn in self._turns)

    # --- Turns ---

    def _add(self, told: Entry | None) -> None:
        if told is None or isinstance(told, Task):  # The user's words follow.
            return
        who = self._speaker(told)
        task = " ".join(without_files(told.text).split())[:_LONGEST_MARK] if who == USER and type(told) is Words else ""
        if not self._turns or self._turns[-1].who != who or self._has_ended:
            place, model = f"turn-{len(self._turns) + 1}", text_html(self._models.get(who))
            self.outline.append(Mark(place, f"{who}: {task}" if task else who, 0))
            title = f"{text_html(who)}{f' <small>{model}</small>' * bool(model)}"
            head = f'<section class="turn" aria-labelledby="{place}"><h2 id="{place}" dir="auto">{title}</h2>'
            self._turns.append(_Turn(who, head, Parts(place)))
        elif task:
            self._mark(told, task)
        self.places[told.source].append((told.step, f"turn-{len(self._turns)}"))
        self._turns[-1].parts.add(self._article(told))
        self._has_ended = isinstance(told, Summary)  # The same agent may have the next turn, too.

    def _speaker(self, told: Entry) -> str:
        match told:
            case Cell():
                return "blocks"
            case Progress() | Branching() if self._entry.command == "solve":
                return "solve"
            case Check():
                return "check"
        return told.source

    def _article(self, told: Entry) -> str:
        """An entry with its place, which others can link to."""
        inner = self._inner(told)
        if told.step in self._undone:
            inner = f"<p>{badge('undone by the person', 'dim')}</p>{inner}"
        self.shown.append(told.step)
        place = f"step-{told.step}"
        asked = self._requests[told.source] or self._requests[""]  # `solve` has no agents.
        links = ""
        while asked and asked[0] < told.step:
            links += f'<a href="#request-{(number := asked.popleft())}">request {number}</a> '
        return (
            f'<article id="{place}" class="entry" tabindex="-1" data-v="{crc32((inner + links).encode())}" '
            f'aria-label="{text_html(_name_of(told))}, step {told.step}">'
            f'<p class="links">{self._when(told.step)} {links}<a href="#{place}">#{told.step}</a></p>{inner}</article>'
        )

    def _when(self, step: int) -> str:
        """The time of day of a step, with its day if that is another one than that of the beginning."""
        began, done = (datetime.fromtimestamp(at).astimezone() for at in (self._entry.started, self._at[step]))
        shown = f"{done:%H:%M:%S}" if done.date() == began.date() else f"{done:%Y-%m-%d %H:%M:%S}"
        return f'<time datetime="{done:%Y-%m-%dT%H:%M:%S%z}">{shown}</time>'

    def _mark(self, told: Entry, words: str, style: str = "", outcome: str = "") -> Mark:
        mark = Mark(f"step-{told.step}", words, 1, style, outcome)
        if not self._depth:  # What branches tell has a line only where they end.
            self.outline.append(mark)
        return mark

    # --- Entries ---

    def _inner(self, told: Entry) -> str:
        match told:
            case Branching():
                return self._branching(told)
            case Cell(code=code, outcome=outcome):
                style = "good" if outcome == "ok" else "bad"
                self._mark(told, f"block {told.number}", style, outcome)
                ended = self._ended(told)
                return f"<h3>block {told.number} {badge(outcome, style)}</h3>{self._code(code, told.language)}{ended}"
            case Progress():
                return self._progress(told)
            case Check(passed=passed):
                style, word = ("good", "passed") if passed else ("bad", "not passed")
                self._mark(told, "check", style, word)
                return f"<p>{badge(word, style)}{FOOLED * told.can_be_fooled}</p>{folded_html(told.text)}"
            case Code(blocks=[_, *_]):
                return self._attempt(told)
            case Output(outcome=outcome):
                return self._output(told, outcome)
            case Approved(text=text, approved=approved):
                style, word = ("good", "allowed") if approved else ("bad", "not allowed")
                self._mark(told, word, style)
                return f"<p>{badge(word, style)}</p>{folded_html(text)}"
            case Decision(again=again, reason=reason):
                word = "tries again" if again else "does not try again"
                return f"<p>{badge(word, 'warn' if again else 'dim')}</p>{prose_html(reason)}"
            case Verdict(approved=approved):
                style, word = ("good", "approved") if approved else ("bad", "not approved")
                self._mark(told, word, style)
                self.reviewer = told.source
                return f"<p>{badge(word, style)}</p>{prose_html(told.text)}"
            case Summary(new=new):
                if new:
                    self._mark(told, "answer")
                self.unrun = UNRUN * told.has_code
                return prose_html(new) + self.unrun if new else '<p class="dim">The turn ends.</p>'
            case Thought():
                return f"<details><summary>thought</summary>{prose_html(told.text)}</details>"
            case Question():
                self._mark(told, "question")
                return f"<p>{badge('a person is asked', 'warn')}</p>{prose_html(told.text)}"
            case Heard(by=agent):
                self._mark(told, "words of the person")
                said = f'<p class="said" dir="auto">{text_html(told.text)}</p>'
                return f"<p>{badge(f'said while the team worked; {agent} got it first', 'dim')}</p>{said}"
            case Words(source="user"):
                self._before.clear()  # A task begins.
                if told.text.count("\n") > _LONG_TASK:
                    return folded_html(told.text)
                return f'<p class="said" dir="auto">{text_html(told.text)}</p>'
            case Words(is_prose=False):
                return folded_html(told.text)
        return prose_html(told.text)

    def _progress(self, told: Progress) -> str:
        who, parts = told.source + told.branch, [f'<p dir="auto">{text_html(told.text)}</p>']
        if told.code:
            self._attempts[who] = self._mark(told, told.text.partition(",")[0])
            parts.append(self._code(told.code, told.language) + self._difference(told.source, told.code))
        if told.failed:
            parts.append(folded_html("\n".join(told.failed), "bad"))
        if told.kind == TestsRun.__name__ and (mark := self._attempts.pop(who, None)):
            mark.style, mark.outcome = ("bad", "failed") if told.failed else ("good", "passed")
        return "".join(parts)

    def _attempt(self, told: Code) -> str:
        code = "\n\n".join(block.code for block in told.blocks)
        words, is_without = without_code(told.text, [block.code for block in told.blocks])
        around = (
            prose_html(words) if is_without else f"<details><summary>reply</summary>{prose_html(told.text)}</details>"
        )
        self._attempts[told.source + told.branch] = self._mark(told, f"attempt {told.number}")
        shown = "".join(self._code(block.code, block.language) for block in told.blocks)
        edited = ", edited by a person" if isinstance(told, Edit) else ""
        return f"<h3>attempt {told.number}{edited}</h3>{around}{shown}{self._difference(told.source, code)}"

    def _output(self, told: Output, outcome: str) -> str:
        style = "good" if outcome == "ok" else "bad"
        mark = self._attempts.pop(told.source + told.branch, None) or self._mark(told, "output")
        mark.style, mark.outcome = style, outcome
        end = "" if told.ran else f" {text_html(told.end)}"
        calls = _calls(json.loads(told.facts.get(keys.CALLS, "[]")))
        return f"<p>{badge(outcome, style)}{end}</p>{self._ended(told)}{calls}"

    def _branching(self, told: Branching) -> str:
        old, last = self._before.get(told.source, ""), dict[str, str]()
        self._mark(
            told,
            f"branching {told.facts.branching}",
            "good" if told.facts.won else "bad",
            "goes on" if told.facts.won else "ended",
        )
        items = ""
        self._depth += 1
        for each in told.facts.branches:
            self._before[told.source] = old
            inner = "".join(self._article(one) for one in told.told.get(each.branch, ()))
            last[each.branch] = self._before.get(told.source, "")
            items += _branch(each, inner, won=each.branch == told.facts.won)
        self._depth -= 1
        self._before[told.source] = last.get(told.facts.won or "", old)
        return f'<h3>{text_html(told.facts.title)}</h3><ul class="branches">{items}</ul>'

    # --- Parts of entries ---

    def _code(self, code: str, language: str) -> str:
        marked = code_html(code, language if self._room > 0 else "")
        self._room -= marked.count("<span")
        button = '<button type="button" class="copy scripted" aria-label="Copy the code">Copy</button>'
        return f'<div class="code-box">{button}{marked}</div>'

    def _difference(self, source: str, code: str) -> str:
        old, self._before[source] = self._before.get(source, ""), code
        lines = old.splitlines(), code.splitlines()
        if not old or max(map(len, lines)) > _MOST_LINES:  # A comparison takes more than linear time.
            return ""
        changes = list(difflib.unified_diff(*lines, "before", "now", lineterm=""))[2:]
        if not changes:
            return ""
        added, removed = (sum(line[:1] == sign for line in changes) for sign in "+-")
        is_open = " open" * (len(changes) <= _OPEN_LINES and added <= len(lines[1]) / 2)
        marked = "".join(_changed(sign, group) for sign, group in groupby(changes, lambda line: line[:1]))
        words = f"what has changed: {counted(added, 'line')} added, {removed} removed"
        shown = f'<pre class="diff" tabindex="0">{marked}</pre>'
        return f'<details class="changes"{is_open}><summary>{words}</summary>{shown}</details>'

    def _ended(self, told: Cell | Output) -> str:
        """What code has printed, with the files that it has shown in their places, and then all other files."""
        output, network = told.output if isinstance(told, Cell) else told.text, told.network
        style = "good" if told.outcome == "ok" else "bad"
        parts, begin = list[str](), 0
        files = sorted(told.files, key=lambda file: math.inf if file.get("position") is None else file["position"])
        for number, file in enumerate(files, 1):
            end = len(output) if file.get("position") is None else file["position"]
            data = self._journal.content(self._entry.id, file.get("hash") or "")
            text = output[begin:end]
            if file["media_type"] == "text/html" and file.get("position") is not None:
                text = without_table(text, data.decode("utf-8", "replace"))
            if text.strip():
                parts.append(folded_html(text, style))
            begin = max(begin, end)
            self.files[file["name"]] = place = f"file-{told.step}-{number}"
            parts.append(file_html(file, data, place))
        if output[begin:].strip():
            parts.append(folded_html(output[begin:], style))
        elif not output.strip():
            parts.append('<p class="dim">(no output)</p>')
        if network:
            refused = sum(bool(use.why) for use in network)
            lines = "\n".join(map(str, network))
            words = f"network: {len(network)} hosts" + f", {refused} refused" * bool(refused)
            is_open = " open" * bool(refused)
            parts.append(f"<details{is_open}><summary>{words}</summary><pre>{text_html(lines)}</pre></details>")
        return "".join(parts)


def outline_html(outline: Iterable[Mark], have: Container[str] = ()) -> str:
    """The outline as links, with a sign for how each ended."""
    parts = Parts("outline", tag="ol")
    for mark in outline:
        outcome = f" <small>{text_html(mark.outcome)}</small>" if mark.outcome else ""
        link = f'<a href="#{mark.place}" class="{mark.style}" dir="auto">{text_html(mark.words)}{outcome}</a>'
        parts.add(f'<li class="level-{mark.level}">{link}</li>')
    return parts.html(have)


def _name_of(told: Entry) -> str:
    match told:
        case Code():
            return f"{told.source}, attempt {told.number}"
        case Output():
            return f"{told.source}, output: {told.outcome}"
        case Cell():
            return f"block {told.number}: {told.outcome}"
        case Verdict():
            return f"{told.source}, verdict"
        case Approved():
            return f"{told.source}, approval"
        case Decision():
            return f"{told.source}, decision"
        case Heard():
            return "words of the person"
    return "task" if told.source == USER else told.source


def _calls(calls: Sequence[str]) -> str:
    """The calls of functions of the host that code has made; some few can be seen at once."""
    is_open = " open" * (len(calls) <= _FEW_CALLS)
    listed = "".join(f'<li dir="auto"><code>{text_html(call)}</code></li>' for call in calls)
    words = counted(len(calls), "call") + " of functions"
    return f"<details{is_open}><summary>{words}</summary><ol>{listed}</ol></details>" if calls else ""


def _changed(sign: str, lines: Iterable[str]) -> str:
    tag, text = {"+": "ins", "-": "del"}.get(sign, "span"), "\n".join(lines)
    return f"<{tag}>{text_html(text)}</{tag}>"


def _branch(branch: Branch, told: str, *, won: bool) -> str:
    """What came of a branch, and behind it what it told, which is open if it goes on."""
    style, outcome = "good" if branch.outcome == "ok" else "bad", branch.outcome or "no code"
    cost = "" if branch.cost_usd is None else f", {in_dollars(branch.cost_usd)}"
    used = f"{branch.input_tokens + branch.output_tokens:,} tokens{cost}, {branch.seconds:.1f} s"
    line = (
        f"<b>{text_html(branch.number)}</b> {badge(outcome, style)} {text_html(branch.verdict)}"
        f'{" <b>goes on</b>" * won} <span class="dim">{used} {text_html(branch.variation)}</span>'
    )
    is_open = " open" * won
    return f"<li>{f'<details{is_open}><summary>{line}</summary>{told}</details>' if told else line}</li>"
