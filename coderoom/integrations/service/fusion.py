"""What callers of SandboxFusion send: `POST /run_code` and `POST /run_jupyter`, with its fields and its statuses.

A run without files is a one-shot run. With files it is a session of three cells: one writes them, one is the code, and
one reads those that are asked for; so it needs no worker and no folder of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from coderoom.errors import MissingDependencyError, SandboxUnavailable
from coderoom.integrations.http import CALLER, Json
from coderoom.integrations.service.api import body_of
from coderoom.integrations.service.boxes import Box, Boxes
from coderoom.integrations.service.streams import unless_left
from coderoom.integrations.service.tenants import Tenant, Tenants
from coderoom.outcome import Outcome
from coderoom.sandbox import PROGRAMS, ExecutionResult, Session
from coderoom.sandbox.config import MIB

LANGUAGES: Final[Mapping[str, str]] = {
    **{name: name for name in ("python", "cpp", "go", "java", "php", "bash", "typescript", "sql", "rust", "lua")},
    **{name: name for name in ("perl", "ruby", "pytest", "go_test")},
    "nodejs": "javascript",
    "R": "r",
}
"""The languages of SandboxFusion that are here, and their names in a sandbox."""
_OTHERS: Final = (
    *("csharp", "cuda", "D_ut", "scala", "julia", "junit", "kotlin_script", "jest", "verilog", "python_gpu"),
    *("lean", "swift", "racket"),
)
_COMPILED: Final = ("cpp", "go", "java", "rust")  # Where SandboxFusion has a `compile_result`.
_MEMORY_STEPS: Final = tuple(64 << number for number in range(16))
_COMPILE_STEPS: Final = (10, 30, 60, 120, 300, 1_800)
_MOST_FETCHED: Final = 64 * MIB
_WRITE: Final = """\
def _write():
    import base64, json, os, sys
    for name, data in json.load(sys.stdin).items():
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(base64.b64decode(data))
_write()
"""
_READ: Final = """\
def _read(names):
    import os
    found = {}
    for name in names:
        if os.path.isfile(name):
            with open(name, "rb") as file:
                found[name] = file.read()
    return found
_read(%r)
"""
_PYTEST: Final = "import sys, pytest\nsys.exit(int(pytest.main(['-p', 'no:cacheprovider', 'test_main.py'])))"
_COMMANDS: Final = {
    "go_test": ("main_test.go", "", "CGO_ENABLED=0 GOCACHE=$PWD/.cache go test main_test.go"),
    "java": ("Main.java", "javac -cp '.:*' -d . Main.java", "java -ea -Xmx384m -cp '.:*' Main"),
}
"""The file of the source, what compiles it, and what runs it, where files of the client are beside it."""


class RunCode(BaseModel):
    """Code to run, as SandboxFusion's clients describe it."""

    compile_timeout: float = Field(default=10, gt=0, description="Seconds; rounded up to 10, 30, 60, 120, 300 or 1800.")
    run_timeout: float = Field(default=10, gt=0, description="Seconds.")
    memory_mib: int = Field(
        default=-1, alias="memory_limit_MB", description="MiB; rounded up to 64, 128, 256, ...; -1: the server's."
    )
    code: str
    stdin: str | None = None
    language: str
    files: dict[str, str | None] = Field(default_factory=dict, description="Contents as base64, by names.")
    fetch_files: list[str] = Field(default_factory=list, description="Files to return.")


class RunJupyter(BaseModel):
    """Cells to run one after the other."""

    cells: list[str]
    cell_timeout: float = Field(default=0, description="Seconds; 0: only the total counts.")
    total_timeout: float = Field(default=45, gt=0)
    memory_mib: int = Field(default=-1, alias="memory_limit_MB")
    kernel: Literal["python3"] = "python3"
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


Request_ = TypeVar("Request_", RunCode, RunJupyter)


class _SandboxError(Exception):
    """What is answered with the status `SandboxError`."""


def make_fusion(boxes: Boxes, tenants: Tenants) -> APIRouter:
    """The routes."""
    api = APIRouter(tags=["SandboxFusion"])

    async def in_turn(
        tenant: Tenant, body: Request_, run: Callable[[Box, Request_], Coroutine[Any, Any, dict[str, Any]]]
    ) -> dict[str, Any]:
        box = boxes.shared(tenant, _options(boxes, body))
        with box:
            async with tenants.slot(tenant, box.sandbox.limits.memory_bytes) as slot:
                facts = await run(box, body)
                slot.outcome = _outcome(facts)
                return facts

    @api.post("/run_code", summary="Run code", openapi_extra=body_of(RunCode), response_model=None)
    async def run_code(request: Request) -> Response:
        try:
            body = RunCode.model_validate_json(await request.body())
            if body.language not in LANGUAGES and body.language not in _OTHERS:
                raise ValueError(f"language: there is no {body.language!r} among {', '.join((*LANGUAGES, *_OTHERS))}")
        except ValueError as error:
            return _invalid(error)
        tenant: Tenant = request.scope[CALLER]

        async def answer() -> dict[str, Any]:
            if body.language in _OTHERS:
                raise _SandboxError(f"This server does not run {body.language!r}.")
            return await in_turn(tenant, body, _run)

        return await _answered(request, answer(), {"compile_result": None, "run_result": None})

    @api.post("/run_jupyter", summary="Run cells", openapi_extra=body_of(RunJupyter), response_model=None)
    async def run_jupyter(request: Request) -> Response:
        try:
            body = RunJupyter.model_validate_json(await request.body())
        except ValueError as error:
            return _invalid(error)
        tenant: Tenant = request.scope[CALLER]

        return await _answered(request, in_turn(tenant, body, _run_cells), {"driver": None, "cells": []})

    @api.get("/v1/ping", summary="Say that the server is there")
    async def ping() -> Response:
        return PlainTextResponse("pong")

    return api


