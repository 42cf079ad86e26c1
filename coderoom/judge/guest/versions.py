"""Runs the same jobs with several versions of a program: each in a fork, or all in one if they leave nothing behind."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import sys
import time
import warnings
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from .batches import Printed, clear, end_child, fork, lines
from .calls import answer_now

__all__ = ["begin", "run"]

_NAME = "<version>"
_SLACK = 0.5
_limit_time = signal.setitimer


def begin(sources: List[str], jobs: List[Dict[str, Any]], seconds: float, stateless: bool) -> List[Any]:
    """Run the code as it is, but with marks: calls of `mark_statement` with the place of a statement.

    Returns:
        Its answers, see `run`, the seconds that they took, and the places; each is `None` if it took too long.
    """
    seen: Set[Tuple[int, int]] = set()
    clock = time.process_time if stateless else time.monotonic

    def work() -> Iterator[Any]:
        vars(sys.modules["__main__"])["mark_statement"] = seen.add
        load(seconds)
        start = clock()
        answers = _answers(jobs, seconds, stateless)
        yield answers, clock() - start
        if not stateless:  # They have run in other forks.
            for job in jobs:
                answer_now(job)
        yield sorted(seen)

    with _quiet():
        load = _loading(sources)
        first, places = _told(_start(work), 2, seconds)
    return [*(first or (None, None)), places]


def run(
    versions: List[List[str]],
    jobs: List[Dict[str, Any]],
    seconds: float,
    stateless: bool,
    longest: int,
    whole: float,
) -> List[Optional[List[Optional[str]]]]:
    """Run jobs with each version, until time or room is used up.

    Args:
        versions: The sources of each version, which replace definitions of the program.
        jobs: The jobs.
        seconds: The processor time of each version.
        stateless: Whether jobs leave nothing behind for each other.
        longest: The most characters of all answers.
        whole: The seconds after which no more versions start.

    Returns:
        For each version, in order, its answers; `None` if it took too long or ended its process. Those of the last
        versions may lack.
    """
    found: List[Any] = []
    end = time.monotonic() + whole
    with _quiet():
        loading = [_loading(sources) for sources in versions]
        while len(found) < len(versions) and longest > 0 and time.monotonic() < end:
            left = loading[len(found) :][: None if stateless else 1]
            started = _start(partial(_work, left, jobs, seconds, stateless, longest, end))
            for each in _told(started, len(left), seconds):
                if each is False:
                    return found
                found.append(each)
                if each is None:  # It has ended the fork.
                    break
                longest -= _size(each)
            if not clear():
                break
    return found


def _work(
    loading: List[Callable[[float], None]],
    jobs: List[Dict[str, Any]],
    seconds: float,
    stateless: bool,
    longest: int,
    end: float,
) -> Iterator[Any]:
    """The answers of versions, and `False` if there is no time or room for more."""
    for load in loading:
        if longest < 0 or time.monotonic() > end:
            yield False
            return
        load(seconds)
        answers = _answers(jobs, seconds, stateless)
        longest -= _size(answers)
        yield answers


def _size(answers: List[Optional[str]]) -> int:
    return sum(len(text or "") + 10 for text in answers)


def _answers(jobs: List[Dict[str, Any]], seconds: float, stateless: bool) -> List[Optional[str]]:
    if stateless:
        return [*map(answer_now, jobs)]
    found: List[Optional[str]] = []
    for job in jobs:

        def work(job: Dict[str, Any] = job) -> Iterator[str]:
            _limit_time(signal.ITIMER_PROF, seconds)
            yield answer_now(job)

        found += _told(_start(work), 1, seconds)
        if found[-1] is None or not clear():
            break
    return found


def _loading(sources: List[str]) -> Callable[[float], None]:
    """What loads sources into the program, with a limit of processor time for all that follows.

    They are compiled here: what a fork does itself costs more, since it copies the memory that it writes to.
    """
    codes = [compile(source, _NAME, "exec", dont_inherit=True) for source in sources]

    def load(seconds: float) -> None:
        _limit_time(signal.ITIMER_PROF, seconds)  # The kernel ends the process, whatever the code does.
        for code in codes:
            exec(code, vars(sys.modules["__main__"]))

    return load


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What forks print goes nowhere, and what the compiler warns of."""
    before = sys.stdout
    sys.stdout = io.TextIOWrapper(Printed(), "utf-8", write_through=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stdout = before


def _start(work: Callable[[], Iterator[Any]]) -> Tuple[int, Any]:
    """Do work in a fork; return its process and the file with the results."""
    reader, writer = os.pipe()
    pid = fork()
    if not pid:
        try:
            with open(writer, "wb", buffering=0) as file:
                for each in work():
                    text = json.dumps(each).encode() + b"\n"
                    while text:
                        text = text[file.write(text) :]
        finally:
            os._exit(0)
    os.close(writer)
    return pid, open(reader, "rb", buffering=0)


def _told(started: Tuple[int, Any], count: int, seconds: float) -> List[Any]:
    """The results of work; `None` for those that are missing, since it took too long or ended its process."""
    pid, file = started
    with file:
        told = [json.loads(line) for line in itertools.islice(lines(file, seconds + _SLACK), count)]
    end_child(pid)
    return told + [None] * (count - len(told))
