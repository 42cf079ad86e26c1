"""Model clients that nobody closes: their connections end silently with the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from weakref import ref

from coderoom._util.autogen import transports_of

__all__ = ["close_with_loop"]

Open = dict[ref[Any], list[Any]]

_open: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], Open]] = {}


async def close_with_loop(model_client: Any) -> None:
    """Close a client's connections when the running event loop ends. The client can still be used in another loop.

    AutoGen's teams close no client. Connections that are left open print warnings when the interpreter ends, and an
    error when the client is used in a second event loop.
    """
    loop = asyncio.get_running_loop()
    if loop not in _open:
        for old in [old for old in _open if old.is_closed()]:
            del _open[old]
        opened: Open = {}
        # Only asynchronous generators hear of the end of a loop.
        at_end = _close_at_end(loop, opened)
        _open[loop] = at_end, opened
        await anext(at_end)
    opened = _open[loop][1]
    if ref(model_client) not in opened:
        for dead in [client for client in opened if client() is None]:
            await _close(opened.pop(dead))
        opened[ref(model_client)] = transports_of(model_client)


async def _close_at_end(loop: asyncio.AbstractEventLoop, opened: Open) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        for transports in list(opened.values()):
            await _close(transports)


async def _close(transports: list[Any]) -> None:
    for transport in transports:
        with suppress(Exception):
            await transport.aclose()
