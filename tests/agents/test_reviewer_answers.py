"""`ReviewerAgent`: what its model answers, in all shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, ValidationError

from coderoom.agents import RetryDecision, ReviewerAgent, ReviewIssue, ReviewVerdict
from tests.agents.helpers import (
    TASK,
    Client,
    FailingClient,
    attempt,
    context_of,
    review,
    text_of,
    turn,
    verdict,
    verdict_in,
)

YES, NO = verdict(True), verdict(False)


# --- Reading the model's answer ---

READABLE = {
    "alone": YES,
    "in a fence": f"```json\n{YES}\n```",
    "in prose": f"I looked at {{all}} of it.\n\n{YES}\n\nThat is all.",
    "spread over lines": json.dumps(json.loads(YES), indent=2),
    "with more keys": '{"approved": true, "issues": [], "summary": "Seen.", "confidence": 1}',
    "without issues": '{"approved": true, "summary": "Seen."}',
    "with null": '{"approved": true, "issues": null, "summary": "Seen."}',
    "said twice": f"{YES}\n\nOnce more:\n\n{YES}",
}


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize("shape", READABLE)
async def test_a_verdict_is_read_in_all_shapes(shape: str, structured: bool) -> None:
    found = await review(READABLE[shape], structured_output=structured)
    assert found == ReviewVerdict(approved=True, issues=[], summary="Seen.")


UNREADABLE = {
    "nothing": "",
    "prose": "Approved!",
    "cut": '{"approved": true, "issues": [',
    "no decision": '{"issues": [], "summary": "Fine."}',
    "neither yes nor no": '{"approved": "mostly", "issues": [], "summary": "Fine."}',
    "one level down": '{"verdict": {"approved": true, "issues": [], "summary": "Fine."}}',
    "issues of another type": '{"approved": true, "issues": "none", "summary": "Fine."}',
    "braces": "{" * 5000,
    "depth": '{"a":' * 5000,
    "two that differ": f"The code prints {YES}. My verdict: {NO}",
    "two that differ, the other way": f"{NO} is what it deserves, although it says {YES}",
}


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize("shape", UNREADABLE)
async def test_what_cannot_be_read_approves_nothing_and_is_shown(shape: str, structured: bool) -> None:
    reviewer = ReviewerAgent("reviewer", Client(UNREADABLE[shape], structured_output=structured))
    response = await turn(reviewer, TASK, attempt())
    assert verdict_in(response).approved is False
    assert f"It said: {UNREADABLE[shape].strip()[:50] or 'nothing.'}" in text_of(response)
    assert len(text_of(response)) < 2000


async def test_a_function_call_approves_nothing() -> None:
    call = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name="approve", arguments="{}")],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )
    assert (await review(call)).approved is False


async def test_a_client_that_cannot_parse_the_answer_approves_nothing() -> None:
    with pytest.raises(ValidationError) as caught:
        ReviewVerdict.model_validate_json("{")
    reviewer = ReviewerAgent("reviewer", FailingClient([0], error=caught.value, structured_output=True))
    assert verdict_in(await turn(reviewer, TASK, attempt())).approved is False


async def test_half_a_character_in_a_verdict_spoils_nothing() -> None:
    reply = '{"approved": true, "issues": ["cut \\ud83d"], "summary": "cut \\ud83d"}'
    reviewer = ReviewerAgent("reviewer", Client(reply))
    response = await turn(reviewer, TASK, attempt())
    response.chat_message.model_dump_json()
    for text in await context_of(reviewer):
        text.encode()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("error", "error"),
        ("ERROR ", "error"),
        ("Critical", "error"),
        ("blocker", "error"),
        ("high", "error"),
        ("warning", "warning"),
        ("medium", "warning"),
        ("hm", "warning"),
        (None, "warning"),
        (7, "warning"),
        ("note", "note"),
        ("Info", "note"),
        ("nit", "note"),
        ("low", "note"),
    ],
)
async def test_severities_of_all_kinds_are_read(given: object, read: str) -> None:
    found = await review(verdict(False, issues=[{"severity": given, "line": 1, "message": "It is wrong."}]))
    assert [(issue.severity, issue.line, issue.message) for issue in found.issues] == [(read, 1, "It is wrong.")]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (3, 3),
        ("3", 3),
        (" 12 ", 12),
        (None, None),
        ("12-14", None),
        ("", None),
        ([3], None),
        (1e400, None),
        (39217, None),
        (21, None),
        (20, 20),
        (0, None),
        (-3, None),
    ],
)
async def test_lines_of_all_kinds_are_read(given: object, read: int | None) -> None:
    reply = verdict(False, issues=[{"severity": "error", "line": given, "message": "It is wrong."}])
    written = attempt(
        content="Here is\n\nthe code.\n```python no-run\n" + "x += 1\n" * 20 + "```\n" + "It printed this.\n" * 9
    )
    found = await review(reply, TASK, written, attempt(content="1"))
    assert [issue.line for issue in found.issues] == [read]


@pytest.mark.parametrize("issue", ["It is wrong.", {"message": "It is wrong."}])
async def test_an_issue_may_be_but_a_sentence(issue: object) -> None:
    found = await review(verdict(False, issues=[issue]))
    assert found.issues == [ReviewIssue(severity="warning", line=None, message="It is wrong.")]


# --- The schemas of decisions ---


def objects_in(schema: Any) -> list[dict[str, Any]]:
    """Every object type in a JSON schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects_in(item)]
    if not isinstance(schema, dict):
        return []
    inner = [found for item in schema.values() for found in objects_in(item)]
    return [schema, *inner] if schema.get("type") == "object" else inner


@pytest.mark.parametrize("decision", [RetryDecision, ReviewVerdict])
def test_the_schema_fits_strict_structured_output(decision: type[BaseModel]) -> None:
    schema = decision.model_json_schema()
    found = objects_in(schema)
    assert found
    for described in found:
        assert set(described["required"]) == set(described["properties"])
        assert not any("default" in field for field in described["properties"].values())
    strict = to_strict_json_schema(decision)
    for described in objects_in(strict):
        assert described["additionalProperties"] is False
        described.pop("additionalProperties")
    assert strict == schema
