# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that finds the worker's channel to the host and says on it what it likes."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import attempt, still_works, told
from .inside import CHANNEL

NASTY: list[Any] = [
    None, True, -1, 0, 1.5, 1e308, 10**400, "", "x", "\ud800", "\0", "9" * 5000, [], [1], {}, {"a": 1}, [[[]]],
    float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
FIELDS = [
    "outcome", "exit_code", "value", "tagged", "value_repr", "error", "artifacts", "threads",
    "error.type", "error.message", "error.traceback", "error.line", "error.errno",
    "artifact.name", "artifact.size", "artifact.data",
]  # fmt: skip

EVENTS = """
for nasty in json.loads(NASTY):
    for event in ("ready", "done", "ended", "failed", "room", "reset", "killed", "holding", "freeze", nasty):
        for field in ("id", "pid", "status", "limit", "lost", "error", "fork", "peak", "threads"):
            tell(event=event, **{field: nasty})
        tell(event=event, id=number + 1)
'alive'
"""
GARBAGE = """
for data in (b"\\0", b"{}", key, key + b"M", key + b"m" * 100, key + b"?" * 100, b"M" * 60000, key + b"M" + b"\\xff" * 60000,
             key + b"M[]", key + b'M"x"', key + b"M1", key + b"Mnull", key + b"M{", key + b"o\\xff\\xfe", key + b"e\\xc3"):
    for _ in range(50):
        sock.send(data)
'alive'
"""
EVERYWHERE = """
for fd in [fd for fd in range(1100) if fd != sock.fileno()]:
    for data in (b"\\0" * 9, b"\\0" * 8 + b'M{"event":"done","id":%d}' % number, key + b'M{"event":"done","id":%d,"value":666}' % number):
        try: os.write(fd, data)
        except OSError: pass
'alive'
"""
DESCRIPTORS = """
import array
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(60)]
for count in (1, 7, 8, 9, 60):
    for _ in range(200):
        try: sock.sendmsg([key + b"Mnull"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files[:count]))])
        except OSError: pass  # Too many are on their way.
'alive'
"""
DEEP = """
for depth in (500, 900, 950, 990, 1000, 5000, 100000, 1000000):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = opening * depth + b"1" + closing * depth
        text(b'{"event":"ready","pid":' + nested + b"}")
        text(b'{"event":' + nested + b"}")
'alive'
"""
EMPTY = "sock.send(b'')\ntime.sleep(1)\n'alive'"
UNFINISHED = "for _ in range(300): packet(b'x' * 61440, b'm')\ntell()\n'alive'"


async def say(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        for _ in range(2):  # Cells have numbers; one of those that are told below would be the right one.
            await sandbox.run("1")
        once = await attempt(sandbox, code, 20)
        async with sandbox.session() as session:
            kept = await attempt(session, code, 20)
            later = await attempt(session, "1 + 1", 20)
        return {"once": once, "kept": kept, "later": later, "works": await still_works(sandbox)}


@pytest.mark.parametrize(
    ("code", "lives"),
    [
        pytest.param(EVENTS, True, id="events"),
        pytest.param(GARBAGE, True, id="garbage"),
        pytest.param(EVERYWHERE, True, id="every descriptor"),
        pytest.param(DESCRIPTORS, True, id="descriptors"),
        pytest.param(DEEP, True, id="deep"),
        pytest.param(UNFINISHED, True, id="unfinished"),
        pytest.param(EMPTY, False, id="an empty packet"),
    ],
)
def test_what_is_no_answer_is_not_heard(caged: Caged, code: str, lives: bool) -> None:
    found = caged(say, f"NASTY = {json.dumps(NASTY)!r}\n{CHANNEL}{code}")
    assert found["works"]
    assert found["later"]["value"] == 2
    if lives:
        assert found["once"]["value"] == found["kept"]["value"] == "alive", (found["once"], found["kept"])


ANSWER = """
fields = {"error": {"type": "E", "message": "m"}, "artifacts": [{"name": "a", "size": 1}]}
nasty, field = json.loads(NASTY), FIELD
if field.startswith("error"):
    fields["outcome"] = "error"
if "." not in field:
    fields[field] = nasty
elif field.startswith("error."):
    fields["error"][field[6:]] = nasty
else:
    fields["artifacts"][0][field[9:]] = nasty
done(**fields)
time.sleep(0.2)
"""


async def answer(wall: str, field: str) -> dict[str, Any]:
    found = []
    async with Sandbox(wall) as sandbox:
        codes = (f"NASTY, FIELD = {json.dumps(nasty)!r}, {field!r}\n{CHANNEL}{ANSWER}" for nasty in NASTY)
        for result in await asyncio.gather(*(sandbox.run(code, timeout=20) for code in codes)):
            # A caller prints, stores and sends what it has got.
            text = f"{result!r}{result.error}{result.value_repr}"
            text.encode()
            json.dumps(told(result)).encode()
            assert result.exit_code in range(256)
            assert type(result.exit_code) is int
            for artifact in result.artifacts:
                assert artifact.size >= 0
                assert artifact.size < 1 << 63
            found.append(result.outcome.value)
        return {"found": found, "works": await still_works(sandbox)}


@pytest.mark.parametrize("field", FIELDS)
def test_an_answer_of_other_types_is_a_result(caged: Caged, field: str) -> None:
    found = caged(answer, field)
    assert found["works"]
    assert set(found["found"]) <= {"ok", "error", "memory", "timeout"}


BOMBS = {
    "a value of empty lists": 'text(b\'{"event":"done","id":%d,"outcome":"ok","exit_code":0,"value":[\' % number + b\'[],\' * 30_000_000 + b\'1]}\')',
    "a value of empty objects": 'text(b\'{"event":"done","id":%d,"outcome":"ok","exit_code":0,"value":[\' % number + b\'{},\' * 30_000_000 + b\'1]}\')',
    "other events": "bomb = b'{\"event\":\"x\",\"value\":[' + b'[],' * 30_000_000 + b'1]}'\nfor _ in range(3): text(bomb)\ndone(value=1)",
    "many artifacts": "done(artifacts=[{'name': 'a%d' % n, 'size': 1} for n in range(1_500_000)])",
    "a long text": "done(outcome='error', error={'type': 'E', 'message': 'm' * 30_000_000, 'traceback': 't' * 30_000_000})",
    "tagged values of many parts": 'text(b\'{"event":"done","id":%d,"outcome":"ok","exit_code":0,"tagged":[\' % number + b\'{"$tuple":[[]]},\' * 65_000 + b\'1]}\')',
    "a set of equal hashes": "done(tagged={'$set': [n * (2**61 - 1) for n in range(40_000)]})",
    "sets in sets of equal hashes": "tree = lambda n, base: {'$frozenset': [tree(n - 1, base), tree(n - 1, base + 2**61 - 1)]} if n else base\ndone(tagged=tree(14, 0))",
    "a number with a long exponent": "done(tagged={'$set': [{'$decimal': '1e999999999999999999'}, {'$decimal': '-1e-999999999999999999'}, 1]})",
    "a fraction of long integers": "done(tagged={'$fraction': [int('7' * 4000), int('3' * 4000)]})",
    "a long repr": "done(value_repr='r' * 60_000_000)",
}


async def bomb(wall: str, code: str) -> dict[str, Any]:
    import resource

    async with Sandbox(wall, limits=Limits(memory_bytes=1 << 30)) as sandbox:
        await sandbox.run("1")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        longest = 0.0
        task = asyncio.ensure_future(sandbox.run(f"{CHANNEL}{code}\ntime.sleep(0.2)", timeout=30))
        loop = asyncio.get_running_loop()
        while not task.done():
            last = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - last)
        result = await task
        size = len(result.value_repr or "") + (
            0 if result.error is None else len(str(result.error)) + len(result.error.message)
        )
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        return {
            "blocked": longest,
            "grown": grown,
            "size": size,
            "artifacts": len(result.artifacts),
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize("name", BOMBS)
def test_a_large_answer_costs_the_host_little(caged: Caged, name: str) -> None:
    found = caged(bomb, BOMBS[name], seconds=110, memory=6 << 30)
    assert found["works"]
    assert found["grown"] < 300, found  # MiB
    assert found["blocked"] < 3, found
    assert found["artifacts"] <= 100
    assert found["size"] < 3 << 20


SENT = """
for tag, body in json.loads(PACKETS):
    packet(body.replace("NUMBER", str(number)).encode("latin-1"), tag.encode())
'alive'
"""
EVENTS_OF_RUNNERS = ["ready", "failed", "done", "call", "left", "ended", "limit", "x"]
ARGUMENTS = ["id", "pid", "call", "name", "args", "kwargs", "error", "limit", "contents", *FIELDS]


def random_packets(random: Random) -> list[tuple[str, str]]:
    """Packets as a hostile guest may send them: whole and cut messages, wrong tags, and fields of any type."""
    found = []
    for _ in range(random.randint(1, 12)):
        fields = {random.choice(ARGUMENTS): random.choice([*NASTY, {"a": NASTY}]) for _ in range(random.randint(0, 6))}
        body = json.dumps({"event": random.choice(EVENTS_OF_RUNNERS), "id": 0, **fields})
        body = body.replace('"id": 0', random.choice(['"id": NUMBER', '"id": 0', '"id": "NUMBER"']))
        if random.random() < 0.3:
            begin, end = sorted(random.choices(range(len(body) + 1), k=2))
            body = body[begin:end] + random.choice(["", "\xff\xfe", "}", "\0" * 9])
        found.append((random.choice("MMMMmoec?"), body))
    return found


async def say_anything(wall: str, seed: int) -> dict[str, Any]:
    random = Random(seed)
    found = []
    async with Sandbox(wall) as sandbox, sandbox.session(functions=[len]) as session:
        for _ in range(25):
            code = f"PACKETS = {json.dumps(random_packets(random))!r}\n{CHANNEL}{SENT}"
            for place in (sandbox, session):
                result = await place.run(code, timeout=1)  # A call that the host refuses may keep it waiting.
                json.dumps(told(result)).encode()
                found.append(result.outcome.value)
        return {"found": found, "works": await still_works(sandbox)}


def test_random_packets_end_in_a_result(caged: Caged) -> None:
    found = caged(say_anything, 1)
    assert found["works"]
    assert set(found["found"]) <= {"ok", "error", "memory", "timeout"}
    assert "ok" in found["found"]
