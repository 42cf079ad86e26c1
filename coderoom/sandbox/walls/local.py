"""Workers that are processes of this machine, the walls around them, and the wall `none`.

Walls are probed by building them.
"""

from __future__ import annotations

import asyncio
import atexit
import compileall
import concurrent.futures
import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from coderoom._util.tasks import in_thread
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import DEFAULTS, Limits, SandboxConfig
from coderoom.sandbox.contracts import WallReport
from coderoom.sandbox.walls.layout import Interpreter

# The folder on this machine that `guest` is in.
OUTSIDE = Path(__file__).resolve().parent.parent

_KEPT_OF_STDERR = 8192
_SECONDS_TO_END = 5.0
_CONTROL_BUFFER = 1 << 20

_PATIENCE = 10.0
_LARGEST_ANSWER = 1 << 20
_PROBE = "from coderoom_guest.isolation.boot import probe; probe(CONTROL)"


@dataclass
class Start:
    """How to start a worker.

    Attributes:
        boot: What the worker has to do at its start: which inner layers it builds itself (see
            `coderoom.sandbox.guest.isolation.boot`).
        fds: More descriptors for the program; they are closed on this side once it has started.
        worker_pid: Called to end the worker; returns the process whose end ends everything, or `None` for the program
            itself.
    """

    argv: Sequence[str]
    boot: Mapping[str, Any]
    fds: Sequence[int] = ()
    worker_pid: Callable[[], int | None] = lambda: None


class LocalWorker:
    """A worker that is a process of this machine.

    A thread starts it, reads its standard error, and waits for its end. The thread must live as long as the worker: for
    the kernel, "die with the parent" means the parent's *thread*.

    `control` is the host's end of the control channel, a `SOCK_SEQPACKET` socket of the family `AF_UNIX`. `tidying` is
    closed when the worker has ended.
    """

    def __init__(self, control: socket.socket, start: Start) -> None:
        self.control = control
        self.boot = start.boot
        self.tidying = contextlib.ExitStack()
        self._start = start
        self._said = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ending = threading.Lock()
        self._host = os.getpid()

    async def start(self, control_fd: int) -> None:
        """Start it, with a descriptor of its end of the control socket."""
        threading.Thread(target=self._attend, args=(control_fd,), daemon=True, name="coderoom-worker").start()
        try:
            await asyncio.shield(asyncio.wrap_future(self._started))
        except asyncio.CancelledError:  # Nothing else would end it.
            concurrent.futures.wait([self._started], _SECONDS_TO_END)
            self.kill()
            raise

    async def end(self) -> None:
        """End it and everything behind the wall at once; a second call does nothing."""
        await in_thread(self.kill)

    def kill(self) -> None:
        """As `end`, without an event loop."""
        with self._ending:
            self.control.close()
            if not self._ended.done():
                self._stop()
                if not concurrent.futures.wait([self._ended], _SECONDS_TO_END).done and self._process is not None:
                    self._process.kill()
                    concurrent.futures.wait([self._ended], _SECONDS_TO_END)
            self._tidy()

    def describe_death(self) -> str:
        """Why it ended by itself, as far as known: its exit code and what it wrote to standard error."""
        concurrent.futures.wait([self._ended], 1)
        code = None if self._process is None else self._process.poll()
        said = bytes(self._said[-_KEPT_OF_STDERR:]).decode(errors="replace").strip()
        how = "It is still running." if code is None else f"It ended with exit code {code}."
        if code is not None and (code < 0 or code > 128):
            number = -code if code < 0 else code - 128
            with contextlib.suppress(ValueError):
                how = f"It was ended by {signal.Signals(number).name}."
        return f"{how} It said: {said}" if said else how

    def _attend(self, control_fd: int) -> None:
        fds = (control_fd, *self._start.fds)
        try:
            _compile_guest()
            process = subprocess.Popen(
                self._start.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=fds,
                start_new_session=True,
            )
        except BaseException as error:
            self._ended.set_result(None)
            self._started.set_exception(error)
            return
        self._process = process
        atexit.register(self._finish_at_exit)
        self._started.set_result(None)
        assert process.stderr is not None
        with process.stderr:
            while said := os.read(process.stderr.fileno(), 4096):
                self._said += said
                del self._said[: -2 * _KEPT_OF_STDERR]
        process.wait()
        self._ended.set_result(None)
        with self._ending:  # Nothing else may close it.
            self._tidy()

    def _finish_at_exit(self) -> None:
        if os.getpid() == self._host:  # Not in a fork of the host.
            self.kill()

    def _tidy(self) -> None:
        self.tidying.close()
        atexit.unregister(self._finish_at_exit)

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        pid = self._start.worker_pid()
        if pid is None:
            process.terminate()
            return
        with contextlib.suppress(OSError):
            # If it has ended, its number may belong to another process by now.
            if int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]) == process.pid:
                # With the first process of a namespace all others end.
                os.kill(pid, signal.SIGKILL)


