"""Reads unified diffs as models write them: counts may be wrong, and numbers may be missing."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional

_PART = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NO_FILE = "/dev/null"


class Hunk(NamedTuple):
    """A part of a diff: rows that begin with a space, `+` or `-`, and the line where they should be; 0: unknown."""

    line: int
    rows: List[str]
    no_newline: bool


class Change(NamedTuple):
    """What a diff does with a file.

    Attributes:
        old: Its path before; `None`: it is new.
        new: Its path afterwards; `None`: it is removed.
        mode: Its permissions afterwards; `None`: as before.
        hunks: The parts.
    """

    old: Optional[str]
    new: Optional[str]
    mode: Optional[int]
    hunks: List[Hunk]


def parse_diff(diff: str) -> List[Change]:
    """Read a unified diff, of git or of others. What is around it does not count."""
    lines = diff.split("\n")
    if lines[-1] == "":
        lines.pop()
    changes: List[Change] = []
    at = 0
    while at < len(lines):
        at = _read_change(lines, at, changes)
    return changes


def _read_change(lines: List[str], at: int, changes: List[Change]) -> int:
    old: Optional[str] = None
    new: Optional[str] = None
    mode: Optional[int] = None
    known = False  # Whether the paths are known.
    begins = lines[at].startswith("diff --git ")
    while at < len(lines):
        line = lines[at].rstrip("\r")
        if line.startswith("diff --git ") and known:
            break
        if line.startswith(("rename from ", "rename to ")):
            known = True
            if line.startswith("rename from "):
                old = _unquoted(line[12:])
            else:
                new = _unquoted(line[10:])
        elif line.startswith(("new file mode ", "new mode ")):
            mode = int(line.rpartition(" ")[2], 8) & 0o777
            if line.startswith("new file") or begins:
                names = _names(lines, at)
                if names is not None and not known:
                    old, new, known = (None if line.startswith("new file") else names), names, True
        elif line.startswith("deleted file mode "):
            old, new, known = _names(lines, at), None, True
        elif line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            old, new, known = _path(line[4:]), _path(lines[at + 1][4:]), True
            at += 2
            break
        at += 1
        if not begins and known:
            break
    hunks: List[Hunk] = []
    while at < len(lines) and (lines[at].startswith("@@") or (hunks and not lines[at])):
        at = _read_hunk(lines, at, hunks) if lines[at] else at + 1
    if known and (old or new):
        changes.append(Change(old, new, mode, hunks))
    return at


def _read_hunk(lines: List[str], at: int, hunks: List[Hunk]) -> int:
    found = _PART.match(lines[at])
    at += 1
    number, end = 0, None
    if found:
        number = int(found.group(1))
        end = _end_by_counts(lines, at, *(int(each or 1) for each in found.groups()[1:]))
    if end is None:
        end = _end_by_looks(lines, at)
    rows = [line or " " for line in lines[at:end] if line[:1] != "\\"]  # Editors strip the space of an empty line.
    no_newline = any(
        line[:1] == "\\" and before[:1] in " +"
        for before, line in zip(lines[at : end + 1], lines[at + 1 : end + 1])  # noqa: B905
    )
    hunks.append(Hunk(number, rows, no_newline))
    return end


def _end_by_counts(lines: List[str], at: int, old: int, new: int) -> Optional[int]:
    """Where a part ends by the numbers of its lines; `None`: they are wrong."""
    while old > 0 or new > 0:
        sign = (lines[at] or " ")[0] if at < len(lines) else ""
        if sign not in (" ", "+", "-", "\\"):
            return None
        old -= sign in " -"
        new -= sign in " +"
        at += 1
    if old or new:
        return None
    if at < len(lines) and lines[at][:1] == "\\":
        at += 1
    follows = lines[at] if at < len(lines) else ""
    return None if follows[:1] in ("+", " ") or (follows[:1] == "-" and follows[:4] != "--- ") else at


def _end_by_looks(lines: List[str], at: int) -> int:
    begin = at
    while at < len(lines) and lines[at][:1] in ("", " ", "+", "-", "\\"):
        if lines[at].startswith("--- ") and lines[at + 1 : at + 2] and lines[at + 1].startswith("+++ "):
            break
        at += 1
    while at > begin and not lines[at - 1]:  # Empty lines are between this part and what follows.
        at -= 1
    return at


def _names(lines: List[str], at: int) -> Optional[str]:
    """The path in the line `diff --git a/PATH b/PATH` before."""
    while at >= 0 and not lines[at].startswith("diff --git "):
        at -= 1
    if at < 0:
        return None
    both = lines[at][11:]
    half = (len(both) - 1) // 2
    return _path(both[:half]) if both[2:half] == both[half + 3 :] else _path(both.rpartition(" ")[2])


def _path(text: str) -> Optional[str]:
    name = _unquoted(text.split("\t", 1)[0].rstrip("\r "))
    if name == _NO_FILE:
        return None
    return name[2:] if name[:2] in ("a/", "b/") else name


def _unquoted(text: str) -> str:
    if not (text.startswith('"') and text.endswith('"') and len(text) > 1):
        return text
    return (
        text[1:-1]
        .encode("latin-1", "replace")
        .decode("unicode_escape")
        .encode("latin-1", "replace")
        .decode("utf-8", "replace")
    )
