"""Skills for code that calls no functions of the host, as that of `execute_code`: their source is run before it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from coderoom.sandbox import find_violations
from coderoom.skills.folder import Skill
from coderoom.skills.skills import Skills, show

_MOST = 20
_IMPORTS = re.compile(r"\bskills\b")


@dataclass(frozen=True)
class Inlined:
    """Code whose imports of skills are done by a cell before it.

    Attributes:
        before: The code of that cell; empty if nothing is imported.
        code: The code without its imports of skills, with the same lines.
    """

    before: str
    code: str


async def inline(skills: Skills, code: str) -> Inlined:
    """Take the imports of skills out of code; one that does not exist is an `ImportError` of the cell before it."""
    imports = _imports_in(code)
    before: list[str] = []
    for name, alias in {(each.name, each.asname or each.name): None for node in imports for each in node.names}:
        try:
            before.append(_definition(await skills.get(name), alias))
        except (LookupError, ValueError, RecursionError) as error:
            return Inlined(f"raise ImportError({str(error.args[0])!r})", code)
    return Inlined("\n".join(before), _without(code, imports))


async def skills_for(skills: Skills, question: str, *, restricted: bool) -> str:
    """What a prompt says of the skills: all of them, or of many those that fit the question; empty if there are none.

    Args:
        skills: The skills.
        question: What the code is to answer.
        restricted: Whether the policy `restricted` applies to the code; skills that it refuses are left out.
    """

    def fit(found: list[Skill]) -> list[Skill]:
        return [each for each in found if not (restricted and find_violations(ast.parse(each.code)))]

    return show(fit(await skills.all())) or show(fit(await skills.search(question, _MOST)))


def _imports_in(code: str) -> list[ast.ImportFrom]:
    if not _IMPORTS.search(code):
        return []
    try:
        nodes = [*ast.walk(ast.parse(code))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module, node.level) == ("skills", 0)]


def _definition(skill: Skill, alias: str) -> str:
    """Code that defines a skill and no other name: what it needs is inside a function."""
    body = [
        node
        for node in ast.parse(skill.code).body
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    given = ast.parse(f"def {alias}():\n    return {skill.name}\n{alias} = {alias}()")
    function = given.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body[:0] = body
    return ast.unparse(ast.fix_missing_locations(given))


def _without(code: str, imports: list[ast.ImportFrom]) -> str:
    """The code with `pass` in place of statements, and the same lines."""
    lines = [line.encode() for line in code.splitlines(keepends=True)]
    for node in imports:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        rest = lines[last][node.end_col_offset or 0 :]
        lines[first] = lines[first][: node.col_offset] + b"pass" + rest
        lines[first + 1 : last + 1] = [b"\n"] * (last - first)
    return b"".join(lines).decode()
