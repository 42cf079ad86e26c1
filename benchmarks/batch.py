"""Run a batch of items with a recorded model: its rate, as a ratio to the same teams without a batch, and its memory.

python benchmarks/batch.py [--items N] [--concurrency N] [--engine ray]

With `--engine ray`, the batch runs on a cluster of two nodes on this machine, and one is killed in the middle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from time import perf_counter

from autogen_core import CancellationToken

from coderoom.configs import find_source
from coderoom.runs import Recorder, prepare_run, run_team
from coderoom.runs.batch import Batch
from coderoom.runs.durable import Run

TEAM, TASK = "code-act", "Compute 6 * 7."
REPLIES = ["```python\nprint(6 * 7)\n```", "It is 42."]
PLAIN = 200
FIRST = 1_000


def megabytes() -> float:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def record(file: Path) -> None:
    """Record the traffic of one run."""
    run = Run.begin(prepare_run(TEAM, TASK, model="replay:replies.json", workspace=Path("first")), None)
    run.recorder = Recorder(file)
    await run.go(lambda message: None)


async def plain(number: int, model: str, concurrency: int) -> float:
    """Run the team on so many items, without a journal; return the seconds of an item."""
    numbers = count()

    async def some() -> None:
        while (each := next(numbers)) < number:
            prepared = prepare_run(find_source(TEAM), TASK, model=model, workspace=Path(f"plain-{each}"))
            await run_team(prepared.team, prepared.record, lambda message: None, token=CancellationToken())

    begun = perf_counter()
    await asyncio.gather(*(some() for _ in range(concurrency)))
    return (perf_counter() - begun) / number


@contextmanager
def two_nodes(concurrency: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """A Ray cluster: its address, and what kills one of its nodes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=concurrency / 2) for _ in range(2)]
    try:
        yield cluster.address, lambda: cluster.remove_node(nodes[0], allow_graceful=False)
    finally:
        cluster.shutdown()


async def measure(file: Path, items: int, concurrency: int, address: str | None, kill: Callable[[], None]) -> None:
    """Measure and print."""
    await record(file)
    model = f"replay:{file}"
    before = await plain(PLAIN, model, concurrency)
    batch = Batch(TEAM, "items.jsonl", Path("out"), model=model, task=TASK, concurrency=concurrency)
    if address is not None:
        batch.engine, batch.address = "ray", address
    found: Counter[str] = Counter()
    done, first, begun = 0, 0.0, perf_counter()
    async with batch:
        async for result in batch:
            assert result.status == "passed", result.why
            found[result.id] += 1
            done += 1
            if done == items // 2:
                await asyncio.to_thread(kill)
            if done == FIRST:
                first = megabytes()
            if done % 500 == 0:
                pace = (perf_counter() - begun) / done
                print(f"{done:,} items: {megabytes():.1f} MB, {pace * 1000:.1f} ms an item", flush=True)
    seconds = (perf_counter() - begun) / items
    assert found == Counter(map(str, range(items))), "an item is missing, or has two results"
    for note in batch.notes:
        print(note)
    after = await plain(PLAIN, model, concurrency)
    print(f"memory: {megabytes() - first:+.1f} MB from item {FIRST:,} to the end")
    times = f"{before * 1000:.1f} and {after * 1000:.1f} ms an item"
    print(f"rate: {(before + after) / 2 / seconds:.0%} of the same runs without a batch ({times})")


def main() -> None:
    """Prepare a folder and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("replies.json").write_text(json.dumps(REPLIES))
        lines = [{"id": str(number), "check": {"expected": "It is 42."}} for number in range(given.items)]
        Path("items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with two_nodes(given.concurrency) if given.engine == "ray" else nullcontext((None, lambda: None)) as (at, kill):
            asyncio.run(measure(Path(folder, "run.jsonl"), given.items, given.concurrency, at, kill))


if __name__ == "__main__":
    main()
