"""Who may talk to a server that has no authentication: pages of its own, and programs of this machine."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

__all__ = ["guarded"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HERE: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_IN_NO_FRAME: Final = [(b"x-frame-options", b"DENY"), (b"content-security-policy", b"frame-ancestors 'none'")]
_REFUSAL: Final = b"This is not a page of this server.\n"


def guarded(application: Application) -> Application:
    """Refuse what pages of other servers ask for, and stand in no frame of theirs.

    A browser lets any page open a websocket to this machine, and send some requests; it says whose page it is. A page
    whose own name was made to point to this machine asks for that name.

    Args:
        application: An ASGI application that listens on 127.0.0.1.

    Returns:
        The application behind the guard.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_IN_NO_FRAME]
            await send(message)

        if scope["type"] == "lifespan" or _is_welcome(scope):
            await application(scope, receive, answer)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})

    return guard


def _is_welcome(scope: Scope) -> bool:
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    host = headers.get(b"host", "")
    return _HERE.fullmatch(host) is not None and headers.get(b"origin") in (None, f"http://{host}")
