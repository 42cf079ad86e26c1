"""Measure the sandbox beside what a user would pick instead, in one run, as ratios.

python benchmarks/sandbox.py [--wall NAME] [--samples N]

The candidates of a line take turns, so that a slow moment of the machine affects both. They change after each sample,
which finds the processor's caches cold as after the reply of a model, or after a row of samples where the line says so.
A line shows the median of each with its first and last decile, and the ratio of the medians.

`pip install -e '.[bench]'` installs what it compares with: pandas for the heavy imports, and Jupyter's kernel for the
cells.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import math
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.sandbox import ExecutionResult, Limits, Sandbox

PRINT = "print(sum(range(10)))"
HEAVY = "import numpy, pandas\nprint(pandas.Series(numpy.arange(10)).sum())"
CALLS = "for number in range(100): assert add(number, 1) == number + 1"
WARM_UP = 10

Work = Callable[[], Awaitable[object]]

# A loop of fork, exec and wait in an interpreter with the modules that the worker has.
BARE = """
import ast, asyncio, ctypes, json, linecache, os, resource, select, socket, sys, threading, time, traceback, gc
gc.collect(); gc.freeze()
code, count, out = sys.argv[1], int(sys.argv[2]), os.open(os.devnull, os.O_WRONLY)
def once():
    pid = os.fork()
    if not pid:
        os.dup2(out, 1)
        exec(code, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
for _ in range(20): once()
begin = time.perf_counter()
for _ in range(count): once()
print((time.perf_counter() - begin) / count, file=sys.stderr)
"""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def timed(work: Work) -> float:
    """How many seconds one piece of work takes."""
    begin = perf_counter()
    await work()
    return perf_counter() - begin


async def compare(samples: int, *candidates: Work, row: int = 1) -> list[list[float]]:
    """Let the candidates take turns.

    Args:
        samples: How many samples to take of each.
        candidates: What to measure.
        row: How many samples of one candidate follow each other.

    Returns:
        The times of each in seconds: `samples` of them, in whole rows.
    """
    for work in candidates:
        for _ in range(WARM_UP):
            await work()
    times: list[list[float]] = [[] for _ in candidates]
    for number in range(math.ceil(samples / row)):
        order = range(len(candidates)) if number % 2 else reversed(range(len(candidates)))
        for index in order:
            times[index] += [await timed(candidates[index]) for _ in range(row)]
    return times


def spread(times: Sequence[float]) -> str:
    """The median with the first and the last decile, in milliseconds."""
    deciles = statistics.quantiles(times, n=10)
    return f"{statistics.median(times) * 1e3:8.2f} ms ({deciles[0] * 1e3:.2f} to {deciles[-1] * 1e3:.2f})"


def line(name: str, ours: Sequence[float], theirs: Sequence[float] = (), whose: str = "") -> None:
    """Print a line of the table."""
    text = f"{name:34} {spread(ours):32}"
    if theirs:
        ratio = statistics.median(theirs) / statistics.median(ours)
        text += f" {ratio:6.1f} times as fast as {whose}: {spread(theirs).strip()}"
    print(text.rstrip(), flush=True)


def executed(executor: CodeExecutor, code: str) -> Work:
    """Run code by one of AutoGen's executors."""
    block = CodeBlock(code=code, language="python")

    async def work() -> None:
        result = await executor.execute_code_blocks([block], CancellationToken())
        assert result.exit_code == 0, result.output

    return work


def ran(run: Callable[[str], Awaitable[ExecutionResult]], code: str) -> Work:
    """Run code in the sandbox."""

    async def work() -> None:
        result = await run(code)
        assert result.success, result

    return work


async def one_shots(wall: str, samples: int) -> None:
    """Compare a run in a fresh state with a process of AutoGen's local executor."""
    with tempfile.TemporaryDirectory() as folder:
        local = LocalCommandLineCodeExecutor(work_dir=folder)
        await local.start()
        for name, code, preload in (("print", PRINT, []), ("numpy and pandas", HEAVY, ["numpy", "pandas"])):
            async with Sandbox(wall, preload=preload) as sandbox:
                ours, theirs = await compare(samples, ran(sandbox.run, code), executed(local, code))
            line(f"one-shot, {name}", ours, theirs, "AutoGen's local executor")


async def cells(wall: str, samples: int) -> None:
    """Compare a cell in a lasting state with a Jupyter kernel."""
    async with Sandbox(wall) as sandbox, sandbox.session() as session, JupyterCodeExecutor() as jupyter:
        for row, name in ((1, "cell in a session"), (20, "cell, twenty in a row")):
            ours, theirs = await compare(samples, ran(session.run, PRINT), executed(jupyter, PRINT), row=row)
            line(name, ours, theirs, "AutoGen's Jupyter executor")


async def calls(wall: str, samples: int) -> None:
    """Measure a call from code in a session to a function of the host."""
    limits = Limits(calls=1_000_000)
    async with Sandbox(wall, limits=limits) as sandbox, sandbox.session(functions=[add]) as session:
        many, none = await compare(samples, ran(session.run, CALLS), ran(session.run, "pass"))
    line("call of a host function", [(each - statistics.median(none)) / 100 for each in many])


async def starts(wall: str, samples: int) -> None:
    """Measure a sandbox from its start to its first result."""

    async def work() -> None:
        # Closing it is not part of what one waits for.
        sandbox = Sandbox(wall)
        begin = perf_counter()
        assert (await sandbox.run(PRINT)).success
        times.append(perf_counter() - begin)
        await sandbox.close()

    times: list[float] = []
    for _ in range(max(3, samples // 4)):
        await work()
    line("start to first result", times)


async def openings(wall: str, samples: int) -> None:
    """Measure sessions that are opened at once, few beside many."""

    async def opened(count: int) -> None:
        async with contextlib.AsyncExitStack() as stack, Sandbox(wall) as sandbox:

            async def one() -> None:
                session = await stack.enter_async_context(sandbox.session())
                assert (await session.run("pass")).success

            begin = perf_counter()
            await asyncio.gather(*(one() for _ in range(count)))
            times[count].append((perf_counter() - begin) / count)

    times: dict[int, list[float]] = {10: [], 200: []}
    for _ in range(max(3, samples // 20)):
        for count in times:
            await opened(count)
    line("session, 10 opened at once", times[10])
    line("session, 200 opened at once", times[200], times[10], "one of 10")


async def checkpoints(wall: str, samples: int) -> None:
    """Measure a checkpoint and a rollback."""
    async with Sandbox(wall) as sandbox, sandbox.session() as session:
        await session.run("x = list(range(1000))")
        mark = await session.checkpoint()
        marks: list[float] = []
        backs: list[float] = []
        for _ in range(samples):
            marks.append(await timed(session.checkpoint))
            backs.append(await timed(functools.partial(session.rollback, mark)))
    line("checkpoint", marks)
    line("rollback", backs)


async def throughput(wall: str, samples: int) -> None:
    """Compare runs that do not wait for each other with a loop of fork, exec and wait."""
    ours: list[float] = []
    theirs: list[float] = []
    async with Sandbox(wall) as sandbox:
        at_once = asyncio.Semaphore(4)

        async def one() -> None:
            async with at_once:
                await ran(sandbox.run, PRINT)()

        for _ in range(max(5, samples // 20)):
            ours.append(await timed(lambda: asyncio.gather(*(one() for _ in range(200)))) / 200)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", BARE, PRINT, "200", stderr=asyncio.subprocess.PIPE
            )
            theirs.append(float((await process.communicate())[1]))
    line("one-shot, four at a time", ours, theirs, "fork, exec and wait")


MEASURES = {each.__name__: each for each in (one_shots, cells, calls, starts, openings, checkpoints, throughput)}


async def main() -> None:
    """Measure everything, or what is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("measures", nargs="*", help=f"what to measure, by default all of: {', '.join(MEASURES)}")
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--samples", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    gc.disable()
    async with Sandbox(arguments.wall) as sandbox:
        print(
            f"wall {sandbox.wall}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {arguments.samples} samples"
        )
    for name in arguments.measures or MEASURES:
        await MEASURES[name](arguments.wall, arguments.samples)


if __name__ == "__main__":
    asyncio.run(main())
