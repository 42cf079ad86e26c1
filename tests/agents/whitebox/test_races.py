"""What comes at the worst moment: a second cancel, or one from another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage

from coderoom.sandbox import OutputChunk, stream_gathered
from tests.agents.acting import SLEEPS, MakeActor, outputs, remembered, there_is
from tests.agents.helpers import (
    TASK,
    Client,
    HangingClient,
    MakeCoder,
    as_messages,
    begin,
    let_others_run,
    python,
    stream,
)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
async def test_a_second_cancel_does_not_hide_what_was_run(actor: MakeActor, tmp_path: Path, streaming: bool) -> None:
    client = Client(python(f"x = 42\n{SLEEPS}"), python("print(x)"), "42.")
    agent = actor(client, model_client_stream=streaming)
    running, _ = begin(agent, TASK)
    await there_is(tmp_path / "work" / "begun")
    running.cancel()
    await let_others_run()
    running.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await running
    told = (await remembered(agent))[-1]
    assert "stopped from outside" in told
    assert "begun\n" in told
    assert outputs(await stream(agent, "Go on.")) == ["42\n"]


async def test_a_second_cancel_does_not_break_off_what_undoes_the_code(
    actor: MakeActor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(python("x = 1"), python(f"x = 2\n{SLEEPS}"), python("print(x)"), "1.")
    agent = actor(client, on_error="rollback")
    reached, opened = asyncio.Event(), asyncio.Event()
    runner = agent._runner
    restore = runner.undo

    async def wait_and_restore(token: CancellationToken) -> str:
        reached.set()
        await opened.wait()
        return await restore(token)

    monkeypatch.setattr(runner, "undo", wait_and_restore)
    running, _ = begin(agent, TASK)
    await there_is(tmp_path / "work" / "begun")
    running.cancel()
    async with asyncio.timeout(30):
        await reached.wait()
    running.cancel()
    await asyncio.sleep(0.02)
    opened.set()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert "The failed code was undone" in (await remembered(agent))[-1]
    assert outputs(await stream(agent, "Go on.")) == ["1\n"]


async def test_who_tells_of_output_has_ended_when_the_stream_has() -> None:
    begun, told, opened = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ended = False

    async def run(_: Any) -> int:
        nonlocal ended
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            while not opened.is_set():
                try:
                    await opened.wait()
                except asyncio.CancelledError:
                    continue
            ended = True
            raise
        return 1

    async def read() -> None:
        async for item in stream_gathered(run):
            assert not isinstance(item, OutputChunk)

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    await told.wait()
    reading.cancel()
    await asyncio.sleep(0.01)
    early = reading.done()
    opened.set()
    assert not early
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert ended


async def test_a_token_may_be_cancelled_in_another_thread(coder: MakeCoder) -> None:
    client = HangingClient(0)
    running, token = begin(coder(client), TASK)
    await client.hangs.wait()
    # Nothing else wakes the event loop meanwhile.
    threading.Timer(0.2, token.cancel).start()
    async with asyncio.timeout(20) as limit:
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not limit.expired()


class SlowToStop(Client):
    """Has a first chunk, and takes its time to end."""

    def __init__(self, *replies: str) -> None:
        super().__init__(*replies)
        self.told = asyncio.Event()

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        yield "first"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told.set()
            await asyncio.sleep(0.05)
            raise


async def test_a_cancel_while_a_stream_is_left_is_a_cancel(coder: MakeCoder) -> None:
    client = SlowToStop()
    items = coder(client, model_client_stream=True).on_messages_stream(as_messages([TASK]), CancellationToken())
    assert isinstance(await anext(items), ModelClientStreamingChunkEvent)
    going_on = False

    async def leave() -> None:
        nonlocal going_on
        await items.aclose()
        going_on = True

    leaving = asyncio.create_task(leave())
    await client.told.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert not going_on
