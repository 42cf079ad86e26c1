"""Tests of the report."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from timesheet.entries import Entry, read
from timesheet.report import sums, table


class TestSums:
    def test_days_of_a_week_are_added(self) -> None:
        entries = [Entry("Ada", date(2026, 2, day), 7.5) for day in (9, 10, 15)]
        assert sums(entries) == {("2026-W07", "Ada"): 22.5}

    def test_a_week_belongs_to_one_year(self, file: Path) -> None:
        assert sums(read(file)) == {
            ("2025-W52", "Bert"): 12.5,
            ("2026-W01", "Ada"): 11.25,
            ("2026-W02", "Bert"): 8.0,
        }

    def test_january_may_begin_in_the_last_week(self) -> None:
        assert list(sums([Entry("Ada", date(2027, 1, 1), 4.0)])) == [("2026-W53", "Ada")]


def test_the_table_is_in_order(file: Path) -> None:
    assert table(read(file)).splitlines() == [
        "2025-W52  Bert         12.50",
        "2026-W01  Ada          11.25",
        "2026-W02  Bert          8.00",
    ]
