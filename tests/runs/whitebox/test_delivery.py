"""What a commit of `fix` says."""

from __future__ import annotations

from coderoom.runs.delivery import message_of


def test_a_commit_has_a_short_title_and_the_verdict() -> None:
    assert message_of("", "The sum is wrong", "2 of 2 tests pass.") == "Fix: The sum is wrong\n\n2 of 2 tests pass.\n"
    assert message_of("One.\n\nMore\0.\n", "", "Passed.") == "One.\n\nMore.\n\nPassed.\n"
    long = "word " * 15 + "end"
    title, *rest = message_of(long, "", "Passed.").splitlines()
    assert title == "word " * 13 + "word…"
    assert len(title) <= 72
    assert rest == ["", long, "", "Passed."]
    exact = "x" * 72
    assert message_of(exact, "", "") == f"{exact}\n"
