"""Answers of several codes that shared a process, each of which may have forged its own."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.judge.answering import Answers, read_answers

GOOD = [["1", "2"], 0.5]


@pytest.mark.parametrize("bad", [None, [], [["1", 2], 0.5], [["1"], 1], ["1", 0.5], [["1"], 0.5, 1]])
def test_what_cannot_be_used_takes_no_place_of_another(bad: Any) -> None:
    assert read_answers([GOOD, bad, GOOD]) == [Answers(["1", "2"], 0.5), None, Answers(["1", "2"], 0.5)]


def test_without_a_list_there_are_no_answers() -> None:
    assert read_answers({"0": GOOD}) == read_answers(None) == []
