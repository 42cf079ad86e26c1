"""Where a patch goes that is a fix, besides its file: into a branch, into the folder, or into a commit. For `fix`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coderoom._util.files import refusing
from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.runs.folders import take
from coderoom.runs.git import GitFolder, names_of, stamp
from coderoom.runs.review import Ask
from coderoom.sandbox import Changes, Patch

_LONGEST_TITLE: Final = 72
_LONGEST_TEXT: Final = 4_000


@dataclass(frozen=True)
class Delivery:
    """What becomes of a patch with which all tests pass.

    Attributes:
        branch: The branch that is made, with one commit on top of the last one; empty: none.
        apply: Whether the patch is written into the folder, if a person agrees.
        commit: Whether it is committed there, too.
        asking: Makes what asks a person, who is told this first.
    """

    branch: str = ""
    apply: bool = False
    commit: bool = False
    asking: Callable[[str], Ask] | None = None

    def check(self, folder: GitFolder) -> None:
        """Refuse what cannot be done, before a model is asked.

        Raises:
            RequestError: It says why.
        """
        if sum(map(bool, (self.branch, self.apply, self.commit))) > 1:
            raise RequestError("Take one of --branch, --apply and --commit.")
        if self.branch or self.commit:
            folder.check_can_commit(self.branch)

    async def deliver(
        self,
        folder: GitFolder,
        file: Path,
        original: Path,
        changed: Path,
        paths: Sequence[str],
        message: str,
        verdict: str,
    ) -> str:
        """Do it.

        Args:
            folder: The repository.
            file: The patch.
            original: The folder as it was.
            changed: The folder with the patch.
            paths: What differs.
            message: The message of a commit.
            verdict: The tests before and after, in words.

        Returns:
            What was done, or refused by the person.

        Raises:
            RequestError: It cannot be done; nothing has changed then.
        """
        if self.branch:
            commit = folder.make_commit(file, original, changed, paths, message)
            folder.make_branch(self.branch, commit)
            dirty = folder.uncommitted(original, paths)
            more = "; your changes that are not committed are not in it" if dirty else ""
            return f"Branch {self.branch!r} has the patch as the commit {commit[:10]}{more}."
        if not (self.apply or self.commit):
            return ""
        if self.commit and (dirty := folder.uncommitted(original, paths)):
            raise RequestError(f"Not written: {names_of(dirty)} had changes that are not committed: commit them.")
        assert self.asking is not None
        text = (await asyncio.to_thread(file.read_bytes)).decode("utf-8", "replace")
        if why := await self.asking(f"{verdict}. ")(Changes(()), Patch(text)):
            return why
        if meanwhile := [path for path in paths if stamp(folder.folder, path) != stamp(original, path)]:
            raise RequestError(f"Not written: somebody has changed {names_of(meanwhile)} meanwhile. The patch is kept.")
        commit = folder.make_commit(file, original, changed, paths, message) if self.commit else ""
        with refusing(f"The patch cannot be written into {str(folder.folder)!r}"):
            take(paths, changed, folder.folder)
        if commit:
            folder.go_to(commit, paths)
            return f"The patch is in the folder, and committed as {commit[:10]}."
        return "The patch is in the folder."


def message_of(summary: str, problem: str, verdict: str) -> str:
    """The message of a commit: the model's summary, then the verdict."""
    said = encodable(summary or f"Fix: {problem}").replace("\0", "").strip()
    title, _, rest = said.partition("\n")
    if len(title) > _LONGEST_TITLE:
        title, rest = f"{title[: _LONGEST_TITLE - 1].rsplit(' ', 1)[0]}…", said
    parts = [title, rest.strip()[:_LONGEST_TEXT], verdict]
    return "\n\n".join(filter(None, parts)) + "\n"
