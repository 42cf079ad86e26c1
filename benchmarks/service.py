"""Compare runs over HTTP with a bare sandbox and a plain server, in one run.

python benchmarks/service.py [--rounds N] [--seconds SEC] [--sessions N]

The candidates take turns, a few seconds each, so that a slow moment of the machine affects all. Each is a process of
its own. The client is one loop over raw sockets; its own processor time is printed, too. `cpu` is the processor time of
a candidate with all its processes for a run; it needs a machine whose control groups can be written (root).

The plain server starts `python -c` for each request, without a wall.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PRINT = "print(sum(range(10)))"
HEAVY = "import numpy, pandas\nprint(pandas.Series(numpy.arange(10)).sum())"
CONCURRENCY = (1, 16, 256)
_AT_ONCE = 16


# --- The candidates, each in a process of its own ---


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, run: Any) -> None:
    """Answer requests on one connection; the body is code."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            said = await run((await reader.readexactly(size)).decode())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
    writer.close()


async def _serve(run: Any) -> None:
    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
        return _answer(reader, writer, run)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def serve_plain() -> None:
    """A plain server: each request is a new interpreter."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def run(code: str) -> bytes:
        async with turn:
            how = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, **how)  # type: ignore[arg-type]
            return (await process.communicate())[0]

    await _serve(run)


async def run_bare(preload: list[str]) -> None:
    """A sandbox without HTTP: reads what to run from standard input, and writes how long each run took."""
    from coderoom.sandbox import Sandbox

    async with Sandbox(preload=preload, concurrency=_AT_ONCE) as sandbox:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            end, took = time.perf_counter() + asked["seconds"], list[float]()

            async def work(code: str, end: float, took: list[float]) -> None:
                while (begin := time.perf_counter()) < end:
                    assert (await sandbox.run(code)).success
                    took.append(time.perf_counter() - begin)

            await asyncio.gather(*(work(asked["code"], end, took) for _ in range(asked["clients"])))
            print(json.dumps(took), flush=True)


# --- The client ---


def load(url: str, path: str, body: bytes, seconds: float, clients: int) -> list[float]:
    """Send requests on some connections for some seconds, and return how long each took."""
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    waiting, took, got = selectors.DefaultSelector(), list[float](), dict[socket.socket, list[Any]]()
    for _ in range(clients):
        sock = socket.create_connection(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(sock, selectors.EVENT_READ)
    end = time.perf_counter() + seconds
    for key in list(waiting.get_map().values()):
        got[key.fileobj] = [time.perf_counter(), b""]  # type: ignore[index]
        key.fileobj.sendall(request)  # type: ignore[union-attr]
    while got:
        for key, _ in waiting.select():
            sock = key.fileobj  # type: ignore[assignment]
            began, so_far = got[sock]
            so_far += sock.recv(65_536)
            got[sock][1] = so_far
            answer, found, rest = so_far.partition(b"\r\n\r\n")
            if found and len(rest) >= int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
                assert answer.startswith(b"HTTP/1.1 200"), so_far[:500]
                now = time.perf_counter()
                took.append(now - began)
                if now < end:
                    got[sock] = [now, b""]
                    sock.sendall(request)
                else:
                    waiting.unregister(sock)
                    sock.close()
                    del got[sock]
    return took


# --- What is measured ---


class Group:
    """A control group that counts the processor time of a candidate; without one, nothing is counted."""

    def __init__(self, name: str) -> None:
        self._file: Path | None = None
        for root, used in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")):
            if self._file is None and Path(root, "cgroup.procs").exists():
                place = Path(root, f"coderoom-benchmark-{os.getpid()}-{name}")
                with contextlib.suppress(OSError):
                    place.mkdir(exist_ok=True)  # That of the table before may still end.
                    self._file = place / used

    def enter(self) -> None:
        """Let this process be in the group, with all that it starts."""
        if self._file is not None:
            (self._file.parent / "cgroup.procs").write_text(str(os.getpid()))

    def seconds(self) -> float:
        """The processor time so far."""
        if self._file is None:
            return 0.0
        text = self._file.read_text()
        return int(text) / 1e9 if self._file.name == "cpuacct.usage" else int(text.split()[1]) / 1e6

    def remove(self) -> None:
        """Remove the group."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.parent.rmdir()


