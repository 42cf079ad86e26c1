"""Judges code by the calls that tests made of code that passed, which takes a third of the time of `judge_apart`.

The code answers them all in one room, without the tests. If it answers as the other code did, the tests pass: they see
nothing else of it. Otherwise the host decides asserts that compare an answer with a literal, as most do. If it meets
another one, the tests run with the answers, in a room of their own. Code that provably depends on nothing but the
arguments of its calls is judged once, and answers in one process with other such code that waits (see `answering`).

The code could read all calls before it answers the first one. So this is for tests only whose calls have literal
arguments: none is made of an earlier answer. And the tests must be asserts that depend on nothing but the answers, such
as the time.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import operator
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from coderoom.judge.answering import Answering, Answers
from coderoom.judge.apart import MODULES, TestCode
from coderoom.judge.guest.checks import TOLD
from coderoom.judge.harness import call_inside, make_harness
from coderoom.judge.plain_tests import plain_asserts
from coderoom.judge.session import Verdict, value_of, why_no_answer
from coderoom.judge.source import is_pure
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox
from coderoom.sandbox.guest.decoding import Decoder, TaggedError

_MOST_CHARACTERS: Final = 1 << 20
_MOST_KNOWN: Final = 100
_MOST_COMPARED: Final = 100_000
_OBJECTS: Final = ('"$here"', '"$class"', '"$error"')
# Those that are shown by their name and their only argument.
_ERRORS: Final = frozenset(
    f"builtins.{name}"
    for name in (
        *("TypeError", "ValueError", "IndexError", "NameError", "UnboundLocalError", "AttributeError", "RuntimeError"),
        *("RecursionError", "NotImplementedError", "ZeroDivisionError", "OverflowError"),
    )
)


@dataclass(frozen=True)
class _Check:
    """An assert on the answer to one call, which the host can decide.

    Attributes:
        line: The number of its line, which has all of it.
        text: That line.
        call: The call, as `ast.dump` shows it.
        holds: Whether it holds for the value.
        message: The message of the assert.
    """

    line: int
    text: str
    call: str
    holds: Callable[[Any], bool]
    message: ast.expr | None

    @classmethod
    def of(cls, statement: ast.Assert, calls: Sequence[ast.Call], text: str) -> Self | None:
        """The check that a statement with these calls is; `None` if the host cannot decide it."""
        test = statement.test
        if len(calls) != 1 or statement.lineno != statement.end_lineno:
            return None
        holds: Callable[[Any], bool]
        if test is calls[0]:
            holds = bool
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and test.operand is calls[0]:
            holds = operator.not_
        elif isinstance(test, ast.Compare) and test.left is calls[0] and isinstance(test.ops[0], ast.Eq):
            try:
                expected, *others = map(ast.literal_eval, test.comparators)
            except (ValueError, TypeError):  # An expression, or a set of lists.
                return None
            if others:
                return None

            def holds(value: Any) -> bool:
                return bool(value == expected)
        else:
            return None
        return cls(statement.lineno, text, ast.dump(calls[0]), holds, statement.msg)

    def why(self, answer: str) -> str | None:
        """Why the assert fails with an answer; empty if it holds; `None` if that cannot be told."""
        try:
            reply = json.loads(answer) if len(answer) < _MOST_COMPARED else {}
            if _REPLY.issuperset(reply) and "value" in reply:
                value = Decoder().read(reply["value"])
                if self.holds(value):
                    return ""
                kind, message = "AssertionError", self._said(self.message, value)
            elif _FAILED.issuperset(reply) and reply["error"]["class"] in _ERRORS:
                kind, message = reply["error"]["class"].rpartition(".")[2], reply["error"]["text"]
                if reply["error"]["args"] != [message]:
                    return None
            else:
                return None
        except (ValueError, LookupError, TypeError, RecursionError, TaggedError):  # The answer may be forged.
            return None
        if message is None:
            return None
        return f"line {self.line} of the test: {kind}: {message or self.text}"[:TOLD].strip()  # As `described` does.

    def _said(self, message: ast.expr | None, value: Any) -> str | None:
        """The text of a message, which may show the value."""
        if message is None:
            return ""
        if isinstance(message, ast.Constant) and isinstance(message.value, str):
            return message.value
        if isinstance(message, ast.BinOp) and isinstance(message.op, ast.Add):
            parts = [self._said(each, value) for each in (message.left, message.right)]
            return None if None in parts else "".join(map(str, parts))
        shown = message.args if isinstance(message, ast.Call) and not message.keywords else []
        is_shown = [ast.dump(each) for each in shown] == [self.call]
        return str(value) if is_shown and ast.unparse(message).startswith("str(") else None


_REPLY: Final = frozenset(["value", "printed", "after", "told"])
_FAILED: Final = frozenset(["error", "printed", "after", "told"])


@dataclass(frozen=True)
class KnownCalls:
    """What tests that passed asked of code.

    Attributes:
        requests: The requests, as texts.
        answers: The answers of the code.
        checks: For each of them what the host can decide of another answer; `None`: nothing.
        answering: The code that waits to answer.
        whys: Why the tests do not pass with other answers, by a hash of these, and empty if they do.
        verdicts: Verdicts on code, by a hash of it.
    """

    requests: Sequence[str]
    answers: Sequence[str]
    checks: Sequence[_Check | None]
    answering: Answering
    whys: dict[bytes, str] = field(default_factory=dict)
    verdicts: dict[bytes, Verdict] = field(default_factory=dict)

    def keep(self, files: Mapping[str, str], verdict: Verdict) -> Verdict:
        """Keep a verdict, and return it."""
        if len(self.verdicts) == _MOST_KNOWN:
            self.verdicts.clear()
        self.verdicts[_hash_of(*files, *files.values())] = verdict
        return verdict


def _hash_of(*texts: str) -> bytes:
    return hashlib.sha256(json.dumps(texts).encode()).digest()


async def find_calls(
    sandbox: Sandbox, files: Mapping[str, str], test: TestCode, *, timeout: float
) -> KnownCalls | None:
    """Run a test with code that is known to be right, in one room.

    Args:
        sandbox: See `sandbox_apart`.
        files: The files of the code, by name.
        test: The test.
        timeout: The time limit in seconds.

    Returns:
        The calls that it makes; `None` if other code cannot be judged by them, or if this code does not pass.

    Raises:
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    asserts = plain_asserts(test.test, test.entry_point, test.before, test.names)
    if asserts is None:
        return None
    cell = call_inside("checks", "check_beside", dict(files), test.model_dump(mode="json"))
    found = value_of(await sandbox.run(make_harness(MODULES, sandbox.preload) + cell, timeout=timeout))
    if not isinstance(found, dict) or found["why"] or found["cannot"]:
        return None
    requests, answers = found["requests"], found["answers"]
    if sum(map(len, requests + answers)) > _MOST_CHARACTERS:
        return None
    # Before the first call, the module and its functions are asked for.
    asked = [json.loads(each)["do"] for each in requests]
    begin = next((number for number, do in enumerate(asked) if do not in ("import", "get")), len(asked))
    calls_back = any("do" in json.loads(each) for each in answers)
    if calls_back or any(word in each for each in answers[begin:] for word in _OBJECTS):
        return None
    lines = test.test.splitlines()
    checks: list[_Check | None] = [None] * begin
    for each, calls in asserts:
        checks += [_Check.of(each, calls, lines[each.lineno - 1].strip())] * len(calls)
    # Otherwise a part of an assert was not evaluated.
    checks = checks if len(checks) == len(requests) else [None] * len(requests)
    known = KnownCalls(requests, answers, checks, Answering(requests))
    known.keep(files, Verdict(passed=True))
    return known


