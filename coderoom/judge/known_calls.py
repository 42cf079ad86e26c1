"""Judges code by the calls that tests made of code that passed, which takes a third of the time of `judge_apart`.

The code answers them all in one room, without the tests. If it answers as the other code did, the tests pass: they see
nothing else of it. Otherwise the tests run with its answers, in a room of their own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from coderoom.judge.apart import MODULES, TestCode
from coderoom.judge.harness import call_inside, make_harness
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
        whys: Why the tests do not pass with other answers, by these, and empty if they do.
    """

    requests: tuple[str, ...]
    answers: tuple[str, ...]
    whys: dict[tuple[str, ...], str] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[tuple[str, str]]) -> Self | None:
        """The calls in what two sides have said, each with its side; `None` if they cannot be made again.

        That is if the code has called the tests, or if they are too many.
        """
        requests = tuple(text for side, text in texts if side == "tests")
        answers = tuple(text for side, text in texts if side == "code")[1:]
        if len(requests) != len(answers) or sum(map(len, requests + answers)) > _MOST_CHARACTERS:
            return None
        return None if any("do" in json.loads(each) for each in answers) else cls(requests, answers)


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
    if differ and found not in calls.whys:
        given = calls.requests, found, dict(files), test.model_dump(mode="json")
        ran = value_of(await sandbox.run(harness + call_inside("checks", "check_answered", *given), timeout=timeout))
        if not isinstance(ran, dict) or not ran["known"] or ran["cannot"]:
            return None
        if len(calls.whys) < _MOST_KNOWN:
            calls.whys[found] = ran["why"]
        why = ran["why"]
    else:
        why = calls.whys[found] if differ else ""
    return Verdict(passed=not why, why=why, duration=time.monotonic() - begun)
