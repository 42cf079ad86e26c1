"""The environment of a project: found without running anything of it, and its programs run behind a wall."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox, find_environment


@pytest.fixture(autouse=True)
def _nothing_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def make_environment(folder: Path) -> Path:
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("wall", ["bubblewrap", "namespaces"])
@pytest.mark.parametrize("inside", [True, False])
async def test_programs_of_a_project_run_with_its_packages_and_see_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wall: str, inside: bool
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "ours.py").write_text("answer, file = 42, __file__\n")
    (tmp_path / "secret").write_text("hidden")
    environment = make_environment(project / ".venv" if inside else tmp_path / "elsewhere")
    site = next(environment.glob("lib/python3*/site-packages"))
    (site / "editable.pth").write_text(f"{project / 'src'}\n")
    program = environment / "bin" / "answers"
    program.write_text(f"#!{environment / 'bin' / 'python'}\nfrom ours import *\nprint(answer, file)\n")
    program.chmod(0o755)
    if not inside:
        monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    found = find_environment(project)
    assert found is not None
    assert found.folder == environment
    code = f"cat {tmp_path}/secret; answers; command -v python; echo $VIRTUAL_ENV; touch {environment}/new && echo new"
    async with Sandbox(wall, workspace=project, workspace_mode="overlay", environment=environment) as sandbox:
        lines = (await sandbox.run(code, language="sh")).stdout.splitlines()
    assert lines[:3] == [f"42 {project}/src/ours.py", f"{environment}/bin/python", str(environment)]
    assert lines[3:] == (["new"] if inside else [])  # What is in the workspace is changed in the overlay.
    assert not (environment / "new").exists()


def test_what_a_project_brings_shows_code_nothing_of_this_machine(tmp_path: Path) -> None:
    private, project = tmp_path / "private", tmp_path / "project"
    for folder in (private / "bin", project):
        folder.mkdir(parents=True)
    python = private / "bin" / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    (private / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (project / ".venv").symlink_to(private)
    assert find_environment(project) is None
    (project / ".venv").unlink()
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").write_text("")
    (project / ".venv" / "pyvenv.cfg").write_text(f"home = {private / 'bin'}\n")
    with pytest.raises(RequestError, match="not a folder of Python alone"):
        find_environment(project)
    (project / ".venv" / "bin" / "python").unlink()
    (project / ".venv" / "bin" / "python").symlink_to(python)
    with pytest.raises(RequestError, match="not a folder of Python alone"):
        find_environment(project)


def test_the_active_environment_comes_before_those_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, active = tmp_path / "project", make_environment(tmp_path / "active")
    project.mkdir()
    assert find_environment(project) is None
    (project / "venv").symlink_to(make_environment(project / "made"))
    own = find_environment(project)
    assert own is not None
    assert own.folder == project / "venv"
    assert own.version == ".".join(map(str, sys.version_info[:3]))
    monkeypatch.setenv("VIRTUAL_ENV", str(active))
    found = find_environment(project)
    assert found is not None
    assert found.folder == active
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)  # Where this runs, which is no choice for the project.
    assert find_environment(project) == own
