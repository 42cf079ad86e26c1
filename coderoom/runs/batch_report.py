"""What came of a batch, in numbers: counts, tokens, times, pass@k with confidence intervals, groups, and a table."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from coderoom._util.files import refusing
from coderoom._util.html import lines_html, rows_html, shown_html
from coderoom._util.text import counted, in_dollars
from coderoom.errors import RequestError
from coderoom.runs.item_run import ERRORED, NOT_PASSED, PASSED, UNCHECKED, Result

if TYPE_CHECKING:
    import pyarrow

RESULTS: Final = "results.jsonl"
SETTINGS: Final = "batch.json"
_PERCENTILES: Final = (50, 90, 99)
NORMAL_95: Final = 1.959964
STATUSES: Final = (PASSED, NOT_PASSED, UNCHECKED, ERRORED)
_MOST_NAMED: Final = 100
_MOST_SHOWN: Final = 10
_ROWS: Final = 1_000
_MOST_REASONS: Final = 100
_OTHER_REASONS: Final = "other reasons"
_MOST_VALUES: Final = 20
"""A field of the items with more values is not a tag."""
_MOST_TAGS: Final = 100

Estimate = tuple[float, float, float]
"""A rate, and its interval of 95 %."""


def estimated(rates: Sequence[float]) -> Estimate | None:
    """The mean of the pass rates of items and Wilson's interval of it; `None` if there are no items."""
    if not rates:
        return None
    mean, count = math.fsum(rates) / len(rates), len(rates)
    square = NORMAL_95**2
    middle = (mean + square / (2 * count)) / (1 + square / count)
    half = NORMAL_95 / (1 + square / count) * math.sqrt(mean * (1 - mean) / count + square / (4 * count**2))
    return mean, max(0.0, middle - half), min(1.0, middle + half)


@dataclass
class Group:
    """The runs of the items with one tag: how many, the items, and of each, how many were checked and have passed."""

    number: int = 0
    items: set[str] = field(default_factory=set)
    runs: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def pass_rate(self) -> Estimate | None:
        """The mean of the pass rates of its items, with an interval."""
        return estimated([passed / number for number, passed in self.runs.values()])


class Tags:
    """The results by the tags of their items. A field of the items is a tag if few values of it have many items."""

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, Group]] = {"": {}}
        self._dropped: set[str] = set()

    def add(self, result: Result) -> None:
        """Count a result."""
        for tag in result.tags:
            name, equals, _ = tag.partition("=")
            name = name if equals else ""
            if name in self._dropped:
                continue
            groups = self._fields.setdefault(name, {})
            if tag not in groups and len(groups) == (_MOST_VALUES if name else _MOST_TAGS):
                if name:
                    del self._fields[name]
                    self._dropped.add(name)
                continue
            group = groups.setdefault(tag, Group())
            group.number += 1
            group.items.add(result.id)
            _count(group.runs, result)

    def groups(self) -> dict[str, Group]:
        """The groups by their tags; those of a field stand together."""
        found: dict[str, Group] = {}
        for name, groups in sorted(self._fields.items()):
            items = sum(len(group.items) for group in groups.values())
            if not name or 1 < len(groups) <= items / 2:
                found.update(sorted(groups.items()))
        return found


def _count(runs: dict[str, tuple[int, int]], result: Result) -> None:
    if result.status != ERRORED and result.checked_by:
        number, passed = runs.get(result.id, (0, 0))
        runs[result.id] = number + 1, passed + (result.status == PASSED)


_VALUES: Final = re.compile(r"(?<!\w)'[^'\n]*(?:'|$)" r'|(?<!\w)"[^"\n]*(?:"|$)' r"|(?<![\w.])-?\d+(?:[.,:]\d+)*\w*")
_LONGEST_REASON: Final = 160


