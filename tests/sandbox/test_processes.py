"""Programs that stay in a session, their terminals, and streams to their ports."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Process, Sandbox, Session

from .places import Place, on_both_shapes, on_every_kind_of_wall, on_monty, on_walls

SERVER = """
import asyncio, sys

async def count(reader, writer):  # Answers only once the other side has ended its half.
    writer.write(b"%d" % len(await reader.read()))
    writer.close()

async def pour(reader, writer):
    for _ in range(320):
        writer.write(bytes(65536))
        await writer.drain()
    writer.close()

async def abort(reader, writer):
    await reader.read(1)
    writer.transport.abort()

async def main():
    servers = []
    for serve, host in ((count, "127.0.0.1"), (pour, "::1"), (abort, "0.0.0.0")):
        servers.append(await asyncio.start_server(serve, host, 0))
    print(*(server.sockets[0].getsockname()[1] for server in servers))
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def all_of(process: Process) -> str:
    return "".join([piece.text async for piece in process])


async def until(process: Process, text: str) -> str:
    seen = ""
    async with asyncio.timeout(20):
        while text not in seen:
            seen += await process.read()
    return seen


async def started_server(session: Session) -> tuple[Process, list[int]]:
    server = await session.start(["python3", "-c", SERVER])
    return server, list(map(int, (await until(server, "\n")).split()))


@pytest.fixture(scope="session")
async def networked() -> AsyncIterator[Callable[[Place], Awaitable[Sandbox]]]:
    sandboxes: dict[str, Sandbox] = {}

    async def start(place: Place) -> Sandbox:
        if place.wall not in sandboxes:
            sandboxes[place.wall] = place.sandbox(local_network=True)
        return sandboxes[place.wall]

    yield start
    for sandbox in sandboxes.values():
        await sandbox.close()


@pytest.fixture
async def online(place: Place, networked: Callable[[Place], Awaitable[Sandbox]]) -> AsyncIterator[Session]:
    async with (await networked(place)).session() as session:
        yield session


@on_every_kind_of_wall
async def test_it_reads_writes_and_ends(session: Session) -> None:
    code = "import sys\nprint(sys.stdin.read()[::-1])\nprint('err', file=sys.stderr)\nsys.exit(7)"
    process = await session.start(["python3", "-c", code])
    await process.write("2")
    await process.write(b"4")
    await process.close_input()
    written = {"stdout": b"", "stderr": b""}
    async for piece in process:
        written[piece.stream] += piece.data
    assert written == {"stdout": b"42\n", "stderr": b"err\n"}
    assert await process.wait() == process.exit_code == 7
    with pytest.raises(BrokenPipeError):
        await process.write("more")


@on_every_kind_of_wall
async def test_a_terminal(session: Session) -> None:
    async with await session.start(["bash", "--norc"], pty=True, size=(30, 100), env={"PS1": "> "}) as shell:
        await shell.write("stty size; trap 'echo resized $((1 + 1))' WINCH; echo is$((1 + 1))\n")
        assert "30 100\r\n" in await until(shell, "is2")
        shell.resize(40, 120)
        await shell.write("stty size; echo is$((1 + 2))\n")
        assert "40 120\r\n" in await until(shell, "is3")
        await shell.write("sleep 100\n")
        await asyncio.sleep(0.1)
        await shell.write("\x03echo is$((2 + 2))\n")
        await until(shell, "is4")
        await shell.write("exit 3\n")
        assert await shell.wait() == 3
    cat = await session.start(["cat"], pty=True)
    await cat.write("x\n")
    await cat.close_input()
    assert await all_of(cat) == "x\r\nx\r\n"


