"""What tenants take in turn besides runs: the judge's sessions, and threads for files."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from coderoom.integrations.service import Tenant, TenantLimits
from coderoom.integrations.service.places import Places
from coderoom.integrations.service.tenants import TooMuchError
from tests.integrations.service import client_of, serving


async def test_no_tenant_takes_all_places_and_who_waits_comes_in_rotation() -> None:
    one, other = Tenant("one", TenantLimits()), Tenant("other", TenantLimits(waiting=1))
    places, came = Places(4, are_shared=True), []

    async def work(tenant: Tenant, number: int, patient: bool = False) -> None:
        async with places.one(tenant, patient=patient):
            came.append((tenant.name, number))
            await asyncio.sleep(0)

    async with AsyncExitStack() as held:
        for _ in range(2):  # The others are for others.
            await held.enter_async_context(places.one(one))
        waiting = [asyncio.ensure_future(work(one, number)) for number in range(4)]
        waiting[0].cancel()
        await asyncio.sleep(0)
        await work(other, 0)
        assert came == [("other", 0)]
        await held.enter_async_context(places.one(other))
        waiting.append(asyncio.ensure_future(work(other, 1)))
        await asyncio.sleep(0)
        with pytest.raises(TooMuchError, match="1 runs of the tenant 'other' wait already"):
            await work(other, 2)
        waiting.append(asyncio.ensure_future(work(other, 3, patient=True)))
        await asyncio.sleep(0)
        assert not waiting[-1].done()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(came[1:3]) == [("one", 1), ("other", 1)]
    assert sorted(came[3:]) == [("one", 2), ("one", 3), ("other", 3)]
    async with AsyncExitStack() as held:  # None was lost.
        for tenant in (one, other, one):
            async with asyncio.timeout(5):
                await held.enter_async_context(places.one(tenant))


@pytest.mark.slow
def test_tests_of_one_tenant_do_not_wait_for_all_those_of_another(tmp_path: Path) -> None:
    ended, lock = [], threading.Lock()

    def judge(url: str, tenant: str) -> None:
        program = {"main.py": "import time\ntime.sleep(2)\nprint(1)"}
        request = {"code": program, "kind": "programs", "tests": {"tests": [{"stdout": "1"}]}}
        with client_of(url, tenant) as client:
            answer = client.post("/v1/judge", json=request)
        assert answer.json()["verdicts"][0]["passed"], answer.text
        with lock:
            ended.append(tenant)

    with serving(tmp_path, "--concurrency", "8") as url, ThreadPoolExecutor(12) as threads:
        suites = [threads.submit(judge, url, "one") for _ in range(6)]
        with client_of(url) as client:
            while 'coderoom_waiting{tenant="one"} 5\n' not in client.get("/metrics").text:
                time.sleep(0.02)
        suites.append(threads.submit(judge, url, "other"))
        for each in suites:
            each.result()
    assert ended.index("other") < 4, ended
