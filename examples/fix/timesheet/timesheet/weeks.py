"""Calendar weeks, which begin on Monday."""

from __future__ import annotations

from datetime import date


def week_of(day: date) -> str:
    """The calendar week of a day as in ISO 8601, such as `2026-W07`."""
    return day.strftime("%Y-W%V")
