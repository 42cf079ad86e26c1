"""Finds what belongs to the tests of a repository although its name does not say so. Used by `repository` and `fix`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Final, TypeAlias

_INTERPRETER: Final = re.compile(
    r"(ba|da|z|k)?sh|python[\d.]*|pypy[\d.]*|node|deno|bun|tsx|ts-node|ruby|perl|php|lua[\d.]*|Rscript|bats|prove|source|\."
)
_MAKE: Final = re.compile(r"g?make")
_NODE: Final = re.compile(r"npm|pnpm|yarn|bun")
_DEEPEST: Final = 8
Files: TypeAlias = Mapping[str, Sequence[str]]
"""The paths of files by their last names."""


def run_by(command: str, folder: Path) -> set[str]:
    """The files of a folder that a command runs, also by a target of a Makefile or a script of `package.json`.

    What it only reads or compiles is not among them.
    """
    return set(_scripts(command, folder, Path(), _DEEPEST))


def modules_of(tests: Iterable[str], files: Files) -> set[str]:
    """Which of some files tests of pytest are in, by the names of the tests; docstrings do not count."""
    found = set[str]()
    # A test in a docstring has the name of what it belongs to.
    cases = (test.partition("::") for test in tests)
    for name in {name for name, _, case in cases if "." not in case.partition("[")[0]}:
        parts = name.split(".")
        modules = (_of_module(parts[:number], files) for number in range(len(parts), 0, -1))
        found |= next(filter(None, modules), set())
    return found


def plugins_in(text: str, files: Files) -> set[str]:
    """Which of some files pytest loads as plugins, by a `conftest.py`, by settings or by a command."""
    names = re.findall(r"(?<![\w-])-p[\s\"',=]*([A-Za-z_][\w.]*)", text)
    for match in re.finditer(r"pytest_plugins[^=\n]*=\s*(\([^)]*\)|\[[^\]]*\]|[^\n]*)", text):
        names += re.findall(r"[\"']([\w.]+)[\"']", match[1])
    return {path for name in names for path in _of_module(name.split("."), files)}


def _of_module(parts: Sequence[str], files: Files) -> set[str]:
    """The files of a module, also if its name begins in a folder below."""
    *above, last = parts
    names = ["/".join([*above, f"{last}.py"]), "/".join([*parts, "__init__.py"])]
    there = [(path, name) for name in names for path in files.get(name.rpartition("/")[2], ())]
    found = {path for path, name in there if path == name}
    return found or {path for path, name in there if path.endswith(f"/{name}")}


def patterns_of(paths: Iterable[str]) -> tuple[str, ...]:
    """Patterns that match paths, and what is below them."""
    return tuple(pattern for path in sorted(paths) for pattern in (escape(path), f"{escape(path)}/*"))


def _scripts(command: str, folder: Path, place: Path, depth: int) -> Iterator[str]:
    for part in re.split(r"[;&|()\n]+", command.replace("\\\n", " ") if depth else ""):
        words = [each.strip("\"'") for each in part.split()]
        names = [each.rpartition("/")[2] for each in words]
        if words[:1] == ["cd"] and words[1:]:
            place = place / words[1]
            continue
        starts = [number for number, name in enumerate(names) if _INTERPRETER.fullmatch(name)]
        if starts and "doctest" not in words:
            after = (_file(each, folder, place) for each in words[starts[0] + 1 :])
            yield from filter(None, after if "unittest" in words else [next(filter(None, after), "")])
        for word in words:
            path = _file(word, folder, place)
            if path and os.access(folder / path, os.X_OK):
                yield path
        if any(map(_MAKE.fullmatch, names)):
            yield from _scripts(_recipes(words, folder / place), folder, place, depth - 1)
        if any(map(_NODE.fullmatch, names)):
            yield from _scripts(_node_scripts(words, folder / place), folder, place, depth - 1)


def _file(word: str, folder: Path, place: Path) -> str:
    """The path of a file that a word names, also as a module of Python; empty if there is none."""
    for name in (word, f"{word.replace('.', '/')}.py", f"{word.replace('.', '/')}/__main__.py"):
        path = os.path.normpath(place / name)
        if not path.startswith(("/", "..")) and (folder / path).is_file():
            return path
    return ""


def _recipes(words: Iterable[str], place: Path) -> str:
    """The lines that make runs for the targets among words, or for the first target."""
    names = ("GNUmakefile", "makefile", "Makefile")
    text = next((read_text(place / name) for name in names if (place / name).is_file()), "")
    rules: dict[str, tuple[list[str], list[str]]] = {}
    current: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            for recipe in current:
                recipe.append(line.strip().lstrip("@-+"))
        elif match := re.match(r"([^\s:=#][^:=#]*)::?(?!=)([^=]*)$", line):
            needs, _, rest = match[2].partition(";")
            current = []
            for target in match[1].split():
                known = rules.setdefault(target, ([], []))
                known[0].extend(needs.split())
                known[1].append(rest.strip())
                current.append(known[1])
    wanted = [each for each in words if each in rules] or [each for each in rules if not each.startswith(".")][:1]
    for target in wanted:
        wanted += [each for each in rules[target][0] if each in rules and each not in wanted]
    return "\n".join(line for target in wanted for line in rules[target][1])


def _node_scripts(words: Iterable[str], place: Path) -> str:
    """The scripts of `package.json` that words name."""
    try:
        scripts = json.loads(read_text(place / "package.json"))["scripts"]
        named = ["test" if each in ("t", "tst") else each for each in words]
        hooked = [f"{before}{each}" for each in named for before in ("pre", "", "post")]
        return "\n".join(str(scripts[each]) for each in hooked if each in scripts)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def read_text(path: Path) -> str:
    """The first mebibyte of a file; empty if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""
