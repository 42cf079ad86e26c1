"""The routes that make, list, and end sandboxes: E2B's API, as far as there is something here for it."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from coderoom._util.tasks import run_uncancellable
from coderoom.errors import RequestError
from coderoom.integrations.http import CALLER, Json
from coderoom.integrations.service.e2b.code import default_context
from coderoom.integrations.service.e2b.connect import E2BRoute, RpcError, refusal, rpc_error
from coderoom.integrations.service.e2b.files import use_of
from coderoom.integrations.service.e2b.sandboxes import (
    ENVD_VERSION,
    HOME,
    INSIDE,
    MOST_SECONDS,
    TEMPLATE,
    TEMPLATES,
    USER,
    E2BSandbox,
    E2BSandboxes,
    moment,
)
from coderoom.integrations.service.e2b.snapshots import Snapshot, Snapshots
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.files import files_of
from coderoom.integrations.service.peers import FORWARDED
from coderoom.integrations.service.streams import unless_left
from coderoom.integrations.service.tenants import Tenant

_FORK_SECONDS: Final = 15.0
_MOST_FORKS: Final = 20
_LIFE: Final = Field(default=300.0, ge=0, le=MOST_SECONDS)
_MOST_LISTED: Final = 100
_RULES: Final = ("allowOut", "denyOut", "allowPublicTraffic")
_EVERYWHERE: Final = "0.0.0.0/0"
_WALLS_WITH_HOME: Final = ("bubblewrap", "namespaces")
_TICK: Final = 0.001  # Times of the clients may be cut.
_PROCESSORS: Final = 1
_NOT_HERE: Final = (
    *("sandboxes", "v2/sandboxes", "snapshots", "templates", "v2/templates", "v3/templates", "volumes", "secrets"),
)
_ENV: Final = {"E2B_SANDBOX": "true", "HOME": HOME, "USER": USER, "LOGNAME": USER}


class NewSandbox(BaseModel):
    """A sandbox."""

    template: str = Field(default=TEMPLATE, alias="templateID")
    timeout: float = _LIFE
    auto_pause: bool = Field(default=False, alias="autoPause")
    auto_pause_memory: bool = Field(default=True, alias="autoPauseMemory")
    auto_resume: dict[str, Any] | None = Field(default=None, alias="autoResume")
    metadata: dict[str, str] | None = None
    env: dict[str, str] | None = Field(default=None, alias="envVars")
    internet: bool | None = Field(default=None, alias="allow_internet_access")
    network: dict[str, Any] | None = None
    mcp: Any = None
    iam: Any = None
    volumes: Any = Field(default=None, alias="volumeMounts")


class NewTime(BaseModel):
    """How long a sandbox lives, and whether its memory is kept."""

    timeout: float = _LIFE
    memory: bool = True


class NewSnapshot(BaseModel):
    """A snapshot."""

    name: str = ""
    memory: bool = True


class NewForks(BaseModel):
    """Forks."""

    timeout: float = Field(default=_FORK_SECONDS, ge=0, le=MOST_SECONDS)
    count: int = Field(default=1, ge=1, le=_MOST_FORKS)


def make_control(sandboxes: E2BSandboxes, snapshots: Snapshots) -> APIRouter:
    """The routes."""
    routes = APIRouter(route_class=E2BRoute, include_in_schema=False)
    boxes = sandboxes.boxes

    @routes.post("/sandboxes")
    @routes.post("/v2/sandboxes")
    async def make(request: Request, body: NewSandbox) -> Response:
        tenant = _tenant(request)
        for given, what in ((body.mcp, "MCP gateways"), (body.iam, "identities"), (body.volumes, "volumes")):
            if given:
                return refusal(501, f"E2B's {what} are not supported by this server.")
        name, network = body.template.partition(":")[0], _network(body, tenant)
        if name in TEMPLATES:
            sandbox = await begin(tenant, name, body, network)
        else:
            snapshot = snapshots.find(tenant, body.template)
            if network is not None and not _is_of(snapshot, network, body):
                why = "network: a sandbox that is made of a snapshot has the network of the first one."
                raise RequestError(why)
            making = snapshots.begin(snapshot, body.env or {}, body.metadata or {}, body.template)
            sandbox = await unless_left(request, making)
        sandbox.pauses = body.auto_pause
        sandbox.public = (body.network or {}).get("allowPublicTraffic") is True
        sandbox.keeps_memory = body.auto_pause_memory
        sandbox.wakes = body.timeout if (body.auto_resume or {}).get("enabled") else None
        return Json(_made(known(sandbox, body.timeout)), 201)

    async def begin(tenant: Tenant, name: str, body: NewSandbox, network: bool | list[str] | None) -> E2BSandbox:
        env = {**_ENV, **(body.env or {})}
        options: dict[str, Any] = {"env": env, **({} if network is None else {"network": network})}
        inner = {"place": HOME, "bundles": True}
        box = boxes.make(tenant, options, files=True, inner=inner, metadata=body.metadata or {})
        try:
            main = await boxes.open(box)
        except BaseException:
            await boxes.end(box)
            raise
        return E2BSandbox(box, main, name, env, box.sandbox.wall in _WALLS_WITH_HOME)

    def known(sandbox: E2BSandbox, seconds: float) -> E2BSandbox:
        for language in ("python", "javascript"):
            default_context(sandbox, language)
        sandboxes.add(sandbox)
        sandboxes.set_time(sandbox, seconds)
        return sandbox

    def running(request: Request, id: str) -> E2BSandbox:
        sandbox = sandboxes.find(_tenant(request), id)
        if sandbox.paused:
            raise RpcError("already_exists", f"The sandbox {id!r:.100} is paused.")
        return sandbox

    @routes.post("/sandboxes/{id}/snapshots")
    async def snapshot(request: Request, id: str, body: NewSnapshot) -> Response:
        taking = snapshots.take(running(request, id), body.name, body.memory)
        return Json((await unless_left(request, taking)).to_json(), 201)

    @routes.post("/sandboxes/{id}/fork")
    async def fork(request: Request, id: str, body: NewForks) -> Response:
        sandbox = running(request, id)

        async def one(snapshot: Snapshot) -> dict[str, Any]:
            try:
                made = await snapshots.begin(snapshot, {}, sandbox.box.metadata, sandbox.template)
            except Exception as error:
                failure = rpc_error(error)
                if failure.code == "internal":
                    raise
                return {"error": {"code": failure.status, "message": str(failure)}}
            return {"sandbox": _made(known(made, body.timeout))}

        async def all_of_them() -> list[dict[str, Any]]:
            snapshot = await snapshots.take(sandbox)
            try:
                return [await one(snapshot) for _ in range(body.count)]
            finally:
                await run_uncancellable(snapshots.end(snapshot))

        return Json(await unless_left(request, all_of_them()), 201)

    @routes.get("/snapshots")
    async def list_snapshots(
        request: Request,
        source: Annotated[str, Query(alias="sandboxID")] = "",
        name: str = "",
        begin: Annotated[int, Query(alias="nextToken", ge=0)] = 0,
        limit: int = _MOST_LISTED,
    ) -> Response:
        found = [
            each.to_json()
            for each in snapshots.of(_tenant(request))
            if source in ("", each.source) and (not name or each.is_called(name))
        ]
        return await page(request, found, "made", begin, limit)

    @routes.delete("/templates/{name}")
    async def remove_snapshot(request: Request, name: str) -> Response:
        await snapshots.end(snapshots.find(_tenant(request), name))
        return Response(status_code=204)

    async def page(
        request: Request, found: list[dict[str, Any]], by: str, begin: int, limit: int, ascending: bool = False
    ) -> Response:
        if request.scope.get(FORWARDED):
            return Json({"found": found})
        for answer in await boxes.peers.others(request):
            found += answer["found"]
        found.sort(key=lambda each: str(each[by]), reverse=not ascending)
        end = begin + max(1, min(limit, _MOST_LISTED))
        headers = {"x-total-running": str(len(found))}
        if end < len(found):
            headers["x-next-token"] = str(end)
        return Json(found[begin:end], headers=headers)

    @routes.get("/sandboxes")
    @routes.get("/v2/sandboxes")
    async def list_all(
        request: Request,
        metadata: str = "",
        state: Annotated[list[str], Query()] = [],  # noqa: B006 (FastAPI copies it)
        template: str = "",
        since: Annotated[datetime | None, Query(alias="startedAfter")] = None,
        begin: Annotated[int, Query(alias="nextToken", ge=0)] = 0,
        limit: int = _MOST_LISTED,
        order: str = "",
    ) -> Response:
        wanted = dict(parse_qsl(metadata, keep_blank_values=True))
        states = ",".join(state).split(",") if state else ["paused", "running"]
        found = [
            _described(each)
            for each in sandboxes.of(_tenant(request))
            if all(each.box.metadata.get(name) == value for name, value in wanted.items())
            and _state(each) in states
            and (not template or template in (_template_of(each), each.template))
            and (since is None or each.box.created >= since.timestamp() - _TICK)
        ]
        return await page(request, found, "startedAt", begin, limit, order == "asc")

    @routes.get("/sandboxes/{id}")
    async def describe(request: Request, id: str) -> dict[str, Any]:
        sandbox = sandboxes.find(_tenant(request), id)
        lifecycle = {"onTimeout": "pause" if sandbox.pauses else "kill", "autoResume": sandbox.wakes is not None}
        return {**_made(sandbox), "lifecycle": lifecycle}

    @routes.delete("/sandboxes/{id}")
    async def kill(request: Request, id: str) -> Response:
        await sandboxes.end(sandboxes.find(_tenant(request), id))
        return Response(status_code=204)

    @routes.post("/sandboxes/{id}/timeout")
    async def set_timeout(request: Request, id: str, body: NewTime) -> Response:
        sandbox = sandboxes.find(_tenant(request), id)
        if sandbox.paused:
            raise NotFoundError(f"The sandbox {id!r:.100} is paused.")
        with sandbox.box:
            sandboxes.set_time(sandbox, body.timeout)
        return Response(status_code=204)

    @routes.post("/sandboxes/{id}/pause")
    async def pause(request: Request, id: str, body: NewTime | None = None) -> Response:
        sandbox = sandboxes.find(_tenant(request), id)
        if sandbox.paused:
            return refusal(409, f"The sandbox {id!r:.100} is paused already.")
        await sandboxes.pause(sandbox, body is None or body.memory)
        return Response(status_code=204)

    @routes.post("/sandboxes/{id}/resume")
    @routes.post("/sandboxes/{id}/connect")
    @routes.post("/v2/sandboxes/{id}/connect")
    async def resume(request: Request, id: str, body: NewTime) -> Response:
        sandbox = sandboxes.find(_tenant(request), id)
        was_paused = sandbox.paused
        with sandbox.box:
            if was_paused and not body.memory:
                await sandboxes.forget(sandbox)
            sandboxes.resume(sandbox, body.timeout)
        return Json(_made(sandbox), 201 if was_paused else 200)

    @routes.get("/sandboxes/{id}/metrics")
    async def metrics(request: Request, id: str, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        sandbox, began = sandboxes.find(_tenant(request), id), int(time.time())
        if began < start or (end is not None and began > end):
            return []  # There is no record of the past.
        box, limits = sandbox.box, sandbox.box.sandbox.limits
        with box:
            used = await asyncio.gather(*(use_of(each) for each in box.sessions.values()))
            of_folder = [] if box.apart else await box.in_thread(files_of)
            disk = sum(size for _, size, _ in of_folder) + max(size for *_, size in used)
        now = {
            "timestamp": moment(began),
            "timestampUnix": began,
            "cpuCount": _PROCESSORS,
            "cpuUsedPct": round(100 * sum(share for _, share, _ in used), 1),
            "memUsed": sum(memory for memory, *_ in used),
            "memTotal": limits.memory_bytes,
            "memCache": 0,
            "diskUsed": disk,
            "diskTotal": limits.disk_bytes,
        }
        return [now]

    @routes.get(f"{INSIDE}/signed/{{operation}}")
    async def signed(request: Request, operation: str) -> dict[str, str]:
        if request.scope.get(FORWARDED):  # Another process asks whose a signed URL is.
            sandboxes.signed(request.scope, operation)
            return {"owner": boxes.peers.owner}
        raise HTTPException(404, "Not Found")

    @routes.get("/templates/aliases/{name}")
    async def template(name: str) -> Response:
        if name not in TEMPLATES:
            return refusal(404, _no_template(name))
        return Json({"templateID": TEMPLATE, "public": True})

    async def not_here(request: Request) -> Response:
        return refusal(501, f"{request.method} {request.url.path:.200} of E2B's API is not supported by this server.")

    for place in _NOT_HERE:
        for path in (f"/{place}", f"/{place}/{{rest:path}}"):
            routes.add_api_route(path, not_here, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    return routes


def _no_template(name: str) -> str:
    return f"There is no template {name!r:.100}: this server has {TEMPLATE!r}, also as {TEMPLATES[0]!r}."


def _tenant(request: Request) -> Tenant:
    tenant: Tenant = request.scope[CALLER]
    return tenant


def _network(body: NewSandbox, tenant: Tenant) -> bool | list[str] | None:
    """The network that a client asks for; if it does not say, all that the tenant may have, as E2B's sandboxes have."""
    rules = body.network or {}
    allowed, denied = rules.get("allowOut") or [], rules.get("denyOut") or []
    if other := [name for name, value in rules.items() if value and name not in _RULES]:
        raise RequestError(f"network: {', '.join(other)}: this server knows only {', '.join(_RULES)}.")
    if _EVERYWHERE in denied or body.internet is False:
        return list(map(str, allowed)) or False
    if denied:
        raise RequestError(f"network.denyOut: this server allows hosts, and denies all others ({_EVERYWHERE}).")
    if body.internet:
        return True
    most = tenant.limits.network
    return None if most is False else most if most is True else list(most)


