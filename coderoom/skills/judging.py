"""Judges a skill by its tests, each in a room of its own, and says how strong they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from coderoom._util.text import counted
from coderoom.errors import RequestError
from coderoom.judge import Judge, TestCode, TestFiles, tests_in
from coderoom.skills.folder import MOST_CHARACTERS, Skill, today

_MUTANTS, _SECONDS = 10, 3.0
_RETURNED = ("None", "object()")
_ASSERTS = ("assert", "raises", "fail", "warns")


class UnsoundError(ValueError):
    """Why a skill does not count."""


def as_file(name: str, tests: str) -> str:
    """The tests as a file that imports the skill from a module of its name, as a person would run them."""
    tests = re.sub(r"^([ \t]*)from skills import", rf"\1from {name} import", tests.strip("\n"), flags=re.MULTILINE)
    if not re.search(rf"^[ \t]*(from|import) {name}\b", tests, re.MULTILINE):
        tests = f"from {name} import {name}\n\n{tests}"
    return tests + "\n"


async def judged(skill: Skill, judge: Judge) -> Skill:
    """The skill with a verdict that it has passed.

    Raises:
        UnsoundError: It has not, or its tests prove nothing.
        SandboxUnavailable: The sandbox broke, which says nothing about the skill.
    """
    for what, text in (("code", skill.code), ("tests", skill.tests)):
        if len(text) > MOST_CHARACTERS:
            raise UnsoundError(f"The {what} of {skill.name!r} are longer than {MOST_CHARACTERS:,} characters.")
    try:
        if not skill.summary:
            raise UnsoundError(
                f"{skill.name!r} has no docstring: its first line says what it does to those who look for it."
            )
        if not _asserts(skill.tests):
            raise UnsoundError(f"The tests of {skill.name!r} assert nothing: write `assert {skill.name}(...) == ...`.")
        tests = tests_in(skill.tests, skill.name)
        if why := await _why_not(judge, skill, skill.code, tests):
            raise UnsoundError(f"{skill.name!r} does not pass its tests: {why}")
        for code in _hollow(skill):
            if await _why_not(judge, skill, code, tests):
                break
        else:
            raise UnsoundError(
                f"The tests of {skill.name!r} pass whatever it returns: assert what it gives for its arguments."
            )
        strength = await judge.strength(_files(skill, skill.code), tests, most=_MUTANTS, seconds=_SECONDS)
    except UnsoundError:
        raise
    except (RequestError, SyntaxError, RecursionError, MemoryError) as error:
        raise UnsoundError(f"The tests of {skill.name!r} cannot be run: {error}") from error
    except ValueError as error:
        raise UnsoundError(str(error)) from error
    words = strength.unavailable or f"{strength.killed} of {counted(strength.mutants, 'mutant')} killed"
    return replace(skill, judged=today(), strength=words)


async def _why_not(judge: Judge, skill: Skill, code: str, tests: TestCode | TestFiles) -> str:
    """Why code does not pass the tests; empty if it does."""
    verdicts = await judge.run(_files(skill, code), tests)
    bad = [each for each in verdicts if not (each.passed or each.skipped)]
    if bad:
        return "; ".join(f"{each.test}: {each.result}" if each.test else each.result for each in bad)[:2000]
    return "" if any(each.passed for each in verdicts) else "all of them are skipped"


def _files(skill: Skill, code: str) -> dict[str, str]:
    return {f"{skill.name}.py": code}


def _asserts(tests: str) -> bool:
    """Whether there is an assertion that can fail."""
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Attribute) and node.attr.startswith(_ASSERTS):
            return True
    return False


def _hollow(skill: Skill) -> Iterator[str]:
    """The code with a function that does nothing but return something."""
    for returned in _RETURNED:
        tree = ast.parse(skill.code)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == skill.name:
                node.body = [ast.Return(ast.parse(returned, mode="eval").body)]
        yield ast.unparse(ast.fix_missing_locations(tree))
