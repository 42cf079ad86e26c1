"""What is shown of this machine, and what never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Limits, SandboxConfig
from coderoom.sandbox.walls.layout import INSIDE, Interpreter, layout_for
from coderoom.sandbox.walls.private import is_private
from tests.sandbox.places import Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's file tree")


def spec(**asked: Any) -> SandboxConfig:
    return SandboxConfig(**{"workspace": None, "network": False, "env": {}, "limits": Limits(), **asked})


def shown(layout: Any, path: Path | str) -> bool:
    return any(Path(path).is_relative_to(target) for _, target in layout.read_only)


def test_the_interpreter_and_the_system_are_shown() -> None:
    layout = layout_for(spec())
    assert layout.python == sys.executable
    for path in (sys.executable, os.path.realpath(sys.executable), sysconfig.get_path("stdlib"), "/usr/bin/env"):
        assert shown(layout, path), path
    assert shown(layout, Path(INSIDE, "guest", "main.py"))
    assert {path for _, path in layout.symlinks} >= {name for name in ("/bin", "/lib") if Path(name).is_symlink()}


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/shadow", "/etc/ssh", "/home", "/proc", "/root", "/run/docker.sock", "/sys", "/tmp", "/var/lib"],
)
def test_never_shown(path: str) -> None:
    layout = layout_for(spec())
    assert not shown(layout, path)
    assert not shown(layout_for(spec(network=True)), path)


def test_home_is_never_shown() -> None:
    assert not shown(layout_for(spec()), Path.home())
    assert not shown(layout_for(spec()), Path.home() / ".ssh")


def test_files_are_our_own() -> None:
    files = layout_for(spec(), uid=4321).files
    assert "user:x:4321:4321:" in files["/etc/passwd"]
    assert "localhost" in files["/etc/hosts"]
    assert "/etc/resolv.conf" not in files
    if Path("/etc/resolv.conf").exists():
        assert layout_for(spec(network=True)).files["/etc/resolv.conf"] == Path("/etc/resolv.conf").read_text()


def test_a_folder_comes_before_what_lies_in_it() -> None:
    targets = [target for _, target in layout_for(spec()).read_only]
    assert targets == sorted(targets)
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/etc/ssl", "/home", "/proc/1", "/root", "/run", "/sys/fs", "/tmp", "/var"]
)
def test_refused_as_readable(path: str) -> None:
    if not Path(path).exists():
        pytest.skip("not on this machine")
    with pytest.raises(RequestError, match="home or system folder"):
        layout_for(spec(readable=[Path(path)]))


def test_home_is_refused_as_readable() -> None:
    for path in (Path.home(), Path.home().parent):
        assert is_private(path)
        with pytest.raises(RequestError, match="home or system folder"):
            layout_for(spec(readable=[path]))


def test_a_home_by_another_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "somewhere" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    for path in (home, home.parent, tmp_path / "link"):
        with pytest.raises(RequestError, match="home or system folder"):
            layout_for(spec(readable=[path]))
    (home / "data").mkdir()
    assert shown(layout_for(spec(readable=[home / "data"])), home / "data")


def test_readable_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"There is no '.*/nothing'"):
        layout_for(spec(readable=[tmp_path / "nothing"]))


def test_a_link_is_shown_under_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    sources = {target: source for source, target in layout_for(spec(readable=[tmp_path / "link"])).read_only}
    assert sources[str(tmp_path / "link")] == str(tmp_path / "real")
    assert sources[str(tmp_path / "real")] == str(tmp_path / "real")


@pytest.mark.parametrize("path", ["/", "/etc", "/root", "/usr", "/usr/lib", "/usr/local/bin", "/usr/share/doc"])
def test_refused_as_workspace(path: str) -> None:
    if not Path(path).exists():
        pytest.skip("not on this machine")
    with pytest.raises(RequestError, match="home or system folder"):
        layout_for(spec(workspace=Path(path)))


def test_workspace_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not a folder"):
        layout_for(spec(workspace=tmp_path / "nothing"))


@pytest.mark.parametrize("path", [sys.prefix, sysconfig.get_path("scripts"), sysconfig.get_path("stdlib") + "/json"])
def test_workspace_that_the_interpreter_runs(path: str) -> None:
    with pytest.raises(RequestError, match=r"system folder|lies inside the interpreter's folder"):
        layout_for(spec(workspace=Path(path)))


def test_what_is_shown_in_the_workspace_is_guarded(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "tools").mkdir(parents=True)
    layout = layout_for(spec(workspace=tmp_path, readable=[tmp_path / "a" / "b" / "tools"]))
    assert layout.guarded == (("a", True), ("a/b", True), ("a/b/tools", False))
    assert layout_for(spec(workspace=tmp_path)).guarded == ()


def test_our_own_code_in_the_workspace_is_guarded() -> None:
    project = Path(__file__).parents[3]
    assert ("coderoom", False) in layout_for(spec(workspace=project)).guarded


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose interpreter is a link to a link, behind a folder that is a link, as uv makes them."""
    place = tmp_path_factory.mktemp("venv")
    base = Path(sys.base_prefix)
    (place / "interpreters").mkdir()
    (place / "interpreters" / "cpython-3").symlink_to(base)
    venv.create(place / "env", with_pip=False, symlinks=True)
    python = place / "env" / "bin" / "python"
    program = place / "interpreters" / "cpython-3" / "bin" / Path(os.path.realpath(sys.executable)).name
    if not program.exists():
        pytest.skip("the interpreter lies elsewhere")
    python.unlink()
    python.symlink_to(program)
    config = (place / "env" / "pyvenv.cfg").read_text().splitlines()
    config[0] = f"home = {program.parent}"
    (place / "env" / "pyvenv.cfg").write_text("\n".join(config))
    return python


