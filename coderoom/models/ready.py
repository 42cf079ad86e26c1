"""Prepares a request to a model: replies are whole, connections end with the event loop, pictures are encoded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

from autogen_core import Image
from autogen_core.models import LLMMessage, UserMessage

from coderoom._util.tasks import aside
from coderoom.models.names import innermost_client
from coderoom.models.replies import keep_whole


async def make_ready(model_client: Any) -> None:
    """Prepare a client for a request in this event loop."""
    found = _open.get(asyncio.get_running_loop())
    if found is None or model_client not in found[2]:  # Each request asks for it.
        await _close_with_loop(innermost_client(model_client))
        keep_whole(model_client)
        _open[asyncio.get_running_loop()][2].add(model_client)


class _Encoded(Image):
    """A picture that is encoded once. AutoGen's clients encode each of theirs for each request, in the event loop."""

    def __init__(self, picture: Image) -> None:
        self.image = picture.image
        self._base64 = picture.to_base64()

    def to_base64(self) -> str:
        return self._base64

    @property
    def data_uri(self) -> str:
        return f"data:image/png;base64,{self._base64}"


_encoded: Final[WeakKeyDictionary[Image, _Encoded]] = WeakKeyDictionary()


async def with_encoded_pictures(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """The messages of a request, whose pictures are encoded in a thread, so that the event loop goes on."""
    ready: list[LLMMessage] = []
    for message in messages:
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            content: list[Any] = []
            for part in message.content:
                if isinstance(part, Image) and not isinstance(part, _Encoded):
                    if part not in _encoded:
                        _encoded[part] = await aside(_Encoded, part)
                    part = _encoded[part]
                content.append(part)
            message = message.model_copy(update={"content": content})
        ready.append(message)
    return ready


Open = dict[ref[Any], list[Any]]

_open: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], Open, WeakSet[Any]]] = {}
"""For each event loop: what closes connections at its end, the connections, and the clients that are ready."""


async def _close_with_loop(model_client: Any) -> None:
    """Close a client's connections when the running event loop ends. The client can still be used in another loop.

    AutoGen's teams do not close clients. Open connections cause warnings when the interpreter ends, and an error when
    the client is used in a second event loop.
    """
    loop = asyncio.get_running_loop()
    if loop not in _open:
        for old in [old for old in _open if old.is_closed()]:
            del _open[old]
        opened: Open = {}
        # Asynchronous generators are closed when a loop ends.
        at_end = _close_at_end(loop, opened)
        _open[loop] = at_end, opened, WeakSet()
        await anext(at_end)
    opened = _open[loop][1]
    if ref(model_client) not in opened:
        for dead in [client for client in opened if client() is None]:
            await _close(opened.pop(dead))
        from coderoom._util.autogen import transports_of  # It imports AutoGen, as the client's owner has done.

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