@on_walls("bubblewrap", "namespaces", "landlock", "docker")
async def test_terminals_that_code_makes(place: Place) -> None:
    code = "import os\nmade = [os.openpty() for _ in range(COUNT)]\n[os.ttyname(made[0][1]), os.listdir('/dev/pts')]"
    if not place.has_mounts:
        with pytest.raises(RequestError, match="terminals: behind the wall"):
            async with place.sandbox(terminals=True):
                pass
        return
    async with place.sandbox(terminals=True) as sandbox, sandbox.session() as session:
        assert (await sandbox.run(code.replace("COUNT", "20"))).success
        assert (await session.run(code.replace("COUNT", "1"))).value == ["/dev/pts/0", ["0", "ptmx"]]
        assert (await session.run(code.replace("COUNT", "40"))).outcome == "error"
        refused = "import fcntl\nfcntl.ioctl(made[0][1], 0x5412, b'x')"  # What it would type for others.
        assert "PermissionError" in (await session.run(refused)).output
    async with place.sandbox() as sandbox:
        assert not (await sandbox.run(code.replace("COUNT", "1"))).success


@on_both_shapes
async def test_ports(online: Session) -> None:
    server, (counting, pouring, aborting) = await started_server(online)

    async def count(size: int) -> str:
        reader, writer = await online.connect(counting)
        writer.write(bytes(size))
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer.decode()

    sizes = [*range(0, 20_000, 1000), 3_000_000]
    assert await asyncio.gather(*map(count, sizes)) == list(map(str, sizes))
    reader, writer = await online.connect(pouring)
    assert len(await reader.read()) == 320 * 65_536
    writer.close()
    reader, writer = await online.connect(aborting)
    writer.write(b"x")
    assert await reader.read() == b""
    writer.close()
    assert await count(5) == "5"
    # Code of the session gets there too.
    run = await online.run(f"import socket\nsocket.create_connection(('127.0.0.1', {counting})).close()")
    assert run.success, run.output
    await server.kill()
    with pytest.raises(ConnectionRefusedError, match=f"nothing in the session listens at port {counting}"):
        await online.connect(counting)


