"""What a run has said and done, in order: what all exports of it are made of. It follows the story of the run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from coderoom._util.text import in_dollars, visible
from coderoom.outcome import Outcome
from coderoom.runs.journal import EVENT, RunEntry, Step, without_files
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
    Entry,
    Folding,
    Output,
    Progress,
    Question,
    Summary,
    Task,
    Verdict,
    tell_steps,
)
from coderoom.steps import CODE, MODEL

PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LONGEST_TITLE: Final = 100


@dataclass(frozen=True)
class Said:
    """Something that was said or decided.

    Attributes:
        source: Who said it; empty for what the generator tells.
        text: The words.
        is_prose: Whether they may be Markdown.
    """

    source: str
    text: str
    is_prose: bool = False


@dataclass
class Ran:
    """Code that has run.

    Attributes:
        title: Which code it is.
        blocks: The language and the code of each block.
        output: What it printed.
        outcome: How it ended.
        files: What it made, as the journal has it.
        functions: The functions of the host that it called.
        undone: Whether variables and files became again what they were before.
    """

    title: str
    blocks: Sequence[tuple[str, str]]
    output: str
    outcome: str
    files: Sequence[Mapping[str, Any]] = ()
    functions: Sequence[str] = ()
    undone: bool = field(default=False, kw_only=True)

    @property
    def ended(self) -> str:
        """How it ended, in words."""
        return f"{self.outcome}, and undone" if self.undone else self.outcome

    def shown(self) -> Iterator[str | Mapping[str, Any]]:
        """The output, with the files that the code has shown in their places, and then all other files."""
        begin = 0
        for file in sorted(self.files, key=_place):
            end = len(self.output) if file.get("position") is None else file["position"]
            if self.output[begin:end].strip():
                yield self.output[begin:end]
            begin = max(begin, end)
            yield file
        if self.output[begin:].strip():
            yield self.output[begin:]


Part = Said | Ran


def _place(file: Mapping[str, Any]) -> float:
    return math.inf if file.get("position") is None else float(file["position"])


def parts_of(entry: RunEntry, steps: Sequence[Step]) -> list[Part]:
    """What a run has said and done; of branches, only what those did that won."""
    parts: list[Part] = [] if entry.command != "solve" else [Said(USER, entry.task)]
    for part in _told(steps):
        last = parts[-1] if parts else None
        if isinstance(part, Ran):
            _leave_out_code(parts, [code for _, code in part.blocks])
        if isinstance(part, Ran) or part.is_prose:
            parts.append(part)
        elif isinstance(last, Said) and not last.is_prose and last.source == part.source:
            parts[-1] = Said(part.source, f"{last.text}\n{part.text}")
        else:
            parts.append(part)
    return [part for part in [*parts, *_solution(entry, steps)] if isinstance(part, Ran) or part.text.strip()]


def _leave_out_code(parts: list[Part], code: Sequence[str]) -> None:
    """Take code that has run out of the words before it, of the agent that wrote it for another one."""
    for at, part in reversed(list(enumerate(parts))):
        if isinstance(part, Ran):
            return
        if part.is_prose:
            parts[at] = replace(part, text=without_code(part.text, code)[0])
            return


def _told(steps: Sequence[Step]) -> Iterator[Part]:
    ran: list[Ran] = []
    code: dict[str, Step] = {}  # What each branch ran last.
    of_output: dict[int, Step] = {}
    given, undone = _given(steps), undone_in(steps)
    of_person = {step.number for step in given.values()}

    def noted() -> Iterator[Step]:
        for step in steps:
            if step.kind == CODE and step.number not in of_person:
                code[(step.request or {}).get("branch", "")] = step
            elif step.kind == "undo" and ran:
                ran[-1].undone = True
            yield step

    def ran_in(step: Step, title: str, output: str, outcome: str) -> Ran:
        blocks = [(language, text) for language, text in step.request["blocks"]]
        files = step.result.get("artifacts") or ()
        calls = [each["name"] for each in step.result.get("calls") or ()]
        return Ran(title, blocks, output, outcome, files, calls, undone=step.number in undone)

    def parts(told: Entry) -> Iterator[Part]:
        match told:
            case Task() | Question() | Code(blocks=[]):
                pass
            case Branching(facts=facts):
                yield Said(told.source, facts.title)
                for one in told.told.get(facts.won or "", ()):
                    yield from parts(one)
            case Cell(code=text):
                blocks = [(told.language, text)]
                yield Ran(f"block {told.number}", blocks, told.output, told.outcome, told.files)
            case Output(ran=False):
                yield Said(told.source, f"The code was not run: {told.text}")
            case Output():
                title, step = f"{told.source}, attempt {told.number}", of_output.get(id(told))
                if step is None:
                    ran.append(Ran(title, [], told.text, told.outcome, told.files))
                else:
                    ran.append(ran_in(step, title, told.text, told.outcome))
                yield ran[-1]
            case Progress(step=number) if number in given:  # Of a person, in a chat.
                step = given[number]
                yield ran_in(step, f"{told.source}: {told.text}", step.result["output"], step.result["outcome"])
            case Code(blocks=blocks):
                yield Said(told.source, without_code(told.text, [each.code for each in blocks])[0], is_prose=True)
            case Approved(text=text):
                yield Said(told.source, text)
            case Decision(again=again, reason=reason):
                yield Said(told.source, f"{'Another attempt' if again else 'No further attempt'}: {reason}")
            case Verdict(approved=approved):
                is_said = approved or told.text.lower().startswith("not approved")
                yield Said(told.source, told.text if is_said else f"Not approved: {told.text}")
            case Summary(new=new):
                yield Said(told.source, new, is_prose=True)
            case Check(passed=passed):
                yield Said("check", f"{'Passed' if passed else 'Not passed'}: {told.text}")
            case Progress(failed=failed):
                yield Said("", "\n".join([told.text, *failed]))
            case _:
                yield Said(told.source, told.text, is_prose=told.source != USER)

    folding = Folding()
    for each in tell_steps(noted()):
        if isinstance(each, Output) and (step := code.pop(each.branch, None)) is not None:
            of_output[id(each)] = step
        if (told := folding.fold(each)) is not None:
            yield from parts(told)


def _given(steps: Sequence[Step]) -> dict[int, Step]:
    """Code that a person has had run in a chat, by the number of the step that says so."""
    given: dict[int, Step] = {}
    asked = 0
    for step in steps:
        if step.kind == EVENT:
            asked = step.number if step.result.get("kind") == "run" else 0
        elif step.kind == CODE and asked:
            given[asked], asked = step, 0
    return given


def _solution(entry: RunEntry, steps: Sequence[Step]) -> list[Ran]:
    """The functions that `solve` has written, as code."""
    written = dict(entry.facts.get("implementations") or {})
    if not written and entry.command == "solve":  # It has not ended: what it wrote last.
        written = {step.actor: step.result["code"] for step in steps if "code" in step.result}
    language = str(entry.facts.get("language") or "python")
    return [Ran(name, [(language, code)], "", Outcome.OK.value) for name, code in written.items()]


def title_of(entry: RunEntry) -> str:
    """The beginning of the task, or the name of the file, in a line."""
    return " ".join(visible(without_files(entry.task) or entry.name).split())[:_LONGEST_TITLE]


def facts_of(entry: RunEntry, steps: Sequence[Step]) -> dict[str, str]:
    """What a reader wants to know first, each in a line."""
    facts = entry.facts
    used = [step.result["usage"] for step in steps if step.kind == MODEL]
    tokens = sum(each["prompt_tokens"] + each["completion_tokens"] for each in used)
    cost = facts.get("cost_usd")
    rows = {
        "run": entry.id,
        "file" if entry.command == "exec" else "team": entry.name,
        "model": entry.model or ", ".join(sorted(set((facts.get("models") or {}).values()))),
        "began": f"{datetime.fromtimestamp(entry.started).astimezone():%Y-%m-%d %H:%M:%S %Z}",
        "outcome": entry.state,
        "tokens": f"{tokens:,}{'' if cost is None else f', {in_dollars(cost)}'}" if tokens else "",
        "folder": str(entry.request.get("workspace") or facts.get("workspace") or ""),
    }
    return {name: " ".join(visible(value).split()) for name, value in rows.items() if value}
