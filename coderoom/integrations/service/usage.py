"""What each tenant uses and has used, over all processes of a server.

The counts are in memory that the processes share: each has a row of its own, which only it writes, and all read all.
Processes of several machines send each other their rows; see `replicas`.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterable, Iterator
from typing import Final

GAUGES: Final = (
    "running",
    "running_bytes",
    "waiting",
    "waiting_since",
    "sandboxes",
    "sessions",
    "memory_bytes",
    "disk_bytes",
)
"""What is in use now. `waiting_since`: when the first run came that waits for others of its tenant, in nanoseconds."""
METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OTHER")
STATUSES: Final = (
    *(200, 201, 202, 204, 206, 301, 304, 307, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 412, 413, 415, 416),
    *(422, 426, 429, 499, 500, 501, 502, 503, 504, 507, 0),
)
"""Those that are counted by themselves; 0: others."""
OUTCOMES: Final = ("ok", "error", "timeout", "memory", "rejected", "cancelled", "failed")
"""How runs ended; `failed`: there was no result."""
BOUNDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_PERIOD: Final = 10.0
_PERIODS: Final = 7  # Those of the last minute, of which the first is not over.
_MICROSECONDS: Final = 1_000_000
_EPOCH: Final = time.time_ns() - time.monotonic_ns()  # So that the times of processes of several machines compare.

_RING: Final = len(GAUGES)
_REQUESTS: Final = _RING + 2 * _PERIODS
_RUNS: Final = _REQUESTS + len(METHODS) * len(STATUSES)
_RUN: Final = len(BOUNDS) + 2  # Those that took longer than all bounds, and the sum of the times.
_WIDTH: Final = _RUNS + len(OUTCOMES) * _RUN


def now_ns() -> int:
    """The time in nanoseconds, which never goes back."""
    return time.monotonic_ns() + _EPOCH


def without_gauges(row: bytes) -> bytes:
    """The counts of a process that has ended: what it did, and nothing in use."""
    return bytes(len(GAUGES) * 8) + row[len(GAUGES) * 8 :]


class Usage:
    """The counts of a tenant.

    Args:
        processes: How many processes count.
    """

    def __init__(self, processes: int = 1) -> None:
        self._cells = memoryview(mmap.mmap(-1, processes * _WIDTH * 8)).cast("q")
        self._processes = processes
        self._row = 0

    def count_as(self, process: int) -> None:
        """Say which of the processes this is."""
        self._row = process * _WIDTH

    @property
    def row(self) -> bytes:
        """The counts of this process."""
        return self._cells[self._row : self._row + _WIDTH].tobytes()

    @property
    def gauges(self) -> bytes:
        """What this process uses: the beginning of `row`."""
        return self._cells[self._row : self._row + len(GAUGES)].tobytes()

    def put(self, process: int, row: bytes) -> None:
        """Take over the counts of a process of another machine."""
        self._cells[process * _WIDTH : (process + 1) * _WIDTH] = memoryview(row).cast("q")

    def forget(self, process: int) -> None:
        """Forget what a process that has ended used; what it did stays."""
        for cell in range(process * _WIDTH, process * _WIDTH + len(GAUGES)):
            self._cells[cell] = 0

    def own(self, gauge: str) -> int:
        """What this process uses."""
        return self._cells[self._row + GAUGES.index(gauge)]

    def total(self, gauge: str) -> int:
        """What all processes use."""
        return self._sum(GAUGES.index(gauge))

    def add(self, gauge: str, amount: int) -> None:
        """Use more, or less."""
        self._cells[self._row + GAUGES.index(gauge)] += amount

    def wait_since(self, when: int) -> None:
        """Say since when a run of this process waits for others of the tenant; 0: none does."""
        self._cells[self._row + GAUGES.index("waiting_since")] = when

    def others_wait_longer(self, when: int) -> bool:
        """Whether other processes have runs that wait longer."""
        if self._processes == 1:
            return False
        own = self._row + GAUGES.index("waiting_since")
        cells = range(GAUGES.index("waiting_since"), self._processes * _WIDTH, _WIDTH)
        return any(0 < self._cells[cell] < when for cell in cells if cell != own)

    # --- Requests and runs ---

    def count_in_minute(self, most: int) -> float:
        """Count something of which there may be so many in any minute, or return how many seconds to wait."""
        seconds = now_ns() / 1e9
        now = int(seconds / _PERIOD)
        place = self._row + _RING + 2 * (now % _PERIODS)
        if self._cells[place] != now:
            self._cells[place], self._cells[place + 1] = now, 0
        self._cells[place + 1] += 1
        count, oldest = 0, now
        for row in range(0, self._processes * _WIDTH, _WIDTH):
            for cell in range(row + _RING, row + _REQUESTS, 2):
                when = self._cells[cell]
                if when > now - _PERIODS and self._cells[cell + 1]:
                    count += self._cells[cell + 1]
                    oldest = min(oldest, when)
        if count <= most:
            return 0.0
        self._cells[place + 1] -= 1
        return max(1.0, (oldest + _PERIODS) * _PERIOD - seconds)

    def count_request(self, method: str, status: int) -> None:
        """Count a request that was answered."""
        column = METHODS.index(method if method in METHODS else "OTHER") * len(STATUSES)
        self._cells[self._row + _REQUESTS + column + STATUSES.index(status if status in STATUSES else 0)] += 1

    def count_run(self, outcome: str, seconds: float) -> None:
        """Count a run or cell that has ended."""
        first = self._row + _RUNS + OUTCOMES.index(outcome) * _RUN
        bucket = next((number for number, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
        self._cells[first + bucket] += 1
        self._cells[first + _RUN - 1] += int(seconds * _MICROSECONDS)

    def requests(self) -> Iterator[tuple[str, int, int]]:
        """The method, the status, and how many requests there were of these."""
        for method_number, method in enumerate(METHODS):
            for number, status in enumerate(STATUSES):
                count = self._sum(_REQUESTS + method_number * len(STATUSES) + number)
                if count:
                    yield method, status, count

    def runs(self) -> Iterator[tuple[str, list[int], float]]:
        """The outcome, how many runs took up to each of `BOUNDS` and longer, and how long all took."""
        for number, outcome in enumerate(OUTCOMES):
            first = _RUNS + number * _RUN
            counts = [self._sum(first + bucket) for bucket in range(_RUN)]
            if any(counts[:-1]):
                yield outcome, counts[:-1], counts[-1] / _MICROSECONDS

    def _sum(self, column: int) -> int:
        return sum(self._cells[column::_WIDTH])


def metrics_of(tenants: Iterable[tuple[str, Usage]]) -> Iterator[str]:
    """The lines of the metrics of tenants, by their names, in the text format of Prometheus."""
    labelled = [(f'tenant="{_escaped(name)}"', usage) for name, usage in tenants]
    yield "# TYPE coderoom_requests_total counter"
    for label, usage in labelled:
        for method, status, count in usage.requests():
            yield f'coderoom_requests_total{{{label},method="{method}",status="{status or "other"}"}} {count}'
    for gauge in GAUGES:
        if gauge != "waiting_since":
            yield f"# TYPE coderoom_{gauge} gauge"
            yield from (f"coderoom_{gauge}{{{label}}} {usage.total(gauge)}" for label, usage in labelled)
    yield "# TYPE coderoom_run_seconds histogram"
    for label, usage in labelled:
        for outcome, counts, seconds in usage.runs():
            labels, so_far = f'{label},outcome="{outcome}"', 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                so_far += count
                yield f'coderoom_run_seconds_bucket{{{labels},le="{bound}"}} {so_far}'
            yield f"coderoom_run_seconds_count{{{labels}}} {so_far}"
            yield f"coderoom_run_seconds_sum{{{labels}}} {seconds}"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
