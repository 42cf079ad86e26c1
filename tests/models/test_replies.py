"""Replies that end too early, refusals in place of replies, and services that refuse to stream as asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from coderoom.agents import CodeActAgent, ReviewerAgent
from coderoom.errors import ModelError
from coderoom.generation import AutoGenModel, Message, OpenAIModel
from coderoom.runs import execute_code
from tests.support.openai_server import Failure, OpenAIServer, Raw, Reply, Request, Step

ANSWER = "The square is 16."


def stream_of(*pieces: str, end: str | None = None, done: bool = False) -> bytes:
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if end:
        choices.append({"index": 0, "delta": {}, "finish_reason": end})
    chunks = [
        {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        for choice in choices
    ]
    lines = [*map(json.dumps, chunks), *(["[DONE]"] if done else [])]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def plain() -> bytes:
    message = {"role": "assistant", "content": ANSWER}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    ).encode()


def client_of(server: OpenAIServer, **options: Any) -> OpenAIChatCompletionClient:
    info: Any = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True}
    options = {"max_retries": 0, "model_info": {**info, "family": "unknown"}, **options}
    return OpenAIChatCompletionClient(model="m", api_key="test", base_url=server.base_url, **options)


def events(body: bytes) -> Raw:
    return Raw(body, content_type="text/event-stream")


def numbered(cases: Sequence[Step], slow: set[int]) -> list[Any]:
    """Cases by their numbers; some that are like others belong to the full run."""
    return [
        pytest.param(case, id=str(number), marks=pytest.mark.slow if number in slow else ())
        for number, case in enumerate(cases)
    ]


CUT_STREAMS = [
    events(b""),
    events(stream_of("The square is 1")),
    events(stream_of("The square", ' is: "finish_reason": "stop"\ndata: [DONE]\n')),
    events(stream_of("The square is 1") + b'data: {"id": "1", "cho'),
    events(stream_of("The square is 1", end="abort", done=True)),
    Raw(stream_of("The square is 1"), content_type="text/plain"),
    Raw(b"upstream connect error", content_type="text/plain"),
    events(b"<html>Sign in</html>"),
    events(plain()[:-2]),
    Raw(b'{"error": "The provider is gone."}'),
    Raw(b"null"),
    events(stream_of("The") + b'data: {"error": {"message": "The engine died."}}\n\n'),
    events(stream_of("The") + b'event: error\ndata: {"message": "The engine died.", "object": "error"}\n\n'),
    events(stream_of("The") + b"event: error\ndata: The engine died.\n\ndata: [DONE]\n\n"),
    events(b"data: [DONE]\n\n"),
    events(b'data: {"id": "1", "model": "m", "choices": []}\n\ndata: [DONE]\n\n'),
]
CUT_REPLIES = [
    Raw(b""),
    Raw(plain()[:-2]),
    Raw(plain()[:60]),
    Raw(plain().replace(b'"stop"', b'"abort"')),
    Raw(b'{"error": {"message": "The provider is gone.", "code": 502}}'),
    Raw(b'{"id": "1", "model": "m", "choices": []}'),
    Raw(b'{"id": "1", "model": "m", "choices": [{"index": 0, "message": null}]}'),
    Raw(b"<html>Sign in</html>", content_type="text/html"),
    Raw(b"<html>Sign in</html>"),
    Raw(b"Ollama is running", content_type="text/plain"),
    events(stream_of(ANSWER, end="stop", done=True)),
]


@pytest.mark.parametrize("cut", numbered(CUT_STREAMS, slow={6, 7, 8, 10}))
async def test_a_stream_that_is_cut_is_asked_for_again_and_then_an_error(cut: Step) -> None:
    with OpenAIServer([cut, ANSWER, *[cut] * 20]) as server:
        client = client_of(server, max_retries=1)
        agent = CodeActAgent("coder", client, model_client_stream=True)
        items = [item async for item in agent.run_stream(task="What is 4 squared?")]
        assert items[-1].messages[-1].to_text() == ANSWER  # type: ignore[union-attr]
        said = "".join(item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent))
        assert said.endswith(ANSWER)
        assert said == ANSWER or "(The connection broke. The reply begins again.)" in said
        with pytest.raises(openai.APIError):
            await agent.run(task="Again.")
        assert len(server.requests) < 10  # The library of the service asks again, too.
        await agent.close()
        await client.close()


@pytest.mark.parametrize("cut", numbered(CUT_REPLIES, slow={2, 6, 8, 9}))
async def test_a_reply_that_is_cut_is_an_error_of_the_service_for_all(cut: Step) -> None:
    with OpenAIServer([cut] * 4) as server:
        client = client_of(server)
        with pytest.raises(openai.APIError):
            await CodeActAgent("coder", client).run(task="What is 4 squared?")
        with pytest.raises(openai.APIError):
            await ReviewerAgent("reviewer", client).run(task="Is 16 right?")
        with pytest.raises(ModelError, match=r"APIConnectionError: .* closed the connection|InternalServerError"):
            await execute_code("What is 4 squared?", model=client)
        own = OpenAIModel("m", base_url=server.base_url)
        with pytest.raises(openai.APIError):
            await own.complete([Message("user", "What is 4 squared?")])
        await own.close()
        await client.close()


@pytest.mark.parametrize("body", [stream_of(ANSWER, end="stop"), stream_of(ANSWER, done=True)])
async def test_one_sign_of_the_end_is_enough(body: bytes) -> None:
    with OpenAIServer([events(body)]) as server:
        client = client_of(server)
        agent = CodeActAgent("coder", client, model_client_stream=True)
        assert (await agent.run(task="What is 4 squared?")).messages[-1].to_text() == ANSWER
        await client.close()


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream"])
async def test_a_whole_reply_to_a_request_for_a_stream(kind: str) -> None:
    function = {"name": "add", "arguments": "{}"}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "7", "type": "function", "function": function}],
    }
    calls = json.loads(plain())
    calls["choices"][0] |= {"message": message, "finish_reason": "tool_calls"}
    calls["usage"] = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    texts = plain().replace(json.dumps(ANSWER).encode(), json.dumps([{"type": "text", "text": ANSWER}]).encode())
    with OpenAIServer(
        [Raw(body, content_type=kind) for body in (plain(), texts, json.dumps(calls).encode())]
    ) as server:
        client = client_of(server)
        agent = CodeActAgent("coder", client, model_client_stream=True)
        for _ in range(2):
            assert (await agent.run(task="What is 4 squared?")).messages[-1].to_text() == ANSWER
        question = [UserMessage(content="Add.", source="user")]
        result = [item async for item in client.create_stream(question, include_usage=True)][-1]
        assert isinstance(result, CreateResult)
        assert result.content == [FunctionCall(id="7", name="add", arguments="{}")]
        assert result.usage.completion_tokens == 4
        await client.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refusal_is_the_answer(streamed: bool) -> None:
    with OpenAIServer([Reply("", refusal="I cannot help with that.")] * 2) as server:
        client = client_of(server)
        agent = CodeActAgent("coder", client, model_client_stream=streamed)
        assert (await agent.run(task="Do it.")).messages[-1].to_text() == "I cannot help with that."
        reply = await AutoGenModel(client).complete([Message("user", "Do it.")])
        assert reply.text == "I cannot help with that."
        await client.close()


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_service_that_does_not_count_the_tokens_of_a_stream(status: int) -> None:
    def respond(request: Request) -> Step:
        refused = "stream_options" in request.body
        return Failure(status, message="Unknown field stream_options.") if refused else Reply(ANSWER)

    with OpenAIServer(respond=respond) as server:
        client = client_of(server)
        agent = CodeActAgent("coder", client, model_client_stream=True)
        for _ in range(2):
            assert (await agent.run(task="What is 4 squared?")).messages[-1].to_text() == ANSWER
        await client.close()
    assert ["stream_options" in request.body for request in server.requests] == [True, False, False]


async def test_a_service_that_does_not_stream() -> None:
    def respond(request: Request) -> Step:
        return Failure(400, message="stream=true is not supported.") if request.streamed else Reply(ANSWER)

    with OpenAIServer(respond=respond) as server:
        client = client_of(server)
        agent = CodeActAgent("coder", client, model_client_stream=True)
        assert (await agent.run(task="What is 4 squared?")).messages[-1].to_text() == ANSWER
        await client.close()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("reason", "said"), [("length", "token limit"), ("content_filter", "content filter")])
async def test_an_incomplete_answer_says_so(reason: str, said: str, streamed: bool) -> None:
    with OpenAIServer([Reply("The square is 1", finish_reason=reason)] * 3) as server:
        client = client_of(server)
        agent = CodeActAgent("coder", client, model_client_stream=streamed)
        answer = (await agent.run(task="What is 4 squared?")).messages[-1]
        assert answer.to_text().startswith("The square is 1\n\n(The model's reply is incomplete:")
        assert said in answer.to_text()
        assert answer.metadata["coderoom.cut"] == reason
        assert said.split()[0] in str((await execute_code("What is 4 squared?", model=client))["error"])
        await client.close()


async def test_an_answer_at_its_limit_says_so() -> None:
    with OpenAIServer([Reply("I think that", finish_reason="length")] * 3) as server:
        client = client_of(server)
        result = await execute_code("What is 4 squared?", model=client)
        assert "cut off before the end of its code" in str(result["error"])
        reviewed = await ReviewerAgent("reviewer", client).run(task="Is 16 right?")
        assert "cut off at its token limit" in reviewed.messages[-1].to_text()
        await client.close()


async def test_an_empty_reply_is_told_as_such() -> None:
    with OpenAIServer([Reply("")]) as server:
        client = client_of(server)
        assert (await CodeActAgent("coder", client).run(task="Go.")).messages[-1].to_text() == (
            "The model's reply was empty."
        )
        await client.close()
