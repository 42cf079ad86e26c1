"""The report at the end of a turn, for other agents, and its facts, for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from autogen_core.code_executor import CodeBlock
from autogen_core.models import CreateResult, RequestUsage

from coderoom.agents import metadata as keys
from coderoom.agents.attempt import (
    EDITED,
    Attempt,
    code_event,
    edited_event,
    execution_event,
    facts,
    final_message,
    refused,
    report,
)
from coderoom.agents.metadata import StopReason
from coderoom.agents.selection import Selection
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, FunctionCall

CODE = (CodeBlock(code="print(1)", language="python"),)
GOOD = Attempt(Outcome.OK, 0, number=2, selection=Selection(CODE, ("It is cut.",)), output="1")
BAD = replace(GOOD, outcome=Outcome.ERROR, exit_code=3)


def test_a_report() -> None:
    assert report(" Done. ", GOOD) == (
        "Done.\n\nAttempt 2: ok, exit code 0.\n\n```python no-run\nprint(1)\n```\n\n"
        "Output:\n\n```text no-run\n1\n```\n\nIt is cut."
    )
    assert report("```python\nx", GOOD).startswith("````text no-run\n```python\nx\n````\n\nAttempt 2")
    assert "Output:" not in report("", replace(GOOD, output=" "))
    assert report("", replace(GOOD, edited=True)).split("\n\n")[1] == EDITED
    assert "What was found:" in report("", replace(BAD, stopped_by_check=True))
    assert "Attempt 2 was not run. Code execution was not approved. Reason: no\n" in report(
        "", refused(2, GOOD.selection, "no")
    )
    shown = report("", replace(GOOD, artifacts=(Artifact("a b.csv", 1, "text/csv"), Artifact("c", 1, ""))))
    assert "Files: a b.csv, c" in shown
    call = FunctionCall("pay", {}, Outcome.OK, 0.1)
    assert "Code that failed has made these calls" in report("", replace(BAD, calls=(call,)))
    assert "these calls" not in report("", replace(GOOD, calls=(call,)))


def test_facts_of_an_attempt() -> None:
    assert facts(GOOD) == {keys.OUTCOME: "ok", keys.EXIT_CODE: "0", keys.RAN: "true", keys.ATTEMPTS: "2"}
    artifact = Artifact("a", 1, "text/csv", Path("/a"))
    found = facts(replace(BAD, edited=True, artifacts=(artifact,), output_file=Path("/out")), StopReason.MAX_STEPS)
    assert (found[keys.EDITED_CODE], found[keys.STOP_REASON]) == ("true", StopReason.MAX_STEPS.value)
    assert (found[keys.FAILURE], found[keys.OUTPUT_FILE]) == (BAD.failure, "/out")
    assert json.loads(found[keys.ARTIFACTS]) == [{"name": "a", "media_type": "text/csv", "path": "/a"}]
    assert facts(replace(BAD, stopped_by_check=True))[keys.CHECKED] == "failed"


def test_events() -> None:
    reply = answer("Code.")
    assert code_event("a", "1", reply, 2, CODE).retry_attempt == 1
    edited = edited_event("a", GOOD)
    assert (edited.retry_attempt, edited.metadata, edited.content[: len(EDITED)]) == (
        1,
        {keys.EVENT: keys.EDITED},
        EDITED,
    )
    calls = tuple(FunctionCall("pay", {"n": n}, Outcome.OK, 0.1) for n in range(21))
    event = execution_event("a", replace(GOOD, calls=calls))
    assert (event.retry_attempt, event.result.output, len(json.loads(event.metadata[keys.CALLS]))) == (1, "1", 20)
    assert keys.CALLS not in execution_event("a", GOOD).metadata


def answer(text: str, reason: Literal["stop", "length"] = "stop") -> CreateResult:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=2)
    return CreateResult(finish_reason=reason, content=text, usage=usage, cached=False)


@pytest.mark.parametrize(
    ("reply", "attempt", "content", "metadata"),
    [
        (answer("Hi."), None, "Hi.", {keys.STOP_REASON: "no_code"}),
        (None, None, "Nothing to do.", {keys.STOP_REASON: "no_code"}),
        (answer(" "), None, keys.EMPTY_REPLY, {keys.STOP_REASON: "no_code"}),
        (answer("Hi. ", "length"), None, "Hi.\n\n(The model's reply is incomplete: ", {keys.CUT: "length"}),
        (answer("Hi."), GOOD, "Hi.\n\nAttempt 2: ok", {keys.SUMMARY: "Hi.", keys.OUTCOME: "ok"}),
        (None, BAD, "Nothing to do.\n\nAttempt 2: error", {keys.SUMMARY: "", keys.EXIT_CODE: "3"}),
    ],
)
def test_the_last_message(reply: Any, attempt: Attempt | None, content: str, metadata: dict[str, str]) -> None:
    message = final_message("a", "1", reply, attempt, otherwise="Nothing to do.")
    assert message.content.startswith(content)
    assert metadata.items() <= message.metadata.items()
    assert (keys.CUT in message.metadata) == (keys.CUT in metadata)
    assert (message.models_usage is None) == (reply is None)
