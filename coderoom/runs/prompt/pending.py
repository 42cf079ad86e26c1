"""What code of a chat has changed in an overlay, and nobody has written or taken back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coderoom._util.text import counted
from coderoom.agents import metadata as keys
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs.git import GitFolder, name_of
from coderoom.runs.kept import changes_of, git_folder
from coderoom.runs.record import RunRecord
from coderoom.runs.said import Said
from coderoom.sandbox import Change, Changes, Patch

_LETTERS: Final = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R"}
_NAMED: Final = re.compile(r'^diff --git "?a/.*"? "?b/(.*?)"?$', re.MULTILINE)
_MOST_LISTED: Final = 50


@dataclass(frozen=True)
class Pending:
    """What is kept apart now, without caches and what git ignores; `hidden` says how many changes those are."""

    changes: Changes
    patch: Patch
    hidden: int

    @property
    def paths(self) -> list[str]:
        """Where something has changed."""
        return [change.path for change in self.changes]

    @property
    def state(self) -> list[tuple[Change, str]]:
        """What differs if something has changed since."""
        return [(change, self.patch.parts.get(change.path, "")) for change in self.changes]

    def rows(self) -> list[str]:
        """A line for each change, of which not all may be named."""
        rows = []
        for change in self.changes:
            part = self.patch.parts.get(change.path, "")
            body = part.partition("\n@@")[2].split("\n")
            counts = [sum(line.startswith(sign) for line in body) for sign in "+-"]
            words = (
                "binary"
                if "\nGIT binary patch" in part
                else " ".join(f"{sign}{count}" for sign, count in zip("+-", counts, strict=True) if count)
            )
            more = f" [not written: {change.refused}]" if change.refused else ""
            rows.append(f"  {_LETTERS[change.kind]} {name_of(change.path)}  {words}{more}".rstrip())
        left_out = len(rows) - _MOST_LISTED
        return [*rows[:_MOST_LISTED], *([f"  … and {left_out} more"] if left_out > 0 else [])]


async def pending_in(executor: SandboxCodeExecutor, known: GitFolder) -> Pending:
    """What is kept apart in a folder of which git knows this."""
    kept, hidden = await changes_of(executor, known)
    patch = await executor.diff([change.path for change in kept]) if kept else Patch("")
    return Pending(Changes(tuple(kept)), patch, hidden)


async def left_by(past: Iterable[Said], records: Sequence[RunRecord], folder: Path) -> int:
    """How many changed files were kept apart at the end of a chat that goes on.

    Args:
        past: What was said.
        records: The records of the tasks of that.
        folder: The folder.
    """
    diff, left, tasks = "", 0, iter(records)
    for said in past:
        if said.kind == "kept":
            diff, left = "", said.changes
        elif said.kind == "task" and (record := next(tasks, None)) is not None and not record.cancelled:
            diffs = [message.metadata[keys.CHANGES] for message in record.messages if keys.CHANGES in message.metadata]
            diff, left = diffs[-1] if diffs else "", 0
    if not diff:
        return left
    known, paths = await git_folder(folder), _NAMED.findall(diff)
    ignored = await asyncio.to_thread(known.ignored, paths) if known.is_known else ()
    return len(paths) - len(ignored)


def left_words(count: int) -> str:
    """That changes are kept apart, and the way out."""
    return (
        f"{counted(count, 'changed file')} of this chat {'is' if count == 1 else 'are'} kept apart, and not in the "
        "folder yet: /diff shows the changes, /apply writes them, /drop takes them back."
    )
