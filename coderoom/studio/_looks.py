"""How messages look in Studio's pages: a style besides Studio's own, which leaves wide code as wide as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

__all__ = ["styled"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Studio's names for its boxes are what it does to them: the steps of a run have 400 pixels, be the window as high as it
# may, and the words of a message are broken anywhere.
_STYLE: Final = b"""<style>
.max-h-\\[400px\\].scroll-smooth { max-height: max(400px, 65vh); }
.break-all { word-break: normal; overflow-wrap: anywhere; }
.break-all pre { white-space: break-spaces; margin: 0.25rem 0; padding: 0.25rem 0.5rem; border-radius: 0.25rem;
  background: rgb(128 128 128 / 10%); }
.break-all ul { list-style: disc; padding-left: 1.5rem; }
.break-all ol { list-style: decimal; padding-left: 1.5rem; }
.break-all :is(th, td) { padding-right: 1rem; text-align: left; }
</style>
"""
_LENGTH: Final = b"content-length"
# A browser that kept a page would keep its style too, beyond a new version of CodeRoom.
_KEPT_BY_NOBODY: Final = (b"cache-control", b"no-store")


def styled(application: Application) -> Application:
    """Have the pages fold what is wide, so that it does not make the whole page wide, its buttons out of sight.

    Args:
        application: An ASGI application that sends pages.

    Returns:
        The application, whose pages have a style at their end.
    """

    async def restyled(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = False

        async def answer(message: Message) -> None:
            nonlocal is_page
            if message["type"] == "http.response.start":
                headers = [(name.lower(), value) for name, value in message.get("headers", ())]
                is_page = message["status"] == 200 and dict(headers).get(b"content-type", b"").startswith(b"text/html")
                if is_page:
                    headers = [(name, _longer(value) if name == _LENGTH else value) for name, value in headers]
                    message["headers"] = [*headers, _KEPT_BY_NOBODY]
            elif is_page and not message.get("more_body", False):
                message["body"] = message.get("body", b"") + _STYLE
            await send(message)

        await application(scope, receive, answer)

    return restyled


def _longer(length: bytes) -> bytes:
    return b"%d" % (int(length) + len(_STYLE))
