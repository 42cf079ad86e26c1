"""Runs the items of a batch as tasks of a Ray cluster. Used by `Batch`.

A task runs its item as a batch on one machine does, in a folder and a journal of its own, and sends back the result,
the rows of the journal, and the files of the workspace. Ray repeats a task whose node or process has died on another
node; results are written by the batch alone, so that each item has one. Budgets and rates are kept by one actor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from coderoom._util.services import MODEL_VARIABLE
from coderoom._util.steps import StepObserver
from coderoom.budgets import Spending
from coderoom.errors import BudgetExceeded, MissingDependencyError, RequestError
from coderoom.executors.output import write_inside
from coderoom.runs.item_run import ERRORED, ItemRunner, Pace, Result, Setup, made, name_of
from coderoom.runs.items import Item
from coderoom.runs.journal import Journal
from coderoom.runs.record import FAILED

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise MissingDependencyError(
        "The engine 'ray' needs a package that is missing: pip install 'coderoom[ray]'"
    ) from error

_MOST_BYTES: Final = 256 * 1024 * 1024
"""Larger workspaces come back in part."""
_RECORDING: Final = ".recording"
_MOST_DEATHS: Final = 20
_WAIT_SECONDS: Final = 2.0
_TRAVELS: Final = re.compile(
    r"CODEROOM_\w+|OTEL_\w+|\w*_(?:API_KEY|BASE_URL|ENDPOINT|API_VERSION|TOKEN)|https?_proxy", re.I
)
"""The variables of the environment that tasks get, besides those that the team's file refers to."""


@dataclass(frozen=True)
class Travel:
    """What an item takes to the node where it runs, and what all items do.

    Attributes:
        setup: What all runs have in common.
        environment: Variables of the environment.
        recording: The content of the file that the model answers from, if that is what it does.
    """

    setup: Setup
    environment: Mapping[str, str]
    recording: bytes | None


@dataclass(frozen=True)
class Arrival:
    """What comes back.

    Attributes:
        result: The result; `None` if the budget of the batch is used up.
        stopped: Why no more items may run; empty if they may.
        rows: The rows of the journal.
        files: The files of the workspace, by their paths in it.
    """

    result: Result | None
    stopped: str
    rows: Mapping[str, Any]
    files: Mapping[str, bytes]


