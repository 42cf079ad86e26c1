"""The sandboxes that E2B's clients have made: who may use one, how long it lives, and whether it is paused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, quote

from fastapi import HTTPException
from starlette.requests import Request

from coderoom.integrations.service.boxes import Box, Boxes, KeptSession
from coderoom.integrations.service.e2b.commands import Command
from coderoom.integrations.service.e2b.connect import refusal
from coderoom.integrations.service.e2b.files import Files, Helper
from coderoom.integrations.service.failures import NotFoundError, SessionLostError, failure_of
from coderoom.integrations.service.tenants import Tenant

HOME: Final = "/home/user"
USER: Final = "user"
ENVD_VERSION: Final = "0.6.4"
"""What the clients may expect of the routes inside a sandbox."""
TEMPLATE: Final = "code-interpreter-v1"
TEMPLATES: Final = ("base", TEMPLATE)
INSIDE: Final = "/e2b"
"""Where the routes inside a sandbox are; their clients leave it out, and name the sandbox by a header."""
SANDBOX: Final = "coderoom.e2b"
"""The key of a request's scope under which is its sandbox."""
MOST_SECONDS: Final = 86_400
PORT: Final = "coderoom.e2b.port"
"""The key of a request's scope under which is the port inside that it is for, and its path."""
TRAFFIC_TOKEN: Final = b"e2b-traffic-access-token"
_ID: Final = b"e2b-sandbox-id"
_HOST: Final = re.compile(rb"(\d{1,5})-(b[0-9a-z]+-[0-9a-f]{24})\.")
_OWN_PORTS: Final = (49_983, 49_999)  # Those of E2B's own servers in a sandbox, in whose place this one answers.
_TOKENS: Final = (b"x-access-token", TRAFFIC_TOKEN)