async def judge_by_calls(
    sandbox: Sandbox,
    files: Mapping[str, str],
    test: TestCode,
    calls: KnownCalls,
    *,
    turn: asyncio.Semaphore,
    timeout: float,
) -> Verdict | None:
    """Judge code by known calls of its test.

    Args:
        sandbox: See `sandbox_apart`.
        files: The files of the code, by name.
        test: The test.
        calls: The calls that it made of code that passed.
        turn: What runs waits for it.
        timeout: The time limit in seconds.

    Returns:
        The verdict; `None` if only `judge_apart` can tell, for instance since an answer is an object.

    Raises:
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    given = None
    if is_pure(tuple(files.values())):
        verdict = calls.verdicts.get(_hash_of(*files, *files.values()))
        if verdict is not None:
            return verdict
        # Code of several files could take the place of modules that other code imports.
        if [*files] == [f"{test.module}.py"] and test.module not in sys.stdlib_module_names:
            given = await calls.answering.answers(sandbox, files, turn)
    async with turn:
        return await _judge(sandbox, files, test, calls, given, timeout)


async def _judge(
    sandbox: Sandbox, files: Mapping[str, str], test: TestCode, calls: KnownCalls, given: Answers | None, timeout: float
) -> Verdict | None:
    """Judge code by its answers; they are asked for if they are not given."""
    begun = time.monotonic()
    harness = make_harness(MODULES, sandbox.preload)
    if given is None or given.seconds > timeout:
        result = await sandbox.run(
            harness + call_inside("checks", "answer", dict(files), calls.requests), timeout=timeout
        )
        answers, seconds = value_of(result), time.monotonic() - begun
        if result.outcome is Outcome.TIMEOUT:
            return Verdict(passed=False, why=why_no_answer(result), outcome=result.outcome, duration=seconds)
        if not isinstance(answers, list) or not all(isinstance(each, str) for each in answers):
            return None
        given = Answers(answers, seconds)
    found = tuple(given.texts)
    if len(found) != len(calls.answers):
        return None
    why = _why(found, calls)
    if why is None:
        if any(word in each for each in set(found).difference(calls.answers) for word in _OBJECTS):
            return None
        key = _hash_of(*found)
        if key not in calls.whys:
            cell = call_inside(
                "checks", "check_answered", calls.requests, found, dict(files), test.model_dump(mode="json")
            )
            ran = value_of(await sandbox.run(harness + cell, timeout=timeout))
            if not isinstance(ran, dict) or not ran["known"] or ran["cannot"]:
                return None
            if len(calls.whys) == _MOST_KNOWN:
                calls.whys.clear()
            calls.whys[key] = ran["why"]
        why = calls.whys[key]
    return calls.keep(files, Verdict(passed=not why, why=why, duration=given.seconds))


def _why(found: Sequence[str], calls: KnownCalls) -> str | None:
    """Why tests fail with these answers; empty if they pass; `None` if the host cannot tell."""
    for answer, known, check in zip(found, calls.answers, calls.checks, strict=True):
        if answer != known:
            why = check.why(answer) if check is not None else None
            if why != "":
                return why
    return ""
