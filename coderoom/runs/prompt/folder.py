"""The working folder of a chat: its files, and what has changed in it. Used by the commands of a chat."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coderoom._util.files import read_inside, stats_inside
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs.folders import is_cache
from coderoom.sandbox import find_environment

_ELSEWHERE: Final = ("docker", "remote")
_HOW: Final = (
    "Make .venv in the repository, activate one before the chat, or name packages, as in --package pytest, for the "
    "code to have those of the project."
)
_LARGEST: Final = 1 << 20
Facts = dict[str, tuple[int, int]]
"""The time and the size of each file of a folder, by its path in it."""


def facts_of(folder: Path) -> Facts:
    """The facts of all files; none if there is no such folder."""
    if not folder.is_dir():
        return {}
    return {name: (facts.st_mtime_ns, facts.st_size) for name, facts in stats_inside(folder)}


def without_own(facts: Facts) -> Facts:
    """The facts without files that tools keep for themselves."""
    return {name: each for name, each in facts.items() if not is_cache(name) and ".git" not in name.split("/")}


def differing(before: Facts, after: Facts) -> list[str]:
    """The names of files that are new, changed or gone."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def diff_of(before: Path, after: Path) -> Iterator[str]:
    """The lines of a unified diff of two folders."""
    for name in differing(without_own(facts_of(before)), without_own(facts_of(after))):
        old, new = _lines(before, name), _lines(after, name)
        if old is None or new is None:
            yield f"{name}: binary or larger than {_LARGEST >> 20} MiB, changed"
        elif old != new:
            yield from difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")


def _lines(folder: Path, name: str) -> list[str] | None:
    """The lines of a file, none if there is no such file; `None` if they cannot be shown."""
    try:
        return read_inside(folder, name, _LARGEST).decode().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, RequestError, UnicodeDecodeError):
        return None


def environment_words(executor: SandboxCodeExecutor | None, folder: Path | None) -> str:
    """Which environment the programs of code have, in a line; empty if it is not the project's that they would have."""
    if executor is None or folder is None or executor.environment != "project":
        return ""
    if executor.wall in _ELSEWHERE:
        return f"Environment: that of the wall (isolation backend) {executor.wall}."
    try:
        found = find_environment(folder)
    except RequestError as error:
        return f"Environment: CodeRoom's own. {error} {_HOW}"
    if found is None:
        return f"Environment: CodeRoom's own, since the project has none. {_HOW}"
    is_inside = found.folder.is_relative_to(folder)
    name = found.folder.relative_to(folder) if is_inside else found.folder
    return f"Environment: {name}{f' (Python {found.version})' if found.version else ''}."