def reason_of(result: Result) -> str:
    """Why a run has not passed, without the values in it, so that runs with the same reason can be counted.

    Empty if it has passed, or was not checked.
    """
    if result.status in (PASSED, UNCHECKED):
        return ""
    if result.checked_by == "reviewer" and result.outcome in ("ok", "no_code"):
        return "not approved by the reviewer"
    lines = [line.strip() for line in result.why[:2_000].splitlines() if line.strip()] or ["no reason given"]
    line = lines[-1] if lines[0].startswith(("Traceback", "File ")) else lines[0]
    words = _VALUES.sub("…", line[:400])[:_LONGEST_REASON]
    return words if result.outcome in ("ok", "no_code") or result.status == ERRORED else f"{result.outcome}: {words}"


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
    tokens: array[int] = field(default_factory=lambda: array("q"))  # Of each run.
    costs: array[float] = field(default_factory=lambda: array("d"))  # Of each run whose cost is known.
    tags: Tags = field(default_factory=Tags)
    reasons: Counter[str] = field(default_factory=Counter)
    """How many runs have not passed for which reason."""

    def add(self, result: Result) -> None:
        """Count a result."""
        self.counts[result.status] += 1
        self.prompt_tokens += result.prompt_tokens
        self.completion_tokens += result.completion_tokens
        if result.prompt_tokens + result.completion_tokens:
            known = self.cost_usd is not None and result.cost_usd is not None
            self.cost_usd = (self.cost_usd or 0) + (result.cost_usd or 0) if known else None
        self.seconds.append(result.seconds)
        self.tokens.append(result.prompt_tokens + result.completion_tokens)
        if result.cost_usd is not None:
            self.costs.append(result.cost_usd)
        self.tags.add(result)
        if reason := self.reason_of(result):
            self.reasons[reason] += 1
        if result.status in (NOT_PASSED, ERRORED) and len(self.not_passed) < _MOST_NAMED:
            self.not_passed.append(result)
        self.can_be_fooled += result.can_be_fooled
        if result.status != ERRORED:
            self.checked_by[result.checked_by] += 1
        _count(self.runs, result)

    def reason_of(self, result: Result) -> str:
        """The reason that the result is counted with."""
        reason = reason_of(result)
        is_known = not reason or reason in self.reasons or len(self.reasons) < _MOST_REASONS
        return reason if is_known else _OTHER_REASONS

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
        return estimated(found)

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

    def _repr_html_(self) -> str:
        success = self.counts[PASSED] + self.counts[UNCHECKED] == self.total if self.total else None
        reasons = {reason: f"{number:,}" for reason, number in self.reasons.most_common(_MOST_SHOWN)}
        parts = [rows_html(dict(summary_lines(self.to_json())))]
        parts += [lines_html("\n".join(self.warnings)), rows_html(reasons) if reasons else ""]
        return shown_html("Batch", success, {}, *parts)

    def to_json(self) -> dict[str, Any]:
        """The facts, as plain data."""
        most = max((number for number, _ in self.runs.values()), default=0)
        estimates = {k: self.pass_at(k) for k in sorted({1, most}) if k}
        times = sorted(self.seconds)
        return {
            "results": self.total,
            **{status: self.counts[status] for status in STATUSES},
            "checked_by": {kind: number for kind, number in self.checked_by.items() if kind},
            "can_be_fooled": self.can_be_fooled,
            "not_checked": self.checked_by[""],
            "warnings": self.warnings,
            "not_passed": [
                {"id": each.id, "repeat": each.repeat, "status": each.status, "why": each.why}
                for each in self.not_passed
            ],
            "pass_at": {str(k): _as_json(each) for k, each in estimates.items() if each is not None},
            "by_tag": {
                tag: {"runs": group.number, **({} if rate is None else _as_json(rate))}
                for tag, group in self.tags.groups().items()
                for rate in [group.pass_rate]
            },
            "reasons": dict(self.reasons.most_common()),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd,
            "seconds": {f"p{each}": times[math.ceil(each / 100 * len(times)) - 1] for each in _PERCENTILES if times},
        }


def _as_json(estimate: Estimate) -> dict[str, float]:
    return dict(zip(("estimate", "low", "high"), estimate, strict=True))


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


def models_of(settings: Mapping[str, Any]) -> str:
    """The models of the batch that `read_settings` has read, in words."""
    return settings["model"] or ", ".join(sorted(set(settings["models"].values()))) or "none"


def summarize(results: Iterable[Result]) -> Summary:
    """The summary of results."""
    summary = Summary()
    for result in results:
        summary.add(result)
    return summary


def summary_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A summary in words: names and values."""
    lines = [("runs", f"{facts['results']:,}"), *((status, f"{facts[status]:,}") for status in STATUSES)]
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


def write_parquet(folder: Path) -> None:
    """Write `results.parquet`, if pyarrow is installed."""
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

    types = {int: pyarrow.int64(), str: pyarrow.string(), Sequence[str]: pyarrow.list_(pyarrow.string())}
    kinds = get_type_hints(Result)
    return pyarrow.schema([(name, types.get(kind, pyarrow.float64())) for name, kind in kinds.items()])
