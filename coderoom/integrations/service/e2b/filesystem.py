"""The routes for files: `/files` for their content, `filesystem.Filesystem` for all else."""

from __future__ import annotations

import gzip
import secrets
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, BinaryIO, Final

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from coderoom.errors import RequestError
from coderoom.integrations.http import Json
from coderoom.integrations.service.e2b.code import CutOffError, CutOffResponse
from coderoom.integrations.service.e2b.connect import E2BRoute, Facts, RpcError, message_of, stream_response
from coderoom.integrations.service.e2b.files import Helper
from coderoom.integrations.service.e2b.process import check_user
from coderoom.integrations.service.e2b.sandboxes import INSIDE, E2BSandbox, sandbox_of
from coderoom.integrations.service.files import parts_of, received

_MOST_FILES: Final = 1_000
_MOST_WATCHERS: Final = 32
_MOST_EVENTS: Final = 10_000
_METADATA: Final = "x-metadata-"


class _Message(BaseModel):
    path: str = ""
    depth: int = 1
    source: str = ""
    destination: str = ""
    recursive: bool = False
    entries: bool = Field(default=False, alias="includeEntry")
    watcher: str = Field(default="", alias="watcherId")


def make_files() -> APIRouter:
    """The routes for the content of files."""
    routes = APIRouter(prefix=INSIDE, route_class=E2BRoute, include_in_schema=False)

    @routes.get("/files")
    async def download(request: Request, path: str = "") -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        parts = sandbox.files.read(path)
        await anext(parts)  # What cannot be read is told by a status.
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}

        async def content() -> AsyncGenerator[bytes]:
            with sandbox.box:
                try:
                    async with aclosing(parts):
                        async for part in parts:
                            yield part
                except RpcError as error:  # The rest cannot be read.
                    raise CutOffError from error

        return CutOffResponse(content(), media_type="application/octet-stream", headers=headers)

    @routes.post("/files")
    async def upload(request: Request, path: str = "") -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        metadata = {
            name[len(_METADATA) :]: value for name, value in request.headers.items() if name.startswith(_METADATA)
        }
        with sandbox.box, await received(request, sandbox.box) as body:
            if request.headers.get("content-type", "").startswith("multipart/"):
                found = await _uploads(request.headers, body)
                if len(found) > 1 and path:
                    raise RpcError("invalid_argument", "Several files need paths of their own, not one in the query.")
                files = [(path or name, parts_of(file)) for name, file in found]
            elif request.headers.get("content-encoding") == "gzip":
                unpacked: Any = gzip.GzipFile(fileobj=body, mode="rb")
                files = [(path, _bounded(parts_of(unpacked), sandbox.box.sandbox.limits.disk_bytes))]
            else:
                files = [(path, parts_of(body))]
            try:
                entries = [await sandbox.files.write(name, parts, metadata) for name, parts in files]
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise RpcError("invalid_argument", f"The content is not gzip: {error}.") from None
        told = ("name", "path", "metadata")
        return Json([{"type": "file", **{name: each[name] for name in told}} for each in entries])

    return routes


async def _uploads(headers: Mapping[str, str], body: BinaryIO) -> list[tuple[str, BinaryIO]]:
    """The files of a form with their names, which may be paths."""
    parser = MultiPartParser(Headers(dict(headers)), parts_of(body), max_files=_MOST_FILES)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RpcError("invalid_argument", f"The form cannot be read: {error.message}") from None
    found = [(each.filename or "", each.file) for _, each in form.multi_items() if isinstance(each, UploadFile)]
    if not found:
        raise RpcError("invalid_argument", "The form has no file.")
    return found


async def _bounded(parts: AsyncGenerator[bytes], most: int) -> AsyncGenerator[bytes]:
    left = most
    async for part in parts:
        left -= len(part)
        if left < 0:
            raise RequestError(f"The sandbox may have {most:,} bytes of files.")
        yield part


def make_filesystem() -> APIRouter:
    """The calls."""
    routes = APIRouter(prefix=f"{INSIDE}/filesystem.Filesystem", route_class=E2BRoute, include_in_schema=False)

    def answers(call: str, op: str, *names: str) -> None:
        @routes.post(f"/{call}")
        async def ask(request: Request) -> Response:
            sandbox = sandbox_of(request)
            check_user(request)
            message = await message_of(request, _Message)
            with sandbox.box:
                return Json(await sandbox.files.ask(op, **message.model_dump(include=set(names))))

    answers("Stat", "stat", "path")
    answers("MakeDir", "make_dir", "path")
    answers("Move", "move", "source", "destination")
    answers("Remove", "remove", "path")

    @routes.post("/ListDir")
    async def list_folder(request: Request) -> Response:
        sandbox = sandbox_of(request)
        check_user(request)
        message = await message_of(request, _Message)
        with sandbox.box:
            found = await sandbox.files.list(**message.model_dump(include={"path", "depth"}))
        return Response(found, media_type="application/json")

    async def watch(request: Request) -> tuple[E2BSandbox, str, Helper]:
        sandbox = sandbox_of(request)
        check_user(request)
        message = await message_of(request, _Message)
        if len(sandbox.watchers) >= _MOST_WATCHERS:
            raise RpcError("resource_exhausted", f"At most {_MOST_WATCHERS} folders can be watched at a time.")
        key = secrets.token_hex(8)
        helper = sandbox.watchers[key] = await sandbox.files.start()
        try:
            await helper.ask("watch", **message.model_dump(include={"path", "recursive", "entries"}))
        except BaseException:
            await unwatch(sandbox, key)
            raise
        return sandbox, key, helper

    async def unwatch(sandbox: E2BSandbox, key: str) -> None:
        with suppress(KeyError):
            await sandbox.watchers.pop(key).process.kill()

    @routes.post("/WatchDir")
    async def watch_dir(request: Request) -> Response:
        sandbox, key, helper = await watch(request)

        async def events() -> AsyncGenerator[Facts]:
            try:
                yield {"start": {}}
                while True:
                    yield {"filesystem": (await helper.answer())["event"]}
            finally:
                await unwatch(sandbox, key)

        return stream_response(request, events(), {"keepalive": {}})

    @routes.post("/CreateWatcher")
    async def create_watcher(request: Request) -> Response:
        _, key, _ = await watch(request)
        return Json({"watcherId": key})

    @routes.post("/GetWatcherEvents")
    async def watcher_events(request: Request) -> Response:
        sandbox, key = sandbox_of(request), (await message_of(request, _Message)).watcher
        helper = sandbox.watchers.get(key)
        if helper is None:
            raise RpcError("not_found", f"watcher with id {key:.100} not found")
        found: list[Any] = []
        async with helper.lock:
            answer = await helper.ask("tell")
            while "event" in answer:
                if len(found) < _MOST_EVENTS:
                    found.append(answer["event"])
                answer = await helper.answer()
        return Json({"events": found})

    @routes.post("/RemoveWatcher")
    async def remove_watcher(request: Request) -> Response:
        await unwatch(sandbox_of(request), (await message_of(request, _Message)).watcher)
        return Json({})

    return routes
