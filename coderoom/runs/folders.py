"""Two states of a repository, each a folder of its own: copies, what differs, and the patch between them. For `fix`."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from coderoom._util.files import copy_folder, remove_inside, write_inside
from coderoom.errors import RequestError
from coderoom.runs.git import git, stamp

NOT_COPIED: Final = (".git", "__pycache__")
_CACHES: Final = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coderoom"}
_AS_THEY_ARE: Final = "* -text !eol !crlf !ident !filter !working-tree-encoding !diff !merge\n"
"""Attributes with which git takes files as they are, whatever those of the repository say."""


def copy_repository(source: Path, target: Path) -> None:
    """Copy a repository without what git keeps and without caches."""
    try:
        copy_folder(source, target, NOT_COPIED)
    except OSError as error:
        raise RequestError(f"The repository {str(source)!r} cannot be copied: {error}.") from error


def differing(original: Path, changed: Path) -> dict[str, str]:
    """The paths of files and links that differ in a copy that was changed: `added`, `changed` or `deleted`."""
    before, after = _facts(original), _facts(changed)
    found = {}
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):  # Else it was not written to; a file may be large.
            old, new = stamp(original, path), stamp(changed, path)
            if old != new:
                found[path] = "added" if old is None else "changed" if new is not None else "deleted"
    return found


def is_cache(path: str) -> bool:
    """Whether a tool keeps a path for itself."""
    return not _CACHES.isdisjoint(path.split("/"))


def _facts(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [each for each in folders if each not in NOT_COPIED]
        for name in (*names, *folders):
            path = Path(folder, name)
            facts = path.lstat()
            if not stat.S_ISDIR(facts.st_mode):
                found[str(path.relative_to(root))] = facts.st_mode, facts.st_size, facts.st_mtime_ns
    return found


def take(paths: Sequence[str], source: Path, target: Path) -> None:
    """Make these paths of a folder, each a file or a link, as they are in another one.

    Raises:
        OSError: A folder that is none of them is in the way.
    """
    for path in paths:
        if stamp(target, path) is not None:
            remove_inside(target, path)
            for above in list(Path(path).parents)[:-1]:
                if any((target / above).iterdir()):
                    break
                (target / above).rmdir()
    for path in paths:
        if stamp(source, path) is None:
            continue
        if (source / path).is_symlink():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).symlink_to((source / path).readlink())
        else:
            write_inside(target, path, (source / path).read_bytes())
            (target / path).chmod((source / path).stat().st_mode)


def patch_between(original: Path, changed: Path, paths: Iterable[str], object_format: str) -> bytes:
    """The differences of some paths of two folders as a patch of git, byte by byte.

    Args:
        original: A folder.
        changed: Another one.
        paths: The paths in both.
        object_format: How the repository that takes the patch names its objects.
    """
    named = [os.fsencode(path) for path in paths]
    with tempfile.TemporaryDirectory() as name:
        store, trees = Path(name, "store"), []
        git(Path(name), "init", "--quiet", "--template=", f"--object-format={object_format}", str(store), alone=True)
        store /= ".git"
        (store / "info").mkdir()
        (store / "info" / "attributes").write_text(_AS_THEY_ARE)
        for number, side in enumerate((original, changed)):
            there = [path for path in named if stamp(side, os.fsdecode(path)) is not None]
            where = f"--git-dir={store}", f"--work-tree={side}"
            env = {"GIT_INDEX_FILE": str(store / f"index{number}")}
            update = ("update-index", "--add", "-z", "--stdin")
            git(side, *where, *update, alone=True, env=env, given=b"".join(each + b"\0" for each in there))
            trees.append(git(side, *where, "write-tree", alone=True, env=env).decode().strip())
        shown = ("-r", "-p", "-M", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
        return git(original, f"--git-dir={store}", "diff-tree", *shown, *trees, alone=True)


def apply_patch(patch: Path, folder: Path) -> None:
    """Apply a patch to a folder that is no repository, even if it looks like one.

    Raises:
        RequestError: It does not apply.
    """
    try:
        git(folder, f"--git-dir={os.devnull}", "apply", "--whitespace=nowarn", str(patch), alone=True)
    except RequestError as error:
        raise RequestError(f"The patch does not apply: {error}") from None
