"""Languages whose cells are programs of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coderoom.errors import RequestError

__all__ = ["LANGUAGES", "Program", "program_for"]


@dataclass(frozen=True)
class Program:
    """What runs a cell.

    Attributes:
        argv: The command; `{file}` is the cell.
        reads_input: Whether it takes the cell from its standard input.
        address_space: Whether it gets along with a limited address space.
    """

    argv: tuple[str, ...]
    reads_input: bool = False
    address_space: bool = True

    def request(self) -> dict[str, Any]:
        """What a room's keeper is told."""
        return {"argv": list(self.argv), "input": self.reads_input, "address_space": self.address_space}


_PROGRAMS = {
    "sh": Program(("sh", "{file}")),
    "bash": Program(("bash", "{file}")),
    # V8 reserves far more addresses than it uses.
    "javascript": Program(("node", "-"), reads_input=True, address_space=False),
}
_ALIASES = {"py": "python", "python3": "python", "shell": "sh", "js": "javascript", "node": "javascript"}

LANGUAGES = ("python", *_PROGRAMS)


def program_for(language: str) -> Program | None:
    """The program for a language; `None` for Python, which needs none.

    Raises:
        RequestError: Nobody here runs that language.
    """
    name = language.strip().lower()
    name = _ALIASES.get(name, name)
    if name == "python":
        return None
    program = _PROGRAMS.get(name)
    if program is None:
        raise RequestError(f"The sandbox runs no {language!r}; it runs {', '.join(LANGUAGES)}.")
    return program
