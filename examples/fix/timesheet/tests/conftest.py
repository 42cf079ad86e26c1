"""A file of entries, as the clock writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

ENTRIES = """\
person,day,from,to
Ada,2025-12-29,08:30,16:45
Ada,2026-01-02,09:00,12:00
Bert,2025-12-22,22:00,06:00
Bert,2025-12-28,10:00,14:30
Bert,2026-01-05,08:00,16:00
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "entries.csv"
    path.write_text(ENTRIES, encoding="utf-8")
    return path
