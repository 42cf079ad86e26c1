"""Who may talk to a server that has no authentication: pages of its own, and programs of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

__all__ = ["guarded"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_NAMES: Final = ("127.0.0.1", "localhost")
_REFUSAL: Final = b"This is not a page of this server.\n"


def guarded(application: Application) -> Application:
    """Refuse what pages of other servers ask for.

    A browser lets any page open a websocket to this machine, and send some requests; it says whose page it is. A page
    whose own name was made to point to this machine asks for that name.

    Args:
        application: An ASGI application that listens on 127.0.0.1.

    Returns:
        The application behind the guard.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _is_welcome(scope):
            await application(scope, receive, send)
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
    if host.rpartition(":")[0] not in _NAMES and host not in _NAMES:
        return False
    origin = headers.get(b"origin")
    return origin is None or origin == f"http://{host}"
