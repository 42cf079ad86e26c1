"""Runs cases of functions in sessions of a sandbox, and judges what they answer. Used by `Judge`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from coderoom._util.tasks import LARGE, aside
from coderoom.judge.cases import FunctionTest, problems_of_steps
from coderoom.judge.harness import Harness, Job, call_inside, job_of, look_of, make_harness, run_inside
from coderoom.judge.mutants import Mutant, Mutants
from coderoom.judge.session import (
    Answer,
    Seen,
    TestSession,
    Verdict,
    read_answer,
    value_of,
    verdict_on,
    why_no_answer,
)
from coderoom.judge.source import is_pure_expression
from coderoom.judge.strength import Strength, generated_inputs, measure
from coderoom.judge.values import canonical, show, tag_of
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox

_SMALLEST, _LARGEST = 16, 512  # The number of jobs between two rollbacks.
_PER_SESSION = 24  # Loading a program takes as long as a few tests, so a session needs enough of them.
_MOST_PRINTED = 10_000
_JUDGE_SECONDS = 5.0
_MOST_PROBLEMS = 5
_MOST_TIMEOUTS = 3  # After this many, the other tests of a function are not run.
_RUNS = 100  # The runs of all tests of a function, so that code that answers at random cannot pass.
_LEAST_RUNS = 3
_SECONDS_TO_REPEAT = 0.4
_SECONDS_IN_ORDER = 60.0  # Slower tests run in fewer processes in order, but in so many:
_LEAST_PROCESSES = 4
_SECONDS_TO_RUN_AGAIN = 2.0  # What costs more runs only once in each process in order; see `Seen.cost`.
_SECONDS_PER_CHARACTER = 1e-6  # What a long answer takes to arrive.
_CHECKS, _LATER_CHECKS = 16, 4  # New processes in which the first test, and each later one, runs alone after a failure.
_MORE_IN_ORDER = 3  # How often all tests run again then, since only state fails the same test each time.
_HEAD = 200
_VARYING = ('"$set"', '"$frozenset"', '"nan"', 'inf"', '"$date', '"$time"')  # In the inputs of a test.
_SLACK = 1.0
_LEAST_MUTANTS, _MUTANTS, _SECONDS_OF_ROUND = 2, 8, 0.1  # Of one round, which always takes place.
_LEAST_OF_VERSION, _TIMES_OF_VERSION = 0.005, 5  # The processor time of a mutant, in seconds and in times of the code.
T = TypeVar("T")

_NO_ANSWER = Seen(None, "the process has ended, or took too long", Outcome.ERROR)


@dataclass(eq=False)
class Trial:
    """A test of a function, the functions of its program, and what was seen of it so far."""

    function: str
    test: FunctionTest
    program: Sequence[str]
    seen: Seen = _NO_ANSWER

    @cached_property
    def job(self) -> Job:
        """The job for the process with the code."""
        return job_of(self.function, self.test, self.program)

    @property
    def size(self) -> int:
        """The characters of its answer."""
        return (self.seen.answer or Answer()).size + _HEAD

    def may_vary(self) -> bool:
        """Whether pure code may give several answers: of a set's order, of NaN, or of a date in the local time zone."""
        given = canonical(self.test.inputs)
        return self.test.has_steps or any(each in given for each in _VARYING)


