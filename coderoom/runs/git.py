"""What git knows of a folder, and the commits that are made of a patch there. Used by `fix`, and by chats.

Nothing here runs a program that the repository names, such as a hook or a filter, but for `git` as the user; those of
the user's own settings do run. Only `make_commit`, `make_branch` and `go_to` of `GitFolder` write to the repository.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from coderoom._util.text import encodable, visible
from coderoom.errors import RequestError

_KEPT: Final = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CEILING", "GIT_EXEC")
_ALONE: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
_QUIET: Final = (
    *("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false"),
    *("-c", "safe.bareRepository=explicit"),  # Files of a repository can look like one, with settings.
)
_PATIENCE: Final = 120.0
_MOST_NAMED: Final = 10
_SETTINGS: Final = (
    r"^(core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode|excludesfile|attributesfile)"
    r"|(user|author|committer)\.(name|email)|i18n\.commitencoding)$"
)
"""Those of a repository that count: they name no programs."""


class GitError(RequestError):
    """Git has refused something."""


def git(
    folder: Path,
    *arguments: str,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    alone: bool = False,
    fine: Container[int] = (0,),
    as_user: bool = False,
) -> bytes:
    """Run git in a folder and return what it prints.

    Args:
        folder: The folder.
        arguments: The command.
        given: Its standard input.
        env: Further variables.
        alone: Whether it goes without the settings of this machine and of the user.
        fine: The exit codes that are no failure.
        as_user: Whether it is as if the user had typed it, with the hooks and settings of the repository, and for as
            long as these take. For repositories in which code cannot have written them.

    Raises:
        GitError: It failed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
    kept |= {"GIT_OPTIONAL_LOCKS": "0", **(_ALONE if alone else {}), **(env or {})}
    command = ["git", *(() if as_user else _QUIET), *arguments]
    patience = None if as_user else _PATIENCE
    try:
        done = subprocess.run(
            command, cwd=folder, env=kept, input=given, capture_output=True, check=False, timeout=patience
        )
    except subprocess.TimeoutExpired:  # Such as for a pipe in the place of a file that git reads.
        raise GitError(f"`git {arguments[0]}` has not ended after {_PATIENCE:.0f} seconds.") from None
    if done.returncode not in fine:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise GitError(said or f"`git {arguments[0]}` has ended with exit code {done.returncode}.")
    return done.stdout


def name_of(path: str) -> str:
    """A path in one line, for people; names of files can have line breaks, and what controls a terminal."""
    return visible(encodable(path)).replace("\n", "\u240a")


