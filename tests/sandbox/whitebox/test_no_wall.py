"""What is said on a machine that cannot build a wall."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.sandbox import Limits, Sandbox, SandboxConfig, SandboxUnavailable, walls
from coderoom.sandbox.walls import namespaces
from coderoom.sandbox.walls.namespaces import BubblewrapWall

MISSING = "coderoom_has_no_such_package:Wall"


async def test_without_any_wall_each_one_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walls, "WALLS", dict.fromkeys(walls.WALLS, MISSING))
    monkeypatch.setattr(walls, "_chosen", [])
    with pytest.raises(SandboxUnavailable) as caught:
        await Sandbox().start()
    said = str(caught.value)
    assert said.startswith(
        "No wall between code and this machine can be built:\n- bubblewrap: The wall 'bubblewrap' cannot"
    )
    assert "\n- namespaces: " in said
    assert 'wall="none"' in said


async def test_a_wall_whose_package_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(walls.WALLS, "sandlock", MISSING)
    with pytest.raises(MissingDependencyError, match="'sandlock' cannot be used: No module named"):
        await Sandbox("sandlock").start()


async def test_a_bwrap_in_the_workspace_is_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = await BubblewrapWall().probe()
    if not report.available:
        pytest.skip(report.detail)
    other, workspace = tmp_path / "other", tmp_path / "workspace"
    other.mkdir()
    workspace.mkdir()
    worker = await BubblewrapWall().start(SandboxConfig(workspace=other, network=False, env={}, limits=Limits()))
    await worker.end()
    program = workspace / "bwrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(namespaces, "_SYSTEM_PATH", str(workspace))
    monkeypatch.setenv("PATH", str(workspace))
    spec = SandboxConfig(workspace=workspace, network=False, env={}, limits=Limits())
    with pytest.raises(SandboxUnavailable, match=r"no `bwrap` on this machine but '.*', which lies in the workspace"):
        await BubblewrapWall().start(spec)
