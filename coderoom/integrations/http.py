"""What the HTTP doors have in common: a token, no other web pages, and the end of work whose client has left.

Used by `coderoom mcp --http`, `coderoom serve` and `coderoom sandbox serve`.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import resource
import signal
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol

from coderoom._util.tasks import resolve
from coderoom.errors import RequestError
from coderoom.integrations.tool import missing

try:
    import uvicorn
    from starlette.responses import JSONResponse
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise missing("uvicorn", "serve") from error

if TYPE_CHECKING:
    from coderoom.contracts import WebApp

CALLER: Final = "coderoom.caller"
"""The key of a request's scope under which is who has sent it: the number of its token, for instance."""
LEFT: Final = "coderoom.left"
"""The key of a request's scope under which is an `asyncio.Event`: set when the client has left."""
_PATIENCE_SECONDS: Final = 2
_BODY_SECONDS: Final = 30.0
_REQUEST_SECONDS: Final = 10.0
_UNREAD_LOOKS: Final = 6
_SMALL: Final = 256 * 1024
_LITTLE: Final = 16 * 1024
_MOST_VALUES: Final = {b",": 1_000_000, b"[": 250_000, b"{": 250_000, b":": 100_000}
_MOST_TEXTS: Final = 400_000
_OVERFULL: Final = (
    f"The JSON of a request may have at most {_MOST_VALUES[b',']:,} values, {_MOST_VALUES[b'[']:,} lists, as many "
    f"objects, {_MOST_VALUES[b':']:,} fields, and {_MOST_TEXTS:,} texts."
)
_MOST_CONNECTIONS: Final = 8_192
_MOST_QUEUED: Final = 2_048
_MOST_BEGUN: Final = 4
_MOST_ACCEPTED: Final = 2  # At a time, so that processes that listen at one socket share the work.
_NOTICE_SECONDS: Final = 2.0  # So long a server that ends says so before it refuses requests.
_CLOSE: Final = {"Connection": "close"}
_log: Final = logging.getLogger("coderoom.integrations")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Json(JSONResponse):
    """JSON with escapes, since the text of clients and of code may have lone surrogates, which UTF-8 has not."""

    def render(self, content: Any) -> bytes:
        """See `JSONResponse`."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Starts:
    """Lets a few requests of each caller begin in one pass of the event loop.

    So a thousand connections of one caller do not delay the requests of another, and each gets its answer no later.
    """

    def __init__(self) -> None:
        self._begun: Counter[Any] = Counter()
        self._waiting: dict[Any, deque[asyncio.Future[None]]] = {}

    async def take(self, caller: Any) -> None:
        """Wait until a request of a caller may begin."""
        loop = asyncio.get_running_loop()
        if not self._begun:
            loop.call_soon(self._next, loop)
        if self._begun[caller] < _MOST_BEGUN:
            self._begun[caller] += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun.clear()
        for caller, waiting in list(self._waiting.items()):
            for turn in [waiting.popleft() for _ in range(min(_MOST_BEGUN, len(waiting)))]:
                resolve(turn)
                self._begun[caller] += 1
            if not waiting:
                del self._waiting[caller]
        if self._begun:
            loop.call_soon(self._next, loop)


class Guard:
    """Refuses requests without a token, from web pages of other origins, and with large or slow bodies.

    The header `Authorization: Bearer` must have one of the tokens. A subclass may know callers in another way.
    """

    longest_body = 16 * 1024 * 1024
    most_held = 512 * 1024 * 1024
    """Of each caller, how many bytes the bodies of requests may have together, without what is small."""

    def __init__(self, app: WebApp, tokens: Sequence[str] = ()) -> None:
        self._app = app
        self._held: Counter[Any] = Counter()
        self._starts = Starts()
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        fault = _fault_of(headers)
        if fault is not None:
            await self._starts.take(None)
            status, why = fault
            await failure(status, why, **_CLOSE)(scope, receive, send)
            return
        caller = self.caller_of(scope, headers)
        await self._starts.take(caller)
        if caller is None:
            why = "The header 'Authorization: Bearer TOKEN' is missing, or its token is wrong."
            await failure(401, why, **_CLOSE, **{"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            scope[CALLER] = caller
            await self._serve(scope, receive, send)

    def caller_of(self, scope: Message, headers: Mapping[bytes, bytes]) -> Any:
        """Who sends a request: the number of the token; `None` if nobody may."""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        callers = [number for number, each in enumerate(self._tokens) if hmac.compare_digest(given, each)]
        return callers[0] if callers and scheme.lower() == b"bearer" else None

    def is_streamed(self, scope: Message) -> bool:
        """Whether the application reads the body piece by piece, and limits it."""
        return False

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        if self.is_streamed(scope):
            scope[LEFT] = asyncio.Event()
            await self._pass_on(scope, receive, send)
            return
        caller, held = scope[CALLER], 0

        def hold(size: int) -> bool:
            nonlocal held
            more = max(size - _SMALL, 0) - held
            if more and self._held[caller] + more > self.most_held:
                return False
            self._held[caller] += more
            held += more
            return True

        try:
            await self._serve_whole(scope, receive, send, hold)
        finally:
            self._held[caller] -= held

    async def _serve_whole(self, scope: Message, receive: Receive, send: Send, hold: Callable[[int], bool]) -> None:
        body, size, longest, fits = bytearray(), 0, self.longest_body, True
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while (message := await receive())["type"] == "http.request":
                    size += len(message.get("body", b""))
                    fits = fits and size <= longest and hold(size)
                    if fits:  # A client reads the answer when it has sent all.
                        body += message.get("body", b"")
                    if not message.get("more_body"):
                        break
                else:
                    return  # It has left.
        except TimeoutError:
            await failure(408, f"A request must come within {_BODY_SECONDS:g} s.", **_CLOSE)(scope, receive, send)
            return
        if size > longest:
            await failure(413, f"A request may have at most {longest:,} bytes.", **_CLOSE)(scope, receive, send)
            return
        if not fits:
            why = f"Requests that are sent together may have at most {self.most_held:,} bytes."
            await failure(429, why, **{"Retry-After": "1"})(scope, receive, send)
            return
        if is_overfull(body):
            await failure(413, _OVERFULL)(scope, receive, send)
            return
        scope[LEFT] = left = asyncio.Event()
        parts: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def received() -> Message:
            if parts:
                return parts.pop()
            message = await receive()
            if message["type"] == "http.disconnect":
                left.set()
            return message

        await self._pass_on(scope, received, send)

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception:
            _log.exception("A request has failed. This is a bug in CodeRoom.")


def _fault_of(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """The status and the reason for which a request with these headers is refused, whoever sends it."""
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
        return 403, "Requests from other web pages are not allowed."
    if b"content-length" in headers and b"transfer-encoding" in headers:  # A proxy may see another end of it.
        return 400, "A request may have only one of the headers 'Content-Length' and 'Transfer-Encoding'."
    return None


class _Impatient(H11Protocol):
    """Closes connections that are too many, on which no whole request comes, or whose answer nobody reads."""

    _unread = _unread_looks = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waited_since: Any = self
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > min(descriptors // 2, _MOST_CONNECTIONS):
            transport.abort()
        else:
            self._look_again()

    def _look_again(self) -> None:
        self._next_look = self.loop.call_later(_REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        unread = self.transport.get_write_buffer_size()
        self._unread_looks = self._unread_looks + 1 if unread and unread == self._unread else 0
        self._unread = unread
        if (waits and self._waited_since is self.cycle) or self._unread_looks > _UNREAD_LOOKS:
            self.transport.abort()
            return
        self._waited_since = self.cycle if waits else self
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if hasattr(self, "_next_look"):
            self._next_look.cancel()


def is_overfull(data: bytes | bytearray) -> bool:
    """Whether JSON has so many values that to read it would take the time of others: the interpreter does it at once.

    This takes as long as to copy the data a few times.
    """
    marks = {**_MOST_VALUES, b'"': _MOST_TEXTS}
    if len(data) < _LITTLE or all(data.count(each) <= most for each, most in marks.items()):
        return False
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # Each quote that is left begins or ends a text.
    if plain.count(b'"') > 2 * _MOST_TEXTS:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return any(outside.count(each) > most for each, most in _MOST_VALUES.items())


def failure(status: int, message: str, code: str | None = None, **headers: str) -> JSONResponse:
    """A response that says why a request has failed."""
    return JSONResponse(error_of(status, message, code), status, headers)


def error_of(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's protocol has it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    known = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    return {"error": {"message": message, "type": kind, "param": None, "code": code or known.get(status)}}


class Drained(Protocol):
    """An application that can end without breaking off what runs."""

    def drain(self, *, refuse: bool) -> None:
        """Say that it ends; `refuse`: and take nothing new."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs."""
        ...


