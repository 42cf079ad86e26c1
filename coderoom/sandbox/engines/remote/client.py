"""Requests to a server of sandboxes over HTTP. The server may send anything: sizes and types are checked.

The one module that knows httpx. Used by the engine `remote`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from coderoom._util.distribution import install_command
from coderoom._util.tasks import aside
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable

if TYPE_CHECKING:
    import httpx

Event = tuple[str, dict[str, Any]]
"""The name and the data of a server-sent event."""
ANSWER_SECONDS: Final = 60.0
"""How long a server may take for what is no code; it also says something so often while code runs."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""The size of an answer that is no result."""
_CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 5.0  # The server closes idle connections after some more.
_KEPT: Final = 64
_LEAST_WAIT, _MOST_WAIT = 0.2, 30.0
_PART: Final = 256 * 1024
_LONGEST_MESSAGE: Final = 4_000
_ID: Final = re.compile(r"[\w-]{1,200}", re.ASCII)


class GoneError(SandboxUnavailable):
    """The server does not have what a request names: a sandbox, a session, a call."""


class Address:
    """Where a server is, and what it knows its client by; the token is in no `repr` and in no message.

    Args:
        url: The URL.
        token: The token; empty if none is needed.

    Raises:
        RequestError: The URL is none of HTTP, or the token is none.
    """

    def __init__(self, url: str, token: str = "") -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host:
            raise RequestError("The URL of a server begins with http:// or https://, and has a host.")
        if parts.username or parts.password:
            raise RequestError("The URL of a server is shown; its token must stand apart: CODEROOM_SERVER_TOKEN.")
        netloc = f"[{host}]" if ":" in host else host
        self.shown = f"{parts.scheme}://{netloc}{'' if port is None else f':{port}'}"
        self.base = f"{self.shown}{parts.path.rstrip('/')}"
        self._token = token
        if not self._token.isprintable() or not self._token.isascii():
            raise RequestError("The token of a server has characters that no header can have.")

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        known = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return {**known, "Accept-Encoding": "identity"}

    @property
    def is_encrypted(self) -> bool:
        """Whether it is reached by TLS."""
        return self.shown.startswith("https:")


