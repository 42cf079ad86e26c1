"""How E2B's clients are answered. Calls are in Connect's protocol: JSON in one piece, or in frames for a stream.

https://connectrpc.com/docs/protocol says what it is.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

from fastapi import HTTPException
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from coderoom.integrations.http import Json, is_overfull
from coderoom.integrations.service.failures import failure_of
from coderoom.integrations.service.streams import kept_alive

Facts = dict[str, Any]
M = TypeVar("M", bound=BaseModel)
_STREAMED: Final = "application/connect+json"
_LAST: Final = 2
_LONGEST_MESSAGE: Final = 4 * 1024 * 1024  # Of a stream.
_MOST_SECONDS: Final = 86_400.0
_HEAD: Final = struct.Struct(">BI")  # Of a message in a stream: flags, and its size.
_CALL: Final = re.compile(r"/(process\.Process|filesystem\.Filesystem)/")
_STATUS: Final[Mapping[str, int]] = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "already_exists": 409,
    "resource_exhausted": 429,
    "internal": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}


class RpcError(Exception):
    """Why a call has failed: one of Connect's codes, and a sentence."""

    def __init__(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code if code in _STATUS else "internal"
        self.headers = headers
        self.status = _STATUS[self.code]


def rpc_error(error: Exception) -> RpcError:
    """A failure as a client is told of it."""
    if isinstance(error, RpcError):
        return error
    status, facts, headers = failure_of(error)
    code = next((code for code, known in _STATUS.items() if known == status), "internal")
    return RpcError(code, facts["error"]["message"], headers)


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as the clients read it."""
    return Json({"code": status, "message": message}, status, headers)


class E2BRoute(APIRoute):
    """A route whose failures are told as the clients read them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (HTTPException, ClientDisconnect):
                raise
            except Exception as error:
                failure = rpc_error(error)
                if failure.code == "internal" and failure is not error:
                    raise
                return _told(request, failure)

        return handle


def _told(request: Request, error: RpcError) -> Response:
    if not _CALL.search(request.url.path):
        no_space = error.code == "resource_exhausted" and request.url.path.endswith("/files")
        return refusal(507 if no_space else error.status, str(error), error.headers)
    facts = {"code": error.code, "message": str(error)}
    if _is_streamed(request):
        return Response(_frame({"error": facts}, _LAST), media_type=_STREAMED)
    return Json(facts, error.status)


async def message_of(request: Request, kind: type[M]) -> M:
    """The message of a call, which has one piece.

    Raises:
        ValidationError: It is of another kind.
    """
    data = await request.body()
    return kind.model_validate_json((data[_HEAD.size :] if _is_streamed(request) else data) or b"{}")


async def messages_of(request: Request, kind: type[M]) -> AsyncGenerator[M]:
    """The messages of a call that streams them, as they come.

    Raises:
        ValidationError: One is of another kind.
        RpcError: One is too long, or the stream is none.
    """
    buffer = bytearray()
    async for piece in request.stream():
        buffer += piece
        while len(buffer) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(buffer)
            if flags:
                raise RpcError("unimplemented", "messages of a stream must not be compressed")
            if size > _LONGEST_MESSAGE:
                raise RpcError("resource_exhausted", f"a message of a stream may have {_LONGEST_MESSAGE:,} bytes")
            end = _HEAD.size + size
            if len(buffer) < end:
                break
            message = bytes(buffer[_HEAD.size : end])
            if is_overfull(message):
                raise RpcError("resource_exhausted", "a message of a stream has too many values")
            yield kind.model_validate_json(message)
            del buffer[:end]
    if buffer:
        raise RpcError("invalid_argument", "the stream ends within a message")


def seconds_of(request: Request) -> float | None:
    """How long a call may take; `None`: as long as it wants."""
    seconds = _number(request, "connect-timeout-ms", 0.0) / 1000
    return min(seconds, _MOST_SECONDS) if seconds > 0 else None


def stream_response(request: Request, messages: AsyncGenerator[Facts], waiting: Facts) -> Response:
    """Answer with a stream; `waiting` is sent now and then while nothing comes, so that connections stay open."""
    every = min(max(1.0, _number(request, "keepalive-ping-interval", 50.0)), 3_600.0)

    async def frames() -> AsyncIterator[bytes]:
        last: Facts = {}
        try:
            async with aclosing(kept_alive(_within(messages, seconds_of(request)), every)) as pieces:
                async for message in pieces:
                    yield _frame(waiting if message is None else message)
        except Exception as error:
            failure = rpc_error(error)
            last = {"error": {"code": failure.code, "message": str(failure)}}
        yield _frame(last, _LAST)

    return StreamingResponse(frames(), media_type=_STREAMED)


async def _within(messages: AsyncGenerator[Facts], seconds: float | None) -> AsyncGenerator[Facts]:
    end = None if seconds is None else asyncio.get_running_loop().time() + seconds
    async with aclosing(messages):
        while True:
            try:
                async with asyncio.timeout_at(end):
                    message = await anext(messages, None)
            except TimeoutError:
                raise RpcError("deadline_exceeded", "The time of the request is over") from None
            if message is None:
                return
            yield message


def _is_streamed(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith(_STREAMED)


def _number(request: Request, header: str, default: float) -> float:
    try:
        return float(request.headers.get(header, default))
    except ValueError:
        return default


def _frame(message: Facts, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return _HEAD.pack(flags, len(data)) + data
