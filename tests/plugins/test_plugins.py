"""What a package that plugs in can do and cannot, and what is told where one is missing or broken."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coderoom._util.plugins import Plugins
from coderoom.cli.app import WALL_HELP
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.generation import GeneratorOptions, make_sandbox
from coderoom.generation.languages.named import LANGUAGES
from coderoom.runs.doctor import examine
from coderoom.sandbox import Sandbox, probe_walls
from coderoom.sandbox.registry import ENGINES, WALLS
from tests.support.commands import ROOT

WALL = """
from coderoom.sandbox.walls.local import NoWall
class Paper(NoWall):
    name = "paper"
    auto = {auto}
"""


class Installed:
    """A folder of packages, which is on the path of modules of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, package: str, code: str, **points: str) -> None:
        (self.folder / f"{package}.py").write_text(code)
        info = self.folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"[coderoom.{kind}]\n{point}\n" for kind, point in points.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.syspath_prepend(tmp_path)
    for plugins in (WALLS, ENGINES, LANGUAGES):
        monkeypatch.setattr(plugins, "_loaded", {})
    return Installed(tmp_path)


@pytest.mark.parametrize("plugins", [WALLS, ENGINES, LANGUAGES], ids=lambda plugins: str(plugins.kind))
def test_ours_are_entry_points_too(plugins: Plugins) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][plugins.group] == plugins.own
    for name in plugins.own:
        assert plugins.load(name).name == name


def test_every_help_text_has_each_name() -> None:
    assert all(name in WALL_HELP for name in WALLS.own)
    assert ", ".join(LANGUAGES.own) in str(GeneratorOptions.model_fields["language"].description)


def test_an_unknown_name_gets_the_nearest_or_what_to_install() -> None:
    with pytest.raises(RequestError, match=r"no wall 'dokcer'; there are 'auto', .*'none'\. Did you mean 'docker'\?"):
        Sandbox("dokcer")
    with pytest.raises(RequestError, match=r"no engine 'x'; there are .*\. Install the package whose engine"):
        Sandbox(engine="x")
    with pytest.raises(RequestError, match=r"no engine 'motny'.* Did you mean 'monty'\?"):
        SandboxCodeExecutor(engine="motny")
    with pytest.raises(RequestError, match=r"no language 'javascirpt'.* Did you mean 'javascript'\?"):
        make_sandbox(language="javascirpt")


async def test_a_wall_of_another_package_is_taken_by_name(installed: Installed) -> None:
    installed.add("paper_wall", WALL.format(auto=False), walls="paper = paper_wall:Paper")
    async with Sandbox("paper") as sandbox:
        assert (sandbox.wall, (await sandbox.run("6 * 7")).value) == ("paper", 42)
    assert SandboxCodeExecutor(wall="paper").dump_component().config["wall"] == "paper"
    assert [(report.name, report.available, report.auto) for report in await probe_walls()][-1] == (
        "paper",
        True,
        False,
    )
    schema = SandboxCodeExecutor.component_config_schema.model_json_schema()
    assert schema["properties"]["wall"]["enum"] == ["auto", *WALLS.own, "paper"]


async def test_a_broken_package_is_told_and_breaks_no_other(installed: Installed) -> None:
    installed.add("broken", "import none_such", walls="torn = broken:Torn")
    installed.add("empty", "class Empty: name = 'empty'", walls="empty = empty:Empty")
    installed.add("other", "class Other: name = probe = start = 'other'", walls="third = other:Other")
    installed.add("paper_wall", WALL.format(auto=False), walls="paper = paper_wall:Paper")
    said = r"wall 'torn' of broken 1.0 cannot be imported \(ModuleNotFoundError: No module named 'none_such'\)"
    with pytest.raises(MissingDependencyError, match=said):
        Sandbox("torn")
    with pytest.raises(MissingDependencyError, match=r"wall 'empty' of empty 1\.0 has no 'probe' and no 'start'"):
        Sandbox("empty")
    with pytest.raises(MissingDependencyError, match=r"wall 'third' of other 1\.0 has the name 'other'"):
        Sandbox("third")
    reports = {report.name: report for report in await probe_walls()}
    assert (reports["paper"].available, reports["torn"].available) == (True, False)
    assert "broken 1.0 cannot be imported" in reports["torn"].detail


async def test_doctor_tells_of_each(installed: Installed) -> None:
    installed.add("paper_wall", WALL.format(auto=False), walls="paper = paper_wall:Paper")
    installed.add("broken", "import none_such", engines="torn = broken:Torn", languages="half = broken:Half")
    found = {finding.name: finding for finding in await examine()}
    assert [found[name].state for name in ("wall paper", "engine torn", "language half")] == [
        "ok",
        "warning",
        "warning",
    ]
    assert "language 'half' of broken 1.0 cannot be imported" in found["language half"].detail


def test_an_abstract_language_is_refused(installed: Installed) -> None:
    code = "from coderoom.generation import Language\nclass Half(Language):\n    name = 'half'\n"
    installed.add("half", code, languages="half = half:Half")
    with pytest.raises(MissingDependencyError, match=r"language 'half' of half 1\.0 has no .* and no 'write_tests'"):
        make_sandbox(language="half")


def test_one_name_in_two_packages_is_refused(installed: Installed) -> None:
    for package in ("one", "two"):
        installed.add(package, WALL.format(auto=False), walls=f"paper = {package}:Paper")
    with pytest.raises(RequestError, match=r"of (one 1.0 and two 1.0|two 1.0 and one 1.0): uninstall one"):
        Sandbox("paper")


def test_a_package_cannot_replace_a_wall_of_ours(installed: Installed) -> None:
    installed.add("paper_wall", "1 / 0", walls="bubblewrap = paper_wall:Paper")
    assert WALLS.load("bubblewrap").__module__ == "coderoom.sandbox.walls.namespaces"
    assert WALLS.names().count("bubblewrap") == 1


NOTHING_ELSE = """
import asyncio, importlib
from coderoom.sandbox import Sandbox, SandboxUnavailable
from coderoom.sandbox.contracts import WallReport
from coderoom.sandbox.registry import WALLS
class Missing:
    async def probe(self): return WallReport("x", False, "There is no x.")
for name in WALLS.own:
    if name != "none": WALLS._loaded[name] = Missing
async def main():
    async with Sandbox() as sandbox: print(sandbox.wall)
try: asyncio.run(main())
except SandboxUnavailable as error: print(error)
"""


@pytest.mark.parametrize("auto", [True, False])
def test_auto_takes_a_wall_of_another_package_only_if_it_may_and_none_of_ours_works(
    installed: Installed, auto: bool
) -> None:
    installed.add("paper_wall", WALL.format(auto=auto), walls="paper = paper_wall:Paper")
    path = os.pathsep.join([str(installed.folder), str(ROOT)])
    command = [sys.executable, "-c", NOTHING_ELSE]
    env = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert (said.strip() == "paper") == auto
    assert auto or "- paper: It can be built, but `auto` does not take it: name it." in said


def test_nothing_is_read_for_our_own_names() -> None:
    code = (
        "import importlib.metadata as metadata\nfrom coderoom.sandbox import Sandbox\n"
        "metadata.entry_points = None\nfor wall in ('auto', 'bubblewrap', 'none'): Sandbox(wall)\n"
        "Sandbox(engine='monty')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