class _Server(uvicorn.Server):
    """Ends at SIGINT at once; at SIGTERM when nothing runs any more, which it says before it refuses anything."""

    def __init__(
        self, config: uvicorn.Config, drained: Drained | None, drain_seconds: float, ending: asyncio.Event | None
    ) -> None:
        super().__init__(config)
        self._ending = ending
        self._drained = drained
        self._drain_seconds = drain_seconds
        self._draining_since: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_MOST_QUEUED)  # Uvicorn's `backlog` also is how many connections one process takes at a time.

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and self._drained is not None:
            self._draining_since = self._draining_since or monotonic()
        elif not self.should_exit:  # Another signal would leave out the end of the application.
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self._ending is not None and self._ending.is_set():
            self.should_exit = True
        if self._draining_since is not None and self._drained is not None:
            passed = monotonic() - self._draining_since
            is_noticed = passed >= min(_NOTICE_SECONDS, self._drain_seconds)
            self._drained.drain(refuse=is_noticed)
            if passed >= self._drain_seconds or (is_noticed and self._drained.is_idle):
                self.should_exit = True
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free.

    Raises:
        RequestError: The port is used, or not allowed.
    """
    try:  # Clients that come at once wait.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_MOST_QUEUED)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]
        hint = " Name another port, or 0 for one that is free." if port else ""
        raise RequestError(f"The port {port} of {host} cannot be used: {why}.{hint}") from error
    listener.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # asyncio does this only if the socket names its protocol.
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """The URL of a listening socket."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


