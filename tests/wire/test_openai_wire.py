"""Real clients over a real connection: AutoGen's OpenAI client alone, then the agents with it."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, SystemMessage, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel, ValidationError

from coderoom.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent, ReviewerAgent, ReviewVerdict
from coderoom.approval import FinalNo
from coderoom.executors import LocalCodeExecutor
from tests.support.openai_server import (
    CONTEXT_LENGTH_EXCEEDED,
    Cut,
    Failure,
    OpenAIServer,
    Refused,
    Reply,
    Request,
    Stall,
    Step,
    check_request,
    parse_script,
    strict_schema_problems,
)

MODEL = "gpt-4o-2024-08-06"
TEXT = "Größe: 🎉 a line\nand another one."
QUESTION: list[LLMMessage] = [
    SystemMessage(content="Answer in JSON."),
    UserMessage(content="What now?", source="user"),
]

# AutoGen's client logs a structured answer through pydantic, which then warns about the parsed part of it.
logs_a_parsed_answer = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


@pytest.fixture(autouse=True)
def _nothing_lost_in_the_event_loop(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No task or generator of a test ends with an error that nobody sees."""
    yield
    lost = [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"]
    assert not [message for message in lost if not message.startswith("Executing")]


class Decision(BaseModel):
    reason: str
    retry: bool


class Loose(BaseModel):
    retry: bool = False


def make_client(server: OpenAIServer, **options: Any) -> OpenAIChatCompletionClient:
    settings: dict[str, Any] = {"max_retries": 0, **options}
    return OpenAIChatCompletionClient(model=MODEL, api_key="test", base_url=server.base_url, **settings)


@asynccontextmanager
async def wire(*script: Step | str, **options: Any) -> AsyncIterator[tuple[OpenAIServer, OpenAIChatCompletionClient]]:
    """A server with a script and a client for it, for a bounded time."""
    with OpenAIServer(script) as server:
        client = make_client(server, **options)
        try:
            async with asyncio.timeout(60):
                yield server, client
        finally:
            await client.close()


async def read_stream(client: ChatCompletionClient, **options: Any) -> tuple[list[str], CreateResult]:
    """The chunks of a streamed answer, and its result."""
    items = [item async for item in client.create_stream(QUESTION, **options)]
    result = items.pop()
    assert isinstance(result, CreateResult)
    return [item for item in items if isinstance(item, str)], result


async def has_hung_up(request: Request, within: float = 30) -> bool:
    return await asyncio.to_thread(request.hung_up.wait, within)


async def arrived(server: OpenAIServer, number: int) -> None:
    await asyncio.to_thread(server.wait_for_requests, number)


# --- The client alone: the tests' own server, and AutoGen's client ----------------------------------------------------


@pytest.mark.slow
async def test_plain_reply() -> None:
    async with wire(Reply(TEXT, usage=(21, 7))) as (server, client):
        result = await client.create(QUESTION)
    assert (result.content, result.finish_reason) == (TEXT, "stop")
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (21, 7)
    assert client.total_usage() == result.usage
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer test"
    assert request.body["model"] == MODEL
    assert request.messages == [
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": "What now?", "name": "user"},
    ]
    assert (request.streamed, request.refusal, server.pending) == (False, None, 0)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 8, 1000])
async def test_stream_gives_the_pieces_and_the_whole(chunk: int) -> None:
    async with wire(Reply(TEXT, usage=(21, 7), chunk=chunk)) as (server, client):
        chunks, result = await read_stream(client, include_usage=True)
    assert "".join(chunks) == result.content == TEXT
    assert all(len(piece) <= chunk for piece in chunks)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (21, 7)
    assert result.finish_reason == "stop"
    assert server.requests[0].body["stream_options"] == {"include_usage": True}


@pytest.mark.slow
async def test_stream_tells_no_usage_unless_asked() -> None:
    async with wire("Hello.") as (server, client):
        _, result = await read_stream(client)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (0, 0)
    assert "stream_options" not in server.requests[0].body


@pytest.mark.slow
async def test_answers_of_several_requests_come_in_the_order_of_the_script() -> None:
    async with wire("one", "two", Reply("three", delay=0.01)) as (server, client):
        answers = [(await client.create(QUESTION)).content for _ in range(3)]
    assert answers == ["one", "two", "three"]
    assert [request.time for request in server.requests] == sorted(request.time for request in server.requests)


@pytest.mark.slow
async def test_reasoning_becomes_the_thought() -> None:
    async with wire(Reply("Hello.", reasoning="Be polite.")) as (_, client):
        result = await client.create(QUESTION)
    assert (result.content, result.thought) == ("Hello.", "Be polite.")


