"""The sandboxes and the sessions of tenants. All doors of the service use them.

A *box* is a sandbox that a tenant has asked for. One with files has a folder of its own, which its sessions share.
Boxes without files share a warm worker with others of the same tenant and the same options: each run and each session
has an empty workspace in memory.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from coderoom._util.tasks import cancel_and_wait, run_uncancellable
from coderoom._util.temporary import empty_folder, remove_folder, temporary_folder
from coderoom.errors import CodeRoomError, RequestError
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.peers import Peers
from coderoom.integrations.service.places import Places
from coderoom.integrations.service.streams import ClientCalls, ClientInput
from coderoom.integrations.service.tenants import Tenant, Tenants, TooMuchError
from coderoom.judge import make_sandbox
from coderoom.judge.apart import sandbox_apart, sandbox_for_suites
from coderoom.sandbox import Checkpoint, ExecutionResult, HostFunction, Limits, Process, Sandbox, SandboxConfig, Session
from coderoom.sandbox.config import OWN, SourceModule
from coderoom.sandbox.engines.remote.wire import OPTIONS, VARIABLE, options_of, result_to_json
from coderoom.sandbox.requirements import ALLOW_BUILDS, check_requirement

P = ParamSpec("P")
T = TypeVar("T")
_SESSIONS: Final = 8_192  # Of a worker; tenants have limits of their own.
_LOOK_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 150.0  # For its turn, and to read what it has written.
_PACKAGES_SECONDS: Final = 900.0  # To install them.
_MANY: Final = 1_000
_THREADS: Final = 4  # Fewer than asyncio has, on any machine.
_WARM_SECONDS: Final = 300.0
_MOST_WARM: Final = 2  # Of each tenant, that nothing uses.
_MOST_SHARED: Final = 8
# What the interpreter, the C library and OpenSSL read when a process starts.
_OF_LOADERS: Final = ("PYTHON", "LD_", "GCONV_", "GLIBC_", "MALLOC_", "LOCPATH", "NLSPATH", "OPENSSL_", "SSLKEYLOG")
_LARGEST_OPTIONS: Final = 4 * 1024 * 1024
_LARGEST_METADATA: Final = 64 * 1024


@dataclass(eq=False)
class KeptSession:
    """A session of a box.

    Attributes:
        id: Its id.
        box: The box.
        session: The session.
        has_functions: Whether its code may call functions of the client.
        checkpoints: The states that were kept, by ids.
        processes: Programs beside its cells, by ids.
        calls: The calls of its cells to functions of the client.
        memory_bytes: How much of the tenant's memory counts for it: the most that its cells have had; while a program
            runs, its limit.
        kept_amounts: What counts for its tenant of checkpoints, by the ids of these.
        peak: The most memory that its cells have had.
    """

    id: str
    box: Box
    session: Session
    has_functions: bool = False
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    calls: ClientCalls = field(default_factory=ClientCalls)
    memory_bytes: int = 0
    kept_amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    peak: int = 0
    _programs: set[Process] = field(default_factory=set)

    def forget(self, *ids: str) -> None:
        """Forget checkpoints, and give back what counts for them."""
        for id in ids:
            self.checkpoints.pop(id, None)
            self.box.tenant.give(**self.kept_amounts.pop(id, {}))

    async def checkpoint(self, files: bool) -> str:
        """Keep the state, and return the id of the checkpoint.

        Raises:
            TooMuchError: The tenant has not so much memory or disk left.
        """
        key, tenant = secrets.token_hex(8), self.box.tenant
        amounts = {"disk_bytes": self.box.sandbox.limits.disk_bytes if files else 0, "memory_bytes": self.peak}
        tenant.take(**amounts)
        self.kept_amounts[key] = amounts
        try:
            with self.box:
                made = await self.session.checkpoint(files=files)
        except BaseException:
            self.forget(key)
            raise
        if key in self.kept_amounts:  # Otherwise the session was closed meanwhile.
            self.checkpoints[key] = made
            grown = self.peak - amounts["memory_bytes"]  # By a cell that ran until now.
            amounts["memory_bytes"] += grown
            tenant.usage.add("memory_bytes", grown)
        return key

    def note(self, result: ExecutionResult) -> None:
        """Note what a cell has used."""
        self.peak = max(self.peak, result.peak_memory or 0)
        self._count()

    async def restart(self) -> None:
        """Return to a fresh state."""
        with self.box:
            await self.session.restart()
        self.forget(*self.kept_amounts)
        self.peak = 0
        self._count()

    @property
    def free_bytes(self) -> int:
        """How much memory it may have besides what counts for it already."""
        return max(self.box.sandbox.limits.memory_bytes - self.memory_bytes, 0)

    async def start_program(self, tenants: Tenants, argv: Sequence[str], **how: Any) -> Process:
        """Start a program beside the cells, in turn. It holds no turn while it runs, but memory.

        Raises:
            TooMuchError: The tenant has not so much memory left, or too much waits.
            OSError: As `Session.start`.
        """
        async with tenants.slot(self.box.tenant, self.free_bytes):
            with self.box:
                process = await self.session.start(argv, wait_for_reader=True, **how)
            self._programs.add(process)
            self._count()
        ending = asyncio.ensure_future(process.wait())

        def ended(_: object) -> None:
            self._programs.discard(process)
            self._count()

        ending.add_done_callback(ended)
        return process

    def _count(self) -> None:
        if self.box.sessions.get(self.id) is self:
            now = self.box.sandbox.limits.memory_bytes if self._programs else self.peak
            self.box.tenant.usage.add("memory_bytes", now - self.memory_bytes)
            self.memory_bytes = now


@dataclass(eq=False)
class Box:
    """A sandbox of a tenant.

    Attributes:
        id: Its id.
        tenant: Who has asked for it.
        sandbox: What runs its code.
        folder: The files that its sessions share; `None`: each has an empty workspace in memory.
        idle_seconds: After so many seconds without use it is closed.
        metadata: What its maker has noted about it.
        shared: Whether it is for one-shot runs, and not one that the tenant has made.
        apart: Whether it is a fork: it has one session, with its files, in the sandbox of another box.
        amounts: What counts for its tenant, besides its sessions.
        arriving: How many bytes of files clients send just now, and have sent that are not written.
        arrived: How many bytes of files clients have ever sent.
        inputs: What clients send to code that runs, by ids.
        threads: Where its files are read and written.
    """

    id: str
    tenant: Tenant
    sandbox: Sandbox
    folder: Path | None
    idle_seconds: float
    threads: Places
    metadata: dict[str, Any] = field(default_factory=dict)
    shared: bool = False
    apart: bool = False
    amounts: dict[str, int] = field(default_factory=dict)
    arriving: int = 0
    arrived: int = 0
    created: float = field(default_factory=time.time)
    used: float = field(default_factory=time.monotonic)
    busy: int = 0
    sessions: dict[str, KeptSession] = field(default_factory=dict)
    inputs: dict[str, ClientInput] = field(default_factory=dict)

    def seconds(self, timeout: float | None) -> float:
        """The time limit of a run that asks for one.

        Raises:
            RequestError: It is longer than the tenant may have.
        """
        most = self.tenant.limits.seconds
        if timeout is not None and timeout > most:
            raise RequestError(f"timeout={timeout:g}: code may run for at most {most:g} s here.")
        return min(self.sandbox.limits.wall_seconds if timeout is None else timeout, most)

    def longest(self, seconds: float) -> float:
        """How long the answer to a run with this time limit may take as a whole, however slowly it is read."""
        limits, config = self.sandbox.limits, self.sandbox.config
        return seconds + limits.compile_seconds + _GRACE_SECONDS + (_PACKAGES_SECONDS if config.packages else 0)

    @contextmanager
    def input(self) -> Iterator[tuple[str, ClientInput]]:
        """An input for code that runs, with the id by which its client finds it."""
        key, given = secrets.token_hex(8), ClientInput()
        self.inputs[key] = given
        try:
            yield key, given
        finally:
            del self.inputs[key]
            given.close()

    async def in_thread(self, work: Callable[Concatenate[Box, P], T], *arguments: P.args, **more: P.kwargs) -> T:
        """Do something with its files in a thread, of which tenants take turns.

        Raises:
            TooMuchError: As `Places.one`.
        """
        async with self.threads.one(self.tenant):
            return await asyncio.to_thread(work, self, *arguments, **more)

    async def result_to_json(self, result: ExecutionResult) -> dict[str, Any]:
        """A result for a client; one with many values is written in such a thread."""
        if not _has_many(result.value):
            return result_to_json(result)
        async with self.threads.one(self.tenant, patient=True):
            return await asyncio.to_thread(result_to_json, result)

    def __enter__(self) -> None:
        """Use it, so that it is not idle."""
        self.busy += 1

    def __exit__(self, *_: object) -> None:
        self.busy -= 1
        self.used = time.monotonic()


@dataclass(eq=False)
class _Warm:
    """A sandbox for boxes without files."""

    sandbox: Sandbox
    boxes: int = 0
    used: float = field(default_factory=time.monotonic)


class Boxes:
    """All boxes of this process.

    Args:
        defaults: The configuration of a sandbox of which nothing else was asked for.
        peers: The other processes of the server.
        tenants: The tenants.
    """

    def __init__(self, defaults: SandboxConfig, peers: Peers, tenants: Tenants) -> None:
        self.defaults = defaults
        self.peers = peers
        self._threads = Places(_THREADS, are_shared=tenants.are_several)
        self._removing = Places(_THREADS, are_shared=tenants.are_several)
        self._removers = ThreadPoolExecutor(_THREADS, "removing")
        self._boxes: dict[str, Box] = {}
        self._sessions: dict[str, KeptSession] = {}
        self._warm: dict[tuple[Tenant, str], _Warm] = {}
        self._shared: dict[tuple[Tenant, str], Box] = {}
        self._cleaning: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to close what is idle."""
        self._cleaning = asyncio.create_task(self._clean())

    async def close(self) -> None:
        """Close everything."""
        if self._cleaning is not None:
            await cancel_and_wait(self._cleaning)
        await asyncio.gather(*map(self.end, list(self._boxes.values())))
        await asyncio.gather(*self._closing, *(warm.sandbox.close() for warm in self._warm.values()))
        self._warm.clear()
        self._removers.shutdown()

    def has(self, box: Box) -> bool:
        """Whether a box is still there."""
        return self._boxes.get(box.id) is box

    def of(self, tenant: Tenant) -> list[Box]:
        """The boxes that a tenant has made, oldest first."""
        return [box for box in self._boxes.values() if box.tenant is tenant and not (box.shared or box.apart)]

    @property
    def counts(self) -> dict[str, int]:
        """How many boxes, sessions and warm workers there are."""
        return {"sandboxes": len(self._boxes), "sessions": len(self._sessions), "workers": len(self._warm)}

    def described(self) -> dict[str, Any]:
        """The options that a sandbox has if nothing else is asked for."""
        return options_of(self.defaults.model_copy(update={"env": {}, "credentials": {}}))

    def box(self, tenant: Tenant, id: str) -> Box:
        """The box with an id.

        Raises:
            NotFoundError: The tenant has no such box.
        """
        box = self._boxes.get(id)
        if box is None or box.tenant is not tenant or box.apart:
            raise NotFoundError("There is no such sandbox; it was closed, or nobody has used it for too long.")
        return box

    def session(self, tenant: Tenant, id: str) -> KeptSession:
        """The session with an id.

        Raises:
            NotFoundError: The tenant has no such session.
        """
        kept = self._sessions.get(id)
        if kept is None or kept.box.tenant is not tenant:
            raise NotFoundError("There is no such session; it was closed with its sandbox, or was idle for too long.")
        return kept

    def shared(self, tenant: Tenant, options: Mapping[str, Any]) -> Box:
        """The box of a tenant for one-shot runs with some options, which does not count as one of its sandboxes.

        Raises:
            RequestError: As for `make`.
            TooMuchError: The tenant uses too many different options at a time.
        """
        key = tenant, _key(options)
        box = self._shared.get(key)
        if box is None:
            self._make_room(tenant)
            config = self._config(tenant, options)
            sandbox = self._take_warm(tenant, options, config)
            box = Box(self._id("b"), tenant, sandbox, None, tenant.limits.idle_seconds, self._threads, shared=True)
            self._shared[key] = self._boxes[box.id] = box
        return box

    def _make_room(self, tenant: Tenant) -> None:
        """Let go of the shared box that was not used for the longest time, if there are too many."""
        own = [box for (each, _), box in self._shared.items() if each is tenant]
        if len(own) < _MOST_SHARED:
            return
        idle = min((box for box in own if not box.busy), key=lambda box: box.used, default=None)
        if idle is None:
            raise TooMuchError(f"The tenant {tenant.name!r} runs code with {len(own)} different options already.")
        self._let_go(idle)

    def make(
        self,
        tenant: Tenant,
        options: Mapping[str, Any],
        *,
        files: bool = False,
        idle_seconds: float | None = None,
        inner: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Box:
        """Make a box, whose worker starts with the first use.

        Args:
            tenant: Who has it.
            options: Arguments of `Sandbox` that differ from the server's; see `OPTIONS`.
            files: Whether its sessions share a folder.
            idle_seconds: After so many seconds without use it is closed; at most what the tenant may have.
            inner: What its configuration has besides the arguments of `Sandbox`; see `OWN`.
            more: Other attributes of the box.

        Raises:
            RequestError: An option is wrong, or not for clients.
            TooMuchError: The tenant has too many.
        """
        _check_metadata(more.get("metadata", {}))
        config = self._config(tenant, options)
        amounts = {"sandboxes": 1, "disk_bytes": config.limits.disk_bytes if files else 0}
        tenant.take(**amounts)
        try:
            if files:
                folder = temporary_folder()
                sandbox = Sandbox.from_config(config.model_copy(update={"workspace": folder, **(inner or {})}))
            else:
                folder = None
                sandbox = self._take_warm(tenant, options, config)
        except BaseException:
            tenant.give(**amounts)
            raise
        most = tenant.limits.idle_seconds
        idle = most if idle_seconds is None else min(idle_seconds, most)
        box = Box(self._id("b"), tenant, sandbox, folder, idle, self._threads, amounts=amounts, **more)
        self._boxes[box.id] = box
        return box

    async def part(self, kept: KeptSession, *, idle_seconds: float, sandboxes: int = 0, **more: Any) -> KeptSession:
        """Make a box of a fork of a session, which goes on when the other box has ended.

        Args:
            kept: The session, which has files.
            idle_seconds: After so many seconds without use it is closed.
            sandboxes: 1 if it counts as a sandbox of the tenant; as a session it always counts.
            more: Other attributes of the box.

        Returns:
            The session of the box, which has its own process once it is used.

        Raises:
            RequestError: The session cannot be forked.
            TooMuchError: The tenant has too many.
        """
        first = kept.box
        tenant, sandbox, memory = first.tenant, first.sandbox, kept.peak
        amounts = {"sandboxes": sandboxes, "disk_bytes": sandbox.limits.disk_bytes}
        _check_metadata(more.get("metadata", {}))
        tenant.take(sessions=1, memory_bytes=memory, **amounts)
        box = Box(
            self._id("b"), tenant, sandbox, None, idle_seconds, self._threads, apart=True, amounts=amounts, **more
        )
        self._boxes[box.id] = box  # So that the sandbox stays.
        try:
            with first:
                (session,) = await kept.session.fork()
        except BaseException:
            tenant.give(sessions=1, memory_bytes=memory)
            await run_uncancellable(self.end(box))
            raise
        made = KeptSession(self._id("s"), box, session, memory_bytes=memory, peak=memory)
        box.sessions[made.id] = self._sessions[made.id] = made
        if box.id not in self._boxes:  # It was closed meanwhile.
            await self.close_session(made)
        return made

    async def open(self, box: Box, functions: Sequence[HostFunction] = ()) -> KeptSession:
        """Open a session in a box.

        Raises:
            TooMuchError: The tenant has too many.
        """
        if box.apart:
            raise RequestError("A sandbox that was made of a snapshot has the default contexts only.")
        box.tenant.take(sessions=1)
        kept = KeptSession(self._id("s"), box, box.sandbox.session(functions), bool(functions))
        box.sessions[kept.id] = self._sessions[kept.id] = kept
        try:
            with box:
                await kept.session.start()
        except BaseException:
            await run_uncancellable(self.close_session(kept))
            raise
        return kept

    async def fork(self, kept: KeptSession, count: int, reseed: bool) -> list[KeptSession]:
        """Fork a session.

        Raises:
            RequestError: It cannot be forked.
            TooMuchError: The tenant has too many.
        """
        box = kept.box
        box.tenant.take(sessions=count)
        try:
            with box:
                sessions = await kept.session.fork(count, reseed=reseed)
        except BaseException:
            box.tenant.give(sessions=count)
            raise
        forks = [KeptSession(self._id("s"), box, each) for each in sessions]
        for each in forks:
            box.sessions[each.id] = self._sessions[each.id] = each
        if box.id not in self._boxes:  # It was closed meanwhile.
            for each in forks:
                await self.close_session(each)
        return forks

    async def become(self, kept: KeptSession, fork: KeptSession) -> None:
        """Have a session go on as a fork of it, which is closed.

        Raises:
            RequestError: It is no fork of it, or its files cannot be written.
        """
        with kept.box:
            await kept.session.become(fork.session)
        kept.forget(*kept.kept_amounts)
        await self.close_session(fork)

    async def close_session(self, kept: KeptSession) -> None:
        """Close a session; a second time does nothing."""
        if self._sessions.pop(kept.id, None) is None:
            return
        kept.box.sessions.pop(kept.id, None)
        kept.box.tenant.give(sessions=1, memory_bytes=kept.memory_bytes)
        kept.forget(*kept.kept_amounts)
        await run_uncancellable(kept.session.close())

    async def end(self, box: Box) -> None:
        """Close a box with its sessions and files; a second time does nothing."""
        if box.id not in self._boxes:
            return
        if box.shared:
            self._let_go(box)
            return
        del self._boxes[box.id]
        try:
            await asyncio.gather(*map(self.close_session, list(box.sessions.values())))
            await run_uncancellable(self._end(box))
        finally:
            box.tenant.give(**box.amounts)

    async def _end(self, box: Box) -> None:
        if box.folder is None and not box.apart:
            self._give_warm(box)
            return
        is_last = not any(each.sandbox is box.sandbox for each in self._boxes.values())
        if is_last:
            await box.sandbox.close()
        folder = box.sandbox.config.workspace
        if folder is not None and is_last:
            await self._remove(box.tenant, remove_folder, folder)
        elif box.folder is not None:  # It has to be there for the others, but its files not.
            with suppress(FileNotFoundError):  # The others have ended meanwhile.
                await self._remove(box.tenant, empty_folder, box.folder)

    async def _remove(self, tenant: Tenant, remove: Callable[[Path], None], folder: Path) -> None:
        """Remove files in a thread that does nothing else: code can make so many that it takes long."""
        async with self._removing.one(tenant, patient=True):
            await asyncio.get_running_loop().run_in_executor(self._removers, remove, folder)

    def _let_go(self, box: Box) -> None:
        """Forget a shared box, which has neither sessions nor files."""
        del self._boxes[box.id]
        self._shared = {key: each for key, each in self._shared.items() if each is not box}
        self._give_warm(box)

    def _give_warm(self, box: Box) -> None:
        for warm in self._warm.values():
            if warm.sandbox is box.sandbox:
                warm.boxes -= 1
                warm.used = time.monotonic()

    def _id(self, kind: str) -> str:
        return f"{kind}{self.peers.owner}-{secrets.token_hex(12)}"

    def _config(self, tenant: Tenant, options: Mapping[str, Any]) -> SandboxConfig:
        given: dict[str, Any] = dict(self.defaults)
        for name, value in options.items():
            if name not in OPTIONS:
                raise RequestError(f"A sandbox of this server has no option {name!r}; there are {', '.join(OPTIONS)}.")
            given[name] = value
        if len(_key(options)) > _LARGEST_OPTIONS:
            raise RequestError(f"The options of a sandbox may have {_LARGEST_OPTIONS:,} bytes.")
        if isinstance(options.get("limits"), Mapping):
            own = {"yield_seconds": self.defaults.limits.yield_seconds}  # It protects others.
            given["limits"] = Limits.model_validate({**dict(self.defaults.limits), **options["limits"], **own})
            for name in {"memory_bytes", "disk_bytes"} & options["limits"].keys():
                if getattr(given["limits"], name) > (most := getattr(tenant.limits, name)):
                    raise TooMuchError(f"The tenant {tenant.name!r} may have {name}={most:,}, and a sandbox no more.")
        if isinstance(options.get("preload"), list):
            given["preload"] = [SourceModule(*each) if isinstance(each, list) else each for each in options["preload"]]
            _check_preload(given["preload"], options)
        if isinstance(options.get("env"), Mapping):
            _check_environment(options["env"])
            given["env"] = {**self.defaults.env, **options["env"]}
        config = SandboxConfig(**{name: value for name, value in given.items() if name not in OWN})
        if "network" in options:
            tenant.check_network(config.network)
        if options.get("credentials"):
            tenant.check_network(tuple(config.credentials))
            if any(VARIABLE.search(each.value.get_secret_value()) for each in config.credentials.values()):
                raise RequestError("credentials: a value must be whole; variables are those of its sender.")
        if options.get("packages"):
            if not tenant.limits.packages or ALLOW_BUILDS in config.packages:
                raise RequestError("packages: sandboxes of this server cannot have these; its operator can allow it.")
            for each in config.packages:
                if each != "on-request":
                    check_requirement(each)  # No file of this machine.
        return config

    def _take_warm(self, tenant: Tenant, options: Mapping[str, Any], config: SandboxConfig) -> Sandbox:
        key = tenant, _key(options)
        warm = self._warm.get(key)
        if warm is None:
            unused = [key for key, each in self._warm.items() if key[0] is tenant and not each.boxes]
            if len(unused) >= _MOST_WARM:
                self._close_later(self._warm.pop(min(unused, key=lambda key: self._warm[key].used)))
            sandbox = Sandbox.from_config(config.model_copy(update={"workspace": None, "concurrency": _SESSIONS}))
            warm = self._warm[key] = _Warm(sandbox)
        warm.boxes += 1
        warm.used = time.monotonic()
        return warm.sandbox

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            for box in list(self._boxes.values()):
                if not box.busy and now - box.used > box.idle_seconds:
                    with suppress(Exception):
                        await self.end(box)
            for key, warm in list(self._warm.items()):
                if not warm.boxes and now - warm.used > _WARM_SECONDS:
                    self._close_later(self._warm.pop(key))

    def _close_later(self, warm: _Warm) -> None:
        closing = asyncio.ensure_future(warm.sandbox.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _has_many(value: Any) -> bool:
    """Whether data has more values than can be written in a moment."""
    left, seen = [value], 0
    while left:
        each = left.pop()
        if isinstance(each, Mapping | Sequence | Set) and not isinstance(each, str | bytes):
            seen += len(each)
            if seen > _MANY:
                return True
            left.extend(each.values() if isinstance(each, Mapping) else each)
    return False


def _check_preload(preload: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Refuse modules of clients: the worker imports them without the limits of a session.

    Modules of this server's interpreter, and those that run the judge's tests, are known.
    """
    for each in preload:
        if isinstance(each, SourceModule):
            known = each in _known_modules()
        else:
            known = not options.get("packages") and isinstance(each, str) and _is_installed(each)
        if not known:
            name = each.name if isinstance(each, SourceModule) else each
            raise RequestError(
                f"preload: {name!r:.200} is not a module that this server has (or it has another version of CodeRoom); "
                "code can import it itself."
            )


@functools.cache
def _known_modules() -> frozenset[SourceModule]:
    found = {each for make in (make_sandbox, sandbox_apart, sandbox_for_suites) for each in make().preload}
    for language in entry_points(group="coderoom.languages"):
        with suppress(ImportError, CodeRoomError):  # The generator is not installed, for instance.
            found.update(language.load()().harness())
    return frozenset(each for each in found if isinstance(each, SourceModule))


def _is_installed(name: str) -> bool:
    """Whether a module is there. Nothing is imported here, as `importlib.util.find_spec` does with packages."""
    places, whole = None, ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        found = next(filter(None, (finder.find_spec(whole, places) for finder in sys.meta_path)), None)
        if found is None:
            return False
        places = list(found.submodule_search_locations or ())
    return True


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(metadata, ensure_ascii=False, allow_nan=False).encode())
    except ValueError as error:  # Whoever lists the sandboxes could not read it.
        raise RequestError("The metadata of a sandbox has numbers or text that JSON cannot have.") from error
    if size > _LARGEST_METADATA:
        raise RequestError(f"The metadata of a sandbox may have {_LARGEST_METADATA:,} bytes.")


def _check_environment(env: Mapping[str, Any]) -> None:
    """Refuse variables by which code would get into the worker, which has not the limits of a session."""
    for name in env:
        if str(name).upper().startswith(_OF_LOADERS):
            raise RequestError(f"env: {name!r:.100} cannot be set here; code can set it for what it starts.")


def _key(options: Mapping[str, Any]) -> str:
    try:
        return json.dumps(options, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise RequestError(f"The options of a sandbox are not JSON: {error}.") from error
