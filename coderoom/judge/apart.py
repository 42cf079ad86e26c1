"""Judges code by somebody else's test code: the tests run in one room of a sandbox, and the code in another one.

What the tests expect never enters the process of the code. Its functions, classes and objects are stand-ins for the
tests; each use of one crosses the host as data.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import Field

from coderoom.errors import RequestError
from coderoom.judge.cases import Data
from coderoom.judge.harness import PACKAGE, call_inside, harness_modules, make_harness, tree_of
from coderoom.judge.plain_tests import plain_asserts
from coderoom.judge.session import Verdict, value_of, why_no_answer
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, HostFunction, Limits, Sandbox, SourceModule

MODULES = harness_modules(
    stand_ins="",
    zones="",
    mirrors="",
    deriving="",
    doubting="",
    crossing="",
    patching="",
    sharing="",
    texts_of_code="",
    turns="",
    files_of_code="",
    handed_files="",
    peers="",
    checks="",
    suites="",
)
_RUNNERS = ("_pytest", "pluggy", "pytest")
_WARM = "from .suites import warm_up\nwarm_up()\n"
_SLACK = 5.0
_TOGETHER = "it passes only in one process with the code, where the code could have changed the verdict"
_ALONE = "in one process with the code it does not pass"
_MOST_BYTES = 16 * 1024 * 1024


def sandbox_apart(wall: str = "auto", *, modules: Sequence[str | SourceModule] = (), **options: Any) -> Sandbox:
    """Make a sandbox for `judge_apart`.

    Args:
        wall: The wall (isolation backend).
        modules: What its worker imports, beside what runs tests.
        options: Further arguments of `Sandbox`, except `preload` and `limits`.
    """
    limits = Limits(value_bytes=_MOST_BYTES, calls=1_000_000, call_seconds=86_400)
    # What the room of each test imports, which would take most of a second there.
    patching = ["unittest.mock"]
    own = not any(map(options.get, ("workspace", "python", "packages")))  # Another environment may not have it.
    if own and importlib.util.find_spec("_pytest") is not None:
        patching.append("_pytest.monkeypatch")
    # Without a terminal, not with one that can do nothing: tests of coloured text know the difference.
    options["env"] = {"TERM": "", **(options.get("env") or {})}
    return Sandbox(wall, preload=[*MODULES, *patching, *modules], limits=limits, **options)


def sandbox_for_suites(wall: str = "auto", **options: Any) -> Sandbox:
    """Make a sandbox for `judge_suite`; see `sandbox_apart`. Its worker has run pytest, if that is installed."""
    return sandbox_apart(wall, modules=[SourceModule(f"{PACKAGE}.warm", _WARM)], **options)


class TestCode(Data):
    """The code of a test: HumanEval's, which defines `check` that is called with the function, or statements.

    Attributes:
        test: The test's code.
        entry_point: The name of the function; empty: the test uses names of the module.
        before: Code that the test needs, such as helpers; it runs in the test's room.
        module: The module of the code that is tested.
        given: More values, by the names that they have in the test, as JSON.
        untrusted: Which of them come from whoever wrote the code. What runs their text cannot be separated, except
            `exec` of the code.
        names: What the code defines although its names are built in.
    """

    __test__ = False

    test: str
    entry_point: str = ""
    before: str = ""
    module: str = "solution"
    given: dict[str, Any] = Field(default_factory=dict)
    untrusted: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class TestFiles(Data):
    """Files for pytest or unittest.

    Attributes:
        files: The files by name: tests, helpers, data. They may lie in a package of the code: `shop/tests/test_a.py`.
            Bytes that are no UTF-8 are surrogates, as `errors="surrogateescape"` makes them.
        run: The files and folders whose tests are run; empty: all.
    """

    __test__ = False

    files: dict[str, str]
    run: tuple[str, ...] = ()


def tests_in(source: str, module: str) -> TestCode | TestFiles:
    """The tests in a text: a file for pytest or unittest, or statements that use the names of a module."""
    for each in tree_of(source).body:
        is_function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test")
        if is_function or (isinstance(each, ast.ClassDef) and "Test" in ast.unparse(each).partition(":")[0]):
            return TestFiles(files={f"test_{module}.py": source})
    return TestCode(test=source, module=module)


_SIGNATURE = inspect.signature(lambda text: None)


def _not_run(args: Any) -> None:
    raise NotImplementedError


def _check_text(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if len(args) != 1 or type(args[0]) is not str or kwargs:
        raise TypeError("a text is exchanged")
    return args


class _Line:
    """Carries texts between two sessions. One of them works, and the other one waits for its text."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[str | None], None]] = {}
        self._early = ""  # What the tests say before the code is ready.
        self._is_ready = self.has_ended = False

    def of(self, side: str, other: str) -> HostFunction:
        """The function that one side calls with a text for the other one, and that returns the next text from there."""

        def relay(args: Any, answer: Callable[[Any], None]) -> None:
            self._exchange(side, other, args[0], answer)

        # Made of a function of Python, it would take a thread for each call.
        return HostFunction(
            name="exchange",
            signature=_SIGNATURE,
            doc="",
            is_async=False,
            in_thread=False,
            check=_check_text,
            run=_not_run,
            relay=relay,
        )

    def _exchange(self, side: str, other: str, text: str, answer: Callable[[str | None], None]) -> None:
        is_first = side == "code" and not self._is_ready  # Its text says only that the code is ready.
        if self.has_ended:
            answer(None)
        elif is_first and self._waiting:
            self._is_ready = True
            answer(self._early)
        elif is_first or not self._is_ready:
            self._is_ready, self._early, self._waiting[side] = is_first, text, answer
        elif told := self._waiting.pop(other, None):
            self._waiting[side] = answer
            told(text)
        else:
            raise RuntimeError("the code calls the tests, which have not called it")

    def end(self) -> None:
        """Let each side that waits know that the other one has ended."""
        self.has_ended = True
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer(None)


