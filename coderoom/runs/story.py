"""The story of a run: its messages, events and steps as entries of a few kinds.

What something means is decided here, once: whether code ran, whose it was, whether it is tried again, and what was told
before. The terminal, the page of a run, AutoGen Studio, the chat protocol and `coderoom runs diff` render the entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.code_executor import CodeBlock

from coderoom.agents import metadata as keys
from coderoom.blocks import extract_code_blocks
from coderoom.outcome import Outcome
from coderoom.runs.branches import BranchCosts, Branches
from coderoom.runs.journal import EVENT, MESSAGE, TASK, Step
from coderoom.runs.record import network_in
from coderoom.sandbox import NetworkUse
from coderoom.steps import APPROVAL, CODE, MODEL

USER: Final = "user"
"""The source of a task."""
_SAYS_NOTHING: Final = re.compile(
    r"A person( at the terminal)? said \w+\.|Approved\.|Not approved\.|All code is approved here\.|"
    r"A person has said yes to all calls of .* in this session\."
)
"""Reasons without words of anybody."""


@dataclass(frozen=True)
class Entry:
    """Something that is told.

    Attributes:
        source: Who tells it: an agent, or the user.
        text: All that it says, in words.
        branch: The branch that it belongs to; empty outside of one.
        step: The number of its step in the journal; 0 outside of one.
    """

    source: str
    text: str
    branch: str = field(default="", kw_only=True)
    step: int = field(default=0, kw_only=True, compare=False)


class Streamed(Entry):
    """A piece of what a model writes or code prints, which is told again as a whole."""


class Task(Entry):
    """A task begins. The user's words, which tell it too, follow."""


@dataclass(frozen=True)
class Words(Entry):
    """What was said. If it is prose, it may be Markdown; an event is not for other agents."""

    is_prose: bool = True
    is_event: bool = False


@dataclass(frozen=True)
class Heard(Words):
    """A person has said this while the team worked; the agent `by` was the first to get it."""

    by: str = ""


class Thought(Words):
    """What a model thought."""


class Question(Words):
    """A person is asked whether code may run. It shows the code."""


@dataclass(frozen=True)
class Code(Entry):
    """A model has written attempt `number`; without blocks there is nothing to run."""

    number: int
    blocks: Sequence[CodeBlock]


@dataclass(frozen=True)
class Approved(Entry):
    """Somebody has decided whether code may run, or a call be made."""

    approved: bool


class Edit(Code):
    """A person has made this of the code of attempt `number`, before it ran."""


@dataclass(frozen=True)
class Decision(Entry):
    """Whether there is another attempt after attempt `number`, and why."""

    number: int
    again: bool
    reason: str


@dataclass(frozen=True)
class Branching(Entry):
    """Branches have ended, and one of them goes on. `told` has what each of them told, as `Folding` fills it in."""

    facts: Branches
    told: Mapping[str, Sequence[Entry]] = field(default_factory=dict)


@dataclass(frozen=True)
class Output(Entry):
    """Attempt `number` has ended.

    Attributes:
        ran: Whether anything ran.
        is_own: Whether the agent wrote the code itself.
        facts: The metadata of the message.
        files: What the code made, as the journal has it.
        network: The hosts that it asked for, as the journal has them.
    """

    outcome: str
    exit_code: int
    number: int = 1
    ran: bool = True
    is_own: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Mapping[str, Any]] = ()
    network: Sequence[NetworkUse] = ()

    @property
    def end(self) -> str:
        """How it ended, besides the outcome."""
        if keys.CHECKED in self.facts:
            return "stopped by the check of types"
        return f"exit code {self.exit_code}" if self.ran else "not run"


@dataclass(frozen=True)
class Verdict(Entry):
    """A review has ended."""

    approved: bool


@dataclass(frozen=True)
class Summary(Entry):
    """A turn has ended whose code and output were told; only `new` was not."""

    new: str

    @property
    def has_code(self) -> bool:
        """Whether `new` has code, which nobody has run."""
        return any(block.language and not block.is_data for block in extract_code_blocks(self.new))


@dataclass(frozen=True)
class Cell(Entry):
    """A block of a file has run."""

    number: int
    code: str
    language: str
    output: str
    outcome: str
    files: Sequence[Mapping[str, Any]]
    network: Sequence[NetworkUse]


