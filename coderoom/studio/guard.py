"""Who may talk to a server that has no authentication: pages of its own, and programs of this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from coderoom.studio.asgi import Application, Message, Receive, Scope, Send

__all__ = ["guarded"]

_HERE: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
# A picture that a message names would tell its server whatever stands in its address, and code can write messages.
_POLICY: Final = b"frame-ancestors 'none'; img-src 'self' data: blob:; media-src 'self' data: blob:"
_HEADERS: Final = [(b"x-frame-options", b"DENY"), (b"content-security-policy", _POLICY)]
_REFUSAL: Final = b"This is not a page of this server.\n"


def guarded(application: Application) -> Application:
    """Refuse what pages of other servers ask for, stand in no frame of theirs, and show no pictures of theirs.

    A browser lets any page open a websocket to this machine, and send some requests; it says whose page it is. A page
    whose own name was made to point to this machine asks for that name. Others may have links to the pages here, and
    to nothing else.

    Args:
        application: An ASGI application that listens on 127.0.0.1.

    Returns:
        The application behind the guard.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
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
    own = headers.get(b"origin") in (None, f"http://{host}")
    # A picture, a script or a form that only gets something has no origin.
    own = own and (headers.get(b"sec-fetch-site") in (None, "same-origin", "none") or _is_link(scope, headers))
    return own and _HERE.fullmatch(host) is not None


def _is_link(scope: Scope, headers: Mapping[bytes, str]) -> bool:
    is_page = headers.get(b"sec-fetch-dest") == "document" and headers.get(b"sec-fetch-mode") == "navigate"
    return is_page and scope.get("method") == "GET" and not scope["path"].startswith("/api")
