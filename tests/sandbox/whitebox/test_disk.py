"""The measure of what code has written to a workspace."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coderoom.sandbox.guest import processes

MIB = 1 << 20


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_the_clock_of_this_machine_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    # A server of files has its own clock; code can set some times of a file, but not the one that counts.
    (tmp_path / "old").write_bytes(b"x" * 8 * MIB)
    time.sleep(0.15)
    now = time.time() + ahead
    monkeypatch.setattr(time, "time", lambda: now)
    changed = tmp_path.stat().st_mtime_ns
    disk = processes.Disk(str(tmp_path), 12 * MIB)
    assert tmp_path.stat().st_mtime_ns == changed
    (tmp_path / "one").write_bytes(b"x" * 8 * MIB)
    os.utime(tmp_path / "one", (0, 0))
    assert not disk.is_overdrawn([])
    (tmp_path / "another").write_bytes(b"x" * 24 * MIB)
    assert disk.is_overdrawn([])
