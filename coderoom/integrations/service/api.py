"""The server's own REST API: runs, sandboxes, sessions, cells, checkpoints, files, the judge."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, aclosing
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response

from coderoom import __version__
from coderoom.errors import RequestError
from coderoom.integrations.http import CALLER, Json
from coderoom.integrations.service import files
from coderoom.integrations.service.boxes import Box, Boxes, KeptSession
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.places import SharedJudge
from coderoom.integrations.service.streams import CallAnswer, Event, InputPiece, LimitedStream, sent_events, unless_left
from coderoom.integrations.service.tenants import Slot, Tenant, Tenants
from coderoom.judge import FrozenTests, Programs, TestCode, TestFiles
from coderoom.sandbox import ExecutionResult, OutputChunk
from coderoom.sandbox.cell import Input
from coderoom.sandbox.engines.remote.wire import function_from_offer


class Code(BaseModel):
    """Code to run, and how."""

    model_config = ConfigDict(extra="forbid")

    code: str
    language: str = "python"
    timeout: float | None = Field(default=None, gt=0, description="Seconds; without it, `limits.wall_seconds`.")
    stdin: str | None = Field(default=None, description="What the code reads from standard input.")
    stdin_base64: Base64Bytes | None = Field(default=None, description="The same as bytes.")
    stream: bool = Field(
        default=False, description="Answer by server-sent events: `input`, `output`, `call`, `left`, then `result`."
    )
    stdin_follows: bool = Field(
        default=False,
        description="Whether what it reads is sent while it runs, to `/v1/sandboxes/SANDBOX/inputs/ID`; the event "
        "`input`, which is the first, has these.",
    )

    @property
    def input(self) -> str | bytes | None:
        """The standard input."""
        return self.stdin if self.stdin_base64 is None else self.stdin_base64


class RunRequest(Code):
    """A one-shot run."""

    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of `Sandbox`, without files.")


class CellRequest(Code):
    """A cell of a session."""

    final: bool = Field(default=False, description="Whether the variables end with it.")


class SandboxRequest(BaseModel):
    """A sandbox."""

    model_config = ConfigDict(extra="forbid")

    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of `Sandbox`.")
    files: bool = Field(default=True, description="Whether its sessions share a folder.")
    idle_seconds: float | None = Field(default=None, gt=0, description="Closed if nobody uses it for so long.")
    metadata: dict[str, Any] = Field(default_factory=dict)


class SessionRequest(BaseModel):
    """A session."""

    model_config = ConfigDict(extra="forbid")

    functions: list[dict[str, Any]] = Field(default_factory=list, description="Functions of the client.")


class CheckpointRequest(BaseModel):
    """A checkpoint."""

    model_config = ConfigDict(extra="forbid")

    files: bool = Field(default=False, description="Whether the files are kept, too.")


class ForkRequest(BaseModel):
    """Forks of a session."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=1, ge=1, le=10_000, description="How many.")
    reseed: bool = Field(default=False, description="Whether each gets random numbers of its own.")


class BecomeRequest(BaseModel):
    """The fork that a session becomes."""

    model_config = ConfigDict(extra="forbid")

    fork: str = Field(description="The session that `forks` has made.")


class NamesRequest(BaseModel):
    """Names of files."""

    model_config = ConfigDict(extra="forbid")

    names: list[str]


class JudgeRequest(BaseModel):
    """Tests for code. The kind of the tests says what `tests` has."""

    model_config = ConfigDict(extra="forbid")

    code: dict[str, str]
    kind: Literal["cases", "code", "files", "programs"]
    tests: dict[str, Any]
    timeout: float | None = Field(default=None, gt=0)
    shared: bool = False


_LARGEST_FUNCTIONS: Final = 1024 * 1024
_TESTS: Final[dict[str, type[BaseModel]]] = {
    "cases": FrozenTests,
    "code": TestCode,
    "files": TestFiles,
    "programs": Programs,
}


def _tenant(request: Request) -> Tenant:
    tenant: Tenant = request.scope[CALLER]
    return tenant


