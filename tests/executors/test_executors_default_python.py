"""`CODEROOM_PYTHON`: the interpreter of code for which none is named."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from tests.executors.helpers import python, run_once

WHERE = python("import sys; print(sys.prefix)")


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another environment than this one, whose interpreter the variable names."""
    venv.create(tmp_path / "other", symlinks=True)
    monkeypatch.setenv("CODEROOM_PYTHON", str(tmp_path / "other" / "bin" / "python"))
    return tmp_path / "other"


async def test_every_executor_takes_it(other: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for executor in (SandboxCodeExecutor(work), LocalCodeExecutor(work)):
        async with executor:
            assert (await run_once(executor, WHERE)).output.strip() == str(other)


async def test_one_that_is_named_goes_first(other: Path, tmp_path: Path) -> None:
    for kind in (SandboxCodeExecutor, LocalCodeExecutor):
        async with kind(tmp_path / "work", python=sys.executable) as executor:
            assert (await run_once(executor, WHERE)).output.strip() == sys.prefix


async def test_it_brings_what_a_user_has_installed_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    own = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path / ".local")}))
    own.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEROOM_PYTHON", str(base))
    # Whoever names an interpreter gets that and nothing else.
    for python_argument, is_there in ((None, True), (base, False)):
        async with SandboxCodeExecutor(tmp_path / "work", python=python_argument) as executor:
            result = await run_once(executor, python("import sys; print(sys.path)"))
            assert (repr(str(own)) in result.output) is is_there


async def test_code_must_not_be_able_to_change_it(other: Path) -> None:
    with pytest.raises(RequestError, match="lies inside the workspace"):
        await SandboxCodeExecutor(other.parent).start()


async def test_one_that_is_not_there_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEROOM_PYTHON", "/nowhere/python")
    with pytest.raises(RequestError) as refused:
        await SandboxCodeExecutor().start()
    assert str(refused.value).count("'/nowhere/python', which CODEROOM_PYTHON names, cannot be used") == 1
