"""Several processes that serve at one socket: `coderoom sandbox serve --workers N`.

The supervisor forks them, starts another one for each that ends, and ends them. They find each other by Unix sockets in
a folder; see `peers`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import SandboxUnavailable
from coderoom.integrations.http import serve_sockets
from coderoom.integrations.service.peers import FolderAddresses, Peers, new_owner
from coderoom.integrations.service.server import SandboxServer
from coderoom.integrations.service.tenants import Tenant
from coderoom.integrations.service.usage import Usage

_SIGNALS: Final = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
_LOOK_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 1.0  # Before a worker that has ended at once is started again.
_KILL_SECONDS: Final = 20.0  # So long a worker may take to end its sandboxes.


class Workers:
    """The supervisor of the workers.

    Args:
        make: Makes the server of a worker: with its peers, and its number.
        count: How many workers.
        tenants: Those whose limits hold for all workers together.
        drain_seconds: How long what runs may take to its end at SIGTERM.
        around: The context in which a worker serves.
    """

    def __init__(
        self,
        make: Callable[[Peers, int], SandboxServer],
        count: int,
        tenants: Sequence[Tenant],
        drain_seconds: float,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._make = make
        self._count = count
        self._tenants = tenants
        for each in tenants:
            each.usage = Usage(count)
        self._drain_seconds = drain_seconds
        self._around = around
        self._secret = secrets.token_urlsafe(32)
        self._running: dict[int, tuple[int, str, float]] = {}  # Number, owner and start, by process ids.
        self._lifeline = os.pipe()  # It ends with the supervisor.

    def serve(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            SandboxUnavailable: A worker has ended before it could serve.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        folder = temporary_folder()
        asked, ends = 0, float("inf")
        try:
            started, starting = os.pipe()
            for number in range(self._count):
                self._start(number, listener, folder, starting)
            os.close(starting)
            left = self._count
            while left and os.read(started, 1):  # It ends when all workers have closed it.
                left -= 1
            os.close(started)
            if left:
                raise SandboxUnavailable("A worker of the server has ended at its start.")
            ready()
            while self._running or not asked:
                info = signal.sigtimedwait(_SIGNALS, _LOOK_SECONDS)
                if info is not None and info.si_signo != signal.SIGCHLD:
                    asked = info.si_signo
                    ends = min(ends, time.monotonic() + self._drain_seconds * (asked == signal.SIGTERM) + _KILL_SECONDS)
                    self._signal(asked)
                for number in self._ended(folder):
                    if not asked:
                        self._start(number, listener, folder)
                if time.monotonic() > ends:
                    self._signal(signal.SIGKILL)
            if asked == signal.SIGINT:
                raise KeyboardInterrupt
        finally:
            self._signal(signal.SIGKILL)
            for pid in self._running:
                os.waitpid(pid, 0)
            listener.close()
            remove_folder(folder)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, number: int, listener: socket.socket, folder: Path, started: int | None = None) -> None:
        owner = new_owner()
        own = socket.socket(socket.AF_UNIX)
        own.bind(str(folder / owner))
        own.listen()
        pid = os.fork()
        if pid:
            own.close()
            self._running[pid] = number, owner, time.monotonic()
            return
        status = 1
        try:
            os.close(self._lifeline[1])
            os.setsid()  # A terminal's signals are passed on, and the kernel may share processor time by sessions.
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Until it serves.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            with self._around():
                asyncio.run(self._work(number, owner, [listener, own], folder, started))
            status = 0
        except KeyboardInterrupt:
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(status)

    async def _work(
        self, number: int, owner: str, sockets: list[socket.socket], folder: Path, started: int | None
    ) -> None:
        def orphaned() -> None:
            loop.remove_reader(self._lifeline[0])
            os.kill(os.getpid(), signal.SIGINT)

        for each in self._tenants:
            each.usage.count_as(number)
        server = self._make(Peers(owner, FolderAddresses(folder), self._secret), number)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._lifeline[0], orphaned)
        if started is not None:
            os.write(started, b".")
            os.close(started)
        await serve_sockets(server.app, sockets, server, self._drain_seconds)

    def _ended(self, folder: Path) -> list[int]:
        """The numbers of the workers that have ended."""
        found = []
        for pid, (number, owner, since) in list(self._running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._running[pid]
                (folder / owner).unlink(missing_ok=True)
                for each in self._tenants:
                    each.usage.forget(number)
                found.append(number)
                if time.monotonic() - since < _PAUSE_SECONDS:
                    time.sleep(_PAUSE_SECONDS)
        return found

    def _signal(self, number: int) -> None:
        for pid in self._running:
            os.kill(pid, number)