def _outcome(facts: Mapping[str, Any]) -> Outcome:
    """How a run has ended, for the counts of the operator."""
    commands = [facts[name] for name in ("compile_result", "run_result", "driver") if facts.get(name) is not None]
    if any(each["status"] == "TimeLimitExceeded" for each in commands):
        return Outcome.TIMEOUT
    return Outcome.OK if facts["status"] == "Success" else Outcome.ERROR


async def _answered(request: Request, work: Any, nothing: dict[str, Any]) -> Response:
    try:
        facts = await unless_left(request, work)
    except (SandboxUnavailable, MissingDependencyError, _SandboxError) as error:
        facts = {"status": "SandboxError", "message": str(error), **nothing, "files": {}}
    # Text of code may have lone surrogates, which are JSON only if they are escaped.
    whole = {"message": "", "executor_pod_name": None, **facts}
    return Response(json.dumps(whole), media_type="application/json")


def _options(boxes: Boxes, body: RunCode | RunJupyter) -> dict[str, Any]:
    """The options of a sandbox for a request. They are few, since each has a warm worker of its own."""
    given, limits = boxes.defaults.limits, {}
    if body.memory_mib > 0:
        limits["memory_bytes"] = _step(body.memory_mib, _MEMORY_STEPS) * MIB
    if isinstance(body, RunCode) and body.language in _COMPILED:
        limits["compile_seconds"] = _step(body.compile_timeout, _COMPILE_STEPS)
    if body.fetch_files:
        limits["value_bytes"] = _MOST_FETCHED
    limits = {name: value for name, value in limits.items() if value != getattr(given, name)}
    return {"limits": limits} if limits else {}


def _step(value: float, steps: tuple[int, ...]) -> int:
    return next((each for each in steps if value <= each), steps[-1])


# --- Runs ---


async def _run(box: Box, body: RunCode) -> dict[str, Any]:
    seconds, language, code = box.seconds(body.run_timeout), LANGUAGES[body.language], body.code
    files = {name: data for name, data in body.files.items() if data is not None}
    if language == "php" and "<?" not in code:
        code = f"<?php\n{code}"
    if language == "pytest":
        files["test_main.py"], code, language = _packed(code), _PYTEST, "python"
    began, fetched = time.monotonic(), {}
    compiled: dict[str, Any] | None = None
    if language == "go_test" or (files and language in PROGRAMS and PROGRAMS[language].build):
        return await _run_commands(box, body, language, files, seconds)
    if files or body.fetch_files:
        async with box.sandbox.session() as session:
            await _write(session, files)
            began = time.monotonic()
            result = await session.run(code, language=language, timeout=seconds, stdin=body.stdin, final=True)
            took = time.monotonic() - began
            fetched = await _read(session, body.fetch_files)
    else:
        result = await box.sandbox.run(code, language=language, timeout=seconds, stdin=body.stdin)
        took = time.monotonic() - began
    ran: dict[str, Any] | None = _ended(result)
    if body.language in _COMPILED:
        if result.error is not None and result.error.type == "CompileError":
            compiled, ran = ran, None
        else:
            compiled = command_of(0, max(took - result.duration, 0.0))
    return _whole(compiled, ran, fetched)


async def _run_commands(
    box: Box, body: RunCode, language: str, files: dict[str, str], seconds: float
) -> dict[str, Any]:
    """Compile and run code beside files of the client, which it may include."""
    if language in _COMMANDS:
        source, build, run = _COMMANDS[language]
        needs = {"go_test": PROGRAMS["go"]}.get(language) or PROGRAMS[language]
    else:
        needs = PROGRAMS[language]
        source, build = needs.source, needs.build
        run = " ".join("./built" if each == "{file}" else shlex.quote(each) for each in needs.argv)
    compiled = ran = None
    async with box.sandbox.session() as session:
        await _write(session, {**files, source: _packed(body.code)})
        found = await session.run(f"command -v {needs.compiler}", language="sh")
        if not found.success:
            raise _SandboxError(f"The sandbox has no {needs.compiler}, which {language} needs: {needs.install}.")
        if build:
            compiled = await _command_run(session, build, None, box.seconds(body.compile_timeout))
        if compiled is None or compiled["return_code"] == 0:
            ran = await _command_run(session, run, body.stdin, seconds)
        fetched = await _read(session, body.fetch_files)
    return _whole(compiled, ran, fetched)