@dataclass(frozen=True)
class Progress(Entry):
    """The generator has done something, an event of this `kind`, with the code it wrote and the tests that failed."""

    code: str
    language: str
    failed: Sequence[str]
    kind: str = ""


@dataclass(frozen=True)
class Check(Entry):
    """The check of a batch has ended; it can be fooled if the answer's code ran in the process that judged it."""

    passed: bool
    can_be_fooled: bool = False


class Story:
    """Tells the messages of a run, in order."""

    def __init__(self) -> None:
        self._wrote: set[str] = set()
        self._ran: set[str] = set()

    def tell(self, message: BaseAgentEvent | BaseChatMessage) -> Entry:
        """The entry for the next message."""
        entry, branch = self._tell(message), message.metadata.get(keys.BRANCH)
        return replace(entry, branch=branch) if branch else entry

    def _tell(self, message: BaseAgentEvent | BaseChatMessage) -> Entry:
        source, text, facts = message.source, message.to_text(), message.metadata
        is_text = isinstance(getattr(message, "content", ""), str)
        match message:
            case ModelClientStreamingChunkEvent():
                return Streamed(source, text)
            case CodeGenerationEvent(retry_attempt=earlier) if facts.get(keys.EVENT) == keys.RETRY_DECISION:
                reason = facts.get(keys.REASON) or text  # Of older journals, the text has it.
                return Decision(source, text, earlier + 1, facts.get(keys.RETRY) == "true", reason)
            case CodeGenerationEvent() if facts.get(keys.EVENT) == keys.BRANCHING:
                return Branching(source, text, Branches.model_validate_json(facts[keys.BRANCHES]))
            case CodeGenerationEvent(retry_attempt=earlier):
                self._wrote.add(source)
                kind = Edit if facts.get(keys.EVENT) == keys.EDITED else Code
                return kind(source, text, earlier + 1, message.code_blocks)
            case CodeExecutionEvent():
                self._ran.add(source)
                return output_of(message, is_own=source in self._wrote)
            case ThoughtEvent():
                return Thought(source, text, is_event=True)
            case BaseAgentEvent():
                return Words(source, text, is_text, is_event=True)
        if facts.get(keys.SHOWN) == "question":
            return Question(source, text)
        has_run = source in self._ran
        self._ran.discard(source)
        if keys.APPROVED in facts:
            return Verdict(source, text, facts[keys.APPROVED] == "true")
        if keys.STOP_REASON in facts and has_run:
            return Summary(source, text, facts.get(keys.SUMMARY, ""))
        if keys.STOP_REASON not in facts and keys.OUTCOME in facts and not has_run:
            # AutoGen's agent without a model answers with the output.
            return Output(source, text, facts[keys.OUTCOME], int(facts.get(keys.EXIT_CODE, 1)))
        if keys.HEARD_BY in facts:
            return Heard(source, text, is_prose=False, by=facts[keys.HEARD_BY])
        return Words(source, text, is_text and source != USER)


