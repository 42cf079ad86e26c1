"""Cancelling a turn: it ends at once, leaves nothing running, and the next turn works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import CodeGenerationEvent, ModelClientStreamingChunkEvent, TextMessage
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage

from coderoom.agents import ApprovalRequest, ApprovalResponse
from tests.agents.helpers import (
    BAD,
    GOOD,
    TASK,
    Approver,
    Client,
    HangingClient,
    MakeCoder,
    MakeTerminal,
    as_messages,
    begin,
    cancelled,
    context_of,
    decide,
    facts_of,
    is_alive,
    python,
    roles_of,
    text_of,
    turn,
    until,
)

SLOW = python(
    "import os, subprocess, time\n"
    "child = subprocess.Popen(['sleep', '300'])\n"
    "open('new', 'w').write(f'{os.getpid()} {child.pid}')\n"
    "os.rename('new', 'pids')\n"
    "time.sleep(300)"
)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
@pytest.mark.parametrize("place", ["code", "decision", "second attempt", "summary"])
async def test_a_model_call_is_cancelled(place: str, streaming: bool, way: str, coder: MakeCoder) -> None:
    hang_in = ["code", "decision", "second attempt", "summary"].index(place)
    replies = [BAD, decide(True), python("exit(9)")][:hang_in]
    client = HangingClient(hang_in, *replies, GOOD, "Done.")
    agent = coder(client, max_retries_on_error=1, model_client_stream=streaming)
    message = TextMessage(content=TASK, source="user")
    running, token = begin(agent, message)
    await client.hangs.wait()
    await cancelled(running, token, way)

    response = await turn(agent, message)
    assert (facts_of(response)["outcome"], facts_of(response)["attempts"]) == ("ok", "1")
    assert (await context_of(agent)).count(TASK) == 1


async def test_running_code_is_cancelled(way: str, coder: MakeCoder, tmp_path: Path) -> None:
    client = Client(SLOW, GOOD, "Done.")
    agent = coder(client)
    running, token = begin(agent, TASK)
    await until((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert all(is_alive(pid) for pid in pids)
    await cancelled(running, token, way)
    await until(lambda: not any(is_alive(pid) for pid in pids))
    assert len(client.calls) == 1

    assert facts_of(await turn(agent, "Something else."))["outcome"] == "ok"
    context = await context_of(agent)
    assert (context[0], context[1], context[3], context[4]) == (TASK, SLOW, "Something else.", GOOD)
    assert "cancelled" in context[2]
    assert await roles_of(agent) == ["user", "model", "user", "user", "model", "user", "model"]


async def test_running_code_of_others_is_cancelled(way: str, terminal: MakeTerminal, tmp_path: Path) -> None:
    agent = terminal()
    slow = TextMessage(content=SLOW, source="coder")
    running, token = begin(agent, slow)
    await until((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    await cancelled(running, token, way)
    await until(lambda: not any(is_alive(pid) for pid in pids))
    # A team passes the unread message on again. With a new one beside it, the interrupted code is not run again.
    assert text_of(await turn(agent, slow, TextMessage(content=GOOD, source="coder"))) == "42\n"


async def test_closing_the_agent_ends_its_running_code(coder: MakeCoder, tmp_path: Path) -> None:
    client = Client(SLOW, "It was stopped.")
    agent = coder(client, max_retries_on_error=3)
    running, _ = begin(agent, TASK)
    await until((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    await agent.close()
    async with asyncio.timeout(30):
        response = await running
    assert (facts_of(response)["outcome"], facts_of(response)["stop_reason"]) == ("cancelled", "cancelled")
    await until(lambda: not any(is_alive(pid) for pid in pids))


async def test_waiting_for_an_approval_is_cancelled(way: str, coder: MakeCoder, tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def approve(request: ApprovalRequest) -> ApprovalResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    agent = coder(Client(python("open('ran', 'w')")), approval_func=approve)
    running, token = begin(agent, TASK)
    await asked.wait()
    await cancelled(running, token, way)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
async def test_a_token_that_was_cancelled_before_starts_nothing(streaming: bool, coder: MakeCoder) -> None:
    approver, client, token = Approver(True), Client(GOOD), CancellationToken()
    token.cancel()
    agent = coder(client, approval_func=approver, model_client_stream=streaming)
    with pytest.raises(asyncio.CancelledError):
        await turn(agent, TASK, token=token)
    assert (client.calls, approver.asked) == ([], [])


async def test_a_token_that_was_cancelled_before_runs_no_code_of_others(terminal: MakeTerminal, tmp_path: Path) -> None:
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn(terminal(), python("open('ran', 'w')"), token=token)
    assert not (tmp_path / "ran").exists()


class StallingClient(Client):
    """Streams a first chunk, and then nothing more; it looks at no token."""

    def __init__(self, *replies: str) -> None:
        super().__init__(*replies)
        self.ended = False

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        try:
            yield "first"
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def test_a_stream_that_stalls_is_cancelled(way: str, coder: MakeCoder) -> None:
    client = StallingClient()
    agent = coder(client, model_client_stream=True)
    running, token = begin(agent, TASK)
    for _ in range(20):
        await asyncio.sleep(0)
    await cancelled(running, token, way)
    assert client.ended


async def test_whoever_leaves_a_stream_early_leaves_nothing_behind(coder: MakeCoder) -> None:
    client = StallingClient()
    before = asyncio.all_tasks()
    items = coder(client, model_client_stream=True).on_messages_stream(as_messages([TASK]), CancellationToken())
    assert isinstance(await anext(items), ModelClientStreamingChunkEvent)
    await items.aclose()
    await until(lambda: client.ended and asyncio.all_tasks() <= before)


class EndlessClient(Client):
    """Streams chunk after chunk, for ever."""

    sent = 0

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        token: CancellationToken = arguments["cancellation_token"]
        while True:
            self.sent += 1
            yield "more "
            rest = asyncio.ensure_future(asyncio.sleep(0.0001))
            token.link_future(rest)
            await rest


async def test_a_fast_stream_that_is_cancelled_between_two_chunks_is_not_read_to_its_end(coder: MakeCoder) -> None:
    client, token = EndlessClient(), CancellationToken()
    items = coder(client, model_client_stream=True).on_messages_stream(as_messages([TASK]), token)
    assert isinstance(await anext(items), ModelClientStreamingChunkEvent)
    token.cancel()
    async with asyncio.timeout(10) as limit:
        with pytest.raises(asyncio.CancelledError):
            await anext(items)
    assert not limit.expired()
    assert client.sent < 500


async def test_whoever_leaves_a_turn_before_the_code_runs_can_go_on(coder: MakeCoder, tmp_path: Path) -> None:
    agent = coder(Client(python("open('ran', 'w')"), "Hello."))
    items = agent.on_messages_stream(as_messages([TASK]), CancellationToken())
    assert isinstance(await anext(items), CodeGenerationEvent)
    await items.aclose()
    assert text_of(await turn(agent, "Never mind.")) == "Hello."
    assert not (tmp_path / "ran").exists()
