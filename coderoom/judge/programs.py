"""Judges programs by what they write to standard output for what they read from standard input; used by `Judge`.

Each test has a room of its own, which gets the input and nothing else. What is expected stays here, or goes into the
room of a checker, where the output is data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field, model_validator

from coderoom._util.tasks import aside
from coderoom._util.text import visible
from coderoom.errors import RequestError
from coderoom.judge.cases import Data
from coderoom.judge.harness import START
from coderoom.judge.session import Verdict, why_no_answer
from coderoom.judge.values import TaggedError, compare, encode
from coderoom.outcome import Outcome
from coderoom.sandbox import SUFFIXES, ExecutionResult, Limits, Sandbox

_MIB = 1024 * 1024
_MOST_PRINTED = 10_000
_MOST_SHOWN, _MOST_SAID = 100, 2_000
_CHECKER_SECONDS = 10.0
_PRELOAD = (  # What programs mostly import.
    *("bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io", "itertools"),
    *("json", "math", "operator", "random", "re", "statistics", "string", "typing"),
)


def sandbox_for_programs(wall: str = "auto", **options: Any) -> Sandbox:
    """Make a sandbox for `judge_programs`, which keeps enough of the output and has imported what programs mostly use.

    Args:
        wall: The wall (isolation backend).
        options: Further arguments of `Sandbox`, except `preload` and `limits`.
    """
    limits = Limits(output_bytes=64 * _MIB, value_bytes=16 * _MIB)
    return Sandbox(wall, preload=_PRELOAD, limits=limits, **options)


class ProgramTest(Data):
    """One run of a program.

    Attributes:
        name: Its name; empty: its number.
        stdin: What the program reads. For a function, its arguments: a JSON value on each line.
        stdout: What it has to print; `None`: the checker does not need that. For a function, the result as JSON.
    """

    name: str = ""
    stdin: str = ""
    stdout: str | None = None


class Programs(Data):
    """Tests of a program: each has an input, and what the program has to print for it.

    Attributes:
        tests: The tests.
        compare: How the output is compared: its `words`, without regard to white space; `numbers`, the same with a
            tolerance; or all of it, `exact`.
        tolerance: How far a number may be from the expected one, absolutely or relative to it; for `numbers`. For an
            expected integer it is absolute, and two integers have to be the same.
        checker: Code in Python that decides instead. It defines `check(input, output, expected)`, which accepts an
            output by returning `True`; a text that it returns says why not. It runs in a room of its own.
        function: The function, or the method of the class `Solution`, that is called instead of reading an input.
        before: Code in Python that the program, which is in Python too, may rely on, such as imports.
        timeout: The time limit of each test in seconds; `None`: that of the judge.
        memory_bytes: The memory that the program may use in each test; `None`: that of the sandbox.
        stop_at_first_failure: Whether the tests after one that failed are skipped.
    """

    tests: tuple[ProgramTest, ...] = Field(min_length=1)
    compare: Literal["words", "numbers", "exact"] = "words"
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    checker: str = ""
    function: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z_0-9]*)?$")
    before: str = ""
    timeout: float | None = Field(default=None, gt=0, le=86_400, allow_inf_nan=False)
    memory_bytes: int | None = Field(default=None, gt=0)
    stop_at_first_failure: bool = False

    @model_validator(mode="after")
    def _check(self) -> Programs:
        if self.function and self.checker:
            raise ValueError("function and checker: results of functions are compared, not checked")
        for number, test in enumerate(self.tests):
            if test.stdout is None and not self.checker:
                raise ValueError(f"tests[{number}].stdout: without a checker it is required")
            if self.function:
                try:
                    arguments_of(test), json.loads(test.stdout or "")
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"tests[{number}]: its stdin and stdout must be JSON: {error}") from None
        return self


def arguments_of(test: ProgramTest) -> list[Any]:
    """The arguments of a function: a JSON value on each line."""
    return [json.loads(line) for line in test.stdin.splitlines() if line.strip()]


async def judge_programs(
    sandbox: Sandbox, code: Mapping[str, str], programs: Programs, *, timeout: float
) -> list[Verdict]:
    """Run a program with each input, in a room of its own, and judge what it prints.

    Args:
        sandbox: The sandbox. It needs two of its concurrent sessions if there is a checker.
        code: The program, under a name whose suffix says what its language is.
        programs: The tests.
        timeout: The time limit of each test in seconds, if the tests have none.

    Returns:
        A verdict on each test, in order.

    Raises:
        RequestError: The language is unknown, a limit of the sandbox is too low, or the checker is broken.
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    if len(code) != 1:
        raise RequestError(f"A program is one file, and there are {len(code)}.")
    [(name, source)] = code.items()
    suffix = PurePath(name).suffix.lower()
    language = SUFFIXES.get(suffix)
    if language is None:
        raise RequestError(f"{name}: programs end in {', '.join(SUFFIXES)}, which says what their language is.")
    if (programs.function or programs.before) and language != "python":
        raise RequestError(f"{name}: only a program in Python can have function= and before=.")
    limits = sandbox.limits
    if (programs.memory_bytes or 0) > limits.memory_bytes:
        raise RequestError(f"memory_bytes={programs.memory_bytes:,}: the sandbox has {limits.memory_bytes:,} of them.")
    if max(len(each.stdout or "") for each in programs.tests) > limits.output_bytes:
        raise RequestError(f"stdout: outputs of more than {limits.output_bytes:,} bytes need limits.output_bytes.")
    names = [test.name or str(number) for number, test in enumerate(programs.tests, 1)]
    verdicts: list[Verdict] = []
    failed = ""
    for test_name, test in zip(names, programs.tests, strict=True):
        if failed and programs.stop_at_first_failure:
            verdicts.append(Verdict(test=test_name, passed=False, skipped=True, why=f"{failed} has failed before"))
            continue
        seconds = programs.timeout or timeout
        if programs.function or programs.before:
            result = await _run_after(sandbox, source, programs, test, seconds)
        else:
            result = await sandbox.run(source, language=language, stdin=test.stdin, timeout=seconds)
        refused = result.error
        if refused is not None and refused.type == "CompileError":  # No code raises it in a program that is built.
            why, error = f"it does not compile: {visible(refused.message)}", result.stderr[:_MOST_PRINTED]
            return [Verdict(test=each, passed=False, why=why, error=error, outcome=result.outcome) for each in names]
        outcome, why = result.outcome, ""
        if outcome is Outcome.OK and programs.memory_bytes and (result.peak_memory or 0) > programs.memory_bytes:
            outcome = Outcome.MEMORY
            why = f"it used {_mib(result.peak_memory)} of memory, and may use {_mib(programs.memory_bytes)}"
        elif outcome is Outcome.OK:
            why = await _why_wrong(sandbox, programs, test, result)
        elif result.error is not None and result.error.traceback:
            why = f"it raised {result.error.type}: {result.error.message}"
        else:
            why = why_no_answer(result)
        failed = failed or (test_name if why else "")
        verdicts.append(
            Verdict(
                test=test_name,
                passed=not why,
                why=visible(why[:_MOST_SAID]),
                outcome=outcome,
                error="" if result.error is None else (result.stderr or str(result.error))[-_MOST_PRINTED:],
                duration=result.duration,
                peak_memory=result.peak_memory,
                stdout=result.stdout[:_MOST_PRINTED],
            )
        )
    return verdicts


