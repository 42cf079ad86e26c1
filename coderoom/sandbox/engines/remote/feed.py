"""What code at a server reads from standard input, sent piece by piece while it runs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, Final, TypeVar

from coderoom._util.tasks import cancel_and_wait
from coderoom.errors import CodeRoomError
from coderoom.sandbox.engines.remote.client import Client, GoneError

T = TypeVar("T")
_PART: Final = 256 * 1024
_FOREVER: Final = 86_400.0  # The server answers when the code wants more, or has ended.


class Feed:
    """Sends pieces to code that runs at a server.

    Args:
        pieces: The pieces.
    """

    def __init__(self, pieces: AsyncGenerator[bytes]) -> None:
        self._pieces = pieces
        self._sending: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[CodeRoomError] = asyncio.get_running_loop().create_future()

    @property
    def has_begun(self) -> bool:
        """Whether the code may have read some of it."""
        return self._sending is not None

    def begin(self, client: Client, path: str) -> None:
        """Send them to an input of the server, once."""
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send(client, path))

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work, which ends if the pieces cannot be had or sent.

        Raises:
            CodeRoomError: Why they cannot.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._failed.result()
            return task.result()
        finally:
            await cancel_and_wait(task)

    async def close(self) -> None:
        """Send no more, and close what has the pieces."""
        if self._sending is None:
            await self._pieces.aclose()
        else:
            await cancel_and_wait(self._sending)

    async def _send(self, client: Client, path: str) -> None:
        async def send(data: bytes, *, end: bool = False) -> None:
            body = {"data": base64.b64encode(data).decode(), "end": end}
            await client.ask("POST", path, body, seconds=_FOREVER)

        try:
            async with aclosing(self._pieces):
                async for piece in self._pieces:
                    for start in range(0, len(piece), _PART):
                        await send(piece[start : start + _PART])
            await send(b"", end=True)
        except GoneError:  # The code has ended.
            pass
        except CodeRoomError as error:
            self._failed.set_result(error)
