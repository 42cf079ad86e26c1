"""`CodeExecutorAgent`: what it says and leaves behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import (
    CodeGenerationEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core import CancellationToken, FunctionCall
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.models import CreateResult, RequestUsage, UserMessage

from coderoom.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent, RetryDecision
from coderoom.errors import SandboxUnavailable
from coderoom.executors import LocalCodeExecutor
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    WORSE,
    Approver,
    BareExecutor,
    Client,
    FailingClient,
    MakeCoder,
    MakeTerminal,
    PartialClient,
    context_of,
    decide,
    facts_of,
    python,
    roles_of,
    said_by,
    stream,
    text_of,
    turn,
)

# --- What it says ---


async def test_a_reply_without_code_is_the_answer_as_it_stands(coder: MakeCoder) -> None:
    agent = coder(Client("It is 42.\n"))
    response = await turn(agent, TASK)
    assert text_of(response) == "It is 42.\n"
    assert facts_of(response) == {"stop_reason": "no_code"}
    assert await context_of(agent) == [TASK, "It is 42.\n"]


async def test_the_report_tells_words_code_exit_code_and_output(coder: MakeCoder) -> None:
    response = await turn(coder(Client(f"First think.\n{GOOD}", "It is 42.")), TASK)
    text = text_of(response)
    assert text.startswith("It is 42.\n")
    assert "Attempt 1: ok, exit code 0." in text
    assert "```python no-run\nprint(6 * 7)\n```" in text
    assert "\n42\n" in text
    assert facts_of(response)["summary"] == "It is 42."


async def test_the_report_is_of_the_last_attempt(coder: MakeCoder) -> None:
    text = text_of(await turn(coder(Client(BAD, decide(True), GOOD, "Done."), max_retries_on_error=1), TASK))
    assert "Attempt 2: ok" in text
    assert "ValueError" not in text


async def test_a_model_cannot_talk_a_failure_away(coder: MakeCoder) -> None:
    response = await turn(coder(Client(BAD, "Everything went well.")), TASK)
    assert "Attempt 1: error, exit code 1." in text_of(response)
    assert (facts_of(response)["outcome"], facts_of(response)["exit_code"]) == ("error", "1")


async def test_a_plain_answer_after_a_failure_keeps_its_outcome(coder: MakeCoder) -> None:
    client = Client(BAD, decide(True), "Everything went well.")
    response = await turn(coder(client, max_retries_on_error=1), TASK)
    facts = facts_of(response)
    assert (facts["outcome"], facts["exit_code"], facts["attempts"], facts["stop_reason"]) == (
        "error",
        "1",
        "1",
        "no_code",
    )
    assert text_of(response).startswith("Everything went well.\n")
    assert "Attempt 1: error, exit code 1." in text_of(response)


async def test_thoughts_are_events_and_stay_in_the_context(coder: MakeCoder) -> None:
    def thinking(content: str, thought: str) -> CreateResult:
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False, thought=thought)

    agent = coder(Client(thinking(GOOD, "first"), thinking("Done.", "last")))
    response = await turn(agent, TASK)
    thoughts = [event.content for event in response.inner_messages or [] if isinstance(event, ThoughtEvent)]
    assert thoughts == ["first", "last"]
    messages = await agent.model_context.get_messages()
    assert [message.thought for message in messages if message.type == "AssistantMessage"] == ["first", "last"]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
async def test_half_a_character_from_a_model_spoils_nothing(streaming: bool, coder: MakeCoder) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    half = "cut \ud83d"
    reply = CreateResult(finish_reason="stop", content=half, usage=usage, cached=False, thought=half)
    agent = coder(Client(reply), model_client_stream=streaming)
    response = await turn(agent, TASK)
    for message in [*(response.inner_messages or []), response.chat_message]:
        message.model_dump_json()
    json.dumps(await agent.save_state(), ensure_ascii=False).encode()


async def test_a_stream_gives_chunks_then_the_whole(coder: MakeCoder) -> None:
    items = await stream(coder(Client(GOOD, "All is done."), model_client_stream=True), TASK)
    kinds = [type(item).__name__ for item in items]
    first, last = kinds.index("CodeGenerationEvent"), kinds.index("Response")
    assert set(kinds[:first]) == {"ModelClientStreamingChunkEvent"}
    assert kinds[first + 1] == "CodeExecutionEvent"
    assert set(kinds[first + 2 : last]) == {"ModelClientStreamingChunkEvent"}
    assert last == len(kinds) - 1


@pytest.mark.parametrize("code", ["1 / 0", "import time\nprint('begun', flush=True)\ntime.sleep(0.5)\n1 / 0"])
async def test_autogens_console_shows_streamed_output_once(
    coder: MakeCoder, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    agent = coder(Client(python(code), "It failed."), model_client_stream=True)
    await Console(RoundRobinGroupChat([agent], max_turns=1).run_stream(task=TASK))
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in ("ZeroDivisionError", "It failed.")] == [1, 1]


async def test_without_streaming_there_are_no_chunks(coder: MakeCoder) -> None:
    client = Client(GOOD, "Done.")
    items = await stream(coder(client), TASK)
    assert not any(isinstance(item, ModelClientStreamingChunkEvent) for item in items)
    assert not any(call.streamed for call in client.calls)


async def test_the_numbers_of_attempts_in_the_events(coder: MakeCoder) -> None:
    response = await turn(coder(Client(BAD, decide(True), GOOD, "Done."), max_retries_on_error=1), TASK)
    events = response.inner_messages or []
    assert [getattr(event, "retry_attempt", None) for event in events] == [0, 0, 0, 1, 1]


async def test_a_function_call_in_place_of_text_is_refused_by_name(coder: MakeCoder) -> None:
    call = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name="run", arguments="{}")],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
    )
    with pytest.raises(TypeError, match="text"):
        await turn(coder(Client(call)), TASK)


async def test_peers_in_a_team_of_autogen_read_code_exit_code_and_output(coder: MakeCoder) -> None:
    client = Client("Seen.")
    reader = CodeExecutorAgent("reader", BareExecutor(), model_client=client)
    team = RoundRobinGroupChat([coder(Client(python("print(6 * 7)\nexit(3)"), "It worked.")), reader], max_turns=2)
    async with asyncio.timeout(60):
        result = await team.run(task=TASK)
    [heard] = [text for text in client.calls[0].texts if "It worked." in text]
    assert "print(6 * 7)" in heard
    assert "exit code 3" in heard
    assert "\n42\n" in heard
    assert any(isinstance(message, CodeGenerationEvent) for message in result.messages)


# --- Models of all kinds ---


@pytest.mark.parametrize(
    ("abilities", "json_output", "asked_in_words"),
    [
        ({"structured_output": True, "json_output": True}, RetryDecision, False),
        ({"json_output": True}, True, True),
        ({}, None, True),
    ],
    ids=["structured output", "JSON only", "neither"],
)
async def test_every_model_can_retry(
    abilities: dict[str, bool], json_output: object, asked_in_words: bool, coder: MakeCoder
) -> None:
    client = Client(BAD, decide(True), GOOD, "Done.", **abilities)
    agent = coder(client, max_retries_on_error=1)
    response = await turn(agent, TASK)
    assert facts_of(response)["attempts"] == "2"
    assert [call.json_output for call in client.calls] == [None, json_output, None, None]
    assert ("JSON schema" in client.calls[1].texts[-1]) is asked_in_words
    assert not any("JSON schema" in text for text in await context_of(agent))


async def test_a_model_that_hardly_describes_itself_can_retry(coder: MakeCoder) -> None:
    client = PartialClient(BAD, decide(True), GOOD, "Done.")
    response = await turn(coder(client, max_retries_on_error=1), TASK)
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("2", "ok")


# --- Turns that fail ---


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
@pytest.mark.parametrize("fail_in", [0, 1, 2, 3])
async def test_a_turn_that_failed_can_be_repeated(fail_in: int, streaming: bool, coder: MakeCoder) -> None:
    earlier = UserMessage(content="said before", source="planner")
    message = HandoffMessage(content=TASK, source="planner", target="coder", context=[earlier])
    replies = [BAD, decide(True), WORSE, "Sorry."]
    client = FailingClient([fail_in], *replies[:fail_in], GOOD, "Done.")
    agent = coder(client, max_retries_on_error=1, model_client_stream=streaming)
    with pytest.raises(ConnectionError, match="the line is dead"):
        await turn(agent, message)
    response = await turn(agent, message)
    assert (facts_of(response)["outcome"], facts_of(response)["attempts"]) == ("ok", "1")
    context = await context_of(agent)
    assert (context.count(TASK), context.count("said before")) == (1, 1)


async def test_a_message_that_is_given_again_after_a_good_turn_is_meant_again(coder: MakeCoder) -> None:
    message = TextMessage(content=TASK, source="user")
    agent = coder(Client("One.", "Two."))
    await turn(agent, message)
    await turn(agent, message)
    assert await context_of(agent) == [TASK, "One.", TASK, "Two."]


async def test_a_sandbox_that_cannot_be_used_is_an_exception(coder: MakeCoder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    executor = LocalCodeExecutor(work_dir=tmp_path / "file" / "below")
    client = Client(GOOD, decide(True), GOOD)
    agent = coder(client, code_executor=executor, max_retries_on_error=2)
    with pytest.raises(SandboxUnavailable, match="file/below"):
        await turn(agent, TASK)
    assert len(client.calls) == 1
    assert await context_of(agent) == [TASK, GOOD]


async def test_an_executor_that_breaks_is_an_exception_and_never_told_to_the_model(coder: MakeCoder) -> None:
    executor = BareExecutor(RuntimeError("the daemon is gone"), CodeResult(0, "42\n"))
    client = Client(GOOD, GOOD, "Done.")
    agent = coder(client, code_executor=executor, max_retries_on_error=2)
    message = TextMessage(content=TASK, source="user")
    with pytest.raises(SandboxUnavailable, match="the daemon is gone"):
        await turn(agent, message)
    assert text_of(await turn(agent, message)).startswith("Done.")
    assert not any("daemon" in text for call in client.calls for text in call.texts)


async def test_a_broken_executor_is_an_exception_without_a_model_too(terminal: MakeTerminal) -> None:
    with pytest.raises(SandboxUnavailable):
        await turn(terminal(code_executor=BareExecutor(RuntimeError("gone"))), GOOD)


# --- The executor's life ---


async def test_the_executor_starts_by_itself(terminal: MakeTerminal) -> None:
    executor = LocalCodeExecutor()
    agent = terminal(code_executor=executor)
    assert executor.work_dir is None
    assert text_of(await turn(agent, GOOD)) == "42\n"
    assert executor.work_dir is not None


async def test_the_executor_can_be_started_early(terminal: MakeTerminal) -> None:
    executor = LocalCodeExecutor()
    await terminal(code_executor=executor).start()
    assert executor.work_dir is not None


@pytest.mark.parametrize("used", [True, False])
async def test_close_stops_an_executor_that_its_owner_started(used: bool, terminal: MakeTerminal) -> None:
    executor = LocalCodeExecutor()
    await executor.start()
    agent = terminal(code_executor=executor)
    if used:
        await turn(agent, GOOD)
    await agent.close()
    assert executor.work_dir is None


async def test_making_an_agent_touches_nothing(tmp_path: Path) -> None:
    agent = CodeExecutorAgent("terminal", LocalCodeExecutor(work_dir=tmp_path / "not" / "yet"))
    CodeExecutorAgent.load_component(agent.dump_component())
    assert list(tmp_path.iterdir()) == []


# --- Outside of a turn ---


async def test_blocks_can_be_run_outside_of_a_turn(coder: MakeCoder) -> None:
    client = Client()
    agent = coder(client)
    good = await agent.execute_code_block([CodeBlock(code="print(6 * 7)", language="python")], CancellationToken())
    bad = await agent.execute_code_block([CodeBlock(code="exit(3)", language="python")], CancellationToken())
    assert (good.exit_code, good.output) == (0, "42\n")
    assert bad.exit_code == 3
    assert "POSIX exit code: 3" in bad.output
    assert await context_of(agent) == []


async def test_blocks_outside_of_a_turn_need_approval_too(terminal: MakeTerminal, tmp_path: Path) -> None:
    agent = terminal(approval_func=Approver(False))
    block = CodeBlock(code="open('ran', 'w')", language="python")
    result = await agent.execute_code_block([block], CancellationToken())
    assert (result.exit_code, "it deletes files" in result.output) == (1, True)
    assert not (tmp_path / "ran").exists()


async def test_the_blocks_that_would_run_can_be_asked_for(terminal: MakeTerminal) -> None:
    agent = terminal(sources=["writer"])
    messages = [said_by("user", BAD), said_by("writer", f"{GOOD}\n\n```python no-run\nx\n```\n\n{COBOL}")]
    assert await agent.extract_code_blocks_from_messages(messages) == [
        CodeBlock(code="print(6 * 7)", language="python")
    ]


async def test_what_the_agent_is_made_of_can_be_asked_for(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(work_dir=tmp_path)
    agent = CodeExecutorAgent("terminal", executor)
    assert agent.code_executor is executor
    assert list(agent.produced_message_types) == [TextMessage]
    assert agent.description == CodeExecutorAgent.DEFAULT_TERMINAL_DESCRIPTION
    assert CodeExecutorAgent("coder", executor, model_client=Client()).description == (
        CodeExecutorAgent.DEFAULT_AGENT_DESCRIPTION
    )
    assert CodeExecutorAgent("terminal", executor, description="").description == ""


async def test_roles_alternate_as_models_expect(coder: MakeCoder) -> None:
    agent = coder(Client(GOOD, "Done.", GOOD, "Done again."))
    await turn(agent, TASK)
    await turn(agent, "Again.")
    assert await roles_of(agent) == ["user", "model"] * 4


def never_asked(request: ApprovalRequest) -> ApprovalResponse:
    raise AssertionError("asked")


@pytest.mark.parametrize("arguments", [{"approval_func": never_asked}, {"sources": ["user"]}])
async def test_without_code_nobody_is_asked(arguments: dict[str, Any], terminal: MakeTerminal) -> None:
    assert facts_of(await turn(terminal(**arguments), "Hello.", COBOL.replace("cobol", "json"))) == {
        "stop_reason": "no_code"
    }
