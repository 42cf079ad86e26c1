"""Languages whose cells are programs of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coderoom.errors import RequestError

__all__ = ["LANGUAGES", "Program", "is_python", "program_for"]


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


def is_python(language: str) -> bool:
    """Whether a language is Python.

    Raises:
        RequestError: It is not the name of a language.
    """
    return _name_of(language) == "python"


def program_for(language: str, engine: str = "cpython") -> Program | None:
    """The program for a language; `None` for Python, which needs none.

    Args:
        language: The language.
        engine: The engine, of which `monty` runs no programs.

    Raises:
        RequestError: Nobody here runs that language.
    """
    name = _name_of(language)
    if name == "python":
        return None
    program = _PROGRAMS.get(name)
    if program is None:
        raise RequestError(f"The sandbox runs no {language!r}; it runs {', '.join(LANGUAGES)}.")
    if engine == "monty":
        raise RequestError(f"The engine 'monty' runs only Python, and this is {language!r}. engine='cpython' runs it.")
    return program


def _name_of(language: str) -> str:
    if not isinstance(language, str):
        raise RequestError(f"language={language!r} is not the name of a language; there are {', '.join(LANGUAGES)}.")
    name = language.strip().lower()
    return _ALIASES.get(name, name)