@pytest.mark.slow
async def test_reasoning_comes_as_chunks_of_a_stream_but_not_in_its_content() -> None:
    async with wire(Reply("Hello.", reasoning="Be polite.")) as (_, client):
        chunks, result = await read_stream(client)
    assert result.content == "Hello."
    assert "".join(chunks) == "<think>Be polite.</think>Hello."


@pytest.mark.slow
async def test_length_is_told() -> None:
    async with wire(Reply("Hel", finish_reason="length")) as (_, client):
        assert (await client.create(QUESTION)).finish_reason == "length"


@pytest.mark.slow
@logs_a_parsed_answer
async def test_structured_output() -> None:
    answer = '{"reason": "a typo", "retry": true}'
    async with wire(answer) as (server, client):
        result = await client.create(QUESTION, json_output=Decision)
    assert result.content == answer
    response_format = server.requests[0].body["response_format"]
    assert response_format["type"] == "json_schema"
    assert response_format["json_schema"]["strict"] is True
    assert response_format["json_schema"]["schema"]["required"] == ["reason", "retry"]


@pytest.mark.slow
async def test_structured_output_streamed() -> None:
    answer = '{"reason": "a typo", "retry": true}'
    async with wire(answer) as (_, client):
        chunks, result = await read_stream(client, json_output=Decision)
    assert "".join(chunks) == result.content == answer


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", ["I would rather not.", '{"reason": "A typo."}', '```json\n{"reason": "", "retry": true}\n```']
)
async def test_structured_output_that_does_not_fit_is_the_clients_error(answer: str) -> None:
    async with wire(answer, "next") as (_, client):
        with pytest.raises(ValidationError):
            await client.create(QUESTION, json_output=Decision)
        assert (await client.create(QUESTION)).content == "next"


@pytest.mark.slow
async def test_structured_output_that_was_cut_is_the_clients_error() -> None:
    async with wire(Reply('{"reason": "a', finish_reason="length")) as (_, client):
        with pytest.raises(openai.LengthFinishReasonError):
            await client.create(QUESTION, json_output=Decision)


@pytest.mark.slow
async def test_refusal_in_place_of_structured_output_is_empty() -> None:
    async with wire(Reply("", refusal="I cannot help with that.")) as (_, client):
        assert (await client.create(QUESTION, json_output=Decision)).content == ""


@pytest.mark.slow
async def test_schema_with_a_default_is_refused_and_takes_no_answer() -> None:
    async with wire("unused") as (server, client):
        with pytest.raises(openai.BadRequestError, match="'default' is not permitted") as caught:
            await client.create(QUESTION, json_output=Loose)
    assert caught.value.type == "invalid_request_error"
    assert server.pending == 1
    assert "'default'" in (server.requests[0].refusal or "")


@pytest.mark.slow
async def test_json_mode() -> None:
    async with wire('{"reason": "A typo."}') as (server, client):
        assert (await client.create(QUESTION, json_output=True)).content == '{"reason": "A typo."}'
    assert server.requests[0].body["response_format"] == {"type": "json_object"}


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_passing_failure_is_retried(status: int, streamed: bool) -> None:
    failure = Failure(status, retry_after=0.01)
    async with wire(failure, failure, "Hello.", max_retries=2) as (server, client):
        result = (await read_stream(client))[1] if streamed else await client.create(QUESTION)
    assert result.content == "Hello."
    assert len(server.requests) == 3
    assert server.requests[0].body == server.requests[2].body


@pytest.mark.slow
async def test_failure_without_a_time_to_wait_is_retried() -> None:
    async with wire(Failure(500), "Hello.", max_retries=1) as (_, client):
        assert (await client.create(QUESTION)).content == "Hello."


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("step", "error", "code"),
    [
        (Failure(429, retry_after=0.01, code="rate_limit_exceeded"), openai.RateLimitError, "rate_limit_exceeded"),
        (Failure(500, retry_after=0.01), openai.InternalServerError, None),
        (Failure(401, code="invalid_api_key"), openai.AuthenticationError, "invalid_api_key"),
        (CONTEXT_LENGTH_EXCEEDED, openai.BadRequestError, "context_length_exceeded"),
    ],
    ids=["429", "500", "401", "context length"],
)
async def test_lasting_failure_is_raised(
    step: Failure, error: type[openai.APIStatusError], code: str | None, streamed: bool
) -> None:
    async with wire(step, step, max_retries=1) as (server, client):
        with pytest.raises(error) as caught:
            await (read_stream(client) if streamed else client.create(QUESTION))
        server.add("next")
    assert caught.value.code == code
    assert step.message in str(caught.value)
    assert len(server.requests) == (2 if step.retry_after else 1)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [Cut(TEXT), Cut(TEXT, after_bytes=0), Cut(TEXT, after_bytes=60), Stall(0)])
