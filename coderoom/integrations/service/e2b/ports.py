"""Requests for a port inside a sandbox: those to the host `PORT-ID.DOMAIN`, which `get_host` of the clients names."""

from __future__ import annotations

from typing import Final

import h11
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from coderoom.integrations.http import Message, Receive, Send
from coderoom.integrations.service.e2b.connect import E2BRoute, refusal
from coderoom.integrations.service.e2b.sandboxes import INSIDE, PORT, TRAFFIC_TOKEN, E2BSandbox, sandbox_of
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.peers import Connection

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def make_ports() -> APIRouter:
    """The route."""
    routes = APIRouter(route_class=E2BRoute, include_in_schema=False)

    @routes.api_route(f"{INSIDE}/port", methods=list(_METHODS))
    async def pass_on(request: Request) -> Response:
        sandbox = sandbox_of(request)
        if PORT not in request.scope:
            raise NotFoundError("The host of the request names no port.")
        port, target = request.scope[PORT]
        try:
            streams = await sandbox.main.session.connect(port)
        except OSError:
            return refusal(502, f"The sandbox is running, but its port is not open: {port}")
        return _PassedOn(sandbox, Connection(*streams), target)

    return routes


class _PassedOn(Response):
    """The answer of a server inside a sandbox."""

    def __init__(self, sandbox: E2BSandbox, connection: Connection, target: bytes) -> None:
        super().__init__()
        self._sandbox, self._connection, self._target = sandbox, connection, target

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, and the answer back."""
        headers = [(name, value) for name, value in scope["headers"] if name != TRAFFIC_TOKEN]
        try:
            with self._sandbox.box:
                more = [(b"connection", b"close")]
                await self._connection.exchange({**scope, "headers": headers}, self._target, more, receive, send)
        except (OSError, h11.ProtocolError) as error:
            why = f"What listens at the port has not answered as a server of HTTP does: {error}"
            await refusal(502, why)(scope, receive, send)
        finally:
            self._connection.close()
