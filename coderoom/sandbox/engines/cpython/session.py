"""A session of the engine `cpython`: runs cells in a room, and keeps its state and its checkpoints.

`CPythonEngine` opens one for each session and each one-shot run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import itertools
import json
import logging
import os
import re
import shlex
import signal
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coderoom._util.tasks import LARGE, aside, cancel_and_wait, resolve, retrieve_exception, run_uncancellable
from coderoom.errors import CodeRoomError, MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.cell import STATE_KEPT, STATE_LOST, Collector, stopped
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.engines.cpython.cells import Ending, RunningCell, conclude, natural
from coderoom.sandbox.engines.cpython.forks import Fork, Origin, Rooms
from coderoom.sandbox.engines.cpython.moving import move
from coderoom.sandbox.engines.cpython.processes import CheckpointHandle, Relay, Runner, pids_of
from coderoom.sandbox.engines.cpython.room import MOST_CHECKPOINTS, Places, Room
from coderoom.sandbox.engines.cpython.shells import CellsRunner, Saving
from coderoom.sandbox.functions.callables import from_callable
from coderoom.sandbox.functions.calls import Calls
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.languages import Program
from coderoom.sandbox.overlay import Overlay, Tree, UpperLayer, put
from coderoom.sandbox.packages import Added
from coderoom.sandbox.processes import Process
from coderoom.sandbox.requirements import (
    advice_on_installing,
    has_node_packages,
    install_commands,
    installs_in,
    leading_installs,
    packages_in,
)
from coderoom.sandbox.result import CodeError, ExecutionResult, NetworkUse, OutputChunk, network_sum

# How many seconds interrupted code may take to end, so that its variables stay; `subprocess` alone takes 0.25. Seconds
# of processor time, on a busy machine.
_GRACE = 0.3
_LAST_GRACE = 0.2  # The same, after all processes that it may be waiting for were killed.
_MOST_GRACE, _MOMENT = 5.0, 0.05
_CLOSING = 1.0  # How long the end of an interpreter may take when a session is closed.
_PAUSE = 0.01  # Between two looks at output that is not kept, where others have to be let go first.
# For replacing the state by a fork of itself, which takes milliseconds unless code keeps the interpreter's lock.
_LEAVING_THREADS = 5.0
_MOST_REASONS = 5
_SHELLS = ("sh", "bash")
_INSTALLING = (*_SHELLS, "node")
_MOST_REQUESTS = 20  # For packages: each leaves an environment on this machine.
_GONE = "This checkpoint is gone: it was released, or the session was rolled back past it, restarted or closed."
_STARTING, _LONGEST_FAILURE = 20.0, 4096
_LOST = {"lost": True}
_GONE_WITH_IT = "The process of this language has ended: its earlier variables are gone."
_cells = itertools.count(1)
_log = logging.getLogger(__name__)
_NO_NETWORK = "There is no network here: network=True (--network) turns it on."
# What programs say that cannot find a host.
_NO_NAME = re.compile(
    "ould not resolve|name resolution|EAI_AGAIN|no such host|Name or service not known|lookup address|dial udp|"
    "UnknownHostException|java.net.SocketException"
)


class CPythonSession:
    """An interpreter state in a room.

    `rooms` gets the room back when the session is closed.
    """

    def __init__(
        self,
        rooms: Rooms,
        room: Room,
        config: SandboxConfig,
        functions: Mapping[str, HostFunction],
        build: Callable[[Program, str], Coroutine[Any, Any, bytes | ExecutionResult]],
        install: Callable[[list[str]], Awaitable[Added]] | None,
    ) -> None:
        self._rooms = rooms
        self._room = room
        self._places = room.places
        self._config = config
        self._limits = config.limits
        self._is_without_network = not (config.network or config.proxied or config.wall == "none")
        self._functions = functions
        if install is not None:
            function = replace(from_callable(self._install_packages), is_async=False)
            self._functions = {**functions, function.name: function}
        self._install = install
        self._asked: list[str] = []  # The packages that were installed at the code's request.
        self._requests = 0
        self._added = Added()  # Where they are.
        self._build = build
        self._building: asyncio.Task[bytes | ExecutionResult] | None = None
        self._live: Runner | None = None  # The process that has the current state.
        self._checkpoints: list[CheckpointHandle] = []
        self._parent: CheckpointHandle | None = None  # Whose fork the current state is.
        self._work: asyncio.Future[Any] | None = None  # What `_finish_even_if_cancelled` does.
        self._closed = False
        self._printing: Runner | None = None  # The process whose output belongs to the running cell.
        self._is_suspended = False
        self._lost = False  # Whether variables were lost since the last result.
        self._cells: CellsRunner | None = None  # The process that runs cells in JavaScript.
        self._lacks_cells = False  # Whether there was one, in the session that this is a fork of.
        self._shell = b""  # What restores the state of bash.
        self._used = False  # Whether code has run since the fresh state.
        self._over = False  # Whether the last cell was the last one of the state.
        self._running: RunningCell | None = None  # The cell that `cancel` ends.
        self._told: set[str] = set()  # Why connections were refused, as far as it was said.
        self._processes: list[Process] = []
        self.network_after: tuple[NetworkUse, ...] = ()  # What was asked for after the last cell.
        self.overlay: Overlay | None = None  # Its changes of the workspace, if they are kept apart.
        self.after: Callable[[], Awaitable[None]] | None = None  # Called at the end.
        self._relay: Relay | None = None
        self._relaying = asyncio.Lock()

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
        stdin: bytes | AsyncGenerator[bytes] | None = None,
    ) -> ExecutionResult:
        """Run a cell that `check_cell` has accepted; `final`: nothing follows, and the state ends with it."""
        asked = code
        if self._install is not None and program is None and "# /// script" in code:
            code = await self._with_metadata(code)
        elif program is not None and program.argv[0] in _INSTALLING:
            code = await self._with_packages(code, program)
        result = await self._run_given(code, program, timeout, final, on_chunk, stdin)
        return result if code is asked else replace(result, code=asked)

    async def _run_given(
        self,
        code: str,
        program: Program | None,
        timeout: float | None,
        final: bool,
        on_chunk: Callable[[OutputChunk], None] | None,
        stdin: bytes | AsyncGenerator[bytes] | None,
    ) -> ExecutionResult:
        with contextlib.ExitStack() as given:
            built = b""
            if program is not None and program.build:
                made = await self._built(program, code)
                if isinstance(made, ExecutionResult):
                    if on_chunk is not None and made.output:
                        on_chunk(OutputChunk("stderr", made.output))
                    return replace(made, code=code)
                built = made
            program_file = [_sealed(built, given)] if built else []
            if stdin is None or isinstance(stdin, bytes):
                inputs = [] if stdin is None else [_sealed(stdin, given)]
                return await self._run(code, program, timeout, final, on_chunk, inputs, program_file)
            reader, writer = os.pipe2(os.O_CLOEXEC)
            given.callback(os.close, reader)
            feeding = asyncio.ensure_future(_feed(stdin, writer))
            # What the stream raises ends the cell.
            feeding.add_done_callback(lambda _: None if _has_fed(feeding) else asyncio.ensure_future(self.cancel()))
            try:
                result = await self._run(code, program, timeout, final, on_chunk, [reader], program_file)
            finally:
                await cancel_and_wait(feeding)
            if not _has_fed(feeding):
                feeding.result()
            return result

    async def _install_packages(self, packages: list[str]) -> dict[str, Any]:
        """Install packages for code that runs, and return where they are."""
        assert self._install is not None
        asked = list(dict.fromkeys([*self._asked, *packages]))
        self._requests += asked != self._asked
        if self._requests > _MOST_REQUESTS:
            raise RequestError(f"Code may install packages {_MOST_REQUESTS} times in a session: name them together.")
        self._added = await self._install(asked)
        self._asked = asked
        return self._added._asdict()

    async def _request(self, packages: Sequence[str]) -> str:
        """Install packages; return why that is not possible."""
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                await self._install_packages(list(packages))
        except TimeoutError:
            return f"The packages were not installed within {self._limits.call_seconds:g} seconds."
        except CodeRoomError as error:
            return str(error)
        return ""

    async def _with_metadata(self, code: str) -> str:
        """The code, after the packages that its metadata names were installed; or what says why they were not."""
        try:
            packages = packages_in(code)
            why = await self._request(packages) if packages else ""
        except RequestError as error:
            why = str(error)
        return f"raise RuntimeError({why!r})" if why else code

    async def _with_packages(self, code: str, program: Program) -> str:
        """The code of a shell or of Node, after the packages that it asks for were installed.

        A shell finds those of earlier cells, too.
        """
        is_shell = program.argv[0] in _SHELLS
        for command in (install_commands if is_shell else leading_installs)(code)[:_MOST_REQUESTS]:
            wanted = installs_in(command)
            is_there = bool(wanted) and has_node_packages(self._config.packages, wanted)
            if is_there or (wanted and self._install is not None):
                why = "" if is_there else " ".join((await self._request(wanted)).split())
                names = ", ".join(each.removeprefix("npm:") for each in wanted)
                said = f"{'Already installed' if is_there else 'Installed'}: {names}"
                if is_shell:
                    instead = f"{{ echo {shlex.quote(why)} >&2; false; }}" if why else f"echo {shlex.quote(said)}"
                else:
                    instead = f"throw new Error({json.dumps(why)});" if why else f"console.log({json.dumps(said)});"
                code = code.replace(command, instead, 1)
        if is_shell and self._added.env:
            exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._added.env.items())
            programs = shlex.quote(os.pathsep.join(self._added.programs))
            code = f'export {exports} PATH={programs}:"$PATH"; {code}'
        return code

    async def _built(self, program: Program, code: str) -> bytes | ExecutionResult:
        """Compile a program; `cancel` ends that, too."""
        building = self._building = asyncio.ensure_future(self._build(program, code))
        try:
            return await building
        except asyncio.CancelledError:
            if building is self._building:  # It was not `cancel`.
                raise
            return ExecutionResult(**stopped(None, None, STATE_KEPT))
        finally:
            self._building = None

    async def _run(
        self,
        code: str,
        program: Program | None,
        timeout: float | None,
        final: bool,
        on_chunk: Callable[[OutputChunk], None] | None,
        stdin: Sequence[int],
        built: Sequence[int],
    ) -> ExecutionResult:
        output = Collector(self._limits.output_bytes, on_chunk, asyncio.get_running_loop())
        if self._limits.yield_seconds is not None:
            output.on_excess = self._slow_down
        cell = self._running = RunningCell(next(_cells), output)
        await self._settle()
        self._room.limit = None
        seconds = timeout or self._limits.wall_seconds
        begin = time.monotonic()
        if self._limits.cpu_seconds is not None:
            await self._room.send({"op": "cell"})
        saving, live = None, None
        if program is None:
            live = await self._send_cell(cell, code, final, stdin)
        elif program.keeping and "{file}" not in program.keeping:
            if not stdin and (self._cells is not None or not final):
                live = await self._continue(cell, code, program)
        elif program.keeping and (self._shell or not final):
            saving = Saving()
        if live is None:
            assert program is not None
            live = await self._launch(cell, code, program, stdin, built, saving)
        if self._lost:  # No result has said so: the state was lost between cells or in a cancelled call.
            cell.output.add("stderr", f"{STATE_LOST}\n".encode())
        self._printing = live
        try:
            seconds_alone = self._limits.yield_seconds
            with contextlib.nullcontext() if seconds_alone is None else self._room.yielding(seconds_alone):
                ending = await self._wait_for_cell(cell, live, seconds, final)
        finally:
            self._printing = None
            if program is not None and live is not self._cells:
                live.close()
            if saving is not None:
                self._shell = saving.finish() or self._shell
        if cell.ended is not None and cell.ended.get("status") == -signal.SIGKILL and self._room.limit is None:
            await self._room.look()  # Whoever killed it from outside has killed the room too.
        if self._room.lost:
            raise SandboxUnavailable("Everything in the sandbox was ended from outside while the code ran.")
        if program is not None and cell.ended is not None and cell.ended.get("missing"):
            raise MissingDependencyError(
                f"The sandbox has no {' or no '.join(program.needs)}, which code in this language needs: "
                f"{program.install}. A sandbox of the wall docker needs an image with it."
            )
        if cell.ended is not None:
            cell.ended = {**cell.ended, "limit": self._room.limit}
        failed = cell.ended.get("status") if cell.ended is not None else (cell.answer or {}).get("outcome") == "error"
        advice = ""
        if failed:
            advice = advice_on_installing(code, cell.output.text(), self._install is not None)
        if advice and advice[:30] not in str((cell.answer or {}).get("error")):  # A command may have said so.
            cell.output.add("stderr", f"[{advice}]\n".encode())
        elif failed and program is not None and self._is_without_network and _NO_NAME.search(cell.output.text()):
            cell.output.add("stderr", f"[{_NO_NETWORK}]\n".encode())
        used = () if self._room.network is None else await self._room.network.used()
        refused = [each.why for each in used if each.why]
        for why in refused:
            if why not in self._told:
                cell.output.add("stderr", f"[{why}]\n".encode())
        self._told.update(refused)
        if saving is not None and saving.too_large:
            cell.output.add("stderr", b"[The shell has more than 1 MiB of variables: they are as before this cell.]\n")
        if program is None:
            self._used = not final
        self._over = final
        lost, self._lost = self._lost, False
        duration = time.monotonic() - begin
        facts = cell, ending, code, self._config, duration, seconds, None if final else lost
        if cell.answer is not None and live.channel.taken > LARGE:
            result = await aside(conclude, *facts, large=True)
        else:
            result = conclude(*facts)
        if used:
            result = replace(result, network=used, error=_with_reasons(result.error, refused))
        if live is self._cells is not None and ending is not Ending.BY_ITSELF and result.error is not None:
            self._cells.ended = self._cells.ended or {}  # Its parent may not have said so yet.
            message = result.error.message.replace(STATE_KEPT, _GONE_WITH_IT)
            result = replace(result, error=replace(result.error, message=message))
        calls = await cell.end_calls()
        return replace(result, calls=calls) if calls else result

    async def cancel(self) -> None:
        """End the cell that runs."""
        building, self._building = self._building, None
        if building is not None:
            building.cancel()
        if self._running is not None:
            self._running.finish(Ending.CANCELLED)

    async def start(self, process: Process, **how: Any) -> None:
        """Start a program that stays, beside cells."""
        self._processes = [each for each in self._processes if not each.closed]
        if sum(each.exit_code is None for each in self._processes) >= self._limits.processes:
            process.note_end(_LOST)
            raise RequestError(f"The session has {self._limits.processes} processes, its limit; end some of them.")
        ours, theirs = socket.socketpair()
        process.remote_fds.append(theirs.detach())
        self._processes.append(process)
        try:
            with ours:
                ours.setblocking(False)
                how["env"] = {**self._added.env, **how["env"]}
                number = await self._room.start(process, "start", argv=process.argv, **how)
                process.send_number = lambda signal: self._room.send({"op": "signal", "id": number, "number": signal})
                async with asyncio.timeout(_STARTING):
                    failure = await asyncio.get_running_loop().sock_recv(ours, _LONGEST_FAILURE)
            if failure:
                error, _, what = failure.decode(errors="replace").partition(" ")
                error_number = int(error) if error.isdecimal() and len(error) < 5 else errno.EIO
                raise OSError(error_number, os.strerror(error_number), what)
        except BaseException as error:
            process.note_end(_LOST)
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{process.argv[0]!r} has not started within {_STARTING:g} seconds.") from None
            raise

    async def connect(self, port: int) -> socket.socket:
        """Return a stream to a port at which a process of this session listens."""
        async with self._relaying:
            relay = self._relay
            if relay is None or relay.lost:
                relay = self._relay = Relay()
                await self._room.start(relay, "relay")
        try:
            return await relay.connect(port)
        except SandboxUnavailable as error:
            if self._room.lost:
                raise
            relay.close()  # Code has ended or stopped it, as it may end all processes of its session.
            raise ConnectionResetError(errno.ECONNRESET, f"the connection was broken off at port {port}") from error

    async def checkpoint(self) -> CheckpointHandle:
        """Keep the state as it is; see `Session.checkpoint`."""
        await self._settle()
        handle = await self._keep_state()
        self._checkpoints.append(handle)
        self._room.protect(pids_of(self._checkpoints))
        return handle

    async def _keep_state(self, forks: int = 0) -> CheckpointHandle:
        """Make a checkpoint. `forks`: how many sessions will be made of it."""
        count = sum(not checkpoint.released for checkpoint in self._checkpoints)
        if count >= MOST_CHECKPOINTS:
            raise RequestError(
                f"The session has {count} checkpoints, and cannot have more: release some with session.release()."
            )
        try:
            return await self._make_checkpoint(forks)
        except SandboxUnavailable as error:
            if self._room.lost:
                raise
            raise RequestError(
                f"The state cannot be kept, beside {count} checkpoints: {error} "
                "Release some with session.release(), and end what code runs in the background."
            ) from error

    async def rollback(self, handle: CheckpointHandle) -> None:
        """Return to a checkpoint; see `Session.rollback`."""
        await self._settle()
        await self._finish_even_if_cancelled(self._roll_back(handle))

    def release(self, handle: CheckpointHandle) -> None:
        """Discard a checkpoint; see `Session.release`."""
        handle.released = True
        self._drop_released()

    async def restart(self) -> None:
        """Return to the fresh state and discard all checkpoints; code that has run ends first as a script does."""
        await self._end()
        await self._settle()
        await self._finish_even_if_cancelled(self._restart())

    def suspend_output(self, suspended: bool) -> None:
        """Stop or continue to read the output of the running cell, which blocks while nothing is read."""
        self._is_suspended = suspended
        if self._printing is not None:
            self._printing.pause(suspended)

    def _slow_down(self) -> None:
        """Pause reading of output that is not kept: it would take this process's time from others."""
        live = self._printing
        if live is not None and not live.paused:
            live.pause(True)
            asyncio.get_running_loop().call_later(_PAUSE, self._go_on, live)

    def _go_on(self, live: Runner) -> None:
        if not (self._is_suspended and live is self._printing):
            live.pause(False)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Stop all processes in the room for as long as the context lasts."""
        async with self._room.frozen():
            yield

    @contextlib.asynccontextmanager
    async def _stopped(self, cell: RunningCell) -> AsyncIterator[None]:
        """Stop a cell, all that it has started, and its time limit."""
        async with self.frozen():
            with contextlib.nullcontext() if cell.deadline is None else cell.deadline.paused():
                yield

    async def fork(self, count: int, reseed: bool) -> list[Fork[CPythonSession]]:
        """Make sessions with this one's state and copies of its files; see `Session.fork`."""
        await self._settle()
        origin = Origin(self._rooms, self._room)
        begin = functools.partial(self._like_this(self._room)._begin, origin)
        forks = await Fork.make(origin, begin, count, reseed)
        try:
            origin.keep_state(await self._keep_state(count))
            async with self.frozen():
                await origin.keep_files(self.overlay)
        except BaseException:
            for each in forks:
                each.abandon()
            raise
        return forks

    async def _begin(self, origin: Origin, room: Room, reseed: bool) -> CPythonSession:
        """Make a fork that has been told what this session has, which nobody uses itself."""
        made = self._like_this(room)
        if made.overlay is not None:
            await origin.restore_changes(made.overlay)
        if room.network is not None:
            await room.network.begin()
        made._live = await origin.enter(room, reseed)
        return made

    async def put(self, name: str, content: bytes) -> None:
        """Write a file into the workspace of a fork, which is in memory; see `Session.put`."""
        async with self.frozen(), self._room.handed_over() as (_, (files, _)):
            await run_uncancellable(asyncio.to_thread(put, Tree(files), name, content, files))

    async def become(self, fork: CPythonSession) -> CPythonSession:
        """Let a fork take this session's place, which ends; see `Session.become`.

        Returns:
            The fork, with the workspace of this session.
        """
        await self._settle()
        await fork._settle()
        if fork._room.lost:
            raise RequestError("The fork has ended.")
        folder, guarded = self._config.shared_workspace, self._rooms.guarded_paths
        if folder is not None and not await move(self._room, fork._room, fork._alone, folder, guarded):
            await fork._lose_state()
        fork._config = self._config
        fork._use_places(fork._room.places)
        self.abandon()
        return fork

    async def _alone(self) -> Runner | None:
        """End all but the process that has the state, and return that, if there is one."""
        self._drop(self._checkpoints)
        live = self._live
        if live is None or live.ended is not None or self._over:
            await self._end_live([])
            return None
        await self._room.kill(self._kept_pids())
        await self._get_ready(live)
        return live

    def _like_this(self, room: Room) -> CPythonSession:
        """A session in another room that has been told and given what this one has."""
        made = CPythonSession(self._rooms, room, self._config.of_fork, self._functions, self._build, None)
        if self.overlay is not None:
            layer = UpperLayer(self.overlay.folder, *room.take_overlay()) if room.overlay else self.overlay.layer
            made.overlay = self.overlay.on(layer)
        made._install, made._lacks_cells = self._install, self._lacks_cells or self._cells is not None
        made._asked, made._requests, made._added = list(self._asked), self._requests, self._added
        made._shell, made._used, made._told = self._shell, self._used, set(self._told)
        made._places = self._places
        made._use_places(room.places)
        return made

    def _use_places(self, places: Places) -> None:
        self._shell, self._places = self._places.renamed(self._shell, places), places

    async def close(self) -> None:
        """End everything that the session has started; a second time does nothing.

        Code that has run ends first as a script does.
        """
        await self._end()
        if self._room.network is not None and not self._closed:
            self.network_after = network_sum([*self.network_after, *await self._room.network.used()])
            for use in self.network_after:
                _log.info("After the last cell of a session, its code has asked for: %s", use)
        self.abandon()
        after, self.after = self.after, None
        if after is not None:
            await after()

    async def _end(self) -> None:
        """Do what happens at the end of a script.

        Not before a rollback: what the state has opened, such as temporary folders, belongs to its checkpoint too.
        """
        live = self._live
        if self._used and not self._closed and live is not None and live.ended is None and not self._room.lost:
            with contextlib.suppress(Exception):  # The state ends in any case.
                self.network_after = (await self.run("", timeout=_CLOSING, final=True)).network

    def abandon(self) -> None:
        """Give back the room, whose reset ends all processes; waits for nothing."""
        if self._closed:
            return
        self._closed = True
        if self._work is not None:
            self._work.cancel()  # Another session may get the room.
        if self._live is not None:
            self._room.discard(self._live)
        if self._cells is not None:
            self._cells.close()
        for checkpoint in self._checkpoints:
            checkpoint.close()
        if self._relay is not None:
            self._relay.close()
        if self._room.network is not None:
            self._room.network.cut()
        self._rooms.give_back(self._room)
        for process in self._processes:
            process.note_end(_LOST)

    async def _send_cell(self, cell: RunningCell, code: str, final: bool, stdin: Sequence[int]) -> Runner:
        """Send a cell to the process that has the state."""
        live = await self._get_live()
        if self._functions:
            stop = functools.partial(self._stopped, cell)
            cell.calls = Calls(self, self._functions, self._limits, live.channel, stop)
        live.attach(cell)
        self._used = True
        message = {
            "op": "cell",
            "id": cell.number,
            "code": code,
            "final": final,
            "added": self._added._asdict() if self._added.env else None,
        }
        try:
            if not live.channel.send_now(message, stdin):
                # Not awaited: the process may never read all of it, and the cell's time is running.
                cell.sending = asyncio.ensure_future(live.channel.send(message, stdin))
        except ConnectionError:  # The process has ended, which its parent will report.
            pass
        return live

    async def _launch(
        self,
        cell: RunningCell,
        code: str,
        program: Program,
        stdin: Sequence[int],
        built: Sequence[int],
        saving: Saving | None,
    ) -> Runner:
        runner = Runner()
        try:
            runner.attach(cell)
            runner.remote_fds += map(os.dup, [*stdin, *built])  # It closes them once they are sent.
            argv = (stdin and program.reading) or program.argv
            if saving is not None:
                argv = program.keeping or argv
                runner.remote_fds += [_sealed(self._shell), saving.writer]
            request = {
                "code": None if built else program.whole(code),
                "argv": argv,
                "keeps": [] if saving is None else ["{state}", "{kept}"],
                "needs": program.needs,
                "address_space": program.address_space,
                # A shell exports them, after it has restored its own variables.
                "added": None if program.argv[0] in _SHELLS or not self._added.env else self._added._asdict(),
            }
            await self._room.start(runner, "exec", **request)
        except BaseException:
            runner.close()
            if saving is not None:
                saving.finish()
            raise
        return runner

    async def _continue(self, cell: RunningCell, code: str, program: Program) -> Runner:
        """Send a cell to the process that runs all cells of its language, which is started if there is none."""
        runner = self._cells
        if self._lacks_cells or (runner is not None and runner.ended is not None):
            cell.output.add("stderr", f"[{_GONE_WITH_IT}]\n".encode())
            self._lacks_cells = False
        if runner is not None and runner.ended is not None:
            runner.close()
        if runner is None or runner.ended is not None:
            runner = self._cells = CellsRunner()
            request = {"argv": program.keeping, "needs": program.needs, "address_space": program.address_space}
            await self._room.start(runner, "exec", code="", keeps=["{cells}"], added=None, **request)
        runner.attach(cell)
        # Not awaited: the process may never read all of it, and the cell's time is running.
        cell.sending = asyncio.ensure_future(runner.send(cell, code, self._added.env))
        return runner

    async def _get_live(self) -> Runner:
        if self._over:  # What is left of it must not see the next cell.
            self._over = False
            await self._end_live(self._checkpoints)
        live = self._live
        if live is None or live.ended is not None:
            if live is not None:  # Its process has ended between two cells.
                self._lost = self._lost or self._used
                self._room.discard(live)
            self._live = live = await self._room.take_spare()
            self._parent = None
            self._drop_released()
            if self._functions:
                offers = [function.to_offer() for function in self._functions.values()]
                with contextlib.suppress(ConnectionError):  # The process has ended, which its parent will report.
                    await live.channel.send({"op": "functions", "offers": offers})
        await self._get_ready(live)
        return live

    async def _get_ready(self, runner: Runner) -> None:
        if not runner.ready.done():
            await self._room.wait_unless_stuck(asyncio.wait((runner.ready,)))
        if runner.pid == 0:
            raise SandboxUnavailable(f"The session's process could not start: {runner.why_not_ready}.")

    async def _make_checkpoint(self, forks: int = 0) -> CheckpointHandle:
        live = await self._get_live()
        message = {"op": "checkpoint", "places": 1 + 2 * forks}  # Among the processes that the kernel counts.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handle = CheckpointHandle(ours, live.key)
        try:
            handle.announce("holding")
            try:
                await self._room.wait_unless_stuck(live.channel.send(message, (theirs.fileno(),)))
            except ConnectionError as error:
                raise SandboxUnavailable("The session's process has ended.") from error
            finally:
                theirs.close()
            facts = await self._room.wait_unless_stuck(handle.expect("holding"))
        except BaseException:
            handle.close()
            raise
        handle.pid = natural(facts.get("pid"))
        handle.shell = self._shell
        return handle

    async def _roll_back(self, handle: CheckpointHandle) -> None:
        if handle not in self._checkpoints or handle.released or handle.lost:
            raise RequestError(_GONE)
        try:
            await self._replace_state(handle)
        except SandboxUnavailable as error:
            # Code has run in the checkpoint's process and may have broken it. The room itself still works.
            await self._restart()
            raise RequestError("This checkpoint is gone: code has broken it. The session was restarted.") from error
        self._shell = handle.shell
        self._lost = False

    async def _replace_state(self, handle: CheckpointHandle) -> None:
        """Replace the current state by a fork of a checkpoint, and discard later checkpoints."""
        keep = self._checkpoints[: self._checkpoints.index(handle) + 1]
        await self._end_live(keep, handle)
        self._drop([each for each in self._checkpoints if each not in keep])
        runner = Runner(self._room.largest)
        try:
            await self._room.wait_unless_stuck(handle.start(runner))
        except BaseException:
            runner.close()
            raise
        self._live = runner
        await self._get_ready(runner)

    async def _restart(self) -> None:
        await self._end_live([])
        self._drop(self._checkpoints)
        self._used = self._lost = self._lacks_cells = False
        self._shell = b""
        if self._cells is not None:
            self._cells.close()
            self._cells = None

    async def _wait_for_cell(self, cell: RunningCell, live: Runner, seconds: float, final: bool) -> Ending:
        """Wait for a cell's end, and clean up after it."""
        try:
            ending = await cell.wait(seconds)
            self._running = None
        except BaseException:
            # The caller was cancelled. The code is ended as by `cancel`, so its variables stay if possible.
            self._running = None
            with contextlib.suppress(SandboxUnavailable):
                await self._finish(cell, live, Ending.CANCELLED, final)
            raise
        await self._finish(cell, live, ending, final)
        return ending

    async def _finish(self, cell: RunningCell, live: Runner, ending: Ending, final: bool) -> None:
        if ending is not Ending.BY_ITSELF or cell.answer is None:
            await self._finish_even_if_cancelled(self._clean_up(cell, live, ending, final))
        else:
            if cell.sending is not None or cell.calls is not None:
                await self._finish_even_if_cancelled(cell.stop_sending())
            if live.broken and not final:
                await self._finish_even_if_cancelled(self._lose_state())
        cell.output.finish()

    async def _clean_up(self, cell: RunningCell, live: Runner, ending: Ending, final: bool) -> None:
        """After a cell that was stopped, or whose process has ended, end what still runs of it."""
        await cell.stop_sending()
        if final:  # `close` ends everything.
            if ending is not Ending.BY_ITSELF and live is self._live:
                with contextlib.suppress(SandboxUnavailable):  # The result is known all the same.
                    await self._interrupt(cell, live)
            return
        if live is not self._live:  # A program of another language, which does not have the session's state.
            if ending is not Ending.BY_ITSELF:
                await self._room.kill(self._kept_pids())
            return
        try:
            if ending is not Ending.BY_ITSELF:
                await self._interrupt(cell, live)
            if cell.answer is None or live.broken:
                await self._lose_state()
            elif cell.answer.get("threads", 1) != 1:
                # Threads cannot be killed: the state is replaced by a fork of itself, which has one thread only.
                try:
                    async with asyncio.timeout(_LEAVING_THREADS):
                        handle = await self._make_checkpoint()
                        handle.released = True
                        self._checkpoints.append(handle)
                        self._room.protect(pids_of(self._checkpoints))
                        await self._replace_state(handle)
                except (SandboxUnavailable, TimeoutError):
                    await self._lose_state()
            else:
                await self._room.kill(self._kept_pids())
        except SandboxUnavailable:
            self._lost = True
            raise

    async def _interrupt(self, cell: RunningCell, live: Runner) -> None:
        """Interrupt the code, so that it ends and its variables stay."""
        self._printing = None
        if live.paused:  # It may be blocked while it prints.
            cell.output.finish()
            live.pause(False)
        await self._room.interrupt(pids_of(self._checkpoints))
        if not await self._ends_within(_GRACE, cell):
            # It may be waiting for a process that ignores the interrupt.
            await self._room.kill(self._kept_pids())
            await self._room.interrupt(pids_of(self._checkpoints))
            await self._ends_within(_LAST_GRACE, cell)

    async def _ends_within(self, seconds: float, cell: RunningCell) -> bool:
        """Wait for the end of an interrupted cell, for longer if its processes wait for a processor."""
        end = time.monotonic() + _MOST_GRACE
        (_, before), left = await self._room.look(), seconds
        while not await cell.wait_longer(max(left, _MOMENT)):
            busy, cpu = await self._room.look()
            left = seconds - (cpu - before)
            if not busy or left <= 0 or time.monotonic() > end:
                return False
        return True

    async def _lose_state(self) -> None:
        await self._end_live(self._checkpoints)
        self._lost = True

    async def _end_live(self, keep: list[CheckpointHandle], parent: CheckpointHandle | None = None) -> None:
        """End the current state's process, and all others but some checkpoints; `parent` forks the next state."""
        self._parent = parent
        await self._room.kill(pids_of(keep))
        live, self._live = self._live, None
        if live is not None:
            self._room.discard(live)
        self._drop_released()

    def _drop_released(self) -> None:
        """End released checkpoints, except the parent of the current state: it reports the end of that process."""
        if not self._closed:
            self._drop([each for each in self._checkpoints if each.released and each is not self._parent])

    def _drop(self, unwanted: Sequence[CheckpointHandle]) -> None:
        if unwanted:
            for checkpoint in unwanted:
                checkpoint.close()
            self._checkpoints = [each for each in self._checkpoints if each not in unwanted]
            self._room.protect(pids_of(self._checkpoints))

    def _kept_pids(self) -> list[int]:
        return [*([] if self._live is None else [self._live.pid]), *pids_of(self._checkpoints)]

    async def _finish_even_if_cancelled(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work to its end even if the caller is cancelled; `_settle` waits for it then."""
        self._work = task = asyncio.ensure_future(work)
        task.add_done_callback(retrieve_exception)
        await asyncio.shield(task)

    async def _settle(self) -> None:
        """Wait for the work that a cancelled call has left behind."""
        if self._work is not None:
            await asyncio.wait((self._work,))
            self._work = None


def _with_reasons(error: CodeError | None, refused: Sequence[str]) -> CodeError | None:
    """The error, with why connections were refused as its last lines."""
    if error is None or not refused:
        return error
    lines = "\n".join(refused[:_MOST_REASONS])
    traceback = f"{error.traceback.rstrip()}\n{lines}\n" if error.traceback else ""
    return replace(error, message=f"{error.message}\n{lines}", traceback=traceback)


async def _feed(pieces: AsyncGenerator[bytes], writer: int) -> None:
    """Write pieces into a pipe as they come, and close it."""
    loop = asyncio.get_running_loop()
    os.set_blocking(writer, False)
    try:
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                left = memoryview(piece)
                while left:
                    try:
                        left = left[os.write(writer, left) :]
                    except BlockingIOError:
                        emptier = loop.create_future()
                        loop.add_writer(writer, resolve, emptier)
                        try:
                            await emptier
                        finally:
                            loop.remove_writer(writer)
    except BrokenPipeError:  # Nobody reads it any longer.
        pass
    finally:
        os.close(writer)


def _has_fed(feeding: asyncio.Future[None]) -> bool:
    return not feeding.done() or feeding.cancelled() or feeding.exception() is None


def _sealed(content: bytes, closing: contextlib.ExitStack | None = None) -> int:
    """A file in memory with some content, which is closed with a stack if there is one."""
    file = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if closing is not None:
        closing.callback(os.close, file)
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    # The code must not use it as memory that nobody counts.
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file
