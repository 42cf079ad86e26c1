"""Places that tenants take in turn: the judge's sessions, and threads for files."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from coderoom.integrations.service.tenants import Tenant, Tenants, TooMuchError
from coderoom.judge import Judge, Tests, Verdict
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits

_WAIT_SECONDS: Final = 60.0


class Places:
    """Places of which no tenant takes all while there are others; who waits gets one by tenants in rotation.

    Args:
        count: How many there are.
        are_shared: Whether there are several tenants.
    """

    def __init__(self, count: int, *, are_shared: bool) -> None:
        self._free = count
        self._are_shared = are_shared
        self._taken: Counter[Tenant] = Counter()
        self._waiting: dict[Tenant, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def one(self, tenant: Tenant, *, patient: bool = False) -> AsyncGenerator[None]:
        """Wait for a place, and take it. `patient`: for what has to be done, however many wait and however long.

        Raises:
            TooMuchError: Too many wait, or it took too long.
        """
        if self._waiting.get(tenant) or not self._take(tenant):
            await self._wait(tenant, patient)
        try:
            yield
        finally:
            self._give(tenant)

    def _take(self, tenant: Tenant) -> bool:
        if not self._free or (self._are_shared and self._taken[tenant] >= self._free):
            return False
        self._free -= 1
        self._taken[tenant] += 1
        return True

    def _give(self, tenant: Tenant) -> None:
        self._free += 1
        self._taken[tenant] -= 1
        while self._begin_next():
            pass

    def _begin_next(self) -> bool:
        for each, waiting in list(self._waiting.items()):
            while waiting and waiting[0].done():  # It was cancelled.
                waiting.popleft()
            if waiting and not self._take(each):
                continue
            del self._waiting[each]
            if waiting:
                waiting.popleft().set_result(None)
                if waiting:
                    self._waiting[each] = waiting  # It is last in the next round.
                return True
        return False

    async def _wait(self, tenant: Tenant, patient: bool) -> None:
        if not patient:
            tenant.check_waiting()
        waiting = self._waiting.setdefault(tenant, deque())
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        tenant.usage.add("waiting", 1)
        try:
            async with asyncio.timeout(None if patient else _WAIT_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # Its turn came just now.
                self._give(tenant)
            elif turn in waiting:
                waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise TooMuchError(f"It has waited for {_WAIT_SECONDS:g} s; the server is busy.", 5.0) from None
            raise
        finally:
            tenant.usage.add("waiting", -1)


class SharedJudge:
    """The judge for all tenants, whose sessions they take in turn. What it does counts as a run.

    Args:
        judge: The judge.
        places: How many tests it runs at a time.
        tenants: The tenants.
    """

    def __init__(self, judge: Judge, places: int, tenants: Tenants) -> None:
        self._judge = judge
        self._tenants = tenants
        self._places = Places(places, are_shared=tenants.are_several)

    async def run(self, tenant: Tenant, code: Mapping[str, str], tests: Tests, **how: Any) -> list[Verdict]:
        """Run tests for a tenant; see `Judge.run`.

        Raises:
            TooMuchError: The tenant runs too much, or the server has too much to do.
        """
        async with self._places.one(tenant), self._tenants.slot(tenant, Limits().memory_bytes) as slot:
            verdicts = await self._judge.run(code, tests, **how)
            slot.outcome = Outcome.OK
            return verdicts
