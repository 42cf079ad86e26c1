# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that calls functions of the host by messages of its own, and with what no stub would send."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from autogen_core.tools import FunctionTool, StaticWorkbench  # Once, for all cages.
from pydantic import BaseModel

from coderoom.sandbox import Limits, Sandbox, Session

from .conftest import Caged
from .hostside import attempt, still_works, watched
from .inside import CHANNEL

NASTY: list[Any] = [
    None, True, -1, 0, 1, 1.5, 10**400, 10**4200, -(10**4000), "", "x", "\ud800", "\0", "9" * 5000, [], [1], [[]], {}, {"a": 1},
    float("nan"), float("inf"), {"": 1}, {"self": 1}, {"\ud800": "\udfff"}, {"args": 1, "kwargs": 2}, {"function": 1, "a": "x"},
    ["echo"], "add", "__class__", "add.__globals__", "os.system", "__import__", "tell", "take", "_functions",
]  # fmt: skip

FIELDS = """
for nasty in json.loads(NASTY):
    for field in ("call", "name", "args", "kwargs"):
        message = {"event": "call", "call": 1 << 40, "name": "note", "args": [], "kwargs": {"value": "legal"}}
        if field == "args":
            message["kwargs"] = {}
        tell(**{**message, field: nasty})
        message.pop(field)
        tell(**message)
    tell(event="call", call=nasty, name=nasty, args=nasty, kwargs=nasty)
    tell(event="call", call=1 << 41, name="note", args=[nasty] * 3, kwargs={"value": nasty})
'alive'
"""
DEEP = """
for depth in (150, 250, 500, 900, 950, 980, 985, 990, 993, 996, 1000, 100_000):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = opening * depth + b"1" + closing * depth
        for name in (b"note", b"numbers", b"point", b"tool", b"collect", b"given"):
            text(b'{"event":"call","call":7,"name":"' + name + b'","args":[' + nested + b'],"kwargs":{}}')
            text(b'{"event":"call","call":7,"name":"' + name + b'","args":[],"kwargs":{"a":' + nested + b"}}")
            text(b'{"event":"call","call":' + nested + b',"name":"' + name + b'","args":[],"kwargs":{}}')
time.sleep(0.5)
'alive'
"""
OTHERS = """
for event in ("reply", "functions", "call ", "Call", "calls"):
    for op in ("reply", "functions", "cell", "checkpoint"):
        tell(event=event, op=op, call=1, id=number, name="note", args=["forged"], kwargs={}, offers=[], value=1)
'alive'
"""
TWO_READERS = """
import select
getpid = os.getpid
own = getpid()
os.getpid = lambda: own
pids = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        for i in range(200):
            try: collect(i)
            except BaseException: pass
        os._exit(0)
    pids.append(pid)
threading.Thread(target=lambda: [collect(i) for i in range(50)], daemon=True).start()
time.sleep(1)
'alive'
"""


def functions(seen: list[Any]) -> list[Any]:
    class Point(BaseModel):
        x: int
        y: dict[str, list[int]]

    def note(value: str) -> str:
        seen.append(value)
        return value

    def numbers(a: list[list[list[int]]]) -> int:
        return len(a)

    async def point(a: Point) -> int:
        return a.x

    def tool(a: dict[str, Any]) -> dict[str, Any]:
        return a

    def collect(*args: Any, **kwargs: Any) -> Any:
        return [list(args), kwargs]

    def given(a: list[Any]) -> Any:
        return a

    workbench = StaticWorkbench([FunctionTool(given, "Give it back.")])
    return [note, numbers, point, FunctionTool(tool, "A tool."), collect, workbench]


async def until_it_answers(session: Session, code: str) -> Any:
    """The value of a cell; code that plays its own worker, or goes on, may cost the next cells their time."""
    for _ in range(3):
        found = await attempt(session, code, 3)
        if found["value"] is not None:
            return found["value"]
    return None


