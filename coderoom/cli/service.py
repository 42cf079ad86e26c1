"""The commands of `coderoom sandbox`: sandboxes for other programs, over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.cli.doors import TOKEN_VARIABLE, HostOption, try_out
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from coderoom.integrations.service.peers import Peers

PEERS_VARIABLE = "CODEROOM_PEERS_SECRET"
_SHORTEST_SECRET = 16
_COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_YIELD_SECONDS = 0.3


class Engine(StrEnum):
    """Where the sandboxes are."""

    LOCAL = "local"
    RAY = "ray"


sandbox = typer.Typer(help="Serve sandboxes over HTTP.", no_args_is_help=True)
app.app.add_typer(sandbox, name="sandbox")


@sandbox.command()
def serve(
    port: Annotated[int, app.option("PORT", "The port; 0: one that is free.", "--port", min=0, max=65535)] = 8080,
    host: HostOption = "127.0.0.1",
    tenants: Annotated[Path | None, app.option("FILE", "Who may use it, and how much (YAML).", "--tenants")] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Serve all programs of this machine.")] = False,
    wall: app.WallOption = "auto",
    network: app.NetworkOption = False,
    allowed_hosts: app.HostsOption = None,
    local_network: app.LocalNetworkOption = False,
    packages: app.PackageOption = None,
    allow_builds: app.AllowBuildsOption = None,
    timeout: app.CodeTimeoutOption = None,
    preload: app.PreloadOption = None,
    concurrency: Annotated[
        int | None, app.option("N", "Runs and cells at a time; 8 for each core.", "--concurrency", min=1)
    ] = None,
    workers: Annotated[int, app.option("N", "Processes that serve; 0: one for each core.", "--workers", min=0)] = 1,
    drain_seconds: Annotated[
        float, app.option("SEC", "At SIGTERM, what runs may take so long to end.", "--drain-seconds", min=0)
    ] = 30.0,
    peers: Annotated[
        list[str] | None,
        app.option("HOST", "Other servers: a name that has the addresses of all, or addresses.", "--peer"),
    ] = None,
    address: Annotated[
        str | None, app.option("IP", "The address at which these reach this server.", "--address")
    ] = None,
    problems: Annotated[
        Path | None, app.option("FOLDER", "Problem sets for SandboxFusion's /submit.", "--problems")
    ] = None,
    engine: Annotated[
        Engine, app.option("NAME", "Where the sandboxes are: 'local', or 'ray' for a Ray cluster.", "--engine")
    ] = Engine.LOCAL,
    cluster: Annotated[
        str | None,
        app.option("ADDRESS", "The Ray cluster, as 'auto'; without it, RAY_ADDRESS, or a local one.", "--cluster"),
    ] = None,
    min_replicas: Annotated[int, app.option("N", "With Ray: the least replicas.", "--min-replicas", min=1)] = 1,
    max_replicas: Annotated[
        int | None, app.option("N", "With Ray: the most replicas; else the least.", "--max-replicas", min=1)
    ] = None,
    cpus: Annotated[float, app.option("N", "With Ray: processors that a replica takes.", "--cpus", min=0.01)] = 1,
    otlp: app.OtlpOption = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log each request as a line of JSON.")] = False,
    debug: app.DebugOption = False,
) -> None:
    """Serve sandboxes to other programs: CodeRoom's own API, SandboxFusion's and E2B's.

    The URL is http://ADDRESS:PORT. The tokens of callers are in CODEROOM_TOKEN, separated by commas, or in the file of
    --tenants; otherwise there is a new one, which is shown. With --peer and --address, all servers with the same port,
    tenants and CODEROOM_PEERS_SECRET answer for the sandboxes and sessions of each.
    """
    from coderoom.integrations.http import listen, serve_sockets, url_of
    from coderoom.integrations.service import SandboxServer, Tenant, TenantLimits, new_token, read_tenants
    from coderoom.integrations.service.fusion_problems import read_sets
    from coderoom.integrations.service.server import ANYBODY, STRANGERS
    from coderoom.integrations.service.workers import Workers
    from coderoom.sandbox import Limits, SandboxConfig

    if no_token and (tenants is not None or host not in ("127.0.0.1", "localhost", "::1")):
        raise RequestError("--no-token is for programs of this machine: without --tenants, at 127.0.0.1.")
    config = SandboxConfig(
        wall=wall,
        network=app.network_of(network, allowed_hosts),
        local_network=local_network,
        packages=app.packages_of(packages, allow_builds),
        limits=Limits(wall_seconds=timeout or Limits().wall_seconds, yield_seconds=_YIELD_SECONDS),
        preload=preload or (),
    )
    given = [each.strip() for each in os.environ.get(TOKEN_VARIABLE, "").split(",") if each.strip()]
    shown = "" if given or tenants is not None or no_token else new_token()
    limits = TenantLimits(metrics=len(given) <= 1)
    names = {token: Tenant(f"token {number}", limits) for number, token in enumerate(given or [shown], 1)}
    known = None if no_token else names if tenants is None else read_tenants(tenants)
    cores = os.cpu_count() or 1
    count, slots = workers or cores, concurrency or 8 * cores
    if access_log:
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
        logging.getLogger("coderoom.service").setLevel(logging.INFO)
    sets = {} if problems is None else read_sets(problems)
    others = _peers_of(peers or (), address, port, count)
    on_ray = None
    if engine is Engine.RAY:
        from coderoom.integrations.service.ray_serve import RayService

        if count > 1 or others is not None:
            raise RequestError("--engine ray: the replicas take the place of --workers and --peer.")
        replicas = min_replicas, max_replicas or min_replicas
        slots = concurrency or max(1, round(8 * cpus))
        on_ray = RayService(config, known, slots, sets, cluster, cpus, replicas, partial(_tracing, otlp))
    else:
        server = SandboxServer(config, known, concurrency=slots, peers=others, problems=sets)
        try_out(server)
    socket = listen(host, port)

    def ready() -> None:
        typer.echo(url_of(host, socket))
        if shown:
            typer.echo(f"Authorization: Bearer {shown}")
            typer.echo(f"Clients send this key. It is new at each start; {TOKEN_VARIABLE} sets one.")
        sys.stdout.flush()

    if on_ray is not None:
        on_ray.serve(socket, drain_seconds, ready)
        return
    if count == 1:
        ready()
        with _tracing(otlp):
            asyncio.run(serve_sockets(server.app, [socket], server, drain_seconds))
        return

    def make(peers: Peers, number: int) -> SandboxServer:
        return SandboxServer(config, known, concurrency=max(1, slots // count), peers=peers, problems=sets)

    everyone = [*({} if known is None else known).values(), ANYBODY, STRANGERS]
    Workers(make, count, everyone, drain_seconds, lambda: _tracing(otlp)).serve(socket, ready)


def _peers_of(hosts: Sequence[str], address: str | None, port: int, workers: int) -> Peers | None:
    from coderoom.integrations.service.peers import HostAddresses, Peers

    if not hosts and address is None:
        return None
    secret = os.environ.get(PEERS_VARIABLE, "")
    if not hosts or address is None or len(secret) < _SHORTEST_SECRET:
        raise RequestError(
            f"Servers that answer for each other need --peer, --address, and in {PEERS_VARIABLE} the same secret, "
            f"of at least {_SHORTEST_SECRET} characters."
        )
    if workers > 1 or not port:
        raise RequestError("--peer: such a server has --workers 1, and the --port of the others.")
    try:
        owner = HostAddresses.new_owner(address)
    except ValueError as error:
        raise RequestError(f"--address: {error}.") from None
    return Peers(owner, HostAddresses(hosts, port), secret)


def _tracing(otlp: str | None) -> AbstractContextManager[None]:
    if otlp is None and not any(map(os.environ.get, _COLLECTORS)):
        return nullcontext()
    from coderoom.runs.observers import exporting

    return exporting(otlp)
