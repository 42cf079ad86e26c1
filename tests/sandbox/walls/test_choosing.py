"""Which wall is taken, and what is said where one cannot be built."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from coderoom.cli.app import WALL_HELP
from coderoom.sandbox import Sandbox, probe_walls
from coderoom.sandbox.registry import WALLS
from tests.support.commands import ROOT

# A process that can make no user namespaces: the number is of its own user namespace.
FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
PROBE = """
import asyncio
from coderoom.errors import SandboxUnavailable
from coderoom.sandbox import Sandbox, probe_walls
async def main():
    for report in await probe_walls():
        print(report.name, report.available, report.remedy)
    try:
        async with Sandbox() as sandbox: print("auto", sandbox.wall)
    except SandboxUnavailable: print("auto")
asyncio.run(main())
"""


def test_every_list_of_walls_has_each() -> None:
    names = {"auto", *WALLS.own}
    assert set(WALLS.names()) >= names
    assert set(re.findall(r"[a-z]+", WALL_HELP)) >= names
    page = (ROOT / "docs" / "walls.md").read_text()
    table = page[page.index("| `bubblewrap`") :].partition("\n\n")[0]
    assert re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE) == list(WALLS.own)


async def test_every_wall_says_something_and_the_first_that_works_is_taken() -> None:
    reports = await probe_walls()
    assert [report.name for report in reports] == ["bubblewrap", "namespaces", "sandlock", "landlock", "docker"]
    for report in reports:
        assert report.detail
        assert not report.detail.startswith("Traceback")
    async with Sandbox() as sandbox:
        assert sandbox.wall == next(report.name for report in reports if report.available)


@pytest.mark.slow
def test_without_user_namespaces_a_weaker_wall_is_taken_and_it_is_told() -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Ur", "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces cannot be made here, or not be forbidden")
    command = [unshare, "-Ur", "sh", "-c", FORBID, "sh", sys.executable, "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert lines["bubblewrap"].startswith("False")
    assert lines["namespaces"].startswith("False User namespaces are switched off here")
    if lines.get("auto"):
        assert f"runs behind the wall {lines['auto']!r}, since the stronger wall 'namespaces' cannot" in done.stderr
        assert ("the stronger wall 'bubblewrap' cannot" in done.stderr) == (shutil.which("bwrap") is not None)
