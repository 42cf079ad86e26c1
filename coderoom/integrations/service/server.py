"""The application of the service: who may come in, the routes, metrics, and an end that waits for what runs."""

from __future__ import annotations

import base64
import inspect
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from coderoom import __version__
from coderoom.contracts import WebApp
from coderoom.errors import CodeRoomError, RequestError, SandboxUnavailable
from coderoom.integrations.http import CALLER, Guard, Json, Message, Receive, Send
from coderoom.integrations.service.api import make_api
from coderoom.integrations.service.boxes import Boxes
from coderoom.integrations.service.e2b import (
    AdmissionError,
    E2BSandboxes,
    Snapshots,
    is_control,
    is_for_port,
    is_inside,
    is_signed,
    make_e2b,
)
from coderoom.integrations.service.failures import NotFoundError, SessionLostError, failure_of, told
from coderoom.integrations.service.fusion import make_fusion
from coderoom.integrations.service.fusion_problems import make_fusion_problems
from coderoom.integrations.service.peers import FORWARDED, Peers, new_owner
from coderoom.integrations.service.places import SharedJudge
from coderoom.integrations.service.processes import make_processes
from coderoom.integrations.service.tenants import Tenant, TenantLimits, Tenants, TooMuchError
from coderoom.integrations.service.tracing import below_client
from coderoom.integrations.service.usage import metrics_of
from coderoom.judge import Judge
from coderoom.judge.problem_sets import Problem
from coderoom.sandbox import Sandbox, SandboxConfig

