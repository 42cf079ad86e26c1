"""What becomes of Studio's environments that nobody uses any more."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coderoom.studio.environment import environment_folder, hold_environment
from coderoom.studio.in_use import READY, UNUSED_DAYS, hold, mark_ready, remove_unused
from tests.studio.test_studio_environment import answer, be_silent, cache, small
from tests.support.studio import alive, start_studio, studio_environment, studio_python, wait_for

__all__ = ["cache", "small"]

LONG = (UNUSED_DAYS + 1) * 86_400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An environment as another version of CodeRoom has left it."""
    return make(tmp_path / "coderoom" / "studio-0123456789abcdef")


def make(folder: Path, age: float = LONG) -> Path:
    (folder / "lib" / "deep").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "lib" / "deep" / "module.py").touch()
    mark_ready(folder)
    grow_old(folder, age)
    return folder


def grow_old(folder: Path, age: float = LONG) -> None:
    then = time.time() - age
    os.utime(folder / READY, (then, then))


def test_one_that_nobody_uses_goes(folder: Path) -> None:
    used = make(folder.with_name("studio-0000000000000000"))
    assert remove_unused(used) == [folder]
    assert not folder.exists()
    assert used.exists()
    assert Path(sys.executable).exists()
    assert remove_unused(used) == []


@pytest.mark.parametrize("why", ["young", "not marked", "marked as another", "of another name", "a link", "being made"])
def test_what_is_not_certainly_to_go_stays(why: str, folder: Path, tmp_path: Path) -> None:
    looked_at = folder
    match why:
        case "young":
            grow_old(folder, LONG - 2 * 86_400)
        case "not marked":
            (folder / READY).write_text("")
            grow_old(folder)
        case "marked as another":
            (make(folder.with_name("studio-ffffffffffffffff")) / READY).replace(folder / READY)
        case "of another name":
            looked_at = folder.rename(folder.with_name("studio-mine"))
            mark_ready(looked_at)
            grow_old(looked_at)
        case "a link":
            looked_at = folder.rename(tmp_path / "studio-0123456789abcdef")
            folder.symlink_to(looked_at)
        case _:
            lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX)
            with ThreadPoolExecutor() as pool:
                removing = pool.submit(remove_unused, folder.with_name("used"))
                assert removing.result(20) == []
            os.close(lock)
    assert remove_unused(folder.with_name("used")) == ([folder] if why == "being made" else [])
    assert looked_at.exists() is (why != "being made")
    assert why == "being made" or (looked_at / "lib" / "deep" / "module.py").exists()


def test_one_that_is_used_stays_however_long(folder: Path) -> None:
    held = hold(folder)
    grow_old(folder)
    assert remove_unused(folder.with_name("used")) == []
    os.close(held)
    grow_old(folder)
    assert remove_unused(folder.with_name("used")) == [folder]


def test_who_uses_it_makes_it_young(folder: Path) -> None:
    os.close(hold(folder))
    assert remove_unused(folder.with_name("used")) == []


def test_what_was_cut_short_is_brought_to_its_end(folder: Path) -> None:
    (folder / READY).rename(folder / ".removed")
    (folder / "bin" / "python").unlink()
    assert remove_unused(folder.with_name("used")) == [folder]


def test_many_at_once_do_not_fight(cache: Path, small: Path) -> None:
    """Some use an environment while others remove it: whoever has it, has it whole."""
    code = (
        "import subprocess, sys; from pathlib import Path\n"
        "from coderoom.studio.environment import environment_folder, hold_environment\n"
        "from coderoom.studio.in_use import remove_unused\n"
        "pins = Path(sys.argv[1])\n"
        "beside = environment_folder(pins).with_name('none')\n"
        "for _ in range(4):\n"
        "    with hold_environment(lambda words, detail='': None, pins=pins) as (python, _):\n"
        "        for _ in range(3):\n"
        "            remove_unused(beside, days=-1)\n"
        "            subprocess.run([python, '-I', '-c', 'import tiny'], check=True)\n"
        "    remove_unused(beside, days=-1)\n"
    )

    def start(_: int) -> None:
        subprocess.run([sys.executable, "-c", code, str(small)], check=True, timeout=100, capture_output=True)

    with ThreadPoolExecutor() as pool:
        list(pool.map(start, range(3)))
    assert not environment_folder(small).exists()
    with hold_environment(be_silent, pins=small) as (python, _):
        assert answer(python) == f"42 {environment_folder(small)}"


def test_a_start_removes_it_and_says_so(tmp_path: Path) -> None:
    """And not its own, also when only the server is left of an earlier start."""
    own = studio_python().parents[1]
    old = make(own.with_name("studio-0123456789abcdef"))
    with start_studio(tmp_path / "app", "--no-browser", cwd=tmp_path) as studio:
        assert not old.exists()
        server = studio.server_pid
        os.kill(server, signal.SIGSTOP)
        try:
            studio.end(signal.SIGKILL)
            mark = os.open(own / READY, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(mark)
        finally:
            os.kill(server, signal.SIGCONT)
        wait_for(lambda: not alive(server), 15)
    old = make(old)
    process = subprocess.Popen(
        [sys.executable, "-m", "coderoom", "studio", "--no-browser", "--port", "0", "--appdir", str(tmp_path / "app")],
        cwd=tmp_path,
        env=studio_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C ends it." not in said:
            said += (line := process.stdout.readline())
            assert line, said
        process.send_signal(signal.SIGINT)
        process.wait(30)
    finally:
        process.kill()
        process.communicate()
    assert f"Removed, since it was not used for {UNUSED_DAYS} days: {old}\n" in said
    assert not old.exists()
    assert own.exists()
