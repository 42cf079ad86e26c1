"""Finds the code in an answer, and reads tests by path or from text: for agents, teams and batches."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from coderoom._util.files import name_inside
from coderoom.blocks import extract_code_blocks
from coderoom.errors import RequestError
from coderoom.judge.apart import TestCode, TestFiles, tests_in
from coderoom.judge.files import read_tests
from coderoom.judge.problem_sets import read_programs
from coderoom.judge.programs import Programs
from coderoom.sandbox import SUFFIXES

_SUFFIXES: Final = {language: suffix for suffix, language in reversed([*SUFFIXES.items()])}
_PATH: Final = re.compile(r"[^\n]+\.(py|json|jsonl)")
_FOLDER: Final = re.compile(r"[^\n\0]{1,4096}")


def code_in(text: str, module: str = "solution", left_out: set[str] | None = None) -> dict[str, str]:
    """The files of the code in an answer: blocks that have names, and the last other one as the module.

    Args:
        text: The answer.
        module: The module.
        left_out: Gets the names of files that would take the place of a library's module.
    """
    found = {}
    for block in extract_code_blocks(text):
        language = block.language or "python"
        if block.filename and not block.is_data:
            with suppress(RequestError):  # Not a name in a folder.
                name = name_inside(block.filename)
                if takes_a_place(name):
                    (left_out if left_out is not None else set()).add(name)
                elif not name.startswith(f"{module}."):
                    found[name] = block.code
        elif language in _SUFFIXES:
            found = {name: code for name, code in found.items() if not name.startswith(f"{module}.")}
            found[module + _SUFFIXES[language]] = block.code
    return found


def takes_a_place(name: str) -> bool:
    """Whether a file of an answer would be imported in the place of a module that tests may need."""
    top = name.partition("/")[0].partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any("-packages" in place for place in places)


def why_left_out(names: Collection[str]) -> str:
    """Why files of an answer were left out, as a sentence; empty if none were."""
    return f"{', '.join(sorted(names))}: left out, since a library has a module of that name." if names else ""


def tests_from(given: str, module: str) -> TestCode | TestFiles | Programs:
    """Read tests.

    Args:
        given: The path of a file or folder of tests for pytest or unittest, or of tests of a program as JSON; or
            Python: such a file's content, or statements that use the names of a module.
        module: That module. A file of it beside the tests does not belong to them.

    Raises:
        RequestError: They cannot be read.
    """
    path = Path(given.strip())
    if _PATH.fullmatch(given.strip()):
        if path.suffix != ".py":
            return read_programs(path)
        try:
            tests = tests_in(path.read_text("utf-8"), module)
        except (OSError, ValueError) as error:
            raise RequestError(f"{path} cannot be read: {error}") from None
        return tests if isinstance(tests, TestCode) else _files_of(path, module)
    if _FOLDER.fullmatch(given.strip()) and path.is_dir():
        return _files_of(path, module)
    tests = tests_in(given, module)
    if not given.strip() or (isinstance(tests, TestCode) and not _is_python(given)):
        raise RequestError(
            f"{given!r:.100} has no tests: give a path (.py, .json, .jsonl, a folder), or tests in Python."
        )
    return tests


def _files_of(path: Path, module: str) -> TestFiles:
    names = [module, *(f"{module}{suffix}" for suffix in _SUFFIXES.values())]
    return read_tests(path, [folder / name for folder in (path, path.parent) for name in names])


def _is_python(code: Any) -> bool:
    try:
        compile(code, "<tests>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
