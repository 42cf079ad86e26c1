"""What clients are told of a request that has failed: a status, a code, and a sentence."""

from __future__ import annotations

import math
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from coderoom._util.text import misfits
from coderoom.errors import CodeRoomError, MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.integrations.service.tenants import TooMuchError


class NotFoundError(Exception):
    """There is no such thing, or it belongs to another tenant."""


class SessionLostError(Exception):
    """A session has ended with the process that held it."""


_KNOWN: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "not_found"),
    (SessionLostError, 410, "session_lost"),
    (TooMuchError, 429, "too_much"),
    (SandboxUnavailable, 503, "sandbox_unavailable"),
    (MissingDependencyError, 501, "missing_dependency"),
    (RequestError, 400, "bad_request"),
    (CodeRoomError, 500, "failed"),
)


def failure_of(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The status, the answer and the headers for a failure."""
    if isinstance(error, ValidationError):
        return 400, told("bad_request", f"{misfits(error)}."), {}
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return 400, told("bad_request", f"{'.'.join(map(str, first['loc'][1:])) or 'The request'}: {first['msg']}."), {}
    for kind, status, code in _KNOWN:
        if isinstance(error, kind):
            headers = {"Retry-After": str(math.ceil(error.after))} if isinstance(error, TooMuchError) else {}
            return status, told(code, str(error)), headers
    return 500, told("internal_error", "The server has failed; its log says how."), {}


def told(code: str, message: str) -> dict[str, Any]:
    """The answer to a request that has failed."""
    return {"error": {"code": code, "message": message}}
