"""The engine `cpython`: one warm worker behind a wall, and a pool of its rooms. `Sandbox` starts it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import functools
import importlib.util
import marshal
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from coderoom._util.distribution import install_command
from coderoom._util.tasks import call_in_loop, cancel_and_wait
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.cell import unavailable
from coderoom.sandbox.config import WITHOUT_NETWORK, SandboxConfig, environment
from coderoom.sandbox.engines.cpython.apart import Apart
from coderoom.sandbox.engines.cpython.builds import Builds, building_config
from coderoom.sandbox.engines.cpython.channel import HostChannel
from coderoom.sandbox.engines.cpython.copies import Copies
from coderoom.sandbox.engines.cpython.processes import copy_files
from coderoom.sandbox.engines.cpython.room import FORKS_AT_ONCE, MOST_CHECKPOINTS, MOST_FORKS, Room
from coderoom.sandbox.engines.cpython.session import CPythonSession
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.languages import LANGUAGES, Program
from coderoom.sandbox.node_packages import node_modules_with
from coderoom.sandbox.overlay import Overlay, UpperLayer
from coderoom.sandbox.packages import Added, Environment, environment_with, made_cache_folder
from coderoom.sandbox.policy import restricted_rules
from coderoom.sandbox.proxy.client import Proxy, RoomNetwork, environment_for, ports_for
from coderoom.sandbox.requirements import ON_REQUEST, check_allowed, node_package, node_packages_of, requirements_of
from coderoom.sandbox.result import ExecutionResult
from coderoom.sandbox.walls import choose, make_wall
from coderoom.sandbox.walls.layout import interpreter_paths

if TYPE_CHECKING:
    from coderoom.sandbox.contracts import StartedWorker, Wall

_PATIENCE = 120.0  # For the start, with all imports.
_PLOTS = {"matplotlib", "numpy", "pandas"}  # Come with an extra.
_IDLE_ROOMS = 4
_MOMENT = 0.05
_TIDYING = 0.02  # A room that is given back is mostly ready before a new one would be.
_MOST_FAILING = 30.0
_FILES_CANNOT_BE_COPIED = (errno.ENOSPC, errno.ELOOP)
_MESSAGE = 2 * 1024 * 1024  # How many bytes an answer may have besides its value.


@functools.cache
def _compiled(name: str, source: str) -> str:
    """The code of a module, which an interpreter of the host's version need not compile; empty if it is invalid."""
    try:
        code = compile(source, f"<{name}>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return ""
    return base64.b64encode(importlib.util.MAGIC_NUMBER + marshal.dumps(code)).decode()


class CPythonEngine:
    """The real interpreter, in forks of a warm worker behind a wall."""

    name: ClassVar[str] = "cpython"
    languages: ClassVar[Sequence[str]] = LANGUAGES
    lacks: ClassVar[Collection[str]] = ()

    def __init__(self, config: SandboxConfig) -> None:
        proxy = environment_for(config) if config.proxied else {}
        reach = proxy if config.proxied or config.host_network else WITHOUT_NETWORK
        active = {} if config.environment is None else {"VIRTUAL_ENV": str(config.environment)}
        self._config = config.model_copy(update={"env": environment({**reach, **active, **config.env})})
        self._wall: Wall | None = None if config.wall == "auto" else make_wall(config.wall)
        self._worker: Worker | None = None
        self._builds: Builds | None = None
        self._environment: Environment | None = None  # With the packages that code has from the beginning.
        self.lock = ""  # What was resolved last, as a requirements file.
        self._node_lock = ""  # That of the packages of npm.
        self._copies: Copies | None = None  # Where sessions cannot have overlays.
        self._apart: Apart[Worker] | None = None  # Where sessions of one worker would share a network.
        self._guarded: tuple[str, ...] = ()  # What of the workspace this machine runs.
        self._dropped: weakref.finalize[..., Any]

    @property
    def wall(self) -> str:
        """The wall's name; `auto` until one is chosen."""
        return self._config.wall if self._wall is None else self._wall.name

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the worker reported about itself."""
        started = self._copies or self._worker
        return {} if started is None else started.facts

    @property
    def lost(self) -> bool:
        """Whether the worker has ended."""
        if self._copies is not None:
            return False
        return self._worker is None or (self._worker.lost if self._apart is None else self._apart.lost)

    async def start(self) -> None:
        """Start the worker and wait until it is warm."""
        await self.close()
        if self._wall is None:
            self._wall = await choose()
        config = self._config
        if config.packages:
            if not getattr(self._wall, "local", False):
                raise RequestError(
                    f"packages: the wall {self._wall.name!r} has an interpreter of its own; use an image that has the "
                    "packages."
                )
            if node := node_packages_of(config.packages):
                modules = await node_modules_with(node)
                env = modules.environment(config.env)
                if getattr(self._wall, "has_tree", False) and ON_REQUEST not in config.packages:
                    del env["NODE_OPTIONS"]  # They are where Node looks for them, which is faster.
                config = config.model_copy(update={"node_modules": modules.folder, "env": {**config.env, **env}})
                self.lock = self._node_lock = modules.lock
            if requirements_of(config.packages):
                found = await environment_with(config.packages, config.python, config.workspace)
                self.lock, self._environment = found.lock + self._node_lock, found
                config = config.model_copy(update={"python": found.python})
            if ON_REQUEST in config.packages:  # What is installed later is visible, too.
                config = config.model_copy(update={"readable": (*config.readable, made_cache_folder())})
        if config.workspace_mode == "overlay":
            if getattr(self._wall, "local", False) and self.wall != "none":
                self._guarded = await asyncio.to_thread(interpreter_paths, config)
            if not getattr(self._wall, "overlays", False):
                await self._start_copies()
                return
        wall = self._wall
        if config.proxied and getattr(wall, "sessions_share_network", False):
            alone = config.model_copy(update={"concurrency": 1})
            self._apart = Apart(functools.partial(Worker, wall, alone), config.concurrency)
            worker = await self._apart.start()
        else:
            worker = Worker(wall, config)
            await worker.start()
        if config.workspace_mode == "overlay" and worker.facts.get("no_overlay") != "":
            await worker.close()
            await self._start_copies()
            return
        self._worker = worker
        # For a sandbox that is never closed. At the end of the host's process the sockets close, and the worker ends.
        abandon = worker.abandon if self._apart is None else self._apart.abandon
        self._dropped = weakref.finalize(self, call_in_loop, asyncio.get_running_loop(), abandon)
        self._dropped.atexit = False

    async def _start_copies(self) -> None:
        """Start what gives each session a copy of the workspace."""
        config = self._config
        assert config.workspace is not None

        def make(place: Path) -> CPythonEngine:
            changed = {"wall": self.wall, "workspace": place, "workspace_mode": "direct", "copied": True}
            return CPythonEngine(config.model_copy(update={**changed, "origin": config.workspace}))

        self._copies = Copies(config.workspace, make, self._guarded, config.concurrency)
        await self._copies.start()

    async def open(self, functions: Mapping[str, HostFunction]) -> CPythonSession:
        """Open a session in its own room."""
        if self._copies is not None:
            return await self._copies.open(functions)
        worker = self._worker if self._apart is None else await self._apart.take()
        assert worker is not None
        try:
            room = await worker.take_room()
        except BaseException:
            if self._apart is not None:
                self._apart.put(worker)
            raise
        if room.network is not None:
            await room.network.begin()
        install = self._install_packages if ON_REQUEST in self._config.packages else None
        session = CPythonSession(worker, room, self._config, functions, self._build, install)
        if self._config.workspace is not None and room.overlay:
            layer = UpperLayer(self._config.workspace, *room.take_overlay())
            session.overlay = Overlay(self._config.workspace, layer, self._guarded)
        return session

    async def _build(self, program: Program, code: str) -> bytes | ExecutionResult:
        """Compile a program, or find what was built of the same code before."""
        if self._builds is None:
            self._builds = Builds(CPythonEngine(building_config(self._config, self.wall)))
        return await self._builds.build(program, code, self._config.limits.compile_seconds)

    async def _install_packages(self, packages: list[str]) -> Added:
        """Install packages for code that runs."""
        config = self._config
        more = check_allowed(packages, config.allowed_packages)
        lock, folder, env, programs = "" if self._environment is None else self._environment.lock, "", {}, []
        if requirements_of(more):
            wanted = [*config.packages, *more]
            found = await environment_with(wanted, config.python, config.workspace, self._environment)
            lock, folder = found.lock, str(found.site_packages)
            env["PYTHONPATH"] = folder
            programs.append(str(found.folder / "bin"))
        if node := node_packages_of(more):
            # What code asks for replaces what was named at first.
            named = {tuple(node_package(each)[0]): each for each in [*node_packages_of(config.packages), *node]}
            modules = await node_modules_with(list(named.values()))
            self._node_lock = modules.lock
            env.update(modules.environment(config.env))
            programs.append(str(modules.folder / ".bin"))
        self.lock = lock + self._node_lock
        return Added(folder, env, programs)

    async def close(self) -> None:
        """End everything."""
        if self._builds is not None:
            await self._builds.close()
        copies, self._copies = self._copies, None
        if copies is not None:
            await copies.close()
        worker, self._worker = self._worker, None
        if worker is not None:
            self._dropped.detach()
            apart, self._apart = self._apart, None
            await (worker if apart is None else apart).close()

    def kill(self) -> None:
        """As `close`, without an event loop."""
        if self._builds is not None:
            self._builds.kill()
        copies, self._copies = self._copies, None
        if copies is not None:
            copies.kill()
        worker, self._worker = self._worker, None
        if worker is not None:
            self._dropped.detach()
            apart, self._apart = self._apart, None
            (worker if apart is None else apart).kill()


class Worker:
    """One warm process behind a wall, and the pool of its rooms.

    Args:
        wall: The wall.
        config: The configuration.
        take_back: Called when its only session has ended; `None`: it has several at a time.
    """

    def __init__(self, wall: Wall, config: SandboxConfig, take_back: Callable[[Worker], None] | None = None) -> None:
        self._take_back = take_back
        self._network: RoomNetwork | None = None  # That of all rooms, one after the other.
        self._wall = wall
        self._config = config
        self._idle: deque[Room] = deque()
        self._all: set[Room] = set()
        self._free = asyncio.Semaphore(config.concurrency)
        self.forking = asyncio.Semaphore(FORKS_AT_ONCE)
        self._waiting: deque[tuple[float, asyncio.Future[Room]]] = deque()  # With the time since when.
        self._opening: asyncio.Task[None] | None = None
        self._tidying: set[Room] = set()
        self._has_sockets = False  # Whether code may make Unix sockets.
        self._parts_by_rules = False  # Whether Landlock keeps forks of its sessions apart.
        self._cannot_part = ""  # Why sessions cannot be forked here.
        self._largest = config.limits.value_bytes + _MESSAGE
        self._started: StartedWorker | None = None
        self._control: HostChannel | None = None
        self._proxy = Proxy(config) if config.proxied else None
        self._overlay = config.workspace_mode == "overlay"  # Until it is known that this does not work here.
        self._ready: asyncio.Future[Mapping[str, Any]] | None = None
        self.facts: Mapping[str, Any] = {}

    async def start(self) -> None:
        """Start it and wait until it is warm."""
        starting = None if self._proxy is None else asyncio.ensure_future(self._proxy.start())
        try:
            if self._proxy is not None and starting is not None and self._config.credentials:
                await starting  # The code has to trust its authority.
                self._config = self._config.model_copy(update={"authority": self._proxy.authority})
            self._started = started = await self._wall.start(self._config)
            if starting is not None:
                await starting
        except BaseException:
            if starting is not None:
                await cancel_and_wait(starting)
            await self.close()
            raise
        self._ready = asyncio.get_running_loop().create_future()
        try:
            self._control = HostChannel(started.control, self._on_message, self._on_end)
            boot, config = started.boot, self._config
            workspace = boot.get("workspace", "/workspace")
            lockdown = dict(boot.get("lockdown", {}))
            if config.workspace is not None or config.readable:
                # A process on the host may listen on a socket in one of these folders.
                lockdown["local_sockets"] = False
            self._has_sockets = lockdown.get("local_sockets") is True
            own_network = bool(boot.get("own_network"))
            rooms = boot.get("rooms", "namespaces")
            self._parts_by_rules = rooms != "namespaces" and lockdown.get("use_seccomp", True)
            if self._parts_by_rules and lockdown.get("read") is None and not boot.get("forks"):
                self._cannot_part = "they have no namespaces of their own"
            elif self._parts_by_rules and landlock.abi() < landlock.WITH_SCOPES:
                self._cannot_part = "only since Linux 6.12 they can be kept from each other's processes"
            self._overlay = self._overlay and boot.get("overlays") is True
            each_alone = rooms == "namespaces" or self._take_back is not None
            if self._proxy is not None and not (own_network and each_alone):
                raise RequestError(
                    f"network: behind the wall {self._wall.name!r} sessions have no network of their own, which a list "
                    "of hosts needs; use 'bubblewrap' or 'namespaces', where `coderoom doctor` calls them complete, "
                    "or 'docker'."
                )
            if config.terminals and rooms != "namespaces" and lockdown.get("use_seccomp", True):
                raise RequestError(
                    f"terminals: behind the wall {self._wall.name!r} sessions would share them here; "
                    "use 'bubblewrap' or 'namespaces'."
                )
            if config.local_network and not (own_network or config.host_network) and lockdown.get("use_seccomp", True):
                raise RequestError(
                    f"local_network: behind the wall {self._wall.name!r} there is only the network of this machine; "
                    "use 'bubblewrap', 'namespaces' or 'docker'."
                )
            message = {
                "boot": dict(boot),
                "rooms": rooms,
                "workspace": workspace,
                "scratch": boot.get("scratch", "/tmp"),
                "in_memory": ["/tmp", "/dev/shm", *([workspace] if config.workspace is None else [])],
                "overlay": self._overlay,
                "kept": list(boot.get("below_tmp", [])),
                "workspace_in_memory": config.workspace is None or self._overlay,
                "bring_files": config.shared_workspace is None,
                "lockdown": lockdown,
                "network": "listed" if config.proxied else config.network,
                "terminals": config.terminals,
                "bundles": config.bundles,
                "describe_tables": config.describe_tables,
                "internet_sockets": config.host_network or config.proxied or config.local_network,
                # Otherwise sessions would reach each other's servers, and their ports would collide.
                "network_per_room": own_network and (self._proxy is not None or config.local_network),
                "proxy_ports": [] if self._proxy is None else ports_for(config),
                "limits": config.limits.model_dump(),
                "checkpoints": MOST_CHECKPOINTS,
                "forks": MOST_FORKS,
                "preload": [each if isinstance(each, str) else [*each, _compiled(*each)] for each in config.preload],
                "restricted": restricted_rules() if config.policy == "restricted" else None,
            }
            await self._control.send(message)
            async with asyncio.timeout(_PATIENCE):
                self.facts = await self._ready
        except (TimeoutError, OSError) as error:
            what = f"did not get ready within {_PATIENCE:g} seconds" if isinstance(error, TimeoutError) else str(error)
            raise await self._failed(what) from error
        except BaseException:
            await self.close()
            raise
        missing = self.facts.get("missing")
        if missing:
            await self.close()
            listed = "; ".join(f"{name!r} ({why})" for name, why in missing.items())
            install = "Install them for the interpreter that the sandbox uses"
            if _PLOTS.issuperset(missing) and self._config.python is None and self._wall.name != "docker":
                install = f"Install them with {install_command('plots')}"
            raise MissingDependencyError(
                f"Modules of preload cannot be imported inside the sandbox: {listed}. "
                f"{install}, or leave them out of preload."
            )

    @property
    def lost(self) -> bool:
        """Whether it has ended."""
        return self._control is None or self._control.closed

    async def take_room(self) -> Room:
        """Wait for a room in its fresh state; the caller gives it back with `give_back`."""
        await self._free.acquire()
        try:
            return await self._take()
        except BaseException:
            self._free.release()
            raise

    async def admit(self, parent: Room, forks: Sequence[object]) -> None:
        """Take places for forks of a room's session; this does not wait until there are some."""
        if self._cannot_part:
            raise RequestError(
                f"Behind the wall {self._wall.name!r} sessions cannot be forked here: {self._cannot_part}; use "
                "'bubblewrap' or 'namespaces', where `coderoom doctor` calls them complete."
            )
        if self._config.copied:
            raise RequestError("A session cannot be forked here: its overlay is a copy of the workspace.")
        parent.check_can_fork(len(forks), self._has_sockets or self._parts_by_rules)
        for taken in range(len(forks)):
            if self._free.locked():
                for _ in range(taken):
                    self._free.release()
                raise RequestError(
                    f"There are places for {taken} more sessions in the sandbox, whose concurrency is "
                    f"{self._config.concurrency}, and not for {len(forks)}."
                )
            await self._free.acquire()
        parent.forks.update(forks)

    def dismiss(self, parent: Room, fork: object, place: bool = True) -> None:
        """Forget a fork of a room's session that has a room now, or that also gives back its place."""
        if place:
            self._free.release()
        parent.forks.discard(fork)
        if parent.left and not parent.forks:
            self.drop(parent)

    async def copy_files(self, folders: Sequence[int], closing: contextlib.ExitStack) -> list[int]:
        """Copy folders with the files of a room; descriptors of the copies, which last until `closing` is closed."""
        assert self._control is not None
        try:
            return await copy_files(self._control, folders[1:] if self._overlay else folders, closing)
        except SandboxUnavailable as error:
            if error.errno not in _FILES_CANNOT_BE_COPIED:
                raise
            most = self._config.limits.disk_bytes
            raise RequestError(
                f"The session's files cannot be copied for its forks ({error}). In a fork they have at most "
                f"disk_bytes={most:,} bytes and are 100 folders deep."
            ) from error

    async def open_fork(self, parent: Room, within: Sequence[int], copies: Sequence[int]) -> Room:
        """Make a room inside of another one, with copies of folders."""
        if self._control is None or self.lost:
            raise SandboxUnavailable("The sandbox has ended.")
        room = await Room.open(self._control, self._largest, self._proxy, self._overlay, parent, within, copies)
        self._all.add(room)
        return room

    def guarded_paths(self) -> Collection[str]:
        """What of the workspace this machine runs, as paths below it."""
        return interpreter_paths(self._config)

    def give_back(self, room: Room) -> None:
        """Reset a room, then let others use it."""
        if self._take_back is not None:
            self._tidying.add(room)
            asyncio.get_running_loop().call_soon(self._tidy, room)
            self._take_back(self)  # Its next session waits until this is done.
            return
        self._free.release()
        if room.forks and not (room.lost or self.lost):
            room.leave()
            return
        # What an overlay has been used for stays in it.
        if room.lost or self.lost or self._overlay or room.parent is not None or room.has_forked:
            self.drop(room)
            if self._overlay and not self.lost and (self._opening is None or self._opening.done()):
                self._opening = asyncio.get_running_loop().create_task(self._open(ahead=True))
            return
        self._tidying.add(room)
        # Later, so that the caller gets its result first.
        asyncio.get_running_loop().call_soon(self._tidy, room)

    async def close(self) -> None:
        """End it, and everything behind its wall."""
        if asyncio.current_task() is not self._opening:  # `_open` refuses its waiters itself, with the reason.
            if self._opening is not None:
                self._opening.cancel()
            self._refuse(SandboxUnavailable("The sandbox was closed before there was a room."))
        for room in list(self._all):
            room.close()
        self._all.clear()
        self._idle.clear()
        self._tidying.clear()
        if self._control is not None:
            self._control.close()
        if self._proxy is not None:
            self._proxy.close()
        started, self._started = self._started, None
        if started is not None:
            await asyncio.shield(started.end())

    def abandon(self) -> None:
        """Close all sockets to it; then it ends, and its attendant cleans up after it."""
        for room in self._all:
            room.abandon()
        if self._control is not None:
            self._control.close()
        if self._proxy is not None:
            self._proxy.close()

    def kill(self) -> None:
        """End it without an event loop."""
        self.abandon()
        if self._started is not None:
            self._started.kill()
            self._started = None

    async def _take(self) -> Room:
        while self._idle:
            room = self._idle.popleft()
            if not room.lost:
                return room
            self._all.discard(room)
        # Take whichever comes first: a room that is given back, or a new one.
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Room] = loop.create_future()
        self._waiting.append((loop.time(), waiting))
        if self._opening is None or self._opening.done():
            self._opening = loop.create_task(self._open())
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._offer(waiting.result())
            raise

    async def _open(self, ahead: bool = False) -> None:
        """Make rooms for those who wait; whatever breaks reaches each of them. `ahead`: one for whoever comes next."""
        failing: float | None = None
        try:
            while self._waiting or (ahead and not self._idle):
                since = self._waiting[0][0] if self._waiting else 0.0
                left = since + _TIDYING - asyncio.get_running_loop().time()
                if left > 0 and len(self._tidying) >= len(self._waiting):
                    await asyncio.sleep(left)
                    continue
                try:
                    if self._control is None or self.lost:
                        raise await self._failed("has ended")
                    room = await self._open_room(self._control)
                except Exception as error:
                    if not self._waiting:
                        return
                    # A fork bomb in another room may leave no place for one more process until it is ended.
                    failing = failing or time.monotonic() + _MOST_FAILING
                    no_place = getattr(error, "errno", None) == errno.EAGAIN
                    crowded = self._tidying or (no_place and self._all.difference(self._idle))
                    if crowded and not self.lost and time.monotonic() < failing:
                        await asyncio.sleep(_MOMENT)
                        continue
                    if not self.lost and not self._all.difference(self._idle, self._tidying):
                        error = await self._failed(f"cannot make a room: {error}")
                    self._refuse(error)
                    return
                failing = None
                self._all.add(room)
                with contextlib.suppress(Exception):  # `take_spare` will raise the reason.
                    await room.prepare()
                self._offer(room)
        except Exception as error:
            self._refuse(error)

    async def _open_room(self, control: HostChannel) -> Room:
        if self._network is not None:
            room = await Room.open(control, self._largest, None, self._overlay)
            room.network = self._network
            return room
        room = await Room.open(control, self._largest, self._proxy, self._overlay)
        if self._take_back is not None and room.network is not None:
            self._network = room.network
            self._network.outlives_room = True
        return room

    def _refuse(self, reason: Exception) -> None:
        error = unavailable(reason)
        while self._waiting:
            _, waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(error)

    def _tidy(self, room: Room) -> None:
        if room in self._tidying:
            room.reset(functools.partial(self._tidied, room), hurry=bool(self._waiting))

    def _tidied(self, room: Room, usable: bool) -> None:
        if room in self._tidying:
            self._tidying.discard(room)
            # After a failure only this room is lost.
            self._offer(room) if usable and not room.lost else self.drop(room)
            if self._take_back is not None:
                if room not in self._idle:  # What it has left would be in the network of the next session.
                    self.abandon()
                self._free.release()

    def _offer(self, room: Room) -> None:
        """Give a room to the caller that has waited longest, or keep it idle."""
        while self._waiting:
            _, waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(room)
                return
        if len(self._idle) < _IDLE_ROOMS:
            self._idle.append(room)
        else:
            self.drop(room)

    def drop(self, room: Room) -> None:
        """End a room."""
        self._all.discard(room)
        room.close()
        parent = room.parent
        if parent is not None:
            parent.forks.discard(room)
            if parent.left and not parent.forks:
                self.drop(parent)

    def _on_message(self, message: dict[str, Any]) -> None:
        if self._ready is None or self._ready.done():
            return
        if message.get("event") == "ready":
            self._ready.set_result(message)
        elif message.get("event") == "failed":
            self._ready.set_exception(SandboxUnavailable(f"The sandbox could not start: {message.get('error')}"))

    def _on_end(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ConnectionError("ended at once"))
        for room in list(self._all):
            room.close()
        self._all.clear()

    async def _failed(self, what: str) -> SandboxUnavailable:
        started = self._started
        detail = "" if started is None else started.describe_death()
        await self.close()
        return SandboxUnavailable(f"The sandbox's worker behind the wall {self._wall.name!r} {what}. {detail}".strip())
