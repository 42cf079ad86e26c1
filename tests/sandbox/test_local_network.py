"""`local_network=True`: servers inside, for each session its own, and nothing else."""

from __future__ import annotations

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox

from .places import Place, on_walls, on_walls_with_mounts

SERVE = """
import socket
server = socket.create_server(("127.0.0.1", 8000))
client = socket.create_connection(("localhost", 8000))
peer = server.accept()[0]
client.sendall(b"hello")
said = peer.recv(5).decode()
client.setblocking(False)
buffered = 0
try:
    while True:
        buffered += client.send(bytes(65536))
except BlockingIOError:
    pass
[said, buffered < 1_000_000]
"""
REACH = """
import socket
def reach(address):
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError as error:
        return type(error).__name__
[reach(("127.0.0.1", 8000)), reach(("127.0.0.1", PORT)), reach(("192.0.2.1", 80))]
"""


@on_walls_with_mounts
async def test_each_session_has_a_network_of_its_own(place: Place) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as ours:
        async with place.sandbox(local_network=True) as sandbox, sandbox.session() as one, sandbox.session() as other:
            # Buffers that grew to many MiB would be memory that nobody counts.
            assert (await one.run(SERVE)).value == ["hello", True]
            reached = (await other.run(REACH.replace("PORT", str(ours.getsockname()[1])))).value
            assert reached == ["ConnectionRefusedError", "ConnectionRefusedError", "OSError"]
            assert (await other.run(SERVE)).value == ["hello", True]


@on_walls("landlock", "sandlock")
async def test_only_where_the_network_is_the_sandboxs_own(place: Place) -> None:
    with pytest.raises(RequestError, match=r"local_network: behind the wall .*only the network of this machine"):
        async with place.sandbox(local_network=True):
            pass


async def test_only_if_asked_for(sandbox: Sandbox) -> None:
    assert "PermissionError" in (await sandbox.run("import socket\nsocket.create_server(('127.0.0.1', 8000))")).output