@dataclass
class Candidate:
    """What is compared."""

    name: str
    command: list[str]
    path: str = ""
    most: int = CONCURRENCY[-1]
    runs: dict[int, list[float]] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    own: dict[int, float] = field(default_factory=dict)
    rates: dict[int, list[float]] = field(default_factory=dict)

    def start(self) -> None:
        """Start it, and wait until it can be used."""
        self.group = Group(self.name.replace(" ", "-").replace("/", ""))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.command, preexec_fn=self.group.enter, **pipes)  # type: ignore[call-overload]
        self.url = self.process.stdout.readline().strip()

    def measure(self, code: str, seconds: float, clients: int) -> None:
        """Run code for some seconds."""
        before, own, begin = self.group.seconds(), time.process_time(), time.perf_counter()
        if self.path == "":
            self.process.stdin.write(json.dumps({"code": code, "seconds": seconds, "clients": clients}) + "\n")
            self.process.stdin.flush()
            took = json.loads(self.process.stdout.readline())
        else:
            body = code if self.path == "/" else json.dumps({"code": code, "language": "python"})
            took = load(self.url, self.path, body.encode(), seconds, clients)
        self.rates.setdefault(clients, []).append(len(took) / (time.perf_counter() - begin))
        self.runs.setdefault(clients, []).extend(took)
        self.cpu[clients] = self.cpu.get(clients, 0.0) + self.group.seconds() - before
        self.own[clients] = self.own.get(clients, 0.0) + time.process_time() - own

    def end(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        self.process.kill()
        self.group.remove()


def show(candidates: list[Candidate], title: str) -> None:
    """Print a table."""
    cores = os.cpu_count() or 1
    print(f"\n{title}, on {cores} cores\n")
    print(
        f"{'':<22}{'clients':>8}{'runs/s/core':>13}{'of bare':>9}{'p50 ms':>9}{'p99 ms':>9}{'p99/p50':>9}{'cpu ms':>8}"
    )
    bare = candidates[0]
    for clients in CONCURRENCY:
        for each in candidates:
            if clients > each.most:  # It would take minutes to end what it has begun.
                continue
            took = sorted(each.runs[clients])
            median, late = statistics.median(took), took[int(len(took) * 0.99)]
            rate = statistics.median(each.rates[clients])
            of_bare = statistics.median(
                one / other for one, other in zip(each.rates[clients], bare.rates[clients], strict=True)
            )
            cpu = each.cpu[clients] / len(took) * 1000
            print(
                f"{each.name:<22}{clients:>8}{rate / cores:>13.1f}{of_bare:>9.0%}{median * 1000:>9.1f}"
                f"{late * 1000:>9.1f}{late / median:>9.1f}{cpu:>9.1f}"
            )
    clients_cpu = sum(sum(each.own.values()) for each in candidates if each.path)
    count = sum(len(took) for each in candidates if each.path for took in each.runs.values())
    print(f"\nThe client itself took {clients_cpu / count * 1000:.2f} ms of a processor for a run over HTTP.")


def compare(code: str, preload: list[str], rounds: int, seconds: float, title: str) -> None:
    """Let the candidates take turns."""
    more = [part for name in preload for part in ("--preload", name)]
    service = [sys.executable, "-m", "coderoom", "sandbox", "serve", "--port", "0", "--no-token", *more]
    service += ["--concurrency", str(_AT_ONCE)]
    candidates = [
        Candidate("bare Sandbox", [sys.executable, __file__, "--bare", ",".join(preload)]),
        Candidate("service /v1/run", service, "/v1/run"),
        Candidate("service /run_code", service, "/run_code"),
        Candidate("plain server", [sys.executable, __file__, "--plain"], "/", _AT_ONCE),
    ]
    with contextlib.ExitStack() as stack:
        for each in candidates:
            each.start()
            stack.callback(each.end)
        for each in candidates:  # Warm workers.
            each.measure(code, 0.5, 4)
            for counts in (each.rates, each.runs, each.cpu, each.own):
                counts.clear()
        for _ in range(rounds):
            for clients in CONCURRENCY:
                for each in candidates:
                    if clients <= each.most:
                        each.measure(code, seconds, clients)
    show(candidates, title)


def private_kib(root: int) -> int:
    """The private memory of a process and all that it has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))

    def tree(pid: int) -> Iterator[int]:
        yield pid
        for child in children.get(pid, ()):
            yield from tree(child)

    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Private"))
    return total


def idle_sessions(count: int, preload: list[str]) -> None:
    """Open sessions over HTTP, and count what they cost while nothing runs."""
    import httpx

    more = [part for name in preload for part in ("--preload", name)]
    command = [sys.executable, "-m", "coderoom", "sandbox", "serve", "--port", "0", "--no-token", *more]
    server = Candidate("sessions", command)
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=120) as client:
            box = client.post("/v1/sandboxes", json={"files": False}).json()["id"]
            opened = [client.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"] for _ in range(8)]
            before, begin = private_kib(server.process.pid), time.perf_counter()
            for _ in range(count):
                answer = client.post(f"/v1/sandboxes/{box}/sessions", json={})
                answer.raise_for_status()
                opened.append(answer.json()["id"])
            took = time.perf_counter() - begin
            each = (private_kib(server.process.pid) - before) / count / 1024
            print(f"\n{count:,} idle sessions, preload {preload or 'nothing'}: {each:.2f} MiB private memory each (the")
            print(f"sum of Private_* of smaps_rollup over all processes), {took / count * 1000:.1f} ms to open one")
    finally:
        server.end()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:
        asyncio.run(run_bare([name for name in given.bare.split(",") if name]))
    elif given.plain:
        asyncio.run(serve_plain())
    else:
        compare(PRINT, [], given.rounds, given.seconds, "print")
        compare(HEAVY, ["numpy", "pandas"], given.rounds, given.seconds, "numpy and pandas, imported before")
        if given.sessions:
            idle_sessions(given.sessions, [])


if __name__ == "__main__":
    main()
