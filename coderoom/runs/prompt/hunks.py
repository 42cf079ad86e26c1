"""The hunks of a changed text file, of which a person takes some. Used where changes are accepted."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

_HEAD: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NO_NEWLINE: Final = "\\ No newline at end of file"
_ONLY_LINES: Final = ("diff --git ", "index ", "--- a/", '--- "a/', "+++ b/", '+++ "b/')
ANSWERS: Final = ("y", "n", "a", "d", "q")


@dataclass(frozen=True)
class Hunk:
    """A part of the diff of a file.

    Attributes:
        lines: Its lines, the first of which says where it is.
        begin: How many lines of the old file are before it.
        old: Its lines of the old file, with their ends.
        new: Those that replace them.
    """

    lines: Sequence[str]
    begin: int
    old: Sequence[bytes]
    new: Sequence[bytes]


def hunks_of(part: str) -> list[Hunk]:
    """The hunks of the diff of one file; none unless it changes nothing but lines of a text."""
    head, *rest = re.split(r"^(?=@@ -)", part, flags=re.M)
    if not all(line.startswith(_ONLY_LINES) for line in head.splitlines()):
        return []
    # A line of the file cannot begin with `@@`: each has a sign before it.
    return [found for text in rest if (found := _hunk(text)) is not None]


def _hunk(text: str) -> Hunk | None:
    lines = text.removesuffix("\n").split("\n")
    head = _HEAD.match(lines[0])
    if head is None:
        return None
    old: list[bytes] = []
    new: list[bytes] = []
    last: list[list[bytes]] = []
    for line in lines[1:]:
        if line == _NO_NEWLINE:
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        last = {"-": [old], "+": [new]}.get(line[:1], [old, new])
        for side in last:
            side.append(f"{line[1:]}\n".encode())
    begin = int(head[1]) - (1 if old else 0)  # Of nothing, the line before is named.
    return Hunk(lines, begin, tuple(old), tuple(new))


def with_hunks(old: bytes, hunks: Collection[Hunk]) -> bytes:
    """A file with some of the hunks of its diff.

    Raises:
        ValueError: It is not the file of this diff.
    """
    lines, at, made = re.findall(rb"[^\n]*\n|[^\n]+", old), 0, list[bytes]()
    for hunk in sorted(hunks, key=lambda hunk: hunk.begin):
        end = hunk.begin + len(hunk.old)
        if hunk.begin < at or tuple(lines[hunk.begin : end]) != hunk.old:
            raise ValueError("The file is not the one of this diff.")
        made += [*lines[at : hunk.begin], *hunk.new]
        at = end
    return b"".join([*made, *lines[at:]])


async def choose(hunks: Sequence[Hunk], ask: Callable[[Hunk, int], Awaitable[str]]) -> tuple[list[Hunk], bool]:
    """Ask about one hunk after the other, as `git add -p` does.

    Args:
        hunks: All of a file.
        ask: Shows a hunk, with its number, and returns one of `ANSWERS`.

    Returns:
        The hunks that are taken, and whether the person has ended the questions, also about other files.
    """
    taken = []
    for number, hunk in enumerate(hunks, start=1):
        answer = await ask(hunk, number)
        if answer == "y":
            taken.append(hunk)
        elif answer == "a":
            return [*taken, *hunks[number - 1 :]], False
        elif answer in ("d", "q"):
            return taken, answer == "q"
    return taken, False
