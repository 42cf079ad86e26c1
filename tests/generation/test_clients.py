"""Models behind a real server, asked as the generator asks them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from coderoom.errors import RequestError
from coderoom.generation import AutoGenModel, Message, Model, OpenAIModel, Reply
from tests.support import openai_server as server

QUESTION = [
    Message("system", "Be brief."),
    Message("user", "Say JSON."),
    Message("assistant", "x"),
    Message("user", "y"),
]
opened: list[Any] = []


class Functions(BaseModel):
    function_specs: list[str]


class Anything(BaseModel):
    closed: ClassVar[bool] = False

    tests: list[dict[str, Any]]


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    for each in opened:
        await each.close()
    opened.clear()


def openai(base_url: str | None = None, **arguments: Any) -> OpenAIModel:
    model = OpenAIModel(**{"name": "gpt-4o", "api_key": "test", "base_url": base_url, **arguments})
    opened.append(model)
    return model


def autogen(base_url: str, **info: Any) -> Model:
    known = {"vision": False, "function_calling": False, "json_output": True, "family": ModelFamily.UNKNOWN}
    described: Any = {**known, "structured_output": True, **info}
    client = OpenAIChatCompletionClient(model="mine", api_key="test", base_url=base_url, model_info=described)
    opened.append(client)
    return AutoGenModel(client)


@pytest.mark.parametrize("make", [openai, autogen])
async def test_conversation_answer_and_tokens_come_through(make: Any) -> None:
    with server.OpenAIServer([server.Reply("Hello.", usage=(7, 3))]) as place:
        assert await make(place.base_url).complete(QUESTION) == Reply("Hello.", 7, 3)
        assert [each["role"] for each in place.requests[0].messages] == ["system", "user", "assistant", "user"]
        assert "response_format" not in place.requests[0].body


@pytest.mark.parametrize("make", [openai, autogen])
async def test_what_a_schema_can_hold_is_asked_for_by_a_schema(make: Any) -> None:
    with server.OpenAIServer(["{}", "{}"]) as place:
        model = make(place.base_url)
        await model.complete(QUESTION, Functions)
        await model.complete(QUESTION, Anything)
        formats = [request.body["response_format"] for request in place.requests]
    assert [each["type"] for each in formats] == ["json_schema", "json_object"]
    assert formats[0]["json_schema"]["strict"] is True
    assert not list(server.strict_schema_problems(formats[0]["json_schema"]["schema"]))


async def test_a_model_without_schemas_is_told_the_schema_in_words() -> None:
    with server.OpenAIServer(["{}"]) as place:
        await autogen(place.base_url, structured_output=False, json_output=False).complete(QUESTION, Functions)
        request = place.requests[0]
    assert "response_format" not in request.body
    assert "function_specs" in request.messages[-1]["content"]


async def test_a_server_that_refuses_schemas_is_asked_without() -> None:
    with server.OpenAIServer([server.Failure(400, message="no response_format"), "{}", "{}"]) as place:
        model = openai(place.base_url)
        assert (await model.complete(QUESTION, Functions)).text == "{}"
        assert (await model.complete(QUESTION, Functions)).text == "{}"
        assert ["response_format" in request.body for request in place.requests] == [True, False, False]


async def test_it_may_refuse_several_before_that_is_known() -> None:
    def respond(request: server.Request) -> server.Step | str:
        if "response_format" not in request.body:
            return "{}"
        both.wait(20)
        return server.Failure(400, message="no response_format")

    both = threading.Barrier(2)
    with server.OpenAIServer(respond=respond) as place:
        model = openai(place.base_url)
        replies = await asyncio.gather(*(model.complete(QUESTION, Functions) for _ in range(2)))
    assert [each.text for each in replies] == ["{}", "{}"]


@pytest.mark.parametrize("make", [openai, autogen])
async def test_an_answer_that_was_cut_off_is_not_complete(make: Any) -> None:
    with server.OpenAIServer([server.Reply("Hel", finish_reason="length")]) as place:
        assert not (await make(place.base_url).complete(QUESTION)).complete


async def test_headers_come_from_the_argument_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEROOM_MODEL_HEADERS", '{"x-team": "blue"}')
    with server.OpenAIServer(["a", "b"]) as place:
        await openai(place.base_url).complete(QUESTION)
        await openai(place.base_url, headers={"x-team": "red"}).complete(QUESTION)
        assert [request.headers["x-team"] for request in place.requests] == ["blue", "red"]
    monkeypatch.setenv("CODEROOM_MODEL_HEADERS", "x-api-key: secret")
    with pytest.raises(RequestError, match="JSON object") as caught:
        openai("http://127.0.0.1:1")
    assert "secret" not in str(caught.value)


async def test_key_address_and_model_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with server.OpenAIServer(["a"]) as place:
        monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", place.base_url)
        monkeypatch.setenv("CODEROOM_MODEL", "openai:small")
        model = openai(name=None, api_key=None)
        assert model.name == "small"
        await model.complete(QUESTION)
        assert place.requests[0].headers["authorization"] == "Bearer key-of-the-environment"


def test_what_a_model_is_called_is_known() -> None:
    with server.OpenAIServer([]) as place:
        model = autogen(place.base_url)
    assert isinstance(model, AutoGenModel)
    assert model.name == "mine"