class PropertySessions:
    """Evaluates properties in sessions that never load code under test; they start when needed.

    Answers that cannot vary are `known` from then on, under the hash of the property and its values.
    """

    def __init__(self, sandbox: Sandbox, language: Harness, count: int, known: dict[object, Answer]) -> None:
        self._sessions = [TestSession(sandbox, language, {}) for _ in range(count)]
        self._lock = asyncio.Lock()
        self._known = known

    async def aclose(self) -> None:
        """End the sessions."""
        for session in self._sessions:
            await session.aclose()

    async def look_at(self, jobs: Sequence[Job]) -> list[Answer | None]:
        """Evaluate many properties, each only once for the same values if its answer cannot vary."""
        keys = [_key(job) or number for number, job in enumerate(jobs)]
        new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._known}
        async with self._lock:
            sessions = self._sessions[: _number_of_sessions(len(new), len(self._sessions))]
            found = dict(zip(new, await _run_many(sessions, [*new.values()]), strict=True))
        self._known.update((key, each) for key, each in found.items() if isinstance(key, bytes) and each is not None)
        return [found[key] if key in found else self._known[key] for key in keys]

    async def look(self, job: Job) -> str:
        """Evaluate one property; return why it does not hold."""
        async with self._lock:
            answer, result = await self._sessions[0].alone(job, _JUDGE_SECONDS)
        if answer is None:
            return f"the property {job['property']!r} could not be evaluated: {why_no_answer(result)}"
        return _why_not(job["property"], answer)


def _key(job: Job) -> bytes | None:
    """The same key for the same property of the same values; `None` for a property whose answer may vary."""
    if not is_pure_expression(str(job["property"]), frozenset({*job["inputs"], "result", "after"})):
        return None
    return hashlib.sha256(json.dumps(job).encode()).digest()


