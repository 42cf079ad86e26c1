"""A process that keeps an interpreter state, forks it on request, and reports how the forks ended.

A room's supervisor is one, with the fresh state. A checkpoint is another, with the state that the session had. Each
answers the same requests on its own control socket; `ForkServerClient` is the host's side.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any, Callable, Dict, List

from .forks import fork
from .frames import Channel
from .isolation import linux
from .programs import is_missing

Start = Callable[[Dict[str, Any], List[int]], None]

_LOWEST, _HIGHEST = 0.05, 0.5
_MOMENT = 1  # Milliseconds.

# Python 3.8 has no function for it.
_open_pid: Callable[[int], int] = getattr(os, "pidfd_open", lambda pid: linux.syscall("pidfd_open", pid, 0))


class ForkServer:
    """Forks its process on request.

    `starts` has the functions that a fork calls, by the request's `op`, with the request and its descriptors.
    """

    def __init__(self, control: Channel, starts: dict[str, Start]) -> None:
        self.control = control
        self._starts = starts
        self.children: dict[int, tuple[int, int]] = {}  # Those that have not ended: pid -> number of the request, pidfd
        self.programs: set[int] = set()  # Those of them that wait for a program: this package's code only.
        self.started: set[int] = set()  # Those of them that are programs.
        self._poll = select.poll()

    def serve(self) -> None:
        """Answer requests until the other side closes the control socket."""
        control = self.control.sock.fileno()
        self._poll.register(control, select.POLLIN)
        pause = _LOWEST
        while True:
            ready = [fd for fd, _ in self._poll.poll(pause * 1000)]
            if control in ready:
                request = self.control.receive()
                if request is None:
                    return
                self._answer(*request)
                pause = _LOWEST
            if ready != [control]:
                self._reap()
            if not ready:
                pause = _LOWEST if self.watch() else min(pause * 2, _HIGHEST)

    def watch(self) -> bool:
        """Check the forks while there are no requests; return whether they use processor time."""
        return False

    def handle(self, message: dict[str, Any], fds: list[int]) -> None:
        """Answer a request that does not ask for a fork."""

    def prepare_fork(self, message: dict[str, Any], fds: list[int]) -> None:
        """Prepare this process for a fork."""

    def _answer(self, message: dict[str, Any], fds: list[int]) -> None:
        start = self._starts.get(message["op"])
        if start is None:
            self.handle(message, fds)
        else:
            self.prepare_fork(message, fds)
            self._fork(start, message, fds)
        for fd in fds:
            os.close(fd)

    def _fork(self, start: Start, message: dict[str, Any], fds: list[int]) -> None:
        if any(map(is_missing, message.get("needs", ()))):
            self.control.send({"event": "ended", "id": message["id"], "missing": True})
            return
        try:
            pid = fork()
        except OSError as error:
            self.control.send({"event": "ended", "id": message["id"], "fork": str(error)})
            return
        if pid:
            self.watch_for_end(pid, message["id"])
            if message["op"] == "exec":
                self.programs.add(pid)
            elif message["op"] == "start":
                self.started.add(pid)
            return
        status = 1
        try:
            self.control.close()
            for _, pidfd in self.children.values():
                os.close(pidfd)
            start(message, fds)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def watch_for_end(self, pid: int, number: int) -> None:
        """Report the end of a child as that of the fork that a request has asked for."""
        pidfd = _open_pid(pid)
        self.children[pid] = (number, pidfd)
        self._poll.register(pidfd, select.POLLIN)

    def _reap(self) -> None:
        """Collect the processes that have ended, adopted orphans included, and report those that are forks."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number, pidfd = self.children.pop(pid, (0, -1))
            self.programs.discard(pid)
            self.started.discard(pid)
            if pidfd >= 0:
                self._poll.unregister(pidfd)
                os.close(pidfd)
            if not number:
                continue
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self.control.send({"event": "ended", "id": number, "status": code, "peak": usage.ru_maxrss * 1024})

    def forget_forks(self) -> None:
        """Do not report the ends of the current forks."""
        self.children = {pid: (0, pidfd) for pid, (_, pidfd) in self.children.items()}

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Collect ended processes until a condition is met; return whether it was met within some seconds."""
        end = time.monotonic() + seconds
        while True:
            self._reap()
            if condition():
                return True
            if time.monotonic() > end:
                return False
            poll = select.poll()
            for _, pidfd in self.children.values():
                poll.register(pidfd, select.POLLIN)
            poll.poll(_MOMENT)
