"""The two distributions: `coderoom-slim`, and `coderoom`, which adds what needs AutoGen and requires the former."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from coderoom.errors import MissingDependencyError

FULL: Final = "pip install coderoom"
"""The command that installs all of CodeRoom."""
MORE_NEEDED: Final = f"needs more of CodeRoom than coderoom-slim installs: {FULL}"
_HAS_FULL: Final = (Path(__file__).parents[1] / "agents").is_dir()
_ONLY_IN_FULL: Final = ("agents", "approval", "budgets", "executors", "generation", "ray", "studio", "teams")


class OnlyInFull:
    """A finder that says what to install for the public modules that only `coderoom` brings."""

    @classmethod
    def install(cls) -> None:
        """Look for modules that nothing else finds, if only `coderoom-slim` is installed."""
        if not _HAS_FULL and cls not in sys.meta_path:
            sys.meta_path.append(cls)

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse a module of `coderoom`; nothing else is known here."""
        if name.startswith("coderoom.") and name.split(".")[1] in _ONLY_IN_FULL:
            raise MissingDependencyError(f"{name} {MORE_NEEDED}")


def is_slim() -> bool:
    """Whether only the sandbox, the judge, `coderoom exec` and `coderoom doctor` work here."""
    try:
        return not _HAS_FULL or find_spec("autogen_agentchat") is None
    except ModuleNotFoundError:  # From a finder that hides it.
        return True


def install_command(extra: str) -> str:
    """The command that installs an extra, for an error message: of `coderoom-slim` if that is enough."""
    name = "coderoom"
    if is_slim():
        from importlib.metadata import PackageNotFoundError, metadata  # Takes 20 ms, which most commands can save.

        try:
            extras = metadata("coderoom-slim").get_all("Provides-Extra") or ()
        except PackageNotFoundError:
            extras = ()
        name = "coderoom-slim" if extra in extras else name
    return f"pip install '{name}[{extra}]'"