@functools.cache
def _compile_guest() -> None:
    """Write missing bytecode of the guest: nothing behind a wall may write it, and compiling is slow."""
    compileall.compile_dir(OUTSIDE / "guest", quiet=2)


def python_arguments(python: str, inside: str, program: str) -> list[str]:
    """The command that runs a line of Python with the package `guest`, whose name there is `coderoom_guest`.

    `inside` is the folder that `guest` is in when it starts.
    """
    # With this name, no module of the code can be mistaken for the package.
    name = "coderoom_guest"
    package = f"sys.modules[{name!r}] = type(sys)({name!r}); sys.modules[{name!r}].__path__ = [{inside + '/guest'!r}]"
    text = f"import sys; {package}; {program}"
    # Isolated and without `site`: no installed package runs before the wall is finished.
    return [python, "-I", "-S", "-B", "-c", text]


def copy_for_all(source: Path, folder: Path) -> Path:
    """Copy a folder of Python files into another one, so that every user of this machine can read it."""
    copy = folder / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder, copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


def identity_to_become() -> tuple[int, int] | None:
    """The user and group that a worker of root becomes, who own nothing; `None` where the host is not root.

    Root of a user namespace is an ordinary user for the kernel.
    """
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(OSError, ValueError):
        first, outside, count = Path("/proc/self/uid_map").read_text(encoding="ascii").split()[:3]
        if (int(first), int(outside)) != (0, 0) or int(count) < 1 << 31:
            return None
    number = 0x70000000 + secrets.randbelow(0x0FFFFFFF)
    return number, number


def owner_of(folder: Path) -> tuple[int, int]:
    """The user and the group of a folder."""
    status = folder.stat()
    return status.st_uid, status.st_gid


def with_own_places(env: Mapping[str, str], temporary: str, workspace: str) -> dict[str, str]:
    """The environment of a worker whose `/tmp` and `/workspace` are elsewhere: values that name them are changed."""
    places = {"/tmp": temporary, "/workspace": workspace}
    place = re.compile(r"\A/(tmp|workspace)(?=/|\Z)")
    moved = {name: place.sub(lambda found: places[found[0]], value) for name, value in env.items()}
    return {"TMPDIR": temporary, **moved}


@dataclass(frozen=True)
class Facts:
    """What a probe found: why the wall cannot be built, why a room can have no namespaces, why idmaps do not work.

    An empty text: it works, or is not needed.
    """

    error: str = ""
    nested: str = ""
    idmap: str = ""