async def serve_http(
    app: WebApp,
    host: str,
    port: int,
    ready: Callable[[str], None],
    drained: Drained | None = None,
    drain_seconds: float = 0.0,
) -> None:
    """Serve until SIGINT or SIGTERM; port 0 is any that is free. `ready` is called with the URL when it can be used."""
    listener = listen(host, port)
    ready(url_of(host, listener))
    await serve_sockets(app, [listener], drained, drain_seconds)


async def serve_sockets(
    app: WebApp,
    sockets: Sequence[socket.socket],
    drained: Drained | None = None,
    drain_seconds: float = 0.0,
    ending: asyncio.Event | None = None,
) -> None:
    """Serve at listening sockets, which other processes may have too, until SIGINT, SIGTERM or the event `ending`."""
    with suppress(OSError, ValueError):  # Idle connections need descriptors too.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Its log is about clients that have left, and about connections that are ended with the server.
    config = uvicorn.Config(
        app,
        http=_Impatient,
        ws="none",
        log_level="critical",
        backlog=_MOST_ACCEPTED,
        timeout_graceful_shutdown=_PATIENCE_SECONDS,
    )
    try:
        await _Server(config, drained, drain_seconds, ending).serve(sockets=list(sockets))
    finally:
        for each in sockets:
            each.close()
