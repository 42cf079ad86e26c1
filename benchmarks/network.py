"""Compare what code can do through the proxy of a list of hosts with the network of this machine, in one run.

python benchmarks/network.py [--rounds N]

Printed are the median time of a connection (with the proxy: CONNECT, and an answer to it), the throughput of one
download over the loopback, and the time until a sandbox has started.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import threading
import time

from coderoom.sandbox import Sandbox

DOWNLOAD = 400 << 20
CONNECT = """
import os, socket, statistics, time
def connect():
    begin = time.perf_counter()
    if os.environ.get("HTTP_PROXY"):
        sock = socket.create_connection(("127.0.0.1", 3128))
        sock.sendall(b"CONNECT 127.0.0.1:PORT HTTP/1.1\\r\\n\\r\\n")
        assert b" 200 " in sock.recv(100)
    else:
        sock = socket.create_connection(("127.0.0.1", PORT))
    took = time.perf_counter() - begin
    sock.close()
    return took
statistics.median(connect() for _ in range(ROUNDS)) * 1000
"""
FETCH = """
import socket, time
begin = time.perf_counter()
sock = socket.create_connection(("127.0.0.1", PORT))
sock.sendall(b"!")
count = 0
while part := sock.recv(1 << 20):
    count += len(part)
count / (time.perf_counter() - begin) / 1e6
"""


def serve(listener: socket.socket) -> None:
    """Send the download to each client that asks for it."""

    def answer(peer: socket.socket) -> None:
        with peer:
            if peer.recv(1):
                for _ in range(DOWNLOAD >> 20):
                    peer.sendall(bytes(1 << 20))

    while True:
        peer, _ = listener.accept()
        threading.Thread(target=answer, args=(peer,), daemon=True).start()


async def main(rounds: int) -> None:
    """Measure both, and print them with their ratio."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    port = listener.getsockname()[1]
    found: dict[str, list[float]] = {"connect (ms)": [], "throughput (MB/s)": [], "start (s)": []}
    for network in (True, [f"127.0.0.1:{port}"]):
        begin = time.perf_counter()
        async with Sandbox(network=network) as sandbox, sandbox.session() as session:
            found["start (s)"].append(time.perf_counter() - begin)
            for name, code in ("connect (ms)", CONNECT), ("throughput (MB/s)", FETCH):
                result = await session.run(code.replace("PORT", str(port)).replace("ROUNDS", str(rounds)))
                assert result.success, result.error
                found[name].append(float(result.value))
    print(f"{'':20}{'machine':>12}{'list':>12}{'ratio':>8}{'more':>10}")
    for name, (own, listed) in found.items():
        print(f"{name:20}{own:12.3f}{listed:12.3f}{listed / own:8.2f}{listed - own:10.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    asyncio.run(main(parser.parse_args().rounds))
