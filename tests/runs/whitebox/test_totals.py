"""The time in which a run did something."""

from __future__ import annotations

from coderoom.runs.totals import covered


def test_what_ran_at_the_same_time_counts_once() -> None:
    assert covered([]) == 0
    assert covered([(0, 2), (1, 3), (1.5, 2), (5, 6), (6, 7)]) == 5
    assert covered([(-2, -1), (-1, -3)]) == 1
