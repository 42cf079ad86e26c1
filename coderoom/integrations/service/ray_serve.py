"""Serves on a Ray cluster: `coderoom sandbox serve --engine ray`.

Ray Serve starts replicas, more of them when there is more to do, and others for those that die. This process is the
front; see `replicas`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final

from coderoom._util.ray_cluster import KEEP_CHILDREN, LOCAL, cluster_of, join
from coderoom._util.tasks import cancel_and_wait
from coderoom.errors import CodeRoomError, MissingDependencyError, SandboxUnavailable
from coderoom.integrations.http import listen, serve_sockets
from coderoom.integrations.service.peers import Peers, new_owner
from coderoom.integrations.service.replicas import (
    EXCHANGE_SECONDS,
    MOST_PROCESSES,
    Answer,
    ForFront,
    Front,
    Membership,
    News,
    Register,
)
from coderoom.integrations.service.server import ANYBODY, STRANGERS, SandboxServer
from coderoom.integrations.service.tenants import Tenant, TenantLimits
from coderoom.integrations.service.usage import Usage
from coderoom.judge.problem_sets import Problem
from coderoom.sandbox import SandboxConfig

try:
    import ray
    from ray import serve
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise MissingDependencyError("Ray Serve is missing: pip install 'coderoom[ray]'") from error

MOST_REPLICAS: Final = MOST_PROCESSES // 2
_LEAVE_SECONDS: Final = 3_600.0
_HEALTH_SECONDS: Final = 2.0
_SCALING: Final = {"look_back_period_s": 15.0, "upscale_delay_s": 5.0, "downscale_delay_s": 120.0}
_IN_USE: Final = ("running", "waiting", "sandboxes", "sessions")


@dataclass(frozen=True)
class ReplicaSetup:
    """What all replicas are.

    Attributes:
        config: The configuration of a sandbox of which nothing else was asked for.
        tenants: Names and limits; `None`: everybody.
        concurrency: How many runs and cells are at work in a replica at a time.
        problems: Problem sets by their names.
        secret: What the requests of the front prove themselves by.
        name: The name of the application in Ray Serve.
        around: The context in which a replica serves.
    """

    config: SandboxConfig
    tenants: tuple[tuple[str, TenantLimits], ...] | None
    concurrency: int
    problems: Mapping[str, Mapping[str, Problem]]
    secret: str
    name: str
    around: Callable[[], AbstractContextManager[None]]


class RayService:
    """A server whose sandboxes are on a Ray cluster.

    Args:
        config: The configuration of a sandbox of which nothing else was asked for.
        known: Tenants by tokens; `None`: everybody.
        concurrency: How many runs and cells are at work in a replica at a time.
        problems: Problem sets by their names.
        address: The cluster; see `cluster_of`.
        cpus: The processors that a replica takes.
        replicas: The least and the most replicas.
        around: The context in which a replica serves.

    Raises:
        RequestError: The configuration is not one for a server.
    """

    def __init__(
        self,
        config: SandboxConfig,
        known: Mapping[str, Tenant] | None,
        concurrency: int,
        problems: Mapping[str, Mapping[str, Problem]],
        address: str | None,
        cpus: float,
        replicas: tuple[int, int],
        around: Callable[[], AbstractContextManager[None]],
    ) -> None:
        named = None if known is None else tuple((each.name, each.limits) for each in known.values())
        name, secret = f"coderoom-{secrets.token_hex(4)}", secrets.token_urlsafe(32)
        self._setup = ReplicaSetup(config, named, concurrency, problems, secret, name, around)
        self._tenants = _everyone(() if known is None else known.values())
        self._address = address
        self._cpus = cpus
        self._replicas = replicas
        self._front = Front(new_owner(), secret, self._lost)
        self._server = SandboxServer(config, known, concurrency=concurrency, peers=self._front, problems=problems)
        self._register: Any = None

    def serve(self, listener: socket.socket, drain_seconds: float, ready: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            RequestError: There is no such cluster.
            SandboxUnavailable: No replica can be started.
        """
        found = cluster_of(self._address)
        if found:
            join(found)
        try:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            self._register = ray.remote(num_cpus=0)(Register).options(scheduling_strategy=here).remote()
            was_there = bool(_applications())
            try:
                self._start(found)
                asyncio.run(self._serve(listener, drain_seconds, ready))
            finally:
                ray.get(self._register.enter_stage.remote("ended"))
                serve.delete(self._setup.name)
                if not was_there and not _applications():
                    serve.shutdown()  # type: ignore[no-untyped-call]
        finally:
            listener.close()
            if found:
                ray.shutdown()

    def _start(self, cluster: str) -> None:
        least, most = self._replicas
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        serve.start(proxy_location="Disabled", logging_config=quiet)
        deployment: Any = serve.deployment(
            name="replica",
            ray_actor_options={"num_cpus": self._cpus, "runtime_env": {} if cluster == LOCAL else KEEP_CHILDREN},
            autoscaling_config={
                "min_replicas": least,
                "max_replicas": most,
                "policy": {"policy_function": f"{__name__}:wanted_replicas"},
                **_SCALING,
            },
            graceful_shutdown_timeout_s=_LEAVE_SECONDS,
            graceful_shutdown_wait_loop_s=EXCHANGE_SECONDS,
            health_check_period_s=_HEALTH_SECONDS,
        )(Replica)
        try:
            serve.run(
                deployment.bind(self._setup, self._register),
                name=self._setup.name,
                route_prefix=None,
                logging_config=quiet,
            )
        except RuntimeError as error:
            why = ray.get(self._register.failure.remote()) or str(error)
            raise SandboxUnavailable(f"The replicas of the server cannot start: {why}") from error

    async def _serve(self, listener: socket.socket, drain_seconds: float, ready: Callable[[], None]) -> None:
        membership = Membership(self._front.owner, None, self._tenants, _calling(self._register))
        self._front.join(membership)
        await membership.exchange()

        async def keep() -> None:
            while True:
                await asyncio.sleep(EXCHANGE_SECONDS)
                await membership.exchange()

        keeping = asyncio.ensure_future(keep())
        ready()
        try:
            await serve_sockets(self._server.app, [listener], self, drain_seconds)
        finally:
            await cancel_and_wait(keeping)

    def _lost(self, owner: str) -> None:
        self._register.end.remote(owner)

    def drain(self, *, refuse: bool) -> None:
        """See `coderoom.integrations.http.Drained`."""
        self._server.drain(refuse=refuse)
        if refuse and not self._front.refuses:
            self._front.refuses = True
            self._register.enter_stage.remote("draining")

    @property
    def is_idle(self) -> bool:
        """See `coderoom.integrations.http.Drained`."""
        return self._front.is_idle and not _in_use(self._tenants, Usage.total, ("running", "waiting"))


