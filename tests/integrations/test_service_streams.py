"""Answers that come piece by piece, of which the client says how fast it takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from coderoom.integrations.service.streams import LimitedStream


async def test_one_that_nobody_reads_ends_with_what_makes_it() -> None:
    ended = []

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) > 3:
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    await LimitedStream(pieces(), 0.05)({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    assert (ended, sent[-1].get("more_body")) == ([True], True)