async def _command_run(session: Session, command: str, stdin: str | None, seconds: float) -> dict[str, Any]:
    said: dict[str, list[str]] = {"stdout": [], "stderr": []}
    began, code = time.monotonic(), None
    async with await session.start(["sh", "-c", command]) as process:

        async def feed() -> None:
            with suppress(BrokenPipeError):
                await process.write(stdin or "")
            await process.close_input()

        feeding = asyncio.ensure_future(feed())
        try:
            async with asyncio.timeout(seconds):
                async for piece in process:
                    said[piece.stream].append(piece.text)
                code = await process.wait()
        except TimeoutError:
            pass
        finally:
            feeding.cancel()
    texts = {name: "".join(pieces) for name, pieces in said.items()}
    return command_of(None if code is None else 128 - code if code > 128 else code, time.monotonic() - began, **texts)


async def _write(session: Session, files: Mapping[str, str]) -> None:
    if files:
        written = await session.run(_WRITE, stdin=json.dumps(files))
        if not written.success:
            raise _SandboxError(f"The files cannot be written: {written.error}")


async def _read(session: Session, names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    found = await session.run(_READ % (names,), final=True)
    if not isinstance(found.value, dict):
        raise _SandboxError(f"The files cannot be read, or have together more than {_MOST_FETCHED:,} bytes.")
    return {name: base64.b64encode(data).decode() for name, data in found.value.items()}


def _packed(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


# --- Cells ---


async def _run_cells(box: Box, body: RunJupyter) -> dict[str, Any]:
    left, cells = box.seconds(body.total_timeout), []
    began = time.monotonic()
    async with box.sandbox.session() as session:
        await _write(session, {name: data for name, data in body.files.items() if data is not None})
        for code in body.cells:
            seconds = min(left, body.cell_timeout) if body.cell_timeout > 0 else left
            result = await session.run(code, timeout=max(seconds, 0.001))
            left -= result.duration
            if result.outcome is Outcome.TIMEOUT:
                return {
                    "status": "Failed",
                    "driver": command_of(None, time.monotonic() - began),
                    "cells": [],
                    "files": {},
                }
            cells.append(_cell(result))
        fetched = await _read(session, body.fetch_files)
    driver = command_of(0, time.monotonic() - began)
    return {"status": "Success", "driver": driver, "cells": cells, "files": fetched}


def _cell(result: ExecutionResult) -> dict[str, Any]:
    stderr, error, display = result.stderr, [], []
    if result.error is not None:
        stderr = stderr.replace(result.error.traceback, "", 1) if result.error.traceback else stderr
        lines = result.error.traceback.splitlines()
        error = [{"ename": result.error.type, "evalue": result.error.message, "traceback": lines}]
    for each in result.artifacts:
        if each.position is not None and each.data is not None:
            is_text = each.media_type.startswith("text/")
            data = each.data.decode("utf-8", "replace") if is_text else base64.b64encode(each.data).decode()
            display.append({each.media_type: data})
    if result.value_repr is not None:
        display.append({"text/plain": result.value_repr})
    return {"stdout": result.stdout, "stderr": stderr, "display": display, "error": error}


# --- Answers ---


def _ended(result: ExecutionResult) -> dict[str, Any]:
    """How a command has ended, as SandboxFusion says it: a signal is a negative number."""
    code: int | None = result.exit_code
    if result.outcome is Outcome.TIMEOUT:
        code = None
    elif result.error is not None and result.error.type == "Signal":
        code = 128 - result.exit_code
    elif result.outcome is Outcome.MEMORY:
        code = 1 if result.error is not None and result.error.type == "MemoryError" else -9
    return command_of(code, result.duration, result.stdout, result.stderr)


def command_of(code: int | None, seconds: float, stdout: str = "", stderr: str = "") -> dict[str, Any]:
    """A command as SandboxFusion says how it has ended; `None` as its code: it took too long."""
    return {
        "status": "TimeLimitExceeded" if code is None else "Finished",
        "execution_time": seconds,
        "return_code": code,
        "stdout": stdout,
        "stderr": stderr,
    }


def _whole(compiled: dict[str, Any] | None, ran: dict[str, Any] | None, fetched: dict[str, str]) -> dict[str, Any]:
    passed = all(each["return_code"] == 0 for each in (compiled, ran) if each is not None)
    status = "Success" if passed else "Failed"
    return {"status": status, "compile_result": compiled, "run_result": ran, "files": fetched}


def _invalid(error: ValueError) -> Response:
    """As FastAPI answers, whose answers SandboxFusion's callers know."""
    found: list[Any] = [{"type": "value_error", "loc": [], "msg": str(error)}]
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
    return Json({"detail": [{**each, "loc": ["body", *each["loc"]]} for each in found]}, 422)
