"""The process that clears away after this one is there as long as it has something to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coderoom import _janitor
from coderoom._janitor import janitor_pid, remove_folder, temporary_folder
from coderoom.sandbox import Sandbox


@pytest.fixture(autouse=True)
def without_those_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_janitor, "_janitor", None)


def test_it_goes_with_the_last_folder() -> None:
    first, second = temporary_folder(), temporary_folder()
    pid = janitor_pid()
    assert pid is not None
    remove_folder(first)
    assert janitor_pid() == pid
    remove_folder(second)
    assert janitor_pid() is None
    assert not Path(f"/proc/{pid}").exists()
    assert not second.parent.exists()
    again = temporary_folder()
    assert janitor_pid() not in (None, pid)
    remove_folder(again)


@pytest.mark.parametrize("wall", ["auto", "none"])
async def test_a_closed_sandbox_has_left_none(wall: str) -> None:
    async with Sandbox(wall=wall) as sandbox:
        assert (await sandbox.run("6 * 7")).value == 42
    assert janitor_pid() is None


def test_it_leaves_nobody_behind() -> None:
    code = """
import os
from coderoom._janitor import remove_folder, temporary_folder
from coderoom.executors import adopt_orphans
from coderoom.executors._launch import descendants
adopt_orphans()
for _ in range(200):
    remove_folder(temporary_folder())
print(descendants(os.getpid()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