class AdmissionError(Exception):
    """A client of E2B may not come in; `response` says why."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.response = refusal(status, message, headers)

    @classmethod
    def of(cls, error: Exception, inside: bool) -> AdmissionError:
        """The same for what the server has met before it asked a route."""
        status, facts, headers = failure_of(error)
        if isinstance(error, SessionLostError):
            status = 502 if inside else 404
        return cls(status, "The sandbox was not found" if status == 502 else facts["error"]["message"], headers)


@dataclass(eq=False)
class Context:
    """What keeps a state from one piece of code to the next.

    Attributes:
        id: Its id.
        kept: The session.
        language: Its language.
        cwd: Its folder at the beginning.
        count: How much code it has run.
    """

    id: str
    kept: KeptSession
    language: str
    cwd: str
    count: int = 0


@dataclass(eq=False)
class E2BSandbox:
    """A box as E2B's clients use it.

    Attributes:
        box: The box.
        main: The session of its commands, files, and default contexts.
        token: What a client must send to use it.
        template: The template that it was made from, as its client has named it.
        env: Environment variables of all its code.
        given: Those of them that the processes of its main session do not have by themselves.
        ends: When its time is over, in seconds since 1970; `None` while it is paused.
        has_home: Whether its files are at `/home/user`; elsewhere, walls show them where they are.
        pauses: Whether it is paused then, not ended.
        public: Whether its ports may be reached without a token.
        keeps_memory: Whether variables and commands outlast such a pause.
        wakes: For how many seconds a request lets it go on after such a pause; `None`: it refuses requests.
        contexts: The contexts of its code, by ids.
        commands: Its commands, by their numbers.
        files: Its files.
        watchers: What watches its folders, by ids.
    """

    box: Box
    main: KeptSession
    template: str
    env: Mapping[str, str]
    has_home: bool
    pauses: bool = False
    public: bool = False
    keeps_memory: bool = True
    wakes: float | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(24))
    ends: float | None = None
    paused: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    commands: dict[int, Command] = field(default_factory=dict)
    watchers: dict[str, Helper] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000, 1 << 31)))
    timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.files = Files(self.main)

    @property
    def id(self) -> str:
        """Its id."""
        return self.box.id

    @property
    def running(self) -> list[Command]:
        """The commands that have not ended."""
        return [each for each in self.commands.values() if each.process.exit_code is None]

    @property
    def end_at(self) -> float:
        """When it ends if nobody uses it, in seconds since 1970."""
        idle = time.time() + self.box.idle_seconds - (0 if self.box.busy else time.monotonic() - self.box.used)
        return idle if self.ends is None else min(self.ends, idle)

    def signs(self, query: Mapping[str, list[str]], operation: str) -> bool:
        """Whether the query of a URL for a file was signed with its token."""
        path, user, given, until = (
            query.get(name, [""])[0] for name in ("path", "username", "signature", "signature_expiration")
        )
        if any(len(values) > 1 for values in query.values()):  # The route may take another one than the signed.
            return False
        text = ":".join((path, operation, user, self.token, *([until] if until else [])))
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        return hmac.compare_digest(f"v1_{digest}".encode(), given.encode())


class E2BSandboxes:
    """All of them.

    Args:
        boxes: The boxes of the server.
    """

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        self._known: dict[str, E2BSandbox] = {}

    def add(self, sandbox: E2BSandbox) -> None:
        """Know one more."""
        for id in list(self._known):
            self._alive(id)  # Forgets one that has ended.
        self._known[sandbox.id] = sandbox

    def of(self, tenant: Tenant) -> list[E2BSandbox]:
        """Those of a tenant, oldest first."""
        found = map(self._alive, list(self._known))
        return [each for each in found if each is not None and each.box.tenant is tenant]

    def find(self, tenant: Tenant, id: str) -> E2BSandbox:
        """The one with an id.

        Raises:
            NotFoundError: The tenant has no such sandbox.
        """
        found = self._alive(id)
        if found is None or found.box.tenant is not tenant:
            raise NotFoundError(f"There is no sandbox {id!r:.100}; it was killed, or its time is over.")
        return found

    def _alive(self, id: str) -> E2BSandbox | None:
        found = self._known.get(id)
        if found is not None and not self.boxes.has(found.box):
            del self._known[id]
            return None
        return found

    async def end(self, sandbox: E2BSandbox) -> None:
        """Kill it."""
        if sandbox.timer is not None:
            sandbox.timer.cancel()
        await self.boxes.end(sandbox.box)

    def set_time(self, sandbox: E2BSandbox, seconds: float) -> None:
        """Let it live for so long from now."""
        if sandbox.timer is not None:
            sandbox.timer.cancel()
        sandbox.ends = time.time() + seconds
        late = asyncio.get_running_loop().call_later
        sandbox.timer = late(seconds, lambda: asyncio.ensure_future(self._over(sandbox)))

    async def _over(self, sandbox: E2BSandbox) -> None:
        if sandbox.pauses and not sandbox.paused and self.boxes.has(sandbox.box):
            await self.pause(sandbox, sandbox.keeps_memory)
        else:
            await self.end(sandbox)

    async def pause(self, sandbox: E2BSandbox, memory: bool) -> None:
        """Stop its commands, and keep it as it is for a day at most; without `memory`, keep the files only."""
        self.set_time(sandbox, MOST_SECONDS)
        sandbox.paused, sandbox.ends = True, None
        sandbox.box.idle_seconds = MOST_SECONDS
        for context in sandbox.contexts.values():
            await context.kept.session.cancel()
        for command in sandbox.running:
            await command.process.send_signal(signal.SIGSTOP)
        if not memory:
            await self.forget(sandbox)

    async def forget(self, sandbox: E2BSandbox) -> None:
        """End its commands, and make the states of all contexts fresh."""
        await asyncio.gather(*(each.restart() for each in sandbox.box.sessions.values()))

    def resume(self, sandbox: E2BSandbox, seconds: float) -> None:
        """Go on after a pause; without one, live at least for so long."""
        if sandbox.paused:
            sandbox.paused = False
            sandbox.box.idle_seconds = sandbox.box.tenant.limits.idle_seconds
            for command in sandbox.running:
                asyncio.ensure_future(command.process.send_signal(signal.SIGCONT))  # noqa: RUF006 (it is over at once)
        elif sandbox.ends is not None and sandbox.ends > time.time() + seconds:
            return
        self.set_time(sandbox, seconds)

    # --- Who may come in ---

    def admit(self, scope: Any, headers: Mapping[bytes, bytes]) -> Tenant:
        """The tenant of a request that goes inside a sandbox, which is changed so that the right routes get it.

        Such a request has the id of the sandbox in a header, and its token; or its host is `PORT-ID.DOMAIN`; or it has
        a URL for a file, which was signed with the token.

        Raises:
            AdmissionError: There is no such sandbox, it is paused, or the token is wrong.
        """
        id, port = _named(headers)
        if id is None:
            found = self.signed(scope, "write" if scope["method"] == "POST" else "read")
        else:
            found = self._alive(id) or _nowhere()
            given = [headers[name] for name in _TOKENS if name in headers]
            known = any(hmac.compare_digest(found.token.encode(), each) for each in given)
            known = known or (found.public and port is not None)
            if found.paused and found.wakes is not None and known:
                self.resume(found, found.wakes)
            if found.paused:
                _nowhere()
            if not known:
                raise AdmissionError(401, "The access token of the sandbox is missing or wrong.")
        scope[SANDBOX] = found
        if port is not None:
            scope[PORT] = port, scope.get("raw_path") or quote(scope["path"]).encode()
        scope["path"] = INSIDE + ("/port" if port is not None else scope["path"])
        scope["raw_path"] = scope["path"].encode()
        return found.box.tenant

    def signed(self, scope: Any, operation: str) -> E2BSandbox:
        """The sandbox for which a URL for a file was signed.

        Raises:
            AdmissionError: There is none here, or the time of the URL is over.
        """
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        all_known = filter(None, map(self._alive, list(self._known)))
        found = next((each for each in all_known if each.signs(query, operation)), None)
        if found is None or found.paused:
            raise AdmissionError(401, "The signature is wrong, or its sandbox was not found.")
        until = query.get("signature_expiration", [""])[0]
        if until and not (until.isdecimal() and int(until) >= time.time()):
            raise AdmissionError(401, "signature is already expired")
        return found

    async def owner_of_signed(self, scope: Any) -> str:
        """Which of the server's other processes has the sandbox for which a URL was signed; this one if none has."""
        path = f"{INSIDE}/signed/{'write' if scope['method'] == 'POST' else 'read'}"
        answers = await self.boxes.peers.answers({**scope, "method": "GET", "path": path})
        return next((str(each["owner"]) for each in answers), self.boxes.peers.owner)


