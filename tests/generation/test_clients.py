"""Models behind a real server, asked as the generator asks them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from autogen_core.models import CreateResult, LLMMessage, ModelFamily
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from coderoom.configs import ReplayModel
from coderoom.errors import RequestError
from coderoom.generation import AICodeGenerator, AutoGenModel, Message, Model, OpenAIModel, Reply, StopReason
from tests.support import openai_server as server

QUESTION = [
    Message("system", "Be brief."),
    Message("user", "Say JSON."),
    Message("assistant", "x"),
    Message("user", "y"),
]
opened: list[Any] = []
LIMITS = [("gpt-4o-2024-08-06", "max_tokens"), ("o3-mini-2025-01-31", "max_completion_tokens")]


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


@pytest.mark.parametrize(("model", "field"), LIMITS)
@pytest.mark.parametrize("wrapped", [None, "autogen", "cache"])
async def test_the_length_of_a_reply_can_be_limited(model: str, field: str, wrapped: str | None) -> None:
    with server.OpenAIServer(["{}", "{}"]) as place:
        address: Any = {"api_key": "test", "base_url": place.base_url}
        limited: Model
        if wrapped is None:
            limited = openai(**address, name=model, max_answer_tokens=70)
        else:
            client = OpenAIChatCompletionClient(model=model, **address)
            opened.append(client)
            limited = AutoGenModel(ChatCompletionCache(client) if wrapped == "cache" else client, max_answer_tokens=70)
        assert limited.name == model
        for form in (None, Functions):
            await limited.complete(QUESTION[1:], form)
        assert [request.body.get(field) for request in place.requests] == [70, 70]
        assert ["response_format" in request.body for request in place.requests] == [False, True]


async def test_the_limit_reaches_only_clients_that_take_it() -> None:
    class Plain(ReplayModel):
        async def create(self, messages: Sequence[LLMMessage], *, json_output: Any = None) -> CreateResult:  # type: ignore[override]
            return await super().create(messages, json_output=json_output)

    assert (await AutoGenModel(Plain(["x"]), max_answer_tokens=70).complete(QUESTION)).text == "x"
    client = ReplayModel(["x"])
    await AutoGenModel(client, max_answer_tokens=70).complete(QUESTION)
    assert client.create_calls[0]["extra_create_args"] == {"max_tokens": 70}
    with pytest.raises(RequestError, match="max_answer_tokens"):
        AICodeGenerator(openai(), max_answer_tokens=70)


def test_a_generator_passes_the_limit_on() -> None:
    with server.OpenAIServer(["no", "no"]) as place:
        model: Any = {"model": "gpt-4o", "api_key": "test", "base_url": place.base_url}
        generator = AICodeGenerator(**model, cache=False, max_answer_tokens=70)
        assert not generator.generate_solution_sync("Double.").all_tests_passed
        assert [request.body["max_tokens"] for request in place.requests] == [70, 70]


def test_another_limit_is_no_continuation_of_interrupted_work(tmp_path: Path) -> None:
    for limit, replayed in ((70, 0), (80, 0), (70, 1)):
        with server.OpenAIServer([server.Reply("no", usage=(10, 5), finish_reason="length")]) as place:
            model: Any = {"model": "gpt-4o", "api_key": "test", "base_url": place.base_url}
            generator = AICodeGenerator(**model, cache_dir=tmp_path, max_answer_tokens=limit, max_tokens=15, retries=0)
            assert generator.generate_solution_sync("Double.").usage.replayed == replayed


def test_a_client_of_autogen_works_in_one_event_loop_after_another() -> None:
    with server.OpenAIServer(["no"] * 4) as place:
        client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06", api_key="test", base_url=place.base_url)
        generator = AICodeGenerator(client, cache=False, retries=0)
        for _ in range(2):
            assert generator.generate_solution_sync("Double.").stop_reason is StopReason.UNUSABLE
        assert len(place.requests) == 4


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
