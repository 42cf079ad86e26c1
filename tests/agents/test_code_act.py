"""A turn of a `CodeActAgent`: write, run, read, and on until there is an answer; what goes where, exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from coderoom.agents import CodeActAgent
from coderoom.errors import SandboxUnavailable
from coderoom.executors import SandboxCodeExecutor
from coderoom.models import CompactingContext
from tests.agents.acting import MakeActor, Multiply, Shop, add, codes, execute, outputs, pictures_in, remembered
from tests.agents.helpers import TASK, Approver, Client, facts_of, python, stream, text_of, total, turn
from tests.support.openai_server import OpenAIServer, Reply

# --- The loop ---


async def test_it_goes_on_until_it_answers_without_code(actor: MakeActor) -> None:
    client = Client(python("x = 40"), python("x + 2"), "It is 42.")
    agent = actor(client)
    response = await turn(agent, TASK)
    facts = facts_of(response)
    assert (facts["stop_reason"], facts["attempts"], facts["outcome"]) == ("answered", "2", "ok")
    assert facts["summary"] == "It is 42."
    # The next agent reads the answer, the last code and its output.
    for part in ("It is 42.", "x + 2", "exit code 0", "42\n"):
        assert part in text_of(response)
    assert codes(response.inner_messages or []) == [["x = 40"], ["x + 2"]]
    assert outputs(response.inner_messages or [])[1] == "42\n"


async def test_everything_goes_into_the_context_once_and_in_order(actor: MakeActor) -> None:
    client = Client(python("print('seen', 6 * 7)"), "It is 42.")
    agent = actor(client, model_context=UnboundedChatCompletionContext())
    await turn(agent, TASK)
    assert await remembered(agent) == [TASK, python("print('seen', 6 * 7)"), "seen 42\n", "It is 42."]
    assert client.calls[1].texts[1:] == [TASK, python("print('seen', 6 * 7)"), "seen 42\n"]
    for call in client.calls:
        assert len(call.system) == 1
        assert call.token is not None


async def test_an_answer_without_code_is_the_answer(actor: MakeActor) -> None:
    response = await turn(actor(Client("Paris.")), TASK)
    assert text_of(response) == "Paris."
    assert facts_of(response) == {"stop_reason": "no_code"}


async def test_all_blocks_of_a_reply_are_run_in_order_up_to_the_first_that_fails(actor: MakeActor) -> None:
    reply = "\n\n".join([python("x = 1"), "```sh\necho two\n```", python("1 / 0"), python("print('never')")])
    items = await stream(actor(Client(reply, "Well.")), TASK)
    [output] = outputs(items)
    assert "two" in output
    assert "ZeroDivisionError" in output
    assert "never" not in output


async def test_a_failure_cannot_be_talked_away(actor: MakeActor) -> None:
    response = await turn(actor(Client(python("1 / 0"), "All went well.")), TASK)
    facts = facts_of(response)
    assert (facts["outcome"], facts["exit_code"], facts["stop_reason"]) == ("error", "1", "answered")
    assert "ZeroDivisionError" in text_of(response)


async def test_the_output_is_bounded_and_the_whole_is_in_a_file(actor: MakeActor) -> None:
    agent = actor(Client(python("for i in range(5000): print(i)"), "Long."), max_output_chars=300)
    facts = facts_of(await turn(agent, TASK))
    assert max(len(text) for text in await remembered(agent)) < 600
    assert Path(facts["output_file"]).read_text().endswith("4999\n")


async def test_memory_is_bounded_unless_somebody_wants_another(actor: MakeActor) -> None:
    agent = actor(Client(*(f"Answer {number}: {'x' * 10_000}" for number in range(20))))
    for number in range(20):
        await turn(agent, f"Question {number}")
    there = await remembered(agent)
    assert [text for text in there if text.startswith("Question")] == [f"Question {number}" for number in range(20)]
    assert sum(map(len, there)) < 150_000
    assert isinstance(agent.model_context, CompactingContext)
    own = UnboundedChatCompletionContext()
    assert actor(Client(), model_context=own).model_context is own


async def test_variables_last_from_turn_to_turn(actor: MakeActor) -> None:
    client = Client(python("def double(x):\n    return 2 * x"), "Defined.", python("double(21)"), "42.")
    agent = actor(client)
    await turn(agent, "Define it.")
    assert outputs(await stream(agent, "Use it.")) == ["42\n"]


# --- Where code stands ---


@pytest.mark.parametrize(
    ("code_format", "reply", "ran"),
    [
        ("fence", python("print('fence')"), ["fence\n"]),
        ("execute", execute("print('tag')"), ["tag\n"]),
        ("execute", execute("```sh\necho shell\n```"), ["shell\n"]),
        ("fence", f"{python('print(1)')}\n\n{execute('print(2)')}", ["1\n"]),
        ("execute", f"{python('print(1)')}\n\n{execute('print(2)')}", ["2\n"]),
        ("execute", f"It was\n\n{python('print(1)')}", []),
        ("fence", "```python no-run\nprint(1)\n```", []),
        ("fence", '```json\n{"a": 1}\n```', []),
    ],
)
async def test_code_is_where_the_format_says(actor: MakeActor, code_format: str, reply: str, ran: list[str]) -> None:
    items = await stream(actor(Client(reply, "Done."), code_format=code_format), TASK)
    assert outputs(items) == ran


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("```python\nprint('half", "cut off"),
        ("```cobol\nSTOP RUN.\n```", "labelled 'cobol'"),
        (execute("print('tag')"), "in <execute> tags is not run here"),
    ],
)
async def test_code_that_cannot_be_run_is_told_to_the_model(actor: MakeActor, reply: str, told: str) -> None:
    client = Client(reply, python("print('whole')"), "Done.")
    items = await stream(actor(client), TASK)
    assert outputs(items)[1] == "whole\n"
    assert told in client.calls[1].texts[-1]
    [first, _] = [item for item in items if isinstance(item, CodeExecutionEvent)]
    assert (first.metadata["coderoom.ran"], first.metadata["coderoom.outcome"]) == ("false", "error")


async def test_what_is_complete_is_run_and_does_not_count_as_done(actor: MakeActor) -> None:
    client = Client(f"{python('x = 1')}\n\n```python\nx = 2", python("x"), "1.")
    items = await stream(actor(client), TASK)
    assert "cut off" in client.calls[1].texts[-1]
    assert "Only the complete blocks were run" in client.calls[1].texts[-1]
    assert outputs(items)[1] == "1\n"


@pytest.mark.parametrize("reply", ["", " \n", "\ud800", "`" * 200, "<execute></execute>", "<execute>" * 50])
async def test_odd_replies_end_the_turn_and_nothing_else(actor: MakeActor, reply: str) -> None:
    agent = actor(Client(reply, "Fine."), code_format="execute")
    assert facts_of(await turn(agent, TASK))["stop_reason"] == "no_code"
    assert text_of(await turn(agent, "And now?")) == "Fine."


# --- What the model is told of what it can do ---


async def test_the_system_message_lists_the_functions(actor: MakeActor) -> None:
    client = Client("Hello.")
    await turn(actor(client, tools=[*Shop().functions, add, Multiply()]), TASK)
    [told] = client.calls[0].system
    assert told.startswith(CodeActAgent.DEFAULT_SYSTEM_MESSAGE)
    assert '''def price(item: str) -> float:\n    """What an item costs, in euros."""''' in told
    assert "async def order(item: str, number: int = 1) -> dict[str, Any]:" in told
    assert "    The order cannot be taken back.\n" in told
    assert "def add(a: int, b: int) -> int:" in told
    assert "def multiply(first: int, second: int)" in told


@pytest.mark.parametrize(
    ("arguments", "there", "not_there"),
    [
        ({}, "```python block (or ```sh", "<execute>"),
        ({"code_format": "execute"}, "between <execute> and </execute>", "```python"),
        ({"code_executor": SandboxCodeExecutor(policy="restricted")}, "in a ```python block.", "```sh"),
        ({"code_executor": SandboxCodeExecutor(engine="monty")}, "in a ```python block.", "```sh"),
        ({"system_message": None}, "```python block", "You solve tasks"),
        ({"system_message": "Be brief."}, "Be brief.\n\nPut code", "You solve tasks"),
    ],
)
async def test_the_system_message_says_where_code_goes(
    actor: MakeActor, arguments: dict[str, Any], there: str, not_there: str
) -> None:
    client = Client("Hello.")
    await turn(actor(client, **arguments), TASK)
    [told] = client.calls[0].system
    assert there in told
    assert not_there not in told


# --- Functions of the host ---


async def test_code_calls_functions_of_the_host(actor: MakeActor) -> None:
    shop = Shop()
    code = "total = price('apple') * 4\nplaced = await order('apple', number=4)\nprint(total, placed['number'])\n"
    code += "print(multiply(2, second=3))"
    agent = actor(Client(python(code), "Ordered."), tools=[*shop.functions, Multiply(10)])
    assert outputs(await stream(agent, TASK)) == ["2.0 4\n{'value': 60}\n"]
    assert shop.calls == ["price(apple)", "order(apple, 4)"]


async def test_after_a_failure_the_model_is_told_which_calls_were_made(actor: MakeActor) -> None:
    shop = Shop()
    client = Client(python("await order('pear', 2)\nprice('plum')"), python("price('pear')"), "Done.")
    answer = (await turn(actor(client, tools=shop.functions), TASK)).chat_message.to_text()
    told = client.calls[1].texts[-1]
    assert "- order(item='pear', number=2): ok\n" in told
    assert "- price(item='plum'): error" in told
    assert "not undone" in told
    # After a success there is nothing to tell the model, but other agents have not been told.
    assert client.calls[2].texts[-1] == "0.75\n"
    assert "not undone:\n- order(item='pear', number=2): ok\n" in answer


async def test_two_functions_of_one_name_are_refused(actor: MakeActor) -> None:
    with pytest.raises(ValueError, match="under the name 'add'"):
        await turn(actor(Client("Hello."), tools=[add, add]), TASK)


# --- Events and streams ---


@pytest.mark.parametrize("streaming", [False, True])
async def test_events_come_in_order_and_usage_is_counted_once(actor: MakeActor, streaming: bool) -> None:
    usage = RequestUsage(prompt_tokens=7, completion_tokens=3)
    replies = [
        CreateResult(finish_reason="stop", content=python("print(1)"), usage=usage, cached=False, thought="Hm."),
        CreateResult(finish_reason="stop", content="One.", usage=usage, cached=False),
    ]
    items = await stream(actor(Client(*replies), model_client_stream=streaming), TASK)
    response = items[-1]
    assert isinstance(response, Response)
    inner = list(response.inner_messages or [])
    assert [type(item) for item in inner] == [ThoughtEvent, CodeGenerationEvent, CodeExecutionEvent]
    assert [item for item in items[:-1] if not isinstance(item, ModelClientStreamingChunkEvent)] == inner
    counted = total([*inner, response.chat_message])
    assert (counted.prompt_tokens, counted.completion_tokens) == (14, 6)
    assert any(isinstance(item, ModelClientStreamingChunkEvent) for item in items) is streaming


async def test_tokens_and_output_are_streamed_as_they_come(actor: MakeActor) -> None:
    code = python("import time\nfor i in range(3):\n    print('line', i, flush=True)\n    time.sleep(0.2)")
    with OpenAIServer([Reply(code, usage=(11, 5)), "Three lines."]) as server:
        client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06", api_key="test", base_url=server.base_url)
        items = await stream(actor(client, model_client_stream=True), TASK)
        await client.close()
    chunks = [item for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    printed = [item for item in chunks if item.metadata.get("coderoom.event") == "output"]
    said = [item for item in chunks if item not in printed]
    [generated] = [item for item in items if isinstance(item, CodeGenerationEvent)]
    response = items[-1]
    assert isinstance(response, Response)
    assert "".join(item.content for item in printed) == "line 0\nline 1\nline 2\n"
    assert len(printed) > 1
    assert "".join(item.content for item in said if item.full_message_id == generated.id) == code
    assert "".join(item.content for item in said if item.full_message_id == response.chat_message.id) == "Three lines."
    assert generated.models_usage == RequestUsage(prompt_tokens=11, completion_tokens=5)


async def test_an_endless_output_is_not_streamed_without_end(actor: MakeActor) -> None:
    agent = actor(Client(python("for _ in range(3000): print('x' * 1000)"), "Much."), model_client_stream=True)
    items = await stream(agent, TASK)
    chunks = [item for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    told = [item.content for item in chunks if item.metadata.get("coderoom.event") == "output"]
    printed = "".join(told)
    assert len(told) < 1000
    assert 900_000 < len(printed) < 1_100_000
    assert printed.endswith("not shown while it runs.]\n")


# --- Approval, files, and a place that broke ---


async def test_a_rejection_without_a_reason_ends_the_turn(actor: MakeActor, tmp_path: Path) -> None:
    approver = Approver(False, "")
    client = Client(python("open('made', 'w')"), "never")
    response = await turn(actor(client, approval_func=approver), TASK)
    facts = facts_of(response)
    assert (facts["outcome"], facts["ran"], facts["stop_reason"]) == ("rejected", "false", "rejected")
    assert "no reason was given" in text_of(response)
    assert len(client.calls) == 1
    assert not (tmp_path / "work" / "made").exists()
    assert "open('made', 'w')" in approver.asked[0].code
    assert approver.asked[0].context[0].content == TASK


async def test_what_the_policy_refuses_ends_the_turn(actor: MakeActor) -> None:
    client = Client(python("import subprocess"))
    response = await turn(actor(client, code_executor=SandboxCodeExecutor(policy="restricted")), TASK)
    assert (facts_of(response)["outcome"], facts_of(response)["stop_reason"]) == ("rejected", "rejected")


PLOT = python(
    "import struct, zlib\n"
    "def chunk(kind, data):\n"
    "    body = kind + data\n"
    "    return struct.pack('>I', len(data)) + body + struct.pack('>I', zlib.crc32(body))\n"
    "head = struct.pack('>IIBBBBB', 2, 2, 8, 2, 0, 0, 0)\n"
    "rows = zlib.compress((b'\\0' + b'\\xff' * 6) * 2)\n"
    "picture = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')\n"
    "open('plot.png', 'wb').write(picture)\n"
    "open('fake.png', 'wb').write(b'no picture')\n"
    "open('rows.csv', 'w').write('1')"
)


@pytest.mark.parametrize("vision", [True, False])
async def test_a_model_that_sees_gets_the_figures(actor: MakeActor, vision: bool, tmp_path: Path) -> None:
    client = Client(PLOT, "Drawn.", vision=vision)
    agent = actor(client)
    facts = facts_of(await turn(agent, TASK))
    assert await pictures_in(agent) == int(vision)
    assert ("<image>" in client.calls[1].texts[-1]) is vision
    assert "plot.png (image/png, " in client.calls[1].texts[-1]
    listed = {item["name"]: item for item in json.loads(facts["artifacts"])}
    assert sorted(listed) == ["fake.png", "plot.png", "rows.csv"]
    assert listed["plot.png"]["path"] == str(tmp_path / "work" / "plot.png")


async def test_a_sandbox_that_cannot_be_had_is_no_output(actor: MakeActor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    client = Client(python("1"))
    agent = actor(client, code_executor=SandboxCodeExecutor(wall="docker"))
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        await turn(agent, TASK)
    assert len(client.calls) == 1
    assert not any("nowhere" in text for text in await remembered(agent))


# --- Arguments ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_steps": 0}, "max_steps must be 1 or more"),
        ({"max_tokens": 0}, "max_tokens must be 1 or more"),
        ({"max_seconds": 0}, "max_seconds must be above 0"),
        ({"max_output_chars": 199}, "max_output_chars must be 200 or more"),
        ({"code_format": "tag"}, "code_format must be one of 'fence', 'execute', not 'tag'"),
        ({"on_error": "undo"}, "on_error must be one of 'keep', 'rollback', not 'undo'"),
        ({"tools": [3]}, "3 cannot be offered: it is not a function"),
        ({"tools": [add, add]}, "under the name 'add'"),
        ({"tools": add}, "tools=<function add at .* must be a list of functions"),
        ({"tools": "add"}, "tools='add' must be a list"),
        ({"code_executor": "docker"}, "code_executor must be a code executor, not 'docker'"),
        ({"model_client": "gpt-4o"}, "model_client must be one of AutoGen's model clients, not 'gpt-4o'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CodeActAgent("actor", **{"model_client": Client(), **arguments})


async def test_it_makes_its_own_sandbox() -> None:
    agent = CodeActAgent("actor", Client(python("6 * 7"), "42."))
    assert outputs((await turn(agent, TASK)).inner_messages or []) == ["42\n"]
    folder = Path(agent.code_executor.dump_component().config.get("work_dir") or "/nowhere")
    await agent.close()
    assert not folder.exists()
    assert agent.produced_message_types == (TextMessage,)
