"""Who may talk to Studio's server: programs of this machine, and its own pages in a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["OwnPagesOnly"]

_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_REFUSAL: Final = b"This server answers its own pages, and programs of this machine."

Message = MutableMapping[str, Any]


class OwnPagesOnly:
    """Refuses what other pages ask of a server that has no authentication.

    A browser lets any page that its user looks at send requests and open websockets to this machine. Such a request
    names another origin, or, where a name was made to point here, another host.

    Args:
        app: The ASGI application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Handle a request, or refuse it."""
        if scope["type"] == "lifespan" or _is_own(scope["headers"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})


def _is_own(headers: list[tuple[bytes, bytes]]) -> bool:
    told = {name.lower(): value.decode("latin-1").strip().lower() for name, value in headers}
    host = told.get(b"host", "")
    try:
        known = urlsplit(f"//{host}").hostname in _HERE
    except ValueError:
        return False
    return known and told.get(b"origin") in (None, f"http://{host}")
