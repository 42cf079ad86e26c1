"""The processes of a room, and the disk space that it uses; watched by its supervisor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .isolation import linux
from .isolation.boot import SOCKET_BYTES, descendants, read_stat

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted from behind the name.
_PARENT, _THREADS, _BEGAN, _ADDRESSES, _RESIDENT, _STACK = 1, 17, 19, 20, 21, 25
_MOST_ROUNDS = 100
_NOTHING = [b"0"] * (_STACK + 1)

_MOST_FILES = 100_000
_CLOCK_STEP = 0.1  # More seconds than there are between two times that a file system knows.


class Use(NamedTuple):
    """What the processes of a room use together: an estimate of bytes, processes with threads, processor seconds."""

    memory: int
    processes: int
    cpu: float


class Processes:
    """The processes of a room, for its supervisor, which is none of them.

    If they are `nested`, they have a process namespace, and the supervisor is process 1. Otherwise they are the
    supervisor's descendants: it adopts and reaps orphans.

    If the room `has_forks`, their processes are in namespaces inside of that one, and are none of them. Without
    namespaces, what a fork has of its session is below a process that the supervisor of the first room has adopted:
    it `joins` those of the fork's room, and `leaves` those of the first one.
    """

    def __init__(self, nested: bool) -> None:
        self.nested = nested
        self.has_forks = False
        self._joined: dict[int, bytes] = {}  # With when they began: a number may be used again.
        self._left: dict[int, bytes] = {}

    def join(self, pid: int) -> None:
        """Count what is below a process among them, and in sums the process too."""
        self._joined[pid] = _began(pid)

    def leave(self, pid: int) -> None:
        """Do not count a process and what is below it."""
        self._left[pid] = _began(pid)

    def joined(self) -> list[int]:
        """The processes that have joined and still run."""
        return _same(self._joined)

    def end_joined(self) -> None:
        """Kill the processes that have joined, but not what is below them."""
        for pid in self.joined():
            _kill(pid, signal.SIGKILL)

    def pids(self, supervisor: int = 0) -> list[int]:
        """All of them; another process than the supervisor has to say which one that is."""
        if not self.nested:
            return descendants(supervisor or os.getpid(), *self.joined(), without=_same(self._left))
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        return [pid for pid in found if not is_of_fork(pid)] if self.has_forks else found

    def signal_all(self, number: int, keep: list[int]) -> None:
        """Send a signal to all but `keep`; continue those of `keep` that are stopped."""
        if self.nested and not self.has_forks:
            if not keep:
                _kill(-1, number)
                return
            _kill(-1, signal.SIGSTOP)  # A stopped process cannot fork.
        elif number == signal.SIGKILL:
            # Whole groups at once, also while they fork; but not those with processes that stay.
            kept = {_group(pid) for pid in (*keep, os.getpid())}
            for group in {_group(pid) for pid in self.pids()} - kept - {0}:
                signal_group(group, signal.SIGKILL)
            # All others are stopped first: while processes fork, each killed one would make room for another.
            stopped: set[int] = set()
            for _ in range(_MOST_ROUNDS):
                found = set(self.pids()).difference(keep, stopped)
                if not found:
                    break
                for pid in found:
                    _kill(pid, signal.SIGSTOP)
                stopped |= found
        pids = self.pids()
        for pid in pids:
            if pid not in keep:
                _kill(pid, number)
        for pid in pids:
            if pid in keep:
                _kill(pid, signal.SIGCONT)

    def end(self, pids: set[int]) -> bool:
        """Kill some of them; return whether those have ended."""
        left = _living(pids.intersection(self.pids()))
        for pid in left:
            _kill(pid, signal.SIGKILL)
        return not left

    def interrupt(self, keep: list[int]) -> None:
        """Interrupt all but `keep`, as Ctrl-C at a terminal does."""
        for pid in self.pids():
            if pid not in keep:
                _interrupt(pid)

    def busy(self) -> bool:
        """Whether one of them is running or ready to run."""
        return any(_fields(pid)[:1] in ([b"R"], [b"D"]) for pid in self.pids())

    def gone(self, keep: list[int]) -> bool:
        """Whether all but `keep` have ended; kill those that have not."""
        if self.nested and not (keep or self.has_forks):
            return not _kill(-1, signal.SIGKILL)
        left = _living(set(self.pids()).difference(keep))
        if left:
            self.signal_all(signal.SIGKILL, keep)
        return not left

    def use(self, limit: int, apart: Sequence[int] = ()) -> Use:
        """What they use together, without some of them; a sum of memory above the limit is exact."""
        memory = threads = 0
        times = os.times()  # With the children that this process has waited for.
        ticks = int((times.children_user + times.children_system) * _TICKS)
        own = _fields(os.getpid())
        addresses = 0
        pids = [pid for pid in (*self.pids(), *self.joined()) if pid not in apart]
        for pid in pids:
            fields = _fields(pid)
            if not fields:
                continue
            threads += int(fields[_THREADS])
            ticks += sum(map(int, fields[11:15]))  # With the children that it has waited for.
            # A fork shares the supervisor's pages until it writes to them; another program has another stack.
            base = own if fields[_STACK] == own[_STACK] else _NOTHING
            memory += max(int(fields[_RESIDENT]) - int(base[_RESIDENT]), 0) * _PAGE
            addresses += max(int(fields[_ADDRESSES]) - int(base[_ADDRESSES]), 0)
        if memory > limit:
            memory = sum(map(_share, pids))  # Exact, and a hundred times slower.
        if memory <= limit < memory + SOCKET_BYTES * sum(map(_open_files, pids)):
            sockets = SOCKET_BYTES * sum(map(_sockets, pids))
            if memory + sockets > limit:
                memory = sum(map(_share, pids))
            memory += sockets
        if memory <= limit < addresses:
            memory += _shared_without_a_file(pids)
        return Use(memory, threads, ticks / _TICKS)


def _fields(pid: int) -> list[bytes]:
    """The fields of `/proc/PID/stat` after the name; empty if the process has ended."""
    try:
        return read_stat(pid).split()
    except OSError:
        return []


def _began(pid: int) -> bytes:
    return b"".join(_fields(pid)[_BEGAN : _BEGAN + 1])


def _same(pids: dict[int, bytes]) -> list[int]:
    """Those that have not ended; the others are forgotten."""
    for pid, began in list(pids.items()):
        if not began or _began(pid) != began:
            del pids[pid]
    return list(pids)


def is_of_fork(pid: int) -> bool:
    """Whether a process is in a process namespace inside of this one."""
    return len(status_of(pid).get("NSpid", "").split()) > 1


def status_of(pid: int) -> dict[str, str]:
    """The fields of `/proc/PID/status`; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _living(pids: set[int]) -> set[int]:
    # A zombie has ended.
    return {pid for pid in pids if _fields(pid)[:1] not in ([], [b"Z"])}


