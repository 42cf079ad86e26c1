"""A turn with a model: CE2 to CE7, CE9, CE21 to CE23."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeGenerationEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
)
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.code_executor import CodeResult
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from openai import ContentFilterFinishReasonError, LengthFinishReasonError
from openai.types.chat import ChatCompletion
from PIL import Image as Pictures

from coderoom.agents import RetryDecision, StopReason
from coderoom.approval import NeverApprove
from coderoom.errors import SandboxUnavailable
from tests.agents.helpers import (
    BAD,
    GOOD,
    WORSE,
    Approver,
    BareExecutor,
    Client,
    FailingClient,
    HangingClient,
    MakeCoder,
    context_of,
    decide,
    facts_of,
    python,
    roles_of,
    stream,
    text_of,
    total,
    turn,
)

TASK = "Compute it."
RETRIED = (BAD, decide(True, "plan A"), WORSE, decide(True, "plan B"), GOOD, "All done.")


# --- CE2: a message enters the context once ---


async def test_ce02_the_task_is_in_the_context_once_however_many_attempts(coder: MakeCoder) -> None:
    client = Client(*RETRIED)
    agent = coder(client, max_retries_on_error=2)
    await turn(agent, TASK)
    assert (await context_of(agent)).count(TASK) == 1
    assert [call.texts.count(TASK) for call in client.calls] == [1] * 6


async def test_ce02_what_a_handoff_brings_along_is_in_the_context_once(coder: MakeCoder) -> None:
    earlier = UserMessage(content="said before", source="user")
    handoff = HandoffMessage(content=TASK, source="planner", target="coder", context=[earlier])
    agent = coder(Client(*RETRIED), max_retries_on_error=2)
    await turn(agent, handoff)
    context = await context_of(agent)
    assert context[:2] == ["said before", TASK]
    assert (context.count("said before"), context.count(TASK)) == (1, 1)


async def test_ce02_the_context_is_the_turn_and_nothing_else(coder: MakeCoder) -> None:
    agent = coder(Client(*RETRIED), max_retries_on_error=2)
    await turn(agent, TASK)
    context = await context_of(agent)
    assert [text for text, role in zip(context, await roles_of(agent), strict=True) if role == "model"] == [
        BAD,
        WORSE,
        GOOD,
        "All done.",
    ]
    assert await roles_of(agent) == ["user", "model", "user", "user", "model", "user", "user", "model", "user", "model"]
    failure, plan, second_failure, second_plan, output = (context[i] for i in (2, 3, 5, 6, 8))
    assert "ValueError: first" in failure
    assert "plan A" in plan
    assert "KeyError: 'second'" in second_failure
    assert "plan B" in second_plan
    assert output == "42\n"


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


@pytest.mark.parametrize("structured", [True, False])
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


# --- CE6: all tokens are counted ---

PATHS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain answer": (("It is 42.",), {}),
    "success": ((GOOD, "Done."), {}),
    "success without summary": ((GOOD,), {"reflect": False}),
    "retries": (RETRIED, {"max_retries_on_error": 2}),
    "retries exhausted": ((BAD, decide(True), WORSE, "Sorry."), {"max_retries_on_error": 1}),
    "no retries": ((BAD, "Sorry."), {}),
    "decided against": ((BAD, decide(False), "Sorry."), {"max_retries_on_error": 2}),
    "decided against, without summary": ((BAD, decide(False)), {"max_retries_on_error": 2, "reflect": False}),
    "decision unreadable": ((BAD, "what?", "Sorry."), {"max_retries_on_error": 2}),
    "same failure": ((BAD, decide(True), BAD, "Sorry."), {"max_retries_on_error": 2}),
    "rejected": ((GOOD,), {"approval_func": NeverApprove()}),
    "plain answer after a failure": ((BAD, decide(True), "I give up."), {"max_retries_on_error": 2}),
    "nothing that can run": (("```cobol\nSTOP RUN.\n```", "Sorry."), {}),
}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
@pytest.mark.parametrize("path", PATHS)
async def test_ce06_the_messages_account_for_all_tokens(path: str, streaming: bool, coder: MakeCoder) -> None:
    replies, arguments = PATHS[path]
    client = Client(*replies)
    result = await coder(client, model_client_stream=streaming, **arguments).run(task=TASK)
    assert client.used_up
    assert client.total_usage().prompt_tokens > 0
    assert total(result.messages) == client.total_usage()


# --- CE7: what happened is in the result, not only in the stream ---


def kinds(messages: list[BaseAgentEvent | BaseChatMessage]) -> list[str]:
    return [type(message).__name__.removesuffix("Event").removesuffix("Message") for message in messages]


async def test_ce07_run_returns_the_events(coder: MakeCoder) -> None:
    result = await coder(Client(BAD, decide(True), GOOD, "Done."), max_retries_on_error=1).run(task=TASK)
    assert kinds(list(result.messages)) == [
        "Text",
        "CodeGeneration",
        "CodeExecution",
        "CodeGeneration",
        "CodeGeneration",
        "CodeExecution",
        "Text",
    ]


async def test_ce07_the_inner_messages_are_what_was_streamed(coder: MakeCoder) -> None:
    client = Client(BAD, decide(True), GOOD, "Done.")
    items = await stream(coder(client, max_retries_on_error=1, model_client_stream=True), TASK)
    response = items[-1]
    assert isinstance(response, Response)
    assert response.inner_messages == [
        item for item in items[:-1] if not isinstance(item, ModelClientStreamingChunkEvent)
    ]
    assert len(response.inner_messages) == 5


async def test_ce07_a_plain_answer_after_a_failure_comes_with_the_events(coder: MakeCoder) -> None:
    response = await turn(coder(Client(BAD, decide(True), "I give up."), max_retries_on_error=1), TASK)
    assert kinds(list(response.inner_messages or [])) == ["CodeGeneration", "CodeExecution", "CodeGeneration"]


# --- CE9: the summing up ---


async def test_ce09_the_summing_up_gets_the_token(coder: MakeCoder) -> None:
    client, token = Client(GOOD, "Done."), CancellationToken()
    await turn(coder(client), TASK, token=token)
    assert [call.token is token for call in client.calls] == [True, True]


@pytest.mark.parametrize("streaming", [False, True])
async def test_ce09_the_summing_up_ends_with_the_token(streaming: bool, coder: MakeCoder) -> None:
    client, token = HangingClient(1, GOOD), CancellationToken()
    running = asyncio.create_task(turn(coder(client, model_client_stream=streaming), TASK, token=token))
    await client.hangs.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [(call.streamed, call.token is None) for call in client.calls] == [(streaming, False)] * 2


async def test_ce09_it_can_be_switched_off(coder: MakeCoder) -> None:
    client = Client(GOOD, "never asked for")
    response = await turn(coder(client, reflect=False), TASK)
    assert len(client.calls) == 1
    assert "print(6 * 7)" in text_of(response)
    assert "\n42\n" in text_of(response)
    assert "exit code 0" in text_of(response)


@pytest.mark.parametrize(
    ("replies", "retries", "told"),
    [
        ((BAD, "Sorry."), 0, "none was allowed"),
        ((BAD, decide(True), WORSE, "Sorry."), 1, "no attempts are left"),
        ((BAD, decide(True), BAD, "Sorry."), 5, "the same code failed in the same way"),
        ((BAD, decide(False), "Sorry."), 5, "decided not to try again"),
    ],
)
async def test_ce09_it_is_told_why_there_is_no_further_attempt(
    replies: tuple[str, ...], retries: int, told: str, coder: MakeCoder
) -> None:
    client = Client(*replies)
    agent = coder(client, max_retries_on_error=retries)
    await turn(agent, TASK)
    hint = client.calls[-1].texts[-1]
    assert told in hint
    assert "exit code 1" in hint
    assert hint not in await context_of(agent)


async def test_ce09_after_a_success_it_is_told_nothing(coder: MakeCoder) -> None:
    client = Client(GOOD, "Done.")
    await turn(coder(client), TASK)
    assert client.calls[-1].texts[-1] == "42\n"


@pytest.mark.parametrize(
    ("replies", "retries", "facts"),
    [
        ((GOOD, "Done."), 0, ("ok", "0", "1", "succeeded")),
        ((BAD, decide(True), GOOD, "Done."), 1, ("ok", "0", "2", "succeeded")),
        ((python("exit(7)"), "It went very well."), 0, ("error", "7", "1", "failed")),
        ((BAD, decide(False), "It went very well."), 1, ("error", "1", "1", "not_retried")),
    ],
)
async def test_ce09_programs_are_told_how_it_ended(
    replies: tuple[str, ...], retries: int, facts: tuple[str, ...], coder: MakeCoder
) -> None:
    response = await turn(coder(Client(*replies), max_retries_on_error=retries), TASK)
    found = facts_of(response)
    assert (found["outcome"], found["exit_code"], found["attempts"], found["stop_reason"]) == facts
    assert TextMessage.model_validate_json(response.chat_message.model_dump_json()).metadata == (
        response.chat_message.metadata
    )


# --- CE21: chunks know the message that they become ---


async def test_ce21_chunks_carry_the_id_of_their_message(coder: MakeCoder) -> None:
    client = Client(f"Here it comes:\n{BAD}", decide(True), f"Once more:\n{GOOD}", "All is done now.")
    items = await stream(coder(client, max_retries_on_error=1, model_client_stream=True), TASK)
    chunks: dict[str | None, str] = {}
    whole: dict[str | None, str] = {}
    for item in items:
        if isinstance(item, ModelClientStreamingChunkEvent):
            chunks[item.full_message_id] = chunks.get(item.full_message_id, "") + item.content
        elif isinstance(item, CodeGenerationEvent) and item.code_blocks:
            whole[item.id] = item.content
        elif isinstance(item, Response):
            whole[item.chat_message.id] = facts_of(item)["summary"]
    assert len(whole) == 3
    # The replay client cuts a text at its white space.
    assert {key: text.split() for key, text in chunks.items()} == {key: text.split() for key, text in whole.items()}


async def test_ce21_chunks_of_a_plain_answer_carry_its_id(coder: MakeCoder) -> None:
    items = await stream(coder(Client("It is 42."), model_client_stream=True), TASK)
    response = items[-1]
    assert isinstance(response, Response)
    ids = [item.full_message_id for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    assert ids == [response.chat_message.id] * 3


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
        ("```cobol\nSTOP RUN.\n```", "```ruby\nputs 42\n```"),
        ("```python\nprint(1)\n", "Shorter:\n```python\nprint(2)\n"),
    ],
    ids=["two unknown languages", "cut in two places"],
)
async def test_ce23_different_code_that_could_not_run_is_not_the_same_failure(
    first: str, second: str, coder: MakeCoder
) -> None:
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


async def test_ce23_a_rejection_is_never_retried(coder: MakeCoder) -> None:
    approver, client = Approver(False), Client(GOOD, decide(True), GOOD, "Done.")
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