_log: Final = logging.getLogger("coderoom.service")
_OPEN: Final = ("/healthz", "/health")
_LOOPBACK: Final = re.compile(rb"(\d+-[0-9a-z]+-[0-9a-f]{24}\.)?(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
_STREAMED: Final = re.compile(
    r"PUT /v1/sandboxes/[^/]+/(archive|files/.*)|POST (/e2b)?/(files|process\.Process/StreamInput)"
)
_TOKEN_IN_PATH: Final = re.compile(r"/t/([^/]+)(?=/|$)")
_KNOWN: Final = (CodeRoomError, NotFoundError, SessionLostError, TooMuchError, ValidationError)
ANYBODY: Final = Tenant("anybody", TenantLimits(metrics=True))
STRANGERS: Final = Tenant("", TenantLimits())
"""Those whose requests have no valid token."""
ELSEWHERE: Final = Tenant("", TenantLimits())
"""Those whose token only another process knows."""


class SandboxServer:
    """Serves sandboxes over HTTP.

    Args:
        config: The configuration of a sandbox of which nothing else was asked for.
        tenants: Who may use it, by tokens; `None`: everybody who reaches it, which is for loopback only.
        concurrency: How many runs and cells are at work at a time; others wait.
        peers: The other processes of the server.
        problems: Problem sets by their names, for callers of SandboxFusion.

    Raises:
        RequestError: The configuration is not one for a server.
    """

    path = "/v1"

    def __init__(
        self,
        config: SandboxConfig,
        tenants: Mapping[str, Tenant] | None,
        *,
        concurrency: int = 16,
        peers: Peers | None = None,
        problems: Mapping[str, Mapping[str, Problem]] | None = None,
    ) -> None:
        if config.workspace is not None:
            raise RequestError("workspace: each sandbox of a server has files of its own.")
        self._config = config
        self._tenants = Tenants({} if tenants is None else tenants, concurrency)
        self._everybody = tenants is None
        self._boxes = Boxes(config, peers or Peers(new_owner()), self._tenants)
        places = max(2, concurrency // 4)
        self._judge = Judge(wall=config.wall, sessions=1, at_once=places)
        judge = SharedJudge(self._judge, places, self._tenants)
        self._draining = False
        self._app = FastAPI(
            title="CodeRoom sandbox service",
            version=__version__,
            lifespan=self._running,
            docs_url=None,
            redoc_url=None,
            default_response_class=Json,
        )
        self._e2b, self._snapshots = E2BSandboxes(self._boxes), Snapshots(self._boxes)
        self._routers = (
            make_api(self._boxes, self._tenants, judge),
            make_processes(self._boxes, self._tenants),
            make_fusion(self._boxes, self._tenants),
            make_fusion_problems(problems or {}, judge),
            make_e2b(self._boxes, self._tenants, self._e2b, self._snapshots),
        )
        for router in self._routers:
            self._app.include_router(router)
        self._app.add_route("/healthz", self._health)
        self._app.add_route("/health", self._health)
        self._app.add_route("/metrics", self._metrics)
        for kind in (*_KNOWN, RequestValidationError):
            self._app.add_exception_handler(kind, _failed)
        self._app.add_exception_handler(HTTPException, _refused)
        self._app.add_exception_handler(ClientDisconnect, _left)

    @property
    def app(self) -> WebApp:
        """What answers, and lets in only those who may."""
        app = _Quick(self._app, self._routers[:2])
        knows = self._e2b, self._snapshots
        return _ServiceGuard(app, self._tenants, self._everybody, self._boxes.peers, self._note, *knows)

    def drain(self, *, refuse: bool) -> None:
        """See `coderoom.integrations.http.Drained`."""
        self._draining = True
        self._tenants.refuses = refuse

    @property
    def is_idle(self) -> bool:
        """See `coderoom.integrations.http.Drained`."""
        return self._tenants.is_idle

    async def try_out(self) -> str:
        """See `coderoom.contracts.Door`."""
        async with Sandbox.from_config(self._config) as sandbox:
            await sandbox.run("None")
            return sandbox.wall

    @asynccontextmanager
    async def _running(self, _: FastAPI) -> AsyncIterator[None]:
        await self._boxes.start()
        try:
            yield
        finally:
            self._draining = True
            await self._boxes.close()
            await self._boxes.peers.close()
            await self._judge.close()

    # --- For operators ---

    async def _health(self, _: Request) -> Response:
        return PlainTextResponse("draining" if self._draining else "ok", 503 if self._draining else 200)

    async def _metrics(self, request: Request) -> Response:
        if not request.scope[CALLER].limits.metrics:
            raise HTTPException(403, "Only a tenant with metrics=true may read this")
        everyone = [STRANGERS, ANYBODY] if self._everybody else [STRANGERS, *self._tenants]
        lines = metrics_of((each.name, each.usage) for each in everyone)
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    def _note(self, scope: Message, status: int, seconds: float) -> None:
        """Count a request, and log it."""
        tenant: Tenant = scope.get(CALLER, STRANGERS)
        tenant.usage.count_request(scope["method"], status)
        if _log.isEnabledFor(logging.INFO):
            facts = {
                "tenant": tenant.name,
                "client": (scope.get("client") or ("",))[0],
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(seconds * 1000, 1),
            }
            _log.info("%s", json.dumps(facts))


class _Quick:
    """Calls the endpoints that read their requests themselves: on the way through FastAPI, a run would cost twice."""

    def __init__(self, app: FastAPI, routers: Sequence[APIRouter]) -> None:
        self._app = app
        self._endpoints = {
            (method, route.path): route.endpoint
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and list(inspect.signature(route.endpoint).parameters) == ["request"]
            for method in route.methods or ()
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except ClientDisconnect as error:
            response = await _left(request, error)
        except _KNOWN as error:
            response = await _failed(request, error)
        await response(scope, receive, send)


class _ServiceGuard(Guard):
    """Knows tenants by `Authorization`, `X-API-Key`, `X-Access-Token`, or a token in the path (`/t/TOKEN/...`)."""

    def __init__(
        self,
        app: WebApp,
        tenants: Tenants,
        everybody: bool,
        peers: Peers,
        note: Any,
        e2b: E2BSandboxes,
        snapshots: Snapshots,
    ) -> None:
        super().__init__(app)
        self._tenants = tenants
        self._everybody = everybody
        self._peers = peers
        self._note = note
        self._e2b = e2b
        self._snapshots = snapshots

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, and note how it ended."""
        if scope["type"] != "http" or (scope["path"] in _OPEN and not is_inside(scope)):
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 499  # The client has left.

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await super().__call__(scope, receive, sent)
        except AdmissionError as error:
            await self._starts.take(None)
            await error.response(scope, receive, sent)
        finally:
            if not scope.get(FORWARDED):
                self._note(scope, status, time.monotonic() - began)

    def caller_of(self, scope: Message, headers: Mapping[bytes, bytes]) -> Any:
        """The tenant, if there is one with the token."""
        is_near = not self._everybody or _LOOPBACK.fullmatch(headers.get(b"host", b"")) is not None
        sender = self._peers.sender(headers)
        if sender is not None:
            scope[FORWARDED] = True
        if is_near and is_inside(scope):
            elsewhere = sender is None and self._peers.owner_of(scope) != self._peers.owner
            try:
                return ELSEWHERE if elsewhere else self._e2b.admit(scope, headers)
            except AdmissionError:
                if sender is not None or not is_signed(scope):
                    raise
                return ELSEWHERE  # Another process may have its sandbox.
        if sender == ELSEWHERE.name:  # That process is asked.
            return ELSEWHERE
        if sender is not None:
            return ANYBODY if self._everybody else self._tenants.named(sender)
        tokens = list(_tokens(headers))
        found = _TOKEN_IN_PATH.match(scope["path"])
        if found:
            tokens.append(found[1].encode())
            scope["path"] = scope["path"][found.end() :] or "/"
            scope["raw_path"] = scope["path"].encode()
        if self._everybody:
            # A web page that has made a name for this address must not come in.
            return ANYBODY if is_near else None
        tenant = self._tenants.find(tokens)
        if tenant is None and is_control(scope):
            raise AdmissionError(401, "The API key is missing or wrong.")
        return tenant

    def is_streamed(self, scope: Message) -> bool:
        """Whether a file is sent, or the input of a command."""
        return _STREAMED.fullmatch(f"{scope['method']} {scope['path']}") is not None or is_for_port(scope)

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            if not scope.get(FORWARDED):
                scope[CALLER].count_request()
            owner = self._peers.owner_of(scope)
            if scope[CALLER] is ELSEWHERE and is_signed(scope):
                owner = await self._e2b.owner_of_signed(scope)
                if owner == self._peers.owner:
                    self._e2b.admit(scope, dict(scope["headers"]))  # Says what is wrong.
            if is_control(scope) and not is_inside(scope) and not scope.get(FORWARDED):
                whole = await receive()  # The guard has read it.
                parts, get_more = [whole], receive

                async def receive() -> Message:
                    return parts.pop() if parts else await get_more()

                owner = await self._snapshots.owner_of(scope, whole.get("body", b"")) or owner
            if owner != self._peers.owner:
                await self._peers.forward(owner, scope, receive, send)
                return
        except (TooMuchError, SessionLostError, SandboxUnavailable) as error:
            if is_inside(scope) or is_control(scope):
                raise AdmissionError.of(error, is_inside(scope)) from None
            status, facts, more = failure_of(error)
            await Json(facts, status, more)(scope, receive, send)
            return
        with below_client(dict(scope["headers"])):
            await super()._pass_on(scope, receive, send)


def _tokens(headers: Mapping[bytes, bytes]) -> Iterable[bytes]:
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        yield given.strip()
    elif scheme.lower() == b"basic":  # From a URL such as http://user:TOKEN@host.
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).partition(b":")
        except ValueError:
            return
        yield password or user
    for name in (b"x-api-key", b"x-access-token"):
        if name in headers:
            yield headers[name]


async def _failed(_: Request, error: Exception) -> Response:
    status, facts, headers = failure_of(error)
    return Json(facts, status, headers)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {403: "not_allowed", 404: "not_found", 405: "not_allowed"}.get(error.status_code, "bad_request")
    return Json(told(code, f"{error.detail}."), error.status_code, error.headers)


async def _left(_: Request, error: Exception) -> Response:
    return Response(status_code=499)
