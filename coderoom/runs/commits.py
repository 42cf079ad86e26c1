"""Commits of a person's own that a chat makes for them, and takes back: with their hooks, as if they had typed it.

So the code must not have been able to write to what git keeps: the chat has an overlay, which refuses that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from coderoom.errors import RequestError
from coderoom.runs.git import GitFolder, git, names_of

_FROM_INPUT = ("--pathspec-from-file=-", "--pathspec-file-nul")


@dataclass(frozen=True)
class Commit:
    """A commit that was made.

    Attributes:
        name: Its name.
        title: The first line of its message.
        paths: The files that it changes.
        has_more: Whether it has changes of the person, too.
    """

    name: str
    title: str
    paths: Sequence[str]
    has_more: bool

    def __str__(self) -> str:
        return f"{self.name[:10]} {self.title}"


def make_commit(known: GitFolder, paths: Sequence[str], message: str, *, has_more: bool) -> Commit:
    """Commit some files of a folder as they are, on the current branch; what else is in the index stays there.

    Args:
        known: The folder.
        paths: The files, which are new, changed or gone.
        message: The message.
        has_more: Whether the files have changes of the person, too.

    Raises:
        RequestError: Git or a hook refuses it; the index is as before.
    """
    tracked = set(git(known.folder, "ls-files", "-z").split(b"\0"))
    new = [path for path in paths if os.fsencode(path) not in tracked]
    if new:
        _git(known, "add", "--intent-to-add", *_FROM_INPUT, paths=new)
    try:
        _git(known, "commit", "--quiet", "--only", "-m", message, *_FROM_INPUT, paths=paths)
    except RequestError as error:
        if new:
            _git(known, "reset", "--quiet", *_FROM_INPUT, paths=new)
        raise RequestError(f"There is no commit, since git or a hook has refused it: {error}") from None
    return Commit(_head(known), message.partition("\n")[0], tuple(paths), has_more)


def undo_commit(known: GitFolder, commit: Commit) -> None:
    """Take a commit back: its files are as they were before it, and the branch ends there.

    Raises:
        RequestError: It is not the last one, others have it, or its files have changed since; nothing has changed.
    """
    by_hand = f"`git revert {commit.name[:10]}` makes a commit that undoes it."
    if _head(known) != commit.name:
        raise RequestError(f"The commit {commit} is not the last one any more: {by_hand}")
    if commit.has_more:
        raise RequestError(f"The commit {commit} has changes of yours, too, which would be lost: {by_hand}")
    if git(known.folder, "for-each-ref", "--contains", commit.name, "refs/remotes"):
        raise RequestError(f"The commit {commit} was pushed: {by_hand}")
    if changed := known.uncommitted(known.folder, commit.paths):
        raise RequestError(f"Since the commit {commit}, {names_of(changed)} was changed: commit that or undo it first.")
    _git(known, "update-ref", "-m", "coderoom: undo", "HEAD", f"{commit.name}^", commit.name)
    _git(known, "restore", "--source=HEAD", "--staged", "--worktree", *_FROM_INPUT, paths=commit.paths)


def _head(known: GitFolder) -> str:
    return git(known.folder, "rev-parse", "--verify", "HEAD").decode().strip()


def _git(known: GitFolder, *arguments: str, paths: Sequence[str] = ()) -> None:
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    git(known.folder, "--literal-pathspecs", *arguments, given=given, as_user=True)
