"""Links to files that runs have made, for `coderoom serve`: whoever has one may read its file for a day.

Chat clients fetch pictures of an answer without a header, so that the path itself is the secret. Each link has a copy
of its file, as it was when the answer was given.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from coderoom._util.files import read_inside
from coderoom._util.pictures import HEAD_BYTES, picture_type
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.integrations.http import Guard, Message, failure
from coderoom.integrations.tool import missing

try:
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise missing("Starlette", "serve") from error

if TYPE_CHECKING:
    from coderoom.contracts import WebApp

_PATH: Final = "/v1/links/"
_SALT: Final = b"coderoom serve"
_ROUNDS: Final = 200_000
_SECONDS: Final = 24 * 60 * 60.0
_MOST_FILES: Final = 20
_LARGEST: Final = 32 << 20
_MOST_BYTES: Final = 1 << 30
_HOST: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_SHOWN: Final = re.compile(r"[^\w. /-]")
# A file may be anything: nothing in it runs, and it tells nobody of its path.
_SAFE: Final = {
    "Cache-Control": "private, max-age=86400",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LinksGuard(Guard):
    """Lets requests for links pass without a token, since they have one in their path.

    Other callers are known by a hash of their token, which each server has alike, and by which it is hard to guess.
    """

    def __init__(self, app: WebApp, tokens: Sequence[str] = ()) -> None:
        super().__init__(app, tokens)
        self._callers = [pbkdf2_hmac("sha256", token.encode(), _SALT, _ROUNDS).hex() for token in tokens]

    def caller_of(self, scope: Message, headers: Mapping[bytes, bytes]) -> Any:
        """See `Guard`; whoever has a link is a caller of its own."""
        if scope["path"].startswith(_PATH):
            return "a link"
        number = super().caller_of(scope, headers)
        return None if number is None else self._callers[number]


@dataclass(frozen=True)
class _Link:
    copy: Path
    name: str
    kind: str | None
    size: int
    ends: float


class Links:
    """The links of a server.

    Args:
        public_url: What clients reach the server by; `None`: what their requests name as `Host`.

    Raises:
        RequestError: It is not the URL of a server.
    """

    def __init__(self, public_url: str | None = None) -> None:
        self._public_url = None if public_url is None else _checked(public_url)
        self._folder: Path | None = None
        self._links: dict[str, _Link] = {}
        self.route = Route(f"{_PATH}{{token}}/{{name}}", self._answer)

    def base_for(self, request: Request) -> str | None:
        """What URLs for this client begin with; `None` if that is not known."""
        host = request.headers.get("host", "")
        named = f"{request.url.scheme}://{host}" if _HOST.fullmatch(host) else None
        return self._public_url or named

    async def to(self, folder: Path, names: Sequence[str], base: str) -> str:
        """Markdown that shows pictures of a folder and links to its other files, as far as they can be read."""
        found = [await self._link(folder, name, base) for name in names[:_MOST_FILES]]
        return "\n\n".join(filter(None, found))

    async def _link(self, folder: Path, name: str, base: str) -> str:
        token = secrets.token_urlsafe(32)
        self._folder = self._folder or temporary_folder()
        copy = self._folder / token
        try:
            data = await asyncio.to_thread(read_inside, folder, name, _LARGEST)
            await asyncio.to_thread(copy.write_bytes, data)
        except (OSError, RequestError):  # It is gone, not a plain file, or too large.
            return ""
        kind, last = picture_type(data[:HEAD_BYTES]), encodable(Path(name).name)
        self._links[token] = _Link(copy, last, kind, len(data), time.monotonic() + _SECONDS)
        self.clean()
        mark = "" if kind is None else "!"
        return f"{mark}[{_SHOWN.sub('_', name)}]({base}{_PATH}{token}/{quote(last, safe='')})"

    def clean(self) -> None:
        """End links that are too old, and the oldest ones if all together are too large."""
        size = sum(link.size for link in self._links.values())
        for token, link in list(self._links.items()):
            if link.ends > time.monotonic() and size <= _MOST_BYTES:
                break
            del self._links[token]
            size -= link.size
            link.copy.unlink(missing_ok=True)

    def close(self) -> None:
        """End all links."""
        self._links.clear()
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None

    async def _answer(self, request: Request) -> Response:
        link = self._links.get(request.path_params["token"])
        if link is None or link.ends <= time.monotonic():
            return failure(404, "There is no such link; each ends after a day, and with the server.")
        placed = "attachment" if link.kind is None else "inline"
        kind = link.kind or "application/octet-stream"
        return FileResponse(
            link.copy, media_type=kind, headers=_SAFE, filename=link.name, content_disposition_type=placed
        )


def _checked(url: str) -> str:
    parts = urlsplit(url)
    is_plain = (
        parts.scheme in ("http", "https") and _HOST.fullmatch(parts.netloc) and not (parts.query or parts.fragment)
    )
    if not is_plain or not re.fullmatch(r"[\w./~-]*", parts.path):
        raise RequestError(f"--public-url {url!r} is not the URL of a server, such as https://chat.example.org.")
    return url.rstrip("/").removesuffix("/v1")