@on_both_shapes
async def test_connect_waits_for_a_server(online: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with await online.start(["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1"]):
        reader, writer = await online.connect(port, timeout=20)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 200 OK")
        writer.close()


@on_both_shapes
async def test_only_the_sessions_own_ports(
    online: Session, networked: Callable[[Place], Awaitable[Sandbox]], place: Place
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, pytest.raises(ConnectionRefusedError):
        await online.connect(ours.getsockname()[1])
    async with (await networked(place)).session() as other:
        server, (port, *_) = await started_server(online)
        with pytest.raises(ConnectionRefusedError):
            await other.connect(port)
        _, writer = await online.connect(port)
        writer.close()
        await server.kill()


async def test_code_that_ends_all_processes_breaks_nothing(online: Session) -> None:
    _, (port, *_) = await started_server(online)
    reader, writer = await online.connect(port)
    ended = (
        "for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n    pid in (1, os.getpid()) or os.kill(pid, 9)"
    )
    assert (await online.run(f"import os\n{ended}")).success
    assert await reader.read() == b""
    writer.close()
    _, (port, *_) = await started_server(online)
    _, writer = await online.connect(port, timeout=10)
    writer.close()


async def test_a_port_that_nobody_serves_is_an_error(sandbox: Sandbox, session: Session) -> None:
    with pytest.raises(RequestError, match="local_network=True"):
        await session.connect(80)
    with pytest.raises(RequestError, match="port=0"):
        await session.connect(0)


async def test_output_that_nobody_reads_is_dropped_and_that_is_said(place: Place) -> None:
    async with place.sandbox(limits={"output_bytes": 1000}) as sandbox, sandbox.session() as session:
        process = await session.start(["sh", "-c", "seq 1 2000"])
        assert await process.wait() == 0
        said, _, rest = (await process.read()).partition("\n")
        assert said == "[7,893 bytes of output were dropped here.]"
        assert rest.endswith("\n1999\n2000\n")
        assert len(rest) == 1000
        patient = await session.start(["sh", "-c", "seq 1 200000"], wait_for_reader=True)
        await asyncio.sleep(0.05)
        assert patient.exit_code is None
        assert (await all_of(patient)).split() == list(map(str, range(1, 200_001)))


async def test_much_input_waits_for_room_and_bytes_are_kept(session: Session) -> None:
    process = await session.start(["cat"], wait_for_reader=True)
    data = bytes(range(256)) * 10_000 + "ä€".encode()

    async def feed() -> None:
        await process.write(data)
        await process.close_input()

    feeding = asyncio.ensure_future(feed())
    pieces = [piece async for piece in process]
    await feeding
    assert b"".join(piece.data for piece in pieces) == data
    assert "".join(piece.text for piece in pieces).endswith("ä€")


@on_both_shapes
async def test_signals_reach_what_it_has_started(session: Session) -> None:
    process = await session.start(["sh", "-c", "sleep 100 & echo on; wait"])
    assert await process.read() == "on\n"
    assert await process.stop() == 128 + signal.SIGTERM
    assert await all_of(process) == ""  # Which ends once nothing has its output open.
    assert await process.kill() == process.exit_code
    stubborn = await session.start(["sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.01; done"])
    await stubborn.read()
    assert await stubborn.stop(timeout=0.05) == 128 + signal.SIGKILL


async def restart(session: Session) -> None:
    await session.restart()


async def roll_back(session: Session) -> None:
    await session.rollback(await session.checkpoint())


async def time_out(session: Session) -> None:
    await session.run("import time\ntime.sleep(100)", timeout=0.1)


async def close(session: Session) -> None:
    await session.close()


@pytest.mark.parametrize("end", [restart, roll_back, time_out, close])
@on_both_shapes
async def test_they_stay_until_all_ends(session: Session, end: Callable[[Session], Awaitable[None]]) -> None:
    process = await session.start(["sh", "-c", "sleep 100 & sleep 100; echo no"])
    other = await session.start(["cat"])
    await session.run("print('a cell')")
    await session.run("echo a shell", language="sh")
    assert process.exit_code is None
    await end(session)
    assert (await process.wait() > 128, await all_of(process)) == (True, "")
    assert await other.kill() > 128
    if end is not close:
        assert await all_of(await session.start(["echo", "again"])) == "again\n"


async def test_limits_hold_for_all_together(place: Place) -> None:
    limits = {"memory_bytes": 128 << 20, "processes": 4}
    async with place.sandbox(limits=limits) as sandbox, sandbox.session() as session:
        takes = "import time\nx = b'x' * (70 << 20)\ntime.sleep(100)"
        processes = [await session.start(["python3", "-c", takes]) for _ in range(3)]
        assert [await process.wait() for process in processes] == [137] * 3
        assert {process.limit for process in processes} == {"memory"}
        assert (await session.run("1 + 1")).value == 2
        shells = [await session.start(["sh", "-c", "sleep 100; true"]) for _ in range(3)]
        assert [await shell.wait() for shell in shells] == [137] * 3
        assert {shell.limit for shell in shells} == {"processes"}
        for _ in range(4):
            await session.start(["sleep", "100"])
        with pytest.raises(RequestError, match="has 4 processes"):
            await session.start(["sleep", "100"])


async def test_what_cannot_be_started_says_why(session: Session, place: Place) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await session.start(["no-such-program"])
    with pytest.raises(FileNotFoundError, match="no-such-folder"):
        await session.start(["true"], cwd="no-such-folder")
    with pytest.raises(RequestError, match="argv='ls -l' is not a command"):
        await session.start("ls -l")
    with pytest.raises(RequestError, match="size="):
        await session.start(["true"], pty=True, size=(0, 80))
    async with place.sandbox(policy="restricted") as sandbox, sandbox.session() as restricted:
        with pytest.raises(RequestError, match="policy 'restricted'"):
            await restricted.start(["true"])


@on_monty
async def test_an_engine_without_programs_says_so(session: Session) -> None:
    with pytest.raises(RequestError, match="The engine 'monty' runs no programs"):
        await session.start(["true"])
