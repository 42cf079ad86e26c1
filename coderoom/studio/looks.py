"""What Studio's pages get besides: a style that folds wide code, and an editor for who has no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from coderoom.studio.asgi import Application, Message, Receive, Scope, Send

__all__ = ["styled"]

_MORE: Final = Path(__file__).with_name("pages.html").read_bytes()
_LENGTH: Final = b"content-length"
# A browser that kept a page would keep this too, beyond a new version of CodeRoom.
_KEPT_BY_NOBODY: Final = (b"cache-control", b"no-store")


def styled(application: Application) -> Application:
    """Put `pages.html` at the end of each page.

    It folds wide code and lets rows shrink, which else make the whole page wide, its buttons out of sight. And it puts
    a plain box in the place of Studio's editor of JSON, the only way to change what forms do not show, where that
    cannot be loaded.

    Args:
        application: An ASGI application that sends pages.

    Returns:
        The application with these pages.
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
                message["body"] = message.get("body", b"") + _MORE
            await send(message)

        await application(scope, receive, answer)

    return restyled


def _longer(length: bytes) -> bytes:
    return b"%d" % (int(length) + len(_MORE))
