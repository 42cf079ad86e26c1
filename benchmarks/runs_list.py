"""Measure how fast the list of runs answers: its page by HTTP, with a journal of 100,000 runs.

python benchmarks/runs_list.py [runs] [journal]

Each question is asked five times; the median and the slowest answer are printed, and the median of the processor's
time, which other programs on the machine change less. A journal that is named, and has runs, is taken as it is; else it
is made.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import perf_counter, process_time
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from coderoom.runs import Journal
from coderoom.runs.listing import COLUMNS, RunQuery
from coderoom.runs.pages.server import RunServer

TIMES = 5
TOGETHER = 1000
TEAMS = ["code-act", "coder-reviewer", "data-analyst", "test-writer", "teams/own.yaml"]
MODELS = ["gpt-5", "gpt-5-mini", "claude-sonnet-4-5", "qwen3-coder"]
OUTCOMES = ["ok"] * 7 + ["error", "timeout", "unfinished", "failed", "not_approved"]
DAY = 86_400
QUESTIONS: list[dict[str, Any]] = [
    {},
    *({"sort": way + column} for column in COLUMNS for way in ("", "-")),
    {"page": 1000},
    {"page": 1000, "sort": "-tokens"},
    {"q": "word17"},
    {"q": "word17 word18", "sort": "-cost"},
    {"q": "the", "sort": "-cost"},
    {"q": '"print(value_42"'},
    {"q": "nothing-has-this"},
    {"team": "code-act", "outcome": "error", "sort": "-tokens"},
    {"model": "gpt-5", "verdict": "approved", "cost_from": "0.05", "sort": "time"},
    {"from": "2026-03-01", "to": "2026-03-31", "sort": "-attempts"},
]


def rows_of(chance: random.Random, number: int) -> dict[str, list[tuple[Any, ...]]]:
    """A run with three attempts, about as large as one of a small team."""
    run, start = f"run-{number:06}", 1_767_225_600 + number * 300
    words = [f"word{chance.randrange(3000)}" for _ in range(100)]
    codes = [f"import csv\nvalue_{chance.randrange(100)} = {at}\nprint(value_{number % 100})\n" * 5 for at in range(3)]
    outcome, model, tokens = chance.choice(OUTCOMES), chance.choice(MODELS), chance.randrange(500, 50_000)
    facts = {
        "outcome": outcome, "succeeded": outcome == "ok", "approved": chance.choice([True, False, None]),
        "answer": "It is the " + " ".join(words[40:]), "output": " ".join(words), "attempts": chance.randrange(1, 9),
        "models": {"coder": model, "reviewer": model}, "cost_usd": tokens / 200_000,
        "usage": {"prompt_tokens": tokens, "completion_tokens": tokens // 5, "total_tokens": tokens * 6 // 5},
        "seconds": chance.random() * 100,
    }  # fmt: skip
    task = f"Find the {' '.join(words[:40])}."
    entry = (run, "run", chance.choice(TEAMS), task, None, start, start + 90.0, outcome, None, "{}", json.dumps(facts))
    steps: list[tuple[Any, ...]] = []
    for at, code in enumerate(codes):
        said = {"type": "TextMessage", "content": " ".join(words[at * 30 :]), "source": "coder"}
        for kind, request, result in (
            ("model", {"messages": []}, {"content": code, "usage": {}}),
            ("message", None, said),
            ("code", {"blocks": [["python", code]]}, {"outcome": "ok", "output": code, "exit_code": 0}),
        ):
            texts = json.dumps(request), json.dumps(result)
            steps.append((run, len(steps) + 1, kind, "coder", "", start + at, 1.0, *texts))
    return {"runs": [entry], "steps": steps, "contents": []}


def fill(journal: Journal, count: int) -> None:
    """Write so many runs."""
    chance = random.Random(1)
    for begin in range(0, count, TOGETHER):
        rows: dict[str, list[tuple[Any, ...]]] = {"runs": [], "steps": [], "contents": []}
        for number in range(begin, min(begin + TOGETHER, count)):
            for table, more in rows_of(chance, number).items():
                rows[table] += more
        journal.put(rows)


def times_of(address: str) -> Iterator[tuple[float, float]]:
    """The times of several answers, and those of the processor, in milliseconds."""
    for _ in range(TIMES):
        begun, used = perf_counter(), process_time()
        with urlopen(address) as answer:
            answer.read()
        yield (perf_counter() - begun) * 1000, (process_time() - used) * 1000


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "journal.sqlite3"
        journal = Journal(path)
        if not journal.listed(RunQuery(most=1)).count:
            fill(journal, count)
        begun = perf_counter()
        journal.catch_up()
        count = journal.listed(RunQuery(most=1)).count
        print(f"{count:,} runs, {path.stat().st_size >> 20} MiB; indexed in {perf_counter() - begun:.1f} s")
        with RunServer(journal) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            for question in QUESTIONS:
                taken, used = zip(*times_of(f"{server.url}?{urlencode(question)}"), strict=True)
                median, processor = statistics.median(taken), statistics.median(used)
                print(f"{median:6.1f} ms, at most {max(taken):6.1f}, processor {processor:6.1f}: {question or 'all'}")
            server.shutdown()


if __name__ == "__main__":
    main()
