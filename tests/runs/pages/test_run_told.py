"""A run whose page is made further with each step: it is at each step the page that is made at once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from coderoom.runs import Journal, Step
from coderoom.runs.pages.run import run_page
from coderoom.runs.pages.run_told import ToldRun
from tests.runs.test_tree import MESSAGES, code, journal_of, ran


def test_a_page_that_is_told_further_is_the_page_that_is_told_at_once(tmp_path: Path) -> None:
    trees, tree = journal_of(tmp_path / "trees")
    steps = list(trees.steps(tree))
    trees.close()
    kinds = [
        *steps,
        *(Step(0, "message", "coder", "", 0.0, 0.0, None, each.model_dump(mode="json")) for each in MESSAGES),
    ]
    kinds += [
        steps[0],
        *(replace(steps[-1], result=each.model_dump(mode="json")) for each in (code("", "x"), ran("", "y"))),
    ]
    verdict = {"type": "TextMessage", "content": "Good.", "metadata": {"coderoom.approved": "true"}}
    words = {"type": "TextMessage", "content": "Words."}
    kinds += [replace(steps[-1], result=verdict), replace(steps[-1], actor="other", result=words)]
    undo = {"type": "Said", "kind": "undo", "text": "/undo", "first": 3}
    kinds += [replace(steps[0], kind="event", result=undo), *[replace(steps[-1], result=words)] * 50]

    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    told = ToldRun(journal.find(run), live=True)

    def is_the_same() -> bool:
        entry = journal.find(run)
        pages = (run_page(journal, entry, live=True, told=each) for each in (told, None))
        further, at_once = (re.sub("gone on for [^<]*", "", page) for page in pages)
        return further == at_once

    for number, step in enumerate(kinds, 1):
        journal.add(run, replace(step, number=number))
        assert is_the_same(), step
    assert "undone by the person" in run_page(journal, journal.find(run), live=True, told=told)
    # It has ended, and been written anew by another journal, as that of a worker in a cluster.
    journal.end(run, "ok", {"models": {"coder": "a-model"}})
    assert is_the_same()
    other = Journal(tmp_path / "other")
    other.put(journal.take(run))
    other.claim(run)
    other.add(run, replace(steps[0], number=len(kinds) + 1))
    other.end(run, "ok", {})
    journal.put(other.take(run))
    assert is_the_same()
    journal.close()
    other.close()
