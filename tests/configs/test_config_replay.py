"""The model client that gives recorded replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, UserMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from coderoom.configs import ReplayModel
from coderoom.errors import RequestError

ASK = [UserMessage(content="how are you", source="user")]


async def streamed(client: ChatCompletionClient, **arguments: Any) -> tuple[list[str], CreateResult]:
    chunks: list[str] = []
    async for part in client.create_stream(ASK, **arguments):
        if isinstance(part, CreateResult):
            return chunks, part
        chunks.append(part)
    raise AssertionError("the stream has no result")


async def test_d4_streams_are_recorded() -> None:
    client = ReplayModel(["one", "two"])
    token = CancellationToken()
    await streamed(client, json_output=True, cancellation_token=token, extra_create_args={"a": 1})
    await client.create(ASK, tool_choice="none")
    assert client.create_calls == [
        {
            "messages": ASK,
            "tools": [],
            "tool_choice": "auto",
            "json_output": True,
            "extra_create_args": {"a": 1},
            "cancellation_token": token,
        },
        {
            "messages": ASK,
            "tools": [],
            "tool_choice": "none",
            "json_output": None,
            "extra_create_args": {},
            "cancellation_token": None,
        },
    ]


async def test_recorded_messages_are_a_copy() -> None:
    client = ReplayModel(["one"])
    messages = list(ASK)
    await client.create(messages)
    messages.clear()
    assert client.create_calls[0]["messages"] == ASK


@given(st.text() | st.text(alphabet=" \n\tab\u2028", max_size=20))
def test_chunks_keep_white_space(content: str) -> None:
    chunks, result = asyncio.run(streamed(ReplayModel([content])))
    assert "".join(chunks) == content == result.content
    assert all(chunks)


async def test_chunks_are_words() -> None:
    chunks, _ = await streamed(ReplayModel(["def f():\n    return  1\n"]))
    assert len(chunks) == 4


async def test_d4_running_out_is_clear() -> None:
    client = ReplayModel(["one"])
    assert (await client.create(ASK)).content == "one"
    for _ in range(2):
        with pytest.raises(RequestError, match="the recording has 1 reply, and the model was asked once more"):
            await client.create(ASK)
        with pytest.raises(RequestError, match="has 1 reply"):
            await streamed(client)
    assert len(client.create_calls) == 1
    client.reset()
    assert (await client.create(ASK)).content == "one"


async def test_d4_nothing_is_said_to_be_cached() -> None:
    client = ReplayModel(["one", "two"])
    assert (await client.create(ASK)).cached is False
    client.set_cached_bool_value(True)
    assert (await client.create(ASK)).cached is True


def test_model_info() -> None:
    assert dict(ReplayModel([]).model_info) == {
        "vision": False,
        "function_calling": False,
        "json_output": True,
        "structured_output": True,
        "family": "unknown",
        "multiple_system_messages": True,
    }
    assert ReplayModel([], {"vision": True, "family": "gpt-4o"}).model_info["family"] == "gpt-4o"
    with pytest.raises(ValidationError):
        ReplayModel([], {"visoin": True})


async def test_usage_is_counted() -> None:
    client = ReplayModel(["one two", {"content": "x", "usage": {"prompt_tokens": 10, "completion_tokens": 20}}])
    first = await client.create(ASK)
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (3, 2)
    await streamed(client)
    assert client.actual_usage().prompt_tokens == 10
    assert (client.total_usage().prompt_tokens, client.total_usage().completion_tokens) == (13, 22)
    assert client.remaining_tokens([]) < 10_000
    assert first.usage.prompt_tokens == 3


async def test_function_calls() -> None:
    call = {"id": "1", "name": "look", "arguments": "{}"}
    client = ReplayModel([{"content": [call]}, {"content": "x", "finish_reason": "length"}])
    chunks, result = await streamed(client)
    assert chunks == []
    assert result.content == [FunctionCall(id="1", name="look", arguments="{}")]
    assert result.finish_reason == "function_calls"
    assert (
        await client.create([AssistantMessage(content=[FunctionCall("{}", "1", "x")], source="a")])
    ).finish_reason == ("length")


async def test_cancelled_before_it_is_asked() -> None:
    client = ReplayModel(["one"])
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client.create(ASK, cancellation_token=token)
    assert (await client.create(ASK)).content == "one"


async def test_f4_dump_and_load() -> None:
    client = ReplayModel(["one", {"content": "two", "thought": "hm"}], {"vision": True}, name="talk")
    dumped = client.dump_component()
    assert dumped.provider == "coderoom.configs.ReplayModel"
    assert dumped.component_type == "model"
    again = ChatCompletionClient.load_component(dumped)
    assert type(again) is ReplayModel
    assert again.dump_component() == dumped
    assert (await again.create(ASK)).content == "one"
    assert ReplayModel(["x"]).dump_component().config == {"replies": ["x"]}
