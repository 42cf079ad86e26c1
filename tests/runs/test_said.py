"""What a person says besides tasks, as the journal keeps it."""

from __future__ import annotations

from coderoom.runs.journal import EVENT, TASK, Step
from coderoom.runs.said import Said, not_heard_in, said_in


def test_words_that_were_given_back_are_read_again() -> None:
    """An event without a text must not end whatever reads the run: the chat, its page, its export."""
    told = [Said("told", "Use pathlib."), Said("told")]
    events = [("task", TASK, {"task": "Go on."}), *(("", EVENT, said.to_json()) for said in told)]
    steps = [Step(number, kind, "", key, 0.0, 0.0, {}, result) for number, (key, kind, result) in enumerate(events, 1)]
    assert said_in(steps) == [Said("task", "Go on."), *told]
    assert not_heard_in(steps[:2]) == ["Use pathlib."]
    assert not_heard_in(steps) == []
