"""The runner: the process that runs the cells of a session, and sends the host their results.

`engines/cpython/room.py` has the host's side, a `Runner` too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from . import connections, ending, forks, notebooks, relocating, reopening, starting
from .files import Pictures
from .fork_server import ForkServer
from .frames import CONTENT, LAST, Channel
from .functions import Functions
from .imports import when_imported
from .interpreter import Interpreter
from .isolation import landlock, linux
from .streams import Streams, keep_input, null_input

RESERVED_FILES = 16
"""How many descriptors a runner may have besides those of the code."""
LEAST_FILES = 32
"""The least that a sandbox takes as its limit `open_files`."""
_KINDS = (linux.CLONE_NEWUSER, linux.CLONE_NEWPID, linux.CLONE_NEWNS, linux.CLONE_NEWIPC, linux.CLONE_NEWNET)


class Runner:
    """Runs cells until the host closes the channel.

    It is made in the worker, so that a fork has little left to do. Its descriptors have fixed numbers above all those
    that the code's files can get, so that code that closes or writes to low numbers at random does not hit them.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        lowest = config["limits"]["open_files"]
        self._config = config
        self._places = list(range(lowest, lowest + 3))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < lowest + RESERVED_FILES:
            fits = hard - RESERVED_FILES
            raise OSError(
                "the hard limit on open files here (`ulimit -Hn`) is %d, and the sandbox needs %d: raise it"
                % (hard, lowest + RESERVED_FILES)
                + (", or set the limit open_files of the sandbox to at most %d" % fits if fits >= LEAST_FILES else "")
            )
        _allow_files(lowest + RESERVED_FILES)
        kind = (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket.socket(*kind) as unused:
            for place in self._places:  # Reserves the numbers.
                os.dup2(unused.fileno(), place, inheritable=False)
        self._arrivals = select.poll()
        self._arrivals.register(self._places[0], select.POLLIN)
        self._channel = Channel(socket.socket(*kind, 0, fileno=self._places[0]))
        self._streams = Streams(self._channel, self._places[1:])
        self._interpreter = Interpreter(config)
        pictures = Pictures(lambda: self._interpreter.files.folder, self._tell_shown)
        if config.get("bundles"):
            from .bundles import Bundles

            pictures = Bundles(self._send_shown)
            self._interpreter.is_notebook = True
        self._interpreter.at_end = pictures.save
        if config.get("describe_tables"):
            from . import tables

            tables.install()
            self._interpreter.to_text = pictures.to_text = tables.to_text
        when_imported("asyncio", self._interpreter.loop.adapt)
        notebooks.install(pictures.display)
        locked = config["lockdown"]
        starting.install()
        connections.install(has_sockets=bool(locked.get("local_sockets")) or not locked.get("use_seccomp", True))
        self._functions = Functions(self._channel, self._interpreter.names, config["limits"])
        self._running = False
        self._pid = 0
        self._most_processes = (0, 0)
        self._folders = [config["workspace"], "/tmp"]
        self._shared = [] if config["workspace_in_memory"] else [config["workspace"]]
        self._readable = locked.get("read") or [f"/{name}" for name in os.listdir("/") if name != "tmp"]
        self._preloaded = ""
        self._opened: list[reopening.Opened] = []  # When the state was kept for forks.
        self._forks: list[int] = []  # The checkpoints that this process has made, until they have ended.
        null_input()
        sys.path[:0] = ["", config["workspace"]]  # Its current folder too, as in Jupyter.

    def move_to(self, folders: list[str]) -> None:
        """Use other folders as the workspace and for temporary files; called before any code runs."""
        workspace = folders[0]
        sys.path[sys.path.index(self._config["workspace"])] = workspace
        self._use_folders(folders)

    def _use_folders(self, folders: list[str]) -> None:
        self._folders = folders
        self._config = {**self._config, "workspace": folders[0]}
        self._interpreter.files.folder = folders[0]

    def be_in_fork(self) -> None:
        """Use a workspace in memory: the host cannot read it."""
        self._interpreter.files.bring = True

    def leave_fork(self) -> None:
        """Use the workspace of the first session."""
        self._interpreter.files.bring = self._config["bring_files"]

    def prepare(self) -> None:
        """Set up the room's supervisor, so that its forks need not do it."""
        self._preloaded = next(reversed(sys.modules))
        _allow_files(self._places[0])
        os.chdir(self._config["workspace"])
        signal.signal(signal.SIGINT, self._interrupt)
        self._streams.install()

    def connect(self, fds: list[int]) -> None:
        """Use these descriptors as the channel and as the pipes for standard output and error."""
        _allow_files(self._places[-1] + 1)
        for fd, place in zip(fds, self._places):  # noqa: B905 (Python 3.8)
            os.dup2(fd, place, inheritable=False)
        _allow_files(self._places[0])
        os.dup2(fds[1], 1)
        os.dup2(fds[2], 2)

    def check_connection(self) -> None:
        """Check and restore the descriptors, whose state earlier processes with the same ones may have changed."""
        for place in self._places:
            fcntl.fcntl(place, fcntl.F_SETFL, 0)  # Blocking, and without signals.
        if self._arrivals.poll(0):
            raise OSError(errno.EPIPE, "the channel was shut down, or something was left in it")

    def start(self, key: str, lock: Callable[[], None], hurry: bool) -> None:
        """Lock this process down and run cells; never returns. `hurry`: the first one waits already."""
        os.setsid()
        self._channel.key = bytes.fromhex(key)
        try:
            forks.after_fork()
            lock()
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
        except Exception as error:
            self._channel.send({"event": "failed", "error": f"{type(error).__name__}: {error}"})
            os._exit(1)
        self.serve(hurry)

    def serve(self, hurry: bool = False) -> None:
        """Answer requests; never returns."""
        self._pid = os.getpid()
        self._functions.attach()
        self._interpreter.warm_up(hurry)
        self._channel.send_text(LAST, b'{"event":"ready","pid":%d}' % self._pid)
        while True:
            request = self._functions.receive()
            if request is None:
                os._exit(0)
            message, fds = request
            if message["op"] == "cell":
                self._cell(message, fds)
            elif message["op"] == "functions":
                self._functions.offer(message["offers"])
            elif message["op"] == "checkpoint":
                self._checkpoint(fds[0], message["places"])
            elif message["op"] == "move":
                self._move(fds[0])

    def _tell_shown(self, name: str) -> None:
        """Tell the host that a file is shown here, after what was printed before."""
        self._streams.flush()
        self._channel.send({"event": "shown", "name": name})

    def _send_shown(self, data: dict[str, Any], main: bool) -> None:
        """Send what is shown here, after what was printed before."""
        self._streams.flush()
        self._channel.send({"event": "bundle", "data": data, "main": main})

    def _interrupt(self, *_: Any) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _cell(self, message: dict[str, Any], fds: list[int]) -> None:
        self._functions.begin_cell()
        if fds:
            self._streams.use_pipes(fds[0])
        else:
            keep_input()
        if message.get("added"):
            from .magics import use_packages  # Rarely used.

            use_packages(**message["added"])
        self._running = True
        try:
            answer = self._interpreter.run(message, self._functions.not_awaited)
        except KeyboardInterrupt:  # Interrupted after the code had ended.
            answer = {"outcome": "error", "exit_code": 130}
        finally:
            self._running = False
        if os.getpid() != self._pid:  # This is a fork that the code has made and not ended.
            self._streams.flush_text()
            os._exit(answer["exit_code"] & 0xFF)
        self._streams.flush()
        if fds and not message.get("final"):
            null_input()
            self._streams.install()
        answer["threads"] = 1 + forks.threads()
        for content in self._interpreter.contents:
            self._channel.send_text(CONTENT, content)
        self._functions.end_cell({"event": "done", "id": message["id"], **answer})
        if message.get("final"):
            os._exit(answer["exit_code"] & 0xFF)

    def _checkpoint(self, fd: int, places: int) -> None:
        self._streams.flush()
        ending.flush_files()  # Threads may have written; two processes would write it twice.
        self._forks = [pid for pid in self._forks if not _has_ended(pid)]
        try:
            # So that a checkpoint does not count as one of the code's processes.
            soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            if soft != hard:
                resource.setrlimit(resource.RLIMIT_NPROC, (min(soft + places, hard), hard))
            pid = forks.fork()
        except OSError as error:
            with socket.socket(fileno=fd) as sock:
                Channel(sock, self._channel.key).send({"event": "failed", "error": str(error)})
            return
        if pid:
            self._forks.append(pid)
            os.close(fd)
            return
        control = Channel(socket.socket(fileno=fd), self._channel.key)
        null = os.open(os.devnull, os.O_RDWR)
        _allow_files(self._places[-1] + 1)
        for place in (1, 2, *self._places):
            os.dup2(null, place, inheritable=place < 3)
        os.close(null)
        if places > 1:  # For forks, whose processes the kernel counts among those of this room.
            self._most_processes = resource.getrlimit(resource.RLIMIT_NPROC)
            resource.setrlimit(resource.RLIMIT_NPROC, (self._most_processes[1], self._most_processes[1]))
            # The places in open files are shared with the session that goes on.
            self._opened = reopening.opened_below(self._folders)
        control.send({"event": "holding", "pid": os.getpid()})
        ForkServer(control, {"run": self._resume, "enter": self._enter, "part": self._part}).serve()
        os._exit(0)

    def _resume(self, message: dict[str, Any], fds: list[int]) -> None:
        self._channel.key = bytes.fromhex(message["key"])
        self.connect(fds)
        for fd in fds:
            os.close(fd)
        self.serve()

    def _enter(self, message: dict[str, Any], fds: list[int]) -> None:
        """Continue in another room, whose namespaces are the last descriptors; a fork of this process does."""
        self._channel.key = bytes.fromhex(message["key"])
        self.connect(fds[:3])
        here = os.getcwd()
        processes = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC)
        for fd, kind in zip(fds[3:], _KINDS):  # noqa: B905 (Python 3.8)
            linux.libc("setns", fd, kind)
        for fd in fds:
            os.close(fd)
        if forks.fork():
            os._exit(0)
        # By its number in the first room, whose supervisor is its parent as soon as this process's has ended.
        self._channel.send({"event": "entered", "pid": int(os.readlink("self", dir_fd=processes))})
        os.close(processes)
        linux.keep_capabilities()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        os.setsid()
        with contextlib.suppress(OSError):  # Abstract sockets of other forks have the same rules so far.
            landlock.prepare(["/"], ["/", *landlock.TERMINALS]).enforce()
        resource.setrlimit(resource.RLIMIT_NPROC, self._most_processes)
        self.be_in_fork()
        reopening.reopen(self._opened, {})
        with contextlib.suppress(OSError):
            os.chdir(here)
        if message["reseed"]:
            forks.reseed()
        self.serve()

    def _part(self, message: dict[str, Any], fds: list[int]) -> None:
        """Keep the state for one fork in a room without namespaces; a fork of this process does.

        All processes of the fork's state will be below that one, which the supervisor of this room gets as its child
        and does not count among its own.
        """
        control = Channel(socket.socket(fileno=os.dup(fds[0])), bytes.fromhex(message["key"]))
        if forks.fork():
            os._exit(0)
        os.close(fds[0])
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        os.setsid()
        control.send({"event": "holding", "pid": os.getpid()})
        ForkServer(control, {"run": self._settle}).serve()
        os._exit(0)

    def _settle(self, message: dict[str, Any], fds: list[int]) -> None:
        """Continue in the folders of a fork's room."""
        self._channel.key = bytes.fromhex(message["key"])
        self.connect(fds)
        for fd in fds:
            os.close(fd)
        here = self._here()
        os.setsid()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        locked, folders = self._config["lockdown"], message["folders"]
        if locked.get("use_seccomp", True):
            # Of the files of other forks it knows no path, and those of the first session are out of its reach, but for
            # the workspace that is this one's if the session becomes this fork.
            write = [*folders, message["forks"], *self._shared]
            free = locked.get("read") is None or self._config["internet_sockets"]
            rules = landlock.prepare(self._readable, write, free)
            if rules.abi < landlock.WITH_SCOPES:
                why = "Landlock does not keep it from the processes of others here"
                self._channel.send({"event": "failed", "error": why})
                os._exit(1)
            rules.enforce()
        self.be_in_fork()
        self._relocate(folders, self._opened, here)
        if message["reseed"]:
            forks.reseed()
        self.serve()

    def _here(self) -> str:
        try:
            return os.getcwd()
        except OSError:  # It was removed.
            return str(self._config["workspace"])

    def _relocate(self, folders: list[str], opened: list[reopening.Opened], here: str) -> None:
        moves = {old: new for old, new in zip(self._folders, folders) if old != new}  # noqa: B905 (Python 3.8)
        self._use_folders(folders)
        if moves:
            relocating.relocate(moves, self._preloaded)
        reopening.reopen(opened, moves)
        for folder in (folders[0], relocating.relocated(here, moves)):
            with contextlib.suppress(OSError):
                os.chdir(folder)

    def _move(self, fd: int) -> None:
        """Go on in the workspace that the host puts in the place of this one; what is open here is opened there."""
        workspace = self._config["workspace"]
        with socket.socket(fileno=fd) as sock:
            control = Channel(sock, self._channel.key)
            opened = [each for each in reopening.opened_below([workspace]) if os.fstat(each.fd).st_nlink]
            here = self._here()
            control.send({"event": "leaving"})
            request = control.receive()
            if request is None:  # All stays as it is.
                return
            self.leave_fork()
            self._relocate([request[0].get("workspace", workspace), self._folders[1]], opened, here)
            control.send({"event": "arrived"})


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; if so, it is no longer a zombie, which would count as a process."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _allow_files(count: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard))
