"""No wall, but the rest of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .behind import Inside, behind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without a wall it still takes Linux")


def test_it_is_this_user_with_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("os.getuid()") == os.geteuid()
        environment = await it.ask("dict(os.environ)")
        expected = {"ONE": "1", "HOME": environment["TMPDIR"], "WHERE": str(it.workspace / "x"), "DATA": "/tmp/data"}
        assert {name: environment[name] for name in expected} == expected
        assert "SECRET" not in environment
        assert "SECRET" not in await it.ask("open('/proc/self/environ').read()")
        assert Path(environment["TMPDIR"]).is_dir()

    monkeypatch.setenv("SECRET", "secret")
    behind("none", "self", check, env={"ONE": "1", "HOME": "/tmp", "WHERE": "/workspace/x", "DATA": "/tmp/data"})


def test_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("import time; time.localtime(0).tm_hour") == 5

    monkeypatch.setenv("TZ", "UTC")
    behind("none", "self", check, env={"TZ": "XXX-5"})


def test_loader_variables_are_not_for_the_worker_itself() -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("os.environ['LD_PRELOAD']") == "/workspace-of-somebody/evil.so"
        assert "LD_PRELOAD" not in await it.ask("open('/proc/self/environ').read()")

    for wall in ("none", "namespaces"):
        behind(wall, "self", check, env={"LD_PRELOAD": "/workspace-of-somebody/evil.so"})
