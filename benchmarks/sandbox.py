"""Measure the sandbox beside what one would use instead, in one run, as ratios.

python benchmarks/sandbox.py [--wall NAME] [rounds]

It takes `pip install -e '.[bench]'`: pandas for the heavy imports, and Jupyter's kernel for the cells.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import importlib.util
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from time import perf_counter

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.sandbox import Sandbox

PRINT = "print(sum(range(10)))"
HEAVY = "import numpy, pandas\nprint(pandas.Series(numpy.arange(10)).sum())"

ONE_SHOTS: tuple[tuple[str, str, list[str]], ...] = (
    ("one-shot print", PRINT, []),
    ("one-shot numpy and pandas", HEAVY, ["numpy", "pandas"]),
)

# The worker's own modules, so that both forks are of the same interpreter with the same in it.
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


async def seconds(work: Callable[[], Awaitable[object]], count: int) -> float:
    """The time of one piece of work, when one comes after the other."""
    await work()
    begin = perf_counter()
    for _ in range(count):
        await work()
    return (perf_counter() - begin) / count


def line(name: str, times: list[float], others: list[float], whose: str) -> None:
    """Print a line of the table."""
    ours, theirs = statistics.median(times), statistics.median(others)
    print(f"{name:44} {ours * 1e3:9.2f} ms {theirs * 1e3:9.2f} ms   {theirs / ours:7.1f} times as fast as {whose}")


def executed(executor: CodeExecutor, code: str) -> Callable[[], Awaitable[object]]:
    """Running code by one of AutoGen's executors."""
    block = CodeBlock(code=code, language="python")

    async def work() -> None:
        result = await executor.execute_code_blocks([block], CancellationToken())
        assert result.exit_code == 0, result.output

    return work


def ran(run: Callable[[str], Awaitable[object]], code: str) -> Callable[[], Awaitable[object]]:
    """Running code by the sandbox."""

    async def work() -> None:
        result = await run(code)
        assert getattr(result, "success", False), result

    return work


async def one_shots(wall: str, rounds: int) -> None:
    """A run in a fresh state, against a process of AutoGen's local executor."""
    with tempfile.TemporaryDirectory() as folder:
        local = LocalCommandLineCodeExecutor(work_dir=folder)
        await local.start()
        for name, code, preload in ONE_SHOTS:
            if preload and importlib.util.find_spec("pandas") is None:
                print(f"{name:44} pandas is not installed")
                continue
            ours, theirs = [], []
            async with Sandbox(wall, preload=preload) as sandbox:
                for _ in range(rounds):
                    ours.append(await seconds(ran(sandbox.run, code), 30))
                    theirs.append(await seconds(executed(local, code), 3 if preload else 10))
            line(name, ours, theirs, "LocalCommandLineCodeExecutor")


async def cells(wall: str, rounds: int) -> None:
    """A cell in a state that lasts, against a Jupyter kernel."""
    ours: list[float] = []
    theirs: list[float] = []
    try:
        from autogen_ext.code_executors.jupyter import JupyterCodeExecutor
    except ImportError:
        print(f"{'cell in a session':44} autogen-ext[jupyter-executor] is not installed")
        return
    async with Sandbox(wall) as sandbox, sandbox.session() as session, JupyterCodeExecutor() as jupyter:
        for _ in range(rounds):
            ours.append(await seconds(ran(session.run, PRINT), 200))
            theirs.append(await seconds(executed(jupyter, PRINT), 30))
    line("cell in a session", ours, theirs, "JupyterCodeExecutor")


async def checkpoints(wall: str, rounds: int) -> None:
    """A checkpoint and a rollback, beside a bare fork."""
    marks: list[float] = []
    backs: list[float] = []
    async with Sandbox(wall) as sandbox, sandbox.session() as session:
        await session.run("x = list(range(1000))")
        for _ in range(rounds):
            mark = await session.checkpoint()
            marks.append(await seconds(session.checkpoint, 10))
            backs.append(await seconds(functools.partial(session.rollback, mark), 10))
            await session.restart()
    print(f"{'checkpoint':44} {statistics.median(marks) * 1e3:9.2f} ms")
    print(f"{'rollback':44} {statistics.median(backs) * 1e3:9.2f} ms")


async def throughput(wall: str, rounds: int) -> None:
    """Runs that do not wait for each other, against a loop of fork, exec and wait."""
    ours: list[float] = []
    theirs: list[float] = []
    async with Sandbox(wall) as sandbox:
        at_once = asyncio.Semaphore(4)

        async def one() -> None:
            async with at_once:
                await ran(sandbox.run, PRINT)()

        for _ in range(rounds):
            await one()
            begin = perf_counter()
            await asyncio.gather(*(one() for _ in range(300)))
            ours.append((perf_counter() - begin) / 300)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", BARE, PRINT, "300", stderr=asyncio.subprocess.PIPE
            )
            _, said = await process.communicate()
            theirs.append(float(said))
    line("throughput of one-shot prints", ours, theirs, "fork, exec and wait")


async def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("--wall", default="auto")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    gc.disable()
    async with Sandbox(arguments.wall) as sandbox:
        python = sys.version.split()[0]
        print(f"wall {sandbox.wall}, {os.cpu_count()} cores, Python {python}; medians of {arguments.rounds}")
    for measure in (one_shots, cells, checkpoints, throughput):
        await measure(arguments.wall, arguments.rounds)


if __name__ == "__main__":
    asyncio.run(main())
