"""Sums by person and week, as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from timesheet.entries import Entry
from timesheet.weeks import week_of


def sums(entries: Iterable[Entry]) -> dict[tuple[str, str], float]:
    """The hours by week and person, in this order."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for entry in entries:
        found[week_of(entry.day), entry.person] += entry.hours
    return dict(sorted(found.items()))


def table(entries: Iterable[Entry]) -> str:
    """The sums as lines of text."""
    return "\n".join(f"{week}  {person:<12}{hours:6.2f}" for (week, person), hours in sums(entries).items())
