"""The wall of the package `sandlock`."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

import coderoom
from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox, SandboxUnavailable, probe_walls

from ..places import Place
from .behind import PYTHON

pytestmark = pytest.mark.allwalls


@pytest.fixture(autouse=True)
def sandlock_works() -> None:
    missing = Place("cpython", "sandlock", {"python": PYTHON}).missing()
    if missing:
        pytest.skip(missing)


async def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (report,) = [report for report in await probe_walls() if report.name == "sandlock"]
    assert not report.available
    assert "not installed" in report.detail
    assert "pip install 'coderoom[sandlock]'" in report.remedy
    with pytest.raises(SandboxUnavailable, match="not installed"):
        await Sandbox("sandlock", python=PYTHON).start()


async def test_options_are_refused() -> None:
    with pytest.raises(RequestError, match="no options"):
        await Sandbox("sandlock", options={"image": "x"}).start()


async def test_a_workspace_around_what_the_sandbox_runs_is_refused() -> None:
    around = Path(coderoom.__file__).parents[1]
    if os.access(around, os.W_OK):
        with pytest.raises(RequestError, match=r"sandbox itself runs|must not change|home or system"):
            await Sandbox("sandlock", workspace=around, python=PYTHON).start()


async def test_the_code_is_nobody_special_and_sees_only_its_environment() -> None:
    async with Sandbox("sandlock", python=PYTHON, env={"A": "b"}) as sandbox:
        result = await sandbox.run("import os\n[os.getuid(), os.getgid(), os.environ.get('A'), sorted(os.environ)]")
    uid, gid, own, names = result.value
    assert 0 not in (uid, gid)
    assert own == "b"
    assert not {"HOSTNAME", "SSH_AUTH_SOCK", "PWD"} & set(names)


async def test_code_cannot_open_what_its_worker_can(tmp_path: Path) -> None:
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
