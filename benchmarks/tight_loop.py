"""Measure what runs cost in a tight loop, where no spare fork hides it, and what idle sessions cost.

python benchmarks/tight_loop.py [runs] [sessions] [--wall NAME] [--rounds N] [--count N] [--sessions N]

`runs`: one-shot runs, several at a time and without a pause, beside a bare fork of a process with the same imports
(`fork`, `_exit`, `waitpid`) and AutoGen's local executor, in turn. The processor time of a run is that of all
processes that take part, the host's included; so it is what decides how many runs a core can do. A line shows the
median of the rounds with the least and the most, and the ratio of the medians.

`sessions`: sessions that are open and have run one cell. Private memory is `Private_Clean` and `Private_Dirty` of
`/proc/PID/smaps_rollup`, summed over all processes of the sandbox; `Pss` also counts what the processes of one session
share with each other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.sandbox import Sandbox

PRINT = "print(sum(range(10)))"
HEAVY = "import numpy, pandas\nprint(pandas.Series(numpy.arange(10)).sum())"
KINDS: dict[str, tuple[str, list[str]]] = {"print": (PRINT, []), "numpy and pandas": (HEAVY, ["numpy", "pandas"])}
AT_ONCE = 4
WARM_UP = 20

# Forks as often as it is told to, and answers with the seconds and the processor time.
BARE = """
import ast, ctypes, gc, json, linecache, os, resource, select, signal, socket, sys, threading, time, traceback, types
for name in sys.argv[1:]: __import__(name)
gc.collect(); gc.freeze()
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
    seconds = time.perf_counter() - begin
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(seconds, sum(each.ru_utime + each.ru_stime for each in used), flush=True)
"""


class Cost(NamedTuple):
    """What one run took, in milliseconds: of the clock, and of the processors."""

    clock: float
    processor: float


Work = Callable[[], Awaitable[None]]
Loop = Callable[[int], Awaitable[Cost]]


def descendants() -> list[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    newest = {os.getpid()}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest}
        found += newest
    return found


_ticks: dict[int, int] = {}  # By process, as seen last; those that have ended stay.


def processor_seconds() -> float:
    """The processor time of this process and all below it, with those that were waited for."""
    for pid in [os.getpid(), *descendants()]:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            _ticks[pid] = sum(map(int, fields[11:15]))
    return sum(_ticks.values()) / os.sysconf("SC_CLK_TCK")


async def repeated(work: Work, count: int) -> Cost:
    """Do the same work some times, several at once."""

    async def some(many: int) -> None:
        for _ in range(many):
            await work()

    before, begin = processor_seconds(), perf_counter()
    await asyncio.gather(*(some(count // AT_ONCE) for _ in range(AT_ONCE)))
    seconds = perf_counter() - begin
    done = count // AT_ONCE * AT_ONCE
    return Cost(seconds * 1e3 / done, (processor_seconds() - before) * 1e3 / done)


class BareForks:
    """A process with some imports, which forks."""

    def __init__(self, imports: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BARE, *imports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._used = 0.0

    async def repeat(self, count: int) -> Cost:
        """Fork some times."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        seconds, used = map(float, self._process.stdout.readline().split())
        before, self._used = self._used, used
        return Cost(seconds * 1e3 / count, (used - before) * 1e3 / count)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def shown(values: Sequence[float]) -> str:
    """The median with the least and the most."""
    return f"{statistics.median(values):7.2f} ({min(values):.2f} to {max(values):.2f})"


def ratios(theirs: Sequence[Cost], ours: Sequence[Cost]) -> str:
    """How much more one costs than the other, by the clock and by the processor, each the median of the rounds."""
    parts = []
    for field in Cost._fields:
        each = [getattr(a, field) / getattr(b, field) for a, b in zip(theirs, ours, strict=True)]
        parts.append(f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f}) by the {field}")
    return ", ".join(parts)


def executed(local: LocalCommandLineCodeExecutor, code: str) -> Work:
    """Run code by AutoGen's local executor."""
    numbers = itertools.count()

    async def work() -> None:
        # Each its own, since the executor names its file by the code.
        block = CodeBlock(code=f"{code}  # {next(numbers)}", language="python")
        result = await local.execute_code_blocks([block], CancellationToken())
        assert result.exit_code == 0, result.output

    return work


def ran(sandbox: Sandbox, code: str) -> Work:
    """Run code in the sandbox."""

    async def work() -> None:
        result = await sandbox.run(code)
        assert result.success, result

    return work


