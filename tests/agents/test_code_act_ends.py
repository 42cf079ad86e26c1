"""How a turn of a `CodeActAgent` ends before its answer: limits, cancelling, pausing, streams that are left."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from coderoom.agents import ApprovalRequest, ApprovalResponse
from tests.agents.acting import SLEEPS, MakeActor, Shop, outputs, remembered, there_is
from tests.agents.helpers import (
    TASK,
    Client,
    FailingClient,
    HangingClient,
    as_messages,
    begin,
    cancelled,
    facts_of,
    let_others_run,
    python,
    stream,
    text_of,
    turn,
)
from tests.support.openai_server import OpenAIServer, Stall


def starts(mark: str) -> str:
    """Code that leaves a program running; `mark` stands in its command line."""
    return f"import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 300; : {mark}'])\n"


def still_running(mark: str) -> list[str]:
    """The programs that bear the mark; what is in a namespace has no process id here to go by."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark in path.read_text():
                found.append(str(path))
    return found


@pytest.fixture
def mark() -> str:
    return f"mark-{uuid.uuid4()}"


# --- Limits ---


async def test_max_steps(actor: MakeActor) -> None:
    client = Client(python("print(1)"), python("print(2)"), "never asked")
    response = await turn(actor(client, max_steps=2), TASK)
    facts = facts_of(response)
    assert (facts["stop_reason"], facts["attempts"], facts["outcome"], facts["summary"]) == ("max_steps", "2", "ok", "")
    assert "ended before there was an answer" in text_of(response)
    assert "print(2)" in text_of(response)
    assert len(client.calls) == 2


async def test_max_tokens(actor: MakeActor) -> None:
    def reply(text: str, tokens: int) -> CreateResult:
        usage = RequestUsage(prompt_tokens=tokens, completion_tokens=1)
        return CreateResult(finish_reason="stop", content=text, usage=usage, cached=False)

    client = Client(reply(python("print(1)"), 8), reply(python("print(2)"), 8), "Next turn.")
    agent = actor(client, max_tokens=18)  # Which are used up then.
    facts = facts_of(await turn(agent, TASK))
    assert (facts["stop_reason"], facts["attempts"]) == ("max_tokens", "2")
    # Each turn counts for itself.
    assert text_of(await turn(agent, "And now?")) == "Next turn."


async def test_the_same_failure_again_ends_the_turn(actor: MakeActor) -> None:
    client = Client(python("1 / 0"), python("1 / 0"), "never asked")
    response = await turn(actor(client), TASK)
    assert facts_of(response)["stop_reason"] == "same_failure"
    assert "failed in the same way" in text_of(response)


async def test_the_same_result_again_and_again_ends_the_turn(actor: MakeActor) -> None:
    client = Client(python("print(1)"), python("print(2)"), *[python("print(1)")] * 3, "never asked")
    response = await turn(actor(client), TASK)
    assert (facts_of(response)["stop_reason"], facts_of(response)["attempts"]) == ("same_result", "5")
    assert "the same code gave the same result" in text_of(response)


async def test_code_whose_result_changes_goes_on(actor: MakeActor) -> None:
    counts = python("n = globals().get('n', 0) + 1\nprint(n)")
    response = await turn(actor(Client(*[counts] * 4, "It is 4.")), TASK)
    assert facts_of(response)["stop_reason"] == "answered"


async def test_max_seconds_in_a_model_call(actor: MakeActor) -> None:
    with OpenAIServer([Stall(60), "Next turn."]) as server:
        client = OpenAIChatCompletionClient(
            model="gpt-4o-2024-08-06", api_key="test", base_url=server.base_url, max_retries=0
        )
        agent = actor(client, max_seconds=0.5)
        response = await turn(agent, TASK)
        assert facts_of(response) == {"stop_reason": "max_seconds"}
        assert "the time limit was reached" in text_of(response)
        assert await remembered(agent) == [TASK]
        assert text_of(await turn(agent, "And now?")) == "Next turn."
        await client.close()


@pytest.mark.slow
async def test_max_seconds_after_code_that_ran_reports_it_once(actor: MakeActor) -> None:
    with OpenAIServer([python("print('once')"), Stall(60)]) as server:
        client = OpenAIChatCompletionClient(
            model="gpt-4o-2024-08-06", api_key="test", base_url=server.base_url, max_retries=0
        )
        agent = actor(client, max_seconds=3)
        await agent.start()
        response = await turn(agent, TASK)
        facts = facts_of(response)
        assert (facts["stop_reason"], facts["attempts"], facts["outcome"]) == ("max_seconds", "1", "ok")
        assert outputs(response.inner_messages or []) == ["once\n"]
        await client.close()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.slow
