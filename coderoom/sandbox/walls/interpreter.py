"""Where a Python interpreter is installed, and what it needs of a machine's files."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from coderoom._util.python import default_python
from coderoom.errors import RequestError

__all__ = ["Interpreter", "without_dots"]

_OLDEST = (3, 8)
_PATIENCE = 20.0
_PACKAGES = ("site-packages", "dist-packages")
_ASK = """
import json, sys, sysconfig
json.dump({"executable": sys.executable, "version": list(sys.version_info[:2]), "path": sys.path,
           "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix],
           "code": [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]},
          sys.stdout)
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter of this machine.

    Attributes:
        executable: Its path, by which it finds the packages of its virtual environment.
        folders: What it is installed in: its prefixes, and folders of packages that lie elsewhere.
        links: The symbolic links from the executable to the program, as pairs of where they are and what they say.
        packages: Folders for `sys.path` that it does not find by itself when it starts isolated.
        code: The folders whose files it runs.
    """

    executable: str
    folders: tuple[Path, ...]
    links: tuple[tuple[str, str], ...]
    packages: tuple[str, ...]
    code: tuple[Path, ...]

    @classmethod
    def of(cls, python: Path | None, workspace: Path | None) -> Interpreter:
        """Find out about an interpreter.

        Args:
            python: Its path; `None`: the one of `default_python`.
            workspace: The folder that code may change.

        Raises:
            RequestError: It does not run, is too old or lies in the workspace.
        """
        whole = python is None  # With all that it finds, also what users have installed for themselves.
        if whole and default_python() == sys.executable:
            return _own(tuple(sys.path))
        python = without_dots(python or default_python())
        own = str(without_dots(sys.executable))
        if workspace is not None and python.is_relative_to(workspace.resolve()) and str(python) != own:
            # It is about to be run without a wall.
            raise RequestError(
                f"The interpreter {str(python)!r} lies inside the workspace, where code may have changed it; "
                "use one elsewhere."
            )
        return _other(str(python), whole)


def without_dots(path: Path | str) -> Path:
    """The absolute path without `..`; symbolic links stay in it, but for one that `..` comes after."""
    found = Path("/")
    for part in Path(path).absolute().parts[1:]:
        if part == "..":  # What is above a link's target, and not above the link.
            found = (found.resolve() if found.is_symlink() else found).parent
        else:
            found /= part
    return found


@functools.lru_cache(maxsize=4)
def _own(path: tuple[str, ...]) -> Interpreter:
    code = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    return _interpreter(sys.executable, prefixes, list(path), code)


@functools.lru_cache(maxsize=16)
def _other(python: str, whole: bool) -> Interpreter:
    # -I, but for the packages of the user's own. In `/` there is no module that it could take for one of its own.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, *(() if whole else ("-I",)), "-c", _ASK]
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=True, env=env, cwd="/"
        )
        facts = json.loads(asked.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise RequestError(f"The interpreter {python!r} cannot be used: {said or error}.") from error
    if tuple(facts["version"]) < _OLDEST:
        version = ".".join(map(str, facts["version"]))
        raise RequestError(f"The interpreter {python!r} is Python {version}; the sandbox needs 3.8 or later.")
    return _interpreter(facts["executable"], facts["prefixes"], facts["path"], facts["code"])


def _interpreter(executable: str, prefixes: list[str], path: list[str], code: list[str]) -> Interpreter:
    executable = str(without_dots(executable))
    roots = list(dict.fromkeys(without_dots(prefix) for prefix in prefixes))
    packages = list(dict.fromkeys(without_dots(entry) for entry in path if Path(entry).name in _PACKAGES))
    extra = [folder for folder in packages if not any(folder.is_relative_to(root) for root in roots)]
    links = _links(executable)
    # A virtual environment knows its interpreter by a path that may itself go through links.
    real = Path(executable).resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        roots.append(real.parent.parent)
    return Interpreter(
        executable=executable,
        folders=(*roots, *extra),
        links=tuple(links),
        packages=tuple(map(str, extra)),
        code=tuple(dict.fromkeys(Path(folder).resolve() for folder in [*code, *map(str, extra)])),
    )


def _links(executable: str) -> list[tuple[str, str]]:
    links: list[tuple[str, str]] = []
    current = Path(executable)
    for _ in range(40):
        if not current.is_symlink():
            break
        text = str(current.readlink())
        links.append((str(current), text))
        current = without_dots(current.parent / text)
    return links
