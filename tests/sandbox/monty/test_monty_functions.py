"""Functions of the host in the engine `monty`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, Session

RELEASED = threading.Event()


async def fetch(name: str, *, times: int = 1) -> str:
    await asyncio.sleep(0)
    return name * times


def add(a: int, b: int = 1) -> int:
    return a + b


def fail(what: str) -> None:
    raise LookupError(f"no {what}")


def echo(value: Any) -> Any:
    return value


def block() -> None:
    RELEASED.wait(30)


async def hang() -> None:
    await asyncio.sleep(3600)


def leave() -> None:
    raise SystemExit(3)


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(engine="monty", limits=Limits(wall_seconds=20, calls=50, value_bytes=100_000)) as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    RELEASED.clear()
    async with sandbox.session(functions=[fetch, add, fail, echo, block, hang, leave]) as session:
        yield session
    RELEASED.set()


async def test_they_are_called_and_logged(session: Session) -> None:
    result = await session.run("[add(40, b=2), await fetch('a', times=2), echo({'a': [1, None, 1.5]})]")
    assert result.value == [42, "aa", {"a": [1, None, 1.5]}], result.output
    assert [(call.name, call.arguments, call.outcome) for call in result.calls] == [
        ("add", {"a": 40, "b": 2}, Outcome.OK),
        ("fetch", {"name": "a", "times": 2}, Outcome.OK),
        ("echo", {"value": {"a": [1, None, 1.5]}}, Outcome.OK),
    ]
    assert (await session.run("1")).calls == ()
    mark = await session.checkpoint()
    await session.rollback(mark)
    result = await session.run("import asyncio\nawait asyncio.gather(*[fetch(str(i)) for i in range(9)])")
    assert result.value == [str(i) for i in range(9)]


@pytest.mark.parametrize(
    ("call", "said", "outcome"),
    [
        ("fail('cake')", "LookupError: no cake", Outcome.ERROR),
        ("add('x')", "TypeError: add(): a: Input should be a valid integer", Outcome.REJECTED),
        ("add()", "TypeError: add(): missing a required argument: 'a'", Outcome.REJECTED),
        ("leave()", "RuntimeError: SystemExit: 3", Outcome.ERROR),
        ("echo({1})", "TypeError: echo(): argument 1 is or holds a set", None),
        ("echo('x' * 102_000)", "ValueError: echo(): the arguments have 102,0", Outcome.REJECTED),
    ],
)
async def test_what_goes_wrong_is_an_exception_there(
    session: Session, call: str, said: str, outcome: Outcome | None
) -> None:
    result = await session.run(
        f"try:\n    {call}\nexcept Exception as e:\n    said = type(e).__name__ + ': ' + str(e)\nsaid"
    )
    assert said in result.value, result.output
    assert [each.outcome for each in result.calls] == ([outcome] if outcome else [])
    assert (await session.run(call)).outcome is Outcome.ERROR


async def test_a_cell_may_make_so_many(session: Session) -> None:
    code = (
        "n, said = 0, []\nfor i in range(55):\n    try:\n        n = add(n)\n"
        "    except RuntimeError as e:\n        said.append(str(e))\n[n, len(said), said[0]]"
    )
    for _ in range(2):
        result = await session.run(code)
        assert result.value == [50, 5, "add(): a cell may make 50 calls, and this one has made them"], result.output
        assert [call.outcome for call in result.calls] == [Outcome.OK] * 50 + [Outcome.REJECTED]


@pytest.mark.parametrize("call", ["block()", "await hang()"])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_the_end_of_a_cell_in_the_midst_of_a_call(session: Session, call: str, how: str) -> None:
    await session.run("x = 41")
    task = asyncio.ensure_future(session.run(call, timeout=0.4 if how == "timeout" else None))
    if how == "cancel":
        await asyncio.sleep(0.3)
        await session.cancel()
    result = await task
    assert result.outcome is (Outcome.TIMEOUT if how == "timeout" else Outcome.CANCELLED)
    assert [each.outcome for each in result.calls] == [Outcome.CANCELLED]
    assert (await session.run("add(x)")).value == 42


async def test_a_call_has_so_much_time() -> None:
    RELEASED.clear()
    limits = Limits(wall_seconds=20, call_seconds=0.2)
    async with Sandbox(engine="monty", limits=limits) as sandbox, sandbox.session(functions=[block, hang]) as session:
        for call in ("block()", "await hang()"):
            result = await session.run(call)
            assert result.error is not None
            assert result.error.type == "TimeoutError"
            assert [each.outcome for each in result.calls] == [Outcome.TIMEOUT]
    RELEASED.set()


async def test_the_same_session_is_an_error_and_no_deadlock(sandbox: Sandbox) -> None:
    sessions: list[Session] = []

    async def again() -> Any:
        return (await sessions[0].run("1")).value

    async def once() -> Any:
        return (await sandbox.run("1")).value

    async with sandbox.session(functions=[again, once]) as session:
        sessions.append(session)
        result = await session.run("await again()")
        assert result.error is not None
        assert "it would wait for itself" in result.error.message
        assert (await session.run("await once()")).value == 1