class Folding:
    """Keeps what branches tell until they have ended, so that it can be shown under them."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], list[Entry]] = {}

    def fold(self, entry: Entry) -> Entry | None:
        """The entry, at the end of branches with all that they told; `None` if a branch tells it."""
        if entry.branch:
            self._held.setdefault((entry.source, entry.branch), []).append(entry)
            return None
        if isinstance(entry, Branching):
            names = [each.branch for each in entry.facts.branches]
            return replace(entry, told={name: self._held.pop((entry.source, name), ()) for name in names})
        return entry

    def rest(self) -> list[Entry]:
        """What branches have told that did not end."""
        held, self._held = self._held, {}
        return [entry for entries in held.values() for entry in entries]


def output_of(event: CodeExecutionEvent, *, is_own: bool = True) -> Output:
    """The entry for code that has run, or was not allowed to."""
    facts, code = event.metadata, event.result.exit_code
    # AutoGen's agent says no outcome.
    outcome = facts.get(keys.OUTCOME) or (Outcome.ERROR if code else Outcome.OK).value
    ran = facts.get(keys.RAN) != "false"
    return Output(event.source, event.result.output, outcome, code, event.retry_attempt + 1, ran, is_own, facts)


def tell_steps(steps: Iterable[Step]) -> Iterator[Entry]:
    """The entries for the steps of a run in the journal."""
    story = StepStory()
    return (entry for step in steps for entry in story.tell(step))


def tasks_of(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """The steps of each task of a run."""
    task: list[Step] | None = None
    for step in steps:
        if step.kind == TASK:
            if task is not None:
                yield task
            task = []
        if task is not None:
            task.append(step)
    if task is not None:
        yield task


class StepStory:
    """Tells the steps of a run in the journal, in order."""

    def __init__(self) -> None:
        self._story = Story()
        # By the code of each branch: the files and hosts of its next output.
        self._made: dict[str, dict[str, Any]] = {}
        self._costs = BranchCosts()

    def tell(self, step: Step) -> Iterator[Entry]:
        """The entries for the next step."""
        return (replace(entry, step=step.number) for entry in self._tell(step))

    def _tell(self, step: Step) -> Iterator[Entry]:
        source, data = step.actor or step.kind, step.result
        if step.kind == MESSAGE:
            entry = self._story.tell(message_of(step))
            if isinstance(entry, Branching):
                entry = replace(entry, facts=entry.facts.priced(self._costs, source))
            if isinstance(entry, Output):
                entry = replace(entry, **self._made.pop(entry.branch, {}))
            yield entry
        elif step.kind == TASK:
            yield Task(source, data["task"])
        elif step.kind == MODEL and (branch := (step.request or {}).get("branch")):
            self._costs.add(step.actor, branch, step.request.get("priced_as", ""), data["usage"])
        elif step.kind == EVENT and "branches" in data:
            facts = Branches.model_validate(data["branches"]).priced(self._costs, source)
            yield Branching(source, data["text"], facts)
        elif step.kind == EVENT and data.get("kind") != "told":  # It is shown once it is heard.
            code, language = data.get("code", ""), data.get("language", "text")
            failed, branch = data.get("failed", ()), data.get("branch", "")
            yield Progress(source, data["text"], code, language, failed, data.get("type", ""), branch=branch)
        elif step.kind == "verdict":
            yield Check(source, data["why"], data["passed"], data.get("can_be_fooled", False))
        elif step.kind == APPROVAL:
            yield approval_of(step)
        elif step.kind == CODE and "code" in data:  # Of a file, which has no messages.
            code, output = data["code"], data["output"]
            text, files = f"{code}\n{output}", data.get("artifacts") or ()
            used = network_in(data)
            yield Cell(source, text, data["number"], code, data["language"], output, data["outcome"], files, used)
        elif step.kind == CODE:
            branch = (step.request or {}).get("branch", "")
            self._made[branch] = {"files": data.get("artifacts") or (), "network": network_in(data)}


def approval_of(step: Step) -> Approved:
    """The entry for the answer to a question whether something may be done."""
    asked, answer = step.request or {}, step.result
    what = _call_in(asked.get("code", "")) if "name" in asked else "The code"
    edited = "code" in answer
    done = "was allowed" if answer["approved"] else "was not allowed"
    if edited:
        done = f"was allowed as {_call_in(answer['code'])}" if "name" in asked else "was edited and allowed"
    by = f" by {answer['by']}" if answer.get("by") else ""
    always = ", with all later calls of the function in this session" if answer.get("always") else ""
    reason = "" if edited or _SAYS_NOTHING.fullmatch(answer["reason"]) else f": {answer['reason']}"
    approved = answer["approved"] or edited
    return Approved(step.actor, f"{what} {done}{by}{always}{reason}", approved, branch=asked.get("branch", ""))


def _call_in(code: str) -> str:
    return "\n\n".join(block.code for block in extract_code_blocks(code)) or code


def message_of(step: Step) -> BaseAgentEvent | BaseChatMessage:
    """The message that a step has kept."""
    data = {"source": step.actor, "retry_attempt": 0, **step.result}
    try:
        return MessageFactory().create(data)
    except ValueError:  # A type of another package.
        content, facts = data.get("content", ""), data.get("metadata") or {}
        if isinstance(content, str):
            return TextMessage(content=content, source=data["source"], metadata=facts)
        return MultiModalMessage(content=[str(content)], source=data["source"], metadata=facts)
