"""Programs that stay in a session at a server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import RemoteSandbox, Session
from tests.support.sandbox_server import shared_server


@pytest.fixture(scope="module")
async def session() -> AsyncIterator[Session]:
    async with RemoteSandbox(**shared_server(), local_network=True) as sandbox, sandbox.session() as session:
        yield session


@pytest.mark.slow
async def test_what_it_reads_and_writes_and_its_end(session: Session) -> None:
    process = await session.start(["sh", "-c", "cat; echo error >&2; exit 3"], env={"A": "b"})
    await process.write("x" * 300_000)
    await process.close_input()
    pieces = [piece async for piece in process]
    assert b"".join(each.data for each in pieces if each.stream == "stdout") == b"x" * 300_000
    assert b"".join(each.data for each in pieces if each.stream == "stderr") == b"error\n"
    assert (await process.wait(), process.closed) == (3, True)


async def test_a_terminal_and_its_size(session: Session) -> None:
    async with await session.start(["sh"], pty=True, size=(20, 70)) as process:
        await process.write("stty size; echo $((6 * 7))\n")
        text = ""
        while "42" not in text:
            text += await process.read(10)
        assert "20 70\r\n42\r\n" in text
        process.resize(30, 90)
        text = ""
        while "30 90\r\n" not in text:
            await process.write("stty size\n")
            text += await process.read(10)


async def test_signals_cells_beside_it_and_what_cannot_be_started(session: Session) -> None:
    process = await session.start(["sleep", "100"])
    assert (await session.run("6 * 7")).value == 42
    await process.send_signal(signal.SIGTERM)
    assert await process.wait() == 128 + signal.SIGTERM
    with pytest.raises(FileNotFoundError, match="none_such"):
        await session.start(["none_such"])
    with pytest.raises(RequestError, match="over a server"):
        await session.connect(8000)


@pytest.mark.slow
async def test_it_ends_with_its_session() -> None:
    """Also if the session is closed before anything of the program was read, which several at once make likely."""

    async def ended(sandbox: RemoteSandbox) -> int:
        async with sandbox.session() as session:
            process = await session.start(["sleep", "100"])
            assert process.exit_code is None
        return await process.wait()

    async with RemoteSandbox(**shared_server()) as sandbox:
        for _ in range(2):
            assert await asyncio.gather(*(ended(sandbox) for _ in range(20))) == [128 + signal.SIGKILL] * 20
