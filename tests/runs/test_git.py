"""What git does for `coderoom fix` in a repository that somebody else has made."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.runs.folders import apply_patch, copy_repository, patch_between
from coderoom.runs.git import GitFolder

ME = ("-c", "user.name=A", "-c", "user.email=a@example.org")


def hostile(marker: Path, *settings: str) -> str:
    """The settings of a repository with programs, each of which makes the marker."""
    lines = "".join(f"\t{each} = touch '{marker}'\n" for each in ("clean", "smudge", "process"))
    pack = f"uploadpack = \"touch '{marker}'; false\""
    fetch = f'[remote "origin"]\n\turl = {marker.parent}\n\tpromisor = true\n\t{pack}\n'
    core = "[core]\n\trepositoryformatversion = 0\n" + "".join(f"\t{each}\n" for each in settings)
    return f'{core}[filter "x"]\n{lines}{fetch}'


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *ME, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def changed_copy(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Copies of `a.py` as it is and changed, and the patch between them."""
    original, changed, patch = tmp_path / "original", tmp_path / "changed", tmp_path / "a.patch"
    for copy, content in ((original, "x = 1\n"), (changed, "x = 2\n")):
        copy.mkdir()
        (copy / "a.py").write_text(content)
    patch.write_bytes(patch_between(original, changed, ["a.py"], "sha1"))
    return original, changed, patch


def test_no_program_runs_that_the_settings_of_a_repository_name(tmp_path: Path) -> None:
    folder, marker = tmp_path / "repository", tmp_path / "ran"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    (folder / "gone").write_text("gone\n")
    (folder / ".gitattributes").write_text("* filter=x\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Begin.")
    blob = git(folder, "rev-parse", "HEAD:gone").strip()
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (folder / ".git" / "config").write_text(hostile(marker) + "[user]\n\tname = A\n\temail = a@example.org\n")
    original, changed, patch = changed_copy(tmp_path)
    known = GitFolder.of(folder)
    assert known.is_known
    assert known.ignored(["a.py", "x.log"]) == {"x.log"}
    assert known.check(patch) == ""
    known.check_can_commit("topic")
    commit = known.make_commit(patch, original, changed, ["a.py"], "Two.")
    known.make_branch("topic", commit)
    assert known.uncommitted(original, ["a.py"]) == []
    known.go_to(commit, ["a.py"])
    assert not marker.exists()
    assert git(folder, "show", "topic:a.py") == "x = 2\n"
    assert git(folder, "show", "-s", "--format=%an", "topic") == "A\n"


def test_files_that_look_like_a_repository_are_none(tmp_path: Path) -> None:
    folder, marker = tmp_path / "repository", tmp_path / "ran"
    for each in ("objects", "refs"):
        (folder / each).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(hostile(marker, "bare = false", "worktree = ."))
    (folder / "a.py").write_text("x = 1\n")
    (folder / ".gitattributes").write_text("* filter=x\n")
    _, _, patch = changed_copy(tmp_path)
    known = GitFolder.of(folder)
    assert not known.is_known
    assert known.check(patch) == ""
    apply_patch(patch, folder)
    assert (folder / "a.py").read_text() == "x = 2\n"
    assert not marker.exists()


@pytest.mark.slow
def test_a_copy_has_nothing_from_behind_links_that_are_made_meanwhile(tmp_path: Path) -> None:
    folder, outside, ended = tmp_path / "repository", tmp_path / "outside", threading.Event()
    for each in (folder / "inner", outside):
        each.mkdir(parents=True)
        (each / "a").write_text(each.name)
    (folder / "a").write_text("")

    def swap() -> None:
        while not ended.is_set():
            for name, link in (("inner", outside), ("a", outside / "a")):
                (folder / name).rename(tmp_path / "kept")
                (folder / name).symlink_to(link)
                (folder / name).unlink()
                (tmp_path / "kept").rename(folder / name)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(1000):
            copy = tmp_path / f"copy{number}"
            with contextlib.suppress(RequestError):  # It is gone just now.
                copy_repository(folder, copy)
            found = [path.read_text() for path in copy.rglob("*") if path.is_file() and not path.is_symlink()]
            assert "outside" not in found
    finally:
        ended.set()
        swapping.join()
