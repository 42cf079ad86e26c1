"""Runs the items of a batch on a Ray cluster. Used by `Batch`.

Actors run items as a batch on one machine does, one after the other, in a folder and a journal of their own, with
sandboxes that stay warm. They send back the result, the rows of the journal, and the files of the workspace. Results
are written by the batch alone, so that each item has one, whatever dies. One more actor keeps budgets and rates.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import coderoom
from coderoom._util.files import write_inside
from coderoom._util.ray_cluster import KEEP_CHILDREN, LOCAL, cluster_of, join
from coderoom._util.temporary import empty_folder, remove_folder, temporary_folder
from coderoom._util.terminal import is_logging_steps, log_to_stderr
from coderoom.configs import find_source
from coderoom.errors import BudgetExceeded, RequestError
from coderoom.executors.base import WarmSandboxes
from coderoom.models.budgets import Spending
from coderoom.models.rates import Pace
from coderoom.models.services import MODEL_VARIABLE
from coderoom.runs.exec_view import chosen_isolation
from coderoom.runs.item_run import ItemRunner, Result, Setup, made, name_of
from coderoom.runs.items import Item
from coderoom.runs.journal import Journal
from coderoom.steps import StepObserver, tell_step

_MOST_BYTES: Final = 256 * 1024 * 1024
"""Larger workspaces come back in part."""
_RECORDING: Final = "recording"
_MOST_DEATHS: Final = 5
"""So often an item may be there when an actor dies, which it may have caused."""
_MOST_STARTS: Final = 5
_WAIT_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 10.0
_TRAVELS: Final = re.compile(
    r"CODEROOM_\w+|OTEL_\w+|\w*_(?:API_KEY|BASE_URL|ENDPOINT|API_VERSION)|https?_proxy|no_proxy", re.I
)
"""The variables of the environment that actors get, besides those that the team's file refers to."""


@dataclass(frozen=True)
class Travel:
    """What all items take to the nodes where they run.

    The recording is the content of the file that the model answers from, if that is what it does. Ray shows the logs of
    actors on standard error of the batch.
    """

    setup: Setup
    environment: Mapping[str, str]
    recording: bytes | None
    logs: bool


@dataclass(frozen=True)
class Arrival:
    """What comes back: the result, unless the run was stopped, and why no more may run; rows of the journal; files.

    The files are those of the workspace `folder`, by their paths in it, but for a number of those that are too much.
    """

    result: Result | None
    stopped: str
    rows: Mapping[str, Any]
    files: Mapping[str, bytes]
    left_out: int
    folder: str


