"""What a model is told of an attempt, and when a turn has no further one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.agents.attempt import EDITED, Attempt, LimitedTurn, Turn, calls_made, refused
from coderoom.agents.metadata import StopReason
from coderoom.agents.selection import Selection
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, FunctionCall

PAY = FunctionCall("pay", {"amount": 5}, Outcome.OK, 0.1)
LOOK = replace(PAY, name="look", reads=True)


def attempt(outcome: Outcome = Outcome.OK, code: str = "1", number: int = 1, **facts: Any) -> Attempt:
    selection = Selection((CodeBlock(code=code, language="python"),) if code else (), facts.pop("notes", ()))
    return Attempt(outcome, int(outcome is not Outcome.OK), number=number, selection=selection, **facts)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (attempt(output="42\n"), "42\n"),
        (attempt(output=" "), "The script ran but produced no output to console."),
        (attempt(Outcome.ERROR, output="no"), "exited with an error (POSIX exit code: 1)\nIts output was:\nno"),
        (attempt(Outcome.ERROR), "Its output was:\n(nothing)"),
        (attempt(Outcome.TIMEOUT), "The script took too long and was stopped."),
        (attempt(Outcome.MEMORY), "wanted more memory"),
        (attempt(Outcome.CANCELLED), "was stopped from outside"),
        (attempt(Outcome.ERROR, incomplete=True), "Only the complete blocks were run."),
        (attempt(Outcome.REJECTED, "", notes=("It is cut.",)), "Nothing was run.\n\nIt is cut."),
        (attempt(Outcome.ERROR, stopped_by_check=True, output="line 1: a typo"), "line 1: a typo"),
        (attempt(Outcome.ERROR, calls=(PAY, LOOK)), "are not undone:\n- pay(amount=5): ok"),
        (
            attempt(calls=(replace(PAY, edited=True),)),
            "other arguments than the code gave:\n- pay(amount=5), as it was",
        ),
        (
            attempt(artifacts=(Artifact("a.csv", 1200, "text/csv"),)),
            "Files made or changed: a.csv (text/csv, 1,200 bytes)",
        ),
        (attempt(edited=True), f"{EDITED}\n\n```python no-run\n1\n```\n\nThe script ran"),
    ],
)
def test_what_happened_in_words(made: Attempt, words: str) -> None:
    assert words in made.describe()


def test_calls_that_are_left() -> None:
    assert attempt(calls=(PAY,)).calls_left == ()
    assert attempt(Outcome.ERROR, calls=(PAY, LOOK)).calls_left == (PAY,)
    assert attempt(Outcome.ERROR, calls=(PAY,), not_undone=()).calls_left == ()
    assert calls_made([PAY] * 20).count("- pay") == 20
    assert calls_made([PAY] * 22).endswith("- and 2 more")


def test_a_refusal() -> None:
    made = refused(2, attempt().selection, "not\nnow")
    assert (made.ran, made.is_final, made.exit_code, made.code_result.output) == (False, True, 1, "not\nnow")
    assert made.describe().endswith("Reason: \n```text no-run\nnot\nnow\n```")
    assert refused(2, made.selection, "no").refusal == "Code execution was not approved. Reason: no"
    assert [each.ran for each in (attempt(), attempt(code=""), attempt(stopped_by_check=True))] == [True, False, False]


def test_the_same_failure_has_the_same_fingerprint() -> None:
    one = attempt(Outcome.ERROR, output="at 0x7f in <cell 1>: 0.25 s", output_file=Path("a-1.txt"))
    assert attempt().failure is None
    assert one.failure == replace(one, output="at 0x80 in <cell 2>: 1.5 s ").failure
    assert one.failure == replace(one, output=f"{one.output} a-1.txt", number=3).failure
    for other in (replace(one, output="at"), replace(one, exit_code=2), attempt(Outcome.ERROR, "2", output=one.output)):
        assert other.failure != one.failure


def turn_of(*attempts: Attempt, **limits: Any) -> LimitedTurn:
    return LimitedTurn(CancellationToken(), [*attempts], **limits)


BAD, OTHER = attempt(Outcome.ERROR, output="a"), attempt(Outcome.ERROR, output="b")
FINAL = refused(1, attempt().selection, "no")
AGAIN = refused(1, attempt().selection, "no", is_final=False)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (turn_of(), None),
        (turn_of(BAD, OTHER), None),
        (turn_of(BAD, OTHER, BAD), StopReason.SAME_FAILURE),
        (turn_of(FINAL), StopReason.REJECTED),
        (turn_of(AGAIN), None),
        (turn_of(AGAIN, AGAIN), StopReason.REJECTED),
        (turn_of(AGAIN, refused(2, attempt(code="2").selection, "no", is_final=False)), None),
        (turn_of(attempt(Outcome.CANCELLED)), StopReason.CANCELLED),
        (turn_of(attempt(), attempt()), None),
        (turn_of(attempt(), attempt(), attempt()), StopReason.SAME_RESULT),
        (turn_of(attempt(), attempt(output="x"), attempt()), None),
        (turn_of(BAD, OTHER, max_steps=2), StopReason.MAX_STEPS),
        (turn_of(BAD, AGAIN, max_steps=2), StopReason.REJECTED),
        (turn_of(BAD, max_tokens=10, tokens=9), None),
        (turn_of(BAD, max_tokens=10, tokens=10), StopReason.MAX_TOKENS),
        (turn_of(late=True), StopReason.MAX_SECONDS),
    ],
)
def test_why_there_is_no_further_step(turn: LimitedTurn, reason: StopReason | None) -> None:
    assert turn.stop_reason is reason


def test_the_last_attempt_stands_for_the_turn(tmp_path: Path) -> None:
    plain = Turn(CancellationToken())
    assert (plain.number, plain.whole, plain.was_refused) == (1, None, False)
    there, gone = Artifact("a", 1, "", tmp_path), Artifact("b", 1, "", tmp_path / "none")
    undone = attempt(Outcome.ERROR, artifacts=(Artifact("c", 1, ""),), undone=True, calls=(PAY,))
    turn = turn_of(attempt(artifacts=(there, gone)), undone, attempt(number=3, output="x"))
    assert turn.whole is not None
    assert (turn.number, turn.whole.number, turn.whole.artifacts, turn.whole.calls_left) == (4, 3, (there,), (PAY,))
    assert turn.known_texts == ["1", "1", "1", "", "", "x"]
    turn.end_late()
    assert turn.token.is_cancelled()
