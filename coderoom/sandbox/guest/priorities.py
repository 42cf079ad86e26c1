"""The priority of rooms whose cells compute for long. The worker lowers it; short cells do not wait for them."""

from __future__ import annotations

import os
from contextlib import suppress

from .isolation.boot import descendants
from .processes import status_of

_NICE = 15
_FEWEST_TICKS = 2  # Between two looks; less is not computing.


class Priorities:
    """The rooms of a worker at which the host had it look, by their first processes."""

    def __init__(self, nested: bool) -> None:
        self._nested = nested
        self._ticks: dict[int, int] = {}

    def look(self, room: int, *, first: bool, parent: int, entered: int, apart: list[int]) -> None:
        """Lower the priority of what runs in a room if it has computed since the last look; not at the first.

        One process in a fork's room is a child of the supervisor of the room `parent`, where its number is `entered`.
        Those that the room numbers `apart` are what other forks will be made of.
        """
        if first:
            self._ticks = {pid: ticks for pid, ticks in self._ticks.items() if os.path.exists(f"/proc/{pid}")}
        pids: list[int] = []
        if room > 1 and self._nested:
            pids = _processes(room, parent, entered)
        elif room > 1:  # Without namespaces, all numbers are those that the worker has.
            pids = descendants(room, *([entered] if entered else []), without=apart)
        ticks = sum(map(_ticks, [room, *pids]))
        before, self._ticks[room] = self._ticks.get(room, 0), ticks
        if not first and ticks - before >= _FEWEST_TICKS:
            others = [[str(number)] for number in apart]
            for pid in pids:  # Not the supervisor, which enforces the limits.
                if _numbers(pid)[-1:] not in others:
                    _lower(pid)


def _processes(room: int, parent: int, entered: int) -> list[int]:
    """The processes of a room but its supervisor, and none of its forks."""
    depth, pids = len(_numbers(room)), descendants(room)
    for pid in descendants(parent) if parent > 1 else []:
        status = status_of(pid)
        numbers = status.get("NSpid", "").split()
        if status.get("PPid") == str(parent) and len(numbers) == depth and numbers[-2] == str(entered):
            pids += [pid, *descendants(pid)]
    return [pid for pid in pids if len(_numbers(pid)) == depth]


def _numbers(pid: int) -> list[str]:
    """The numbers of a process in the process namespaces that it is in."""
    return status_of(pid).get("NSpid", "").split()


def _ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return sum(map(int, file.read().rpartition(b")")[2].split()[11:15]))  # With children that have ended.
    except OSError:
        return 0


def _lower(pid: int) -> None:
    with suppress(OSError):  # It has ended.
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), _NICE)
    # Where the kernel groups processes by their sessions, only the group's priority counts beside other groups.
    with suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as file:
        file.write(str(_NICE))