@dataclass(eq=False)
class TestRun:
    """One run of tests."""

    sandbox: Sandbox
    language: Harness
    cases: Sequence[Trial]
    sources: Mapping[str, str]
    sessions: int
    timeout: float
    strict: bool
    final: bool
    known: dict[object, Answer]

    def __post_init__(self) -> None:
        count = _number_of_sessions(len(self.cases), self.sessions)
        self._sessions = [TestSession(self.sandbox, self.language, self.sources) for _ in range(count)]
        self._longest = self._sessions[0].longest
        self._properties = PropertySessions(self.sandbox, self.language, count, self.known)
        self._loaded: Mapping[str, str] = {}
        self._timeouts: Counter[str] = Counter()
        self._left = ""

    async def do(self) -> list[Verdict]:
        """Run all tests."""
        async with self._closing():
            await _all([each.open() for each in self._sessions])
            await self._do()
            return [self._result(case) for case in self.cases]

    @contextlib.asynccontextmanager
    async def _closing(self) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(contextlib.aclosing(self._properties))
            for each in self._sessions:
                await stack.enter_async_context(contextlib.aclosing(each))
            yield

    async def strength(self, function: str, named: bool, most: int, seconds: float) -> Strength:
        """Measure how strong the tests are, all of which are of one function; `named`: survivors have its name."""
        more = self.sessions - len(self._sessions)
        self._sessions += [TestSession(self.sandbox, self.language, self.sources) for _ in range(more)]
        async with self._closing():
            began, mutants = time.monotonic(), Mutants(self.sources[function])
            given = function, mutants.marked(), [case.job for case in self.cases], self.timeout
            found = await self._sessions[0].run_version(*given)
            answers, took, places = found if isinstance(found, list) and len(found) == 3 else (None, None, None)
            usual = dict(zip(self.cases, answers or (), strict=False))
            failed = await self._failed([*usual.items()])
            cases = [case for case, each in zip(usual, failed, strict=True) if not each]
            if not cases or not isinstance(took, float):
                return Strength(unavailable="the tests do not pass, or take too long")
            jobs, limit = [case.job for case in cases], max(_LEAST_OF_VERSION, _TIMES_OF_VERSION * took)
            is_begun: list[bool] = []

            async def answers_of(session: TestSession, mutants: Sequence[Mutant]) -> list[Any]:
                done: list[Any] = []
                while left := [each.source for each in mutants[len(done) :]]:
                    several = await session.run_versions(function, left, jobs, limit)
                    if not isinstance(several, list) or not several:  # One of them has broken the session.
                        several = await session.run_versions(function, left[:1], jobs, limit)
                    done += several[: len(left)] if isinstance(several, list) and several else [None]
                return done

            async def kill(mutants: Sequence[Mutant]) -> list[bool]:
                # Starting another session takes as long as a few mutants.
                several = self._sessions if is_begun else self._sessions[:1]
                is_begun.append(True)
                parts = [mutants[place :: len(several)] for place in range(len(several))]
                work = [answers_of(*each) for each in zip(several, parts, strict=True)]
                killed = dict.fromkeys(mutants, False)
                pairs: list[tuple[Mutant, Trial, Any]] = []
                for part, found in zip(parts, await asyncio.gather(*work), strict=True):
                    for mutant, texts in zip(part, found, strict=True):
                        whole = isinstance(texts, list) and len(texts) == len(cases) and None not in texts
                        killed[mutant] = not whole  # It took too long, or ended its process.
                        if whole:
                            new = [(case, text) for case, text in zip(cases, texts, strict=True) if text != usual[case]]
                            pairs += [(mutant, *each) for each in new]
                failed = await self._failed([(case, text) for _, case, text in pairs])
                for (mutant, *_), each in zip(pairs, failed, strict=True):
                    killed[mutant] = killed[mutant] or each
                return [*killed.values()]

            strength = await measure(
                mutants,
                kill,
                name=function if named else "",
                reached=None if places is None else {tuple(each) for each in places},
                most=most,
                seconds=seconds - (time.monotonic() - began),
                at_once=max(_LEAST_MUTANTS, min(_MUTANTS, int(_SECONDS_OF_ROUND / max(took, 1e-6)))),
            )
            if time.monotonic() - began > seconds:
                return strength
            return strength + await self._try_properties(cases)

    async def _try_properties(self, cases: Sequence[Trial]) -> Strength:
        """Try the properties of tests with generated inputs.

        One that holds for none of them does not count: it is about the inputs of its test.
        """
        runs = 1 if self.language.is_pure(self.sources.values()) else _LEAST_RUNS
        whole = Strength()
        for case in cases:
            inputs = generated_inputs(case.test, case.function, self.sources[case.function])
            tests = [case.test.model_copy(update={"inputs": each}) for each in inputs]
            trials = [Trial(case.function, test, case.program) for test in tests]
            found = await self._run_batch(trials * runs)
            held, examples = 0, []
            for place, each in enumerate(inputs):
                several = [seen for seen in found[place :: len(inputs)] if seen and seen.outcome is Outcome.OK]
                if len(several) == runs and all(seen.passed for seen in several):
                    held += 1
                elif len(several) == runs:
                    examples.append(", ".join(f"{name}={show(data)}" for name, data in each.items()))
            if held:
                tried = held + len(examples)
                example = examples[0] if examples else ""
                whole += Strength(inputs=tried, held=held, runs=tried * runs, counterexample=example)
        return whole

    async def _failed(self, answers: Sequence[tuple[Trial, Any]]) -> list[bool]:
        """Whether each answer fails its test, or is none."""
        read = [read_answer(text, self._longest) for _, text in answers]
        seen = await self._judged([case for case, _ in answers], read)
        return [each is None or bool(each.why) for each in seen]

    async def _do(self) -> None:
        failures: dict[str, Seen] = {}
        for session in self._sessions:
            failures.update(session.failures)
        self._loaded = {name: source for name, source in self.sources.items() if name not in failures}
        cases = []
        for case in self.cases:
            if case.function in failures:
                case.seen = failures[case.function]
            elif problems := problems_of_steps(case.test, case.program):
                case.seen = Seen(None, "; ".join(problems[:_MOST_PROBLEMS]), Outcome.REJECTED)
            else:
                cases.append(case)
        # Each test once, many of them in one cell, and those again alone that did not pass.
        left: list[tuple[Trial, Seen | None]] = []
        for case, seen in zip(cases, await self._run_batch(cases), strict=True):
            if seen is not None and (not seen.why or self._sessions[0].is_stateless(case.job)):
                case.seen = seen
            else:
                left.append((case, seen))
        await self._share(left, self._run_alone)
        # Parts of code that could not be loaded may be there.
        pure = not failures and self.language.is_pure(self.sources.values())
        varies = not pure or any(case.may_vary() for case in cases)
        if varies:
            await self._run_again(self._passing(cases))
        await self._run_in_order(self._passing(cases), varies)

    def _passing(self, cases: Sequence[Trial]) -> list[Trial]:
        """The tests of the functions that pass all of them."""
        failing = {case.function for case in cases if not case.seen.passed}
        return [case for case in cases if case.function not in failing]

    async def _share(self, left: Sequence[T], do: Callable[[TestSession, T], Awaitable[None]]) -> None:
        """Do something with each of these, in whichever session is free."""
        waiting = deque(left)

        async def work(session: TestSession) -> None:
            while waiting:
                await do(session, waiting.popleft())

        await _all([work(session) for session in self._sessions])

    async def _run_alone(self, session: TestSession, what: tuple[Trial, Seen | None]) -> None:
        """Run a test alone, after an answer that may be caused by another test."""
        case, first = what
        if self._timeouts[case.function] >= _MOST_TIMEOUTS:
            why = f"not run, since {_MOST_TIMEOUTS} tests of this function have exceeded their time limit"
            case.seen = Seen(None, why, Outcome.REJECTED)
            return
        seen = await self._see_alone(session, case)
        if seen.outcome is Outcome.TIMEOUT:
            self._timeouts[case.function] += 1
        case.seen = seen if first is None or seen.why else _not_repeatable(first, seen)

    async def _run_again(self, cases: Sequence[Trial]) -> None:
        """Repeat tests that passed: they pass only if every undisturbed run passes."""
        counts = Counter(case.function for case in cases)
        repeated = []
        for case in cases:
            seconds = max(case.seen.cost, case.size * _SECONDS_PER_CHARACTER, 1e-4)
            most = min(_RUNS, _SECONDS_TO_REPEAT / seconds) / counts[case.function]
            repeated += [case] * max(_LEAST_RUNS, math.ceil(most))

        def note(case: Trial, seen: Seen) -> None:
            if seen.why and case.seen.passed:
                case.seen = _not_repeatable(case.seen, seen)

        async def run_alone(session: TestSession, case: Trial) -> None:
            note(case, await self._see_alone(session, case))

        left = []
        for case, seen in zip(repeated, await self._run_batch(repeated), strict=True):
            if seen is None:
                left.append(case)
            else:
                note(case, seen)
        await self._share(left, run_alone)

    async def _run_in_order(self, cases: Sequence[Trial], varies: bool) -> None:
        """Run all tests in order in new processes, in which the program is a module, as a user's test tool does."""
        count = self.language.processes
        if not self.final or not varies:
            proven = not varies and all(self._sessions[0].is_stateless(case.job) for case in cases)
            count = min(count, 0 if proven and not self.final else 1)
        if not count or not cases:
            return
        slow = sum(case.seen.cost for case in cases)
        count = min(count, max(_LEAST_PROCESSES, int(_SECONDS_IN_ORDER / slow))) if slow else count
        for session in self._sessions:  # The program in them could change what new processes do.
            await session.aclose()
        for several in self._parts(cases, self._longest // (8 * count)):
            await self._see_several_in_order(several, count, again=varies)

    async def _see_several_in_order(self, cases: Sequence[Trial], count: int, again: bool) -> None:
        again = again and sum(case.seen.cost for case in cases) < _SECONDS_TO_RUN_AGAIN
        more: list[list[Seen]] = []
        checks = _CHECKS
        for place, seen in enumerate(await self._see_in_order(cases, count, again)):
            case = cases[place]
            if not seen.why or not case.seen.passed:
                continue
            more = more or [await self._see_in_order(cases, 1, again) for _ in range(_MORE_IN_ORDER)]
            is_state = all(each[place].why for each in more)
            if is_state:
                [alone] = await self._see_in_order([case], checks)  # Nothing runs before it.
                is_state, checks = not alone.why, _LATER_CHECKS
            if not is_state:
                case.seen = _not_repeatable(case.seen, seen)
                continue
            text = f"it passes alone, but after the other tests it {seen.said()}: the code keeps state"
            self._warn(case, text)
        if self._left and cases[-1].seen.passed:
            self._warn(cases[-1], f"after the tests, the program leaves {self._left}")

    def _warn(self, case: Trial, text: str) -> None:
        warnings = "; ".join(filter(None, [case.seen.warning, text]))
        case.seen = replace(case.seen, why=text) if self.strict else replace(case.seen, warning=warnings)

    def _parts(self, cases: Sequence[Trial], most: int) -> Iterator[list[Trial]]:
        """Parts of the tests, the answers of which have at most `most` characters together."""
        part: list[Trial] = []
        size = 0
        for case in cases:
            if part and size + case.size > most:
                yield part
                part, size = [], 0
            part.append(case)
            size += case.size
        yield part

    async def _run_batch(self, cases: Sequence[Trial]) -> list[Seen | None]:
        """Run tests, many in one cell; `None` for those that need more time, memory or space than there is."""
        return await self._judged(cases, await _run_many(self._sessions, [case.job for case in cases]))

    async def _see_in_order(self, cases: Sequence[Trial], count: int, again: bool = False) -> list[Seen]:
        """Run tests one after the other in new processes; the first failure of each test counts."""
        slow = [case.seen.seconds for case in cases]
        seconds = self.timeout + 4 * max(slow)
        seconds += 4 * sum(slow) + _SLACK if again else 0  # What runs again may say nothing.
        found = [case.seen for case in cases]
        jobs = [case.job for case in cases]
        at_once = max(1, self._longest // (4 * sum(case.size for case in cases)))
        while count > 0:
            several = min(count, at_once)
            answers = await self._run_in_processes(jobs, several, seconds, again)
            count -= several
            if isinstance(answers, Seen):
                return [each if each.why else answers for each in found]
            pairs = [(number, each) for number, several in enumerate(answers) for each in several]
            self._left = next((each.left for _, each in pairs if each is not None and each.left), self._left)
            pairs = [(number, each) for number, each in pairs if each is None or not each.left]
            seen = await self._judged([cases[number] for number, _ in pairs], [each for _, each in pairs])
            for (number, _), each in zip(pairs, seen, strict=True):
                if not found[number].why:
                    found[number] = each or _NO_ANSWER
        return found

    async def _run_in_processes(
        self, jobs: Sequence[Job], count: int, seconds: float, again: bool
    ) -> list[list[Answer | None]] | Seen:
        """Run jobs one after the other in each of several new processes, in which the program is a module.

        For each job, these are its different answers; `None` is among them if a process ended or took too long. With
        `again`, all jobs run again in each process, several times if they are fast. If they could not be run at all,
        this says why.
        """
        language, longest = self.language, self._longest // count
        given = language.program(self._loaded), [*map(language.job, jobs)], count, seconds, longest, again
        cell = run_inside(language.runs_jobs[1], "run_in_order", longest, *given)
        harness = make_harness(language.harness(), self.sandbox.preload)
        code = f"{harness}{language.load(())}\n{call_inside('batches', 'begin')}\n{cell}"
        result = await self.sandbox.run(code, timeout=(seconds * len(jobs) + _SLACK) * count)
        values = value_of(result)
        if not isinstance(values, list) or [*map(type, values)] != [list] * len(jobs):
            facts = result.outcome, result.duration, result.peak_memory
            return Seen(None, why_no_answer(result), *facts)
        return [[await aside(read_answer, text, longest) for text in several] for several in values]

    async def _judged(self, cases: Sequence[Trial], answers: Sequence[Answer | None]) -> list[Seen | None]:
        found: list[Seen | None] = [None] * len(cases)
        looks: list[tuple[int, Answer]] = []
        for number, (case, answer) in enumerate(zip(cases, answers, strict=True)):
            if answer is None:
                continue
            why = await aside(verdict_on, case.test, answer, self.language, large=answer.size > LARGE)
            # Whether the test run alone, which has more memory and space for its answer, would give the same answer.
            is_whole = tag_of(answer.value)[0] != "$opaque"
            if answer.raised is not None:
                is_whole = answer.raised.base not in ("MemoryError", "RecursionError")
            if (why or case.test.expects == "property") and not is_whole:
                continue
            if not why and case.test.expects == "property":
                looks.append((number, answer))
            else:
                found[number] = _seen(answer, why)
        jobs = [look_of(cases[number].test, answer.value, answer.after) for number, answer in looks]
        verdicts = await self._properties.look_at(jobs)
        for (number, answer), verdict in zip(looks, verdicts, strict=True):
            if verdict is not None:
                found[number] = _seen(answer, _why_not(cases[number].test.property, verdict))
        return found

    async def _see_alone(self, session: TestSession, case: Trial) -> Seen:
        answer, result = await session.alone(case.job, self.timeout)
        if answer is None:
            facts = result.outcome, result.duration, result.peak_memory, result.stdout
            return Seen(None, why_no_answer(result), *facts)
        why = await aside(verdict_on, case.test, answer, self.language, large=answer.size > LARGE)
        if not why and case.test.expects == "property":
            why = await self._properties.look(look_of(case.test, answer.value, answer.after))
        return _seen(answer, why)

    def _result(self, case: Trial) -> Verdict:
        seen, answer = case.seen, case.seen.answer or Answer()
        return Verdict(
            function=case.function,
            test=case.test.name,
            passed=seen.passed,
            actual_output=answer.value,
            arguments_after=answer.after,
            why=seen.why,
            outcome=seen.outcome,
            error=seen.error or self._sessions[0].text_of(answer.raised),
            duration=seen.seconds,
            peak_memory=seen.peak,
            stdout=seen.stdout[:_MOST_PRINTED],
            warning=seen.warning,
        )


def _not_repeatable(one: Seen, other: Seen) -> Seen:
    why = f"not repeatable: one run {one.said()}, and another one {other.said()}"
    return replace(one if one.why else other, why=why)


def _why_not(text: str | None, answer: Answer) -> str:
    """Why a property does not hold; empty if it does."""
    if answer.value is True:
        return ""
    if answer.raised is not None:
        return f"the property {text!r} could not be evaluated: {answer.raised!s:.300}"
    return f"the property {text!r} does not hold"


def _seen(answer: Answer, why: str) -> Seen:
    outcome = Outcome.OK if answer.raised is None else Outcome.ERROR
    return Seen(answer, why, outcome, answer.seconds, answer.peak, answer.stdout, worked=answer.worked)


def _number_of_sessions(jobs: int, most: int) -> int:
    return min(most, -(-jobs // _PER_SESSION))


async def _run_many(sessions: Sequence[TestSession], jobs: Sequence[Job]) -> list[Answer | None]:
    """Run jobs, many in one cell; `None` for those that need more time, memory or space than there is.

    The sessions share them. They take fewer towards the end, so that none idles, and after a slow one no more like it.
    """
    answers: list[Answer | None] = [None] * len(jobs)
    keys = [str(job.get("property", job.get("function"))) for job in jobs]
    left = deque(range(len(jobs)))
    slow: set[str] = set()

    async def work(session: TestSession) -> None:
        while left:
            count = max(_SMALLEST, min(_LARGEST, len(left) // 2))
            taken = [left.popleft() for _ in range(min(count, len(left)))]
            taken = [number for number in taken if keys[number] not in slow]
            found = await session.several([jobs[number] for number in taken]) if taken else []
            for number, answer in zip(taken, found, strict=False):
                answers[number] = answer
                if answer is None:
                    slow.add(keys[number])
            if found:
                left.extendleft(reversed(taken[len(found) :]))

    await _all([work(session) for session in sessions])
    return answers


async def _all(work: Sequence[Any]) -> None:
    """Wait for all; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None
