"""The supervisor of a room: forks its runners, watches what they use, and ends everything in the room."""

from __future__ import annotations

import errno
import os
import resource
import signal
from typing import Any

from . import processes
from .disk import Disk
from .fork_server import ForkServer
from .frames import Channel
from .isolation import linux, lockdown
from .isolation.room import empty_folders, own_folders
from .programs import run_program
from .runner import RESERVED_FILES, Runner

__all__ = ["RoomSupervisor"]

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_SECONDS_TO_END = 5.0
_MOST_TRIES = 12
_OWN_PROCESSES = 8  # The supervisor and its runners; besides, each checkpoint that waits is one.


class RoomSupervisor(ForkServer):
    """The first process of a room.

    Args:
        control: The room's control socket.
        config: The worker's configuration.
        nested: Whether the room has namespaces of its own.
        runner: The fresh state.
    """

    def __init__(self, control: Channel, config: dict[str, Any], nested: bool, runner: Runner) -> None:
        super().__init__(control, {"run": self._run, "exec": self._exec})
        if not nested:
            config = own_folders(config)
            runner.move_to(config["workspace"])
        self._config = config
        self._runner = runner
        self._processes = processes.Nested() if nested else processes.Descendants()
        self._limits_of = config["limits"]
        self._cpu = 0.0
        self._kept: list[int] = []
        self._cpu_before: float | None = None
        self._own_disk = nested and config["workspace_in_memory"]
        self._disk = Disk(self._config["workspace"], self._limits_of["disk_bytes"])
        runner.settle()
        linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        # Nobody in the room may look into the memory or the environment of this process.
        linux.prctl(_PR_SET_DUMPABLE, 0)
        self._lockdown = lockdown.prepare(_lockdown(self._config, nested))
        if nested:
            # What this process may not do its forks may not do either, and need not be told each by itself.
            self._lockdown.apply()
        else:
            self._lockdown.settle()
        control.send({"event": "room", "nested": nested, "landlock": self._lockdown.landlock_abi})

    def serve(self) -> None:
        """Answer requests until the host is done with the room; then end what is left in it."""
        try:
            super().serve()
        finally:
            if not self._processes.nested:  # With namespaces the kernel does it all.
                import shutil

                for _ in range(_MOST_TRIES):
                    if self._end_all([]):
                        break
                shutil.rmtree(self._config["own"], ignore_errors=True)

    def handle(self, message: dict[str, Any]) -> None:
        """Answer a request that forks nothing."""
        op = message["op"]
        if op == "kill":
            self._end_all(message["keep"])
            self.control.send({"event": "killed"})
        elif op == "keep":  # The session's checkpoints, which outlive the processes that are ended at a limit.
            released = set(self._kept).difference(message["pids"])
            self._kept = message["pids"]
            if released:  # One that takes its time to end would count as a process of the code's.
                self.wait_for(lambda: self._processes.end(released), _SECONDS_TO_END)
        elif op == "interrupt":
            self._processes.interrupt(message["keep"])
        elif op == "look":
            self.control.send({"event": "looked", "busy": self._processes.busy()})
        elif op == "cell":  # Sent where there is a limit on processor time, which counts from here.
            self._cpu_before = self._processes.use(self._limits_of["memory_bytes"]).cpu
        elif op in ("freeze", "thaw"):
            self._processes.signal_all(signal.SIGSTOP if op == "freeze" else signal.SIGCONT, [])
            self.control.send({"event": op})
        else:
            super().handle(message)

    def watch(self) -> bool:
        """End the room's processes if together they use too much; say whether they are at work."""
        use = self._processes.use(self._limits_of["memory_bytes"])
        busy, self._cpu = use.cpu != self._cpu, use.cpu
        limit = None
        if use.memory > self._limits_of["memory_bytes"]:
            limit = "memory"
        elif use.processes > self._limits_of["processes"] + max(len(self.children), 1) + len(self._kept):
            limit = "processes"
        elif self._cpu_before is not None and use.cpu - self._cpu_before > self._limits_of["cpu_seconds"]:
            limit, self._cpu_before = "cpu", None
        elif self._disk.is_overdrawn(self._processes.pids()):
            limit = "disk"
        if limit is not None:
            # Not all that end are this process's own children.
            self.control.send({"event": "limit", "limit": limit})
            self._end_all(self._kept)
        return busy

    def _end_all(self, keep: list[int]) -> bool:
        self._processes.signal_all(signal.SIGKILL, keep)
        return self.wait_for(lambda: self._processes.gone(keep), _SECONDS_TO_END)

    def prepare_fork(self, message: dict[str, Any], fds: list[int]) -> None:
        """Before a fork for somebody new, end what is left of who was here, and empty the room's folders."""
        if message.get("reset"):
            self._kept = []
            self.forget()
            if not self._end_all([]):  # Nobody else may get this room.
                raise OSError(errno.EBUSY, "not all of the room's processes could be ended")
            empty_folders(self._config)
            if not self._own_disk:  # That has just been emptied.
                self._disk.remember()
        if message["op"] == "run" and not fds:
            self._runner.check_connection()
        elif message["op"] == "run":
            self._runner.connect(fds)
            for fd in fds:  # The forks have them at their fixed places, and must not have them twice.
                os.close(fd)
            fds.clear()

    def _run(self, message: dict[str, Any], fds: list[int]) -> None:
        self._runner.start(message["key"], self._lock)

    def _exec(self, message: dict[str, Any], fds: list[int]) -> None:
        run_program(message, fds, self._config, self._lock if message["address_space"] else self._lock_roomy)

    def _lock(self) -> None:
        self._lock_roomy()
        self._lockdown.bound_address_space()

    def _lock_roomy(self) -> None:
        if not self._processes.nested:
            self._lockdown.apply()
        elif self._lockdown.lockdown.processes is not None:
            # A checkpoint raises it by one, for itself.
            most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            allowed = self._limits_of["processes"] + _OWN_PROCESSES + len(self._kept)
            resource.setrlimit(resource.RLIMIT_NPROC, (min(allowed, most), most))


def _lockdown(config: dict[str, Any], nested: bool) -> lockdown.Lockdown:
    limits = config["limits"]
    processes = None
    locked = dict(config["lockdown"])
    if locked.get("use_seccomp", True) and locked.get("read") is None:
        # For its scopes alone: it keeps a room's signals and abstract sockets in.
        locked["read"] = locked["write"] = ["/"]
    if nested and _counts_by_namespace():
        processes = limits["processes"] + _OWN_PROCESSES + config["checkpoints"]
    return lockdown.Lockdown(
        network=config["network"],
        address_space=False,
        memory_bytes=limits["memory_bytes"],
        open_files=limits["open_files"] + RESERVED_FILES,
        file_bytes=limits["file_bytes"],
        processes=processes,
        **locked,
    )


def _counts_by_namespace() -> bool:
    """Whether a limit on processes counts those of a user namespace, as since Linux 5.14, and not all of the user."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14)