async def judge_apart(
    sandbox: Sandbox,
    files: Mapping[str, str],
    test: TestCode,
    *,
    timeout: float = 10.0,
    shared: bool = False,
    confirm: bool = True,
) -> Verdict:
    """Run a test against code, each in a room of its own.

    Args:
        sandbox: See `sandbox_apart`. It needs two of its concurrent sessions.
        files: The files of the code, by name.
        test: The test.
        timeout: The time limit in seconds.
        shared: Whether the verdict from one process counts if they cannot be separated.
        confirm: Whether what fails runs in one process too, which says whether it can be separated.

    Raises:
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    begun = time.monotonic()
    given = dict(files), test.model_dump(mode="json")
    result = await _apart(sandbox, files, timeout, [], "checks", "check", *given)
    found, seconds = value_of(result), time.monotonic() - begun
    if not isinstance(found, dict):
        return Verdict(passed=False, why=why_no_answer(result), outcome=result.outcome, duration=seconds)
    cannot = "; ".join(found["cannot"])
    verdict = Verdict(
        passed=not cannot and not found["why"], why=found["why"], cannot_separate=cannot, duration=seconds
    )
    is_plain = plain_asserts(test.test, test.entry_point, test.before, test.names) is not None
    if (verdict.passed and is_plain) or (cannot and not shared) or not (verdict.passed or confirm):
        return verdict
    cell = make_harness(MODULES, sandbox.preload) + call_inside("checks", "check_together", *given)
    result = await sandbox.run(cell, timeout=timeout)
    found = value_of(result)
    return _settled(verdict, found["why"] if isinstance(found, dict) else why_no_answer(result), shared)


async def judge_suite(
    sandbox: Sandbox,
    files: Mapping[str, str],
    tests: TestFiles,
    *,
    timeout: float = 300.0,
    shared: bool = False,
    confirm: bool = True,
) -> list[Verdict]:
    """Run the tests of files, for pytest or unittest, against code, each in a room of its own.

    Args:
        sandbox: See `sandbox_for_suites`. It needs two of its concurrent sessions.
        files: The files of the code, by name.
        tests: The tests.
        timeout: The time limit of all of them in seconds.
        shared: Whether the verdict from one process counts for those that cannot be separated.
        confirm: See `judge_apart`.

    Returns:
        A verdict on each test; a single one without a name if the tests could not be run.

    Raises:
        RequestError: A file has the name of a module of Python or of pytest.
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    begun = time.monotonic()
    modules = {each.partition("/")[0].removesuffix(".py") for each in files}
    if shadowed := sys.stdlib_module_names.union(_RUNNERS).intersection(modules):
        raise RequestError(f"{min(shadowed)} is a module of Python or of pytest: give the code another name.")
    given = tests.files, list(tests.run)

    async def apart(note: _Note, done: list[str], left: float) -> ExecutionResult:
        return await _apart(sandbox, files, left, [note], "suites", "run_files", list(files), *given, done)

    noted, why, outcome = await _noted(apart, timeout)
    verdicts = [
        Verdict(
            test=name,
            passed=each["outcome"] == "passed" and not each["cannot"],
            skipped=each["outcome"] == "skipped",
            why=each["why"],
            cannot_separate=each["cannot"],
            outcome=each.get("ended", Outcome.OK),
        )
        for name, each in noted.items()
    ]
    if why or not verdicts:
        verdicts.append(Verdict(passed=False, why=why, outcome=outcome, duration=time.monotonic() - begun))
    left = {each.test for each in verdicts if not (each.skipped or (each.cannot_separate and not shared))}
    is_right = all(each.passed or each.skipped for each in verdicts)
    if not left or (outcome is Outcome.TIMEOUT and not noted) or not (is_right or confirm):
        return verdicts
    decided = [name for name in noted if name not in left]

    async def together(note: _Note, done: list[str], left: float) -> ExecutionResult:
        async with sandbox.session(functions=[note]) as session:
            cell = call_inside("suites", "run_together", dict(files), *given, decided + done)
            cell = cell.replace("run_together(", "run_together(note, ", 1)
            return await session.run(make_harness(MODULES, sandbox.preload) + cell, timeout=left)

    is_late = outcome is Outcome.TIMEOUT
    found, no_answer, _ = await _noted(together, timeout / 10 if is_late else timeout)
    whys = {name: each["why"] for name, each in found.items() if each["outcome"] != "skipped"}
    settled = []
    for each in verdicts:
        inside = [name for name in found if name.startswith(each.test + "::")]  # It is a file that was not imported.
        for name in inside or [each.test]:
            verdict = each.model_copy(update={"test": name})
            is_skipped = not each.passed and found.get(name, {}).get("outcome") == "skipped"
            said = "" if is_skipped else whys.get(name, no_answer or None)
            settled.append(_settled(verdict, said, shared and not is_skipped) if each.test in left else verdict)
    return settled


