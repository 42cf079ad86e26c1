"""Runs, verdicts and batches show themselves in notebooks, whatever text is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.judge import Verdict
from coderoom.runs import Journal
from coderoom.runs.batch_report import summarize
from coderoom.runs.item_run import Result
from coderoom.runs.record import RunRecord
from tests.support.hostile import HOSTILE, tags_of

LONG = f"{HOSTILE} " * 1_000


def entry(folder: Path) -> Any:
    journal = Journal(folder / "journal")
    run = journal.begin("run", f"team {HOSTILE}", f"task {HOSTILE}", HOSTILE, {}, "the-run")
    usage = {"prompt_tokens": 1_000, "completion_tokens": 200}
    journal.end(run, "ok", {"answer": LONG, "output": LONG + "x", "error": HOSTILE, "seconds": 2.0, "usage": usage})
    return journal.find(run)


def result(folder: Path) -> Any:
    return Result(HOSTILE, 2, "failed", "ok", LONG, LONG, 1_000, 200, None, 0, 0, "", 2.0, checked_by="code")


OBJECTS = {
    "entry": (entry, ["the-run", "1,200", "ok", "2.0 s"]),
    "record": (lambda folder: RunRecord(HOSTILE, LONG, error=LONG), ["failed"]),
    "verdict": (
        lambda folder: Verdict(function="add", test=HOSTILE, passed=False, why=LONG, error=LONG, stdout=LONG),
        ["add.", "failed: "],
    ),
    "result": (result, ["1,200", "failed", "code"]),
    "summary": (lambda folder: summarize([result(folder)]), ["pass@1", "0.0%"]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_shows_itself_and_nothing_in_it_runs(name: str, tmp_path: Path) -> None:
    make, words = OBJECTS[name]
    shown = make(tmp_path)._repr_html_()
    assert set(tags_of(shown)) <= {"div", "b", "small", "pre", "table", "tr", "th", "td"}
    assert [word for word in words if word not in shown] == []
    assert len(shown) < 100_000
    assert "\u202e" not in shown
    assert "\x1b" not in shown
