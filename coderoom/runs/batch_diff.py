"""Compares two batches item by item. Used by `coderoom batch diff`.

An item counts if it has checked runs in both. It is better in the second one if its pass rate is higher there. With one
run of each item, the test is McNemar's exact one; with repeats it is the sign test, which is the same with rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from coderoom._util.text import counted
from coderoom.runs.batch_report import NORMAL_95, Estimate, Summary
from coderoom.runs.item_run import Result


@dataclass(frozen=True)
class Pair:
    """A run of an item in both batches; `None` where there is no result."""

    id: str
    repeat: int
    first: Result | None
    second: Result | None

    @property
    def statuses(self) -> tuple[str, str]:
        """The status in each of them, or `missing`."""
        return self.first.status if self.first else "missing", self.second.status if self.second else "missing"

    @property
    def name(self) -> str:
        """The item, and which of its runs it is."""
        return f"{self.id}, {self.repeat}" if self.repeat > 1 else self.id

    def __str__(self) -> str:
        return f"{self.name}: {' -> '.join(self.statuses)}"


@dataclass
class Comparison:
    """What differs between two batches.

    Attributes:
        changed: The runs whose status differs.
        better: The items of which more runs pass in the second batch.
        worse: The items of which fewer do.
        differences: The differences of the pass rates of all items that were checked in both.
        rates: The pass rates of these items in each batch.
    """

    changed: list[Pair] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    worse: list[str] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    rates: tuple[float, float] = (0.0, 0.0)

    @property
    def p_value(self) -> float:
        """How probable it is that chance alone makes at least so great a difference of the numbers better and worse."""
        number, fewer = len(self.better) + len(self.worse), min(len(self.better), len(self.worse))
        ways = term = 1
        for each in range(fewer):
            term = term * (number - each) // (each + 1)
            ways += term
        return min(1.0, float(2 * ways / 2**number))

    @property
    def difference(self) -> Estimate | None:
        """The difference of the pass rates, and its interval; `None` if no item was checked in both.

        The interval is that of Agresti and Min for paired proportions: half a pair of each of the four kinds is added.
        """
        if not self.differences:
            return None
        total, count = math.fsum(self.differences), len(self.differences) + 2
        middle = total / count
        variance = (math.fsum(each**2 for each in self.differences) + 1) / count - middle**2
        half = NORMAL_95 * math.sqrt(variance / count)
        return total / len(self.differences), max(-1.0, middle - half), min(1.0, middle + half)

    def to_json(self) -> dict[str, Any]:
        """The comparison, as plain data."""
        difference = self.difference
        compared = None if difference is None else dict(zip(("estimate", "low", "high"), difference, strict=True))
        return {
            "equal": not self.changed,
            "differences": list(map(str, self.changed)),
            "items": len(self.differences),
            "pass_rates": list(self.rates),
            "difference": compared,
            "p_value": self.p_value,
            "better": self.better,
            "worse": self.worse,
        }


def compare_batches(first: Iterable[Result], second: Iterable[Result]) -> Comparison:
    """Compare the results of two batches."""
    found, summaries = list[dict[tuple[str, int], Result]](), (Summary(), Summary())
    for results, summary in zip((first, second), summaries, strict=True):
        found.append({})
        for result in results:
            summary.add(result)
            found[-1][result.id, result.repeat] = replace(result, answer="")
    compared = Comparison()
    for item, repeat in dict.fromkeys([*found[0], *found[1]]):
        pair = Pair(item, repeat, *(results.get((item, repeat)) for results in found))
        if len(set(pair.statuses)) > 1:
            compared.changed.append(pair)
    rates = [{item: passed / number for item, (number, passed) in each.runs.items()} for each in summaries]
    both = [item for item in rates[0] if item in rates[1]]
    for item in both:
        difference = rates[1][item] - rates[0][item]
        compared.differences.append(difference)
        if difference:
            (compared.better if difference > 0 else compared.worse).append(item)
    if both:
        one, other = (math.fsum(each[item] for item in both) / len(both) for each in rates)
        compared.rates = one, other
    return compared


def comparison_lines(compared: Comparison) -> list[str]:
    """What the numbers say, in words; empty if no item was checked in both."""
    difference = compared.difference
    if difference is None:
        return []
    one, other = compared.rates
    estimate, low, high = (100 * each for each in difference)
    return [
        f"pass rate of the {counted(len(compared.differences), 'item')} checked in both: {one:.1%} -> {other:.1%}, "
        f"difference {estimate:+.1f} points (95 %: {low:+.1f} to {high:+.1f})",
        f"{len(compared.better):,} better, {len(compared.worse):,} worse, p = {compared.p_value:.2g} "
        "(McNemar's exact test)",
    ]
