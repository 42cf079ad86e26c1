"""Programs that stay beside the cells of a session, by the server's own API."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from coderoom.integrations.service.api import Caller
from coderoom.integrations.service.boxes import Boxes, KeptSession
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.streams import Event, InputPiece, sent_events, unless_left
from coderoom.integrations.service.tenants import Tenants
from coderoom.sandbox import Process


class ProcessRequest(BaseModel):
    """A program."""

    model_config = ConfigDict(extra="forbid")

    argv: list[str]
    cwd: str = ""
    env: dict[str, str] = Field(default_factory=dict)
    size: tuple[int, int] | None = Field(default=None, description="The rows and the columns of its terminal.")


class SignalRequest(BaseModel):
    """A signal."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=1, le=64)


class SizeRequest(BaseModel):
    """The size of a terminal."""

    model_config = ConfigDict(extra="forbid")

    rows: int = Field(ge=1, le=32_767)
    columns: int = Field(ge=1, le=32_767)


def make_processes(boxes: Boxes, tenants: Tenants) -> APIRouter:
    """The routes."""
    api = APIRouter(prefix="/v1/sessions/{id}/processes")

    @api.post("", summary="Start a program beside the cells", status_code=201)
    async def start(request: Request, id: str, body: ProcessRequest, tenant: Caller) -> dict[str, Any]:
        kept = boxes.session(tenant, id)
        how: dict[str, Any] = {} if body.size is None else {"pty": True, "size": body.size}
        starting = kept.start_program(tenants, body.argv, cwd=body.cwd, env=body.env, **how)
        try:
            made = await unless_left(request, starting)
        except OSError as error:
            return {"errno": error.errno, "message": os.strerror(error.errno or 0), "filename": error.filename}
        for key in [key for key, each in kept.processes.items() if each.closed]:
            del kept.processes[key]
        key = secrets.token_hex(8)
        kept.processes[key] = made
        return {"id": key}

    @api.post("/{process}/output", summary="Read what it writes (server-sent events), and how it ends")
    async def output(id: str, process: str, tenant: Caller) -> Response:
        kept = boxes.session(tenant, id)
        return StreamingResponse(sent_events(_output(kept, _process(kept, process))), media_type="text/event-stream")

    @api.post("/{process}/input", summary="Write to it", status_code=204)
    async def write(request: Request, id: str, process: str, body: InputPiece, tenant: Caller) -> None:
        found = _process(boxes.session(tenant, id), process)
        try:
            await unless_left(request, found.write(body.data))
            if body.end:
                await found.close_input()
        except BrokenPipeError as error:
            raise NotFoundError("The program does not read any more.") from error

    @api.post("/{process}/signal", summary="Send it a signal", status_code=204)
    async def signal(id: str, process: str, body: SignalRequest, tenant: Caller) -> None:
        await _process(boxes.session(tenant, id), process).send_signal(body.number)

    @api.post("/{process}/size", summary="Change the size of its terminal", status_code=204)
    async def resize(id: str, process: str, body: SizeRequest, tenant: Caller) -> None:
        _process(boxes.session(tenant, id), process).resize(body.rows, body.columns)

    return api


def _process(kept: KeptSession, id: str) -> Process:
    if id not in kept.processes:
        raise NotFoundError("There is no such program in this session.")
    return kept.processes[id]


async def _output(kept: KeptSession, process: Process) -> AsyncGenerator[Event]:
    with kept.box:
        async for piece in process:
            yield "output", {"stream": piece.stream, "data": base64.b64encode(piece.data).decode()}
        yield "end", {"exit_code": await process.wait(), "limit": process.limit}
