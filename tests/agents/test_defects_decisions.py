"""Whether to try again: CE3 to CE5, CE22, CE23."""

from __future__ import annotations

import pytest
from autogen_agentchat.messages import (
    CodeGenerationEvent,
    MultiModalMessage,
)
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.code_executor import CodeResult
from autogen_core.models import CreateResult, RequestUsage
from openai import ContentFilterFinishReasonError, LengthFinishReasonError
from openai.types.chat import ChatCompletion
from PIL import Image as Pictures

from coderoom.agents import RetryDecision, StopReason
from coderoom.errors import SandboxUnavailable
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    WORSE,
    Approver,
    BareExecutor,
    Client,
    FailingClient,
    MakeCoder,
    context_of,
    decide,
    facts_of,
    python,
    text_of,
    turn,
)

# --- CE3: the decision is a model call like every other ---


@pytest.mark.parametrize("structured", [True, False])
async def test_ce03_the_decision_is_made_with_system_message_and_token(structured: bool, coder: MakeCoder) -> None:
    client, token = Client(BAD, decide(False), "Sorry.", structured_output=structured), CancellationToken()
    agent = coder(client, max_retries_on_error=1, system_message="Be careful.")
    await turn(agent, TASK, token=token)
    assert [call.system for call in client.calls] == [["Be careful."]] * 3
    assert [call.token is token for call in client.calls] == [True] * 3


async def test_ce03_no_call_of_a_model_that_sees_nothing_has_pictures(coder: MakeCoder) -> None:
    client = Client(BAD, decide(False), "Sorry.")
    picture = Image(Pictures.new("RGB", (2, 2)))
    await turn(coder(client, max_retries_on_error=1), MultiModalMessage(content=[TASK, picture], source="user"))
    assert len(client.calls) == 3
    assert all("<image>" in text for call in client.calls for text in call.texts if TASK in text)
    assert not any(isinstance(message.content, list) for call in client.calls for message in call.messages)


async def test_ce03_every_call_of_a_model_that_sees_has_the_pictures(coder: MakeCoder) -> None:
    client = Client(BAD, decide(False), "Sorry.", vision=True)
    picture = Image(Pictures.new("RGB", (2, 2)))
    await turn(coder(client, max_retries_on_error=1), MultiModalMessage(content=[TASK, picture], source="user"))
    assert [sum(isinstance(message.content, list) for message in call.messages) for call in client.calls] == [1, 1, 1]


# --- CE4: the reason for a retry reaches the next attempt ---


async def test_ce04_the_next_attempt_is_told_the_reason(coder: MakeCoder) -> None:
    client = Client(BAD, decide(True, "the sign is wrong, turn it"), GOOD, "Done.")
    await turn(coder(client, max_retries_on_error=1), TASK)
    assert "the sign is wrong, turn it" in client.calls[2].texts[-1]


# --- CE5: a malformed decision is a no and no exception ---

MALFORMED = [
    "",
    "no idea",
    "{",
    "{}",
    "[]",
    "null",
    "true",
    "NaN",
    '{"retry": true',
    '{"retry": "perhaps", "reason": "x"}',
    '{"retry": null, "reason": "x"}',
    '{"retry": [true], "reason": "x"}',
    '{"reason": "x"}',
    '{"decision": {"retry": true, "reason": "x"}}',
    "{" * 5000,
    '{"a":' * 5000,
    '{"retry": ' + "9" * 5000 + ', "reason": "x"}',
]


@pytest.mark.parametrize("structured", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reply", MALFORMED)
async def test_ce05_a_malformed_decision_means_no(reply: str, structured: bool, coder: MakeCoder) -> None:
    client = Client(BAD, reply, "Sorry.", structured_output=structured)
    response = await turn(coder(client, max_retries_on_error=3), TASK)
    assert facts_of(response)["stop_reason"] == "not_retried"
    assert text_of(response).startswith("Sorry.")
    assert client.used_up


async def test_ce05_a_decision_that_is_a_function_call_means_no(coder: MakeCoder) -> None:
    call = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name="retry", arguments="{}")],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )
    response = await turn(coder(Client(BAD, call, "Sorry."), max_retries_on_error=3), TASK)
    assert facts_of(response)["stop_reason"] == "not_retried"


def errors_of_clients_that_parse() -> list[Exception]:
    """What AutoGen's OpenAI client lets through when the model's structured answer cannot be parsed."""
    completion = ChatCompletion(id="1", choices=[], created=0, model="m", object="chat.completion")
    found: list[Exception] = [LengthFinishReasonError(completion=completion), ContentFilterFinishReasonError()]
    try:
        RetryDecision.model_validate_json("{")
    except ValueError as error:
        found.append(error)
    return found


@pytest.mark.parametrize("error", errors_of_clients_that_parse(), ids=lambda error: type(error).__name__)
async def test_ce05_a_client_that_cannot_parse_the_decision_means_no(error: Exception, coder: MakeCoder) -> None:
    client = FailingClient([1], BAD, "Sorry.", error=error, structured_output=True)
    response = await turn(coder(client, max_retries_on_error=3), TASK)
    assert facts_of(response)["stop_reason"] == "not_retried"
    assert text_of(response).startswith("Sorry.")


async def test_ce05_a_dead_line_is_no_malformed_decision(coder: MakeCoder) -> None:
    client = FailingClient([1], BAD, error=ConnectionError("down"))
    with pytest.raises(ConnectionError, match="down"):
        await turn(coder(client, max_retries_on_error=3), TASK)


@pytest.mark.parametrize(
    "reply",
    [
        f"```json\n{decide(True)}\n```",
        f"Let me think {{about}} it.\n\n{decide(True)}\n\nGood luck!",
        '{"retry": true, "reason": "x", "confidence": 0.5}',
    ],
)
async def test_ce05_a_decision_in_prose_is_found(reply: str, coder: MakeCoder) -> None:
    response = await turn(coder(Client(BAD, reply, GOOD, "Done."), max_retries_on_error=1), TASK)
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("2", "ok")


