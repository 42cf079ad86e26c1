"""Two batches, item by item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coderoom.runs.batch_diff import Comparison, compare_batches, comparison_lines
from coderoom.runs.item_run import Result


def results(statuses: dict[str, str]) -> Iterator[Result]:
    """A letter for each run of an item: it has passed, failed or errored, or is unchecked."""
    words = {"p": "passed", "f": "failed", "e": "errored", "u": "unchecked"}
    for item, letters in statuses.items():
        for repeat, letter in enumerate(letters, 1):
            facts: dict[str, Any] = {"checked_by": "" if letter == "u" else "code"}
            yield Result(item, repeat, words[letter], "ok", "", "", 0, 0, None, 0, 0, "", 0.0, **facts)


def test_the_numbers_are_those_of_statistics_packages() -> None:
    kinds = {"both": 20, "first": 15, "second": 18, "none": 4}
    first = {
        f"{kind}{n}": "p" if kind in ("both", "first") else "f" for kind, count in kinds.items() for n in range(count)
    }
    second = {name: "p" if name.startswith(("both", "second")) else "f" for name in first}
    found = compare_batches(results(first), results(second))
    assert (len(found.better), len(found.worse), len(found.changed)) == (18, 15, 33)
    assert found.p_value == pytest.approx(0.7283324808813632)  # statsmodels: mcnemar([[20, 15], [18, 4]], exact=True)
    # (18 - 15) / 57, and the interval of Agresti and Min by hand.
    assert found.difference == pytest.approx((3 / 57, -0.142420, 0.244115), abs=1e-6)
    assert Comparison(better=["x"] * 9, worse=["y"]).p_value == pytest.approx(0.021484375)
    assert Comparison(better=["x"] * 6_000, worse=["y"] * 6_000).p_value == 1


def test_only_what_was_checked_in_both_counts() -> None:
    first = {"same": "pf", "better": "fff", "worse": "pp", "missing": "p", "errors": "e", "unchecked": "u"}
    second = {"same": "fp", "better": "ffp", "worse": "pf", "new": "p", "errors": "p", "unchecked": "p"}
    found = compare_batches(results(first), results(second))
    assert (found.better, found.worse, len(found.differences)) == (["better"], ["worse"], 3)
    assert found.rates == pytest.approx((0.5, (1 / 2 + 1 / 3 + 1 / 2) / 3))
    assert "worse, 2: passed -> failed" in map(str, found.changed)
    assert "missing: passed -> missing" in map(str, found.changed)
    assert "errors: errored -> passed" in map(str, found.changed)
    nothing = compare_batches(results({"a": "u"}), results({"a": "u"}))
    assert (comparison_lines(nothing), nothing.to_json()["equal"], nothing.to_json()["difference"]) == ([], True, None)
