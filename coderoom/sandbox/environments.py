"""The environment of a project: a virtual environment, or one of conda, whose programs code runs.

It may come with the project, and its text is not trusted: nothing of it runs here. What its file names as its
interpreter is shown to code only if it is an installation of Python.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coderoom.errors import RequestError
from coderoom.sandbox.walls.private import is_private, without_dots

ENVIRONMENT_HELP: Final = (
    "Shell blocks find the programs of the project's own environment first, if it has one: run its tests and its code "
    "there, as in `python -m pytest -q`. Python blocks run in another interpreter, which may not have its packages."
)
"""What a model has to know."""
_IN_A_FOLDER: Final = (".venv", "venv", "env")
_MOST_LINKS: Final = 40  # As many as the kernel follows.


@dataclass(frozen=True)
class ProjectEnvironment:
    """An environment.

    Attributes:
        folder: Its folder.
        version: The version of its Python; empty if that is not known.
        folders: What has to be visible: it, and the installation of its interpreter.
        links: Symbolic links that lead to the interpreter and lie elsewhere, as pairs of path and target.
    """

    folder: Path
    version: str
    folders: tuple[Path, ...]
    links: tuple[tuple[str, str], ...]

    @property
    def programs(self) -> str:
        """The folder of its programs."""
        return str(self.folder / "bin")

    @classmethod
    def of(cls, folder: Path) -> ProjectEnvironment:
        """Read an environment, without running anything of it.

        Raises:
            RequestError: It is none, or what its interpreter is part of is not shown to code.
        """
        folder = without_dots(folder)
        facts, python = _facts(folder), folder / "bin" / "python"
        if not python.exists():
            raise RequestError(f"{str(folder)!r} has no interpreter, so that it is not an environment of Python.")
        if is_private(folder) or is_private(folder.resolve()):
            raise RequestError(f"The environment {str(folder)!r} is a home or system folder, which code is not shown.")
        folders, seen = [folder], python
        links: list[tuple[str, str]] = []
        while seen.is_symlink() and len(links) < _MOST_LINKS:
            links.append((str(seen), str(seen.readlink())))
            seen = without_dots(seen.parent / links[-1][1])
        home = Path(facts.get("home", ""))
        programs = [python.resolve(), *([(home / "python").resolve()] if home.is_absolute() else [])]
        for program in dict.fromkeys(programs):
            base = program.parent.parent
            if base == folder.resolve() or not program.exists():
                continue
            _check_base(folder, base)
            folders.append(base)
        # By the path that it is known by, too, which may go through links.
        if home.is_absolute() and home.parent not in folders and home.parent.resolve() in folders:
            folders.append(home.parent)
        version = ".".join(facts.get("version_info", facts.get("version", "")).split(".")[:3])
        return cls(folder, version, tuple(folders), tuple(links))


def find_environment(folder: Path) -> ProjectEnvironment | None:
    """The environment of the project in a folder, if it has one.

    That is the active one (`VIRTUAL_ENV`), `.venv`, `venv` or `env` in the folder, or the active one of conda, the
    first that is found. The one that this program itself is installed in does not count, if it is not in the folder.

    Raises:
        RequestError: It cannot be used.
    """
    folder = folder.resolve()
    named = [Path(os.environ[name]) if os.environ.get(name) else None for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    inside = [folder / name for name in _IN_A_FOLDER]
    for path in filter(None, [named[0], *inside, named[1]]):
        real, own = path.resolve(), Path(sys.prefix).resolve()
        is_own = real.is_relative_to(folder)
        # A link in a project could lead anywhere.
        if (is_own or (path not in inside and real != own)) and _is_environment(path):
            return ProjectEnvironment.of(path)
    return None


def _is_environment(path: Path) -> bool:
    is_marked = (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()
    return is_marked and (path / "bin" / "python").exists()


def _facts(folder: Path) -> dict[str, str]:
    """What `pyvenv.cfg` says; nothing for an environment of conda."""
    try:
        lines = (folder / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _check_base(folder: Path, base: Path) -> None:
    """Refuse a folder that is not one of Python alone, which the file of an environment could name.

    Raises:
        RequestError: It is none.
    """
    home = Path.home().resolve()
    is_python = any(base.glob("lib*/python3*/os.py")) and any(base.glob("bin/python3*"))
    if not is_python or is_private(base) or (base.parent == home and base.name.startswith(".")):
        raise RequestError(
            f"The interpreter of the environment {str(folder)!r} is in {str(base)!r}, which is not shown to code: it "
            "is not a folder of Python alone."
        )