def names_of(paths: Collection[str]) -> str:
    """Paths for people, the first ten of them."""
    more = len(paths) - _MOST_NAMED
    return ", ".join(map(name_of, [*paths][:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def stamp(root: Path, path: str) -> tuple[int, bytes] | None:
    """What is at a path of a folder: whether a file can be run, and its digest; or the target of a link.

    `None` stands for all else, and for what would be reached by a link.
    """
    file = root / path
    try:
        if any((root / above).is_symlink() for above in list(Path(path).parents)[:-1]):
            return None
        mode = file.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(mode):
        return 0, os.fsencode(file.readlink())
    if not stat.S_ISREG(mode):
        return None
    with file.open("rb") as content:
        return 1 | mode & 0o100, hashlib.file_digest(content, "sha256").digest()


@dataclass(frozen=True)
class GitFolder:
    """A folder, and the repository that it is in.

    Attributes:
        folder: The folder.
        prefix: Its path below the top of the repository with a `/` at the end; empty for the top, or without git.
        is_known: Whether it is in a repository, and not ignored there.
        object_format: How objects are named there.
        settings: Options for git with settings of the repository.
        places: Where its index, its objects and its lists of what is ignored are; empty without git.
    """

    folder: Path
    prefix: str = ""
    is_known: bool = False
    object_format: str = "sha1"
    settings: tuple[str, ...] = ()
    places: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Look at a folder."""
        try:
            prefix = os.fsdecode(git(folder, "rev-parse", "--show-prefix").removesuffix(b"\n"))
            if git(folder, "rev-parse", "--is-inside-work-tree") != b"true\n":
                return cls(folder)
            object_format = git(folder, "rev-parse", "--show-object-format").decode().strip()
            listed = git(folder, "config", "-z", "--get-regexp", _SETTINGS, fine=(0, 1)).split(b"\0")[:-1]
            settings = [option for each in listed for option in ("-c", os.fsdecode(each.replace(b"\n", b"=", 1)))]
            paths = {
                name: git(folder, "rev-parse", "--path-format=absolute", "--git-path", name).removesuffix(b"\n")
                for name in ("index", "objects", "info")
            }
        except GitError:
            return cls(folder)
        places = {name: Path(os.fsdecode(path)) for name, path in paths.items()}
        found = cls(folder, prefix, True, object_format, tuple(settings), places)
        is_ignored = prefix and replace(found, folder=found.top, prefix="")._ignored([prefix])
        return replace(found, is_known=False) if is_ignored else found

    def ignored(self, paths: Iterable[str]) -> set[str]:
        """Which of some paths git does not keep track of, and ignores."""
        groups = defaultdict(list)
        for path in paths:
            if not any((self.folder / each).is_symlink() for each in _above(path)):
                owner = self.owner(path)
                groups[owner].append(path[len(owner) + 1 :] if owner else path)
        found = set()
        for owner, names in groups.items():
            ignored = (GitFolder.of(self.folder / owner) if owner else self)._ignored(names)
            found |= {f"{owner}/{name}" if owner else name for name in ignored}
        return found

    def owner(self, path: str) -> str:
        """The innermost repository below the folder that has a path, such as a submodule; empty: there is none."""
        return next((each for each in reversed(_above(path)) if os.path.lexists(self.folder / each / ".git")), "")

    @property
    def top(self) -> Path:
        """The top of the repository."""
        return self.folder.parents[self.prefix.count("/") - 1] if self.prefix else self.folder

    def check_can_commit(self, branch: str = "") -> None:
        """Refuse a repository in which there can be no commit, or no new branch of this name.

        Raises:
            RequestError: It says why, and what to do.
        """
        if not self.is_known:
            raise RequestError(f"{str(self.folder)!r} is in no repository of git that keeps it: take the patch.")
        try:
            self._git("rev-parse", "--quiet", "--verify", f"{self._head()}^{{commit}}")
        except GitError:
            raise RequestError("The repository has no commit yet, on which there could be another one.") from None
        try:
            for what in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
                git(self.folder, "-c", "user.useConfigOnly=true", "var", what)
        except GitError:
            raise RequestError(
                "Git does not know who makes the commit: `git config user.name NAME`, `git config user.email ADDRESS`."
            ) from None
        if not branch:
            return
        try:
            git(self.folder, "check-ref-format", f"refs/heads/{branch}")
            is_name = not branch.startswith("-")
        except GitError:
            is_name = False
        if not is_name:
            raise RequestError(f"{branch!r} cannot be the name of a branch.")
        if git(self.folder, "for-each-ref", "--format=%(refname)", f"refs/heads/{branch}"):
            raise RequestError(f"There is a branch {branch!r} already, or a name begins with it: take another one.")

    def make_commit(self, patch: Path, original: Path, changed: Path, paths: Sequence[str], message: str) -> str:
        """Make a commit on top of the last one, in which these paths are changed and no other. Nothing leads to it.

        Args:
            patch: The patch between the two folders.
            original: The folder as it was.
            changed: The folder with the changes.
            paths: What differs.
            message: The commit's message.

        Returns:
            The name of the commit.

        Raises:
            RequestError: What is changed was changed since the last commit, so that the patch does not apply to that.
        """
        if owners := {owner for path in paths if (owner := self.owner(path))}:
            raise RequestError(f"The patch changes files of another repository, in {', '.join(sorted(owners))}.")
        with tempfile.TemporaryDirectory() as name:
            env = {"GIT_INDEX_FILE": str(Path(name, "index"))}
            head = self._head()
            self._git("read-tree", head, env=env)
            if dirty := self.uncommitted(original, paths):
                try:
                    self._git("apply", "--cached", "--whitespace=nowarn", str(patch.resolve()), env=env)
                except GitError as error:
                    raise RequestError(
                        f"There are changes that are not committed, and without these the patch does not apply: "
                        f"{names_of(dirty)} ({error})"
                    ) from None
            else:
                entries = [(path, self._entry(changed, path, write=True)) for path in paths]
                gone = b"0" * (64 if self.object_format == "sha256" else 40)
                given = [b"0 %b\t%b\0" % (gone, self._name(path)) for path, entry in entries if entry is None]
                given += [b"%b\t%b\0" % (entry, self._name(path)) for path, entry in entries if entry is not None]
                self._git("update-index", "-z", "--index-info", given=b"".join(given), env=env)
            tree = self._git("write-tree", "--missing-ok", env=env).decode().strip()
            commit = self._git("commit-tree", tree, "-p", head, "-F", "-", given=message.encode())
        return commit.decode().strip()

    def uncommitted(self, original: Path, paths: Iterable[str]) -> list[str]:
        """Which of some paths of a folder as it was were not as in the last commit, or are not in the index."""
        listed = self._git("ls-tree", "-r", "-z", self._head()).split(b"\0")[:-1]
        last = {name: b" ".join(facts.split()[::2]) for facts, _, name in (each.partition(b"\t") for each in listed)}
        listed = self._git("ls-files", "-s", "-z").split(b"\0")[:-1]
        index = {name: facts.removesuffix(b" 0") for facts, _, name in (each.partition(b"\t") for each in listed)}
        return [
            path
            for path in paths
            if not (last.get(self._name(path)) == index.get(self._name(path)) == self._entry(original, path))
        ]

    def make_branch(self, name: str, commit: str) -> None:
        """Make a branch that leads to a commit."""
        git(self.top, "update-ref", "-m", "coderoom fix", f"refs/heads/{name}", commit, "")

    def go_to(self, commit: str, paths: Iterable[str]) -> None:
        """Make a commit the last one of the current branch; its files are in the work tree already."""
        git(self.top, "update-ref", "-m", "coderoom fix", "HEAD", commit)
        given = b"".join(self._name(path) + b"\0" for path in paths)
        self._git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=given)

    def _name(self, path: str) -> bytes:
        return os.fsencode(self.prefix + path)

    def _entry(self, folder: Path, path: str, write: bool = False) -> bytes | None:
        """The mode and the name of what is at a path, as git keeps it; `None`: there is neither a file nor a link."""
        known, file = stamp(folder, path), folder / path
        if known is None:
            return None
        if file.is_symlink():
            mode, how, content = b"120000", ("--no-filters",), known[1]
        else:
            mode = b"100755" if known[0] & 0o100 else b"100644"
            how, content = (f"--path={self.prefix}{path}",), file.read_bytes()
        store = ("-w",) if write else ()
        command = ("-c", "core.safecrlf=false", "hash-object", "-t", "blob", "--stdin", *store, *how)
        return mode + b" " + self._git(*command, given=content).strip()

    def check(self, patch: Path) -> str:
        """Why a patch does not apply here, in the words of git; empty if it does."""
        try:
            self._git("apply", "--check", str(patch.resolve()))
        except GitError as error:
            return str(error)
        return ""

    def _head(self) -> str:
        return git(self.folder, "rev-parse", "--quiet", "--verify", "HEAD").decode().strip()

    def _ignored(self, names: Iterable[str]) -> set[str]:
        known = self if self.is_known else GitFolder(self.folder)
        above = b"./" + os.fsencode(known.prefix)  # A `:` at its beginning would be magic.
        given = b"".join(above + os.fsencode(name) + b"\0" for name in names)
        found = known._git("check-ignore", "-z", "--stdin", given=given, fine=(0, 1))
        return {os.fsdecode(name.removeprefix(above)) for name in found.split(b"\0")[:-1]}

    def _git(
        self,
        *arguments: str,
        given: bytes = b"",
        env: Mapping[str, str] | None = None,
        fine: Container[int] = (0,),
    ) -> bytes:
        """Run git with the files, the index and the objects of the repository, and with what counts of its settings.

        The others can name programs: filters of contents, or where a missing object is fetched.
        """
        with tempfile.TemporaryDirectory() as name:
            private = Path(name)
            (private / "HEAD").write_text("ref: refs/heads/none\n")
            for each in ("refs", "objects"):
                (private / each).mkdir()
            version = f"repositoryformatversion = 1\n[extensions]\nobjectFormat = {self.object_format}\n"
            (private / "config").write_text(f"[core]\n{version}")
            kept = {}
            if self.places:
                (private / "info").symlink_to(self.places["info"])
                kept = {"GIT_INDEX_FILE": self.places["index"], "GIT_OBJECT_DIRECTORY": self.places["objects"]}
            where = f"--git-dir={private}", f"--work-tree={self.top}"
            given_env = {**{key: str(path) for key, path in kept.items()}, **(env or {})}
            alone = not self.places
            return git(self.top, *where, *self.settings, *arguments, given=given, env=given_env, alone=alone, fine=fine)


def _above(path: str) -> list[str]:
    """The folders above a path."""
    folders = path.split("/")[:-1]
    return ["/".join(folders[:number]) for number in range(1, len(folders) + 1)]
