"""Connect's protocol as E2B's clients speak it: JSON in one piece, or in frames for a stream.

https://connectrpc.com/docs/protocol says what it is.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.streams import kept_alive
from coderoom.integrations.service.tenants import TooMuchError

Facts = dict[str, Any]
_STREAMED: Final = "application/connect+json"
_LAST: Final = 2
_MOST_SECONDS: Final = 86_400.0
_STATUS: Final[Mapping[str, int]] = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}


class RpcError(Exception):
    """Why a call has failed: one of Connect's codes, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code if code in _STATUS else "internal"

    @property
    def status(self) -> int:
        """The status of HTTP that goes with it."""
        return _STATUS[self.code]


def rpc_error(error: Exception) -> RpcError:
    """A failure as a client is told of it."""
    if isinstance(error, RpcError):
        return error
    for kind, code in (
        (NotFoundError, "not_found"),
        (TooMuchError, "resource_exhausted"),
        (RequestError, "invalid_argument"),
        (SandboxUnavailable, "unavailable"),
    ):
        if isinstance(error, kind):
            return RpcError(code, str(error))
    return RpcError("internal", "The server has failed; its log says how.")


def error_response(request: Request, error: RpcError) -> Response:
    """The answer to a call that has failed."""
    facts = {"code": error.code, "message": str(error)}
    if request.headers.get("content-type", "").startswith(_STREAMED):
        return Response(_frame({"error": facts}, _LAST), media_type=_STREAMED)
    return JSONResponse(facts, error.status)


async def message_of(request: Request) -> Facts:
    """The message of a call, which has one piece.

    Raises:
        RpcError: It is none.
    """
    data = await request.body()
    if request.headers.get("content-type", "").startswith(_STREAMED):
        data = data[5:]
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise RpcError("invalid_argument", f"The message is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise RpcError("invalid_argument", "The message is not a JSON object.")
    return found


def seconds_of(request: Request) -> float | None:
    """How long a call may take; `None`: as long as it wants."""
    try:
        seconds = int(request.headers.get("connect-timeout-ms", "0")) / 1000
    except ValueError:
        return None
    return min(seconds, _MOST_SECONDS) if seconds > 0 else None


def stream_response(request: Request, messages: AsyncGenerator[Facts], waiting: Facts) -> Response:
    """Answer with a stream; `waiting` is sent now and then while nothing comes, so that connections stay open."""
    try:
        seconds = max(1.0, float(request.headers.get("keepalive-ping-interval", "50")))
    except ValueError:
        seconds = 50.0

    async def frames() -> AsyncIterator[bytes]:
        last: Facts = {}
        pieces = kept_alive(messages, min(seconds, 3_600.0))
        try:
            async for message in pieces:
                yield _frame(waiting if message is None else message)
        except Exception as error:
            failure = rpc_error(error)
            last = {"error": {"code": failure.code, "message": str(failure)}}
        finally:
            await pieces.aclose()
        yield _frame(last, _LAST)

    return StreamingResponse(frames(), media_type=_STREAMED)


async def within(messages: AsyncGenerator[Facts], seconds: float | None) -> AsyncGenerator[Facts]:
    """Messages for so long.

    Raises:
        RpcError: It took too long.
    """
    end = None if seconds is None else asyncio.get_running_loop().time() + seconds
    try:
        while True:
            try:
                async with asyncio.timeout_at(end):
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise RpcError("deadline_exceeded", "The time of the request is over") from None
            yield message
    finally:
        await messages.aclose()


def _frame(message: Facts, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data