async def test_cut_plain_reply_is_a_connection_error_and_is_retried(cut: Step) -> None:
    async with wire(cut) as (_, client):
        with pytest.raises(openai.APIConnectionError):
            await client.create(QUESTION)
    async with wire(cut, "Hello.", max_retries=1) as (_, client):
        assert (await client.create(QUESTION)).content == "Hello."


@pytest.mark.slow
@pytest.mark.parametrize("cut", [Cut(TEXT), Cut(TEXT, after_chunks=2), Cut(TEXT, after_bytes=600)])
async def test_cut_stream_is_a_connection_error_after_the_first_pieces(cut: Cut) -> None:
    chunks: list[str | CreateResult] = []

    async def read() -> None:
        async for chunk in client.create_stream(QUESTION):
            chunks.append(chunk)

    async with wire(cut, "next", max_retries=2) as (server, client):
        with pytest.raises(openai.APIConnectionError):
            await read()
        assert (await client.create(QUESTION)).content == "next"
    assert TEXT.startswith("".join(str(chunk) for chunk in chunks))
    assert 0 < len(chunks) < len(TEXT) / 8
    assert len(server.requests) == 2, "what has begun to stream is not asked for again"


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
async def test_stall_ends_with_the_token(streamed: bool) -> None:
    token = CancellationToken()
    async with wire(Stall(600), "next") as (server, client):
        call = read_stream(client, cancellation_token=token) if streamed else client.create(
            QUESTION, cancellation_token=token
        )  # fmt: skip
        task = asyncio.ensure_future(call)
        await arrived(server, 1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await has_hung_up(server.requests[0])
        assert (await client.create(QUESTION)).content == "next"


@pytest.mark.slow
@pytest.mark.parametrize("json_output", [None, Decision])
async def test_stall_in_a_stream_ends_with_the_token(json_output: type[BaseModel] | None) -> None:
    token = CancellationToken()
    chunks: list[str | CreateResult] = []
    has_begun = asyncio.Event()

    async def read() -> None:
        async for chunk in client.create_stream(QUESTION, json_output=json_output, cancellation_token=token):
            chunks.append(chunk)
            has_begun.set()

    async with wire(Stall(600, content='{"reason'), "next") as (server, client):
        task = asyncio.ensure_future(read())
        await has_begun.wait()
        await asyncio.sleep(0.05)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await has_hung_up(server.requests[0])
        assert (await client.create(QUESTION)).content == "next"
    assert chunks == ['{"reason']


@pytest.mark.slow
async def test_stall_ends_with_the_clients_timeout() -> None:
    async with wire(Stall(600), timeout=0.2) as (server, client):
        with pytest.raises(openai.APITimeoutError):
            await client.create(QUESTION)
        assert await has_hung_up(server.requests[0])


@pytest.mark.slow
async def test_client_from_a_component_config() -> None:
    with OpenAIServer(["Hello."]) as server:
        config = make_client(server).dump_component().model_dump()
        config["config"]["api_key"] = "test"
        client = ChatCompletionClient.load_component(config)
        assert (await client.create(QUESTION)).content == "Hello."
        await client.close()


@pytest.mark.slow
async def test_openai_package_without_autogen() -> None:
    script: list[Step | str] = ["Hello.", Reply("", refusal="No."), '{"reason": "", "retry": false}']
    with OpenAIServer(script, model="other") as server:
        async with openai.AsyncOpenAI(api_key="test", base_url=server.base_url, max_retries=0) as client:
            completions = client.chat.completions
            plain = await completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi."}])
            refused, parsed = [
                await completions.parse(
                    model=MODEL, messages=[{"role": "user", "content": "Hi."}], response_format=Decision
                )
                for _ in range(2)
            ]
    assert (plain.model, plain.choices[0].message.content) == ("other", "Hello.")
    assert (refused.choices[0].message.refusal, refused.choices[0].message.parsed) == ("No.", None)
    assert parsed.choices[0].message.parsed == Decision(reason="", retry=False)


# --- The server itself ------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_exhausted_script_says_so_at_once() -> None:
    async with wire("only", max_retries=5) as (server, client):
        await client.create(QUESTION)
        with pytest.raises(openai.InternalServerError, match="script is exhausted: nothing is left for request 2"):
            await client.create(QUESTION)
    assert len(server.requests) == 2


@pytest.mark.slow
async def test_script_can_be_repeated() -> None:
    with OpenAIServer(["one", "two"], repeat=True) as server:
        client = make_client(server)
        assert [(await client.create(QUESTION)).content for _ in range(3)] == ["one", "two", "one"]
        await client.close()


@pytest.mark.slow
async def test_closing_the_server_ends_silent_and_idle_connections_and_all_threads() -> None:
    server = OpenAIServer(["Hello.", Stall(600)])
    idle, waiting = make_client(server), make_client(server)
    async with asyncio.timeout(60):
        await idle.create(QUESTION)
        stalled = asyncio.ensure_future(waiting.create(QUESTION))
        while len(server.requests) < 2:
            await asyncio.sleep(0.01)
        server.close()
        with pytest.raises(openai.APIConnectionError):
            await stalled
        with pytest.raises(openai.APIConnectionError):
            await idle.create(QUESTION)
    assert not [thread for thread in threading.enumerate() if "openai-server" in thread.name]
    assert not server.requests[1].hung_up.is_set(), "it was the server that left"
    await idle.close()
    await waiting.close()


@pytest.mark.slow
def test_waiting_for_a_request_that_never_comes_ends() -> None:
    with OpenAIServer() as server, pytest.raises(TimeoutError, match="0 of 1 requests"):
        server.wait_for_requests(1, timeout=0.01)


GOOD = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def with_message(**message: Any) -> dict[str, Any]:
    return {**GOOD, "messages": [message]}


def with_format(schema: dict[str, Any], name: str = "answer") -> dict[str, Any]:
    return {
        **GOOD,
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}},
    }


