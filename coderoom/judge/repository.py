"""Judges code by a repository's own test command: the tests and their configuration are those of a frozen copy.

The command runs code and tests in one process, so the code can change what comes of it: each verdict says
`can_be_fooled`. `TestFiles` keep them apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from coderoom._util.files import copy_folder, files_inside, name_inside, read_inside, write_inside
from coderoom.errors import RequestError
from coderoom.judge.answers import takes_a_place
from coderoom.judge.cases import Data
from coderoom.judge.scripts import modules_of, patterns_of, plugins_in, read_text, run_by
from coderoom.judge.session import Verdict, why_no_answer
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits, Sandbox
from coderoom.sandbox.remote import at_server

FROZEN: Final = (
    *(
        "test",
        "tests",
        "test.*",
        "tests.*",
        "test_*",
        "*_test",
        "*_test.*",
        "*_tests",
        "*_tests.*",
        "test-*",
        "*-test.*",
    ),
    *("*-tests", "*.test.*", "spec", "specs", "*.spec.*", "*_spec.rb", "*test.java", "*.bats", "*.t", "testdata"),
    *("run_tests.*", "run-tests.*", "__tests__", "__mocks__", "__fixtures__", "__snapshots__", "*.snap", "fixtures"),
    *("snapshots", "golden", "goldens", "expected", "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml"),
    *(".pytest.toml", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml", "noxfile.py", ".coveragerc"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.egg-info", "*.dist-info", "site-packages", ".venv", "venv"),
    *(".tox", ".nox", "package.json", "package-lock.json", ".npmrc", ".mocharc*", ".babelrc*", ".nycrc*", ".taprc"),
    *("*.config.[cm]js", "*.config.js", "*.config.ts", "*.config.[cm]ts", "jest.config.*", "babel.config.*"),
    *("vitest.*", "karma.conf.*", ".rspec", "deno.json*", "bunfig.toml", "phpunit.xml*", "makefile", "gnumakefile"),
    *("*.mk", "justfile", ".justfile", "taskfile.y*ml", "rakefile", "node_modules", ".github"),
)
"""The names of files and folders that belong to the tests, in small letters."""
_SETTINGS: Final = ("conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_INSTALLED: Final = (".git", "node_modules", ".venv", "venv", "site-packages", ".tox", ".nox")
"""Folders whose links may lead to the code of the repository, as those of workspaces of npm do."""
_LIMITS: Final = Limits(memory_bytes=2 << 30, processes=512, output_bytes=4 << 20)
_LARGEST_FILE: Final = 64 << 20
_LARGEST_REPORT: Final = 16 << 20
_MOST_TESTS: Final = 50_000
_LONGEST_NAME: Final = 500
_LAST: Final = 2_000
_MOST_NAMED: Final = 10
_MUST_FAIL: Final = """\
import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session, items):
    modules = list(filter(None, (each.getparent(pytest.Module) for each in items)))
    if modules:
        items.append(pytest.Function.from_parent(modules[0], name={name!r}, callobj=must_fail))
    else:
        items.append(Item.from_parent(session, name={name!r}))


def must_fail():
    assert False


class Item(pytest.Item):
    def runtest(self):
        must_fail()
