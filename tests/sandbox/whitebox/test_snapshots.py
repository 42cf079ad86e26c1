"""Copies of a workspace that share what has not changed: they are exact whatever code does to hide a change."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coderoom.sandbox import Checkpoint, Sandbox, Session, snapshots
from coderoom.sandbox.snapshots import Snapshot

SETTLED = 50_000_000


def what_is_in(folder: Path) -> dict[str, object]:
    """All that a copy must have."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (content, None if path.is_symlink() else (facts.st_mode, facts.st_mtime))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for name in ("one", "a/two", "a/b/three", "a/b/four"):
        (tmp_path / name).write_text(f"{name}, as it was")
    (tmp_path / "link").symlink_to("one")
    return tmp_path


def hide(path: Path, change: Callable[[], object]) -> None:
    """Change a file, and give it the time that it had."""
    facts = path.stat()
    change()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def change_all(folder: Path) -> None:
    """Make a change of each kind, those that can be hidden as well."""
    hide(folder / "one", lambda: (folder / "one").write_text("one, as it isn't"))
    hide(folder / "a", lambda: (folder / "a/two").unlink())
    (folder / "a/b/three").chmod(0o600)
    (folder / "a/b/four").rename(folder / "a/four")
    (folder / "link").unlink()
    (folder / "link").symlink_to("new")
    (folder / "empty").rmdir()
    (folder / "empty").write_text("a file now")
    (folder / "new").mkdir(mode=0o700)
    os.link(folder / "one", folder / "new/one")


async def take(session: Session) -> tuple[Snapshot, Checkpoint]:
    mark = await session.checkpoint(files=True)
    assert isinstance(mark.files, Snapshot)
    return mark.files, mark


async def test_what_has_not_changed_is_copied_once_and_all_comes_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_settled_ns", lambda: time.time_ns() - SETTLED)
    time.sleep(2 * SETTLED / 1e9)
    async with Sandbox(workspace=folder) as sandbox, sandbox.session() as session:
        before = what_is_in(folder)
        first, mark = await take(session)
        same, _ = await take(session)
        with snapshots._opened(folder) as opened:
            trusted = snapshots._device_of(opened) != 0
        assert (first.folder == same.folder) == trusted
        same.remove()
        assert what_is_in(first.folder) == before

        inode = (folder / "a/b/three").stat().st_ino
        change_all(folder)
        changed = what_is_in(folder)
        second, later = await take(session)
        assert what_is_in(second.folder) == changed
        assert what_is_in(first.folder) == before
        await session.rollback(mark)
        assert what_is_in(folder) == before
        assert ((folder / "one").stat().st_nlink, (folder / "a/b/three").stat().st_ino != inode) == (1, True)
        third, _ = await take(session)
        assert what_is_in(third.folder) == before
        assert second.folder.exists(), later


async def test_a_file_that_a_program_keeps_mapped_is_copied_again(folder: Path) -> None:
    # Its later changes have no time of their own until it is written.
    async with Sandbox(workspace=folder) as sandbox, sandbox.session() as session:
        with (folder / "one").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0] = ord("A")
            first, mark = await take(session)
            mapped[0] = ord("B")
            second, later = await take(session)
            assert [(each.folder / "one").read_bytes()[:1] for each in (first, second)] == [b"A", b"B"], (mark, later)


def test_files_in_memory_do_not_tell_when_they_have_changed() -> None:
    with snapshots._opened(Path("/dev/shm")) as in_memory:
        assert snapshots._device_of(in_memory) == 0
