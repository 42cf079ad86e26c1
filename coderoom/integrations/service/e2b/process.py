"""The calls for commands: `process.Process`. A command is a process of the sandbox's main session."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from fastapi import APIRouter
from pydantic import Base64Bytes, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from coderoom.integrations.http import Json
from coderoom.integrations.service.boxes import Boxes
from coderoom.integrations.service.e2b.commands import Command
from coderoom.integrations.service.e2b.connect import (
    E2BRoute,
    Facts,
    RpcError,
    message_of,
    messages_of,
    seconds_of,
    stream_response,
)
from coderoom.integrations.service.e2b.sandboxes import HOME, INSIDE, USER, E2BSandbox, sandbox_of
from coderoom.integrations.service.streams import unless_left
from coderoom.integrations.service.tenants import Tenants

_KEEP_ALIVE: Final[Facts] = {"event": {"keepalive": {}}}
_SIGNALS: Final = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9}


class _Config(BaseModel):
    cmd: str = ""
    args: list[str] = []
    envs: dict[str, str] = {}
    cwd: str = ""


class _Size(BaseModel):
    rows: int = Field(default=24, ge=1, le=32_767)
    cols: int = Field(default=80, ge=1, le=32_767)


class _Terminal(BaseModel):
    size: _Size = _Size()


class _Start(BaseModel):
    process: _Config
    tag: str | None = Field(default=None, max_length=1_000)
    pty: _Terminal | None = None
    stdin: bool = True


class _Selector(BaseModel):
    pid: int | None = None
    tag: str | None = None


class _Data(BaseModel):
    pty: Base64Bytes = b""
    stdin: Base64Bytes = b""


class _Message(BaseModel):
    process: _Selector = _Selector()
    signal: str = ""
    input: _Data = _Data()
    pty: _Terminal = _Terminal()


class _Selected(BaseModel):
    process: _Selector


class _Written(BaseModel):
    input: _Data


class _Streamed(BaseModel):
    start: _Selected | None = None
    data: _Written | None = None


def check_user(request: Request) -> None:
    """Check the user as whom a client wants something done.

    Raises:
        RpcError: It is another than the one that there is.
    """
    user = request.query_params.get("username", "")
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            user = base64.b64decode(given, validate=True).decode("latin-1").partition(":")[0]
    if user not in ("", USER):
        why = (
            f"There is no user {user!r:.100}: in this sandbox, all is done as the user {USER!r}, without other rights."
        )
        raise RpcError("unauthenticated", why)


def make_process(boxes: Boxes, tenants: Tenants) -> APIRouter:
    """The calls."""
    routes = APIRouter(prefix=f"{INSIDE}/process.Process", route_class=E2BRoute, include_in_schema=False)

    async def selected(request: Request) -> tuple[Command, _Message]:
        """The command that a message is about, and the message."""
        message = await message_of(request, _Message)
        return _running(sandbox_of(request), message.process), message

    async def begin(request: Request, sandbox: E2BSandbox, asked: _Start) -> Command:
        config, size = asked.process, None if asked.pty is None else asked.pty.size
        how: dict[str, Any] = {} if size is None else {"pty": True, "size": (size.rows, size.cols)}
        env = {**({} if size is None else {"TERM": "xterm-256color"}), **sandbox.given, **config.envs}
        argv, folder = [config.cmd, *config.args], _folder(sandbox, config.cwd)
        starting = sandbox.main.start_program(tenants, argv, cwd=folder, env=env, **how)
        try:
            process = await unless_left(request, starting)
        except NotADirectoryError:
            raise RpcError("invalid_argument", f"cwd {config.cwd!r:.200} is not a directory") from None
        except OSError as error:
            what = "cwd" if config.cwd and error.filename == config.cwd else "command"
            why = f"{what} {error.filename or config.cmd!r:.200} cannot be used: {error.strerror}"
            raise RpcError("invalid_argument", why) from None
        if not asked.stdin and size is None:
            await process.close_input()
        facts = {"config": config.model_dump(), **asked.model_dump(include={"tag"}, exclude_none=True)}
        return Command(next(sandbox.numbers), process, facts, size is not None)

    @routes.post("/Start")
    async def start(request: Request) -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        command = await begin(request, sandbox, await message_of(request, _Start))
        sandbox.commands[command.number] = command
        events = command.follow()
        first = await anext(events)  # It follows from the first output on.
        attending = asyncio.ensure_future(command.attend(sandbox.box, seconds_of(request)))
        attending.add_done_callback(lambda _: sandbox.commands.pop(command.number, None))

        async def all_events() -> AsyncGenerator[Facts]:
            yield first
            async for event in events:
                if not boxes.has(sandbox.box):
                    raise RpcError("unavailable", "the connection to the sandbox ended before the stream completed")
                yield event

        return stream_response(request, all_events(), _KEEP_ALIVE)

    @routes.post("/Connect")
    async def connect(request: Request) -> Response:
        command, _ = await selected(request)
        return stream_response(request, command.follow(), _KEEP_ALIVE)

    @routes.post("/List")
    async def list_all(request: Request) -> Response:
        return Json({"processes": [each.facts for each in sandbox_of(request).running]})

    @routes.post("/SendSignal")
    async def send_signal(request: Request) -> Response:
        command, message = await selected(request)
        if message.signal not in _SIGNALS:
            raise RpcError("invalid_argument", f"signal is none of {', '.join(_SIGNALS)}")
        await command.kill(_SIGNALS[message.signal])
        return Json({})

    @routes.post("/SendInput")
    async def send_input(request: Request) -> Response:
        command, message = await selected(request)
        await _write(command, message.input)
        return Json({})

    @routes.post("/StreamInput")
    async def stream_input(request: Request) -> Response:
        sandbox, command = sandbox_of(request), None
        async with aclosing(messages_of(request, _Streamed)) as messages:
            async for message in messages:
                if message.start is not None:
                    command = _running(sandbox, message.start.process)
                elif message.data is not None:
                    if command is None:
                        raise RpcError("invalid_argument", "the first message of the stream has no start")
                    await _write(command, message.data.input)
        return stream_response(request, _done(), _KEEP_ALIVE)

    @routes.post("/CloseStdin")
    async def close_stdin(request: Request) -> Response:
        command, _ = await selected(request)
        await command.process.close_input()
        return Json({})

    @routes.post("/Update")
    async def update(request: Request) -> Response:
        command, message = await selected(request)
        command.process.resize(message.pty.size.rows, message.pty.size.cols)
        return Json({})

    return routes


def _running(sandbox: E2BSandbox, asked: _Selector) -> Command:
    for each in sandbox.running:
        if each.number == asked.pid or (asked.tag is not None and each.facts.get("tag") == asked.tag):
            return each
    raise RpcError("not_found", f"process with pid {asked.pid or asked.tag!r:.100} not found")


async def _write(command: Command, data: _Data) -> None:
    try:
        await command.process.write(data.pty or data.stdin)
    except BrokenPipeError:
        raise RpcError("failed_precondition", "stdin not enabled or closed") from None


async def _done() -> AsyncGenerator[Facts]:
    yield {}


def _folder(sandbox: E2BSandbox, folder: str) -> str:
    if folder == "~" or folder.startswith("~/"):
        return f".{folder[1:]}"
    if not sandbox.has_home and f"{folder}/".startswith(f"{HOME}/"):
        return f".{folder[len(HOME) :]}"
    return folder