"""
"""A plugin of pytest that adds a test."""
_TAP: Final = re.compile(r"\s*(not )?ok\b[ \d]*(?:- )?(.*)", re.I)
_UNITTEST: Final = re.compile(r"^Ran (\d+) tests? in [\d.]+s\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.M)
_WHY_UNITTEST: Final = re.compile(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): .+$", re.M)


class Repository(Data):
    """The tests of a repository.

    Attributes:
        folder: A frozen copy of the repository.
        command: Its test command, such as `pytest -q`, `make test` or `npm test`. It runs in a shell in the folder.
        frozen: Further names or paths, with `*`, of files that belong to the tests, beside `FROZEN`.
        report: The path of the JUnit report that the command writes. pytest writes one without that.
        tests: The names of tests, all of which have to be in the report and to pass; empty: all that are there.
        must_fail: The name of a test that is added to those of pytest and fails, so that the command does, too. If it
            passes, or is skipped since it is not in pytest's report, the code has changed what pytest reports.
        packages: Packages for the command, as a `Sandbox` has them.
    """

    folder: Path
    command: str
    frozen: tuple[str, ...] = ()
    report: str = ""
    tests: tuple[str, ...] = ()
    must_fail: str = ""
    packages: tuple[str, ...] = ()


async def judge_repository(
    code: Mapping[str, str], repository: Repository, *, wall: str = "auto", server: str | None = None, timeout: float
) -> list[Verdict]:
    """Run the test command of a repository on a copy of it with the files of the code.

    Files that belong to the tests stay as they are: those of the code do not count, and a warning names them.

    Args:
        code: The files that have changed, by their paths in the repository.
        repository: The repository.
        wall: The wall (isolation backend).
        server: The URL of a server that runs the command; `None`: it runs here.
        timeout: The time limit of the command in seconds.

    Returns:
        A verdict on each test of the report, or of the output if that is TAP, or that of unittest, which numbers its
        tests; otherwise, and if the command failed beside its tests, one on the command. Each passing one says
        `can_be_fooled`.

    Raises:
        RequestError: The folder cannot be read, or a path is not in it.
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    if not repository.folder.is_dir():
        raise RequestError(f"{str(repository.folder)!r} is no folder of a repository.")
    changed = {name_inside(name): content for name, content in code.items()}
    repository = await asyncio.to_thread(with_all_tests, repository)
    counted = files_that_count(changed, repository)
    ignored = [name for name, content in changed.items() if name not in counted and _differs(repository, name, content)]
    report = repository.report or f".report-{secrets.token_hex(8)}.xml"
    options = "" if repository.report else f"'--junitxml=$PWD/{report}' "
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "repository")
        await asyncio.to_thread(_copy, repository.folder, folder, counted)
        async with (
            Sandbox(
                wall, workspace=folder, limits=_LIMITS, packages=repository.packages, **at_server(server)
            ) as sandbox,
            sandbox.session() as session,
        ):
            if repository.must_fail:
                plugin = f"must_fail_{secrets.token_hex(8)}"
                options += f"-p {plugin} "
                write_inside(folder, f".{plugin}/{plugin}.py", _MUST_FAIL.format(name=repository.must_fail).encode())
            command = f'export PYTEST_ADDOPTS="{options}-p no:cacheprovider" PYTHONDONTWRITEBYTECODE=1\n'
            if repository.must_fail:
                command += f'export PYTHONPATH="$PWD/.{plugin}${{PYTHONPATH:+:$PYTHONPATH}}"\n'
            result = await session.run(command + repository.command, language="sh", timeout=timeout)
        found = await asyncio.to_thread(_of_report, folder, report)
        if found and repository.must_fail and not any(each.test.endswith(repository.must_fail) for each in found):
            found.append(Verdict(test=repository.must_fail, passed=False, skipped=True, why="it is not in the report"))
        verdicts = found or await asyncio.to_thread(_of_tap, result.stdout) or _of_unittest(result.stderr)
    if repository.tests:
        verdicts = [each for each in verdicts if each.test in repository.tests]
        why = f"it did not run: {_why_ended(result)}"[:_LAST] if result.outcome is not Outcome.OK else "it did not run"
        lacking = set(repository.tests).difference(each.test for each in verdicts)
        verdicts += [Verdict(test=each, passed=False, why=why) for each in repository.tests if each in lacking]
    if result.outcome is not Outcome.OK and all(each.passed or each.skipped for each in verdicts):
        why, ended_with = _why_ended(result), result.exit_code
        verdicts.append(Verdict(passed=False, why=why, outcome=result.outcome, exit_code=ended_with))
    elif not verdicts and (repository.report or "pytest" in repository.command):
        verdicts.append(Verdict(passed=False, why="the command ended without a report of its tests"))
    elif not verdicts:
        verdicts.append(Verdict(test=repository.command, passed=True, duration=result.duration))
    warning = ""
    if ignored:
        more = f" and {len(ignored) - _MOST_NAMED} more" if len(ignored) > _MOST_NAMED else ""
        warning = f"{', '.join(ignored[:_MOST_NAMED])}{more} of the code did not count: they belong to the tests"
    fooled = "the command runs code and tests in one process"
    passing = {"warning": warning, "can_be_fooled": True, "cannot_separate": fooled}
    return [each.model_copy(update=passing if each.passed else {"warning": warning}) for each in verdicts]


def files_that_count(code: Mapping[str, str], repository: Repository) -> dict[str, str]:
    """The files of the code that do not belong to the tests."""
    return {name: content for name, content in code.items() if not belongs_to_tests(name, repository)}


def with_all_tests(repository: Repository, tests: Iterable[str] = ()) -> Repository:
    """A repository that also freezes scripts of the command, plug-ins of pytest, and what links of tests lead to.

    Args:
        repository: The repository.
        tests: The names of tests that have run, by which the files of pytest's tests are found.
    """
    folder = repository.folder.resolve()
    walked = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _INSTALLED]
        walked.append((Path(place), folders, names))
    files = defaultdict[str, list[str]](list)
    for above, _, names in walked:
        for name in names:
            files[name].append(str((above / name).relative_to(folder)))
    found = run_by(repository.command, folder) | modules_of(tests, files) | plugins_in(repository.command, files)
    for above, folders, names in walked:
        for path in (above / name for name in (*folders, *names)):
            if path.name in _SETTINGS and path.is_file():
                found |= plugins_in(read_text(path), files)
            if path.is_symlink() and belongs_to_tests(str(path.relative_to(folder)), repository):
                with contextlib.suppress(OSError, RuntimeError):
                    target = path.resolve()
                    if target != folder and target.is_relative_to(folder):
                        found.add(str(target.relative_to(folder)))
    return repository.model_copy(update={"frozen": (*repository.frozen, *patterns_of(found))})


