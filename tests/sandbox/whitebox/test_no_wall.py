"""What is said on a machine that cannot build a wall."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.sandbox import Limits, Sandbox, SandboxUnavailable, WallReport, walls
from coderoom.sandbox.walls.base import WallSpec
from coderoom.sandbox.walls.bubblewrap import BubblewrapWall
from coderoom.sandbox.walls.local import Facts


async def test_without_any_wall_each_one_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = AsyncMock(side_effect=lambda name: WallReport(name, False, "It is not here.", "Install it."))
    monkeypatch.setattr(walls, "_probe", missing)
    monkeypatch.setattr(walls, "_chosen", [])
    with pytest.raises(SandboxUnavailable) as caught:
        await Sandbox().start()
    said = str(caught.value)
    assert said.startswith("No wall between code and this machine can be built:\n- bubblewrap: It is not here. Install")
    assert "\n- namespaces: " in said
    assert 'wall="none"' in said


async def test_a_wall_whose_package_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(walls.WALLS, "sandlock", "coderoom_has_no_such_package:Wall")
    with pytest.raises(MissingDependencyError, match="'sandlock' cannot be used: No module named"):
        await Sandbox("sandlock").start()


async def test_a_bwrap_in_the_workspace_is_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr("coderoom.sandbox.walls.bubblewrap._SYSTEM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    # As if it had been tried before, with another workspace.
    monkeypatch.setattr(BubblewrapWall, "_facts", AsyncMock(return_value=Facts()))
    spec = WallSpec(workspace=tmp_path, network=False, env={}, limits=Limits())
    with pytest.raises(Exception, match=r"no `bwrap` on this machine but '.*', which lies in the workspace"):
        await BubblewrapWall().start(spec)
