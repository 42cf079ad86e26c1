"""What becomes of changes that code has made in a workspace that stays as it is, at the end of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.sandbox import Changes, Committed, Patch

Ask = Callable[[Changes, Patch], Awaitable[str]]
"""Asks whether changes may be written; returns why not, or an empty text."""

NOT_ASKED = "The workspace stays as it is; --review asks whether the changes are written into it."


class HasChanges(Protocol):
    """A session or an executor whose changes are kept apart."""

    async def changes(self) -> Changes:
        """List them."""

    async def diff(self) -> Patch:
        """Make a patch of them."""

    async def commit(self, patch: Patch, /) -> Committed:
        """Write them into the workspace, if they are those of the patch."""


@dataclass(frozen=True)
class Reviewed:
    """The changes, and what became of them.

    Attributes:
        changes: What has changed, a line for each path.
        diff: The same as a patch that `git apply` takes.
        written: Whether they are in the workspace now.
        why: Why they are not, or what of them is not.
    """

    changes: Sequence[str]
    diff: str
    written: bool = False
    why: str = ""

    def __str__(self) -> str:
        state = ["These changes are in the workspace."] if self.written else []
        return "\n".join([*self.changes, *state, *([self.why] if self.why else [])])

    def to_json(self) -> dict[str, Any]:
        """The facts, as JSON-like data."""
        return asdict(self)


async def review(owners: Iterable[HasChanges], ask: Ask | None) -> Reviewed | None:
    """Ask whether changes may be written, and write them; `None` if there are none."""
    found = None
    for owner in owners:
        changes = await owner.changes()
        if not len(changes) and not changes.left_out:
            continue
        patch = await owner.diff()
        why, written = NOT_ASKED if ask is None else await ask(changes, patch), False
        if not why:
            try:
                committed = await owner.commit(patch)
                written = True
                why = "\n".join(map(str, committed.refused))
            except RequestError as error:
                why = str(error)
        lines = encodable(str(changes)).splitlines()
        if found is None:
            found = Reviewed(lines, str(patch), written, why)
        else:  # Of a team with several executors.
            reasons = "\n".join(filter(None, (found.why, why)))
            found = Reviewed([*found.changes, *lines], found.diff + str(patch), found.written and written, reasons)
    return found


def asking_a_person(folder: Path, first: str = "") -> Ask:
    """Ask the person at the terminal, who is told something first."""

    async def ask(changes: Changes, patch: Patch) -> str:
        from coderoom.approval import HumanApproval, approve_changes  # AutoGen takes a second to be imported.

        prompt = f"{first}Write these changes into {str(folder)!r}?"
        answer = await approve_changes(HumanApproval(timeout=None, prompt=prompt), changes, patch)
        return "" if answer.approved else f"Not written: {answer.reason}"

    return ask
