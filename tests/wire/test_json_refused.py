"""A server with OpenAI's protocol that refuses `response_format` is asked for JSON in words."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from pydantic import BaseModel

from coderoom.agents import ApprovalRequest, ReviewerAgent, ReviewVerdict
from coderoom.approval import ModelApproval
from coderoom.configs import make_model
from coderoom.generation import AutoGenModel, Message
from coderoom.models import RateLimitedClient
from tests.support.openai_server import CONTEXT_LENGTH_EXCEEDED, Failure, OpenAIServer, Reply, Request, Step

REFUSED = Failure(400, message="'response_format' of type 'json_schema' is not supported by this model.")
APPROVED = ReviewVerdict(approved=True, issues=[], summary="Right.").model_dump_json()


class Decision(BaseModel):
    approved: bool
    reason: str = ""


def without_formats(answer: str, refusal: Step = REFUSED) -> Any:
    def respond(request: Request) -> Step:
        return refusal if "response_format" in request.body else Reply(answer)

    return respond


def formats(server: OpenAIServer) -> list[str | None]:
    return [(request.body.get("response_format") or {}).get("type") for request in server.requests]


async def review(client: Any) -> str:
    ran = {"coderoom.outcome": "ok", "coderoom.exit_code": "0"}
    messages = [
        TextMessage(content="Compute.", source="user"),
        TextMessage(content="It is 42.", source="coder", metadata=ran),
    ]
    response = await ReviewerAgent("reviewer", client).on_messages(messages, CancellationToken())
    return response.chat_message.metadata["coderoom.approved"]


@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
async def test_it_is_asked_in_words_and_remembered(status: int) -> None:
    refusal = Failure(status, retry_after=0.01, message="Unknown field response_format.")
    with OpenAIServer(respond=without_formats(APPROVED, refusal)) as server:
        client, another = (make_model(f"{server.base_url}#mine", env={}) for _ in range(2))
        assert await review(client) == "true"
        assert await review(RateLimitedClient(client, 60_000)) == "true"
        assert await review(another) == "true"
        await client.close()
        await another.close()
    # OpenAI's package itself repeats a request that fails at the server.
    tries = 1 if status < 500 else 3
    assert formats(server) == [*["json_schema"] * tries, None, None, None]
    first, *others = [json.dumps(request.messages) for request in server.requests[tries - 1 :]]
    assert "JSON schema" not in first
    assert all("JSON schema" in text for text in others)


async def test_other_askers_know_it_too() -> None:
    answer = json.dumps({"approved": True, "reason": "Harmless."})
    with OpenAIServer(respond=without_formats(answer)) as server:
        client = make_model(f"{server.base_url}#mine", env={})
        approval = ModelApproval(client)
        for _ in range(2):
            assert (await approval.decide(ApprovalRequest(code="print(1)", context=[]))).approved
        reply = await AutoGenModel(client, max_answer_tokens=9).complete([Message("user", "Well?")], Decision)
        await client.close()
    assert formats(server) == ["json_schema", None, None, None]
    assert json.loads(reply.text)["approved"] is True
    assert server.requests[-1].body["max_tokens"] == 9
    assert "JSON schema" in json.dumps(server.requests[-1].messages)


@pytest.mark.parametrize("max_answer_tokens", [None, 9])
async def test_the_generator_is_the_first_to_ask(max_answer_tokens: int | None) -> None:
    with OpenAIServer(respond=without_formats('{"approved": false}')) as server:
        client = make_model(f"{server.base_url}#mine", env={})
        model = AutoGenModel(client, max_answer_tokens=max_answer_tokens)
        replies = [await model.complete([Message("user", "Well?")], Decision) for _ in range(2)]
        await client.close()
    assert formats(server) == ["json_schema", None, None]
    assert [reply.text for reply in replies] == ['{"approved": false}'] * 2
    assert [request.body.get("max_tokens") for request in server.requests] == [max_answer_tokens] * 3


async def test_a_400_for_another_reason_is_raised() -> None:
    """Where a request without a format fails too, nothing is concluded, and the first error is raised."""
    steps: list[Step | str] = [
        CONTEXT_LENGTH_EXCEEDED,
        Failure(400, message="First."),
        Failure(400, message="Second."),
        APPROVED,
    ]
    with OpenAIServer(steps) as server:
        client = make_model(f"{server.base_url}#mine", env={})
        with pytest.raises(openai.BadRequestError, match="maximum context"):
            await review(client)
        with pytest.raises(openai.BadRequestError, match=r"First\."):
            await review(client)
        assert await review(client) == "true"
        await client.close()
    assert formats(server) == ["json_schema", "json_schema", None, "json_schema"]
