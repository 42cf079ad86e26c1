"""The languages of cells: Python, and those whose cells run as programs. Another one is a row of `PROGRAMS`.

Used by the sandbox, its executor, `coderoom exec` and `doctor`, and the MCP server.
"""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """What runs the cells of a language other than Python.

    Attributes:
        argv: Its command. `{file}` stands for the file with the cell; without it, the cell is the standard input.
        suffixes: The suffixes of its files.
        address_space: Whether the limit on memory may bound its address space.
    """

    argv: tuple[str, ...]
    suffixes: tuple[str, ...]
    address_space: bool = True


PROGRAMS = {
    "sh": Program(("sh", "{file}"), (".sh",)),
    "bash": Program(("bash", "{file}"), (".bash",)),
    # V8 reserves far more address space than it uses.
    "javascript": Program(("node", "-"), (".js", ".mjs"), address_space=False),
}
LANGUAGES = ("python", *PROGRAMS)
ALIASES = {"py": "python", "python3": "python", "shell": "sh", "js": "javascript", "node": "javascript"}
