"""Writes a solution to a folder: the module, its tests and the reports."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.generation.languages.base import Language
from coderoom.generation.languages.python.facts import imports_in
from coderoom.generation.languages.registry import language_named
from coderoom.generation.report import report_markdown, verdict
from coderoom.generation.solution import Solution

__all__ = ["WrittenFiles", "check_folder", "write_solution"]

_MARK = "Written by CodeRoom"
_HEAD = 200
# Of pytest, and of what is in every environment or was in older Pythons' libraries.
_HIDING = str.split(
    "_pytest asynchat asyncore colorama conftest coderoom distutils exceptiongroup hypothesis imp iniconfig numpy "
    "packaging pandas pip pkg_resources pluggy py pygments pytest setup setuptools smtpd test tests tomli"
)
_LIBRARY = frozenset(name.lower() for name in sys.stdlib_module_names).union(_HIDING)


@dataclass(frozen=True)
class WrittenFiles:
    """The files of a solution.

    Attributes:
        folder: The folder that they are in.
        module: The functions; `None` if there is no code.
        tests: Their tests; `None` if there are none, or no code.
        report: The report for people.
        data: The same as JSON.
    """

    folder: Path
    module: Path | None
    tests: Path | None
    report: Path
    data: Path

    @property
    def paths(self) -> list[Path]:
        """All that there are."""
        return [path for path in (self.module, self.tests, self.report, self.data) if path is not None]


def check_folder(folder: str | Path, name: str | None = None, language: str | Language = "python") -> None:
    """Find out before there is a solution whether one can be written.

    Args:
        folder: The folder.
        name: The name of the module, if it is known.
        language: The language of the functions, or its name.

    Raises:
        RequestError: It cannot, as far as that can be known.
    """
    language = language_named(language)
    names = ["report.md", "report.json"]
    if name is not None:
        _check_name(name, set(), language)
        names += [f"{name}{language.suffix}", language.tests_file(name)]
    root = Path(folder)
    try:
        if root.exists() and not root.is_dir():
            raise RequestError(f"The solution cannot be written to {str(root)!r}: it is no folder.")
        for each in names:
            _see_to(root / each)
    except OSError as error:
        raise _unwritable(root, error) from error


def write_solution(
    solution: Solution, folder: str | Path, *, name: str | None = None, language: Language | None = None
) -> WrittenFiles:
    """Write a solution into a folder: the module, its tests, `report.md` and `report.json`.

    Files of an earlier solution are replaced; each is there as a whole or as it was before.

    Args:
        solution: The solution.
        folder: The folder; it is made if it is not there.
        name: The name of the module; `None`: that of its last function if it can be one, and `solution` otherwise.
        language: The language of the functions; `None`: the one that the solution names.

    Raises:
        RequestError: The name cannot be one, a file that is not ours is in the way, or the folder cannot be written.
    """
    language = language if language is not None else language_named(solution.language)
    module = _module_name(solution, name, language)
    root = Path(folder)
    texts = _texts(solution, module, language)
    try:
        root.mkdir(parents=True, exist_ok=True)
        for each in texts:
            _see_to(root / each)
        _write_all(root, texts)
    except OSError as error:
        raise _unwritable(root, error) from error
    code, tests = f"{module}{language.suffix}", language.tests_file(module)
    return WrittenFiles(
        folder=root,
        module=root / code if code in texts else None,
        tests=root / tests if tests in texts else None,
        report=root / "report.md",
        data=root / "report.json",
    )


def _module_name(solution: Solution, name: str | None, language: Language) -> str:
    needed = {each for source in solution.implementations.values() for each in imports_in(source)}
    if name is not None:
        _check_name(name, needed, language)
        return name
    last = next(reversed(solution.implementations), "solution")
    return "solution" if _name_problem(last, needed, language) else last


def _check_name(name: str, needed: set[str], language: Language) -> None:
    problem = _name_problem(name, needed, language)
    if problem is not None:
        raise RequestError(f"{problem.removesuffix('; take another name')}. Give another name=, such as 'solution'.")


def _unwritable(root: Path, error: OSError) -> RequestError:
    return RequestError(f"The solution cannot be written to {str(root)!r}: {error.strerror or error}.")


def _name_problem(name: str, needed: set[str], language: Language) -> str | None:
    problem = language.name_problem(name)
    if problem is not None or len(name) > 100:
        return problem or f"{name!r:.80} is too long for the name of a module"
    if name.lower() in _LIBRARY | {each.lower() for each in needed}:
        return f"A module {name!r} would hide one that others need under this name"
    if name.lower().startswith("test_") or name.lower().endswith("_test"):
        return f"A module {name!r} would be taken for tests by pytest"
    return None


def _texts(solution: Solution, module: str, language: Language) -> dict[str, str]:
    """The files' names and what is to be in them."""
    texts = {}
    code = {name: source for name, source in solution.implementations.items() if source}
    if code:
        texts[f"{module}{language.suffix}"] = _marked(language.write_module(code, solution.instruction), language)
    tests = {name: cases for name, cases in solution.tests.items() if cases}
    if code and tests:
        file = language.write_tests(
            tests,
            module,
            specs=solution.function_specs,
            implementations=code,
            outputs=_outputs(solution),
        )
        texts[language.tests_file(module)] = _marked(file, language)
    texts["report.md"] = f"<!-- {_MARK}. -->\n\n{report_markdown(solution)}"
    about: dict[str, Any] = {"about": _MARK, "verdict": verdict(solution), "missing": solution.missing}
    about.update(files=sorted(texts), total_tokens=solution.usage.total_tokens)
    told = {"coderoom": about, **solution.model_dump(mode="json")}
    texts["report.json"] = json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    return texts


def _marked(text: str, language: Language) -> str:
    return f"{language.comment} {_MARK}.\n{text}"


def _outputs(solution: Solution) -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in solution.test_results:
        if each.passed and not each.error:
            found.setdefault(each.function, {})[each.test] = each.actual_output
    return found


def _see_to(path: Path) -> None:
    """See to it that nothing but a file of ours is replaced."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    head = b""
    if stat.S_ISREG(facts.st_mode):
        with path.open("rb") as file:
            head = file.read(_HEAD)
    if _MARK.encode() not in head:
        raise RequestError(
            f"{str(path)!r} is there already, and CodeRoom has not written it: move it away, or take another folder "
            "or name=. Nothing was written."
        )


def _write_all(root: Path, texts: Mapping[str, str]) -> None:
    """Write all files under other names first, so that little can fail once the first is in its place."""
    fresh = {name: root / f".{uuid.uuid4().hex}.new" for name in texts}
    try:
        for name, text in texts.items():
            with fresh[name].open("x", encoding="utf-8", newline="\n") as file:
                file.write(encodable(text))
                file.flush()
                os.fsync(file.fileno())
        for name, path in fresh.items():
            path.replace(root / name)
    finally:
        for path in fresh.values():
            with contextlib.suppress(OSError):
                path.unlink()
