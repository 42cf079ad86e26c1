"""The routes for code: `/execute` and `/contexts`. A context is a session, or the main session with a language."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from coderoom.errors import RequestError
from coderoom.integrations.service.boxes import Boxes
from coderoom.integrations.service.e2b.connect import E2BRoute, Facts
from coderoom.integrations.service.e2b.sandboxes import HOME, INSIDE, Context, E2BSandbox, moment, sandbox_of
from coderoom.integrations.service.failures import NotFoundError, failure_of
from coderoom.integrations.service.streams import kept_alive, unless_left
from coderoom.integrations.service.tenants import Tenants
from coderoom.sandbox import LANGUAGES, OutputChunk
from coderoom.sandbox.languages import language_named

_JAVASCRIPT_VALUE: Final = """{
const value = globalThis.__value, shown = typeof value === "string" ? value : require("util").inspect(value);
if (value !== undefined) process.stdout.write(shown);
}; undefined"""
_WITH_STATE: Final = ("python", "javascript", "bash")
_FORMS: Final = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


class CutOffError(Exception):
    """The sandbox has ended before the answer was complete."""


class CutOffResponse(StreamingResponse):
    """An answer that has no end if its sandbox has ended, so that the client notices."""

    async def stream_response(self, send: Send) -> None:
        """See `StreamingResponse`."""
        with contextlib.suppress(CutOffError):
            await super().stream_response(send)


class ExecuteRequest(BaseModel):
    """Code to run."""

    code: str
    context_id: str | None = None
    language: str | None = None
    env_vars: dict[str, str] | None = None


class ContextRequest(BaseModel):
    """A context."""

    language: str | None = None
    cwd: str | None = Field(default=None, max_length=4096)


def default_context(sandbox: E2BSandbox, language: str) -> Context:
    """The context of code that names no context: in the main session, one for each language."""
    return sandbox.contexts.setdefault(language, Context(language, sandbox.main, language, HOME))


def make_code(boxes: Boxes, tenants: Tenants) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix=INSIDE, route_class=E2BRoute, include_in_schema=False)

    def context_of(sandbox: E2BSandbox, id: str) -> Context:
        if id not in sandbox.contexts:
            raise NotFoundError(f"Context {id:.100} not found")
        return sandbox.contexts[id]

    async def run(sandbox: E2BSandbox, context: Context, body: ExecuteRequest) -> AsyncGenerator[Facts]:
        session, box = context.kept.session, sandbox.box
        async with tenants.slot(box.tenant, context.kept.free_bytes):
            with box:
                context.count += 1
                yield {"type": "number_of_executions", "execution_count": context.count}
                given = sandbox.given if context.language in _WITH_STATE else {}
                before, after = _with_env(context.language, {**given, **(body.env_vars or {})}, sandbox.env)
                if before:
                    await session.run(before, language=context.language)
                try:
                    stream = session.stream(body.code, language=context.language, timeout=box.tenant.limits.seconds)
                    async with aclosing(stream) as pieces:
                        async for piece in pieces:
                            if not isinstance(piece, OutputChunk):
                                result = piece
                            elif piece.stream == "shown":
                                yield _shown(json.loads(piece.text))
                            else:
                                yield {"type": piece.stream, "text": piece.text, "timestamp": moment(time.time())}
                    context.kept.note(result)
                    if context.language == "javascript" and result.success:
                        value = await session.run(_JAVASCRIPT_VALUE, language="javascript")
                        if value.stdout:
                            yield {"type": "result", "is_main_result": True, "text": value.stdout}
                    if (error := result.error) is not None:
                        yield _failure(error.type, error.message, error.traceback or f"{error.type}: {error.message}")
                finally:
                    if after:
                        await session.run(after, language=context.language)

    async def enter(context: Context) -> None:
        if context.cwd == HOME:
            return
        with context.kept.box:
            code = _change_folder(context.language, context.cwd)
            result = await context.kept.session.run(code, language=context.language)
        if result.error is not None:
            raise RequestError(f"Failed to set working directory: {result.error.message}")

    @routes.post("/execute")
    async def execute(request: Request, body: ExecuteRequest) -> Response:
        sandbox = sandbox_of(request)
        if body.context_id and body.language:
            raise RequestError("Only one of context_id or language can be provided")
        if body.context_id:
            context = context_of(sandbox, body.context_id)
        else:
            context = default_context(sandbox, _language(body.language))
        work = run(sandbox, context, body)
        first = await unless_left(request, anext(work))  # What is refused is refused by a status.

        async def lines() -> AsyncIterator[bytes]:
            yield _line(first)
            pieces = kept_alive(work)
            try:
                async for piece in pieces:
                    if not boxes.has(sandbox.box):
                        raise CutOffError
                    yield _line({"type": "keepalive"} if piece is None else piece)
            except CutOffError:
                raise
            except Exception as error:
                _, facts, _ = failure_of(error)
                message = facts["error"]["message"]
                yield _line(_failure(type(error).__name__, message, message))
            finally:
                await pieces.aclose()
            yield _line({"type": "end_of_execution"})

        return CutOffResponse(lines(), media_type="application/json")

    @routes.get("/contexts")
    async def list_contexts(request: Request) -> list[Facts]:
        return [_context_to_json(each) for each in sandbox_of(request).contexts.values()]

    @routes.post("/contexts")
    async def make_context(request: Request, body: ContextRequest) -> Any:
        sandbox, language = sandbox_of(request), _language(body.language)
        kept = await boxes.open(sandbox.box)
        context = Context(secrets.token_hex(16), kept, language, body.cwd or HOME)
        try:
            await enter(context)
        except BaseException:
            await boxes.close_session(kept)
            raise
        sandbox.contexts[context.id] = context
        return _context_to_json(context)

    @routes.post("/contexts/{id}/restart")
    async def restart_context(request: Request, id: str) -> None:
        sandbox = sandbox_of(request)
        context = context_of(sandbox, id)
        with sandbox.box:
            await context.kept.session.cancel()
            await context.kept.restart()
        await enter(context)
        context.count = 0

    @routes.delete("/contexts/{id}")
    async def remove_context(request: Request, id: str) -> None:
        sandbox = sandbox_of(request)
        context = context_of(sandbox, id)
        del sandbox.contexts[id]
        if context.kept is not sandbox.main:
            await boxes.close_session(context.kept)

    @routes.get("/health")
    async def health(request: Request) -> Response:
        sandbox_of(request)
        return Response(status_code=204)

    return routes


def _language(name: str | None) -> str:
    language = language_named(name or "python")
    if language not in LANGUAGES:
        raise RequestError(f"There is no language {name!r:.100}; there are {', '.join(LANGUAGES)}.")
    return language


def _context_to_json(context: Context) -> Facts:
    return {"id": context.id, "language": context.language, "cwd": context.cwd}


def _failure(name: str, value: str, traceback: str) -> Facts:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def _shown(shown: Facts) -> Facts:
    """What the code shows, as the clients have it."""
    data = dict(shown["data"])
    found = {name: data.pop(media_type, None) for media_type, name in _FORMS.items()}
    if isinstance(found["text"], str):
        found["text"] = _text(found["text"])
    kept = {name: value for name, value in found.items() if value is not None}
    return {"type": "result", "is_main_result": shown["main"], **kept, **({"extra": data} if data else {})}


def _text(value: str) -> str:
    """A value as E2B shows it: the text of a text has no quotes."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _with_env(language: str, env: Mapping[str, str], all_env: Mapping[str, str]) -> tuple[str, str]:
    """What is run before and after code with environment variables of its own."""
    gone = [name for name in env if name not in all_env]
    old = {name: all_env[name] for name in env if name in all_env}
    if not env:
        return "", ""
    if language == "python":
        environ = "__import__('os').environ"
        after = f"{environ}.update({old!r}); [{environ}.pop(name, None) for name in {gone!r}]; None"
        return f"{environ}.update({dict(env)!r}); None", after
    if language == "javascript":
        assign = "Object.assign(process.env, {}); for (const n of {}) delete process.env[n]"
        return assign.format(json.dumps(dict(env)), "[]"), assign.format(json.dumps(old), json.dumps(gone))
    if language == "bash":
        before, after = (
            "\n".join(f"export {name}={shlex.quote(value)}" for name, value in each.items()) for each in (env, old)
        )
        return before, "\n".join([after, *(f"unset {name}" for name in gone)])
    raise RequestError(f"Code in {language} gets no environment variables of its own; give them to the sandbox.")


def _change_folder(language: str, folder: str) -> str:
    if language == "python":
        return f"__import__('os').chdir({folder!r})"
    if language == "javascript":
        return f"process.chdir({json.dumps(folder)})"
    if language == "bash":
        return f"cd -- {shlex.quote(folder)}"
    raise RequestError(f"Code in {language} always begins in {HOME}; it can change the folder itself.")


def _line(facts: Facts) -> bytes:
    return json.dumps(facts).encode() + b"\n"
