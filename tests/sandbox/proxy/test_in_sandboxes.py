"""`network=[...]` as code sees it, behind a wall."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox

from ..places import STRONGEST, Place, on_walls
from .servers import echo


class Listed(NamedTuple):
    sandbox: Sandbox
    server: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with echo() as found:
        yield found


@pytest.fixture
async def listed(place: Place, server: Any) -> AsyncIterator[Listed]:
    if not (place.has_mounts or place.wall == "docker"):
        pytest.skip("sessions have no network of their own")
    async with place.sandbox(network=[f"127.0.0.1:{server.server_port}"]) as sandbox:
        yield Listed(sandbox, server)


on_the_strongest_and_docker = on_walls(STRONGEST.wall, "docker")

REACH = """
import socket
def reach(*address):
    try:
        socket.create_connection(address, timeout=2).close()
        return "reached"
    except OSError as error:
        return type(error).__name__
"""


@on_the_strongest_and_docker
async def test_hosts_of_the_list_and_nothing_else(listed: Listed, server: Any) -> None:
    with echo() as other:
        async with listed.sandbox.session() as session:
            fetch = "import urllib.request\nurllib.request.urlopen({!r}).read().count(b'headers')"
            for way in (
                "",
                "import os\nfor name in list(os.environ):\n    'proxy' in name.lower() and os.environ.pop(name)\n",
            ):
                result = await session.run(way + fetch.format(listed.url))
                assert result.value == 1, result.error
                [use] = result.network
                assert (use.host, use.port, use.why, use.connections) == ("127.0.0.1", server.server_port, "", 1)
                assert use.sent > 20
                assert use.received > 200
            code = f"{REACH}\n[reach(*each) for each in {[('127.0.0.1', other.server_port), ('192.0.2.7', 443)]}]"
            assert (await session.run(code)).value == ["ConnectionRefusedError", "OSError"]
            place = f"127.0.0.1:{other.server_port}"
            advice = f'{place} is not in the allow-list; network: ["{place}"] allows it.'
            opener = "urllib.request.build_opener(urllib.request.ProxyHandler({'http': 'http://127.0.0.1:3128'}))"
            result = await session.run(f"{opener}.open('http://{place}')")
            assert result.error is not None
            assert str(result.error).rstrip().endswith(advice)
            assert result.network[0].why == advice
            assert f"[{advice}]" in result.output
            assert "not in the allow-list" in (await session.run("socket.getaddrinfo('x.attacker.test', 443)")).output
            assert other.heads == []


@on_the_strongest_and_docker
async def test_sessions_see_nothing_of_each_other(listed: Listed) -> None:
    async with listed.sandbox.session() as one:
        await one.run("import socket\nheld = socket.create_connection(('127.0.0.1', 3128))")
        await one.run("server = socket.create_server(('127.0.0.1', 4000))")
        async with listed.sandbox.session() as two:
            assert (await two.run(f"{REACH}\nreach('127.0.0.1', 4000)")).value == "ConnectionRefusedError"
            assert (await two.run("1")).network == ()


@on_the_strongest_and_docker
async def test_what_is_asked_for_after_the_last_cell_is_known(
    listed: Listed, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    later = """
import threading, time, urllib.request
def ask(wait):
    time.sleep(wait)
    try:
        urllib.request.urlopen("http://late.example.org")
    except OSError:
        pass
threading.Thread(target=ask, args=(0.3,)).start()
import atexit; atexit.register(urllib.request.urlopen, URL)
"""
    with caplog.at_level("INFO"):
        async with listed.sandbox.session() as session:
            assert (await session.run(later.replace("URL", repr(listed.url)))).network == ()
            await asyncio.sleep(0.6)
    found = {use.place: bool(use.why) for use in session.network_after}
    assert found == {"late.example.org:80": True, f"127.0.0.1:{server.server_port}": False}
    assert "After the last cell of a session" in caplog.text
    assert "late.example.org:80 is not in the allow-list" in caplog.text


async def test_a_proxy_that_dies_is_replaced(listed: Listed) -> None:
    async with listed.sandbox.session() as session:
        await session.run(f"import urllib.request, time\nopen = lambda: urllib.request.urlopen('{listed.url}').status")
        before = set(_children())
        [proxy] = [pid for pid in before if b"coderoom_proxy" in _command(pid)]
        running = asyncio.ensure_future(
            session.run("import socket\nheld = socket.create_connection(('127.0.0.1', 3128))\nheld.recv(1)")
        )
        await asyncio.sleep(0.2)
        os.kill(proxy, signal.SIGKILL)
        assert (await running).outcome in (Outcome.OK, Outcome.ERROR)
        assert (await session.run("open()")).value == 200


@on_walls("docker")
async def test_a_container_is_used_again_when_its_session_has_left_nothing(listed: Listed, server: Any) -> None:
    held = "import os, socket, subprocess, sys\n"
    held += "code = 'import socket, time; s = socket.create_server((\"127.0.0.1\", 4000)); time.sleep(60)'\n"
    held += "started = subprocess.Popen([sys.executable, '-c', code])\nos.readlink('/proc/self/ns/net')"
    async with listed.sandbox.session() as session:
        first = (await session.run(held)).value
    async with listed.sandbox.session() as session:
        assert (await session.run(f"{held}\nstarted.poll()")).value is None
        assert (await session.run("os.readlink('/proc/self/ns/net')")).value == first
        async with listed.sandbox.session() as other:
            assert (await other.run("__import__('os').readlink('/proc/self/ns/net')")).value != first


def _children() -> list[int]:
    return [int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@on_walls("none", "sandlock", "landlock")
async def test_a_wall_without_networks_for_sessions_says_so(place: Place) -> None:
    with pytest.raises(RequestError, match="network: behind the wall"):
        async with place.sandbox(network=["api.example.org"]):
            pass
