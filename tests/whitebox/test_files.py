"""Files in a folder whose code makes links: nothing is read, written or removed through one."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from coderoom._util.files import (
    copy_folder,
    files_inside,
    name_inside,
    open_folder,
    open_inside,
    read_inside,
    refusing,
    remove_inside,
    write_inside,
)
from coderoom.errors import RequestError

LINK = "Not a directory|symbolic links"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with files, links out of it, and a pipe."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "a/b", outside):
        folder.mkdir(parents=True)
    (root / "a/b/file").write_text("inside")
    (root / "a/b/file").chmod(0o754)
    (outside / "file").write_text("outside")
    (root / "a/out").symlink_to(outside)
    (root / "a/link").symlink_to(outside / "file")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    "name", ["", "/", "..", ".", "../file", "a/../../file", "/etc/passwd", "a\0b", "/workspace/.."]
)
def test_a_name_outside_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="not in the workspace"):
        name_inside(name)
    assert [name_inside(each) for each in ("/workspace/a//b", "a/../c", "..a")] == ["a/b", "c", "..a"]


def test_what_is_read_is_a_plain_file_with_no_more_than_the_limit(root: Path) -> None:
    assert read_inside(root, "a/b/file", 6) == b"inside"
    with pytest.raises(RequestError, match="has 6 bytes, and the limit is 5"):
        read_inside(root, "a/b/file", 5)
    for name in ("a/out/file", "a/link"):
        with pytest.raises(OSError, match=LINK):
            open_inside(root, name)
    with pytest.raises(RequestError, match="not a plain file"):
        open_inside(root, "pipe")
    assert list(files_inside(root)) == [("a/b/file", 6)]
    with pytest.raises(OSError, match=LINK), open_folder(root / "a/out"):
        pass


def test_a_file_is_written_in_place_of_a_link_and_not_behind_one(root: Path) -> None:
    assert write_inside(root, "a/link", b"new") == root / "a/link"
    assert not (root / "a/link").is_symlink()
    write_inside(root, "new/folder/file", io.BytesIO(b"more"))
    assert (root / "new/folder/file").read_text() == "more"
    for name in ("a/out/file", "a/b"):
        with pytest.raises(OSError, match=f"{LINK}|Is a directory"):
            write_inside(root, name, b"new")
    assert (root.parent / "outside/file").read_text() == "outside"
    assert not [*root.rglob("*.new")]


def test_what_is_removed_is_inside(root: Path) -> None:
    with pytest.raises(OSError, match=LINK):
        remove_inside(root, "a/out/file")
    for name in ("a/out", "a"):
        remove_inside(root, name)
    assert [path.name for path in root.iterdir()] == ["pipe"]
    assert (root.parent / "outside/file").exists()


def test_a_copy_has_links_modes_times_and_holes_but_nothing_else(root: Path, tmp_path: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"data")
    os.utime(root / "a/b/file", ns=(1_000, 2_000))
    (root / "left").mkdir()
    copy_folder(root, tmp_path / "copy", {"left"})
    copy = tmp_path / "copy"
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        "a", "a/b", "a/b/file", "a/link", "a/out", "sparse"
    ]  # fmt: skip
    assert (copy / "a/out").readlink() == tmp_path / "outside"
    facts = (copy / "a/b/file").stat()
    assert (facts.st_mode & 0o777, facts.st_mtime_ns) == (0o754, 2_000)
    assert (copy / "sparse").read_bytes() == (root / "sparse").read_bytes()
    assert (copy / "sparse").stat().st_blocks <= (root / "sparse").stat().st_blocks


def test_what_the_file_system_refuses_is_a_wrong_request(root: Path) -> None:
    (root / "binary").write_bytes(b"\xff")
    for name, why in (("none", "No such file or directory"), ("binary", "it is not UTF-8 text")):
        with pytest.raises(RequestError, match=f"cannot be read: {why}"), refusing("It cannot be read"):
            (root / name).read_text("utf-8")