async def compare_runs(arguments: argparse.Namespace) -> None:
    """Compare a one-shot run with a bare fork and with AutoGen's local executor."""
    for kind, (code, preload) in KINDS.items():
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            bare = BareForks(preload)
            stack.callback(bare.close)
            local = LocalCommandLineCodeExecutor(work_dir=folder)
            await local.start()
            async with Sandbox(arguments.wall, preload=preload) as sandbox:
                fewer = max(AT_ONCE, arguments.count // 20)
                loops: dict[str, tuple[Loop, int]] = {
                    "a bare fork": (bare.repeat, arguments.count),
                    "a one-shot run": (functools.partial(repeated, ran(sandbox, code)), arguments.count),
                    "AutoGen's local executor": (functools.partial(repeated, executed(local, code)), fewer),
                }
                for loop, _ in loops.values():
                    await loop(WARM_UP)
                costs: dict[str, list[Cost]] = {name: [] for name in loops}
                for number in range(arguments.rounds):
                    for name in list(loops) if number % 2 else reversed(loops):
                        loop, count = loops[name]
                        costs[name].append(await loop(count))
        print(f"\n{kind}, {AT_ONCE} at a time{'':20} ms of the clock{'':12} ms of processors{'':8} a second and core")
        for name, each in costs.items():
            used = [cost.processor for cost in each]
            rate = 1e3 / statistics.median(used)
            print(f"{name:28} {shown([cost.clock for cost in each]):30} {shown(used):30} {rate:8.0f}")
        forks, ours, theirs = costs.values()
        print(f"a run costs so many bare forks: {ratios(ours, forks)}")
        print(f"AutoGen's executor costs so many runs: {ratios(theirs, ours)}", flush=True)


def memory() -> dict[str, int]:
    """What all processes below this one have, in bytes."""
    totals = dict.fromkeys(("Private_Clean", "Private_Dirty", "Pss", "VmPTE"), 0)
    for pid in descendants():
        for name in ("smaps_rollup", "status"):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                    field, _, value = line.partition(":")
                    if field in totals:
                        totals[field] += int(value.split()[0]) * 1024
    return totals


async def measure_sessions(arguments: argparse.Namespace) -> None:
    """Measure the private memory of idle sessions, and the time to open them."""
    count = arguments.sessions
    for kind, (code, preload) in KINDS.items():
        rows: list[tuple[float, ...]] = []
        for _ in range(max(3, arguments.rounds // 3)):
            async with Sandbox(arguments.wall, preload=preload) as sandbox, contextlib.AsyncExitStack() as stack:
                first = await stack.enter_async_context(sandbox.session())
                assert (await first.run(code)).success
                before, processes = memory(), len(descendants())
                cpu, begin = processor_seconds(), perf_counter()

                async def one(sandbox: Sandbox = sandbox, stack: Any = stack) -> None:
                    session = await stack.enter_async_context(sandbox.session())
                    assert (await session.run("x = 1")).success

                await asyncio.gather(*(one() for _ in range(count)))
                seconds, used = perf_counter() - begin, processor_seconds() - cpu
                await asyncio.sleep(1)
                after = memory()
                more = {name: (after[name] - before[name]) / count / 1024**2 for name in after}
                private = more["Private_Clean"] + more["Private_Dirty"]
                each = (len(descendants()) - processes) / count
                rows.append((seconds, used * 1e3 / count, private, more["Pss"], more["VmPTE"], each))
        names = "s to open all", "ms of processors each", "MiB private", "MiB Pss", "MiB page tables", "processes"
        print(f"\n{count} idle sessions, {kind}")
        for name, values in zip(names, zip(*rows, strict=True), strict=True):
            print(f"{name:28} {shown(values)}", flush=True)


MEASURES = {"runs": compare_runs, "sessions": measure_sessions}


async def main() -> None:
    """Measure everything, or what is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("measures", nargs="*", help=f"what to measure, by default all of: {', '.join(MEASURES)}")
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--count", type=int, default=400, help="runs in a round")
    parser.add_argument("--sessions", type=int, default=100)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with Sandbox(arguments.wall) as sandbox:
        print(
            f"wall {sandbox.wall}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {arguments.rounds} rounds"
        )
    for name in arguments.measures or MEASURES:
        await MEASURES[name](arguments)


if __name__ == "__main__":
    asyncio.run(main())