def check(body: object, path: str = "/v1/chat/completions", authorization: str = "Bearer key") -> None:
    check_request(path, {"authorization": authorization}, body)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        with_format(STRICT),
        with_message(role="user", content=[{"type": "text", "text": "Hi."}], name="user_1"),
        with_message(role="assistant", content=None, tool_calls=[{"id": "1"}]),
        {**GOOD, "stream": True, "stream_options": {"include_usage": True}},
        {**GOOD, "response_format": {"type": "text"}},
    ],
)
def test_good_requests_pass(body: dict[str, Any]) -> None:
    check(body)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "parse the JSON body"),
        ({**GOOD, "model": None}, "model parameter"),
        ({**GOOD, "messages": []}, "minimum length 1"),
        ({"model": MODEL}, "minimum length 1"),
        (with_message(role="robot", content="Hi."), "'robot'"),
        (with_message(role="user", content=None), "'content'"),
        (with_message(role="user", content="Hi.", name="two words"), "'two words'"),
        ({**GOOD, "stream_options": {"include_usage": True}}, "only allowed when 'stream'"),
        ({**GOOD, "response_format": {"type": "yaml"}}, "'yaml'"),
        ({**GOOD, "response_format": {"type": "json_object"}}, "the word 'json'"),
        (with_format(STRICT, name="not a name"), "'not a name'"),
        (with_format({"type": "array", "items": {"type": "string"}}), "'type: \"object\"'"),
    ],
)
def test_bad_requests_are_refused(body: object, message: str) -> None:
    with pytest.raises(Refused, match=message):
        check(body)


@pytest.mark.slow
def test_wrong_place_and_missing_key_are_refused() -> None:
    with pytest.raises(Refused, match="Invalid URL"):
        check(GOOD, path="/v1/completions")
    with pytest.raises(Refused, match="API key"):
        check(GOOD, authorization="Bearer ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"type": "string", "default": ""}, "'default' is not permitted"),
        ({"type": "string", "minLength": 1}, "'minLength' is not permitted"),
        ({"$ref": "#/$defs/A", "description": "what"}, "$ref cannot have keywords ['description']"),
        ({"title": "Anything"}, "must have a 'type' key"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "'additionalProperties' is required"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"default": 1, "type": "integer"}}]}, "'default'"),
        ({**STRICT, "required": []}, "Missing ['a']"),
    ],
)
def test_schemas_that_strict_mode_refuses(field: dict[str, Any], problem: str) -> None:
    schema = {"type": "object", "properties": {"it": field}, "required": ["it"], "additionalProperties": False}
    [found] = strict_schema_problems(schema)
    assert problem in found
    assert "'it'" in found


@pytest.mark.slow
def test_script_from_a_file() -> None:
    entries = [
        "Hello.",
        {"reply": "Hi.", "usage": [1, 2]},
        {"failure": 429, "retry_after": 1},
        {"cut": "Hel", "after_chunks": 1},
        {"stall": 2.5},
    ]
    assert parse_script(json.dumps(entries)) == [
        Reply("Hello."),
        Reply("Hi.", usage=(1, 2)),
        Failure(429, retry_after=1),
        Cut("Hel", after_chunks=1),
        Stall(2.5),
    ]
    with pytest.raises(ValueError, match="'wait'"):
        parse_script('[{"wait": 1}]')