class RayEngine:
    """Runs items on a cluster, as an `ItemRunner` does here. `note` gets what goes wrong without ending the batch.

    `walls` are those that the nodes have taken for `isolation`.

    Raises:
        RequestError: There is no such cluster, or no room for a run in it.
    """

    def __init__(
        self,
        setup: Setup,
        folder_of: Callable[[str], Path],
        journal: Journal,
        rates: tuple[float | None, int | None],
        spending: Spending | None,
        address: str | None,
        cpus: float,
        memory: int | None,
        note: Callable[[str], None],
        isolation: str,
    ) -> None:
        self.stopped = ""
        self.walls: set[str] = set()
        self._isolation = isolation
        self._folder_of = folder_of
        self._journal = journal
        self._note = note
        found = cluster_of(address)
        self._is_ours = bool(found)
        if found:
            join(found)
        try:
            self.room = _room(cpus, memory)
        except RequestError:
            self._leave()
            raise
        travel = travel_of(setup)
        self._meter: Any = None
        if rates != (None, None) or spending is not None:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
            keeper = ray.remote(num_cpus=0)(_Meter).options(scheduling_strategy=here, max_concurrency=1_000)
            self._meter = keeper.remote(travel.environment, rates, spending)
        self._travel = ray.put(travel)
        # Besides the item, an actor hears that it is to stop.
        options: dict[str, Any] = {
            "num_cpus": cpus,
            "memory": memory,
            "scheduling_strategy": "SPREAD",
            "max_concurrency": 2,
        }
        if found != LOCAL:
            options["runtime_env"] = KEEP_CHILDREN
        self._actor: Any = ray.remote(ItemActor).options(**options)
        self._actors: set[Any] = set()
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        self._starting: set[asyncio.Task[None]] = set()

    def stop(self, why: str) -> None:
        """End the runs that go on."""
        self.stopped = self.stopped or why
        for actor in self._actors:
            actor.stop.remote(why)

    async def close(self) -> None:
        """End the actors, and the cluster if it is one of this machine."""
        for task in self._starting:
            task.cancel()
        closing = (actor.close.remote() for actor in self._actors)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*closing, *self._starting, return_exceptions=True)
        for actor in (*self._actors, *([] if self._meter is None else [self._meter])):
            ray.kill(actor)
        self._leave()

    def _leave(self) -> None:
        if self._is_ours:
            ray.shutdown()

    async def run(self, item: Item, repeat: int) -> Result | None:
        """Run an item, elsewhere if its node dies or has no place to write; the result is `None` if it was stopped.

        Raises:
            RequestError: No actor can be started.
        """
        name, why = name_of(item.id, repeat), ""
        files = [(path.name, path.read_bytes()) for path in item.files]
        for _ in range(_MOST_DEATHS):
            if self.stopped:
                return None
            actor = await self._take()
            try:
                arrival: Arrival = await actor.run.remote(replace(item, files=()), repeat, files)
            except RayError as error:
                why = _in_words(error)
                if isinstance(error, RayTaskError) and not isinstance(error.cause, OSError):
                    self._idle.put_nowait(actor)
                    break
                self._drop(actor)
                if not self.stopped:
                    self._note(f"{item.id}: {why}. Its actor is replaced.")
                continue
            self._idle.put_nowait(actor)
            self.stopped = self.stopped or arrival.stopped
            if arrival.result is None:
                return None
            return self._arrived(name, arrival, arrival.result)
        return Result.of_failure(item.id, repeat, why, name)

    def _arrived(self, name: str, arrival: Arrival, result: Result) -> Result:
        folder = self._folder_of(name)

        def moved(text: Any) -> Any:
            return text.replace(arrival.folder, str(folder)) if isinstance(text, str) else text

        rows = {table: [tuple(map(moved, row)) for row in rows] for table, rows in arrival.rows.items()}
        self._journal.put(rows)
        for path, content in arrival.files.items():
            write_inside(made(folder), path, content)
        if arrival.left_out:
            self._note(
                f"{result.id}: {arrival.left_out:,} files of the workspace are not kept, since they are too large."
            )
        return replace(result, answer=moved(result.answer), why=moved(result.why))

    # --- The actors ---

    async def _take(self) -> Any:
        """Wait for an actor that has nothing to do."""
        if self._idle.empty() and len(self._actors) + len(self._starting) < self.room:
            task = asyncio.create_task(self._start())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
        found = await self._idle.get()
        if isinstance(found, Exception):
            self._idle.put_nowait(found)
            raise found
        return found

    async def _start(self) -> None:
        """Start an actor. A node where that fails may be tried again; if it fails everywhere, the batch ends."""
        for _ in range(_MOST_STARTS):
            actor: Any = self._actor.remote(self._travel, self._meter)
            try:
                version = await actor.version.remote()
                if version == coderoom.__version__:
                    self.walls.add(await actor.isolation.remote(self._isolation))
            except RayError as error:
                why = _in_words(error)
            else:
                if version == coderoom.__version__:
                    self._actors.add(actor)
                    self._idle.put_nowait(actor)
                    return
                why = f"a node has CodeRoom {version}, and this is {coderoom.__version__}: install the same"
            self._note(f"An actor cannot start: {why}.")
            await asyncio.sleep(_WAIT_SECONDS)
        self.room -= 1
        if not self._actors and len(self._starting) == 1:
            self._idle.put_nowait(RequestError(f"No actor can start on the Ray cluster: {why}."))

    def _drop(self, actor: Any) -> None:
        self._actors.discard(actor)
        ray.kill(actor)


