"""The routes for files: `/files` for their content, `filesystem.Filesystem` for all else."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, BinaryIO, Final

from fastapi import APIRouter
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from coderoom.integrations.service.e2b import files
from coderoom.integrations.service.e2b.connect import Facts, RpcError, message_of, seconds_of, stream_response, within
from coderoom.integrations.service.e2b.helpers import Helper
from coderoom.integrations.service.e2b.process import RpcRoute, check_user
from coderoom.integrations.service.e2b.sandboxes import INSIDE, E2BRoute, E2BSandbox, refusal, sandbox_of
from coderoom.integrations.service.files import parts_of, received

_MOST_FILES: Final = 1_000
_MOST_WATCHERS: Final = 32
_MOST_EVENTS: Final = 10_000
_METADATA: Final = "x-metadata-"
_DISPOSITION: Final = re.compile(r'filename="((?:[^"\\]|\\.)*)"')


class _FileRoute(E2BRoute):
    def told(self, request: Request, error: Exception) -> Response:
        if isinstance(error, RpcError):
            status = 507 if error.code == "resource_exhausted" else error.status
            return refusal(status, str(error))
        return super().told(request, error)


def make_files() -> APIRouter:
    """The routes for the content of files."""
    routes = APIRouter(prefix=INSIDE, route_class=_FileRoute, include_in_schema=False)

    @routes.get("/files")
    async def download(request: Request, path: str = "") -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        parts = files.read(sandbox, path)
        facts = await anext(parts)
        assert isinstance(facts, dict)
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}

        async def content() -> AsyncGenerator[bytes]:
            with sandbox.box:
                async with aclosing(parts):
                    async for part in parts:
                        assert isinstance(part, bytes)
                        yield part

        return StreamingResponse(content(), media_type="application/octet-stream", headers=headers)

    @routes.post("/files")
    async def upload(request: Request, path: str = "") -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        metadata = {
            name[len(_METADATA) :]: value for name, value in request.headers.items() if name.startswith(_METADATA)
        }
        written = []
        with sandbox.box, await received(request, sandbox.box) as body:
            if request.headers.get("content-type", "").startswith("multipart/"):
                found = await _uploads(request.headers, body)
                if len(found) > 1 and path:
                    raise RpcError("invalid_argument", "Several files need paths of their own, not one in the query.")
                for name, file in found:
                    entry = await files.write(sandbox, path or name, parts_of(file), metadata)
                    written.append(_info(entry))
            else:
                parts = parts_of(body)
                if request.headers.get("content-encoding") == "gzip":
                    parts = _unpacked(parts, sandbox.box.sandbox.limits.disk_bytes)
                written.append(_info(await files.write(sandbox, path, parts, metadata)))
        return JSONResponse(written)

    return routes


def _info(entry: Facts) -> Facts:
    metadata = {"metadata": entry["metadata"]} if entry["metadata"] else {}
    return {"path": entry["path"], "name": entry["name"], "type": "file", **metadata}


async def _uploads(headers: Mapping[str, str], body: BinaryIO) -> list[tuple[str, BinaryIO]]:
    """The files of a form with their names, which may be paths."""
    parser = MultiPartParser(Headers(dict(headers)), parts_of(body), max_files=_MOST_FILES)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RpcError("invalid_argument", f"The form cannot be read: {error.message}") from None
    found = [each for _, each in form.multi_items() if isinstance(each, UploadFile)]
    if not found:
        raise RpcError("invalid_argument", "The form has no file.")
    return [(each.filename or "", each.file) for each in found]


async def _unpacked(parts: AsyncGenerator[bytes], most: int) -> AsyncGenerator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    async for part in parts:
        try:
            while part:
                data = unpack.decompress(part, 256 * 1024)
                most -= len(data)
                if most < 0:
                    raise RpcError("resource_exhausted", "The content does not fit in the sandbox's disk.")
                yield data
                part = unpack.unconsumed_tail
        except zlib.error as error:
            raise RpcError("invalid_argument", f"The content is not gzip: {error}.") from None


class _Watcher:
    """What watches a folder, for clients that ask now and then."""

    def __init__(self, helper: Helper) -> None:
        self.helper = helper
        self.lock = asyncio.Lock()

    async def events(self) -> list[Facts]:
        """What has happened since the last time."""
        found: list[Facts] = []
        async with self.lock:
            await self.helper.send(b"{}")
            while "told" not in (answer := await self.helper.answer()):
                if len(found) < _MOST_EVENTS:
                    found.append(answer["event"])
        return found


def make_filesystem() -> APIRouter:
    """The calls."""
    routes = APIRouter(prefix=f"{INSIDE}/filesystem.Filesystem", route_class=RpcRoute, include_in_schema=False)

    async def ask(request: Request, op: str, *names: str, **more: Any) -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        message = await message_of(request)
        with sandbox.box:
            return JSONResponse(await files.ask(sandbox, op, **{name: _text(message, name) for name in names}, **more))

    @routes.post("/Stat")
    async def stat(request: Request) -> Response:
        return await ask(request, "stat", "path")

    @routes.post("/MakeDir")
    async def make_dir(request: Request) -> Response:
        return await ask(request, "make_dir", "path")

    @routes.post("/Move")
    async def move(request: Request) -> Response:
        return await ask(request, "move", "source", "destination")

    @routes.post("/Remove")
    async def remove(request: Request) -> Response:
        return await ask(request, "remove", "path")

    @routes.post("/ListDir")
    async def list_dir(request: Request) -> Response:
        depth = (await message_of(request)).get("depth", 1)
        return await ask(request, "list", "path", depth=depth if isinstance(depth, int) else 1)

    async def watching(request: Request, sandbox: E2BSandbox) -> Helper:
        check_user(request)
        message = await message_of(request)
        if len(sandbox.watchers) >= _MOST_WATCHERS:
            raise RpcError("resource_exhausted", f"At most {_MOST_WATCHERS} folders can be watched at a time.")
        helper = await files.started(sandbox)
        asked = {
            "op": "watch",
            "path": _text(message, "path"),
            "recursive": message.get("recursive") is True,
            "entries": message.get("includeEntry") is True,
        }
        try:
            await helper.send(json.dumps(asked).encode())
            await helper.answer()
        except BaseException:
            await helper.process.kill()
            raise
        return helper

    @routes.post("/WatchDir")
    async def watch_dir(request: Request) -> Response:
        sandbox = sandbox_of(request)
        helper = await watching(request, sandbox)
        key = secrets.token_hex(8)
        sandbox.watchers[key] = helper

        async def events() -> AsyncGenerator[Facts]:
            try:
                yield {"start": {}}
                while True:
                    answer = await helper.answer()
                    if "event" in answer:
                        yield {"filesystem": answer["event"]}
            finally:
                sandbox.watchers.pop(key, None)
                await helper.process.kill()

        return stream_response(request, within(events(), seconds_of(request)), {"keepalive": {}})

    @routes.post("/CreateWatcher")
    async def create_watcher(request: Request) -> Response:
        sandbox = sandbox_of(request)
        helper = await watching(request, sandbox)
        key = secrets.token_hex(8)
        sandbox.watchers[key] = _Watcher(helper)
        return JSONResponse({"watcherId": key})

    async def watcher_of(request: Request) -> tuple[E2BSandbox, str, _Watcher]:
        sandbox = sandbox_of(request)
        key = _text(await message_of(request), "watcherId")
        found = sandbox.watchers.get(key)
        if not isinstance(found, _Watcher):
            raise RpcError("not_found", f"watcher with id {key} not found")
        return sandbox, key, found

    @routes.post("/GetWatcherEvents")
    async def watcher_events(request: Request) -> Response:
        _, _, watcher = await watcher_of(request)
        return JSONResponse({"events": await watcher.events()})

    @routes.post("/RemoveWatcher")
    async def remove_watcher(request: Request) -> Response:
        sandbox, key, watcher = await watcher_of(request)
        del sandbox.watchers[key]
        await watcher.helper.process.kill()
        return JSONResponse({})

    return routes


def _text(message: Facts, name: str) -> str:
    found = message.get(name, "")
    if not isinstance(found, str) or "\0" in found:
        raise RpcError("invalid_argument", f"{name} is not text.")
    return found