def belongs_to_tests(path: str, repository: Repository) -> bool:
    """Whether a path is of a file that belongs to the tests, or would take the place of their runner."""
    frozen, parts = (*FROZEN, *repository.frozen), path.lower().split("/")
    if any(fnmatchcase(part, pattern) for part in parts for pattern in frozen):
        return True
    if any(fnmatchcase(path, pattern) for pattern in frozen):
        return True
    # In the folder where the command runs, it would take the place of the runner's own module or of a plug-in.
    is_new = not (repository.folder / path.partition("/")[0]).exists()
    return is_new and takes_a_place(path) and ("/" in path or path.endswith((".py", ".so", ".pyc")))


def _differs(repository: Repository, name: str, content: str) -> bool:
    try:
        return (repository.folder / name).read_text("utf-8") != content
    except (OSError, ValueError):
        return True


def _copy(source: Path, target: Path, changed: Mapping[str, str]) -> None:
    try:
        copy_folder(source, target, (".git", "__pycache__"))
        for name, content in changed.items():
            write_inside(target, name, content.encode("utf-8", "surrogateescape"))
    except (OSError, UnicodeError) as error:
        raise RequestError(f"The repository {str(source)!r} cannot be copied: {error}") from None


def _of_report(folder: Path, report: str) -> list[Verdict]:
    """The verdicts of a JUnit report; none if there is none that can be read."""
    try:
        tree = ElementTree.fromstring(read_inside(folder, report, _LARGEST_REPORT))
    except (OSError, RequestError, ElementTree.ParseError, ValueError, LookupError):
        return []
    found = []
    for case in islice(tree.iter("testcase"), _MOST_TESTS):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        failure = next((each for each in case if each.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        why = "" if failure is None else (failure.get("message") or failure.text or "failed").strip()
        passed = failure is None and skipped is None
        reason = ((skipped.get("message") or "") if failure is None and skipped is not None else why)[:_LAST]
        is_skipped = not passed and failure is None
        found.append(Verdict(test=name[:_LONGEST_NAME], passed=passed, skipped=is_skipped, why=reason))
    return found


def _of_tap(output: str) -> list[Verdict]:
    """The verdicts of output in the Test Anything Protocol; none if it is not that."""
    lines = output.splitlines()
    if not any(re.match(r"TAP version \d|\d+\.\.\d", line) for line in lines):
        return []
    found: list[Verdict] = []
    for line in lines:
        if len(found) < _MOST_TESTS and (match := _TAP.match(line)):
            name, _, directive = match[2].partition(" #")
            name = name.strip() or f"test {len(found) + 1}"
            skipped = directive.strip().lower().startswith(("skip", "todo"))
            passed = not match[1] and not skipped
            why = "" if passed or skipped else "not ok"
            found.append(Verdict(test=name[:_LONGEST_NAME], passed=passed, skipped=skipped, why=why))
    planned = sum(int(match[1]) for line in lines if (match := re.match(r"1\.\.(\d{1,6})\b", line)))
    if planned > len(found) or any(line.startswith("Bail out!") for line in lines):
        found.append(Verdict(passed=False, why=f"{len(found)} of {planned} tests have run"))
    return found


def _of_unittest(output: str) -> list[Verdict]:
    """The verdicts of what unittest has printed, which names only the tests that fail; none if it is not that."""
    found: list[Verdict] = []
    reasons = iter(_WHY_UNITTEST.findall(output))
    for match in _UNITTEST.finditer(output):
        counts = {name: int(number) for name, number in re.findall(r"([a-z ]+)=(\d+)", match[2] or "")}
        counts = {name.strip(): number for name, number in counts.items()}
        failed = sum(counts.get(name, 0) for name in ("failures", "errors", "unexpected successes"))
        skipped = counts.get("skipped", 0) + counts.get("expected failures", 0)
        for number in range(min(max(int(match[1]), failed + skipped), _MOST_TESTS - len(found))):
            is_skipped = failed <= number < failed + skipped
            why = next(reasons, "failed")[:_LAST] if number < failed else ""
            name = f"unittest {len(found) + 1}"
            found.append(Verdict(test=name, passed=number >= failed + skipped, skipped=is_skipped, why=why))
    return found


def _why_ended(result: ExecutionResult) -> str:
    if result.exit_code and result.outcome is Outcome.ERROR:
        return f"the command ended with exit code {result.exit_code}: {result.output.strip()[-_LAST:]}"
    return why_no_answer(result)


def changed_files(original: Path, candidate: Path) -> dict[str, str]:
    """The text files of a folder that are not in another one, or differ there; those of `.git` and caches do not count.

    Raises:
        RequestError: A file cannot be read.
    """
    found = {}
    for name, _ in files_inside(candidate):
        if {".git", "__pycache__", ".venv"}.isdisjoint(name.split("/")):
            try:
                data = read_inside(candidate, name, _LARGEST_FILE)
                known = (original / name).read_bytes() if (original / name).is_file() else None
                if data != known:
                    found[name] = data.decode("utf-8", "surrogateescape")
            except OSError as error:
                raise RequestError(f"{candidate / name} cannot be read: {error}") from None
    return found
