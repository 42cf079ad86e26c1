"""Runs the same jobs with several versions of a program, each in a fork of its own that takes the changed code."""

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
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from .batches import Printed, clear, end_child, fork, lines
from .calls import answer_now

__all__ = ["begin", "run"]

_NAME, _OTHER = "<version>", "<other>"
_SLACK = 0.5
_AT_ONCE = 8
_limit_time = signal.setitimer


def begin(sources: List[str], jobs: List[Dict[str, Any]], seconds: float, stateless: bool) -> List[Any]:
    """Run the code as it is.

    Returns:
        Its answers, see `run`, and the seconds that they took; and the lines of the first source that the jobs run,
        `None` if that took longer than `seconds`.
    """
    seen: Set[int] = set()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != _NAME:
            return None
        seen.add(frame.f_lineno)
        return trace

    def work() -> Iterator[Any]:
        sys.settrace(trace)
        load(seconds)
        sys.settrace(None)
        clock = time.process_time if stateless else time.monotonic
        start = clock()
        yield _answers(jobs, seconds, stateless), clock() - start
        sys.settrace(trace)
        for job in jobs:
            answer_now(job)
        sys.settrace(None)
        yield sorted(seen)

    with _quiet():
        load = _loading(sources)
        first, lines_run = _told(_start(work), 2, 2 * seconds)
    return [*(first or (None, 0.0)), lines_run]


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
    at_once = _AT_ONCE if stateless else 1
    for place in range(0, len(versions), at_once):
        several = _several(versions[place : place + at_once], jobs, seconds, stateless)
        longest -= sum(len(text or "") + 10 for answers in several for text in answers or ())
        if longest < 0 and found:
            break
        found += several
        if longest < 0 or time.monotonic() > end or not clear():
            break
    return found


def _several(versions: List[List[str]], jobs: List[Dict[str, Any]], seconds: float, stateless: bool) -> List[Any]:
    """The answers of versions that run side by side."""

    def work(load: Callable[[float], None]) -> Iterator[Any]:
        load(seconds)
        yield _answers(jobs, seconds, stateless)

    with _quiet():
        loading = [_loading(sources) for sources in versions]
        started = [_start(lambda load=load: work(load)) for load in loading]  # type: ignore[misc]
    return [_told(each, 1, seconds)[0] for each in started]


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
    names = [_OTHER if number else _NAME for number in range(len(sources))]
    codes = [compile(source, name, "exec", dont_inherit=True) for source, name in zip(sources, names)]  # noqa: B905 (Python 3.8)

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
