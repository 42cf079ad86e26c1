"""CSS that is added to Studio's pages, so that wide code folds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from coderoom.studio.asgi import Application, Message, Receive, Scope, Send

__all__ = ["styled"]

_MORE: Final = Path(__file__).with_name("pages.html").read_bytes()
_LENGTH: Final = b"content-length"
# A cached page would keep the old CSS after an upgrade of CodeRoom.
_NO_STORE: Final = (b"cache-control", b"no-store")


def styled(application: Application) -> Application:
    """Append `pages.html` to each page.

    It folds wide code and lets rows shrink. Without it, wide code pushes the buttons out of sight.

    Args:
        application: The ASGI application that sends the pages.
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
                    message["headers"] = [*headers, _NO_STORE]
            elif is_page and not message.get("more_body", False):
                message["body"] = message.get("body", b"") + _MORE
            await send(message)

        await application(scope, receive, answer)

    return restyled


def _longer(length: bytes) -> bytes:
    return b"%d" % (int(length) + len(_MORE))
