"""The parts of the wall `sandlock` that a working machine never shows."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.sandbox import Limits, SandboxConfig, SandboxUnavailable
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.walls.landlock import SandlockWall
from coderoom.sandbox.walls.local import Facts

from ..walls.behind import PYTHON

pytestmark = pytest.mark.allwalls


@pytest.mark.parametrize("version", ["0.7.9", "0.10.0", "1.0"])
async def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    monkeypatch.setattr(SandlockWall, "_known", {})
    report = await SandlockWall().probe()
    assert not report.available
    assert version in report.detail
    assert "pip install" in report.remedy


@pytest.mark.parametrize("abi", [0, 5])
async def test_an_old_kernel_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch, abi: int) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: abi)
    monkeypatch.setattr(SandlockWall, "_known", {})
    report = await SandlockWall().probe()
    assert not report.available
    assert "ABI 6" in report.detail
    assert "Linux 6.12" in report.remedy


def test_the_package_is_not_loaded_into_the_host() -> None:
    code = "import sys, coderoom.sandbox.walls.landlock as w; w._find(); sys.exit('sandlock' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_the_worker_cannot_open_what_it_does_not_need(tmp_path: Path) -> None:
    """Even the worker, which is not behind a runner's rules, is behind sandlock's."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    spec = SandboxConfig(workspace=None, network=False, env={}, limits=Limits(), python=PYTHON)
    try:
        worker = await SandlockWall()._launch(spec, f"open({str(secret)!r})", Facts())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    try:
        worker.control.settimeout(20)
        assert worker.control.recv(1) == b""
        assert "PermissionError" in worker.describe_death()
    finally:
        await worker.end()
