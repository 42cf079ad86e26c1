"""Measure forks of a session beside one checkpoint and beside bare forks of a process, interleaved, as ratios.

python benchmarks/forks.py [--wall NAME] [--megabytes 300] [--many 100] [rounds]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from coderoom.sandbox import Limits, Sandbox, Session

FILL = """
import numpy, pandas
frame = pandas.DataFrame(numpy.random.rand({megabytes} * 1024 * 1024 // 8 // 20, 20))
"""
PRIVATE = """
with open("/proc/self/smaps_rollup") as file:
    private = sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
private
"""
# What forks on request and answers with the seconds: without a wall, a supervisor, limits, files or a channel.
BARE = """
import os, sys, time
{fill}
for line in sys.stdin:
    begin = time.perf_counter()
    pids = []
    for _ in range(int(line)):
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(writer, b"x")
            time.sleep(1000)
        os.read(reader, 1)
        pids.append(pid)
    taken = time.perf_counter() - begin
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    print(taken, flush=True)  # Now nothing of it takes time of what is measured next.
"""


class Bare:
    """A process of numpy and pandas that forks itself."""

    def __init__(self, fill: str) -> None:
        command = [sys.executable, "-c", BARE.format(fill=fill)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def forks(self, count: int) -> float:
        """How many seconds some forks take."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()  # It has killed its forks by then.


async def timed_forks(session: Session, count: int) -> tuple[float, float, float, float, int]:
    """The seconds of forks, of the first use of one, of the first use of the others, and of their end.

    And the most private memory of one in KiB.
    """
    times = [time.perf_counter()]
    forks = await session.fork(count)
    times.append(time.perf_counter())
    await forks[0].start()
    times.append(time.perf_counter())
    await asyncio.gather(*(each.start() for each in forks[1:]))
    times.append(time.perf_counter())
    private = [(await each.run(PRIVATE)).value for each in forks]
    begin = time.perf_counter()
    for each in forks:
        await each.close()
    made, first, others = (after - before for before, after in itertools.pairwise(times))
    return made, first, others, time.perf_counter() - begin, max(private)


async def timed_checkpoint(session: Session) -> float:
    """The seconds that a checkpoint takes."""
    begin = time.perf_counter()
    mark = await session.checkpoint()
    taken = time.perf_counter() - begin
    await session.release(mark)
    return taken


def show(what: str, times: Sequence[float], of: Sequence[float], name: str) -> None:
    """Print a line: the median, and the ratios to something else."""
    ratios = sorted(mine / its for mine, its in zip(times, of, strict=True))
    print(
        f"{what:28} {statistics.median(times) * 1000:9.1f} ms   {statistics.median(ratios):6.1f} times {name} "
        f"({ratios[0]:.1f} to {ratios[-1]:.1f})"
    )


async def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=7)
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--many", type=int, default=100)
    given = parser.parse_args()
    limits = Limits(memory_bytes=(1024 + 4 * given.megabytes) * 1024 * 1024)
    fill, small = FILL.format(megabytes=given.megabytes), "import numpy, pandas"
    for name, code in ((f"a frame of {given.megabytes} MB", fill), ("numpy and pandas alone", small)):
        count = 8 if code is fill else given.many
        bare = Bare(code)
        sandbox = Sandbox(given.wall, preload=["numpy", "pandas"], limits=limits)
        async with sandbox, sandbox.session() as session:
            await session.run(code)
            bare.forks(1)
            await timed_forks(session, 1)
            rounds = []
            for _ in range(given.rounds):
                rounds.append((await timed_checkpoint(session), bare.forks(count), *await timed_forks(session, count)))
        bare.close()
        print(f"\n{name}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        marks, plain, forks, firsts, others, ends, private = zip(*rounds, strict=True)
        show("checkpoint", marks, marks, "a checkpoint")
        show(f"fork({count})", forks, marks, "a checkpoint")
        show("the first use of one", firsts, marks, "a checkpoint")
        used = [(fork + first + other) / count for fork, first, other in zip(forks, firsts, others, strict=True)]
        show("each fork, used", used, [each / count for each in plain], "a bare fork")
        show("the end of all of them", ends, marks, "a checkpoint")
        print(f"private memory of a fork, after one cell: at most {max(private) / 1024:.1f} MiB")


if __name__ == "__main__":
    asyncio.run(main())