async def test_max_seconds_in_an_endless_loop(actor: MakeActor, mark: str, streaming: bool) -> None:
    code = f"{starts(mark)}print('begun', flush=True)\nx = 1\nwhile True: pass"
    client = Client(python(code), python("print('x is', x)"), "One.")
    agent = actor(client, max_seconds=4, model_client_stream=streaming)
    await agent.start()
    response = await turn(agent, TASK)
    facts = facts_of(response)
    assert (facts["stop_reason"], facts["attempts"], facts["outcome"]) == ("max_seconds", "1", "cancelled")
    assert "begun\n" in text_of(response)
    # What was cut is an event, too, and the model reads once what there was.
    [output] = outputs(response.inner_messages or [])
    assert "begun" in output
    [told] = [text for text in (await remembered(agent))[2:] if "begun" in text]
    assert "stopped from outside" in told
    assert still_running(mark) == []
    assert outputs(await stream(agent, "And now?")) == ["x is 1\n"]


@pytest.mark.slow
async def test_max_seconds_while_somebody_is_asked(actor: MakeActor, tmp_path: Path) -> None:
    async def never(request: ApprovalRequest) -> ApprovalResponse:
        await asyncio.Event().wait()
        raise AssertionError

    agent = actor(Client(python("open('made', 'w')"), "Next turn."), approval_func=never, max_seconds=2)
    assert facts_of(await turn(agent, TASK)) == {"stop_reason": "max_seconds"}
    assert "before the code above was run" in (await remembered(agent))[-1]
    assert not (tmp_path / "work" / "made").exists()


@pytest.mark.slow
async def test_max_seconds_holds_for_an_approval_that_ignores_its_cancellation(
    actor: MakeActor, tmp_path: Path
) -> None:
    async def late(request: ApprovalRequest) -> ApprovalResponse:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return ApprovalResponse(approved=True, reason="Too late.")

    agent = actor(Client(python("open('made', 'w')"), "Next turn."), approval_func=late, max_seconds=2)
    assert facts_of(await turn(agent, TASK))["stop_reason"] == "max_seconds"
    assert not (tmp_path / "work" / "made").exists()


async def test_a_turn_that_nobody_reads_asks_no_model_again(actor: MakeActor) -> None:
    class Ignoring(Client):
        async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
            asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)
            return await super().create(*args, **kwargs)

    asked = asyncio.Event()
    client = Ignoring(python("x = 1"), python("x = 2"), "Done.")
    running, _ = begin(actor(client), TASK)
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(client.calls) == 1


# --- Cancelling ---


async def test_cancel_in_a_model_call(actor: MakeActor, way: str) -> None:
    client = HangingClient(1, python("x = 42"), python("print(x)"), "42.")
    agent = actor(client)
    running, token = begin(agent, TASK)
    await client.hangs.wait()
    await cancelled(running, token, way)
    context = await remembered(agent)
    assert (len(context), context[:2]) == (3, [TASK, python("x = 42")])
    assert outputs(await stream(agent, "Go on.")) == ["42\n"]


async def test_cancel_while_code_runs(actor: MakeActor, way: str, tmp_path: Path, mark: str) -> None:
    agent = actor(Client(python(f"{starts(mark)}x = 42\n{SLEEPS}"), python("print(x)"), "42."))
    running, token = begin(agent, TASK)
    await there_is(tmp_path / "work" / "begun")
    assert still_running(mark)
    await cancelled(running, token, way)
    assert still_running(mark) == []
    told = (await remembered(agent))[-1]
    assert "stopped from outside" in told
    assert "begun\n" in told
    assert "Variables that were set before are still there" in told
    assert outputs(await stream(agent, "Go on.")) == ["42\n"]


async def test_cancel_in_a_call_of_a_function(actor: MakeActor, way: str) -> None:
    shop = Shop()
    code = "await order('apple', 3)\nawait wait()"
    client = Client(python(code), python("print(price('apple'))"), "Done.")
    agent = actor(client, tools=shop.functions)
    running, token = begin(agent, TASK)
    async with asyncio.timeout(30):
        await shop.waits.wait()
    await cancelled(running, token, way)
    assert shop.ended == ["wait()"]
    # What was done on the host is done, and the model has to know.
    told = (await remembered(agent))[-1]
    assert "- order(item='apple', number=3): ok" in told
    assert "- wait(): cancelled" in told
    assert outputs(await stream(agent, "Go on.")) == ["0.5\n"]


