"""What a person says to a run besides its tasks: code to run, another model, to undo a task. Used by `Run` and `chat`.

The journal keeps it as events, so that a resumed run goes through it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from coderoom.runs.journal import EVENT, TASK, Step
from coderoom.steps import WORDS

_TYPE: Final = "Said"


@dataclass(frozen=True)
class Said:
    """Something that a person has said.

    Attributes:
        kind: A `task`, code to `run` in the session, the `model` from then on, whether to `ask` before code runs, or to
            `undo` what was said before; what is `left` of that, which goes with the next task; and what is `kept` apart
            from the workspace, after something of it was written or taken back. What the team is `told` while it works;
            empty: what no agent has got of it was given back.
        text: The task, or the person's words.
        code: The code to run.
        language: Its language.
        model: The model.
        first: The number of the first step that is undone.
        asks: Whether a person is asked.
        kept: What is kept apart from the workspace then, of `kept_in`.
        changes: How many files that are.
    """

    kind: Literal["task", "run", "model", "ask", "undo", "left", "kept", "told"]
    text: str = ""
    code: str = ""
    language: str = ""
    model: str = ""
    first: int = 0
    asks: bool = False
    kept: str = ""
    changes: int = 0

    def to_json(self) -> dict[str, Any]:
        """It as the data of an event; what is empty is left out."""
        return {"type": _TYPE, **{name: value for name, value in asdict(self).items() if value}}


def undone_in(steps: Iterable[Step]) -> set[int]:
    """The numbers of the steps that a person has undone. What was set for the rest of the run stays."""
    undone: set[int] = set()
    numbers: list[int] = []
    for step in steps:
        if (said := _said(step)) is not None and said.kind == "undo":
            undone.update(number for number in numbers if number >= said.first)
        if said is None or said.kind not in ("model", "ask", "left"):
            numbers.append(step.number)
    return undone


def undoes(step: Step) -> bool:
    """Whether a person has undone something with a step."""
    said = _said(step)
    return said is not None and said.kind == "undo"


def said_in(steps: Sequence[Step]) -> list[Said]:
    """What was said in a run, in order, without what was undone; that something was undone is said, too."""
    undone = undone_in(steps)
    return [said for step in steps if step.number not in undone and (said := _said(step)) is not None]


def not_heard_in(steps: Iterable[Step]) -> list[str]:
    """What was said to a team that worked on its last task, and no agent had got before the run was killed."""
    words: list[str] = []
    for step in steps:
        if step.kind == WORDS:
            words = [each for each in words if each not in step.result]
        elif (said := _said(step)) is not None and said.kind in ("task", "told"):
            words = [*words, said.text] if said.kind == "told" and said.text else []
    return words


def _said(step: Step) -> Said | None:
    if step.kind == TASK:
        return Said("task", step.result["task"])
    if step.kind != EVENT or step.result.get("type") != _TYPE:
        return None
    return Said(**{name: value for name, value in step.result.items() if name != "type"})