def _is_of(snapshot: Snapshot, network: bool | list[str], body: NewSandbox) -> bool:
    """Whether a snapshot has a network that somebody asks for, or nobody does."""
    if body.internet is None and not (body.network or {}).keys() - {"allowPublicTraffic"}:
        return True
    own = snapshot.kept.box.sandbox.config.network
    return network is own if isinstance(network, bool) or isinstance(own, bool) else set(network) == set(own)


def _template_of(sandbox: E2BSandbox) -> str:
    return TEMPLATE if sandbox.template in TEMPLATES else sandbox.template


def _state(sandbox: E2BSandbox) -> str:
    return "paused" if sandbox.paused else "running"


def _made(sandbox: E2BSandbox) -> dict[str, Any]:
    tokens = dict.fromkeys(("envdAccessToken", "trafficAccessToken"), sandbox.token)
    return {**_described(sandbox), **tokens, "domain": None}


def _described(sandbox: E2BSandbox) -> dict[str, Any]:
    limits = sandbox.box.sandbox.limits
    return {
        "templateID": _template_of(sandbox),
        "alias": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "coderoom",
        "startedAt": moment(sandbox.box.created),
        "endAt": moment(max(sandbox.end_at, time.time())),
        "cpuCount": _PROCESSORS,
        "memoryMB": limits.memory_bytes >> 20,
        "diskSizeMB": limits.disk_bytes >> 20,
        "metadata": sandbox.box.metadata,
        "state": _state(sandbox),
        "envdVersion": ENVD_VERSION,
    }