async def test_cancel_before_the_code_began(actor: MakeActor, way: str) -> None:
    asked = asyncio.Event()

    async def ask(request: ApprovalRequest) -> ApprovalResponse:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return ApprovalResponse(approved=True, reason="")

    agent = actor(Client(python("print(1)"), python("print(2)"), "Two."), approval_func=ask)
    running, token = begin(agent, TASK)
    await asked.wait()
    await cancelled(running, token, way)
    assert (await remembered(agent))[-1] == "The turn was ended before the code above was run."
    assert outputs(await stream(agent, "Go on.")) == ["2\n"]


async def test_a_token_that_was_cancelled_before(actor: MakeActor) -> None:
    token = CancellationToken()
    token.cancel()
    client = Client("Hello.")
    agent = actor(client)
    with pytest.raises(asyncio.CancelledError):
        await turn(agent, TASK, token=token)
    assert client.calls == []
    assert text_of(await turn(agent, "Again.")) == "Hello."


@pytest.mark.parametrize("where", [CodeGenerationEvent, ModelClientStreamingChunkEvent, CodeExecutionEvent])
async def test_a_stream_that_is_left_leaves_nothing_running(actor: MakeActor, mark: str, where: Any) -> None:
    code = "print('whole')" if where is CodeExecutionEvent else f"{starts(mark)}{SLEEPS}"
    agent = actor(Client(python(code), python("print('next')"), "Done."), model_client_stream=True)
    items: AsyncGenerator[Any, None] = agent.on_messages_stream(as_messages([TASK]), CancellationToken())
    async for item in items:
        is_output = getattr(item, "metadata", {}).get("coderoom.event") == "output"
        if isinstance(item, where) and (is_output or where is not ModelClientStreamingChunkEvent):
            break
    await items.aclose()
    assert still_running(mark) == []
    told = (await remembered(agent))[-1]
    assert {"CodeGenerationEvent": "before the code above", "CodeExecutionEvent": "whole\n"}.get(
        where.__name__, "begun"
    ) in told
    assert outputs(await stream(agent, "Go on.")) == ["next\n"]


async def test_a_model_that_fails_leaves_the_turn_to_be_tried_again(actor: MakeActor) -> None:
    client = FailingClient([1], python("x = 42"), python("print(x)"), "42.")
    agent = actor(client)
    [message] = as_messages([TASK])
    with pytest.raises(ConnectionError, match="the line is dead"):
        await turn(agent, message)
    assert outputs(await stream(agent, message)) == ["42\n"]
    assert (await remembered(agent)).count(TASK) == 1


# --- Pausing, and ends from outside ---


async def test_a_paused_agent_waits_before_its_next_call(actor: MakeActor) -> None:
    client = Client(python("print(1)"), "One.")
    agent = actor(client)
    await agent.on_pause(CancellationToken())
    running, _ = begin(agent, TASK)
    await let_others_run()
    await agent.start()
    await let_others_run()
    assert client.calls == []
    await agent.on_resume(CancellationToken())
    assert outputs((await running).inner_messages or []) == ["1\n"]


async def test_a_paused_turn_can_be_cancelled(actor: MakeActor, way: str) -> None:
    agent = actor(Client("Hello."))
    await agent.on_pause(CancellationToken())
    running, token = begin(agent, TASK)
    await let_others_run()
    await cancelled(running, token, way)
    await agent.on_resume(CancellationToken())
    assert text_of(await turn(agent, "Again.")) == "Hello."


@pytest.mark.parametrize("on_error", ["keep", "rollback"])
async def test_close_in_the_midst_of_a_run_ends_the_turn(
    actor: MakeActor, tmp_path: Path, mark: str, on_error: str
) -> None:
    agent = actor(Client(python(f"{starts(mark)}{SLEEPS}"), python("print(1)"), "One."), on_error=on_error)
    running, _ = begin(agent, TASK)
    await there_is(tmp_path / "work" / "begun")
    await agent.close()
    async with asyncio.timeout(30):
        facts = facts_of(await running)
    assert (facts["outcome"], facts["stop_reason"]) == ("cancelled", "cancelled")
    assert still_running(mark) == []
    assert agent.code_executor.wall == "auto"  # It was not started again.
    assert outputs(await stream(agent, "Go on.")) == ["1\n"]
