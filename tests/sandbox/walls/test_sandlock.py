from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Limits, Sandbox
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.walls import sandlock
from coderoom.sandbox.walls.base import WallSpec
from coderoom.sandbox.walls.probe import Facts
from coderoom.sandbox.walls.sandlock import SandlockWall

# To root's workers, who do not stay root, a virtual environment below /root is out of reach.
PYTHON = Path("/usr/bin/python3") if os.geteuid() == 0 else None


@pytest.fixture
async def wall() -> SandlockWall:
    wall = SandlockWall()
    try:
        async with Sandbox("sandlock", python=PYTHON):
            pass
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    return wall


async def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    report = await SandlockWall().probe()
    assert not report.available
    assert "not installed" in report.detail
    assert "pip install 'coderoom[sandlock]'" in report.remedy


async def test_without_the_package_it_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SandboxUnavailable, match="not installed"):
        await SandlockWall().start(WallSpec(workspace=None, network=False, env={}, limits=Limits(), python=PYTHON))


@pytest.mark.skipif(importlib.util.find_spec("sandlock") is None, reason="sandlock is not installed")
class TestInstalled:
    @pytest.mark.parametrize("version", ["0.7.9", "0.10.0", "1.0"])
    async def test_an_unknown_version_is_refused(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
        monkeypatch.setattr(SandlockWall, "_known", {})
        report = await SandlockWall().probe()
        assert not report.available
        assert version in report.detail
        assert "pip install" in report.remedy

    @pytest.mark.parametrize("abi", [0, 5])
    async def test_an_old_kernel_is_told_what_it_lacks(self, monkeypatch: pytest.MonkeyPatch, abi: int) -> None:
        monkeypatch.setattr(landlock, "abi", lambda: abi)
        monkeypatch.setattr(SandlockWall, "_known", {})
        report = await SandlockWall().probe()
        assert not report.available
        assert "ABI 6" in report.detail
        assert "Linux 6.12" in report.remedy

    def test_the_package_is_not_loaded_into_the_host(self) -> None:
        code = "import sys, coderoom.sandbox.walls.sandlock as w; w._find(); sys.exit('sandlock' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)


async def test_options_are_refused(wall: SandlockWall) -> None:
    spec = WallSpec(workspace=None, network=False, env={}, limits=Limits(), options={"image": "x"})
    with pytest.raises(RequestError, match="no options"):
        await wall.start(spec)


async def test_a_workspace_around_what_the_sandbox_runs_is_refused(wall: SandlockWall) -> None:
    around = Path(sandlock.__file__).parents[2]
    if os.access(around, os.W_OK):
        with pytest.raises(RequestError, match=r"sandbox itself runs|must not change|home or system"):
            await wall.start(WallSpec(workspace=around, network=False, env={}, limits=Limits(), python=PYTHON))


async def test_the_code_is_nobody_special_and_sees_only_its_environment(wall: SandlockWall) -> None:
    async with Sandbox("sandlock", python=PYTHON, env={"A": "b"}) as sandbox:
        result = await sandbox.run("import os\n[os.getuid(), os.getgid(), os.environ.get('A'), sorted(os.environ)]")
    uid, gid, own, names = result.value
    assert 0 not in (uid, gid)
    assert own == "b"
    assert not {"HOSTNAME", "SSH_AUTH_SOCK", "PWD"} & set(names)


async def test_code_cannot_open_what_its_worker_can(wall: SandlockWall, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o644)
    code = """\
import os
seen = []
for path in (SECRET, "/proc/self/environ", f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/mem", "/proc", "/"):
    try:
        os.close(os.open(path, os.O_RDONLY))
        seen.append(path)
    except OSError:
        pass
seen
"""
    async with Sandbox("sandlock", python=PYTHON) as sandbox:
        result = await sandbox.run(code.replace("SECRET", json.dumps(str(secret))))
    assert result.value == [], result


async def test_the_worker_cannot_open_what_it_does_not_need(wall: SandlockWall, tmp_path: Path) -> None:
    """Even the worker, which is not behind a runner's rules, is behind sandlock's."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    spec = WallSpec(workspace=None, network=False, env={}, limits=Limits(), python=PYTHON)
    worker = await wall._launch(spec, f"open({str(secret)!r})", Facts())
    try:
        worker.control.settimeout(20)
        assert worker.control.recv(1) == b""
        assert "PermissionError" in worker.describe_death()
    finally:
        await worker.end()
