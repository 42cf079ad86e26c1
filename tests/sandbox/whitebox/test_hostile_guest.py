"""Whatever bytes a guest sends, the host ends with a result or a typed error, within bounds, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.errors import CodeRoomError
from coderoom.sandbox import ExecutionResult, Sandbox, SandboxConfig
from coderoom.sandbox.contracts import WallReport
from coderoom.sandbox.engines.cpython import session as sessions
from coderoom.sandbox.engines.cpython.channel import HostChannel
from coderoom.sandbox.guest.frames import CONTENT, LAST, MORE, PART, STDERR, STDOUT, Channel, send_packet

STAGES = ("worker", "room", "runner", "cell", "cell", "cell", "cell")
ANSWERS = {"kill": "killed"}
EVENTS = ["done", "ready", "failed", "room", "killed", "looked", "freeze", "ended", "limit", "call", "left", "holding"]
NAMES = """
error id pid missing status fork lost limit peak outcome exit_code value value_repr value_too_large tagged artifacts
artifacts_left_out contents type message traceback line errno busy cpu_ms call name args kwargs size length items
$tuple $dict $set $bytes $array $decimal $datetime
"""
KEYS = NAMES.split()

numbers = st.integers() | st.floats() | st.sampled_from([0, 1, -9, 1 << 63, 10**400])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8) | st.sampled_from(["ok", "memory", "add", "\ud800"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from(KEYS), parts, max_size=3),
    max_leaves=8,
)
rest = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)
messages = st.builds(lambda event, rest: {"event": event, **rest}, st.sampled_from(EVENTS), rest)
answers = st.builds(lambda rest: {"event": "done", "outcome": "ok", "exit_code": 0, **rest}, rest)
calls = st.builds(
    lambda number, name, args, kwargs: {"event": "call", "call": number, "name": name, "args": args, "kwargs": kwargs},
    values,
    st.sampled_from(["add", "other"]) | values,
    st.lists(values, max_size=3) | values,
    st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=2) | values,
)
texts = (messages | answers | calls).map(lambda message: json.dumps(message).encode())
deep = st.builds(
    lambda event, key, depth: b'{"event": "%s","%s":%s}' % (event.encode(), key.encode(), b"[" * depth + b"]" * depth),
    st.sampled_from(EVENTS),
    st.sampled_from(KEYS),
    st.sampled_from([900, 990, 25_000]),
)
packets = st.lists(
    st.tuples(
        st.booleans() | st.just(True),  # Whether it has the right key.
        st.sampled_from([LAST, LAST, LAST, MORE, STDOUT, STDERR, CONTENT, b"?", b""]),
        texts | texts | deep | st.binary(max_size=40),
        st.integers(0, 2),  # How many descriptors come with it.
    ),
    max_size=6,
)


class HostileWorker:
    """The process behind a wall: a thread that keeps to the protocol up to a stage, and then sends what it likes."""

    boot: Mapping[str, Any] = {"rooms": "plain"}

    def __init__(self, stage: str, sent: list[tuple[bool, bytes, bytes, int]]) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stage, self._sent = stage, sent
        self._thread = threading.Thread(target=self._serve, args=(theirs,), daemon=True)
        self._thread.start()

    async def end(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def kill(self) -> None:
        self._thread.join()

    def describe_death(self) -> str:
        return ""

    def _serve(self, theirs: socket.socket) -> None:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            control = Channel(stack.enter_context(theirs))
            if control.receive() is None or self._attacks("worker", control):
                return
            control.send({"event": "ready"})
            while (request := control.receive()) is not None:
                room = Channel(stack.enter_context(socket.socket(fileno=request[1][0])))
                if self._attacks("room", room):
                    return
                room.send({"event": "room"})
                while (request := room.receive()) is not None:
                    message, fds = request
                    if message.get("reset"):  # The end of the session.
                        return
                    for fd in fds[1:]:
                        stack.callback(os.close, fd)
                    if message["op"] != "run":
                        room.send({"event": message.get("answer") or ANSWERS.get(message["op"], "?")})
                        continue
                    runner = Channel(stack.enter_context(socket.socket(fileno=fds[0])), bytes.fromhex(message["key"]))
                    if self._attacks("runner", runner):
                        return
                    runner.send({"event": "ready", "pid": 7})
                    while (request := runner.receive()) is not None and request[0]["op"] != "cell":
                        pass
                    if request is not None:  # The room stays, so that the host believes in what it gets.
                        self._attacks("cell", runner, request[0]["id"])

    def _attacks(self, stage: str, channel: Channel, cell: int = 0) -> bool:
        if stage != self._stage:
            return False
        for keyed, tag, body, count in self._sent:
            if cell and body.startswith(b'{"event": "done"'):
                body = body[:-1] + b',"id":%d}' % cell
            with contextlib.suppress(OSError):
                send_packet(channel.sock, (channel.key if keyed else b"forged!!") + tag + body, [0] * count)
        return True


class HostileWall:
    name = "hostile"

    def __init__(self, *attack: Any) -> None:
        self._attack = attack

    async def probe(self) -> WallReport:
        return WallReport(self.name, available=True, detail="")

    async def start(self, spec: SandboxConfig) -> HostileWorker:
        return HostileWorker(*self._attack)


@pytest.fixture(scope="module")
def impatient() -> Iterator[None]:
    """Nobody waits for code that is not there to heed an interrupt."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_GRACE", "_LAST_GRACE", "_MOMENT", "_CLOSING"):
            patch.setattr(sessions, name, 0.005)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@settings(derandomize=True, deadline=None)
@given(st.sampled_from(STAGES), packets)
def test_the_host_ends_with_a_result_or_a_typed_error(stage: str, sent: list[Any]) -> None:
    unhandled: list[Any] = []

    async def run() -> ExecutionResult | CodeRoomError:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        sandbox = Sandbox("none")
        sandbox._engine._wall = HostileWall(stage, sent)  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            try:
                async with sandbox, sandbox.session(functions=[add]) as session:
                    return await session.run("x", timeout=0.01)
            except CodeRoomError as error:
                return error

    before = len([*Path("/proc/self/fd").iterdir()])
    assert isinstance(asyncio.run(run()), ExecutionResult | CodeRoomError)
    assert not unhandled
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_messages_that_never_end_take_no_memory() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    got: list[Any] = []
    channel = HostChannel(ours, got.append, lambda: None, largest=100_000)
    part, theirs_end = bytes(8) + MORE + bytes(PART), Channel(theirs)
    tracemalloc.start()
    for _ in range(300):  # 18 MB.
        send_packet(theirs, part)
        channel.drain()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1_000_000
    theirs_end.send_encoded(b"{}")  # The end of the message, which is dropped.
    theirs_end.send({"event": "next"})
    channel.drain()
    assert got == [{"event": "next"}]
    channel.close()
    theirs.close()


@pytest.mark.parametrize("key", ["missing", "python"])
async def test_facts_of_a_worker_may_be_anything(key: str) -> None:
    sandbox = Sandbox("none")
    sent = (True, LAST, json.dumps({"event": "ready", key: ["numpy"]}).encode(), 0)
    sandbox._engine._wall = HostileWall("worker", [sent])  # type: ignore[attr-defined]
    with pytest.raises(CodeRoomError):
        await sandbox.run("1")
    await sandbox.close()