@pytest.mark.slow
async def test_server_by_hand(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["Hello."]', encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.openai_server", "--script", str(script),
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            base_url = (await process.stdout.readline()).decode().strip()
            client = OpenAIChatCompletionClient(model=MODEL, api_key="test", base_url=base_url)
            assert (await client.create(QUESTION)).content == "Hello."
            await client.close()
            assert await process.stdout.readline() == b"1 system user\n"
    finally:
        process.terminate()
        await process.communicate()


# --- The agents over the wire -----------------------------------------------------------------------------------------

GOOD_CODE = "Here it is.\n\n```python\nprint(6 * 7)\n```"
BAD_CODE = "Here it is.\n\n```python\nraise SystemExit('no such luck')\n```"
AGAIN = '{"reason": "It gave up.", "retry": true}'
ENOUGH = '{"reason": "There is no luck.", "retry": false}'

JSON_ONLY = {"vision": False, "function_calling": False, "json_output": True, "structured_output": False}
NO_JSON = {**JSON_ONLY, "json_output": False}

Item = BaseAgentEvent | BaseChatMessage | Response


@asynccontextmanager
async def coder(
    work_dir: Path, *script: Step | str, client: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[OpenAIServer, CodeExecutorAgent]]:
    """A `CodeExecutorAgent` with a real model client and a real executor."""
    async with wire(*script, **(client or {})) as (server, model_client):
        executor = LocalCodeExecutor(work_dir=work_dir)
        agent = CodeExecutorAgent("coder", executor, model_client=model_client, **options)
        try:
            yield server, agent
        finally:
            await agent.close()


def task(text: str = "Compute.") -> TextMessage:
    return TextMessage(content=text, source="user")


async def take_turn(
    agent: CodeExecutorAgent, *messages: BaseChatMessage, token: CancellationToken | None = None
) -> tuple[list[Item], BaseChatMessage]:
    """The items of a turn without its response, and the response's message."""
    stream = agent.on_messages_stream(messages or [task()], token or CancellationToken())
    items = [item async for item in stream]
    response = items.pop()
    assert isinstance(response, Response)
    return items, response.chat_message


def user(content: str) -> dict[str, str]:
    return {"role": "user", "name": "user", "content": content}


def sent(request: Request) -> list[tuple[str, str]]:
    """The messages of a request as pairs of role and content."""
    return [(message["role"], message["content"]) for message in request.messages]


def of_user(request: Request) -> list[str]:
    return [message["content"] for message in request.messages if message.get("name") == "user"]


def usage(message: BaseChatMessage | BaseAgentEvent) -> tuple[int, int] | None:
    used = message.models_usage
    return None if used is None else (used.prompt_tokens, used.completion_tokens)


SYSTEM = ("system", CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE)


async def test_whole_turn(tmp_path: Path) -> None:
    script = [Reply(GOOD_CODE, usage=(30, 12)), Reply("It is 42.", usage=(60, 4))]
    async with coder(tmp_path, *script) as (server, agent):
        items, message = await take_turn(agent)
    generated, executed = items
    assert isinstance(generated, CodeGenerationEvent)
    assert isinstance(executed, CodeExecutionEvent)
    assert (generated.content, usage(generated)) == (GOOD_CODE, (30, 12))
    assert (executed.result.exit_code, executed.result.output) == (0, "42\n")
    assert isinstance(message, TextMessage)
    assert message.content.startswith("It is 42.")
    assert "print(6 * 7)" in message.content
    assert usage(message) == (60, 4)
    assert message.metadata["coderoom.outcome"] == "ok"
    assert [request.streamed for request in server.requests] == [False, False]
    assert server.pending == 0


async def test_messages_of_each_request_over_two_turns(tmp_path: Path) -> None:
    async with coder(tmp_path, GOOD_CODE, "It is 42.", "You are welcome.") as (server, agent):
        await take_turn(agent, task("Compute."), task("And be quick."))
        await take_turn(agent, task("Thanks."))
    first = [SYSTEM, ("user", "Compute."), ("user", "And be quick.")]
    second = [*first, ("assistant", GOOD_CODE), ("user", "42\n")]
    third = [*second, ("assistant", "It is 42."), ("user", "Thanks.")]
    assert [sent(request) for request in server.requests] == [first, second, third]
    assert server.requests[0].messages[1:] == [user("Compute."), user("And be quick.")]
    assert [request.refusal for request in server.requests] == [None, None, None]


async def test_streamed_turn(tmp_path: Path) -> None:
    script = [Reply(GOOD_CODE, usage=(30, 12), chunk=3), Reply("It is 42.", usage=(60, 4), chunk=3)]
    async with coder(tmp_path, *script, model_client_stream=True) as (server, agent):
        items, message = await take_turn(agent)
    [generated] = [item for item in items if isinstance(item, CodeGenerationEvent)]
    assert generated.content == chunks_of(items, generated.id) == GOOD_CODE
    assert chunks_of(items, message.id) == "It is 42."
    assert message.to_model_text().startswith("It is 42.")
    assert all(request.streamed for request in server.requests)


async def test_streamed_turn_counts_its_tokens(tmp_path: Path) -> None:
    script = [Reply(GOOD_CODE, usage=(30, 12)), Reply("It is 42.", usage=(60, 4))]
    async with coder(tmp_path, *script, model_client_stream=True) as (_, agent):
        items, message = await take_turn(agent)
    [generated] = [item for item in items if isinstance(item, CodeGenerationEvent)]
    assert (usage(generated), usage(message)) == ((30, 12), (60, 4))


def chunks_of(items: list[Item], message_id: str) -> str:
    chunks = [item for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    return "".join(chunk.content for chunk in chunks if chunk.full_message_id == message_id)


async def test_failed_attempt_is_decided_on_and_mended(tmp_path: Path) -> None:
    script: list[Step | str] = [BAD_CODE, Reply(AGAIN, usage=(50, 9)), GOOD_CODE, "It is 42."]
    async with coder(tmp_path, *script, max_retries_on_error=1) as (server, agent):
        items, message = await take_turn(agent)
    _, decision_request, second_attempt, _ = server.requests
    response_format = decision_request.body["response_format"]
    assert response_format["type"] == "json_schema"
    assert response_format["json_schema"]["strict"] is True
    assert decision_request.refusal is None
    system, asked, code, output, question = sent(decision_request)
    assert (system, asked, code) == (SYSTEM, ("user", "Compute."), ("assistant", BAD_CODE))
    assert "no such luck" in output[1]
    assert question[0] == "user"
    assert "no such luck" not in question[1], "the output goes in once"
    assert sent(second_attempt)[:4] == [system, asked, code, output]
    assert "It gave up." in sent(second_attempt)[-1][1]
    assert all(of_user(request) == ["Compute."] for request in server.requests)
    [decision] = [item for item in items if isinstance(item, CodeGenerationEvent) and not item.code_blocks]
    assert usage(decision) == (50, 9)
    assert (message.metadata["coderoom.outcome"], message.metadata["coderoom.attempts"]) == ("ok", "2")


async def test_decision_against_another_attempt(tmp_path: Path) -> None:
    async with coder(tmp_path, BAD_CODE, ENOUGH, "I gave up.", max_retries_on_error=3) as (server, agent):
        _, message = await take_turn(agent)
    assert message.metadata["coderoom.stop_reason"] == "not_retried"
    assert (len(server.requests), server.pending) == (3, 0)


@pytest.mark.parametrize(
    "answer",
    [
        "Rather not.",
        "",
        '{"reason": "A typo."}',
        '{"reason": 1, "retry": "perhaps"}',
        "[]",
        Reply('{"reason": "cut he', finish_reason="length"),
        Reply("", finish_reason="content_filter"),
        Reply("", refusal="I cannot help with that."),
    ],
    ids=["prose", "empty", "missing", "types", "list", "length", "filter", "refusal"],
)
@pytest.mark.parametrize("model_info", [None, JSON_ONLY, NO_JSON], ids=["structured", "json", "text"])
@pytest.mark.slow
async def test_malformed_decision_is_no_and_no_exception(
    tmp_path: Path, answer: Step | str, model_info: dict[str, Any] | None
) -> None:
    client = {} if model_info is None else {"model_info": {**model_info, "family": "unknown"}}
    async with coder(tmp_path, BAD_CODE, answer, "I gave up.", client=client, max_retries_on_error=1) as (
        server,
        agent,
    ):
        _, message = await take_turn(agent)
    assert message.metadata["coderoom.stop_reason"] == "not_retried"
    assert message.metadata["coderoom.outcome"] == "error"
    assert server.pending == 0


async def test_structured_decision_comes_without_a_warning(tmp_path: Path) -> None:
    async with coder(tmp_path, BAD_CODE, ENOUGH, "I gave up.", max_retries_on_error=1) as (_, agent):
        await take_turn(agent)


@pytest.mark.parametrize(
    "model_info",
    [
        pytest.param(None, id="structured"),
        pytest.param(JSON_ONLY, id="json"),
        pytest.param(NO_JSON, id="text"),
    ],
)
async def test_malformed_decision_costs_tokens_too(tmp_path: Path, model_info: dict[str, Any] | None) -> None:
    client = {} if model_info is None else {"model_info": {**model_info, "family": "unknown"}}
    script: list[Step | str] = [BAD_CODE, Reply("Rather not.", usage=(50, 9)), "I gave up."]
    async with coder(tmp_path, *script, client=client, max_retries_on_error=1) as (_, agent):
        items, _ = await take_turn(agent)
    [decision] = [item for item in items if isinstance(item, CodeGenerationEvent) and not item.code_blocks]
    assert usage(decision) == (50, 9)


@pytest.mark.parametrize("model_info", [JSON_ONLY, NO_JSON], ids=["json", "text"])
async def test_decision_of_a_model_without_structured_output(tmp_path: Path, model_info: dict[str, Any]) -> None:
    script = [BAD_CODE, f"Sure:\n```json\n{AGAIN}\n```", GOOD_CODE, "It is 42."]
    client = {"model_info": {**model_info, "family": "unknown"}}
    async with coder(tmp_path, *script, client=client, max_retries_on_error=1) as (server, agent):
        _, message = await take_turn(agent)
    assert message.metadata["coderoom.outcome"] == "ok"
    wanted = {"type": "json_object"} if model_info["json_output"] else None
    assert server.requests[1].body.get("response_format") == wanted
    assert sent(server.requests[1])[0] == SYSTEM


@pytest.mark.parametrize("streamed", [False, True])
async def test_rate_limit_inside_a_turn_passes(tmp_path: Path, streamed: bool) -> None:
    busy = Failure(429, retry_after=0.01)
    script: list[Step | str] = [busy, GOOD_CODE, busy, busy, "It is 42."]
    async with coder(tmp_path, *script, client={"max_retries": 2}, model_client_stream=streamed) as (server, agent):
        _, message = await take_turn(agent)
    assert message.to_model_text().startswith("It is 42.")
    assert len(server.requests) == 5
    assert server.requests[0].body == server.requests[1].body


BROKEN: dict[str, tuple[Step, type[Exception]]] = {
    "500": (Failure(500, retry_after=0.01), openai.InternalServerError),
    "429": (Failure(429, retry_after=0.01), openai.RateLimitError),
    "401": (Failure(401, code="invalid_api_key"), openai.AuthenticationError),
    "context": (CONTEXT_LENGTH_EXCEEDED, openai.BadRequestError),
    "cut": (Cut(GOOD_CODE), openai.APIConnectionError),
    "hang-up": (Stall(0), openai.APIConnectionError),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("place", ["code", pytest.param("summary", marks=pytest.mark.slow)])
async def test_broken_model_call_surfaces_and_the_next_turn_works(
    tmp_path: Path, kind: str, streamed: bool, place: str
) -> None:
    step, error = BROKEN[kind]
    before = [] if place == "code" else [GOOD_CODE]
    message = task()
    async with coder(tmp_path, *before, step, model_client_stream=streamed) as (server, agent):
        with pytest.raises(error):
            await take_turn(agent, message)
        server.add(GOOD_CODE, "It is 42.")
        _, answer = await take_turn(agent, message, task("Go on."))
    assert answer.to_model_text().startswith("It is 42.")
    assert of_user(server.requests[-1]) == ["Compute.", "Go on."]
    assert sent(server.requests[-1])[-2:] == [("assistant", GOOD_CODE), ("user", "42\n")]
    assert server.pending == 0


async def test_failure_until_the_retries_are_exhausted_surfaces(tmp_path: Path) -> None:
    failure = Failure(500, retry_after=0.01, message="The engine is on fire.")
    async with coder(tmp_path, *[failure] * 3, client={"max_retries": 2}) as (server, agent):
        with pytest.raises(openai.InternalServerError, match="The engine is on fire"):
            await take_turn(agent)
    assert len(server.requests) == 3


async def test_broken_decision_call_surfaces_and_the_next_turn_works(tmp_path: Path) -> None:
    async with coder(tmp_path, BAD_CODE, CONTEXT_LENGTH_EXCEEDED, max_retries_on_error=1) as (server, agent):
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            await take_turn(agent)
        server.add(GOOD_CODE, "It is 42.")
        _, message = await take_turn(agent, task("Go on."))
    assert message.metadata["coderoom.attempts"] == "1"
    assert of_user(server.requests[-1]) == ["Compute.", "Go on."]


STALLED: dict[str, tuple[Step | str, ...]] = {
    "code": (Stall(600),),
    "code, begun": (Stall(600, content="Here it"),),
    "decision": (BAD_CODE, Stall(600)),
    "summary": (GOOD_CODE, Stall(600)),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("place", STALLED)
async def test_cancelling_a_stalled_model_call(tmp_path: Path, place: str, streamed: bool) -> None:
    script = STALLED[place]
    token = CancellationToken()
    async with coder(tmp_path, *script, max_retries_on_error=1, model_client_stream=streamed) as (server, agent):
        turn = asyncio.ensure_future(take_turn(agent, token=token))
        await arrived(server, len(script))
        await asyncio.sleep(0.05)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await has_hung_up(server.requests[-1])
        server.add(GOOD_CODE, "It is 42.")
        _, message = await take_turn(agent, task("Go on."))
    assert message.to_model_text().startswith("It is 42.")
    assert of_user(server.requests[-1]) == ["Compute.", "Go on."]


async def test_cancelling_between_two_chunks_ends_the_connection(tmp_path: Path) -> None:
    token = CancellationToken()
    script = Stall(600, content="Here it is, in many pieces.")
    async with coder(tmp_path, script, model_client_stream=True) as (server, agent):

        async def read_until_cancelled() -> None:
            async for item in agent.on_messages_stream([task()], token):
                if isinstance(item, ModelClientStreamingChunkEvent):
                    token.cancel()

        with pytest.raises(asyncio.CancelledError):
            await read_until_cancelled()
        assert await has_hung_up(server.requests[0], within=5)
        server.add("Hello.")
        assert (await take_turn(agent, task("Go on.")))[1].to_model_text() == "Hello."


async def test_cancelling_the_task_during_a_stalled_model_call(tmp_path: Path) -> None:
    async with coder(tmp_path, Stall(600)) as (server, agent):
        turn = asyncio.ensure_future(take_turn(agent))
        await arrived(server, 1)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await has_hung_up(server.requests[0])
        server.add("Hello.")
        assert (await take_turn(agent, task("Go on.")))[1].to_model_text() == "Hello."


async def test_approval_that_says_a_final_no_costs_no_further_call(tmp_path: Path) -> None:
    def refuse(request: ApprovalRequest) -> ApprovalResponse:
        return FinalNo(reason="Not on my machine.")

    async with coder(tmp_path, GOOD_CODE, max_retries_on_error=2, approval_func=refuse) as (server, agent):
        _, message = await take_turn(agent)
    assert message.metadata["coderoom.outcome"] == "rejected"
    assert len(server.requests) == 1


# --- The reviewer -----------------------------------------------------------------------------------------------------

APPROVED = ReviewVerdict(approved=True, issues=[], summary="It does what was asked.")


def work(outcome: str = "ok", exit_code: int = 0) -> TextMessage:
    metadata = {"coderoom.outcome": outcome, "coderoom.exit_code": str(exit_code)}
    return TextMessage(content="It is 42.", source="coder", metadata=metadata)


async def review(*messages: TextMessage, client: OpenAIChatCompletionClient) -> BaseChatMessage:
    reviewer = ReviewerAgent("reviewer", client)
    return (await reviewer.on_messages(messages, CancellationToken())).chat_message


async def test_review() -> None:
    async with wire(Reply(APPROVED.model_dump_json(), usage=(40, 6))) as (server, client):
        message = await review(task(), work(), client=client)
    assert message.metadata["coderoom.approved"] == "true"
    assert ReviewVerdict.model_validate_json(message.metadata["coderoom.verdict"]) == APPROVED
    assert usage(message) == (40, 6)
    [request] = server.requests
    assert request.body["response_format"]["json_schema"]["strict"] is True
    assert request.refusal is None
    assert sent(request)[:3] == [
        ("system", ReviewerAgent.DEFAULT_SYSTEM_MESSAGE),
        ("user", "Compute."),
        ("user", "It is 42."),
    ]


@pytest.mark.parametrize("answer", ["Looks good!", '{"approved": true', Reply("", refusal="No."), '{"approved": 7}'])
@pytest.mark.parametrize("model_info", [None, JSON_ONLY], ids=["structured", "json"])
async def test_malformed_verdict_approves_nothing(answer: Step | str, model_info: dict[str, Any] | None) -> None:
    options = {} if model_info is None else {"model_info": {**model_info, "family": "unknown"}}
    async with wire(answer, **options) as (_, client):
        message = await review(task(), work(), client=client)
    assert message.metadata["coderoom.approved"] == "false"


async def test_verdict_cannot_talk_a_failure_away() -> None:
    async with wire(APPROVED.model_dump_json()) as (_, client):
        message = await review(task(), work("error", 1), client=client)
    assert message.metadata["coderoom.approved"] == "false"


@pytest.mark.parametrize("kind", BROKEN)
async def test_broken_review_surfaces_and_the_next_one_works(kind: str) -> None:
    step, error = BROKEN[kind]
    messages = [task(), work()]
    async with wire(step) as (server, client):
        reviewer = ReviewerAgent("reviewer", client)
        with pytest.raises(error):
            await reviewer.on_messages(messages, CancellationToken())
        server.add(APPROVED.model_dump_json())
        answer = await reviewer.on_messages(messages, CancellationToken())
    assert answer.chat_message.metadata["coderoom.approved"] == "true"
    assert of_user(server.requests[-1]) == ["Compute."]


async def test_cancelling_a_stalled_review() -> None:
    token = CancellationToken()
    async with wire(Stall(600)) as (server, client):
        reviewer = ReviewerAgent("reviewer", client)
        turn = asyncio.ensure_future(reviewer.on_messages([task(), work()], token))
        await arrived(server, 1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await has_hung_up(server.requests[0])