async def _run_after(
    sandbox: Sandbox, source: str, programs: Programs, test: ProgramTest, seconds: float
) -> ExecutionResult:
    """Run a program after the code that it relies on, or call its function, whose result is the value of the cell."""
    async with sandbox.session() as session:
        name = programs.function
        begun = await session.run((START if name else "") + programs.before)  # A function is not in a script.
        if begun.outcome is not Outcome.OK:
            raise RequestError(f"before: the code that comes before the program fails: {begun.error}")
        if not name:
            return await session.run(source, stdin=test.stdin, timeout=seconds, final=True)
        call = f"(Solution().{name} if 'Solution' in globals() else {name})"
        arguments = f"__import__('json').loads({json.dumps(arguments_of(test))!r})"
        return await session.run(f"{source}\n\n{call}(*{arguments})", timeout=seconds, final=True)


async def _why_wrong(sandbox: Sandbox, programs: Programs, test: ProgramTest, result: ExecutionResult) -> str:
    """Why what came of a run is not what was expected; empty if it is."""
    expected = test.stdout or ""
    if programs.function and not result.value_is_data and result.value_repr is not None:
        return f"it returned {result.value_repr[:_MOST_SHOWN]}, which is not JSON, or too large"
    if programs.function:
        try:
            return await aside(lambda: compare(json.loads(expected), encode(result.value), exact_types=False).why)
        except TaggedError as error:
            return str(error)
    if result.truncated:
        most = sandbox.limits.output_bytes
        return f"it printed {result.output_size:,} bytes, more than the {most:,} that are compared"
    if programs.checker:
        return await _why_not_accepted(sandbox, programs.checker, test, result.stdout)
    return await aside(_difference, result.stdout, expected, programs.compare, programs.tolerance)


