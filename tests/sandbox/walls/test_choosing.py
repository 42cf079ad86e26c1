"""Which wall is taken, and what is said where none can be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.sandbox.walls import AUTO_ORDER, WALLS, choose, make_wall, probe_all
from coderoom.sandbox.walls.remedies import namespaces_remedy

ROOT = Path(__file__).parents[3]
# A process that can make no user namespaces: the number is of its own user namespace.
FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


def test_names() -> None:
    assert set(AUTO_ORDER) | {"none"} == set(WALLS)
    assert "none" not in AUTO_ORDER
    for name in ("bubblewrap", "namespaces", "landlock", "none"):
        assert make_wall(name).name == name


def test_no_such_wall() -> None:
    with pytest.raises(RequestError, match="no wall 'paper'; there are 'bubblewrap'"):
        make_wall("paper")


def test_a_wall_whose_package_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WALLS, "sandlock", "coderoom_has_no_such_package:Wall")
    with pytest.raises(MissingDependencyError, match="'sandlock' cannot be used: No module named"):
        make_wall("sandlock")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's walls")
async def test_every_wall_says_something() -> None:
    reports = await probe_all()
    assert [report.name for report in reports] == list(AUTO_ORDER)
    for report in reports:
        assert report.detail
        assert not report.detail.startswith("Traceback")
    available = [report.name for report in reports if report.available]
    if available:
        assert (await choose()).name == available[0]


def forbidden(code: str) -> str:
    """What a Python without user namespaces prints."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Ur", "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces cannot be made here, or not be forbidden")
    command = [unshare, "-Ur", "sh", "-c", FORBID, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_user_namespaces() -> None:
    said = forbidden(
        "import asyncio\nfrom coderoom.sandbox.walls import make_wall\n"
        "for name in ('bubblewrap', 'namespaces', 'landlock'):\n"
        "    report = asyncio.run(make_wall(name).probe())\n"
        "    print(name, report.available, report.remedy)"
    )
    lines = dict(line.split(" ", 1) for line in said.splitlines())
    assert lines["bubblewrap"].startswith("False")
    assert lines["namespaces"].startswith("False User namespaces are switched off here")


def test_without_any_wall() -> None:
    said = forbidden(
        "import asyncio\nfrom coderoom.errors import SandboxUnavailable\nfrom coderoom.sandbox import walls\n"
        # As on a kernel without Landlock and a machine without Docker.
        "walls.AUTO_ORDER = ('bubblewrap', 'namespaces')\n"
        "try:\n    asyncio.run(walls.choose())\nexcept SandboxUnavailable as error:\n    print(error)"
    )
    assert said.startswith("No wall between code and this machine can be built:\n- bubblewrap: ")
    assert "\n- namespaces: " in said
    assert 'wall="none"' in said


def test_the_remedy_is_a_sentence() -> None:
    assert namespaces_remedy().endswith(".")
