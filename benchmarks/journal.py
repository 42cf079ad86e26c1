"""Measure what the journal costs: time and bytes of a turn, early and late in a run of 1,000 turns, and its share.

python benchmarks/journal.py [turns]

In each turn an agent asks a model for code, runs it, and asks for a summary. The model answers at once in the first
part, and after 50 ms in the second, where runs with and without a journal take turns.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult, LLMMessage, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import CodeExecutorAgent
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs import Journal, RunRecord, run_team
from coderoom.runs.run_log import RunLog

ROUNDS = 5
SHORT = 40
INFO = ModelInfo(
    vision=False, function_calling=False, json_output=True, structured_output=True, family=ModelFamily.UNKNOWN
)


class Model(ReplayChatCompletionClient):
    """Answers each request with a code block of its own, after `delay` seconds."""

    def __init__(self, delay: float) -> None:
        super().__init__([""], model_info=INFO)
        self._delay = delay
        self._asked = 0

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        """The next code block."""
        await asyncio.sleep(self._delay)
        self._asked += 1
        text = f"Step {self._asked:06}.\n\n```python\nprint({self._asked:06} * 2, 'is the result of this step')\n```"
        return CreateResult(
            finish_reason="stop", content=text, usage=RequestUsage(prompt_tokens=9, completion_tokens=9), cached=False
        )

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """The same, in one piece."""
        yield await self.create(messages, **arguments)


class TimedLog(RunLog):
    """Sums up the time that the journal takes, for each turn."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.spent: list[float] = [0.0]
        self._inside = False

    def find(self, kind: str, request: Any) -> Any:
        """Look up a step; a request to the model begins a turn."""
        if kind == "model":
            self.spent.append(0.0)
        return self._timed(super().find, kind, request)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Write a step."""
        self._timed(super().keep, kind, request, result, seconds, known=known)

    def add(self, message: Any) -> bool:
        """Write a message."""
        return bool(self._timed(super().add, message))

    def write(self, *arguments: Any, **named: Any) -> None:
        """Write a message; or a step, inside of `keep`."""
        self._timed(super().write, *arguments, **named)

    def _timed(self, call: Any, *arguments: Any, **named: Any) -> Any:
        if self._inside:
            return call(*arguments, **named)
        self._inside, begun = True, perf_counter()
        try:
            return call(*arguments, **named)
        finally:
            self._inside = False
            self.spent[-1] += perf_counter() - begun


async def seconds_of_run(turns: int, delay: float, log: RunLog | None) -> float:
    """Run an agent for so many turns and return the time."""
    agent = CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=Model(delay), max_retries_on_error=0)
    team = RoundRobinGroupChat([agent], max_turns=turns)
    record = RunRecord(team="benchmark", task="Count.")
    if log is not None:
        log.begin("run", "benchmark", "Count.", None, {})
    begun = perf_counter()
    await run_team(team, record, lambda message: None, log=log)
    assert record.attempts == turns, record
    return perf_counter() - begun


def bytes_of_turns(path: Path, turns: int) -> list[int]:
    """The bytes of each turn in a journal: its steps, and the messages that it has added."""
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT kind, LENGTH(key) + LENGTH(request) + LENGTH(result) FROM steps ORDER BY number"
        ).fetchall()
        (contents,) = database.execute("SELECT SUM(LENGTH(data)) FROM contents").fetchone()
    sizes = [contents // turns]
    for kind, size in rows:
        if kind == "model":
            sizes.append(contents // turns)
        sizes[-1] += size
    return sizes[1:]


async def main() -> None:
    """Measure and print."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    tenth = turns // 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite3"
        log = TimedLog(Journal(path))
        await seconds_of_run(turns, 0, log)
        spent, sizes = log.spent[1:], bytes_of_turns(path, turns)
        file = path.stat().st_size
        for name, values, factor, unit in (("time", spent, 1000, "ms"), ("bytes", sizes, 1, "B")):
            early, late = (statistics.median(part) * factor for part in (values[tenth : 2 * tenth], values[-tenth:]))
            print(
                f"{name} of a request with its cell and messages: {early:.3f} {unit} ({tenth} to {2 * tenth}), "
                f"{late:.3f} {unit} (the last {tenth}), ratio {late / early:.3f}"
            )
        print(f"file: {file / turns:,.0f} B a turn, which has two requests: for code, and for its summary")
        with_journal, without = [], []
        for number in range(ROUNDS):
            without.append(await seconds_of_run(SHORT, 0.05, None))
            journal = Journal(Path(folder) / f"{number}.sqlite3")
            with_journal.append(await seconds_of_run(SHORT, 0.05, RunLog(journal)))
        shares = [each / base - 1 for each, base in zip(with_journal, without, strict=True)]
        print(
            f"a model that answers in 50 ms, {SHORT} turns: the journal adds {statistics.median(shares):.1%} "
            f"({min(shares):.1%} to {max(shares):.1%})"
        )


if __name__ == "__main__":
    asyncio.run(main())