class Client:
    """Sends requests. It belongs to the event loop that it was made in.

    Args:
        address: Where the server is.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    def __init__(self, address: Address) -> None:
        self._httpx = _import_httpx()
        self._address = address
        self._http = self._httpx.AsyncClient(
            base_url=address.base,
            headers=address.headers,
            timeout=self._httpx.Timeout(ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=self._httpx.Limits(
                max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=_IDLE_SECONDS
            ),
            verify=address.is_encrypted,  # Without TLS, its certificates need not be read.
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        most: int = MOST_BYTES,
        seconds: float = ANSWER_SECONDS,
        patience: float = ANSWER_SECONDS,
    ) -> dict[str, Any]:
        """Send a request, and return the answer.

        Args:
            method: Its method.
            path: Its path.
            body: Its JSON.
            most: How many bytes the answer may have.
            seconds: How long the answer may take.
            patience: How long to try again when the server has too much to do.

        Raises:
            RequestError: The server refuses the request.
            SandboxUnavailable: It cannot be reached, has failed, or has answered something else.
            GoneError: It does not know what the path names.
            MissingDependencyError: It lacks something.
        """
        try:
            # Also of a server that sends a byte now and then.
            async with asyncio.timeout(seconds + patience + ANSWER_SECONDS):
                async with self._sent(method, path, body, seconds, patience) as response:
                    text = await self._read(response, most)
        except TimeoutError as error:
            raise SandboxUnavailable(f"The server {self._address.shown} does not answer.") from error
        return await aside(self._json, text) if text else {}

    @asynccontextmanager
    async def events(
        self, path: str, body: Mapping[str, Any], *, most: int, patience: float, gate: asyncio.Event
    ) -> AsyncGenerator[AsyncGenerator[Event]]:
        """Send a request that is answered by server-sent events, each of at most `most` bytes.

        Nothing is read while `gate` is not set. Leaving the context ends what the request has begun.

        Raises:
            RequestError, SandboxUnavailable, GoneError, MissingDependencyError: As `ask`, also as an event.
        """
        async with self._sent("POST", path, body, ANSWER_SECONDS, patience) as response:
            yield self._events(response, most, gate)

    async def upload(self, path: str, file: IO[bytes]) -> dict[str, Any]:
        """Put the content of a file; see `ask`."""

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await asyncio.to_thread(file.read, _PART):
                yield piece

        async with self._sent("PUT", path, pieces, ANSWER_SECONDS, 0) as response:
            text = await self._read(response, MOST_BYTES)
        return self._json(text) if text else {}

    async def download(self, path: str, body: Mapping[str, Any], file: IO[bytes], most: int) -> None:
        """Write an answer into a file; see `ask`."""
        async with self._sent("POST", path, body, ANSWER_SECONDS, 0) as response:
            with self._reporting():
                async for piece in response.aiter_raw(_PART):
                    most -= len(piece)
                    if most < 0:
                        raise self._strange("it has sent more than files may have")
                    await asyncio.to_thread(file.write, piece)

    # --- How ---

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, body: Any, seconds: float, patience: float
    ) -> AsyncGenerator[httpx.Response]:
        """A request, sent again while the server has too much to do; its answer is a good one."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            content = body() if callable(body) else None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"} if isinstance(content, bytes) else None
            timeout = self._httpx.Timeout(ANSWER_SECONDS, connect=_CONNECT_SECONDS, read=seconds)
            request = self._http.build_request(method, path, content=content, headers=headers, timeout=timeout)
            with self._reporting():
                response = await self._http.send(request, stream=True)
            try:
                if response.is_success:
                    yield response
                    return
                text = await self._read(response, MOST_BYTES)
            finally:
                with self._reporting():
                    await response.aclose()
            pause = _pause_of(response.headers.get("retry-after"))
            if response.status_code != 429 or loop.time() + pause > end:
                raise self._refusal(response.status_code, text)
            await asyncio.sleep(pause)

    async def _read(self, response: httpx.Response, most: int) -> bytes:
        text = bytearray()
        with self._reporting():
            async for piece in response.aiter_raw():
                text += piece
                if len(text) > most:
                    raise self._strange(f"its answer has more than {most:,} bytes")
        return bytes(text)

    async def _events(self, response: httpx.Response, most: int, gate: asyncio.Event) -> AsyncGenerator[Event]:
        buffer = bytearray()
        with self._reporting():
            async for piece in response.aiter_raw():
                begin = max(len(buffer) - 1, 0)
                buffer += piece
                while (end := buffer.find(b"\n\n", begin)) >= 0:
                    event = await aside(self._event, bytes(buffer[:end]))
                    del buffer[: end + 2]
                    begin = 0
                    if event is not None:
                        yield event
                if len(buffer) > most:
                    raise self._strange(f"an event has more than {most:,} bytes")
                await gate.wait()
        raise self._strange("its answer has ended before the result")

    def _event(self, text: bytes) -> Event | None:
        name, data = "", b""
        for line in text.split(b"\n"):
            field, _, value = line.partition(b": ")
            if field == b"event":
                name = value.decode("ascii", "replace")
            elif field == b"data":
                data = value
        if not name:
            return None  # A comment, which only says that the server is there.
        facts = self._json(data)
        if name == "error":
            raise self._refusal(0, data)
        return name, facts

    def _json(self, text: bytes) -> dict[str, Any]:
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            raise self._strange("its answer is not the JSON that was expected")
        return facts

    def _reporting(self) -> _Reporting:
        return _Reporting(self._httpx, self._address.shown)

    def _strange(self, why: str) -> SandboxUnavailable:
        return SandboxUnavailable(f"The server {self._address.shown} does not do what CodeRoom's service does: {why}.")

    def _refusal(self, status: int, text: bytes) -> Exception:
        """What to raise for an answer that is no good one."""
        try:
            error = json.loads(text)["error"]
            code, message = str(error["code"]), str(error["message"])[:_LONGEST_MESSAGE]
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._strange(f"it has answered with the status {status}")
        if status == 401:
            return RequestError(
                f"The server {self._address.shown} does not know the token: it comes from options={{'token': ...}}, "
                "CODEROOM_SERVER_TOKEN, or without these CODEROOM_TOKEN."
            )
        if code in ("not_found", "session_lost"):
            return GoneError(message)
        if code == "missing_dependency":
            return MissingDependencyError(message)
        if code in ("bad_request", "not_allowed") or (400 <= status < 500 and status != 429):
            return RequestError(message)
        if code in ("sandbox_unavailable", "too_much"):
            return SandboxUnavailable(message)
        return SandboxUnavailable(f"The server {self._address.shown} has failed: {message}")


class _Reporting:
    """Raises what httpx raises as `SandboxUnavailable`."""

    def __init__(self, httpx: Any, place: str) -> None:
        self._httpx = httpx
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout | self._httpx.ProxyError):
            why = str(error) or type(error).__name__
            raise SandboxUnavailable(f"The server {self._place} cannot be reached: {why}.") from error
        if isinstance(error, self._httpx.TimeoutException):
            raise SandboxUnavailable(f"The server {self._place} does not answer.") from error
        if isinstance(error, self._httpx.HTTPError | self._httpx.StreamError | self._httpx.InvalidURL):
            why = str(error) or type(error).__name__
            raise SandboxUnavailable(f"The connection to the server {self._place} has ended: {why}.") from error


def tell(address: Address, method: str, path: str) -> None:
    """Send a request without an event loop, and wait for no answer for longer than a moment; a failure is ignored."""
    httpx = _import_httpx()
    try:
        with httpx.Client(headers=address.headers, timeout=1.0, verify=address.is_encrypted) as client:
            client.request(method, f"{address.base}{path}")
    except (httpx.HTTPError, OSError, RuntimeError):  # The server closes by itself what nobody uses.
        pass


def id_of(facts: Mapping[str, Any]) -> str:
    """The id in an answer.

    Raises:
        SandboxUnavailable: It has none.
    """
    found = facts.get("id")
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise SandboxUnavailable("The server has answered without an id.")
    return found


def _pause_of(header: str | None) -> float:
    try:
        return min(max(_LEAST_WAIT, float(header or "")), _MOST_WAIT)  # In this order NaN, too, is the least.
    except ValueError:
        return 1.0


def _import_httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingDependencyError(
            f"The engine 'remote' needs httpx, which is not installed: {install_command('remote')}"
        ) from error
    return httpx
