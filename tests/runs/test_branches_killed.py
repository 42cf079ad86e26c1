"""Runs that are killed in the middle of branches, and resumed until they end."""

from __future__ import annotations

import pytest

from benchmarks.kills import not_killed, trial

TEAM = "branches.json"


@pytest.mark.slow
def test_a_run_that_was_killed_in_branches_ends_as_one_that_was_not() -> None:
    whole, requests, seconds = not_killed(TEAM)
    assert (whole["outcome"], set(whole["ran"]), requests) == ("ok", {"a", "1", "b2"}, 8)
    assert whole["answer"] == "The count is a-1-b2."
    for seed in range(3):
        assert trial(TEAM, seed, whole, requests, seconds) == ""
