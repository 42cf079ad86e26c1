"""The supervisor of a room: forks its runners, enforces limits on all processes together, and ends them.

A fork of the worker; `Room` is the host's side.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
from collections.abc import Sequence
from typing import Any

from . import folders, processes, relay
from .fork_server import ForkServer
from .frames import Channel, send_packet
from .isolation import landlock, linux, lockdown
from .processes import Disk, is_of_fork, status_of
from .programs import run_program, start_program
from .runner import RESERVED_FILES, Runner

_SECONDS_TO_END = 5.0
_MOST_TRIES = 12
_MOST_ENTRIES = 1000
_OF_A_FORK = 2
_OWN_PROCESSES = 8  # The supervisor and its runners; each checkpoint is one more.


class RoomSupervisor(ForkServer):
    """The first process of a room, and the parent of the others; `nested` if the room has namespaces of its own.

    With `is_fork`, a process of another room enters this one, whose supervisor stays its parent.
    """

    def __init__(
        self, control: Channel, config: dict[str, Any], nested: bool, runner: Runner, is_fork: bool = False
    ) -> None:
        super().__init__(control, {"run": self._run, "exec": self._exec, "start": self._start, "relay": self._relay})
        if is_fork:  # With the files, which are a copy in memory.
            config = {**config, "workspace_in_memory": True}
            runner.be_in_fork()
        if not nested:
            runner.move_to(config["folders"])
        self._config = config
        self._runner = runner
        self._processes = processes.Processes(nested)
        self._limits_of = config["limits"]
        self._cpu = 0.0  # At the last look, in seconds.
        self._kept: list[int] = []  # The checkpoints' process ids.
        self._apart: list[int] = []  # Those of them that forks will be made of, and that are not the session's own.
        self._entering = 0  # How many processes are on their way to forks.
        self._cpu_before: float | None = None  # At the start of the cell; `None`: no cell with a limit runs.
        self._own_disk = nested and config["workspace_in_memory"]
        self._disk = Disk(self._config["workspace"], self._limits_of["disk_bytes"])
        runner.prepare()
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        # Other processes in the room must not read this one's memory or environment.
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        self._lockdown = self._prepared_lockdown()
        self._locks_each = is_fork or not nested
        if self._locks_each:
            # Landlock would keep this one from signals to the process that enters, which is locked down already.
            self._lockdown.settle()
            linux.keep_capabilities()
        else:
            # Its forks inherit this, which is faster than locking down each of them.
            self._lockdown.apply()
        facts = {} if nested else {"folders": config["folders"], "forks": folders.forks_of(config)}
        control.send({"event": "room", **facts})

    def serve(self) -> None:
        """Answer requests until the host closes the room; then end what is left in it."""
        try:
            super().serve()
        finally:
            if not self._processes.nested:  # Otherwise the kernel ends all processes of the namespace.
                for _ in range(_MOST_TRIES):
                    if self._end_all([]):
                        break
                self._processes.end_joined()
                with contextlib.suppress(OSError):  # Code has moved it. What is left is removed with the first room's.
                    folders.remove_folder(self._config["own"], self._config["scratch"])

    def handle(self, message: dict[str, Any], fds: list[int]) -> None:
        """Answer a request that does not ask for a fork."""
        op = message["op"]
        if op == "kill":
            self._end_all(message["keep"])
            self.control.send({"event": "killed"})
        elif op == "keep":  # The session's checkpoints, which outlive the processes that are ended at a limit.
            released = set(self._kept).difference(message["pids"])
            self._kept, self._apart, self._entering = message["pids"], message["apart"], message["entering"]
            if released:  # One that takes its time to end would count as a process of the code's.
                self.wait_for(lambda: self._processes.end(released), _SECONDS_TO_END)
        elif op == "interrupt":
            self._processes.interrupt(message["keep"])
        elif op == "signal":
            for pid, (number, _) in self.children.items():
                if number == message["id"]:
                    processes.signal_group(pid, message["number"])
        elif op == "look":
            cpu = self._use().cpu
            self.control.send({"event": message["answer"], "busy": self._processes.busy(), "cpu_ms": int(cpu * 1000)})
        elif op == "cell":  # A cell begins, with a limit on its processor time.
            self._cpu_before = self._use().cpu
        elif op == "hand":
            self._processes.has_forks = self._processes.has_forks or message["forks"]
            self._hand_over(fds[0])
            self.control.send({"event": "handed"})
        elif op == "adopt":
            self._adopt(message["pid"], message["id"])
        elif op == "leave":
            known = self._is_mine(message["pid"])
            if known:
                self._processes.leave(message["pid"])
            self.control.send({"event": message["answer"], "known": known})
        elif op == "join":
            self._processes.join(message["pid"])
        elif op == "moved":  # The workspace is that of the first session now.
            if not self._processes.nested:
                self._config = folders.in_workspace(self._config, message["workspace"])
                self._runner.move_to(self._config["folders"])
                self._lockdown = self._prepared_lockdown()
                self._lockdown.settle()
            os.chdir(self._config["workspace"])
            self._runner.leave_fork()
            self._disk = Disk(self._config["workspace"], self._limits_of["disk_bytes"])
            self.control.send({"event": "moved"})
        elif op in ("freeze", "thaw"):
            self._processes.signal_all(signal.SIGSTOP if op == "freeze" else signal.SIGCONT, [])
            self.control.send({"event": op})

    def watch(self) -> bool:
        """End the room's processes if together they exceed a limit; return whether they use processor time."""
        use = self._use()
        busy, self._cpu = use.cpu != self._cpu, use.cpu
        limit, own = None, len(self.children) - len(self.started)
        ours = max(own, 1) + len(self._kept) - len(self._apart) + self._entering + len(self._processes.joined())
        if use.memory > self._limits_of["memory_bytes"]:
            limit = "memory"
        elif use.processes > self._limits_of["processes"] + ours:
            limit = "processes"
        elif self._cpu_before is not None and use.cpu - self._cpu_before > self._limits_of["cpu_seconds"]:
            limit, self._cpu_before = "cpu", None
        elif self._disk.is_overdrawn(self._processes.pids, self.programs | {os.getpid()}):
            limit = "disk"
        if limit is not None:
            # An event of its own, since checkpoints report the ends of their own forks.
            self.control.send({"event": "limit", "limit": limit})
            self._end_all(self._kept)
        return busy

    def _use(self) -> processes.Use:
        return self._processes.use(self._limits_of["memory_bytes"], self._apart)

    def _end_all(self, keep: list[int]) -> bool:
        self._processes.signal_all(signal.SIGKILL, keep)
        return self.wait_for(lambda: self._processes.gone(keep), _SECONDS_TO_END)

    def prepare_fork(self, message: dict[str, Any], fds: list[int]) -> None:
        """Prepare this process for a fork. A reset first ends all other processes and empties the room's folders.

        After an error the room must not be used again.
        """
        if message.get("reset"):
            self._kept, self._apart = [], []
            self.forget_forks()
            if not self._end_all([]):  # The room must not be used again.
                raise OSError(errno.EBUSY, "not all of the room's processes could be ended")
            kept = self._config["kept"]
            for path in kept:
                os.lstat(path)  # Code may have moved what it cannot remove.
            for place in self._config["in_memory"]:  # The folders themselves stay: Landlock's rules belong to them.
                os.chmod(place, 0o1777 if place in ("/tmp", "/dev/shm") else 0o755)
                _empty(place, kept)
            if not self._own_disk:  # The room's own disk was just emptied.
                self._disk.remember()
        if message["op"] == "run" and not fds:
            self._runner.check_connection()
        elif message["op"] == "run":
            self._runner.connect(fds)
            for fd in fds:  # `connect` has copied them; the forks must not inherit them twice.
                os.close(fd)
            fds.clear()

    def _run(self, message: dict[str, Any], fds: list[int]) -> None:
        self._runner.start(message["key"], self._lock, message.get("hurry", False))

    def _exec(self, message: dict[str, Any], fds: list[int]) -> None:
        run_program(message, fds, self._config, self._lock if message["address_space"] else self._lock_base)

    def _start(self, message: dict[str, Any], fds: list[int]) -> None:
        start_program(message, fds, self._config, self._lock_base)

    def _relay(self, message: dict[str, Any], fds: list[int]) -> None:
        room = os.getppid()
        relay.serve(fds[0], bytes.fromhex(message["key"]), lambda: self._processes.pids(room))

    def _hand_over(self, fd: int) -> None:
        """Send the host the namespaces of this room, and its folders for files."""
        if self._processes.nested:
            kinds = ("user", "pid", "mnt", "ipc", *(("net",) if self._config["network_per_room"] else ()))
            paths = [*(f"/proc/self/ns/{kind}" for kind in kinds), self._config["workspace"], "/tmp"]
            opened = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        else:
            opened = [folders.open_folder(path, self._config["scratch"]) for path in self._config["folders"]]
        # The host may not wait for them any longer.
        with socket.socket(fileno=os.dup(fd)) as sock, contextlib.suppress(ConnectionError):
            send_packet(sock, b".", opened)
        for each in opened:
            os.close(each)

    def _is_mine(self, pid: int) -> bool:
        """Whether a process is an orphan of this room, and none that this process has started."""
        parents = [str(each) for each in (os.getpid(), *self._processes.joined())]
        return pid not in self.children and status_of(pid).get("PPid") in parents

    def _adopt(self, pid: int, number: int) -> None:
        """Report the end of a process that has entered a fork of this room, if it is one that is locked down."""
        status = status_of(pid)
        rights = {status.get(name, "").strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
        locked = not self._lockdown.lockdown.use_seccomp or status.get("Seccomp") == "2"
        try:
            if pid in self.children or status.get("PPid") != str(os.getpid()) or not is_of_fork(pid):
                raise ProcessLookupError
            if rights != {""} or not locked:
                os.kill(pid, signal.SIGKILL)
            self.watch_for_end(pid, number)
        except OSError:
            self.control.send({"event": "ended", "id": number, "status": -int(signal.SIGKILL), "peak": 0})

    def _prepared_lockdown(self) -> lockdown.Prepared:
        locked = _lockdown(self._config, self._processes.nested)
        with contextlib.ExitStack() as stack:
            if self._config["lockdown"].get("read") is not None:
                opened = [folders.open_folder(path, self._config["scratch"]) for path in locked.write]
                for fd in opened:
                    stack.callback(os.close, fd)
                locked = locked._replace(write=[f"/proc/self/fd/{fd}" for fd in opened])
            return lockdown.Prepared(locked)

    def _lock(self) -> None:
        self._lock_base()
        self._lockdown.bound_address_space()

    def _lock_base(self) -> None:
        if self._locks_each:
            self._lockdown.apply()
        if self._processes.nested and self._lockdown.lockdown.processes is not None:
            # Each checkpoint has raised it by one.
            most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            allowed = self._limits_of["processes"] + _OWN_PROCESSES + len(self._kept)
            resource.setrlimit(resource.RLIMIT_NPROC, (min(allowed, most), most))


def _lockdown(config: dict[str, Any], nested: bool) -> lockdown.Lockdown:
    limits = config["limits"]
    processes = None
    locked = dict(config["lockdown"])
    if locked.get("use_seccomp", True) and locked.get("read") is None:
        # Landlock is used for its scopes: signals and abstract sockets cannot leave the room. And without mounts of its
        # own it keeps code from writing to `/proc`, which has the memory of other processes; see `enter_room`.
        locked["read"] = ["/"]
        locked["write"] = ["/"] if nested else [f"/{name}" for name in os.listdir("/") if name != "proc"]
    if config["terminals"]:
        locked["write"] = [*locked.get("write", ()), *landlock.TERMINALS]
    # Since Linux 5.14, RLIMIT_NPROC counts the processes of a user namespace; before, all of the user.
    major, minor = os.uname().release.split(".")[:2]
    if nested and (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14):
        # For the kernel, those of its forks are among the room's.
        processes = limits["processes"] + _OWN_PROCESSES + config["checkpoints"] + _OF_A_FORK * config["forks"]
    return lockdown.Lockdown(
        network=config["internet_sockets"],
        address_space=False,
        memory_bytes=limits["memory_bytes"],
        open_files=limits["open_files"] + RESERVED_FILES,
        file_bytes=limits["file_bytes"],
        processes=processes,
        forks=nested,
        **locked,
    )


def _empty(folder: str, kept: Sequence[str]) -> None:
    if not os.listdir(folder):
        return
    entries = list(os.scandir(folder))
    if len(entries) > _MOST_ENTRIES:
        raise OSError(errno.E2BIG, "too many files were left behind to remove them")
    for entry in entries:
        if entry.path in kept:
            continue
        if any(path.startswith(entry.path + "/") for path in kept):
            _empty(entry.path, kept)
        elif entry.is_dir(follow_symlinks=False):
            import shutil

            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
