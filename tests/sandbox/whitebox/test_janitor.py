"""The process that clears away after this one is there as long as it has something to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coderoom._util import temporary
from coderoom._util.temporary import clearing_pids, janitor_pid, remove_folder, temporary_folder
from coderoom.sandbox import Sandbox
from tests.support.studio import wait_for


@pytest.fixture(autouse=True)
def without_those_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_janitor", None)


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
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.executors import adopt_orphans
adopt_orphans()
for _ in range(40):
    remove_folder(temporary_folder())
try:
    print(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG))
except ChildProcessError:
    print("nobody")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "nobody\n"


def test_who_removes_a_folder_is_known_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)
    monkeypatch.setattr(temporary, "_REMOVE", 'while [ ! -e "$1/go" ]; do sleep 0.05; done; rm -r "$1"')
    folder = tmp_path / "stubborn"
    folder.mkdir()
    removing = threading.Thread(target=remove_folder, args=(folder,))
    removing.start()
    try:
        wait_for(lambda: bool(clearing_pids() - {janitor_pid()}))
    finally:
        (folder / "go").touch()
        removing.join()
    assert clearing_pids() <= {janitor_pid()}
    assert not folder.exists()
