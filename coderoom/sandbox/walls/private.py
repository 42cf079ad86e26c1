"""Folders of this machine that code is never shown as a whole, or that cannot be a workspace. Used by the walls."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterable
from pathlib import Path

from coderoom.errors import RequestError

# Never visible as a whole; of the second ones, nothing inside either.
_PRIVATE = frozenset({"/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp"})
# Never a workspace: what this machine runs.
_SYSTEM = re.compile(r"(/usr|/usr/local)(/(s?bin|lib[^/]*|share|include|etc)(/.*)?)?|/(s?bin|lib[^/]*)(/.*)?")
_PRIVATE_WITH_ALL = (
    "/boot",
    "/dev",
    "/etc",
    "/lost+found",
    "/proc",
    "/run",
    "/sys",
    "/var/log",
    "/var/run",
    "/var/spool",
)


def without_dots(path: Path | str) -> Path:
    """The absolute path without `..`; symbolic links stay in it, except where `..` follows one."""
    found = Path("/")
    for part in Path(path).absolute().parts[1:]:
        if part == "..":  # The folder above a link's target, not above the link.
            found = (found.resolve() if found.is_symlink() else found).parent
        else:
            found /= part
    return found


def is_covered(path: str, targets: Iterable[str]) -> bool:
    """Whether a path is at one of some others, or below it."""
    return any(Path(path).is_relative_to(target) for target in targets)


def is_private(path: Path) -> bool:
    """Whether a folder must not be visible as a whole: a home or system folder."""
    if str(path) in _PRIVATE or path.parent == Path("/home") or is_covered(str(path), _PRIVATE_WITH_ALL):
        return True
    # The folder above a home shows the home.
    homes = {Path("/root"), Path(os.environ.get("HOME") or "/root")}
    with contextlib.suppress(KeyError):
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return any(home.is_relative_to(path) for home in (*homes, *(home.resolve() for home in homes)))


def refuse_private(path: Path, what: str) -> None:
    """Refuse a folder that must not be visible as a whole; `what` is the beginning of the message."""
    if is_private(path.resolve()) or is_private(path):
        raise RequestError(
            f"{what[:1].upper()}{what[1:]}, which is a home or system folder and is not shown to code as a whole; "
            "use a folder of its own, such as a virtual environment."
        )


def check_readable(path: Path) -> Path:
    """The path without `..`, if code may be shown what is there."""
    path = without_dots(path)
    if not path.exists():
        raise RequestError(f"There is no {str(path)!r} to make readable.")
    refuse_private(path, f"readable names {str(path)!r}")
    return path


def check_workspace(workspace: Path) -> None:
    """Check that a folder, given without symbolic links, can be a workspace."""
    if not workspace.is_dir():
        raise RequestError(f"The workspace {str(workspace)!r} is not a folder; make it first.")
    if is_private(workspace) or _SYSTEM.fullmatch(str(workspace)):
        raise RequestError(
            f"The workspace {str(workspace)!r} is a home or system folder, where code could change what this machine "
            "runs; use a folder inside it."
        )
