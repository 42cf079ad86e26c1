"""What is said on a machine that cannot build a wall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox, SandboxConfig, SandboxUnavailable, WallReport, walls
from coderoom.sandbox.walls import namespaces
from coderoom.sandbox.walls.docker.wall import DockerWall
from coderoom.sandbox.walls.local import ProbedWall
from coderoom.sandbox.walls.namespaces import BubblewrapWall
from tests.support.commands import coderoom, recording


async def missing(wall: Any) -> WallReport:
    return WallReport(wall.name, available=False, detail="It is not there.", remedy="Get it.")


async def test_without_any_wall_each_one_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (ProbedWall, DockerWall):
        monkeypatch.setattr(kind, "probe", missing)
    monkeypatch.setattr(walls, "_chosen", [])
    with pytest.raises(SandboxUnavailable) as caught:
        await Sandbox().start()
    said = str(caught.value)
    assert said.startswith(
        "No wall between code and this machine can be built:\n- bubblewrap: It is not there. Get it.\n- namespaces: It"
    )
    assert 'wall="none"' in said


@pytest.mark.parametrize("command", [["mcp", "--http", "0"], ["serve", "code-act"], ["batch", "code-act", "t.jsonl"]])
def test_doors_and_batches_refuse_to_start_without_any_wall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    for kind in (ProbedWall, DockerWall):
        monkeypatch.setattr(kind, "probe", missing)
    monkeypatch.setattr(walls, "_chosen", [])
    (tmp_path / "t.jsonl").write_text('{"task": "Go."}\n')
    more = [] if command[0] == "mcp" else ["--model", recording(tmp_path / "r.json", ["Done."])]
    more += ["--out", "out"] if command[0] == "batch" else []
    done = coderoom(*command, *more, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("coderoom: No wall between code and this machine can be built:\n- bubblewrap: It is")
    assert (done.stdout, done.stderr.count("Get it.")) == ("", 5)


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