def test_a_venv_is_asked_where_it_lives(python: Path) -> None:
    interpreter = Interpreter.of(python, None)
    assert interpreter.executable == str(python)
    assert python.parents[1] in interpreter.folders
    assert interpreter.packages == ()


def test_all_of_a_venv_is_shown(python: Path) -> None:
    layout = layout_for(spec(python=python))
    assert shown(layout, python)
    assert shown(layout, os.path.realpath(python))
    link = python.parents[2] / "interpreters" / "cpython-3"
    assert shown(layout, link) or (str(Path(sys.base_prefix)), str(link)) in layout.symlinks


def test_dots_in_a_path_are_no_other_place(python: Path, tmp_path: Path) -> None:
    dotted = python.parent / ".." / "bin" / python.name
    layout = layout_for(spec(python=dotted))
    assert layout == layout_for(spec(python=python))
    assert layout.python == str(python)
    # What is above a link's target is not what is above the link.
    (tmp_path / "link").symlink_to(python.parents[1])
    assert Interpreter.of(tmp_path / "link" / ".." / "env" / "bin" / python.name, None).executable == str(python)
    with pytest.raises(RequestError, match="lies inside the workspace"):
        layout_for(spec(python=tmp_path / "link" / ".." / "env" / "bin" / "python", workspace=python.parents[2]))
    (tmp_path / "data").mkdir()
    assert shown(layout_for(spec(readable=[tmp_path / "data" / ".." / "data"])), tmp_path / "data")


@pytest.mark.slow
@pytest.mark.parametrize("wall", ["bubblewrap", "namespaces"])
def test_a_program_of_an_interpreter_whose_path_has_dots(wall: str) -> None:
    program = (
        "import asyncio\nfrom coderoom.sandbox import Sandbox\nasync def main():\n"
        f"    async with Sandbox({wall!r}) as sandbox: print((await sandbox.run('6 * 7')).value)\nasyncio.run(main())"
    )
    if missing := Place("cpython", wall).missing():
        pytest.skip(missing)
    python, elsewhere = Path(sys.executable), Path(__file__).parent
    dotted = os.path.relpath(python, elsewhere)
    done = subprocess.run([dotted, "-c", program], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.stdout == "42\n", done.stderr


def test_no_interpreter_from_the_workspace(python: Path) -> None:
    with pytest.raises(RequestError, match="lies inside the workspace"):
        layout_for(spec(python=python, workspace=python.parents[2]))


def test_packages_that_lie_elsewhere(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    code = (
        "from tests.sandbox.whitebox.test_layout import spec, layout_for\n"
        "layout = layout_for(spec())\nprint(layout.packages, layout.read_only)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": os.pathsep.join([str(packages), *sys.path])},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.count(str(packages)) == 3


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    for python in (tmp_path / "nothing", Path("/bin/false"), Path("/bin/echo")):
        with pytest.raises(RequestError, match="cannot be used"):
            Interpreter.of(python, None)


def test_an_interpreter_that_is_too_old(tmp_path: Path) -> None:
    python = tmp_path / "python"
    facts = '{"version": [3, 7], "executable": "", "prefixes": [], "path": [], "code": []}'
    python.write_text(f"#!/bin/sh\necho '{facts}'\n")
    python.chmod(0o755)
    with pytest.raises(RequestError, match=r"is Python 3\.7; the sandbox needs 3\.8"):
        Interpreter.of(python, None)


def test_a_node_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin", "lib/node_modules"):
        (tmp_path / "node" / name).mkdir(parents=True)
    program = tmp_path / "node" / "bin" / "node"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    layout = layout_for(spec(readable=[tmp_path / "node" / "lib"]))
    assert shown(layout, program)
    assert str(program.parent) in layout.programs


def test_a_link_in_a_folder_that_is_a_link(tmp_path: Path) -> None:
    """As of a virtual environment made by /bin/python3 where /bin is a link to /usr/bin."""
    program = Path("/bin/python3")
    if not Path("/bin").is_symlink() or not program.exists():
        pytest.skip("there is no Python in a /bin that is a link")
    subprocess.run([program, "-m", "venv", "--without-pip", "--symlinks", tmp_path / "env"], check=True)
    layout = layout_for(spec(python=tmp_path / "env" / "bin" / "python"))
    assert "/bin/python3" not in [path for _, path in layout.symlinks]
    assert ("usr/bin", "/bin") in layout.symlinks


@pytest.mark.parametrize("is_readable", [False, True])
def test_entry_points_of_an_editable_install_are_visible_with_its_source_only(
    python: Path, tmp_path: Path, is_readable: bool
) -> None:
    packages = next((python.parents[1] / "lib").glob("python*")) / "site-packages"
    source, other = tmp_path / "a project", tmp_path / "other"
    source.mkdir()
    other.mkdir()
    for name, editable in (("dev", True), ("whole", False)):
        told = packages / f"{name}{is_readable}-1.dist-info"
        told.mkdir()
        facts = {"url": source.as_uri(), "dir_info": {"editable": editable}}
        (told / "direct_url.json").write_text(json.dumps(facts))
        (told / "entry_points.txt").write_text("[pytest11]\nx = x")
    layout = layout_for(spec(python=python, readable=[source if is_readable else other]))
    hidden = {Path(target).parent.name for source, target in layout.read_only if source.endswith("no_entry_points.txt")}
    assert (f"dev{is_readable}-1.dist-info" in hidden) is not is_readable
    assert f"whole{is_readable}-1.dist-info" not in hidden