_Note: TypeAlias = Callable[[str], Any]
_Noted: TypeAlias = dict[str, dict[str, Any]]


async def _noted(
    run: Callable[[_Note, list[str], float], Awaitable[ExecutionResult]], timeout: float
) -> tuple[_Noted, str, Outcome]:
    """Run tests, and those behind one that does not end again without it.

    Args:
        run: Runs the tests but those that are done, within a number of seconds. See `run_files` for what it notes.
        timeout: The time limit of all of them in seconds.

    Returns:
        The tests, why others could not be run, and how the last run ended.
    """
    loop = asyncio.get_running_loop()
    end, each_most = loop.time() + timeout, max(timeout / 10, min(timeout, 10))
    noted: _Noted = {}
    while True:
        done, reads = [name for name, each in noted.items() if each["outcome"]], ""
        why, outcome, found = "", Outcome.TIMEOUT, None
        try:
            async with asyncio.timeout(end - loop.time()) as limit:

                async def hear(text: str, limit: asyncio.Timeout = limit) -> None:
                    nonlocal reads
                    said = json.loads(text)
                    if "reads" in said:
                        reads = said["reads"]
                    else:
                        noted[said["name"]] = said
                    limit.reschedule(loop.time() + each_most)

                def note(text: str, hear: Callable[[str], Any] = hear) -> Any:
                    return hear(text)

                result = await run(note, done, end - loop.time())
            found, outcome = value_of(result), result.outcome
            why = found if isinstance(found, str) else why_no_answer(result)
        except TimeoutError:
            why = f"it has not ended within {each_most:g} seconds"
        if outcome is Outcome.TIMEOUT and reads:  # It is left out of the next run.
            noted[reads] = {"name": reads, "outcome": "failed", "why": why, "cannot": "", "ended": outcome}
            if loop.time() < end:
                continue
        late = [each for each in noted.values() if not each["outcome"]]
        for each in late[: 1 if loop.time() < end else None]:
            each.update(outcome="failed", why=why, ended=outcome)
        if len(late) < 2 or loop.time() >= end:
            return noted, "" if noted and not isinstance(found, str) else why, outcome


def _settled(verdict: Verdict, why: str | None, shared: bool) -> Verdict:
    """The verdict by why the test does not pass in one process, too; `None`: it did not run there."""
    if verdict.passed:  # In two rooms, lists that are one for the code may be several for the tests.
        return verdict.model_copy(update={"passed": False, "why": f"{_ALONE}: {why}"}) if why else verdict
    cannot = verdict.cannot_separate or (_TOGETHER if why == "" else "")
    if why is None or not cannot or not shared:
        return verdict.model_copy(update={"cannot_separate": cannot})
    return verdict.model_copy(update={"cannot_separate": cannot, "can_be_fooled": True, "passed": not why, "why": why})


async def _apart(
    sandbox: Sandbox,
    files: Mapping[str, str],
    timeout: float,
    functions: Sequence[Callable[..., Any]],
    guest: str,
    function: str,
    *arguments: object,
) -> ExecutionResult:
    """Serve code in one session, and call a function of the harness in another one, which can use the code.

    The function is called with one that exchanges texts with the code, and with `functions` of the host.
    """
    line = _Line()
    async with (
        sandbox.session(functions=[line.of("tests", "code"), *functions]) as tests,
        sandbox.session(functions=[line.of("code", "tests")]) as code,
    ):
        harness = make_harness(MODULES, sandbox.preload)
        cell = call_inside("checks", "serve", dict(files)).replace("serve(", "serve(exchange, ", 1)
        serving = asyncio.create_task(_run(code, harness + cell, timeout + _SLACK, line))
        try:
            names = ", ".join(["exchange", *(each.__name__ for each in functions)])
            cell = call_inside(guest, function, *arguments).replace(f"{function}(", f"{function}({names}, ", 1)
            return await tests.run(harness + cell, timeout=timeout)
        finally:
            line.end()
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


async def _run(session: Any, cell: str, timeout: float, line: _Line) -> ExecutionResult:
    try:
        result: ExecutionResult = await session.run(cell, timeout=timeout)
        return result
    finally:
        line.end()
