"""The calls for commands: `process.Process`. A command is a process of the sandbox's main session."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from coderoom.integrations.service.boxes import Boxes
from coderoom.integrations.service.e2b.commands import Command
from coderoom.integrations.service.e2b.connect import (
    Facts,
    RpcError,
    error_response,
    message_of,
    rpc_error,
    seconds_of,
    stream_response,
    within,
)
from coderoom.integrations.service.e2b.sandboxes import HOME, INSIDE, USER, E2BRoute, E2BSandbox, sandbox_of
from coderoom.integrations.service.streams import unless_left
from coderoom.integrations.service.tenants import Tenants

_SIGNALS: Final = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}
_LONGEST_TAG: Final = 1_000
_KEEP_ALIVE: Final[Facts] = {"event": {"keepalive": {}}}


class RpcRoute(E2BRoute):
    """A route whose failures are told as Connect's clients read them."""

    def told(self, request: Request, error: Exception) -> Response:
        """See `E2BRoute.told`."""
        failure = rpc_error(error)
        if failure.code == "internal" and not isinstance(error, RpcError):
            raise error
        return error_response(request, failure)


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
    routes = APIRouter(prefix=f"{INSIDE}/process.Process", route_class=RpcRoute, include_in_schema=False)

    def command_of(sandbox: E2BSandbox, message: Facts) -> Command:
        selector = message.get("process")
        selector = selector if isinstance(selector, dict) else {}
        for each in running(sandbox):
            if each.number == selector.get("pid") or (each.tag is not None and each.tag == selector.get("tag")):
                return each
        raise RpcError("not_found", f"process with pid {selector.get('pid', selector.get('tag'))!r:.100} not found")

    @routes.post("/Start")
    async def start(request: Request) -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        message = await message_of(request)
        config, tag, pty = message.get("process") or {}, message.get("tag"), message.get("pty")
        if not isinstance(config, dict) or not isinstance(tag, str | None) or len(tag or "") > _LONGEST_TAG:
            raise RpcError("invalid_argument", "process is not an object, or tag is no short text")
        config = {name: config[name] for name in ("cmd", "args", "envs", "cwd") if config.get(name) is not None}
        if not isinstance(config.get("args", []), list) or not isinstance(config.get("envs", {}), dict):
            raise RpcError("invalid_argument", "process.args is not a list, or process.envs is not an object")
        try:
            starting = sandbox.main.start_program(
                tenants,
                [config.get("cmd", ""), *config.get("args", ())],
                cwd=_folder(sandbox, config.get("cwd") or ""),
                env=_terminal(pty) | config.get("envs", {}),
                pty=pty is not None,
                size=_size(pty) if pty is not None else (24, 80),
            )
            process = await unless_left(request, starting)
        except NotADirectoryError:
            raise RpcError("invalid_argument", f"cwd {config.get('cwd')!r:.200} is not a directory") from None
        except OSError as error:
            what = "cwd" if config.get("cwd") and error.filename == config["cwd"] else "command"
            why = f"{what} {error.filename or config.get('cmd')!r:.200} cannot be used: {error.strerror}"
            raise RpcError("invalid_argument", why) from None
        if message.get("stdin") is False and pty is None:
            await process.close_input()
        command = Command(next(sandbox.numbers), process, config, tag, pty is not None)
        sandbox.commands[command.number] = command
        events = command.follow()
        first = await anext(events)  # It follows from the first output on.
        seconds = seconds_of(request)
        asyncio.ensure_future(attended(sandbox, command, seconds))  # noqa: RUF006 (it ends with the process)

        async def all_events() -> AsyncGenerator[Facts]:
            yield first
            async for event in events:
                if not boxes.has(sandbox.box):
                    raise RpcError("unavailable", "the connection to the sandbox ended before the stream completed")
                yield event

        messages = within(all_events(), seconds)
        return stream_response(request, messages, _KEEP_ALIVE)

    @routes.post("/Connect")
    async def connect(request: Request) -> Response:
        command = command_of(sandbox_of(request), await message_of(request))

        return stream_response(request, within(command.follow(), seconds_of(request)), _KEEP_ALIVE)

    @routes.post("/List")
    async def list_all(request: Request) -> Response:
        found = []
        for each in running(sandbox_of(request)):
            tag = {} if each.tag is None else {"tag": each.tag}
            found.append({"config": each.config, "pid": each.number, **tag})
        return JSONResponse({"processes": found})

    @routes.post("/SendSignal")
    async def send_signal(request: Request) -> Response:
        message = await message_of(request)
        command = command_of(sandbox_of(request), message)
        number = _SIGNALS.get(message.get("signal", ""))
        if number is None:
            raise RpcError("invalid_argument", "signal is neither SIGNAL_SIGTERM nor SIGNAL_SIGKILL")
        await command.kill(number)
        return JSONResponse({})

    @routes.post("/SendInput")
    async def send_input(request: Request) -> Response:
        message = await message_of(request)
        command = command_of(sandbox_of(request), message)
        given = message.get("input") or {}
        try:
            data = base64.b64decode(given.get("pty", given.get("stdin", "")), validate=True)
        except (binascii.Error, TypeError):
            raise RpcError("invalid_argument", "input is not base64") from None
        try:
            await command.process.write(data)
        except BrokenPipeError:
            raise RpcError("failed_precondition", "stdin not enabled or closed") from None
        return JSONResponse({})

    @routes.post("/CloseStdin")
    async def close_stdin(request: Request) -> Response:
        command = command_of(sandbox_of(request), await message_of(request))
        await command.process.close_input()
        return JSONResponse({})

    @routes.post("/Update")
    async def update(request: Request) -> Response:
        message = await message_of(request)
        command = command_of(sandbox_of(request), message)
        if message.get("pty") is not None:
            command.process.resize(*_size(message["pty"]))
        return JSONResponse({})

    @routes.post("/StreamInput")
    async def stream_input(request: Request) -> Response:
        raise RpcError("unimplemented", "Input is sent by SendInput here.")

    return routes


def running(sandbox: E2BSandbox) -> list[Command]:
    """The commands that have not ended."""
    return [each for each in sandbox.commands.values() if each.process.exit_code is None]


async def attended(sandbox: E2BSandbox, command: Command, seconds: float | None) -> None:
    """Pass the output of a command on, and kill it after so many seconds; the sandbox is in use meanwhile."""
    loop = asyncio.get_running_loop()
    late = None if seconds is None else loop.call_later(seconds, lambda: asyncio.ensure_future(command.kill()))
    try:
        with sandbox.box:
            await command.attend()
    finally:
        if late is not None:
            late.cancel()
        sandbox.commands.pop(command.number, None)


def _folder(sandbox: E2BSandbox, given: Any) -> str:
    if not isinstance(given, str):
        raise RpcError("invalid_argument", "cwd is not text")
    folder: str = given
    if folder == "~" or folder.startswith("~/"):
        folder = f".{folder[1:]}"
    if not sandbox.has_home and f"{folder}/".startswith(f"{HOME}/"):
        folder = f".{folder[len(HOME) :]}"
    return folder


def _size(pty: Any) -> tuple[int, int]:
    size = pty.get("size") if isinstance(pty, dict) else None
    size = size if isinstance(size, dict) else {}
    return size.get("rows", 24), size.get("cols", 80)


def _terminal(pty: Any) -> dict[str, str]:
    return {} if pty is None else {"TERM": "xterm-256color"}
