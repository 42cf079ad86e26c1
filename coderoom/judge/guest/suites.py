"""Runs files of tests for pytest or unittest, in which the modules of the code are stand-ins."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
import unittest

from .checks import TOLD, Finder, described, write
from .peers import Peer

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List, Optional

    Exchange = Callable[[str], Optional[str]]

__all__ = ["run_files", "run_together"]

_IS_TEST = re.compile(r"(.*/)?(test[^/]*|[^/]*_test)\.py").fullmatch


def run_files(exchange: Exchange, code: List[str], files: Dict[str, str]) -> Dict[str, Any]:
    """Run the tests of files with stand-ins of the code, by pytest if it is installed.

    Args:
        exchange: See `Peer`.
        code: The names of the files of the code.
        files: The files by name. If there are several, the tests are in those with names like `test_*.py`.

    Returns:
        The `tests`, each with its `name`, its `outcome` (passed, failed or skipped), `why`, and what `cannot` be
        separated; `why` there are none.
    """
    peer = Peer(exchange, is_trusted=False)
    sys.meta_path.insert(0, Finder(peer, code))
    return _run(_Found(peer.cannot, peer.ended), files)


def run_together(code: Dict[str, str], files: Dict[str, str]) -> Dict[str, Any]:
    """Run the tests of files in the process of the code, which can change what comes of them; see `run_files`."""
    write(code, os.getcwd())
    return _run(_Found([], []), files)


def _run(found: _Found, files: Dict[str, str]) -> Dict[str, Any]:
    write(files, os.getcwd())
    names = [name for name in files if _IS_TEST(name)] or list(files)
    printed = io.StringIO()
    try:
        pytest = importlib.import_module("pytest")
    except ImportError:
        pytest = None
    why = ""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            if pytest is None:
                dotted = [name[:-3].replace("/", ".") for name in names]
                unittest.defaultTestLoader.loadTestsFromNames(dotted).run(_Result(found))
            else:
                plugins = [_Plugin(found)]
                code = pytest.main([*names, "-q", "-p", "no:cacheprovider", "--tb=no", "--rootdir=."], plugins=plugins)
                if not found.tests and code != 0:
                    why = "pytest found no tests"
                elif code > 1 or len(found.tests) < found.collected:
                    why = "pytest ended before all tests had run"
        except BaseException as error:
            why = described(error, names[0])
    why = why or found.broken or ("" if found.tests else printed.getvalue())
    return {"tests": found.tests, "why": why[-TOLD:]}


class _Found:
    """What came of the tests."""

    def __init__(self, cannot: List[str], ended: List[str]) -> None:
        self.tests: List[Dict[str, Any]] = []
        self.broken = ""
        self.collected = 0
        self._cannot = cannot
        self._ended = ended

    def add(self, name: str, outcome: str, why: str) -> None:
        """Note the outcome of a part of a test; the first part that is not passed counts."""
        cannot, ended = self._cannot[:], self._ended[:1]
        self._cannot.clear()
        self._ended.clear()
        if ended and outcome == "passed":  # The test has caught what it was told.
            outcome, why = "failed", ended[0]
        last = self.tests[-1] if self.tests and self.tests[-1]["name"] == name else None
        if last is None:
            last = {"name": name, "outcome": "passed", "why": "", "cannot": ""}
            self.tests.append(last)
        if last["outcome"] == "passed":
            last.update(outcome=outcome, why=why[:TOLD])
        last["cannot"] = last["cannot"] or "; ".join(cannot)[:TOLD]


class _Plugin:
    """What pytest tells."""

    def __init__(self, found: _Found) -> None:
        self._found = found

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of a test has ended."""
        if report.when == "call" or report.outcome != "passed":
            self._found.add(report.nodeid, report.outcome, "" if report.outcome == "passed" else str(report.longrepr))

    def pytest_collection_finish(self, session: Any) -> None:
        """All tests are known."""
        self._found.collected = len(session.items)

    def pytest_collectreport(self, report: Any) -> None:
        """A file was read."""
        if report.failed:
            self._found.broken = str(report.longrepr)[-TOLD:]


class _Result(unittest.TestResult):
    def __init__(self, found: _Found) -> None:
        super().__init__()
        self._found = found

    def addSuccess(self, test: Any) -> None:  # noqa: N802 (of unittest)
        self._found.add(test.id(), "passed", "")

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self._found.add(test.id(), "failed", "%s: %s" % (err[0].__name__, err[1]))

    addFailure = addError  # noqa: N815

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        self._found.add(test.id(), "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self._found.add(test.id(), "passed", "")

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
        self._found.add(test.id(), "failed", "it was expected to fail")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self._found.add(test.id(), "failed", "%s: %s" % (err[0].__name__, err[1]))
