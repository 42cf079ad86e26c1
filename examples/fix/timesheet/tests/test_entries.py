"""Tests of reading."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from timesheet.entries import Entry, hours_between, read


def test_entries_are_read(file: Path) -> None:
    first, *_, last = read(file)
    assert first == Entry("Ada", date(2025, 12, 29), 8.25)
    assert last == Entry("Bert", date(2026, 1, 5), 8.0)


@pytest.mark.parametrize(("end", "hours"), [("22:00", 0), ("22:45", 0.75), ("06:00", 8)])
def test_hours(end: str, hours: float) -> None:
    assert hours_between("22:00", end) == hours
