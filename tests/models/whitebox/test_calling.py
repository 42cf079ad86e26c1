"""Calls of models: what they are asked, what counts as an answer, and what is left when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import PIL.Image
import pytest
from autogen_core import CancellationToken, Image
from autogen_core.models import CreateResult, FinishReasons, LLMMessage, RequestUsage, SystemMessage, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.errors import ModelError
from coderoom.models.calling import call_model, with_encoded_pictures

ASK = [UserMessage(content="Go on.", source="user")]


class Client(ReplayChatCompletionClient):
    """A client that answers with one result, after the chunks of its stream; it notes how it was asked."""

    def __init__(self, *chunks: str, result: CreateResult | None, waits: bool = False) -> None:
        super().__init__([])
        self.chunks, self.result, self.waits = chunks, result, waits
        self.asked: list[dict[str, Any]] = []
        self.cancelled = False

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        self.asked.append(arguments)
        assert self.result is not None
        return self.result

    async def create_stream(
        self, messages: Sequence[LLMMessage], *, include_usage: bool = False, **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        self.asked.append({"include_usage": include_usage, **arguments})
        for chunk in self.chunks:
            yield chunk
        try:
            await asyncio.sleep(60 if self.waits else 0)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.result is not None:
            yield self.result


def answer(content: Any, reason: FinishReasons = "stop", **more: Any) -> CreateResult:
    used = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason=reason, content=content, usage=used, cached=False, **more)


async def test_an_answer_is_text_that_can_be_written() -> None:
    client = Client(result=answer("a\ud800b", thought="c\udfffd"))
    found = await call_model(client, ASK, CancellationToken(), temperature=0.5)
    assert all(isinstance(each, str) and each.encode() for each in (found.content, found.thought))
    [asked] = client.asked
    assert asked["extra_create_args"] == {"temperature": 0.5}
    assert "tools" not in asked


async def test_what_is_no_answer_is_refused_unless_tools_were_offered() -> None:
    calls = [{"id": "1", "name": "add", "arguments": "{}"}]
    client = Client(result=answer(calls, "function_calls"))
    with pytest.raises(TypeError, match="called 'add' as a tool, but it has no tools"):
        await call_model(client, ASK, CancellationToken())
    tool = FunctionTool(lambda: 1, name="add", description="Add.")
    assert (await call_model(client, ASK, CancellationToken(), [tool])).content == client.result.content  # type: ignore[union-attr]
    assert client.asked[-1]["tools"] == [tool]
    with pytest.raises(ModelError, match="The answer was empty"):
        await call_model(Client(result=answer("", "unknown")), ASK, CancellationToken())
    assert (await call_model(Client(result=answer("")), ASK, CancellationToken())).content == ""


async def test_a_stream_is_passed_on_and_ends_with_a_result() -> None:
    said: list[str] = []

    async def take(chunk: str) -> None:
        said.append(chunk)

    client = Client("a", "\ud800", "b", result=answer("ab"))
    assert (await call_model(client, ASK, CancellationToken(), on_chunk=take)).content == "ab"
    assert (said[0], said[2], said[1].encode() != b"") == ("a", "b", True)
    assert client.asked[0]["include_usage"] is True
    with pytest.raises(TypeError, match="Client ended its stream without a result"):
        await call_model(Client("a", result=None), ASK, CancellationToken(), on_chunk=take)


async def test_a_stream_that_nobody_waits_for_is_cancelled_where_it_waits() -> None:
    token, client = CancellationToken(), Client("a", result=None, waits=True)

    async def stop(_: str) -> None:
        token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call_model(client, ASK, token, on_chunk=stop)
    assert client.cancelled


async def test_a_client_that_hears_of_the_end_by_its_token_only_hears_of_it() -> None:
    token, heard = CancellationToken(), asyncio.Event()

    class Deaf(Client):
        async def create_stream(
            self, messages: Sequence[LLMMessage], *, cancellation_token: Any = None, **arguments: Any
        ) -> AsyncGenerator[str | CreateResult, None]:
            cancellation_token.add_callback(heard.set)
            yield "a"
            await heard.wait()

    async def stop(_: str) -> None:
        token.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call_model(Deaf(result=None), ASK, token, on_chunk=stop)
    assert heard.is_set()


async def test_pictures_are_encoded_once() -> None:
    picture = Image(PIL.Image.new("RGB", (2, 2)))
    shown = UserMessage(content=["This:", picture], source="user")
    messages: list[LLMMessage] = [SystemMessage(content="See."), shown, *ASK]
    first, second = [await with_encoded_pictures(messages) for _ in range(2)]
    assert [first[0], first[2]] == [messages[0], messages[2]]
    assert first[1].content[0] == "This:"
    encoded = first[1].content[1]
    assert isinstance(encoded, Image)
    assert second[1].content[1] is encoded
    assert (encoded.to_base64(), encoded.data_uri) == (picture.to_base64(), picture.data_uri)
    assert (await with_encoded_pictures(first))[1].content[1] is encoded
    assert shown.content[1] is picture