async def forge(wall: str, code: str) -> dict[str, Any]:
    seen: list[Any] = []
    async with Sandbox(wall) as sandbox:
        async with sandbox.session(functions=functions(seen)) as session:
            await session.run("import asyncio")
            first = await attempt(session, code, 20)
            second = await until_it_answers(session, "[note('own'), collect(1, a=2), given([1])]")
            result = await session.run(code)
            json.dumps([str(call) for call in result.calls])
        return {
            "first": first,
            "second": second,
            "calls": sorted({call.name for call in result.calls}),
            "seen": [str(each) for each in seen if not isinstance(each, str)],
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(FIELDS, id="fields"),
        pytest.param(DEEP, id="deep"),
        pytest.param(OTHERS, id="other events"),
        pytest.param(TWO_READERS, id="forks that share the channel"),
    ],
)
def test_forged_calls(caged: Caged, code: str) -> None:
    found = caged(forge, f"NASTY = {json.dumps(NASTY)!r}\n{CHANNEL}{code}", seconds=100)
    assert found["works"]
    assert found["first"]["value"] == "alive", found["first"]
    assert found["second"] == ["own", [[1], {"a": 2}], "[1]"]
    assert found["seen"] == []  # No function got what its signature does not allow.
    assert set(found["calls"]) <= {"note", "numbers", "point", "tool", "collect", "given"}


ENDS = {
    "done with calls at work": "threading.Thread(target=lambda: [nap() for _ in range(3)], daemon=True).start()\nfor i in range(50): tell(event='call', call=-i, name='nap', args=[], kwargs={})\ndone(value=1)\ntime.sleep(30)",
    "done and calls after it": "done(value=1)\nfor i in range(100000): tell(event='call', call=-i, name='note', args=['late'], kwargs={})\ntime.sleep(30)",
    "half a call": 'packet(b\'{"event":"call","call":1,"na\', b\'m\')\nos._exit(0)',
    "half a call and done": 'packet(b\'{"event":"call","call":1,"na\', b\'m\')\ndone(value=1)',
    "an end with answers on their way": "for i in range(200): tell(event='call', call=-i, name='give', args=[900000], kwargs={})\ntime.sleep(0.5)\nos._exit(0)",
    "a kill with answers on their way": "for i in range(200): tell(event='call', call=-i, name='give', args=[900000], kwargs={})\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)",
    "a channel that is shut": "for i in range(200): tell(event='call', call=-i, name='give', args=[900000], kwargs={})\nsock.shutdown(socket.SHUT_RDWR)\ntime.sleep(30)",
    "a channel that is half shut": "for i in range(200): tell(event='call', call=-i, name='give', args=[900000], kwargs={})\nsock.shutdown(socket.SHUT_RD)\ntime.sleep(30)",
    "a channel that is closed": "for i in range(20): tell(event='call', call=-i, name='nap', args=[], kwargs={})\nos.close(sock.fileno())\ntime.sleep(30)",
    "an end with the answers unread": "for i in range(20): tell(event='call', call=-i, name='give', args=[10], kwargs={})\ntime.sleep(0.5)\ndone(value=1)\ntime.sleep(0.3)\nos._exit(0)",
}


async def end(wall: str, code: str) -> dict[str, Any]:
    seen: list[str] = []

    def note(value: str) -> None:
        seen.append(value)

    async def nap() -> None:
        await asyncio.sleep(0.2)

    async def give(count: int) -> str:
        return "x" * count

    found: dict[str, Any] = {"values": [], "seconds": []}
    async with Sandbox(wall) as sandbox:
        for _ in range(2):
            async with sandbox.session(functions=[note, nap, give]) as session:
                first = await attempt(session, CHANNEL + code, 1)
                found["values"].append(await until_it_answers(session, "note('next')\nlen(await give(500_000))"))
                found["seconds"].append(first["seconds"])
        found["works"] = await still_works(sandbox)
    found["seen"] = sorted(set(seen))
    return found


@pytest.mark.parametrize("name", ENDS)
def test_ends_with_calls_under_way(caged: Caged, name: str) -> None:
    found = caged(end, ENDS[name], seconds=100)
    assert found["works"]
    assert found["values"] == [500_000] * 2, found
    assert max(found["seconds"]) < 10, found
    # What comes while the next cell runs is that one's.
    assert found["seen"] == (["late", "next"] if "after" in name else ["next"])