class ProbedWall(ABC):
    """A wall of this machine, probed once, before its first worker starts, by building it around a tiny program."""

    name: ClassVar[str]
    # Whether the worker's interpreter is one of this machine.
    local: ClassVar[bool] = True
    # Whether code sees a file tree of its own, where `Layout.symlinks` are.
    has_tree: ClassVar[bool] = False
    # The worker's source text; see `python_arguments`.
    program: str = "from coderoom_guest.main import main; main(CONTROL)"
    # Whether each file system of a workspace needs a probe.
    by_file_system: ClassVar[bool] = False
    _known: ClassVar[dict[tuple[str, Path | None, int], Facts]] = {}

    async def probe(self) -> WallReport:
        """Try whether this wall can be built here, which takes a few seconds at most.

        Raises:
            RequestError: The interpreter that `CODEROOM_PYTHON` names cannot be used.
        """
        try:
            facts = await self._facts(None)
            if not facts.error:
                detail, remedy = self.describe(facts)
                return WallReport(self.name, available=True, detail=detail, remedy=remedy)
            return WallReport(self.name, available=False, detail=facts.error, remedy=self.remedy())
        except SandboxUnavailable as error:  # It was there when it was probed first.
            return WallReport(self.name, available=False, detail=str(error), remedy=self.remedy())
        except RequestError:  # No wall works with this interpreter.
            raise
        except Exception as error:
            return WallReport(self.name, available=False, detail=f"{type(error).__name__}: {error}")

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse options, since there are none."""
        if options:
            raise RequestError(f"The wall {cls.name!r} has no options, but got {', '.join(map(repr, options))}.")

    async def start(self, spec: SandboxConfig) -> LocalWorker:
        """Start a worker behind the wall; `spec.env` is its whole environment.

        Raises:
            SandboxUnavailable: The wall cannot be built; the message says why and what to do.
            RequestError: An option is wrong.
        """
        self.check_options(spec.options)
        facts = await self._facts(spec.workspace, spec.python)
        if facts.error:
            raise SandboxUnavailable(f"The wall {self.name!r} cannot be built: {facts.error} {self.remedy()}".strip())
        return await self._launch(spec, self.program, facts)

    @abstractmethod
    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        """How to start a line of Python behind the wall; what is made for it is undone by `tidying`."""

    @abstractmethod
    def describe(self, facts: Facts) -> tuple[str, str]:
        """How the wall is built here, and what would make it stronger."""

    def remedy(self) -> str:
        """What would make the wall available."""
        return ""

    async def _launch(self, spec: SandboxConfig, program: str, facts: Facts) -> LocalWorker:
        """Start a line of Python behind the wall; in it, `CONTROL` is the descriptor of the control socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as tidying, contextlib.ExitStack() as unwind:
            unwind.callback(ours.close)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CONTROL_BUFFER)
            start = await self.prepare(spec, f"CONTROL = {theirs.fileno()}; {program}", facts, tidying)
            worker = LocalWorker(ours, start)
            try:
                await worker.start(theirs.fileno())
            except OSError as error:
                raise SandboxUnavailable(f"{start.argv[0]!r} cannot be started: {error}.") from error
            finally:
                for fd in start.fds:
                    os.close(fd)
            unwind.pop_all()
            worker.tidying = tidying.pop_all()
        return worker

    async def _facts(self, workspace: Path | None, python: Path | None = None) -> Facts:
        device = 0
        if self.by_file_system and workspace is not None and identity_to_become() is not None:
            device = (await asyncio.to_thread(_status, workspace)).st_dev
        key = (self.name, python, device)
        facts = self._known.get(key)
        if facts is None:
            facts = await self._try(workspace if device else None, python, Facts())
            if not facts.error:  # What is missing may be installed later.
                self._known[key] = facts
        return facts

    async def _try(self, workspace: Path | None, python: Path | None, facts: Facts) -> Facts:
        with tempfile.TemporaryDirectory(prefix="coderoom-probe-") as folder:
            place = workspace or Path(folder)
            spec = SandboxConfig(workspace=place, network=False, env={}, limits=Limits(), python=python)
            try:
                worker = await self._launch(spec, _PROBE, facts)
            except (SandboxUnavailable, OSError) as error:
                return Facts(error=str(error))
            try:
                answer = await _ask(worker)
            except OSError as error:
                said = await asyncio.to_thread(worker.describe_death)
                return Facts(error=said if isinstance(error, ConnectionError) else f"{error} {said}")
            finally:
                await worker.end()
        if "idmap" in answer and not facts.idmap:
            return await self._try(workspace, python, Facts(idmap=str(answer["idmap"])))
        return Facts(str(answer.get("error", "")), str(answer.get("nested", "")), facts.idmap)


def _status(workspace: Path) -> os.stat_result:
    try:
        return workspace.stat()
    except OSError as error:
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {error.strerror}.") from error


async def _ask(worker: LocalWorker) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    worker.control.setblocking(False)
    question = {"boot": worker.boot, "nest": worker.boot["rooms"] == "namespaces"}
    await loop.sock_sendall(worker.control, json.dumps(question).encode())
    try:
        async with asyncio.timeout(_PATIENCE):
            said = await loop.sock_recv(worker.control, _LARGEST_ANSWER)
    except TimeoutError:
        raise OSError(f"It did not answer within {_PATIENCE:g} seconds.") from None
    if not said:
        raise ConnectionError("It ended at once.")
    answer = json.loads(said)
    if not isinstance(answer, dict):
        raise OSError("It answered nonsense.")
    return answer


class NoWall(ProbedWall):
    """No isolation, for trusted code: the worker is an ordinary process with its own environment and limits."""

    name = "none"

    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        """See `ProbedWall.prepare`."""
        interpreter = await asyncio.to_thread(Interpreter.of, spec.python, None)
        scratch = str(temporary_folder())
        tidying.callback(remove_folder, Path(scratch))
        workspace = scratch if spec.workspace is None else str(spec.workspace)
        modules = [] if spec.node_modules is None else [str(spec.node_modules / ".bin")]
        active = [] if spec.environment is None else [str(spec.environment / "bin")]
        boot = {
            "environment": _environment(spec.env, scratch, workspace),
            "workspace": workspace,
            "scratch": scratch,
            "private": scratch,
            "packages": interpreter.packages,
            "programs": [*active, str(Path(interpreter.executable).parent), *modules],
            "rooms": "plain",
            "supervised": True,
            "keep_privileges": True,
            "lockdown": {"use_seccomp": False, "local_sockets": True},
        }
        return Start(python_arguments(interpreter.executable, str(OUTSIDE), program), boot)

    def describe(self, facts: Facts) -> tuple[str, str]:
        """See `ProbedWall.describe`."""
        return "no wall: code can do whatever the user who starts it can do.", ""


def _environment(env: Mapping[str, str], scratch: str, workspace: str) -> dict[str, str]:
    """The environment of a worker that sees the host's `/tmp`: only default values must not name it."""
    moved = {name: value for name, value in env.items() if not value.startswith("/tmp") or DEFAULTS.get(name) == value}
    return {**env, **with_own_places(moved, scratch, workspace)}
