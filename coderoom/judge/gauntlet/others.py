"""What other harnesses say of the cases of the gauntlet.

`harnesses` has a file for each: its docstring names the package and says what is used of it, and its function `passes`
runs a program and its test as users of that harness do. It runs in a room of a sandbox, since cheats write files and
kill processes.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.metadata
import sys
from collections.abc import AsyncIterator, Iterable
from importlib import resources
from typing import NamedTuple

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge.gauntlet import Case
from coderoom.sandbox import Limits, Sandbox

_SLACK = 30.0


class Harness(NamedTuple):
    """A harness.

    Attributes:
        name: Its name.
        version: The version that is installed; empty if it is no package.
        source: Defines the function `passes`.
    """

    name: str
    version: str
    source: str


def find_harnesses(names: Iterable[str]) -> list[Harness]:
    """The harnesses with these names.

    Raises:
        MissingDependencyError: One is not installed.
        RequestError: One is not known.
    """
    folder = resources.files(__package__) / "harnesses"
    sources = {each.name[:-3]: each.read_text("utf-8") for each in folder.iterdir() if each.name.endswith(".py")}
    found = []
    for name in names:
        if name not in sources:
            raise RequestError(f"{name!r} is no harness that --against knows: {', '.join(sorted(sources))}.")
        package = (ast.get_docstring(ast.parse(sources[name])) or "").partition(":")[0]
        try:
            found.append(Harness(name, importlib.metadata.version(package) if package else "", sources[name]))
        except importlib.metadata.PackageNotFoundError:
            raise MissingDependencyError(f"{name} is not installed. Run: pip install {package}") from None
    return found


async def run_harness(
    harness: Harness, cases: list[Case], *, wall: str = "auto", jobs: int = 2, timeout: float = 10.0
) -> AsyncIterator[tuple[Case, bool]]:
    """Let a harness judge cases.

    Args:
        harness: The harness.
        cases: The cases.
        wall: The wall (isolation backend) around it.
        jobs: How many are judged at a time.
        timeout: The time limit of each in seconds, which the harness enforces.

    Yields:
        Each case in order, and whether the harness says that it has passed. If it does not survive a case, it does not.

    Raises:
        SandboxUnavailable: The sandbox broke.
    """
    imported = [each.module for each in ast.parse(harness.source).body if isinstance(each, ast.ImportFrom)]
    preload = [each for each in imported if each and each.partition(".")[0] not in sys.stdlib_module_names]
    limits = Limits(wall_seconds=timeout + _SLACK, memory_bytes=4 * 1024**3, processes=256)
    async with Sandbox(wall, preload=preload, limits=limits, concurrency=jobs) as sandbox:

        async def judged(case: Case) -> bool:
            given = case.code, case.test.test, case.test.entry_point, timeout
            result = await sandbox.run(f"{harness.source}\npasses{given!r}")
            return result.value is True

        work = [asyncio.ensure_future(judged(case)) for case in cases]
        try:
            for case, verdict in zip(cases, work, strict=True):
                yield case, await verdict
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