PAYLOADS = {
    "small calls": "body = json.dumps(dict(event='call', call=1, name='collect', args=[1], kwargs={})).encode()",
    "calls of what is not offered": "body = json.dumps(dict(event='call', call=1, name='x' * 50000, args=[1], kwargs={})).encode()",
    "large calls": "body = json.dumps(dict(event='call', call=1, name='collect', args=['x' * 900000], kwargs={})).encode()",
    "too large calls": "body = json.dumps(dict(event='call', call=1, name='collect', args=['x' * 3000000], kwargs={})).encode()",
    "empty lists": 'body = b\'{"event":"call","call":1,"name":"nap","kwargs":{},"args":[0\' + b\',[]\' * 340000 + b\']}\'',
    "empty lists for one that waits": 'body = b\'{"event":"call","call":1,"name":"hold","kwargs":{},"args":[[0\' + b\',[]\' * 340000 + b\']]}\'',
    "many names": "body = json.dumps(dict(event='call', call=1, name='collect', args=[], kwargs={'n%d' % i: i for i in range(60000)})).encode()",
    "names that do not fit": "body = json.dumps(dict(event='call', call=1, name='numbers', args=[], kwargs={'n%d' % i: i for i in range(60000)})).encode()",
    "values that do not fit": "body = json.dumps(dict(event='call', call=1, name='numbers', args=[['x'] * 180000], kwargs={})).encode()",
    "values that do not fit a schema": "body = json.dumps(dict(event='call', call=1, name='listed', args=[['x'] * 180000], kwargs={})).encode()",
    "large answers": "body = json.dumps(dict(event='call', call=1, name='give', args=[1000000], kwargs={})).encode()",
    "too large answers": "body = json.dumps(dict(event='call', call=1, name='give', args=[30000000], kwargs={})).encode()",
    "many numbers in the answer": "body = json.dumps(dict(event='call', call=1, name='count', args=[300000], kwargs={})).encode()",
    "threads that hang": "body = json.dumps(dict(event='call', call=1, name='block', args=[], kwargs={})).encode()",
    "never a whole call": "body = b'x' * 500\ndef text(body): packet(body * 100, b'm')",
}
FLOOD = """
if THREADS:
    for _ in range(4):
        threading.Thread(target=lambda: [text(body) for _ in iter(int, 1)], daemon=True).start()
while True:
    text(body)
"""


async def flood(wall: str, code: str, calls: int) -> dict[str, Any]:
    def collect(*args: Any, **kwargs: Any) -> int:
        return len(args) + len(kwargs)

    async def nap(*args: Any) -> None:
        await asyncio.sleep(60)

    def hold(value: list[list[int]]) -> None:
        released.wait(60)

    def numbers(values: list[int]) -> int:
        return len(values)

    def listed(values: list[int]) -> int:
        return len(values)

    def give(count: int) -> str:
        return "x" * count

    def count(most: int) -> list[int]:
        return list(range(most))

    def block() -> None:
        released.wait(60)

    import threading

    released = threading.Event()
    workbench = StaticWorkbench([FunctionTool(listed, "A list.")])
    limits = Limits(wall_seconds=1, calls=calls, processes=16)
    async with Sandbox(wall, limits=limits) as sandbox:
        async with sandbox.session(functions=[collect, nap, hold, numbers, workbench, give, count, block]) as session:
            await session.run("1")
            found, blocked, grown = await watched(attempt(session, CHANNEL + code))
            result = await session.run("collect(1, 2)")
        released.set()
        return {
            "outcome": found["outcome"],
            "seconds": found["seconds"],
            "blocked": blocked,
            "grown": grown,
            "again": result.value,
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        *((name, False) for name in PAYLOADS),
        *((name, True) for name in ("small calls", "large calls", "threads that hang")),
    ],
)
def test_floods_of_calls_whose_answers_nobody_reads(caged: Caged, name: str, threads: bool) -> None:
    calls = 1_000_000 if name == "small calls" and threads else 10_000
    found = caged(flood, f"{PAYLOADS[name]}\nTHREADS = {threads}\n{FLOOD}", calls, seconds=60)
    assert found["works"]
    assert found["outcome"] == "timeout"
    assert found["again"] == 2
    assert found["seconds"] < 10, found
    assert found["blocked"] < 3, found
    assert found["grown"] < 600, found  # MiB
