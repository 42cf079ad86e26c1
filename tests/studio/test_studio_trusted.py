"""Packages of the user's in Studio: they come with what they need."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.studio.driving import Studio
from tests.studio.teams import CODING, EXECUTOR, agent, part, replay, sandbox, team
from tests.support.commands import ROOT, coderoom_process
from tests.support.studio import start_studio, studio_python

pytestmark = pytest.mark.studio

CONDITIONS = """\
from autogen_agentchat.conditions import TextMentionTermination

from gauge import THICK


class Finished(TextMentionTermination):
    \"\"\"Ends a run.\"\"\"

    component_provider_override = "parts.conditions.Finished"

    async def __call__(self, messages):
        stop = await super().__call__(messages)
        if stop is not None:
            stop.content = THICK
        return stop
"""
NEEDS = ["gauge>=1,<2", "pydantic>=2", "autogen-agentchat>=0.7", "coderoom", 'nowhere; extra == "never"']


def wheel(folder: Path, name: str, files: Mapping[str, str], needs: Sequence[str] = ()) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "Provides-Extra: never"]
    with zipfile.ZipFile(path, "w") as file:
        for place, text in files.items():
            file.writestr(place, text)
        file.writestr(f"{info}/METADATA", "\n".join([*head, *(f"Requires-Dist: {need}" for need in needs), ""]))
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def install(folder: Path, needs: Sequence[str] = NEEDS) -> Path:
    """Install `parts` and what is around it, as pip does it, into a folder of its own."""
    wheels = [
        wheel(folder, "parts", {"parts/__init__.py": "", "parts/conditions.py": CONDITIONS}, needs),
        wheel(folder, "gauge", {"gauge/__init__.py": "THICK = 'thick'\n"}),
    ]
    library = folder / "library"
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--no-compile"]
    subprocess.run([*command, "--target", str(library), *map(str, wheels)], check=True, timeout=90)
    return library


def team_file(folder: Path, provider: str) -> Path:
    text = (ROOT / "examples" / "team.yaml").read_text()
    own = f"        - provider: {provider}\n          config:\n            text: DONE\n"
    path = folder / "team.yaml"
    path.write_text(text.replace("      conditions:\n", f"      conditions:\n{own}"))
    return path


def refused(folder: Path, library: Path, *arguments: str) -> str:
    """What a start says that fails since something is missing."""
    studio_python()
    options = ["--no-browser", "--json", "--port", "0", "--appdir", str(folder / "app"), *arguments]
    cache = {"XDG_CACHE_HOME": str(studio_python().parents[3])}
    done = coderoom_process("studio", *options, cwd=folder, env={"PYTHONPATH": str(library), **cache})
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    return str(json.loads(done.stdout)["error"])


def snapshot(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_what_a_package_needs_comes_with_it(tmp_path: Path) -> None:
    library = install(tmp_path)
    before = snapshot(library)
    own = part("termination", "parts.conditions.Finished", text="Hello")
    coder = agent(EXECUTOR, "coder", model_client=replay("Hello."), code_executor=sandbox(tmp_path / "work"))
    env = {"PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["--no-browser", "--trust", "parts", "--team", str(team_file(tmp_path, "parts.conditions.Finished"))]
    with start_studio(tmp_path / "app", *options, cwd=tmp_path, env=env) as studio:
        driver = Studio(studio.url)
        said = driver.post_raw("/validate/", {"component": studio.teams()["team"]["component"]})
        assert (said["is_valid"], said["errors"]) == (True, [])
        run = driver.run(team(CODING, coder, turns=3, termination_condition=own), "Say it.")
        assert run.record()["status"] == "complete"
        assert run.events[-1]["data"]["task_result"]["stop_reason"] == "thick"
        driver.close()
    assert snapshot(library) == before


def test_other_versions_than_studios_are_told_with_the_way_out(tmp_path: Path) -> None:
    library = install(tmp_path, ["gauge>=1", "pydantic>=99"])
    told = refused(tmp_path, library, "--trust", "parts")
    assert "parts needs pydantic>=99, and it has pydantic 2." in told
    assert "start without --trust" in told


def test_a_missing_import_is_reported_with_the_way_out(tmp_path: Path) -> None:
    """A module that was never installed says nowhere what it needs."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "parts.py").write_text("import gauge\n")
    told = refused(tmp_path, tmp_path / "library", "--trust", "parts")
    assert "'parts' cannot be imported in AutoGen Studio's environment" in told
    assert "No module named 'gauge'" in told
    assert "Install what it needs beside CodeRoom" in told