def _nowhere() -> NoReturn:
    raise AdmissionError(502, "The sandbox was not found")


def is_signed(scope: Any) -> bool:
    """Whether a request has a signed URL, which does not name its sandbox."""
    names = scope["path"] == "/files" and b"signature=" in scope["query_string"]
    return names and _named(dict(scope["headers"])) == (None, None)


def is_inside(scope: Any) -> bool:
    """Whether a request goes inside a sandbox; see `E2BSandboxes.admit`."""
    return is_signed(scope) or _named(dict(scope["headers"]))[0] is not None


def is_for_port(scope: Any) -> bool:
    """Whether a request is for a port inside a sandbox."""
    return _named(dict(scope["headers"]))[1] is not None


def _named(headers: Mapping[bytes, bytes]) -> tuple[str | None, int | None]:
    """The id of the sandbox that a request names, and the port inside that it is for."""
    host = _HOST.match(headers.get(b"host", b""))
    if host is None:
        return headers[_ID].decode("latin-1") if _ID in headers else None, None
    return host[2].decode(), None if int(host[1]) in _OWN_PORTS else int(host[1])


def is_control(scope: Any) -> bool:
    """Whether a request is one for E2B's API."""
    return str(scope["path"]).startswith(("/sandboxes", "/v2/sandboxes", "/snapshots", "/templates"))


def sandbox_of(request: Request) -> E2BSandbox:
    """The sandbox of a request that goes inside one."""
    found: E2BSandbox | None = request.scope.get(SANDBOX)
    if found is None:
        raise HTTPException(404, "Not Found")
    return found


def moment(seconds: float) -> str:
    """A time as the clients read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
