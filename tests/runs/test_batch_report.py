"""The numbers of a batch: groups by tags, and reasons why runs have not passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.runs.batch_report import reason_of, summarize
from coderoom.runs.item_run import Result
from coderoom.runs.items import Item, read_items


def result(item: str, status: str = "passed", why: str = "", repeat: int = 1, **more: Any) -> Result:
    facts = {"outcome": "ok", "checked_by": "code", **more}
    outcome = str(facts.pop("outcome"))
    return Result(item, repeat, status, outcome, "", why, 10, 1, 0.01, 1, 1, f"{item}-{repeat}", 1.0, **facts)


def test_plain_fields_and_tags_of_a_line_are_tags(tmp_path: Path) -> None:
    lines = (
        '{"id": "a", "task": "x", "level": "easy", "n": 3, "hard": false, "long": "'
        + "x" * 99
        + '", "data": {"k": 1}}\n'
        '{"id": 7, "task": "x", "tags": ["maths", "slow"], "none": null}\n'
        '{"id": "c", "task": "x", "tags": "maths", "two": "lines\\nof text"}\n'
    )
    (tmp_path / "items.jsonl").write_text(lines)
    found = [item.tags for item in read_items(tmp_path / "items.jsonl") if isinstance(item, Item)]
    assert found == [["level=easy", "n=3", "hard=False"], ["maths", "slow"], ["maths"]]


def test_fields_with_a_value_for_each_item_or_the_same_for_all_are_no_groups() -> None:
    made = [
        result(
            str(n),
            "passed" if n % 4 else "failed",
            tags=[f"odd={n % 2}", f"n={n}", f"some={n // 30}", "all=1", "label"],
        )
        for n in range(40)
    ]
    summary = summarize([*made, result("0", "errored", repeat=2, tags=["odd=0"])])
    groups = summary.tags.groups()
    assert list(groups) == ["label", "odd=0", "odd=1", "some=0", "some=1"]
    assert (groups["odd=0"].number, len(groups["odd=0"].items)) == (21, 20)
    rate = groups["odd=0"].pass_rate
    # Wilson's interval of 10 of 20, as statsmodels computes it.
    assert rate == pytest.approx((0.5, 0.299298, 0.700702), abs=1e-6)
    assert summary.to_json()["by_tag"]["odd=1"]["estimate"] == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "expected 4 (number), and the answer is 'It is 7.'",
            'expected -9.5 (number), and the answer is "It\'s 1,000."',
        ),
        ("test_a: AssertionError: 3 != 0x7f", "test_a: AssertionError: 14 != 0xff"),
        ("Traceback (most recent call last):\n  File 'x'\nKeyError: 'x3'", "KeyError: 'x7'\nmore"),
        ("File 'x', line 1\n    a b\nSyntaxError: bad", "SyntaxError: bad"),
    ],
)
def test_reasons_that_differ_in_values_are_the_same(one: str, other: str) -> None:
    assert reason_of(result("a", "failed", one)) == reason_of(result("b", "failed", other))


def test_reasons_that_differ_otherwise_are_not_the_same() -> None:
    made = [
        result("a", "failed", "KeyError: 'x'"),
        result("b", "failed", "KeyError: 'x'", outcome="timeout"),
        result("c", "failed", "IndexError: 'x'"),
        result("d", "failed", "not approved: it is short", checked_by="reviewer"),
        result("e", "failed", "not approved: it is long", checked_by="reviewer"),
        result("f", "unchecked", checked_by=""),
    ]
    reasons = summarize(made).reasons
    assert sorted(reasons.values()) == [1, 1, 1, 2]
    assert reasons["timeout: KeyError: …"] == 1
    many = summarize(result(str(n), "failed", "x" * n + " failed") for n in range(300))
    assert (len(many.reasons), many.reasons["other reasons"], many.reasons.total()) == (101, 200, 300)
