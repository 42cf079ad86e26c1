"""Compare branches of an agent with repairs in a row: the time from the first failure to success, and what it costs.

python benchmarks/branches.py [--seeds N] [--branches K] [--latency SECONDS] [--right P]

A scripted model fails at first; then each of its repairs is right with the same probability, whatever was tried before.
Both ways run in turn, with the same seeds, in real sandboxes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage, ModelFamily, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import CodeActAgent
from coderoom.agents import metadata as keys
from coderoom.executors import SandboxCodeExecutor

TASK = "Compute it."
MOST = 50


class Scripted(ReplayChatCompletionClient):
    """Writes code that fails, and then repairs it until one is right; each request takes a while."""

    def __init__(self, right: float, latency: float) -> None:
        info: Any = dict.fromkeys(("vision", "function_calling", "json_output", "structured_output"), False)
        super().__init__([], model_info=info | {"family": ModelFamily.UNKNOWN})
        self._right, self._latency = right, latency
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin anew, with the luck of a seed."""
        self._luck = random.Random(seed)
        self.calls = self.tokens = 0

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        """Reply, and count."""
        self.calls += 1
        text = "\n".join(str(message.content) for message in messages)
        if any(isinstance(message, UserMessage) and message.content == "right\n" for message in messages):
            reply = "It is right."
        elif "Error" not in text:
            reply = "```python\nrows = list(range(100_000))\nraise ValueError('first')\n```"
        elif self._luck.random() < self._right:
            reply = "```python\nassert len(rows) == 100_000\nprint('right')\n```"
        else:
            reply = f"```python\nraise ValueError({self.calls})\n```"
        await asyncio.sleep(self._latency)
        usage = RequestUsage(prompt_tokens=len(text) // 4, completion_tokens=len(reply) // 4)
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        return CreateResult(finish_reason="stop", content=reply, usage=usage, cached=False)


@dataclass
class Measured:
    """One run: seconds from the first failure to success, seconds in all, repairs, and tokens."""

    repair: float
    total: float
    repairs: int
    tokens: int


async def measure(agent: CodeActAgent, model: Scripted, seed: int) -> Measured:
    """Run an agent until its code is right."""
    await agent.on_reset(CancellationToken())
    await agent.code_executor.run([])  # The session is there, as it is after any earlier step.
    model.begin(seed)
    begin, failed, ended = perf_counter(), 0.0, 0.0
    async for message in agent.run_stream(task=TASK):
        outcome = getattr(message, "metadata", {}).get(keys.OUTCOME)
        if outcome == "error" and not failed:
            failed = perf_counter()
        elif outcome == "ok" and not ended:
            ended = perf_counter()
    assert ended, "it never succeeded"
    return Measured(ended - failed, perf_counter() - begin, model.calls - 2, model.tokens)


async def main() -> None:
    """Print the medians and means of both ways, their ratio, and what was to be expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--branches", type=int, default=4)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--right", type=float, default=0.4)
    given = parser.parse_args()
    models = {count: Scripted(given.right, given.latency) for count in (1, given.branches)}
    agents = {
        count: CodeActAgent("actor", model, SandboxCodeExecutor(), max_steps=MOST, branches=count)
        for count, model in models.items()
    }
    found: dict[int, list[Measured]] = {count: [] for count in agents}
    try:
        for seed in range(-1, given.seeds):
            for count, agent in agents.items():
                one = await measure(agent, models[count], seed)
                found[count] += [one] if seed >= 0 else []  # The first run starts the sandbox.
    finally:
        for agent in agents.values():
            await agent.close()
    print(f"{given.seeds} seeds; a repair is right with probability {given.right:g}; {given.latency:g} s a request")
    means = {}
    for count, runs in found.items():
        levels = 1 / (1 - (1 - given.right) ** count)
        repairs = statistics.mean(run.repairs for run in runs)
        means[count] = statistics.mean(run.repair for run in runs), statistics.mean(run.total for run in runs)
        times = sorted(run.repair for run in runs)
        print(
            f"{count} at a time: success after {means[count][0]:.2f} s (median {statistics.median(times):.2f}, "
            f"90% below {times[int(0.9 * len(times))]:.2f}), {means[count][1]:.2f} s in all; {repairs:.2f} repairs "
            f"({levels * count:.2f} expected), {statistics.mean(run.tokens for run in runs):,.0f} tokens"
        )
    ratios = [branched / row for branched, row in zip(means[given.branches], means[1], strict=True)]
    expected = given.right / (1 - (1 - given.right) ** given.branches)
    print(f"time to success: {ratios[0]:.2f} of that in a row ({expected:.2f} if forks cost nothing)")
    print(f"time in all: {ratios[1]:.2f} of that in a row")


if __name__ == "__main__":
    asyncio.run(main())
