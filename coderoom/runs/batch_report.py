"""What came of a batch: counts, tokens, times, pass@k with confidence intervals, a table, and a page."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from coderoom._util.files import refusing
from coderoom._util.text import counted, in_dollars, visible
from coderoom.errors import RequestError
from coderoom.runs.item_run import ERRORED, NOT_PASSED, PASSED, UNCHECKED, Result
from coderoom.runs.items import BadLine
from coderoom.runs.pages.frame import page_of

if TYPE_CHECKING:
    import pyarrow

RESULTS: Final = "results.jsonl"
SETTINGS: Final = "batch.json"
_PERCENTILES: Final = (50, 90, 99)
_NORMAL_95: Final = 1.959964
_STATUSES: Final = (PASSED, NOT_PASSED, UNCHECKED, ERRORED)
_STYLES: Final = {PASSED: "good", NOT_PASSED: "bad", UNCHECKED: "", ERRORED: "bad"}
_MOST_NAMED: Final = 100
_ROWS: Final = 1_000
_ROWS_HERE: Final = "<!-- rows -->"


_FOOLED = " (can be fooled)"


@dataclass
class Summary:
    """The summary of the results of a batch: the results by status, and sums of them."""

    counts: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0  # `None` if that is not known.
    seconds: array[float] = field(default_factory=lambda: array("d"))  # Of each run.
    runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each item, how many of its runs were checked, and how many have passed."""
    checked_by: Counter[str] = field(default_factory=Counter)
    """How many runs without an error were checked in which way; the empty name is that of those without a check."""
    can_be_fooled: int = 0
    not_passed: list[Result] = field(default_factory=list)
    """The first results that have failed or errored."""

    def add(self, result: Result) -> None:
        """Count a result."""
        self.counts[result.status] += 1
        self.prompt_tokens += result.prompt_tokens
        self.completion_tokens += result.completion_tokens
        if result.prompt_tokens + result.completion_tokens:
            known = self.cost_usd is not None and result.cost_usd is not None
            self.cost_usd = (self.cost_usd or 0) + (result.cost_usd or 0) if known else None
        self.seconds.append(result.seconds)
        if result.status in (NOT_PASSED, ERRORED) and len(self.not_passed) < _MOST_NAMED:
            self.not_passed.append(result)
        self.can_be_fooled += result.can_be_fooled
        if result.status != ERRORED:
            self.checked_by[result.checked_by] += 1
        if result.status != ERRORED and result.checked_by:
            number, passed = self.runs.get(result.id, (0, 0))
            self.runs[result.id] = number + 1, passed + (result.status == PASSED)

    @property
    def total(self) -> int:
        """The number of results."""
        return sum(self.counts.values())

    def pass_at(self, k: int) -> tuple[float, float, float] | None:
        """An unbiased estimate of the probability that one of `k` runs of an item passes, and its 95 % interval.

        Items with fewer than `k` runs with a check do not count; `None` if there are no others. The estimate is
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

    @property
    def warnings(self) -> list[str]:
        """What the numbers do not prove, in sentences."""
        found = []
        if number := self.checked_by[""]:
            found.append(f"{counted(number, 'run')} without a check: nothing has checked the answers.")
        if self.can_be_fooled:
            found.append(
                f"{counted(self.can_be_fooled, 'verdict')} can be fooled: the answer's code ran in the process that "
                "judged it."
            )
        if number := self.checked_by["reviewer"]:
            found.append(f"{counted(number, 'verdict')} by a model, which can be wrong and can be fooled.")
        return found

    def to_json(self) -> dict[str, Any]:
        """The facts, as plain data."""
        most = max((number for number, _ in self.runs.values()), default=0)
        estimates = {k: self.pass_at(k) for k in sorted({1, most}) if k}
        times = sorted(self.seconds)
        return {
            "results": self.total,
            **{status: self.counts[status] for status in _STATUSES},
            "checked_by": {kind: number for kind, number in self.checked_by.items() if kind},
            "can_be_fooled": self.can_be_fooled,
            "not_checked": self.checked_by[""],
            "warnings": self.warnings,
            "not_passed": [
                {"id": each.id, "repeat": each.repeat, "status": each.status, "why": each.why}
                for each in self.not_passed
            ],
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


def read_results(folder: Path) -> Iterator[Result]:
    """The results of a batch so far, in the order in which they came. A line that was cut off is left out."""
    try:
        with (folder / RESULTS).open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield Result(**json.loads(line))
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError) as error:
        raise RequestError(f"The results in {str(folder)!r} cannot be read: {error}.") from error


def read_settings(folder: Path) -> Mapping[str, Any]:
    """What the batch in a folder is: its team, models and items."""
    with refusing(f"The batch in {str(folder)!r} cannot be read"):
        return dict(json.loads((folder / SETTINGS).read_text("utf-8")))


def summarize(results: Iterable[Result]) -> Summary:
    """The summary of results."""
    summary = Summary()
    for result in results:
        summary.add(result)
    return summary


def summary_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A summary in words: names and values."""
    lines = [("runs", f"{facts['results']:,}"), *((status, f"{facts[status]:,}") for status in _STATUSES)]
    for k, each in facts["pass_at"].items():
        lines.append((f"pass@{k}", f"{each['estimate']:.1%} (95 %: {each['low']:.1%} to {each['high']:.1%})"))
    tokens = facts["prompt_tokens"] + facts["completion_tokens"]
    if tokens:  # What was asked and not answered is not counted.
        lines.append(("tokens", f"{tokens:,} ({facts['prompt_tokens']:,} in, {facts['completion_tokens']:,} out)"))
    if facts["cost_usd"] is not None and tokens:
        lines.append(("cost", in_dollars(facts["cost_usd"])))
    if facts["seconds"]:
        lines.append(("time", ", ".join(f"{name} {value:.1f} s" for name, value in facts["seconds"].items())))
    return lines


