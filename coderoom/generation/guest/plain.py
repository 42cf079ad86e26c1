"""Runs jobs in order in new Python processes, in which the program is a module, as pytest would."""

from __future__ import annotations

import io
import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Tuple

from .batches import lines, tidy

__all__ = ["prepare", "run_in_order"]

_START = """
import marshal, os, sys
modules, path, jobs, longest, writer, folder = marshal.load(sys.stdin.buffer)
sys.path[:] = [folder, *path]
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    module.__package__, module.__path__ = name.partition(".")[0], []
    exec(code, module.__dict__)
module.budget.update(text=longest)
sys.modules["__main__"] = __import__("program")
for number in range(2 * len(jobs)):
    apart = number < len(jobs)
    if apart and os.fork():
        os.wait()
        continue
    os.mkdir(str(number))
    os.chdir(str(number))
    os.environ["TMPDIR"] = os.getcwd()
    found = memoryview(module.answer_now(jobs[number % len(jobs)]).encode() + b"\\n")
    while found:
        found = found[os.write(writer, found):]
    os.chdir("..")
    if apart:
        os._exit(0)
"""
_modules: List[Tuple[str, Any]] = []


def prepare(modules: List[Tuple[str, str]]) -> None:
    """Compile the modules that a process needs to make calls; `calls` is the last one."""
    _modules[:] = [(name, compile(source, "<harness>", "exec")) for name, source in modules]


def run_in_order(program: str, jobs: List[Dict[str, Any]], count: int, seconds: float, longest: int) -> List[List[str]]:
    """Run jobs in one process, several times: first each in a fork, then one after the other in the process itself.

    Args:
        program: The source of the program's module.
        jobs: The jobs.
        count: The number of processes.
        seconds: The time limit of each job.
        longest: The maximum length of the answers of a process together in characters.

    Returns:
        The different lists of answers, two for each job. A list is shorter if a process ended, or a job took too long.
    """
    found: List[List[str]] = []
    for _ in range(count):
        tidy()
        with _Process(program, jobs, longest) as run:
            answers = run.answers(2 * len(jobs), seconds, longest)
        if answers not in found:
            found.append(answers)
    return found


class _Process:
    def __init__(self, program: str, jobs: List[Dict[str, Any]], longest: int) -> None:
        self._folder = tempfile.mkdtemp()
        reader, writer = os.pipe()
        self._answers = io.FileIO(reader)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writer],
            start_new_session=True,
            cwd=self._folder,
            env={**os.environ, "TMPDIR": self._folder},
        )
        os.close(writer)
        with open(os.path.join(self._folder, "program.py"), "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(program)
        try:
            with self._process.stdin as given:  # type: ignore[union-attr]
                marshal.dump((_modules, sys.path, jobs, longest, writer, self._folder), given)
        except OSError:  # It has ended.
            pass

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass
        self._process.wait()
        self._answers.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def answers(self, count: int, seconds: float, longest: int) -> List[str]:
        """Read up to `count` answers."""
        found: List[str] = []
        for line in lines(self._answers, seconds):
            longest -= len(line)
            if longest < 0:
                break
            found.append(line.decode("utf-8", "replace"))
            if len(found) == count:
                break
        return found
