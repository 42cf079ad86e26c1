"""Reads the files of code and of tests from a disk, for tests of files: `read_code`, `read_tests`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from coderoom.errors import RequestError
from coderoom.judge.apart import TestFiles

_MOST_BYTES: Final = 32 * 1024 * 1024
_LEFT_OUT: Final = ("__pycache__", "node_modules", "site-packages")


def read_code(paths: Sequence[Path], without: Collection[str] = ()) -> dict[str, str]:
    """Read code that tests import.

    Args:
        paths: Files of modules and folders of packages.
        without: The files of tests in a package, which are no code.

    Raises:
        RequestError: A file cannot be read, or there are too many.
    """
    found = _contents([(path.parent, each) for path in paths for each in _files_of(path)])
    return {name: content for name, content in found.items() if name not in without}


def read_tests(path: Path, code: Sequence[Path]) -> TestFiles:
    """Read tests, and with a file of them what lies beside it, such as `conftest.py`, helpers and data.

    Args:
        path: A file or a folder.
        code: The files and folders of the code, which do not belong to the tests.

    Raises:
        RequestError: A file cannot be read, or there are too many.
    """
    path, places = path.resolve(), [each.resolve() for each in code]
    around = next((each.parent for each in places if path.is_relative_to(each)), None)  # They lie in the package.
    top = path if path.is_dir() else path.parent
    while around is None and (top / "__init__.py").exists() and (top.parent / "__init__.py").exists():
        top = top.parent
    if path.is_dir() or (top / "__init__.py").exists() or not any(each.is_relative_to(top) for each in places):
        root, files = around or top.parent, [*_files_of(top)]
    else:
        root, files = around or top, [each for each in top.iterdir() if each.is_file()]
    own = [each for each in files if around is not None or not any(each.is_relative_to(place) for place in places)]
    if path.is_file() and path not in own:
        own.append(path)
    beside = path if path.is_dir() else path.parent
    for place in places:
        if (twin := beside / place.name) in own and twin not in (path, place) and place.name != "conftest.py":
            raise RequestError(f"{twin} lies beside the tests: they would import it, and not {place}.")
    return TestFiles(files=_contents([(root, each) for each in own]), run=(path.relative_to(root).as_posix(),))


def _files_of(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(each for each in folders if each[0] != "." and each not in _LEFT_OUT)
        yield from (Path(folder, name) for name in sorted(names) if not name.endswith(".pyc"))


def _contents(files: Sequence[tuple[Path, Path]]) -> dict[str, str]:
    found, size = {}, 0
    for root, file in files:
        try:
            size += file.stat().st_size
            if size > _MOST_BYTES:
                raise RequestError(f"{root} has more than {_MOST_BYTES >> 20} MiB: give a smaller folder.")
            found[file.relative_to(root).as_posix()] = file.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise RequestError(f"{file} cannot be read: {error}") from None
    return found
