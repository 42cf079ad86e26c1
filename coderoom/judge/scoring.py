"""Judges the samples of models for a problem set, and computes pass@k."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from coderoom.errors import RequestError
from coderoom.judge.apart import TestCode
from coderoom.judge.judge import Judge
from coderoom.judge.problem_sets import Problem, Sample
from coderoom.judge.session import Verdict

_KS: Final = (1, 10, 100)


@dataclass
class Score:
    """What came of samples.

    Attributes:
        judged: The number of judged samples of each problem.
        passed: How many of them passed.
        unsound: Problems that are left out, and why: their reference fails, the empty answer passes, or the tests are
            broken.
        without_reference: Problems that have no reference, so that only the empty answer shows whether they are sound.
        cannot_separate: How many samples could not be judged in two rooms. They have not passed.
        can_be_fooled: How many were judged in the process of the code instead.
    """

    judged: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    unsound: dict[str, str] = field(default_factory=dict)
    without_reference: set[str] = field(default_factory=set)
    cannot_separate: int = 0
    can_be_fooled: int = 0

    def add(self, task_id: str, verdict: Verdict) -> None:
        """Count a verdict."""
        self.judged[task_id] += 1
        self.passed[task_id] += verdict.passed
        self.cannot_separate += bool(verdict.cannot_separate) and not verdict.can_be_fooled
        self.can_be_fooled += verdict.can_be_fooled

    @property
    def pass_at(self) -> dict[str, float]:
        """The unbiased estimates of pass@k, for each k of which every problem has enough samples."""
        found = {}
        for k in _KS if self.judged else ():
            if min(self.judged.values()) >= k:
                missed = [math.comb(n - self.passed[task], k) / math.comb(n, k) for task, n in self.judged.items()]
                found[f"pass@{k}"] = 1 - sum(missed) / len(missed)
        return found


def files_of(code: str, problem: Problem) -> dict[str, str]:
    """The files of an answer to a problem, as its test finds them."""
    name = problem.test.module if isinstance(problem.test, TestCode) else "main"
    return {f"{name}.py": f"{code}\n\n{problem.after}" if problem.after else code}


async def score(
    samples: Sequence[Sample], result: Score, judge: Judge, *, shared: bool = False
) -> AsyncIterator[tuple[Sample, Verdict | None]]:
    """Judge samples, each in rooms of its own.

    Before, each problem is checked: its reference must pass, if it has one, and an empty answer must fail.

    Args:
        samples: The samples.
        result: Is filled in.
        judge: What judges them, as many at a time as it has sessions.
        shared: See `Judge.run`.

    Yields:
        Each sample in order, with its verdict, or `None` if its problem is left out.

    Raises:
        SandboxUnavailable: The sandbox broke, which says nothing about the samples.
    """

    async def judged(code: str, problem: Problem, is_reference: bool = False) -> Verdict:
        files = files_of(code, problem)
        verdicts = await judge.run(files, problem.test, shared=shared, is_reference=is_reference)
        failed = next((each for each in verdicts if not each.passed), None)
        if failed is None or not failed.test:
            return failed or verdicts[0]
        return failed.model_copy(update={"why": f"test {failed.test}: {failed.why}"})

    async def check(problem: Problem) -> str:
        try:
            if problem.reference is None:
                result.without_reference.add(problem.task_id)
            elif not (verdict := await judged(problem.reference, problem, is_reference=True)).passed:
                return f"its reference fails: {verdict.cannot_separate or verdict.why}"
        except RequestError as error:
            return f"its tests are broken: {error}"
        return ""

    async def check_empty(problem: Problem) -> str:
        if why := await references[problem.task_id]:
            return why
        try:
            return "an empty answer passes" if (await judged(problem.empty, problem)).passed else ""
        except RequestError as error:
            return f"its tests are broken: {error}"

    problems = {each.problem.task_id: each.problem for each in samples}
    references = {task_id: asyncio.ensure_future(check(problem)) for task_id, problem in problems.items()}
    checks = {task_id: asyncio.ensure_future(check_empty(problem)) for task_id, problem in problems.items()}

    async def verdict_on(sample: Sample) -> Verdict | None:
        task_id = sample.problem.task_id
        if await references[task_id]:
            return None
        try:
            verdict: Verdict | None = await judged(sample.code, sample.problem)  # Together with the empty answer.
        except RequestError as error:  # A checker may fail for some outputs only.
            result.unsound[task_id] = f"its tests are broken: {error}"
            verdict = None
        return None if await checks[task_id] else verdict

    work = [asyncio.ensure_future(verdict_on(sample)) for sample in samples]
    try:
        for sample, judging in zip(samples, work, strict=True):
            verdict, task_id = await judging, sample.problem.task_id
            if verdict is None:
                result.unsound.setdefault(task_id, checks[task_id].result())
            else:
                result.add(task_id, verdict)
            yield sample, verdict
    finally:
        tasks = (*references.values(), *checks.values(), *work)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