async def _why_not_accepted(sandbox: Sandbox, checker: str, test: ProgramTest, output: str) -> str:
    """Why a checker does not accept an output; empty if it does."""
    given = json.dumps([test.stdin, output, test.stdout])
    async with sandbox.session() as session:
        defined = await session.run(f"{checker}\n\ncheck", timeout=_CHECKER_SECONDS)
        if defined.outcome is not Outcome.OK:
            raise RequestError(
                f"The checker is broken, which must define check(input, output, expected): {defined.error}"
            )
        cell = "check(*__import__('json').load(__import__('sys').stdin))"
        result = await session.run(cell, stdin=given, timeout=_CHECKER_SECONDS)
    if result.error is not None and result.error.type in ("NameError", "UnboundLocalError", "ImportError"):
        raise RequestError(f"The checker is broken: {result.error}")
    if result.error is not None:
        return f"the checker does not accept it: {result.error.type}: {result.error.message}"
    if result.value is True:
        return ""
    said = result.value if isinstance(result.value, str) else f"it returned {result.value_repr}, not True"
    return f"the checker does not accept it: {said}"


_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+\-0-9]+")


def _difference(actual: str, expected: str, how: str, tolerance: float) -> str:
    """The first difference between what was printed and what was expected; empty if there is none that matters."""
    if actual == expected or (how != "exact" and actual.strip() == expected.strip()):
        return ""
    pattern = re.compile(r".*\n|.+") if how == "exact" else _WORD
    for one, other in zip_longest(pattern.finditer(actual), pattern.finditer(expected)):
        if one is None:
            line = expected.count("\n", 0, other.start()) + 1
            return f"the output ends too early: {_shown(other)} was expected on line {line}"
        line = actual.count("\n", 0, one.start()) + 1
        if other is None:
            return f"line {line}: {_shown(one)} was printed after all that was expected"
        if one[0] != other[0] and not (how == "numbers" and _are_near(one[0], other[0], tolerance)):
            return f"line {line}: {_shown(one)} was printed, and {_shown(other)} expected"
    return ""


def _are_near(actual: str, expected: str, tolerance: float) -> bool:
    if not (_NUMBER.fullmatch(actual) and _NUMBER.fullmatch(expected)):
        return False
    try:
        one, other = Decimal(actual), Decimal(expected)
        most = Decimal(str(tolerance))
        if _INTEGER.fullmatch(expected):  # A float may be near to an integer, but is not nearer to a large one.
            most = Decimal(0) if _INTEGER.fullmatch(actual) else most
        else:
            most *= max(Decimal(1), abs(other))
        return abs(one - other) <= most
    except ArithmeticError:  # An exponent is too large.
        return False


def _shown(match: re.Match[str]) -> str:
    text = match[0]
    return repr(text) if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]!r}..."


def _mib(size: int | None) -> str:
    return f"{(size or 0) / _MIB:,.1f} MiB"