class Replica:
    """A replica, as Ray Serve starts it. It serves at a port of its own, in a thread."""

    def __init__(self, setup: ReplicaSetup, register: Any) -> None:
        self._setup = setup
        self._register = register
        self._tenants: list[Tenant] = []
        self._leaves = False
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.result()

    async def __del__(self) -> None:
        """Take nothing new, and wait until nothing is left; Ray Serve waits for this."""
        self._leaves = True
        await asyncio.to_thread(self._thread.join)

    def check_health(self) -> None:
        """Ray Serve asks this."""
        if not self._thread.is_alive():
            raise RuntimeError("The replica has ended.")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What `wanted_replicas` decides by."""
        work = _in_use(self._tenants, Usage.own, ("running", "waiting"))
        return {"work": work, "places": self._setup.concurrency}

    def _run(self, started: Future[None]) -> None:
        try:
            with self._setup.around():
                asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            if isinstance(error, CodeRoomError):
                self._register.fail.remote(str(error))
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        setup = self._setup
        # The tokens stay with the front.
        known = {secrets.token_hex(): Tenant(name, limits) for name, limits in setup.tenants or ()}
        self._tenants = _everyone(known.values())
        peers = Peers(new_owner(), None, setup.secret)
        server = SandboxServer(
            setup.config,
            None if setup.tenants is None else known,
            concurrency=setup.concurrency,
            peers=peers,
            problems=setup.problems,
        )
        await server.try_out()
        listener = listen(ray.util.get_node_ip_address(), 0)  # type: ignore[no-untyped-call]
        membership = Membership(peers.owner, listener.getsockname()[:2], self._tenants, _calling(self._register))
        await membership.exchange()
        ending = asyncio.Event()
        serving = asyncio.ensure_future(
            serve_sockets(ForFront(server.app, peers, membership), [listener], ending=ending)
        )
        started.set_result(None)
        try:
            while await membership.exchange():
                membership.leaves = self._leaves
                if membership.stage == "draining":
                    server.drain(refuse=True)
                if membership.stage == "ended" or (self._leaves and not _in_use(self._tenants, Usage.own, _IN_USE)):
                    break
                await asyncio.sleep(EXCHANGE_SECONDS)
        except ConnectionError:  # The front has died, and with it the register.
            serve.delete(setup.name, _blocking=False)
        finally:
            ending.set()
            await serving
            with suppress(ConnectionError):
                await membership.exchange(gone=True)


def wanted_replicas(context: Any) -> tuple[int, dict[str, Any]]:
    """How many replicas there should be: so many that all that runs or waits has a place. Ray Serve asks this."""
    facts = context.aggregated_metrics
    places = max(facts.get("places", {}).values(), default=0)
    work = sum(facts.get("work", {}).values())
    return (max(1, math.ceil(work / places)) if places else context.target_num_replicas), {}


def _calling(register: Any) -> Callable[[News], Awaitable[Answer | None]]:
    async def exchange(news: News) -> Answer | None:
        try:
            return await register.exchange.remote(news)  # type: ignore[no-any-return]
        except RayError as error:
            raise ConnectionError("The front of this server has ended.") from error

    return exchange


def _everyone(tenants: Any) -> list[Tenant]:
    """All whose counts are exchanged, in the same order in all processes."""
    found = [*tenants, ANYBODY, STRANGERS]
    for each in found:
        each.usage = Usage(MOST_PROCESSES)
    return found


def _in_use(tenants: list[Tenant], count: Callable[[Usage, str], int], gauges: tuple[str, ...]) -> int:
    return sum(count(each.usage, gauge) for each in tenants for gauge in gauges)


def _applications() -> Mapping[str, Any]:
    """The applications that Ray Serve has."""
    try:
        return serve.status().applications
    except Exception:  # It does not run.
        return {}