def _shared_without_a_file(pids: list[int]) -> int:
    """Shared memory without a file: it stays even when a process drops its pages."""
    sizes: dict[bytes, int] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                for line in file:
                    if line.rstrip().endswith(b"/dev/zero (deleted)"):
                        begin, _, end = line.split()[0].partition(b"-")
                        key = line.split()[4]
                        sizes[key] = max(sizes.get(key, 0), int(end, 16) - int(begin, 16))
        except OSError:
            continue
    return sum(sizes.values())


def _open_files(pid: int) -> int:
    """How many files a process has open; before Linux 6.2, the most it can have."""
    try:
        return os.stat(f"/proc/{pid}/fd").st_size or 4096
    except OSError:
        return 0


def _sockets(pid: int) -> int:
    try:
        return sum(os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:") for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _share(pid: int) -> int:
    """The resident memory of a process, with shared pages divided among their users."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        fields = _fields(pid)
        return int(fields[_RESIDENT]) * _PAGE if fields else 0


def _group(pid: int) -> int:
    """The process group of a process; 0 if it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _interrupt(pid: int) -> None:
    """Interrupt the main thread of a process: a signal to another thread would not wake Python."""
    try:
        linux.libc("tgkill", pid, pid, signal.SIGINT)
    except OSError:
        _kill(pid, signal.SIGINT)  # Not every C library has that.


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a process that leads a session, and to what it has started there."""
    try:
        os.killpg(pid, number)
    except OSError:  # It does not lead it yet.
        _kill(pid, number)


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class Disk:
    """Watches the free space of a folder's file system, and measures what is new in the folder when much has gone."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._starting: set[int] = set()
        self.remember()

    def remember(self) -> None:
        """Count from here."""
        self._bytes, self._files = self._free()
        self._since = self._now() - _CLOCK_STEP

    def is_overdrawn(self, pids: Callable[[], list[int]], ours: set[int]) -> bool:
        """Whether too much was written; if so, count from here, so that code can remove what it wrote.

        `ours` are those of the processes that run no code, and whose children become programs.
        """
        free, files = self._free()
        if self._bytes - free <= self._limit and self._files - files <= _MOST_FILES:
            return False
        # Other processes may have used the space.
        size, count = self._measure()
        if size + self._nameless(pids(), ours) <= self._limit and count <= _MOST_FILES:
            return False
        self._bytes, self._files = free, files
        return True

    def _now(self) -> float:
        """The time by the clock that stamps the files, which is a server's for a network file system."""
        try:
            facts = os.stat(self._folder)
            os.utime(self._folder, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # Sets the time of the last change only.
            return os.stat(self._folder).st_ctime
        except OSError:  # It is another user's.
            return time.time()

    def _free(self) -> tuple[int, int]:
        try:
            facts = os.statvfs(self._folder)
        except OSError:
            return 0, 0
        return facts.f_bavail * facts.f_frsize, facts.f_favail

    def _nameless(self, pids: list[int], ours: set[int]) -> int:
        """The size of removed files that are still open; too large if a process of code cannot be inspected."""
        known, self._starting = self._starting, set()
        try:
            device = os.stat(self._folder).st_dev
        except OSError:  # Nobody can reach it any longer.
            return 0
        sizes: dict[int, int] = {}
        for pid in set(pids) - ours:
            try:
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    facts = os.stat(f"/proc/{pid}/fd/{fd}")
                    if not facts.st_nlink and facts.st_dev == device:
                        sizes[facts.st_ino] = facts.st_blocks * 512
            except FileNotFoundError:
                continue
            except PermissionError:
                fields = _fields(pid)
                if not fields or not int(fields[_ADDRESSES]):
                    continue  # It has ended, and has no memory and no files.
                if pid in known or int(fields[_PARENT]) not in ours:
                    return self._limit + 1
                self._starting.add(pid)  # Until it is a program, it cannot be inspected either.
        return sum(sizes.values())

    def _measure(self) -> tuple[int, int]:
        size = count = 0
        folders = [self._folder]
        while folders:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue
            for entry in entries:
                try:
                    facts = entry.stat(follow_symlinks=False)
                    if facts.st_ctime >= self._since:  # Code cannot set this time.
                        size, count = size + facts.st_blocks * 512, count + 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                except OSError:
                    continue
            if size > self._limit or count > _MOST_FILES:
                break
        return size, count
