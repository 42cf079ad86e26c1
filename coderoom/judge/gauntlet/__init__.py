"""Code that tries to be judged right although it is wrong, and honest code that looks like it.

`problems` has a file for each problem: its docstring is the name of the function or class, then come a solution and the
test. `cheats` and `honest` have a file for each case, whose docstring names the problem and says what the code does.
A file may be added without any other change.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib import resources

from coderoom.judge.apart import TestCode, TestFiles
from coderoom.judge.judge import Judge
from coderoom.judge.session import Verdict

_TEST = "def check("
_SUITE = "from solution import {name} as candidate\n\n\n{test}\n\ndef test():\n    check(candidate)\n"


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes:
        name: Its name.
        is_honest: Whether it must pass; a cheat must not.
        how: What the code does.
        code: The code.
        test: The test of its problem.
    """

    name: str
    is_honest: bool
    how: str
    code: str
    test: TestCode


def read_cases() -> Iterator[Case]:
    """The cases, in the order of their names, and the solutions of the problems as honest ones."""
    folder, problems = resources.files(__name__), {}
    for file in sorted((folder / "problems").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".case"):
            entry_point, text = _read(file.read_text("utf-8"))
            before, _, test = text.partition(_TEST)
            shared = "".join(line for line in before.splitlines(True) if line[:1].isupper())
            problem = file.name.removesuffix(".case")
            problems[problem] = TestCode(test=f"{shared}{_TEST}{test}", entry_point=entry_point)
            yield Case(problem, True, "The solution.", before.replace(shared, ""), problems[problem])
    for kind in ("cheats", "honest"):
        for file in sorted((folder / kind).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".case"):
                about, code = _read(file.read_text("utf-8"))
                problem, _, how = about.partition(": ")
                yield Case(file.name.removesuffix(".case"), kind == "honest", how, code, problems[problem])


def _read(text: str) -> tuple[str, str]:
    """The docstring at the beginning of a text, which may be no Python behind it, and the rest."""
    line, _, rest = text.partition("\n")
    return ast.literal_eval(line), rest.strip() + "\n"


async def run_gauntlet(
    cases: list[Case], *, wall: str = "auto", jobs: int = 2, timeout: float = 10.0, server: str | None = None
) -> AsyncIterator[tuple[Case, Verdict]]:
    """Judge cases, each twice: by the function `check`, and by a file for pytest.

    Args:
        cases: The cases.
        wall: The wall (isolation backend).
        jobs: How many are judged at a time.
        timeout: The time limit of each in seconds.
        server: The URL of a server that runs all code; `None`: it runs here.

    Yields:
        Each case in order, with the verdict that is worse for the judge.

    Raises:
        SandboxUnavailable: The sandbox broke.
    """
    async with Judge(wall=wall, server=server, timeout=timeout, sessions=jobs) as judge:

        async def judged(case: Case) -> Verdict:
            files = {"solution.py": case.code}
            suite = TestFiles(files={"test_solution.py": _SUITE.format(name=case.test.entry_point, test=case.test.test)})
            verdicts = [*await judge.run(files, case.test), *await judge.run(files, suite)]
            return next((each for each in verdicts if each.passed != case.is_honest), verdicts[0])

        work = [asyncio.ensure_future(judged(case)) for case in cases]
        try:
            for case, verdict in zip(cases, work, strict=True):
                yield case, await verdict
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