Caller = Annotated[Tenant, Depends(_tenant)]


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """How OpenAPI describes the body of a request that its endpoint reads itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def make_api(boxes: Boxes, tenants: Tenants, judge: SharedJudge) -> APIRouter:
    """The routes."""
    api = APIRouter(prefix="/v1")

    async def answer(
        request: Request,
        box: Box,
        code: Code,
        run: Callable[[float, Any, Slot], AsyncGenerator[Any]],
        kept: KeptSession | None,
    ) -> Response:
        seconds = box.seconds(code.timeout)
        stdin: Input | None = code.input
        if code.stdin_follows and not code.stream:
            raise RequestError("stdin_follows: the answer to such code is one by events: stream=true.")

        async def work() -> AsyncGenerator[Event]:
            nonlocal stdin
            with box, ExitStack() as stack:
                memory = box.sandbox.limits.memory_bytes if kept is None else kept.free_bytes
                async with tenants.slot(box.tenant, memory) as slot:
                    if code.stdin_follows:
                        key, given = stack.enter_context(box.input())
                        stdin = given.pieces()
                        yield "input", {"sandbox": box.id, "id": key}
                    async with aclosing(run(seconds, stdin, slot)) as pieces:
                        async for piece in pieces:
                            if isinstance(piece, OutputChunk):
                                yield "output", {"stream": piece.stream, "text": piece.text}
                            elif isinstance(piece, ExecutionResult):
                                slot.outcome = piece.outcome
                                if kept is not None:
                                    kept.note(piece)
                                yield "result", await box.result_to_json(piece)
                            else:
                                yield ("call" if "name" in piece else "left"), piece

        if code.stream:
            return LimitedStream(sent_events(work()), box.longest(seconds), media_type="text/event-stream")

        async def whole() -> dict[str, Any]:
            async with aclosing(work()) as events:
                async for name, facts in events:
                    if name == "result":
                        return facts
            raise AssertionError

        # Text of code may have lone surrogates, which are JSON only if they are escaped.
        return Response(json.dumps(await unless_left(request, whole())), media_type="application/json")

    # --- One-shot runs ---

    @api.post("/run", summary="Run code in a fresh state", openapi_extra=body_of(RunRequest), response_model=None)
    async def run(request: Request) -> Response:
        body = RunRequest.model_validate_json(await request.body())
        return await run_in(request, boxes.shared(_tenant(request), body.options), body)

    @api.post("/sandboxes/{id}/run", summary="Run code in a fresh state, with the files of a sandbox")
    async def run_beside(request: Request, id: str, body: Code, tenant: Caller) -> Response:
        return await run_in(request, boxes.box(tenant, id), body)

    async def run_in(request: Request, box: Box, body: Code) -> Response:
        def run(seconds: float, stdin: Any, slot: Slot) -> AsyncGenerator[Any]:
            given: dict[str, Any] = {"language": body.language, "timeout": seconds, "stdin": stdin}
            if body.stream:
                return box.sandbox.stream(body.code, **given)
            return _only(box.sandbox.run(body.code, **given))

        return await answer(request, box, body, run, None)

    @api.post("/sandboxes/{id}/inputs/{input}", summary="Write to the standard input of code", status_code=204)
    async def write_input(request: Request, id: str, input: str, body: InputPiece, tenant: Caller) -> None:
        given = boxes.box(tenant, id).inputs.get(input)
        if given is None:
            raise NotFoundError("There is no such input; the code has ended.")
        await unless_left(request, given.write(body))

    # --- Sandboxes ---

    @api.post("/sandboxes", summary="Make a sandbox", status_code=201)
    async def make_sandbox(body: SandboxRequest, tenant: Caller) -> dict[str, Any]:
        box = boxes.make(tenant, body.options, files=body.files, idle_seconds=body.idle_seconds, metadata=body.metadata)
        try:
            with box:
                await box.sandbox.start()
        except BaseException:
            await boxes.end(box)
            raise
        return _box_to_json(box)

    @api.get("/sandboxes", summary="List sandboxes")
    async def list_sandboxes(request: Request, tenant: Caller) -> dict[str, Any]:
        of_others = [each for answer in await boxes.peers.others(request) for each in answer["sandboxes"]]
        return {"sandboxes": [_box_to_json(box) for box in boxes.of(tenant)] + of_others}

    @api.get("/sandboxes/{id}", summary="Describe a sandbox; this counts as a use")
    async def get_sandbox(id: str, tenant: Caller) -> dict[str, Any]:
        with (box := boxes.box(tenant, id)):
            return _box_to_json(box)

    @api.delete("/sandboxes/{id}", summary="Close a sandbox", status_code=204)
    async def delete_sandbox(id: str, tenant: Caller) -> None:
        await boxes.end(boxes.box(tenant, id))

    # --- Sessions ---

    @api.post("/sandboxes/{id}/sessions", summary="Open a session", status_code=201)
    async def open_session(id: str, body: SessionRequest, tenant: Caller) -> dict[str, Any]:
        box = boxes.box(tenant, id)
        if len(json.dumps(body.functions)) > _LARGEST_FUNCTIONS:
            raise RequestError(f"The functions of a session may be described by {_LARGEST_FUNCTIONS:,} bytes.")
        kept: KeptSession | None = None

        async def call(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
            assert kept is not None
            return await kept.calls.ask(name, args, kwargs)

        kept = await boxes.open(box, [function_from_offer(each, call) for each in body.functions])
        return {"id": kept.id, "sandbox": box.id}

    @api.delete("/sessions/{id}", summary="Close a session", status_code=204)
    async def close_session(id: str, tenant: Caller) -> None:
        await boxes.close_session(boxes.session(tenant, id))

    @api.post("/sessions/{id}/cells", summary="Run a cell")
    async def run_cell(request: Request, id: str, body: CellRequest, tenant: Caller) -> Response:
        kept = boxes.session(tenant, id)

        def run(seconds: float, stdin: Any, slot: Slot) -> AsyncGenerator[Any]:
            given: dict[str, Any] = {"language": body.language, "timeout": seconds, "stdin": stdin, "final": body.final}
            if body.stream:
                pieces, most = kept.session.stream(body.code, **given), tenant.limits.decision_seconds
                return kept.calls.among(pieces, slot.aside, most)
            return _only(kept.session.run(body.code, **given))

        return await answer(request, kept.box, body, run, kept)

    @api.post("/sessions/{id}/calls/{call}", summary="Answer a call to a function of the client", status_code=204)
    async def answer_call(id: str, call: str, body: CallAnswer, tenant: Caller) -> None:
        boxes.session(tenant, id).calls.answer(call, body)

    @api.post("/sessions/{id}/calls/{call}/pause", summary="Stop the code while a person decides", status_code=204)
    async def pause_call(request: Request, id: str, call: str, tenant: Caller) -> None:
        await unless_left(request, boxes.session(tenant, id).calls.pause(call))

    @api.post("/sessions/{id}/calls/{call}/resume", summary="Let the code go on", status_code=204)
    async def resume_call(id: str, call: str, tenant: Caller) -> None:
        boxes.session(tenant, id).calls.resume(call)

    @api.post("/sessions/{id}/cancel", summary="End the cell that runs", status_code=204)
    async def cancel(id: str, tenant: Caller) -> None:
        await boxes.session(tenant, id).session.cancel()

    @api.post("/sessions/{id}/restart", summary="Return to a fresh state", status_code=204)
    async def restart(id: str, tenant: Caller) -> None:
        await boxes.session(tenant, id).restart()

    @api.post("/sessions/{id}/forks", summary="Make sessions with the state of one", status_code=201)
    async def fork(id: str, body: ForkRequest, tenant: Caller) -> dict[str, Any]:
        kept = boxes.session(tenant, id)
        if kept.has_functions:
            raise RequestError("A session with functions of the client cannot be forked.")
        return {"sessions": [each.id for each in await boxes.fork(kept, body.count, body.reseed)]}

    @api.post("/sessions/{id}/become", summary="Go on as a fork of the session, which is closed", status_code=204)
    async def become(id: str, body: BecomeRequest, tenant: Caller) -> None:
        await boxes.become(boxes.session(tenant, id), boxes.session(tenant, body.fork))

    @api.post("/sessions/{id}/checkpoints", summary="Keep the state", status_code=201)
    async def checkpoint(id: str, body: CheckpointRequest, tenant: Caller) -> dict[str, Any]:
        return {"id": await boxes.session(tenant, id).checkpoint(body.files)}

    @api.post("/sessions/{id}/checkpoints/{checkpoint}/rollback", summary="Return to a state", status_code=204)
    async def rollback(id: str, checkpoint: str, tenant: Caller) -> None:
        kept = boxes.session(tenant, id)
        with kept.box:
            await kept.session.rollback(_checkpoint(kept, checkpoint))

    @api.delete("/sessions/{id}/checkpoints/{checkpoint}", summary="Forget a state", status_code=204)
    async def release(id: str, checkpoint: str, tenant: Caller) -> None:
        kept = boxes.session(tenant, id)
        await kept.session.release(_checkpoint(kept, checkpoint))
        kept.forget(checkpoint)

    # --- Files ---

    @api.get("/sandboxes/{id}/files", summary="List the files")
    async def list_files(id: str, tenant: Caller) -> dict[str, Any]:
        with (box := boxes.box(tenant, id)):
            return {"files": await box.in_thread(files.list_files)}

    @api.get("/sandboxes/{id}/archive", summary="Get files as a tar archive; all, or those named")
    async def get_archive(id: str, tenant: Caller, name: Annotated[list[str] | None, Query()] = None) -> Response:
        with (box := boxes.box(tenant, id)):
            file = await box.in_thread(files.pack, name)
        return LimitedStream(files.parts_of(file), files.SECONDS, media_type="application/x-tar")

    @api.post("/sandboxes/{id}/archive", summary="Get files as a tar archive, by names")
    async def get_named(id: str, tenant: Caller, body: NamesRequest) -> Response:
        return await get_archive(id, tenant, body.names)

    @api.put("/sandboxes/{id}/archive", summary="Write the files of a tar archive", status_code=204)
    async def put_archive(request: Request, id: str, tenant: Caller) -> None:
        with (box := boxes.box(tenant, id)), await files.received(request, box) as file:
            await box.in_thread(files.unpack, file)

    @api.get("/sandboxes/{id}/files/{path:path}", summary="Read a file")
    async def read_file(id: str, path: str, tenant: Caller) -> Response:
        with (box := boxes.box(tenant, id)):
            file = await box.in_thread(files.opened, path)
        safe = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return LimitedStream(files.parts_of(file), files.SECONDS, media_type="application/octet-stream", headers=safe)

    @api.put("/sandboxes/{id}/files/{path:path}", summary="Write a file", status_code=204)
    async def write_file(request: Request, id: str, path: str, tenant: Caller) -> None:
        with (box := boxes.box(tenant, id)), await files.received(request, box) as file:
            await box.in_thread(files.write, path, file)

    @api.delete("/sandboxes/{id}/files/{path:path}", summary="Remove a file", status_code=204)
    async def remove_file(id: str, path: str, tenant: Caller) -> None:
        with (box := boxes.box(tenant, id)):
            await box.in_thread(files.remove, path)

    # --- The judge ---

    @api.post("/judge", summary="Run tests against code")
    async def judge_code(request: Request, body: JudgeRequest, tenant: Caller) -> Response:
        tests: Any = _TESTS[body.kind].model_validate(body.tests)
        most = tenant.limits.seconds
        for timeout in (body.timeout, getattr(tests, "timeout", None)):
            if timeout is not None and timeout > most:
                raise RequestError(f"timeout={timeout:g}: code may run for at most {most:g} s here.")

        running = judge.run(tenant, body.code, tests, timeout=body.timeout, shared=body.shared)
        return Json({"verdicts": [to_jsonable_python(each) for each in await unless_left(request, running)]})

    @api.get("/", summary="What this server is")
    async def about() -> dict[str, Any]:
        return {"server": "coderoom", "version": __version__, "options": boxes.described()}

    return api


def _box_to_json(box: Box) -> dict[str, Any]:
    return {
        "id": box.id,
        "wall": box.sandbox.wall,
        "lock": box.sandbox.lock,
        "facts": dict(box.sandbox.facts),
        "files": box.folder is not None,
        "limits": box.sandbox.limits.model_dump(),
        "sessions": list(box.sessions),
        "created": box.created,
        "metadata": box.metadata,
    }


def _checkpoint(kept: KeptSession, id: str) -> Any:
    if id not in kept.checkpoints:
        raise NotFoundError("There is no such checkpoint in this session.")
    return kept.checkpoints[id]


async def _only(result: Coroutine[Any, Any, ExecutionResult]) -> AsyncGenerator[ExecutionResult]:
    yield await result
