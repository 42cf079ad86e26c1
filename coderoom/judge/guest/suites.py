"""Runs files of tests for pytest or unittest, in which the modules of the code are stand-ins."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import sys
import tempfile
import types
import unittest

from .checks import TOLD, Finder, described, forget, write
from .peers import Peer
from .stand_ins import ask_libraries, encode_stand_ins, reference
from .texts_of_code import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Iterator, List, Optional

    Exchange = Callable[[str], Optional[str]]

__all__ = ["run_files", "run_together", "warm_up"]

_OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=short", "--continue-on-collection-errors")
_IS_TEST = re.compile(r"(.*/)?(test[^/]*|[^/]*_test)\.py").fullmatch


def run_files(
    exchange: Exchange,
    note: Callable[[str], None],
    code: List[str],
    files: Dict[str, str],
    run: List[str],
    without: List[str],
) -> str:
    """Run the tests of files with stand-ins of the code, by pytest if it is installed.

    Args:
        exchange: See `Peer`.
        note: Is called with each test as JSON, once it is known and again when it has ended: its `name`, its `outcome`
            (passed, failed or skipped; before, it is empty), `why`, and what `cannot` be separated. What `reads` a
            file is no test: pytest imports it from then on.
        code: The names of the files of the code.
        files: The files of the tests; see `write`.
        run: The files and folders whose tests are run; empty: all. Tests are in those with names like `test*.py`.
        without: Tests, and whole files of them, that are left out.

    Returns:
        Why tests have not run; empty if all have.
    """
    peer = Peer(exchange, is_trusted=False)
    packages = {each for each in code if each.endswith("/__init__.py")}
    write({**{each: "" for each in packages if any(map(_folder(each), files))}, **files}, os.getcwd())
    forget(code)
    encode_stand_ins()
    ask_libraries()
    guard(peer)
    sys.meta_path.insert(0, Finder(peer, code, files))
    return _run(_Found(peer, note, without), files, run)


def run_together(
    note: Callable[[str], None], code: Dict[str, str], files: Dict[str, str], run: List[str], without: List[str]
) -> str:
    """Run the tests of files in the process of the code, which can change what comes of them; see `run_files`."""
    write({**code, **files}, os.getcwd())
    os.environ["PYTHONPATH"] = os.getcwd()  # Programs that the tests start find the code, as if it were installed.
    forget(code)
    return _run(_Found(None, note, without), files, run)


def warm_up() -> None:
    """Run a test by pytest, if it is installed, so that forks of this process find it and its plug-ins loaded."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "test_nothing.py")
        with open(name, "w") as file:
            file.write("def test(): assert 1\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                importlib.import_module("pytest").main([name, *_OPTIONS, "--rootdir", folder])
            except (Exception, SystemExit):  # Then there is no pytest, or each run of it says what is wrong.
                return


def _folder(name: str) -> Callable[[str], bool]:
    """Whether a file lies in the folder of another one, or in one below it."""
    folder = name.rpartition("/")[0] + "/"
    return lambda file: file.startswith(folder)


def _run(found: _Found, files: Dict[str, str], run: List[str]) -> str:
    chosen = [each for each in files if not run or each in run or any(each.startswith(name + "/") for name in run)]
    names = sorted(each for each in chosen if _IS_TEST(each) or each in run) or run or [*files]
    names = [each for each in names if each not in found.without]
    printed = io.StringIO()
    try:
        pytest = importlib.import_module("pytest")
    except ImportError:
        pytest = None
    why = ""
    if not names:
        return ""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            if pytest is None:
                dotted = [name[:-3].replace("/", ".") for name in names]
                tests = [each for each in _cases(unittest.defaultTestLoader.loadTestsFromNames(dotted))
                         if found.may_run(each.id(), getattr(each, each._testMethodName))]  # fmt: skip
                unittest.TestSuite(tests).run(_Result(found))
            else:
                _refuse_empty(pytest)
                code = pytest.main([*names, *_OPTIONS, "--rootdir=."], plugins=[_Plugin(found)])
                if not found.tests and code != 0 and not found.without:
                    why = "pytest found no tests"
                elif code > 1 or not all(each["outcome"] for each in found.tests.values()):
                    why = "pytest ended before all tests had run"
        except BaseException as error:
            why = described(error, names[0])
    return (why or ("" if found.tests else printed.getvalue()))[-TOLD:]


def _refuse_empty(pytest: Any) -> None:
    """For `approx`, an array without items is no number: it would be near to any."""
    kind: Any = type(pytest.approx(0.0))
    equals = kind.__eq__

    def __eq__(self: Any, actual: Any) -> Any:  # noqa: N807
        return not (type(actual).__module__ == "numpy" and actual.size == 0) and equals(self, actual)

    kind.__eq__ = __eq__


class _Found:
    """What came of the tests."""

    def __init__(self, peer: Optional[Peer], note: Callable[[str], None], without: List[str]) -> None:
        self.tests: Dict[str, Dict[str, Any]] = {}
        self.without = frozenset(without)
        self._cannot, self._ended = ([], []) if peer is None else (peer.cannot, peer.ended)
        self._note = note
        if peer is not None:
            peer.end_test = self._end_test

    def may_run(self, name: str, test: Any) -> bool:
        """Whether a test is run: not one that an object of the code wraps, which could leave out what is in it."""
        if name in self.without:
            return False
        while test is not None and reference(test) is None:
            is_method = isinstance(test, types.MethodType)
            test = test.__func__ if is_method else getattr(test, "__dict__", {}).get("__wrapped__")
        if test is not None:
            self._cannot.append("an object of the code decides whether the test is run")
        self.add(name, "" if test is None else "failed")
        return test is None

    def add(self, name: str, outcome: str, why: str = "") -> None:
        """Note the outcome of a part of a test; the first part that is not passed counts."""
        cannot, ended = self._cannot[:], self._ended[:1]
        self._cannot.clear()
        self._ended.clear()
        if ended and outcome == "passed":  # The test has caught what it was told.
            outcome, why = "failed", ended[0]
        test = self.tests.setdefault(name, {"name": name, "outcome": "", "why": "", "cannot": ""})
        if test["outcome"] in ("", "passed"):
            test.update(outcome=outcome, why=why[-TOLD:])
        test["cannot"] = test["cannot"] or "; ".join(cannot)[:TOLD]
        self._note(json.dumps(test))

    def _end_test(self, why: str) -> None:
        """Note why the test that runs cannot be separated, and end the process: those behind it run in another one."""
        test = next((each for each in self.tests.values() if not each["outcome"]), None)
        if test is not None:  # Otherwise it is what is around the tests, of which only the exception can say it.
            self._note(json.dumps({**test, "cannot": why}))
            os._exit(1)

    def reads(self, name: str) -> None:
        """Note that a file is read."""
        self._note(json.dumps({"reads": name}))


class _Plugin:
    """What pytest tells."""

    def __init__(self, found: _Found) -> None:
        self._found = found

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of a test has ended."""
        if report.when == "call" or report.outcome != "passed":
            self._found.add(report.nodeid, report.outcome, "" if report.outcome == "passed" else str(report.longrepr))

    def pytest_collection_finish(self, session: Any) -> None:
        """All tests are known. Leave some out."""
        self._found.reads("")
        items = session.items
        items[:] = [each for each in items if self._found.may_run(each.nodeid, getattr(each, "obj", None))]

    def pytest_collectstart(self, collector: Any) -> None:
        """Something is read, such as a file or a class in it."""
        if collector.nodeid.endswith(".py"):
            self._found.reads(collector.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """A file was read."""
        if report.failed and report.nodeid not in self._found.without:
            self._found.add(report.nodeid, "failed", str(report.longrepr))


def _cases(suite: Any) -> Iterator[Any]:
    for each in suite:
        yield from _cases(each) if isinstance(each, unittest.TestSuite) else [each]


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
