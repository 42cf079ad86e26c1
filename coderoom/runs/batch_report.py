"""What came of a batch: counts, tokens, times, pass@k with confidence intervals, a table, and a page."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from coderoom._util.text import in_dollars, visible
from coderoom.runs.batch import ERRORED, NOT_PASSED, PASSED, Result, read_results
from coderoom.runs.page import page_of

if TYPE_CHECKING:
    import pyarrow

_PERCENTILES: Final = (50, 90, 99)
_NORMAL_95: Final = 1.959964
_STYLES: Final = {PASSED: "good", NOT_PASSED: "bad", ERRORED: "bad"}
_ROWS: Final = 1_000
_ROWS_HERE: Final = "<!-- rows -->"


@dataclass
class Summary:
    """The summary of the results of a batch: the results by status, and sums of them."""

    counts: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0  # `None` if that is not known.
    seconds: array[float] = field(default_factory=lambda: array("d"))  # Of each run.
    runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each item, how many of its runs there are without an error, and how many have passed."""

    def add(self, result: Result) -> None:
        """Count a result."""
        self.counts[result.status] += 1
        self.prompt_tokens += result.prompt_tokens
        self.completion_tokens += result.completion_tokens
        if result.prompt_tokens + result.completion_tokens:
            known = self.cost_usd is not None and result.cost_usd is not None
            self.cost_usd = (self.cost_usd or 0) + (result.cost_usd or 0) if known else None
        self.seconds.append(result.seconds)
        if result.status != ERRORED:
            number, passed = self.runs.get(result.id, (0, 0))
            self.runs[result.id] = number + 1, passed + (result.status == PASSED)

    @property
    def total(self) -> int:
        """The number of results."""
        return sum(self.counts.values())

    def pass_at(self, k: int) -> tuple[float, float, float] | None:
        """An unbiased estimate of the probability that one of `k` runs of an item passes, and its 95 % interval.

        Items with fewer than `k` runs without an error do not count; `None` if there are no others. The estimate is
        that of Chen et al., "Evaluating Large Language Models Trained on Code"; the interval is Wilson's, by items.
        """
        runs = self.runs.values()
        found = [1 - math.comb(number - passed, k) / math.comb(number, k) for number, passed in runs if number >= k]
        if not found:
            return None
        mean, count = math.fsum(found) / len(found), len(found)
        square = _NORMAL_95**2
        middle = (mean + square / (2 * count)) / (1 + square / count)
        half = _NORMAL_95 / (1 + square / count) * math.sqrt(mean * (1 - mean) / count + square / (4 * count**2))
        return mean, max(0.0, middle - half), min(1.0, middle + half)

    def to_json(self) -> dict[str, Any]:
        """The facts, as plain data."""
        most = max((number for number, _ in self.runs.values()), default=0)
        estimates = {k: self.pass_at(k) for k in sorted({1, most}) if k}
        times = sorted(self.seconds)
        return {
            "results": self.total,
            **{status: self.counts[status] for status in (PASSED, NOT_PASSED, ERRORED)},
            "pass_at": {
                str(k): dict(zip(("estimate", "low", "high"), each, strict=True))
                for k, each in estimates.items()
                if each is not None
            },
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd,
            "seconds": {f"p{each}": times[math.ceil(each / 100 * len(times)) - 1] for each in _PERCENTILES if times},
        }


def summarize(results: Iterable[Result]) -> Summary:
    """The summary of results."""
    summary = Summary()
    for result in results:
        summary.add(result)
    return summary


def summary_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A summary in words: names and values."""
    lines = [(status, f"{facts[status]:,}") for status in (PASSED, NOT_PASSED, ERRORED)]
    for k, each in facts["pass_at"].items():
        lines.append((f"pass@{k}", f"{each['estimate']:.1%} (95 %: {each['low']:.1%} to {each['high']:.1%})"))
    tokens = facts["prompt_tokens"] + facts["completion_tokens"]
    lines.append(("tokens", f"{tokens:,} ({facts['prompt_tokens']:,} in, {facts['completion_tokens']:,} out)"))
    if facts["cost_usd"] is not None and tokens:
        lines.append(("cost", in_dollars(facts["cost_usd"])))
    if facts["seconds"]:
        lines.append(("time", ", ".join(f"{name} {value:.1f} s" for name, value in facts["seconds"].items())))
    return lines


def write_report(folder: Path) -> Summary:
    """Write `index.html`, and `results.parquet` if pyarrow is installed, for the results so far; return the summary."""
    summary = summarize(read_results(folder))
    facts = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in summary_lines(summary.to_json())
    )
    head = "<tr><th>item</th><th>status</th><th>outcome</th><th>time</th><th>why</th></tr>"
    body = f"<h1>Batch</h1><table>{facts}</table><table>{head}{_ROWS_HERE}</table>"
    before, after = page_of("Batch", body).split(_ROWS_HERE)
    with (folder / "index.html").open("w", encoding="utf-8") as file:
        file.write(before)
        file.writelines(map(_row, read_results(folder)))
        file.write(after)
    _write_parquet(folder)
    return summary


def _write_parquet(folder: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    results, schema = read_results(folder), result_schema()
    with pyarrow.parquet.ParquetWriter(folder / "results.parquet", schema) as writer:
        while rows := [asdict(each) for each, _ in zip(results, range(_ROWS), strict=False)]:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def result_schema() -> pyarrow.Schema:
    """The columns of results."""
    import pyarrow

    types = {int: pyarrow.int64(), str: pyarrow.string()}
    kinds = get_type_hints(Result)
    return pyarrow.schema([(name, types.get(kind, pyarrow.float64())) for name, kind in kinds.items()])


def _row(result: Result) -> str:
    name = f"{result.id}{f', {result.repeat}' if result.repeat > 1 else ''}"
    return (
        f'<tr><td><a href="pages/{escape(result.run)}.html">{escape(visible(name))}</a></td>'
        f'<td class="{_STYLES[result.status]}">{result.status}</td><td>{escape(result.outcome)}</td>'
        f"<td>{result.seconds:.1f} s</td><td>{escape(visible(result.why)[:200])}</td></tr>"
    )


def difference_lines(one: Iterable[Result], other: Iterable[Result]) -> list[str]:
    """The runs whose status differs between two batches, a line each; `missing` if there is no result."""
    found = [{(each.id, each.repeat): each.status for each in results} for results in (one, other)]
    lines = []
    for item, repeat in dict.fromkeys([*found[0], *found[1]]):
        before, now = (statuses.get((item, repeat), "missing") for statuses in found)
        if before != now:
            lines.append(f"{item}{f', {repeat}' if repeat > 1 else ''}: {before} -> {now}")
    return lines
