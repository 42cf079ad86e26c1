"""Reads entries from CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """Some work of a person on a day."""

    person: str
    day: date
    hours: float


def read(path: Path) -> Iterator[Entry]:
    """Read the entries of a file with the columns `person`, `day`, `from` and `to`."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            person, day = row["person"].strip(), date.fromisoformat(row["day"])
            yield Entry(person, day, hours_between(row["from"], row["to"]))


def hours_between(begin: str, end: str) -> float:
    """The hours from one time to another; work that ends at an earlier time ends on the next day."""
    return (_minutes(end) - _minutes(begin)) % (24 * 60) / 60


def _minutes(text: str) -> int:
    hours, minutes = text.strip().split(":")
    return int(hours) * 60 + int(minutes)
