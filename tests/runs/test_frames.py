"""The journal as data frames."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pandas
import pytest

from coderoom.errors import RequestError
from coderoom.runs import Journal, Step


def test_runs_are_rows_with_types_and_filters(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert len(journal.runs_frame()) == 0
    for number, outcome in enumerate(("ok", "error")):
        run = journal.begin("run", f"team {number}", "Compute it.", None, {})
        usage = {"prompt_tokens": 10 + number, "completion_tokens": 1}
        facts = {"seconds": 1.5, "usage": usage, "cost_usd": 0.25, "attempts": 2, "turns": 3, "models": {"a": "gpt-4o"}}
        journal.end(run, outcome, facts)
    journal.begin("exec", "file.md", "", None, {})
    frame = journal.runs_frame()
    assert list(frame["outcome"]) == ["running", "error", "ok"]
    assert frame["prompt_tokens"].sum() == 21
    assert frame.loc[frame["outcome"] == "ok", ["seconds", "cost_usd", "attempts", "model"]].to_numpy().tolist() == [
        [1.5, 0.25, 2, "gpt-4o"]
    ]
    assert (pandas.Timestamp(time.time(), unit="s", tz="UTC") - frame["started"]).max() < pandas.Timedelta("1h")
    assert frame["ended"].isna().tolist() == [True, False, False]
    assert list(journal.runs_frame(outcome="ok")["team"]) == ["team 0"]
    assert journal.runs_frame(outcome="none")["cost_usd"].sum() == 0


def test_steps_are_rows_with_code_and_text(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    steps: list[tuple[str, str, Any, Any]] = [
        ("task", "user", None, {"task": "Compute it."}),
        ("model", "coder", {"messages": []}, {"content": "```python\n1\n```", "usage": usage}),
        ("code", "coder", {"blocks": [["python", "print(1)"], ["sh", "ls"]]}, {"outcome": "ok", "output": "1\n"}),
    ]
    for number, (kind, actor, request, result) in enumerate(steps, 1):
        journal.add(run, Step(number, kind, actor, "", 1_700_000_000.0 + number, 0.5, request, result))
    frame = journal.steps_frame(journal.find("last"))
    assert list(frame["text"]) == ["Compute it.", "```python\n1\n```", "1\n"]
    assert frame["code"].iloc[2] == "print(1)\n\nls"
    assert frame["completion_tokens"].sum() == 1
    assert frame["at"].iloc[0] == pandas.Timestamp("2023-11-14 22:13:21", tz="UTC")
    with pytest.raises(RequestError, match="there is no run"):
        journal.steps_frame("nowhere")
