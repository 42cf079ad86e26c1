"""Runs jobs in order in processes of their own, in which the program is a module, as pytest would."""

from __future__ import annotations

import contextlib
import io
import json
import marshal
import os
import random
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .batches import end_left, lines, tidy

_START = """
import marshal, sys
modules, path, vary, arguments = marshal.load(sys.stdin.buffer)
sys.path[:] = path
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    module.__package__, module.__path__ = name.partition(".")[0], []
    exec(code, module.__dict__)
for name in ("exit", "quit"):
    __builtins__.__dict__.setdefault(name, sys.exit)  # Missing because of `-S`.
if vary:
    module.scatter()
work = module.serve(*arguments)
"""
_SCRIPT = "main.py"
# Makes the calls itself, as a user's script does, so that nothing of CodeRoom is around them.
_CALLS = """
sys.modules.setdefault("pytest", type(sys)("pytest"))
del module, modules, vary, arguments
try:
    function, positional, named = next(work)
    while True:
        try:
            done = function(*positional, **named), None
        except BaseException as error:
            done = None, error
        function, positional, named = work.send(done)
        done = None
except StopIteration:
    pass
"""
# The arguments of the processes that run at a time. They differ, since code could take what it sees for the user's
# process; the last one is a script without flags.
_WAYS = (("-I", "-S", "-c", f"{_START}module.drive(work)"), (_SCRIPT,))
_ZONES = ("ELS-5:45", "CET-1CEST,M3.5.0,M10.5.0/3")
"""The time zones of scripts, the second one with summer time; that of other processes is UTC."""
_USER = "ada"
_ARGUMENTS = ("data.txt", "-v")
"""The arguments of every second script."""
_LETTERS = 6
_LINGER = 0.3
_PAUSE = 0.2  # The most seconds between two processes of code that may read a clock.
_MOST_ROUNDS = 60
_FIRST_LEFT, _LAST_LEFT = 16, 8  # So many processes that code leaves behind may go on; many rounds leave many.
_modules: List[Tuple[str, Any]] = []
_random = random.SystemRandom()


def prepare(modules: List[str]) -> None:
    """Keep the code of the modules that a process needs; `serving` is the last one."""
    _modules[:] = [(name, sys.modules[name].__dict__["__code__"]) for name in modules]


def run_in_order(
    program: str,
    jobs: List[Dict[str, Any]],
    count: int,
    seconds: float,
    longest: int,
    again: bool,
) -> List[List[Optional[str]]]:
    """Run jobs in order in `count` new processes, each of them with a time limit and with room for its answers.

    If there are several, the time, their numbers and the addresses of objects are varied too. With `again`, all jobs
    run again in each process, in two of them several times if they are fast.

    Returns:
        The different answers of each job; `None` is among them if a process ended or took too long. Among those of the
        last job may be `{"left": ...}`: what the program has left behind.
    """
    found: List[List[Optional[str]]] = [[] for _ in jobs]
    vary = count > 1
    while count > 0:
        tidy()
        with contextlib.ExitStack() as stack:
            for process in [
                stack.enter_context(_Process(program, jobs, longest, way, vary, count, again)) for way in _WAYS[:count]
            ]:
                for place, answer in process.answers(len(jobs), seconds, longest):
                    if answer not in found[place]:
                        found[place].append(answer)
        end_left()
        count -= len(_WAYS)
        if vary:
            time.sleep(_random.random() * _PAUSE)
    tidy()
    return found


def _skip_numbers() -> None:
    for _ in range(_random.randrange(4)):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)


def _with_files_in_another_order(job: Dict[str, Any]) -> Dict[str, Any]:
    """The job with the files of its setup written from the last one on: folders are listed in another order then."""
    steps = job.get("setup", [])
    files = [step for step in steps if "file" in step]
    others = steps[len(files) :]
    if steps != files + others or len({os.path.normpath(step["file"]) for step in files}) < len(files):
        return job
    return {**job, "setup": files[::-1] + others}


class _Process:
    def __init__(
        self,
        program: str,
        jobs: List[Dict[str, Any]],
        longest: int,
        way: Tuple[str, ...],
        vary: bool,
        left: int,
        again: bool,
    ) -> None:
        self._folder = tempfile.mkdtemp()
        every_second = left // len(_WAYS) % 2
        self._zone = _ZONES[every_second]
        by_name = 0 if _SCRIPT in way else 1 + every_second
        jobs = [*map(_with_files_in_another_order, jobs)] if _SCRIPT in way else jobs
        name = "".join(_random.choice(string.ascii_lowercase) for _ in range(_LETTERS))
        for path, text in ((name + ".py", program), *([(_SCRIPT, _START + _CALLS)] if _SCRIPT in way else [])):
            with open(os.path.join(self._folder, path), "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
        reader, writer = os.pipe()
        self._answers = io.FileIO(reader)
        self._vary = vary
        last = left <= len(_WAYS)
        linger, rounds = _LINGER if vary and last else 0, (_MOST_ROUNDS if last else 2) if again else 1
        arguments = (jobs, longest, writer, self._folder, name, linger, by_name, rounds)
        way = (*way, *_ARGUMENTS) if every_second and _SCRIPT in way else way
        if vary:
            _skip_numbers()
        self._pid = (self._start_elsewhere if vary else self._start)(way, writer, arguments)
        os.close(writer)

    def _start_elsewhere(self, way: Tuple[str, ...], writer: int, arguments: Any) -> int:
        """Start a process as the child of a new one, which only waits for it. Every second one leads no session."""
        pid = os.fork()
        if not pid:
            try:
                os.setsid()
                _skip_numbers()
                os.waitpid(self._start(way, writer, arguments, new_session=_SCRIPT not in way), 0)
            finally:
                os._exit(0)
        return pid

    def _start(self, way: Tuple[str, ...], writer: int, arguments: Any, new_session: bool = True) -> int:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        if _SCRIPT in way:
            environment.update(TZ=self._zone, USER=_USER)
        process = subprocess.Popen(
            [sys.executable, *way],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writer],
            start_new_session=new_session,
            cwd=self._folder,
        )
        try:
            with process.stdin as given:  # type: ignore[union-attr]
                marshal.dump((_modules, sys.path, self._vary, arguments), given)
        except OSError:  # It has ended.
            pass
        process.returncode = 0  # It is waited for below.
        return process.pid

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except OSError:
            pass
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except OSError:
            pass
        self._answers.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def answers(self, count: int, seconds: float, longest: int) -> Iterator[Tuple[int, Optional[str]]]:
        """The answers with the numbers of their jobs; `None` for a missing one, or if the process ends wrongly."""
        done = 0
        several = set()  # The jobs of which another answer is known; more of them need no room.
        for line in lines(self._answers, seconds, lambda: end_left(_FIRST_LEFT, _LAST_LEFT)):
            text = line.decode("utf-8", "replace")
            if text == "end" and done >= count:
                return
            name, _, answer = text.partition(" ") if done >= count else (str(done), "", text)
            if name == "left":
                yield count - 1, json.dumps({"left": answer})
                continue
            longest -= len(line)
            if longest < 0 and name in several:
                continue
            if longest < 0 or not (name.isdigit() and int(name) < count):
                break
            if done >= count:
                several.add(name)
            done += 1
            yield int(name), answer
        for number in range(min(done, count - 1), count):
            yield number, None
