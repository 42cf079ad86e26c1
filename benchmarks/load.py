"""Three tenants at one server, two of which behave badly: what the third notices, and what is left at the end.

    python benchmarks/load.py                 # a minute
    python benchmarks/load.py --minutes 10    # as published

The server is a process of its own, with two workers. The third tenant runs `print(1)` again and again, first alone.
The others send cells that compute until their time limit, fork bombs within their limits, floods of output, code that
hangs, and clients that leave in the middle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx

TENANTS = "".join(
    f"{name}: {{token: token-of-{name}, requests_per_minute: 1000000, metrics: true}}\n"
    for name in ("good", "bad", "worse")
)
HOG = {"code": "while True: sum(range(1000))", "timeout": 6}
BOMB = {
    "code": """\
import os, time
for _ in range(60):
    try:
        if not os.fork():
            end = time.monotonic() + 1
            while time.monotonic() < end:
                pass
            os._exit(0)
    except OSError:
        time.sleep(0.01)
""",
    "timeout": 4,
    "options": {"limits": {"processes": 16}},
}
FLOOD = {"code": "for _ in range(100_000): print('x' * 1000)", "timeout": 6}
HANG = {"code": "import time; time.sleep(60)", "timeout": 3}
BAD = {"hog": HOG, "bomb": BOMB, "flood": FLOOD, "hang": HANG}


def client_of(url: str, tenant: str) -> httpx.AsyncClient:
    """A client of a tenant."""
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer token-of-{tenant}"}, timeout=120)


async def run_shortly(url: str, until: float, seen: Counter[str]) -> list[float]:
    """Run short code one after the other; return how long each run took, in milliseconds."""
    took = []
    async with client_of(url, "good") as client:
        while time.monotonic() < until:
            begun = time.perf_counter()
            answer = await client.post("/v1/run", json={"code": "print(1)"})
            took.append((time.perf_counter() - begun) * 1000)
            is_right = answer.status_code == 200 and answer.json()["stdout"] == "1\n"
            seen[f"short {answer.status_code if answer.status_code != 200 or is_right else 'wrong'}"] += 1
            await asyncio.sleep(0.02)
    return took


async def behave_badly(
    url: str, tenant: str, until: float, seen: Counter[str], numbers: random.Random, kinds: list[str]
) -> None:
    """Send one bad thing after the other."""
    async with client_of(url, tenant) as client:
        while time.monotonic() < until:
            kind = numbers.choice(kinds)
            if kind == "leave":
                with suppress(TimeoutError):
                    async with asyncio.timeout(numbers.random() * 2):
                        await client.post("/v1/run", json=HOG)
                seen["left"] += 1
                continue
            answer = await client.post("/v1/run", json=BAD[kind])
            outcome = answer.json()["outcome"] if answer.status_code == 200 else ""
            seen[f"{kind} {answer.status_code} {outcome}".strip()] += 1
            if answer.status_code == 429:
                await asyncio.sleep(float(answer.headers["Retry-After"]))


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    found = [root]
    for pid in found:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def state_of(server: int) -> dict[str, int]:
    """What the server has: memory and descriptors of its own processes, all its processes, mounts and folders."""
    pids = tree(server)
    own = [pid for pid in pids if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    memory = 0
    for pid in own:
        private = Path(f"/proc/{pid}/smaps_rollup").read_text().split("Private_Dirty:")[1].split()[0]
        memory += int(private)
    return {
        "private MiB": memory // 1024,
        "descriptors": sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in own),
        "processes": len(pids),
        "mounts": len(Path("/proc/mounts").read_text().splitlines()),
        "folders": sum(
            len(list(folder.iterdir())) for folder in Path(tempfile.gettempdir()).glob("coderoom-*") if folder.is_dir()
        ),
    }


async def settled(url: str, server: int) -> dict[str, int]:
    """The state when nothing runs any more."""
    async with client_of(url, "good") as client:
        for _ in range(60):
            lines = (await client.get("/metrics")).text.splitlines()
            if all(
                line.endswith(" 0") for line in lines if line.startswith(("coderoom_running{", "coderoom_waiting{"))
            ):
                break
            await asyncio.sleep(1)
    await asyncio.sleep(3)
    return state_of(server)


def percentiles(took: list[float]) -> str:
    """A line about times."""
    cuts = statistics.quantiles(took, n=100)
    return f"{len(took):6,} runs, p50 {cuts[49]:6.1f} ms, p90 {cuts[89]:6.1f} ms, p99 {cuts[98]:6.1f} ms"


async def measure(url: str, server: int, seconds: float, bad_clients: int, kinds: list[str]) -> None:
    """Measure, and say what was seen."""
    seen = Counter[str]()

    async def both_kinds(seconds: float, clients: int) -> list[float]:
        # The others are a process of their own, which does not delay the measuring one.
        command = [sys.executable, __file__, "--bad", url, "--minutes", str(seconds / 60), "--kinds", ",".join(kinds)]
        others = await asyncio.create_subprocess_exec(*command, "--clients", str(clients), stdout=subprocess.PIPE)
        took = await asyncio.gather(*(run_shortly(url, time.monotonic() + seconds, seen) for _ in range(2)))
        seen.update(json.loads((await others.communicate())[0]))
        return [each for some in took for each in some]

    await both_kinds(10, bad_clients)  # Everything has been used once.
    before = await settled(url, server)
    alone = min(20.0, seconds)
    print("alone:      ", percentiles(await both_kinds(alone, 0)), flush=True)
    print("with others:", percentiles(await both_kinds(seconds, bad_clients)), flush=True)
    print("alone:      ", percentiles(await both_kinds(alone, 0)), flush=True)
    after = await settled(url, server)
    for what, count in sorted(seen.items()):
        print(f"  {count:7,}  {what}")
    for name, was in before.items():
        print(f"  {name}: {was:,} before, {after[name]:,} after")


async def all_bad(url: str, seconds: float, clients: int, kinds: list[str]) -> Counter[str]:
    """What the tenants that behave badly have seen."""
    seen, until = Counter[str](), time.monotonic() + seconds
    tenants = [tenant for tenant in ("bad", "worse") for _ in range(clients)]
    bad = (behave_badly(url, each, until, seen, random.Random(number), kinds) for number, each in enumerate(tenants))
    await asyncio.gather(*bad)
    return seen


def main() -> None:
    """Start the server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--clients", type=int, default=8, help="of each tenant that behaves badly")
    parser.add_argument("--kinds", default="hog,hog,bomb,flood,hang,leave", help="of bad behaviour")
    parser.add_argument("--bad", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bad:
        kinds = arguments.kinds.split(",")
        print(json.dumps(asyncio.run(all_bad(arguments.bad, arguments.minutes * 60, arguments.clients, kinds))))
        return
    with tempfile.TemporaryDirectory() as folder:
        tenants = Path(folder, "tenants.yaml")
        tenants.write_text(TENANTS)
        command = [sys.executable, "-m", "coderoom", "sandbox", "serve", "--port", "0", "--tenants", str(tenants)]
        command += ["--workers", arguments.workers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                url = server.stdout.readline().strip()
                asyncio.run(
                    measure(url, server.pid, arguments.minutes * 60, arguments.clients, arguments.kinds.split(","))
                )
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