def _room(cpus: float, memory: int | None) -> int:
    """How many runs a cluster has room for, node by node."""
    found = 0
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        has = node["Resources"] if node["Alive"] else {}
        rooms = [int(has.get("CPU", 0) // cpus)]
        if memory is not None:
            rooms.append(int(has.get("memory", 0) // memory))
        found += min(rooms)
    if found < 1:
        total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        has_memory = f" and {total.get('memory', 0) / 2**20:,.0f} MiB of memory" if memory is not None else ""
        raise RequestError(
            f"No node of the Ray cluster has room for a run: all together have {total.get('CPU', 0):g} processors"
            f"{has_memory}."
        )
    return found


def _in_words(error: RayError) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else error
    lines = str(cause).strip().splitlines()
    text = next((line for line in reversed(lines) if "OSError" in line), lines[0] if lines else "")
    return f"{type(cause).__name__}: {text.strip()}".rstrip(".")


def travel_of(setup: Setup) -> Travel:
    """What the nodes need to know."""
    named = setup.request.model or os.environ.get(MODEL_VARIABLE, "")
    recording = Path(named.removeprefix("replay:")).read_bytes() if named.startswith("replay:") else None
    named_there = re.findall(r"\$\{(\w+)", find_source(setup.request.team).data.decode("utf-8", "replace"))
    environment = {name: value for name, value in os.environ.items() if _TRAVELS.fullmatch(name) or name in named_there}
    return Travel(setup, environment, recording, is_logging_steps())


class ItemActor:
    """An actor that runs items, one after the other, in an event loop of its own."""

    def __init__(self, travel: Travel, meter: Any = None) -> None:
        os.environ.update(travel.environment)
        self._opened = ExitStack()
        if travel.logs:
            self._opened.enter_context(log_to_stderr())
        else:
            logging.getLogger("autogen_core").setLevel(logging.CRITICAL)  # Failures are in the results.
        setup = travel.setup
        try:
            self._root = temporary_folder()
            self._workspace, self._files = made(self._root / "work"), made(self._root / "files")
            if travel.recording is not None:
                (self._root / _RECORDING).write_bytes(travel.recording)
                recorded = replace(setup.request, model=f"replay:{self._root / _RECORDING}")
                setup = replace(setup, request=recorded)
        except OSError as error:
            raise _on_this_node(error) from None
        self._journal = Journal(self._root / "journal.sqlite3", required=True)
        self._sandboxes = WarmSandboxes()
        observers = [] if meter is None else [_Remote(meter)]
        self._runner = ItemRunner(setup, lambda name: self._workspace, self._journal, observers)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def version(self) -> str:
        """Which CodeRoom this node has."""
        return coderoom.__version__

    def isolation(self, name: str) -> str:
        """What isolates code on this node."""
        return str(self._in_loop(chosen_isolation(name)))

    def run(self, item: Item, repeat: int, files: Sequence[tuple[str, bytes]]) -> Arrival:
        """Run an item."""
        try:
            arrival: Arrival = self._in_loop(self._run(item, repeat, files))
            return arrival
        except OSError as error:
            raise _on_this_node(error) from None

    def stop(self, why: str) -> None:
        """End the run that goes on."""
        self._loop.call_soon_threadsafe(self._runner.stop, why)

    def close(self) -> None:
        """Leave nothing behind."""
        self.stop("the batch has ended")
        self._in_loop(self._runner.close())
        self._in_loop(self._sandboxes.close())
        self._journal.close()
        remove_folder(self._root)
        self._opened.close()

    def _in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _run(self, item: Item, repeat: int, files: Sequence[tuple[str, bytes]]) -> Arrival:
        for folder in (self._workspace, self._files):
            empty_folder(folder)
        paths = [made(self._files / str(number)) / name for number, (name, _) in enumerate(files)]
        for path, (_, content) in zip(paths, files, strict=True):
            path.write_bytes(content)
        with self._sandboxes.lending():
            result = await self._runner.run(replace(item, files=tuple(paths)), repeat)
        rows: Mapping[str, Any] = {}
        if result is not None:
            rows = self._journal.take(result.run)
            if rows["runs"]:
                self._journal.remove([result.run])
        found: dict[str, bytes] = {}
        left, left_out = _MOST_BYTES, 0
        for path in sorted(self._workspace.rglob("*")):
            if path.is_file() and not path.is_symlink():
                if (size := path.stat().st_size) > left:
                    left_out += 1
                    continue
                left -= size
                found[path.relative_to(self._workspace).as_posix()] = path.read_bytes()
        return Arrival(result, self._runner.stopped, rows, found, left_out, str(self._workspace))


def _on_this_node(error: OSError) -> OSError:
    return OSError(error.errno, f"on the node {platform.node()}: {error}")


class _Meter:
    """An actor that keeps the rates and the budget of a batch, for tasks on all nodes."""

    def __init__(
        self, environment: Mapping[str, str], rates: tuple[float | None, int | None], spending: Spending | None
    ) -> None:
        os.environ.update(environment)  # It may name a file of prices.
        self._pace = Pace(*rates)
        self._observers: list[StepObserver] = [self._pace] if spending is None else [spending, self._pace]

    async def wait(self, kind: str) -> None:
        await self._pace.wait(kind, {})

    async def tell(self, method: str, *arguments: Any, **named: Any) -> dict[str, str]:
        try:
            for observer in self._observers:
                getattr(observer, method)(*arguments, **named)
        except BudgetExceeded as error:
            return {"words": str(error), "owner": error.owner, "limit": error.limit}
        return {}


class _Remote(StepObserver):
    """Delays and refuses steps as the actor says."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter

    def before(self, kind: str, request: Any) -> None:
        """Ask the actor, and count the step there."""
        self._tell("before", kind, request)

    async def wait(self, kind: str, request: Any) -> None:
        """Wait until the next request may begin."""
        await self._meter.wait.remote(kind)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Have the actor charge for a step."""
        facts = {name: result[name] for name in ("usage", "cached") if isinstance(result, Mapping) and name in result}
        self._tell("keep", kind, request, facts, seconds, known=known)

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """Have the actor count a failure."""
        self._tell("fail", kind, request, None, seconds)

    def _tell(self, method: str, kind: str, request: Any, *more: Any, **named: Any) -> None:
        model = request.get("priced_as", "") if isinstance(request, Mapping) else ""
        if limit := ray.get(self._meter.tell.remote(method, kind, {"priced_as": model}, *more, **named)):
            tell_step("limit", limit)
            raise BudgetExceeded(limit["words"], limit["owner"], limit["limit"])
