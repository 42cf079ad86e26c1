"""The changes that are kept apart from a workspace, without those that are nobody's work. Used by `Run` and by chats.

What a person has left of them is a step of the run: when earlier code has run again, they are the same again.
"""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from coderoom.executors import SandboxCodeExecutor
from coderoom.runs.folders import is_cache
from coderoom.runs.git import GitFolder

if TYPE_CHECKING:
    from coderoom.sandbox import Change


def overlaid_in(executors: Iterable[object]) -> SandboxCodeExecutor | None:
    """The first executor that keeps changes apart from its folder; `None` if there is none."""
    found = (each for each in executors if isinstance(each, SandboxCodeExecutor) and each.workspace_mode == "overlay")
    return next(found, None)


async def git_folder(folder: Path) -> GitFolder:
    """What git knows of a folder; nothing without git."""
    return GitFolder(folder) if shutil.which("git") is None else await asyncio.to_thread(GitFolder.of, folder)


async def changes_of(executor: SandboxCodeExecutor, known: GitFolder) -> tuple[list[Change], int]:
    """The changes without caches and what git ignores, and how many git ignores."""
    changes = [change for change in await executor.changes() if not is_cache(change.path)]
    names = [change.path for change in changes]
    ignored = await asyncio.to_thread(known.ignored, names) if known.is_known else set()
    return [change for change in changes if change.path not in ignored], len(ignored)


async def kept_in(executor: SandboxCodeExecutor, known: GitFolder) -> tuple[str, int]:
    """The changes that there are now, as text, and how many files they are of.

    Raises:
        RequestError: They are too large.
    """
    changes, _ = await changes_of(executor, known)
    return b64encode(await executor.save_changes([change.path for change in changes])).decode(), len(changes)


async def put_back(kept: str, executor: SandboxCodeExecutor) -> None:
    """Have the changes again that there were, in place of those that earlier code has made now.

    Raises:
        RequestError: They cannot be written.
    """
    assert executor.work_dir is not None
    changes, _ = await changes_of(executor, await git_folder(executor.work_dir))
    paths = [each for change in changes for each in (change.path, change.old_path) if each is not None]
    if paths:
        await executor.discard(paths)
    await executor.load_changes(b64decode(kept))
