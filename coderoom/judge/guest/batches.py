"""Runs many jobs in one cell: each in its own fork, or several in one fork if the program is stateless."""

from __future__ import annotations

import _thread
import io
import itertools
import json
import os
import re
import resource
import select
import signal
import stat
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .calls import answer_now, warm

__all__ = ["alone", "begin", "clear", "end_child", "end_left", "fork", "in_turn", "lines", "remember", "run", "tidy"]

_MOST_FILES = 2_000

_folders: List[str] = []
_before: Dict[str, Tuple[int, ...]] = {}


def remember() -> None:
    """Record the files that exist, here and in the folder for temporary ones."""
    _folders[:] = sorted({os.getcwd(), tempfile.gettempdir()})
    _before.clear()
    _before.update(_files())


def clear() -> bool:
    """Remove what the last job left; return whether that worked."""
    try:
        os.waitpid(-1, os.WNOHANG)
        return False  # A process that the job started is still running.
    except ChildProcessError:
        return tidy()


def tidy() -> bool:
    """Remove new files; return whether all files are as before."""
    try:
        now = _files()
        if now == _before:
            return True
        for path in sorted(set(now) - set(_before), reverse=True):
            if now[path]:
                os.unlink(path)
            else:
                os.rmdir(path)
        return _files() == _before
    except OSError:
        return False