def write_report(folder: Path, bad_lines: Sequence[BadLine] = (), notes: Sequence[str] = ()) -> Summary:
    """Write `index.html`, and `results.parquet` if pyarrow is installed, for the results so far; return the summary."""
    summary, batch = summarize(read_results(folder)), read_settings(folder)
    models = batch["model"] or ", ".join(sorted(set(batch["models"].values()))) or "none"
    about = [("team", batch["team_name"]), ("model", models), ("items", batch["items"])]
    facts = _table([*about, *summary_lines(summary.to_json())])
    warnings = "".join(f"<p>{escape(visible(each))}</p>" for each in [*summary.warnings, *notes])
    bad = _table([(f"line {each.number}", each.why) for each in bad_lines])
    bad = f"<h2>Lines that are no items</h2>{bad}" if bad_lines else ""
    head = "<tr><th>item</th><th>status</th><th>checked by</th><th>outcome</th><th>time</th><th>why</th></tr>"
    body = f"<h1>Batch</h1>{facts}{warnings}{bad}<h2>Runs</h2><table>{head}{_ROWS_HERE}</table>"
    before, _, after = page_of("Batch", body).rpartition(_ROWS_HERE)
    with (folder / "index.html").open("w", encoding="utf-8") as file:
        file.write(before)
        for result in read_results(folder):
            name = f"{result.id}{f', {result.repeat}' if result.repeat > 1 else ''}"
            file.write(
                f'<tr><td><a href="pages/{escape(result.run)}.html">{escape(visible(name))}</a></td>'
                f'<td class="{_STYLES[result.status]}">{result.status}</td><td>{escape(result.checked_by)}'
                f"{_FOOLED * result.can_be_fooled}</td>"
                f"<td>{escape(result.outcome)}</td>"
                f"<td>{result.seconds:.1f} s</td><td>{escape(visible(result.why)[:200])}</td></tr>"
            )
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


def _table(rows: Iterable[tuple[str, str]]) -> str:
    found = (f"<tr><th>{escape(name)}</th><td>{escape(visible(value))}</td></tr>" for name, value in rows)
    return f"<table>{''.join(found)}</table>"


def difference_lines(one: Iterable[Result], other: Iterable[Result]) -> list[str]:
    """The runs whose status differs between two batches, a line each; `missing` if there is no result."""
    found = [{(each.id, each.repeat): each.status for each in results} for results in (one, other)]
    lines = []
    for item, repeat in dict.fromkeys([*found[0], *found[1]]):
        before, now = (statuses.get((item, repeat), "missing") for statuses in found)
        if before != now:
            lines.append(f"{item}{f', {repeat}' if repeat > 1 else ''}: {before} -> {now}")
    return lines
