"""What git does for `coderoom fix` in a repository that somebody else has made."""

from __future__ import annotations

import subprocess
from pathlib import Path

from coderoom.runs.folders import apply_patch, patch_between
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