class RayEngine:
    """Runs items on a cluster.

    Args:
        setup: What all runs have in common.
        folder: The folder of the workspaces.
        journal: Where the runs are kept.
        pace: Delays requests to models; `None`: nothing does.
        spending: What all runs together may use, and have used; `None`: there is no limit.
        address: The address of the cluster; `None`: that of `RAY_ADDRESS`, or a cluster of this machine alone.
        cpus: The processors that a run takes.
        memory: The bytes of memory that a run takes.

    Attributes:
        room: How many runs there is room for.
        stopped: Why no more items may run; empty if they may.

    Raises:
        RequestError: There is no such cluster, or no room for a run in it.
    """

    def __init__(
        self,
        setup: Setup,
        folder: Path,
        journal: Journal,
        pace: Pace | None,
        spending: Spending | None,
        address: str | None,
        cpus: float,
        memory: int | None,
    ) -> None:
        self.stopped = ""
        self._folder = folder
        self._journal = journal
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            try:
                ray.init(address=address, include_dashboard=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise RequestError(f"The Ray cluster {address!r} cannot be reached: {error}") from error
        total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self.room = int(total.get("CPU", 0) // cpus)
        if memory is not None:
            self.room = min(self.room, int(total.get("memory", 0) // memory))
        if self.room < 1:
            raise RequestError(f"The Ray cluster has no room for a run: it has {total.get('CPU', 0):g} processors.")
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self._meter: Any = None
        self._limits = pace is not None, spending is not None
        if any(self._limits):
            keeper = ray.remote(num_cpus=0)(_Meter).options(scheduling_strategy=here, max_concurrency=1_000)
            self._meter = keeper.remote(None if pace is None else pace.rates, spending)
        self._retries = setup.retries
        self._travel = ray.put(_travel(setup))
        options = {"num_cpus": cpus, "memory": memory, "max_retries": _MOST_DEATHS, "scheduling_strategy": "SPREAD"}
        self._task = ray.remote(_run_item).options(**options)
        self._running: set[Any] = set()

    def stop(self, why: str) -> None:
        """End the runs that go on."""
        self.stopped = self.stopped or why
        for task in self._running:
            ray.cancel(task)

    def close(self) -> None:
        """Leave the cluster; end it if it is one of this machine."""
        if self._meter is not None:
            ray.kill(self._meter)
        if self._is_ours:
            ray.shutdown()

    async def run(self, item: Item, repeat: int) -> Result | None:
        """Run an item, elsewhere if its node dies or has no place to write; the result is `None` if it was stopped."""
        name, why = name_of(item.id, repeat), ""
        files = {path.name: path.read_bytes() for path in item.files}
        for _ in range(self._retries + 1):
            if self.stopped:
                return None
            task = self._task.remote(self._travel, replace(item, files=()), repeat, files, self._meter, self._limits)
            self._running.add(task)
            try:
                arrival: Arrival = await task
            except RayTaskError as error:
                why = f"{type(error.cause).__name__}: {error.cause}"
                if not isinstance(error.cause, OSError):
                    break
                await asyncio.sleep(_WAIT_SECONDS)
                continue
            except RayError as error:
                why = f"{type(error).__name__}: {error}"
                break
            finally:
                self._running.discard(task)
            self.stopped = self.stopped or arrival.stopped
            if arrival.result is not None:
                self._journal.put(arrival.rows)
                for path, content in arrival.files.items():
                    write_inside(made(self._folder / name), path, content)
            return arrival.result
        if self.stopped:
            return None
        return Result(item.id, repeat, ERRORED, FAILED, "", why, 0, 0, None, 0, 0, name, 0.0)


def _travel(setup: Setup) -> Travel:
    named = setup.model or os.environ.get(MODEL_VARIABLE, "")
    recording = Path(named.removeprefix("replay:")).read_bytes() if named.startswith("replay:") else None
    text = setup.source.data.decode("utf-8", "replace")
    environment = {
        name: value for name, value in os.environ.items() if _TRAVELS.fullmatch(name) or f"${{{name}" in text
    }
    return Travel(setup, environment, recording)


def _run_item(
    travel: Travel, item: Item, repeat: int, files: Mapping[str, bytes], meter: Any, limits: tuple[bool, bool]
) -> Arrival:
    """Run an item on a node of the cluster."""
    os.environ.update(travel.environment)
    logging.getLogger("autogen_core").setLevel(logging.CRITICAL)  # Failures are in the results.
    try:
        with tempfile.TemporaryDirectory(prefix="coderoom-batch-", ignore_cleanup_errors=True) as root:
            return asyncio.run(_run_in(Path(root), travel, item, repeat, files, meter, limits))
    except OSError as error:
        raise OSError(error.errno, f"on the node {platform.node()}: {error}") from None


async def _run_in(
    root: Path,
    travel: Travel,
    item: Item,
    repeat: int,
    files: Mapping[str, bytes],
    meter: Any,
    limits: tuple[bool, bool],
) -> Arrival:
    setup, journal, work = travel.setup, Journal(root / "journal.sqlite3"), made(root / "work")
    for name, content in {**files, _RECORDING: travel.recording or b""}.items():
        (made(root / "files") / name).write_bytes(content)
    if travel.recording is not None:
        setup = replace(setup, model=f"replay:{root / 'files' / _RECORDING}")
    item = replace(item, files=tuple(root / "files" / name for name in files))
    paced, limited = limits
    runner = ItemRunner(
        setup, work, journal, RemotePace(meter) if paced else None, RemoteLimits(meter) if limited else None
    )
    result = await runner.run(item, repeat)
    name = name_of(item.id, repeat)
    rows = {} if result is None else journal.take(name)
    journal.close()
    return Arrival(result, runner.stopped, rows, _files_in(work / name))


def _files_in(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = _MOST_BYTES
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            left -= path.stat().st_size
            if left < 0:
                break
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


class _Meter:
    """An actor that keeps the rates and the budget of a batch, for tasks on all nodes."""

    def __init__(self, rates: tuple[float | None, int | None] | None, spending: Spending | None) -> None:
        self._pace = None if rates is None else Pace(*rates)
        self._spending = spending

    async def wait(self) -> None:
        if self._pace is not None:
            await self._pace.wait()

    async def count(self, tokens: int) -> None:
        if self._pace is not None:
            self._pace.count(tokens)

    async def tell(self, method: str, *arguments: Any, **named: Any) -> str:
        try:
            getattr(self._spending, method)(*arguments, **named)
        except BudgetExceeded as error:
            return str(error)
        return ""


class RemotePace(Pace):
    """Delays requests as the actor says.

    Args:
        meter: The actor.
    """

    def __init__(self, meter: Any) -> None:
        super().__init__(None, None)
        self._meter = meter

    async def wait(self) -> None:
        """Wait until the next request may begin."""
        await self._meter.wait.remote()

    def count(self, tokens: int) -> None:
        """Count tokens that were used."""
        if tokens:
            self._meter.count.remote(tokens)


class RemoteLimits(StepObserver):
    """Refuses steps that the budget of the actor does not cover.

    Args:
        meter: The actor.
    """

    def __init__(self, meter: Any) -> None:
        self._meter = meter

    def before(self, kind: str, request: Any) -> None:
        """Ask the actor, and count the step there."""
        self._tell("before", kind, _short(request))

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Have the actor charge for a step."""
        facts = {name: result[name] for name in ("usage", "cached") if isinstance(result, Mapping) and name in result}
        self._tell("keep", kind, _short(request), facts, seconds, known=known)

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """Have the actor count a failure."""
        self._tell("fail", kind, _short(request), None, seconds)

    def _tell(self, method: str, *arguments: Any, **named: Any) -> None:
        if limit := ray.get(self._meter.tell.remote(method, *arguments, **named)):
            raise BudgetExceeded(limit)


def _short(request: Any) -> dict[str, Any]:
    return {"model": request.get("model", "")} if isinstance(request, Mapping) else {}
