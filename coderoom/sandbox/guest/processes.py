"""The processes of a room, as its supervisor sees them."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from .isolation import linux

__all__ = ["Descendants", "Nested", "Use"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_SOCKET = 212_992  # What a socket takes in before whoever writes has to wait.
# Of /proc/PID/stat, counted from behind the name.
_THREADS, _ADDRESSES, _RESIDENT, _STACK = 17, 20, 21, 25
_MOST_ROUNDS = 100
_NOTHING = [b"0"] * (_STACK + 1)


class Use(NamedTuple):
    """What the processes of a room use together.

    Attributes:
        memory: Bytes of memory that are theirs alone, as far as that can be told cheaply.
        processes: How many processes and threads there are.
        cpu: Seconds of processor time that they have used.
    """

    memory: int
    processes: int
    cpu: float


class _Processes:
    nested = False

    def pids(self) -> list[int]:
        """All of the room but its supervisor."""
        raise NotImplementedError

    def signal_all(self, number: int, keep: list[int]) -> None:
        """Send a signal to all but the supervisor and those that are to be kept, which go on if they stand still."""
        pids = self.pids()
        for pid in pids:
            if pid not in keep:
                _kill(pid, number)
        for pid in pids:
            if pid in keep:
                _kill(pid, signal.SIGCONT)

    def end(self, pids: set[int]) -> bool:
        """Kill processes of the room; return whether all have ended."""
        left = [pid for pid in pids.intersection(self.pids()) if _fields(pid)[:1] not in ([], [b"Z"])]
        for pid in left:
            _kill(pid, signal.SIGKILL)
        return not left

    def interrupt(self, keep: list[int]) -> None:
        """Do what Ctrl-C at a terminal does to all but the supervisor and those that are to be kept."""
        for pid in self.pids():
            if pid not in keep:
                _interrupt(pid)

    def busy(self) -> bool:
        """Whether anybody but the supervisor is running, or would be if there were a processor for it."""
        return any(_fields(pid)[:1] in ([b"R"], [b"D"]) for pid in self.pids())

    def gone(self, keep: list[int]) -> bool:
        """Whether nobody is left; whoever appeared meanwhile is ended too."""
        # Those that nobody has waited for yet are dead all the same.
        left = {pid for pid in set(self.pids()).difference(keep) if _fields(pid)[:1] not in ([], [b"Z"])}
        if left:
            self.signal_all(9, keep)
        return not left

    def use(self, limit: int) -> Use:
        """What they use together; a sum of memory that is above the limit is exact."""
        memory = threads = 0
        times = os.times()  # Of those that this process has waited for.
        ticks = int((times.children_user + times.children_system) * _TICKS)
        own = _fields(os.getpid())
        addresses = 0
        pids = self.pids()
        for pid in pids:
            fields = _fields(pid)
            if not fields:
                continue
            threads += int(fields[_THREADS])
            ticks += sum(map(int, fields[11:15]))  # With those of children that it has waited for.
            # A fork shares the supervisor's pages until it writes to them; a program of its own has another stack.
            base = own if fields[_STACK] == own[_STACK] else _NOTHING
            memory += max(int(fields[_RESIDENT]) - int(base[_RESIDENT]), 0) * _PAGE
            addresses += max(int(fields[_ADDRESSES]) - int(base[_ADDRESSES]), 0)
        if memory > limit:
            memory = sum(map(_share, pids))  # Exact, and a hundred times slower.
        if memory <= limit < memory + _SOCKET * sum(map(_open_files, pids)):
            memory += _SOCKET * sum(map(_sockets, pids))
        if memory <= limit < addresses:
            memory += _shared_without_a_file(pids)
        return Use(memory, threads, ticks / _TICKS)


class Nested(_Processes):
    """Those of a process namespace: everybody in it but number 1, which is the supervisor."""

    nested = True

    def pids(self) -> list[int]:
        """All of the room but its supervisor."""
        return [pid for pid in _all_pids() if pid != 1]

    def signal_all(self, number: int, keep: list[int]) -> None:
        """Send a signal to all but the supervisor and those that are to be kept, which go on if they stand still."""
        if not keep:
            _kill(-1, number)
            return
        # Who stands still starts nobody meanwhile.
        _kill(-1, signal.SIGSTOP)
        super().signal_all(number, keep)

    def gone(self, keep: list[int]) -> bool:
        """Whether nobody is left; whoever appeared meanwhile is ended too."""
        return super().gone(keep) if keep else not _kill(-1, 9)


class Descendants(_Processes):
    """Those that descend from the supervisor, where there is no namespace: it adopts and reaps orphans."""

    def pids(self) -> list[int]:
        """All of the room but its supervisor."""
        parents: dict[int, int] = {}
        for pid in _all_pids():
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    parents[pid] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
        found: set[int] = set()
        newest = {os.getpid()}
        while newest:
            newest = {pid for pid, parent in parents.items() if parent in newest and pid not in found}
            found |= newest
        return sorted(found)

    def signal_all(self, number: int, keep: list[int]) -> None:
        """Send a signal to all but the supervisor and those that are to be kept, which go on if they stand still."""
        if number == signal.SIGKILL:
            self._stop_all(keep)
        super().signal_all(number, keep)

    def _stop_all(self, keep: list[int]) -> None:
        """Let all stand still: for each that is killed while others fork, one of those gets the place that is free."""
        stopped: set[int] = set()
        for _ in range(_MOST_ROUNDS):
            found = set(self.pids()).difference(keep, stopped)
            if not found:
                return
            for pid in found:
                _kill(pid, signal.SIGSTOP)
            stopped |= found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _fields(pid: int) -> list[bytes]:
    """What `/proc/PID/stat` has after the name; nothing if the process has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _shared_without_a_file(pids: list[int]) -> int:
    """Memory that was mapped to be shared and belongs to no file: a process that lets go of its pages still has it."""
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
    """How many files a process has open, since Linux 6.2; the most it can have before that."""
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
    """What is resident for a process, pages that several have divided among them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        fields = _fields(pid)
        return int(fields[_RESIDENT]) * _PAGE if fields else 0


def _interrupt(pid: int) -> None:
    """Interrupt the first thread of a process; in any other Python would not be woken by it."""
    try:
        linux.libc("tgkill", pid, pid, signal.SIGINT)
    except OSError:
        _kill(pid, signal.SIGINT)  # Not every C library has that.


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
