"""Judge programs by what they print, beside a loop that forks, runs them and waits, as ratios.

python benchmarks/judge_programs.py [--wall NAME] [--programs N] [--rounds N]

Each program reads two numbers from standard input and prints their sum. Three ways take turns, 100 programs each:

- judge: `Judge` with `Programs`, each in a fresh room behind the wall, with its output compared;
- exec: a process forks, and executes the interpreter, which imports what the worker has imported;
- fork: a process that has imported it forks, and the fork executes the code of the program.

Neither of the last two isolates, limits or compares anything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from time import perf_counter

from coderoom.judge import Judge, Programs, ProgramTest
from coderoom.judge.programs import sandbox_for_programs

PROGRAM = "a, b = map(int, input().split())\nprint(a + b)\n"
PART = 100
# One process at a time for each of two workers, as the judge has.
BARE = """
import sys
IMPORTS
import gc, os, time
gc.collect(); gc.freeze()
how, program, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
def begin(number):
    given, there = os.pipe()
    os.write(there, b"%d 1" % number)
    os.close(there)
    back, out = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(given, 0), os.dup2(out, 1)
        if how == "exec":
            os.execv(sys.executable, [sys.executable, "-c", "IMPORTS\\n" + program])
        sys.stdin = open(0, closefd=False)
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    os.close(given), os.close(out)
    return pid, back
def end(pid, back):
    while os.read(back, 100):
        pass
    os.close(back)
    os.waitpid(pid, 0)
started = time.perf_counter()
running = []
for number in range(count):
    if len(running) == 2:
        end(*running.pop(0))
    running.append(begin(number))
for each in running:
    end(*each)
print(time.perf_counter() - started)
"""


async def bare(how: str, imports: str, count: int) -> float:
    """How many seconds a loop takes that runs programs in forks, or executes the interpreter in them."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BARE.replace("IMPORTS", imports), how, PROGRAM, str(count)),
        stdout=asyncio.subprocess.PIPE,
    )
    return float((await process.communicate())[0])


async def judged(judge: Judge, count: int) -> float:
    """How many seconds the judge takes."""
    tests = [Programs(tests=(ProgramTest(stdin=f"{each} 1", stdout=f"{each + 1}"),)) for each in range(count)]
    started = perf_counter()
    verdicts = await asyncio.gather(*(judge.run({"main.py": PROGRAM}, each) for each in tests))
    seconds = perf_counter() - started
    assert all(each.passed for [each] in verdicts)
    return seconds


async def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sandbox = sandbox_for_programs(arguments.wall, concurrency=4)
    imports = f"import {', '.join(map(str, sandbox.preload))}"
    times: dict[str, list[float]] = {"judge": [], "exec": [], "fork": []}
    async with sandbox, Judge(sandbox, sessions=2) as judge:
        await judged(judge, PART)
        for _ in range(arguments.rounds * arguments.programs // PART):
            times["judge"].append(await judged(judge, PART) / PART)
            times["exec"].append(await bare("exec", imports, PART) / PART)
            times["fork"].append(await bare("fork", imports, PART) / PART)
        wall = sandbox.wall
    print(f"wall {wall}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for name, seconds in times.items():
        ratios = [one / other for one, other in zip(times["judge"], seconds, strict=True)]
        deciles = statistics.quantiles(ratios, n=10)
        print(
            f"{name:6} {statistics.median(seconds) * 1e3:6.2f} ms for a program; judge takes "
            f"{statistics.median(ratios):.2f} times as long ({deciles[0]:.2f} to {deciles[-1]:.2f})"
        )


if __name__ == "__main__":
    asyncio.run(main())
