"""A turn with a model: CE2, CE6, CE7, CE9, CE21."""

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
    TextMessage,
)
from autogen_core import CancellationToken
from autogen_core.models import UserMessage

from coderoom.approval import NeverApprove
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    WORSE,
    Client,
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
    "nothing that can run": ((COBOL, "Sorry."), {}),
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
        ((BAD, "Sorry."), 0, "none is allowed"),
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