def _files() -> Dict[str, Tuple[int, ...]]:
    found: Dict[str, Tuple[int, ...]] = {}
    for folder, folders, files in itertools.chain.from_iterable(map(os.walk, _folders)):
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            folders.clear()  # An interpreter below /tmp is mounted there, so that nothing can be written.
            continue
        for path in [os.path.join(folder, name) for name in folders + files]:
            facts = os.lstat(path)
            is_folder = stat.S_ISDIR(facts.st_mode)
            found[path] = () if is_folder else (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            if len(found) > _MOST_FILES:
                return found
    return found


_PR_SET_CHILD_SUBREAPER = 36
_MOST_PRINTED = 10_000
_CHUNK = 65_536
_PAUSE = 0.05

_fork: List[Callable[[], int]] = []


class Printed(io.BufferedIOBase):
    """Keeps the beginning of the printed text."""

    name = "<stdout>"

    def __init__(self) -> None:
        self._start = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        whole = memoryview(data).tobytes()
        self._start += whole[: max(0, 4 * _MOST_PRINTED - len(self._start))]
        return len(whole)

    def text(self) -> str:
        return self._start.decode("utf-8", "replace")[:_MOST_PRINTED]


def begin() -> None:
    """Record the state before the first job."""
    remember()
    _fork[:] = [os.fork]
    try:
        import ctypes

        here = ctypes.PyDLL(None)
        here.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # `os.fork` handles threads in each child, which costs as much as everything else. There are no threads here.
        _fork[0] = here.fork
    except Exception:  # Then processes that a job leaves running are ended by the rollback.
        pass


def fork() -> int:
    """Fork; see `begin`."""
    return _fork[0]()


def alone(job: Dict[str, Any]) -> str:
    """Run a job in this process, if the state is clean."""
    return answer_now(job) if tidy() else "untidy"


def run(
    jobs: List[Dict[str, Any]], each: float, whole: float, largest: int, room: int, stateless: bool
) -> List[Optional[List[Any]]]:
    """Run jobs until time or room is used up, or a job takes too long or leaves something behind.

    Each job runs in a fork of its own; if they are `stateless`, all jobs of a function in one. `each` and `whole` are
    the seconds for a job and for starting jobs, `largest` and `room` the bytes for an answer and for all of them.

    Returns:
        For each job, in order, its answer, the printed text, its duration in seconds, its memory, and the seconds of
        the processor; `None` without an answer. The list may be shorter than the jobs.
    """
    if _thread._count() > 1 or not tidy():
        return []
    groups = itertools.groupby(jobs, lambda job: job.get("function") if stateless else id(job))

    def do(several: List[Dict[str, Any]], end: float, room: int) -> List[Any]:
        return _forked(several, each, end, largest, room)

    return in_turn([list(several) for _, several in groups], do, whole, largest, room)


def in_turn(items: List[Any], do: Callable[..., List[Any]], whole: float, largest: int, room: int) -> List[Any]:
    """Run jobs one after the other, like `run`.

    For each item, `do` gets the time when no further job is started and the room that is left, and returns answers.
    """
    answers: List[Any] = []
    end = time.monotonic() + whole
    for item in items:
        found = do(item, end, room)
        answers += found
        room -= sum(2 * len(answer[0]) + 100 for answer in found if answer is not None)
        if not found or found[-1] is None or room < 2 * largest or time.monotonic() > end or not clear():
            break
    return answers


def _forked(jobs: List[Dict[str, Any]], each: float, end: float, largest: int, room: int) -> List[Optional[List[Any]]]:
    """The answers of the jobs that ran; the last one is `None` if a job took too long or ended the process."""
    reader, writer = os.pipe()
    start = time.monotonic()
    pid = fork()
    if not pid:
        try:
            with open(writer, "wb") as file:
                _tell_all(jobs, file, end, largest, room)
        finally:
            os._exit(0)
    os.close(writer)
    answers: List[Optional[List[Any]]] = []
    took, worked, peak = 0.0, 0.0, 0
    try:
        with open(reader, "rb", buffering=0) as file:
            for line in lines(file, each):
                if line != b"end":
                    answers.append(json.loads(line))
                if line == b"end" or len(answers) == len(jobs):
                    break
            else:
                answers.append(None)
        took = time.monotonic() - start
    finally:
        peak, worked = end_child(pid)
    if len(jobs) == 1 and answers and answers[0]:
        answers[0][2:] = took, peak, worked  # The code may have changed what its own process measures.
    return answers


def _tell_all(jobs: List[Dict[str, Any]], file: Any, end: float, largest: int, room: int) -> None:
    # As `os.fork` does: each call gets other random numbers.
    for name in ("random", "numpy.random"):
        module: Any = sys.modules.get(name)
        if module is not None:
            module.seed()
    for job in jobs:
        re.purge()  # A pattern in the cache would be returned for one that is equal but not the same.
        printed = Printed()
        sys.stdout = io.TextIOWrapper(printed, "utf-8", write_through=True)
        start, start_of_work = time.monotonic(), time.process_time()
        text_of_answer = answer_now(job)
        took, worked = time.monotonic() - start, time.process_time() - start_of_work
        room -= 2 * len(text_of_answer) + 100
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = None if len(text_of_answer) > largest else [text_of_answer, printed.text(), took, peak, worked]
        file.write(json.dumps(found).encode() + b"\n")
        file.flush()
        if room < 2 * largest or time.monotonic() > end:
            break
    file.write(b"end\n")


def lines(file: Any, seconds: float, meanwhile: Optional[Callable[[], object]] = None) -> Iterator[bytes]:
    """The lines of a pipe until it ends or the next line is too late; `meanwhile` is called often while it waits."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    rest = b""
    late = time.monotonic() + seconds
    while True:
        left = late - time.monotonic()
        if not poll.poll(max(0.0, min(left, _PAUSE) if meanwhile else left) * 1000):
            if left <= _PAUSE or not meanwhile:
                return
            meanwhile()
            continue
        part = file.read(_CHUNK)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            late = time.monotonic() + seconds
        yield from lines


def end_left(first: int = 0, last: int = 0) -> None:
    """End processes that code has left behind, but not the `first` and the `last` ones: see `begin`."""
    found = _children()
    while found[first : len(found) - last]:
        for pid in found[first : len(found) - last]:
            end_child(pid)
        found = _children()  # Now those of the ended ones are there.


def _children() -> List[int]:
    """The children of this process, the oldest ones first; none where it cannot read that."""
    try:
        with open("/proc/self/task/%d/children" % os.getpid()) as file:
            return [*map(int, file.read().split())]
    except OSError:
        return []


def end_child(pid: int, kill: Callable[[int, int], None] = os.kill) -> Tuple[int, float]:
    """End a child; return its peak memory, and the seconds of the processor that it and its children took."""
    try:
        kill(pid, signal.SIGKILL)
        used = os.wait4(pid, 0)[2]
        return used.ru_maxrss * 1024, used.ru_utime + used.ru_stime
    except OSError:
        return 0, 0.0


warm()