async def test_ce05_half_a_character_in_a_decision_spoils_nothing(coder: MakeCoder) -> None:
    reason = '{"retry": true, "reason": "\\ud83d cut"}'
    agent = coder(Client(BAD, reason, GOOD, "Done."), max_retries_on_error=1)
    response = await turn(agent, TASK)
    for message in [*(response.inner_messages or []), response.chat_message]:
        message.model_dump_json()
    for text in await context_of(agent):
        text.encode()


# --- CE22: a decision is told apart from code ---


@pytest.mark.parametrize("retry", [True, False])
async def test_ce22_the_decision_can_be_told_apart(retry: bool, coder: MakeCoder) -> None:
    client = Client(BAD, decide(retry, "because"), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=1), TASK)
    events = [event for event in response.inner_messages or [] if isinstance(event, CodeGenerationEvent)]
    decisions = [event for event in events if event.metadata.get("coderoom.event") == "retry_decision"]
    assert [event.metadata["coderoom.retry"] for event in decisions] == [str(retry).lower()]
    assert "because" in decisions[0].content
    assert [bool(event.code_blocks) for event in events if event not in decisions] == [True] * (2 if retry else 1)


# --- CE23: no attempt that cannot help ---


async def test_ce23_the_same_code_failing_the_same_way_ends_the_turn(coder: MakeCoder) -> None:
    client = Client(BAD, decide(True), f"Perhaps so:\n{BAD}", "Sorry.", "never asked for")
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert (facts_of(response)["stop_reason"], facts_of(response)["attempts"]) == ("same_failure", "2")
    assert len(client.calls) == 4


async def test_ce23_a_failure_of_two_attempts_ago_counts_too(coder: MakeCoder) -> None:
    client = Client(BAD, decide(True), WORSE, decide(True), BAD, "Sorry.")
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert (facts_of(response)["stop_reason"], facts_of(response)["attempts"]) == ("same_failure", "3")


async def test_ce23_addresses_do_not_make_a_failure_another_one(coder: MakeCoder) -> None:
    code = python("import os, time\nraise ValueError(object(), time.time())")
    client = Client(code, decide(True), code, "Sorry.")
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert facts_of(response)["stop_reason"] == "same_failure"


async def test_ce23_the_same_failure_is_seen_in_an_output_that_was_cut(coder: MakeCoder) -> None:
    code = python("for number in range(2000):\n    print('line', number)\nraise ValueError('x')")
    client = Client(code, decide(True), code, "Sorry.")
    response = await turn(coder(client, max_retries_on_error=9, max_output_chars=500), TASK)
    assert facts_of(response)["stop_reason"] == "same_failure"


async def test_ce23_the_same_code_failing_in_another_way_may_go_on(coder: MakeCoder) -> None:
    code = python(
        "from pathlib import Path\n"
        "seen = Path('seen')\n"
        "count = int(seen.read_text()) if seen.exists() else 0\n"
        "seen.write_text(str(count + 1))\n"
        "if count < 2:\n"
        "    raise [ValueError, KeyError][count]"
    )
    client = Client(code, decide(True), code, decide(True), code, "Done.")
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("3", "ok")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (COBOL, "```ruby\nputs 42\n```"),
        ("```python\nprint(1)\nprint(", "```python\nprint(2)\nprint("),
    ],
    ids=["two unknown languages", "cut in two places"],
)
async def test_ce23_different_code_that_could_not_run_is_not_the_same_failure(
    first: str, second: str, coder: MakeCoder
) -> None:
    client = Client(first, decide(True), second, decide(True), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("3", "ok")


async def test_ce23_different_code_that_was_cut_beside_the_same_code_is_not_the_same_failure(coder: MakeCoder) -> None:
    first, second = (f"{GOOD}\n\n```python\nprint({number})\nprint(" for number in (1, 2))
    client = Client(first, decide(True), second, decide(True), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("3", "ok")


async def test_ce23_other_code_with_the_same_error_may_go_on(coder: MakeCoder) -> None:
    client = Client(
        python("exit(3)"),
        decide(True),
        python("import sys; sys.exit(3)"),
        decide(True),
        GOOD,
        "Done.",
    )
    response = await turn(coder(client, max_retries_on_error=9), TASK)
    assert facts_of(response)["attempts"] == "3"


async def test_ce23_a_rejection_without_a_reason_is_never_retried(coder: MakeCoder) -> None:
    approver, client = Approver(False, ""), Client(GOOD, decide(True), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=9, approval_func=approver), TASK)
    assert (facts_of(response)["stop_reason"], len(client.calls), len(approver.asked)) == ("rejected", 1, 1)


async def test_ce23_a_broken_sandbox_is_never_retried(coder: MakeCoder) -> None:
    executor, client = BareExecutor(OSError("no room"), CodeResult(0, "42")), Client(GOOD, decide(True), GOOD)
    with pytest.raises(SandboxUnavailable, match="no room"):
        await turn(coder(client, code_executor=executor, max_retries_on_error=9), TASK)
    assert (len(client.calls), len(executor.received)) == (1, 1)


async def test_ce23_attempts_end_with_the_retries(coder: MakeCoder) -> None:
    replies = [reply for number in range(3) for reply in (python(f"exit({number + 1})"), decide(True))]
    client = Client(*replies[:-1], "Sorry.")
    response = await turn(coder(client, max_retries_on_error=2), TASK)
    assert facts_of(response)["stop_reason"] == StopReason.RETRIES_EXHAUSTED
    assert client.used_up
