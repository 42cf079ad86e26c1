"""The measure of what code has written to a workspace."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coderoom.sandbox import Limits
from coderoom.sandbox.guest import processes

from ..places import STRONGEST

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
    assert not disk.is_overdrawn(list, set())
    (tmp_path / "another").write_bytes(b"x" * 24 * MIB)
    assert disk.is_overdrawn(list, set())


@pytest.mark.slow
async def test_a_program_does_not_pay_for_what_others_write(tmp_path: Path) -> None:
    limits = Limits(disk_bytes=MIB)
    async with STRONGEST.sandbox(workspace=tmp_path / "work", limits=limits) as sandbox, sandbox.session() as session:
        await session.run("1")
        (tmp_path / "another's").write_bytes(b"x" * 32 * MIB)
        result = await session.run("sleep 0.5; echo done", language="sh")
        assert (result.stdout, result.limit) == ("done\n", None)
        result = await session.run("head -c 8m /dev/zero > file; sleep 20", language="sh")
        assert result.limit == "disk"
