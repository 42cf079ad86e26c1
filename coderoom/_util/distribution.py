"""The two distributions: `coderoom`, and `coderoom-slim`, which has the same files and does not bring AutoGen."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

FULL: Final = "pip install coderoom"
"""The command that installs all of CodeRoom."""
MORE_NEEDED: Final = f"needs more of CodeRoom than coderoom-slim installs: {FULL}"


def is_slim() -> bool:
    """Whether only the sandbox, the judge, `coderoom exec` and `coderoom doctor` work here."""
    try:
        return find_spec("autogen_agentchat") is None
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
