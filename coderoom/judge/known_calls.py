"""Judges code by the calls that tests made of code that passed, which takes a third of the time of `judge_apart`.

The code answers them all in one room, without the tests. If it answers as the other code did, the tests pass: they see
nothing else of it. Otherwise the tests run with its answers, in a room of their own.

The code could read all calls before it answers the first one. So this is for tests only whose calls have literal
arguments: none is made of an earlier answer. And the tests must be asserts that depend on nothing but the answers, such
as the time.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from coderoom.judge.apart import MODULES, TestCode
from coderoom.judge.harness import call_inside, make_harness
from coderoom.judge.plain_tests import is_plain
from coderoom.judge.session import Verdict, value_of, why_no_answer
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox

_MOST_CHARACTERS: Final = 1 << 20
_MOST_KNOWN: Final = 100
_OBJECTS: Final = ('"$here"', '"$class"', '"$error"')


@dataclass(frozen=True)
class KnownCalls:
    """What tests that passed asked of code.

    Attributes:
        requests: The requests, as texts.
        answers: The answers of the code.
        whys: Why the tests do not pass with other answers, by a hash of these, and empty if they do.
    """

    requests: tuple[str, ...]
    answers: tuple[str, ...]
    whys: dict[bytes, str] = field(default_factory=dict)

    @classmethod
    def of(cls, test: TestCode, texts: Sequence[tuple[str, str]]) -> Self | None:
        """The calls in what two sides have said, each with its side; `None` if other code cannot be judged by them."""
        requests = tuple(text for side, text in texts if side == "tests")
        answers = tuple(text for side, text in texts if side == "code")[1:]
        if len(requests) != len(answers) or sum(map(len, requests + answers)) > _MOST_CHARACTERS:
            return None
        # Before the first call, the module and its functions are asked for.
        begin = next((number for number, each in enumerate(requests) if '"do": "call"' in each), len(requests))
        calls_back = any("do" in json.loads(each) for each in answers)
        if calls_back or any(word in each for each in answers[begin:] for word in _OBJECTS):
            return None
        return cls(requests, answers) if is_plain(test) else None


async def judge_by_calls(
    sandbox: Sandbox, files: Mapping[str, str], test: TestCode, calls: KnownCalls, *, timeout: float
) -> Verdict | None:
    """Judge code by known calls of its test.

    Args:
        sandbox: See `sandbox_apart`.
        files: The files of the code, by name.
        test: The test.
        calls: The calls that it made of code that passed.
        timeout: The time limit in seconds.

    Returns:
        The verdict; `None` if only `judge_apart` can tell, for instance since an answer is an object.

    Raises:
        SandboxUnavailable: The sandbox broke, which says nothing about the code.
    """
    begun = time.monotonic()
    harness = make_harness(MODULES, sandbox.preload)
    cell = call_inside("checks", "answer", dict(files), calls.requests)
    result = await sandbox.run(harness + cell, timeout=timeout)
    answers, seconds = value_of(result), time.monotonic() - begun
    if result.outcome is Outcome.TIMEOUT:
        return Verdict(passed=False, why=why_no_answer(result), outcome=result.outcome, duration=seconds)
    if not isinstance(answers, list) or not all(isinstance(each, str) for each in answers):
        return None
    found = tuple(answers)
    differ = [one for one, other in zip(found, calls.answers, strict=False) if one != other]
    if len(found) != len(calls.answers) or any(word in each for each in differ for word in _OBJECTS):
        return None
    key = hashlib.sha256("\0".join(found).encode("utf-8", "surrogatepass")).digest()
    if differ and key not in calls.whys:
        given = calls.requests, found, dict(files), test.model_dump(mode="json")
        ran = value_of(await sandbox.run(harness + call_inside("checks", "check_answered", *given), timeout=timeout))
        if not isinstance(ran, dict) or not ran["known"] or ran["cannot"]:
            return None
        if len(calls.whys) == _MOST_KNOWN:
            calls.whys.clear()
        calls.whys[key] = ran["why"]
    why = calls.whys[key] if differ else ""
    return Verdict(passed=not why, why=why, duration=time.monotonic() - begun)
