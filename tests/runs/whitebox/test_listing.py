"""Runs in lists: which ones, in which order, and where a text stands in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coderoom.errors import RequestError
from coderoom.runs import Journal, Step
from coderoom.runs.listing import RunQuery, match_of

ALL = RunQuery()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    made = Journal(tmp_path_factory.mktemp("runs") / "journal")
    rows = (("a", "Count the ships.", "m1", 0.5), ("b", "数える ships", "m2", 2.0), ("a", "Sum.", "m2", None))
    for name, task, model, cost in rows:
        run = made.begin("run", name, task, model, {}, f"run-{len(made.runs())}")
        said = {"type": "TextMessage", "content": f"An answer to {task} " + "x" * 99}
        made.add(run, Step(1, "message", "writer", "", 0.0, 0.0, None, said))
        made.end(run, "ok" if name == "a" else "error", {"cost_usd": cost, "attempts": 2, "seconds": 1.5})
    made.begin("run", "c", "Wait.", None, {}, "run-3")
    return made


def found(journal: Journal, **wanted: object) -> list[str]:
    return [row.run for row in journal.listed(replace(ALL, **wanted)).rows]  # type: ignore[arg-type]


def test_what_is_asked_for(journal: Journal) -> None:
    assert found(journal) == ["run-3", "run-2", "run-1", "run-0"]
    assert found(journal, descending=False, skip=1, most=2) == ["run-1", "run-2"]
    assert found(journal, team="a") == ["run-2", "run-0"]
    assert found(journal, model="m2", state="error") == ["run-1"]
    assert found(journal, state="running") == ["run-3"]
    assert found(journal, cost_from=0.5, cost_to=0.5) == ["run-0"]
    assert found(journal, sort="cost") == ["run-1", "run-0", "run-3", "run-2"]
    began = journal.find("run-1").started
    assert found(journal, since=began) == ["run-3", "run-2", "run-1"]
    assert found(journal, before=began) == ["run-0"]
    assert journal.names("team") == ["a", "b", "c"]


def test_totals_are_those_of_all(journal: Journal) -> None:
    part = journal.listed(replace(ALL, state="ok", most=1))
    assert (len(part.rows), part.count, part.cost, part.seconds) == (1, 2, 0.5, 3.0)
    [row] = journal.listed(replace(ALL, run="run-0")).rows
    assert (row.name, row.task, row.state, row.cost, row.tasks, row.last) == ("a", "Count the ships.", "ok", 0.5, 1, "")


def test_words_that_are_searched(journal: Journal) -> None:
    assert journal.catch_up() == 0
    assert found(journal, text="ships") == ["run-1", "run-0"]
    assert found(journal, text="ship count") == []
    assert found(journal, text="count shi") == ["run-0"]
    assert found(journal, text='"the ships"') == ["run-0"]
    assert found(journal, text="数") == ["run-1"]
    [row] = journal.listed(replace(ALL, text="the", run="run-0")).rows
    before, word, behind = row.found
    assert (before, word, behind[:7], behind[-2:]) == ("Count ", "the", " ships.", "x…")


def test_a_search_has_no_other_meaning_than_its_words() -> None:
    assert match_of("a OR bcd") == '"a" "OR" "bcd"*'
    assert match_of('"a b" cd') == '"a b" "cd"'
    assert match_of(" ") == ""
    with pytest.raises(RequestError, match="no letter and no digit"):
        match_of("-*")
