"""What every engine behind every wall promises; run on each that this machine has."""

from __future__ import annotations

import asyncio

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits, OutputChunk, Sandbox, Session

from .places import Place, everywhere

pytestmark = everywhere

VALUES: dict[str, object] = {
    "None": None,
    "True": True,
    "1.5": 1.5,
    "'ä\\ud800'[0]": "ä",
    "[1, 'a', None, {'b': [2.5]}]": [1, "a", None, {"b": [2.5]}],
    "{'a': {}}": {"a": {}},
    "x = 3": None,
    "{1, 2}": {1, 2},
    "{1: 2}": {1: 2},
    "b'x'": b"x",
    "range(3)": "range(0, 3)",
}


async def test_a_run_prints_and_has_a_value(sandbox: Sandbox) -> None:
    result = await sandbox.run("print(sum(range(10)))\n6 * 7")
    assert (result.outcome, result.exit_code) == (Outcome.OK, 0)
    assert (result.stdout, result.stderr, result.output) == ("45\n", "", "45\n")
    assert (result.value, result.value_repr, result.result, result.success) == (42, "42", 42, True)
    assert result.error is None
    assert result.duration > 0


async def test_each_run_starts_fresh(sandbox: Sandbox) -> None:
    assert (await sandbox.run("x = 1")).success
    result = await sandbox.run("x")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert result.error.type == "NameError"


async def test_a_session_keeps_its_state_over_a_failing_cell(session: Session) -> None:
    await session.run("x = 40\ndef add(a, b):\n    return a + b")
    failed = await session.run("y = 2\nx / 0")
    assert failed.outcome is Outcome.ERROR
    assert not failed.state_lost
    assert (await session.run("add(x, y)")).value == 42


async def test_sessions_do_not_see_each_other(sandbox: Sandbox) -> None:
    async with sandbox.session() as one, sandbox.session() as other:
        await one.run("x = 1")
        assert (await other.run("x")).outcome is Outcome.ERROR


async def test_values_come_back_as_data_or_as_repr(sandbox: Sandbox) -> None:
    for code, value in VALUES.items():
        result = await sandbox.run(code)
        assert result.value == value, code
        assert type(result.value) is type(value), code


async def test_a_traceback_shows_the_lines_of_the_code_only(place: Place, session: Session) -> None:
    await session.run("def half(x):\n    return x / 0")
    result = await session.run("y = 1\nhalf(y)")
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("ZeroDivisionError", 2)
    assert "half(y)" in result.error.traceback
    assert "return x / 0" in result.error.traceback
    assert "coderoom_guest" not in result.error.traceback
    assert result.error.message in result.output


async def test_a_syntax_error_is_the_codes_failure(sandbox: Sandbox) -> None:
    result = await sandbox.run("x = 1\nif x\n    pass")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("SyntaxError", 2)


async def test_await_at_top_level(sandbox: Sandbox) -> None:
    result = await sandbox.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\nawait f()")
    assert result.value == 3


async def test_input_has_a_clear_error_at_once(sandbox: Sandbox) -> None:
    result = await sandbox.run("input('name? ')")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert "input()" in result.error.message


async def test_output_arrives_while_the_cell_runs(session: Session) -> None:
    seen: list[OutputChunk | ExecutionResult] = []
    first_at = last_at = 0.0
    loop = asyncio.get_running_loop()
    async for item in session.stream("print('a')\nfor i in range(6_000_000): pass\nprint('b')"):
        seen.append(item)
        if len(seen) == 1:
            first_at = loop.time()
        last_at = loop.time()
    assert isinstance(seen[-1], ExecutionResult)
    assert "".join(item.text for item in seen if isinstance(item, OutputChunk)) == "a\nb\n"
    assert last_at - first_at > seen[-1].duration / 3


async def test_output_is_bounded_and_counted(place: Place) -> None:
    async with place.sandbox(limits=Limits(output_bytes=4096)) as sandbox:
        result = await sandbox.run("for i in range(20_000):\n    print(i)\nprint('end')")
    assert result.outcome is Outcome.OK
    assert result.truncated
    assert result.output_size == sum(len(f"{i}\n") for i in range(20_000)) + 4
    assert len(result.output) < 4096 + 200
    assert result.output.startswith("0\n1\n2\n")
    assert result.output.endswith("19999\nend\n")
    assert "left out" in result.output


async def test_a_deadline_ends_the_cell_and_keeps_its_output(session: Session) -> None:
    await session.run("x = 1")
    result = await session.run("print('before')\nwhile True: pass", timeout=0.5)
    assert (result.outcome, result.exit_code, result.limit) == (Outcome.TIMEOUT, 124, "wall")
    assert result.stdout == "before\n"
    assert result.error is not None
    assert "0.5 seconds" in result.error.message
    again = await session.run("1 + 1")
    assert again.value == 2


async def test_what_a_deadline_costs_is_said(session: Session) -> None:
    await session.run("x = 1")
    result = await session.run("while True: pass", timeout=0.3)
    assert result.error is not None
    if result.state_lost:
        assert "variables are gone" in result.error.message
        assert not (await session.run("x")).success
    else:
        assert (await session.run("x")).value == 1


async def test_cancelling_keeps_the_output(session: Session) -> None:
    task = asyncio.ensure_future(session.run("print('before')\nwhile True: pass"))
    await asyncio.sleep(0.3)
    await session.cancel()
    result = await task
    assert (result.outcome, result.exit_code) == (Outcome.CANCELLED, 125)
    assert result.stdout == "before\n"


async def test_a_cancelled_task_ends_the_code(session: Session) -> None:
    task = asyncio.ensure_future(session.run("while True: pass"))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await session.run("1 + 1")).value == 2


async def test_an_error_in_the_function_that_takes_output_is_the_callers(session: Session) -> None:
    def take(chunk: OutputChunk) -> None:
        raise BrokenPipeError(chunk.text)

    with pytest.raises(BrokenPipeError, match="x"):
        await session.run("x = 1\nwhile True: print('x')", on_output=take)
    assert (await session.run("2")).value == 2


async def test_a_left_stream_ends_the_code(session: Session) -> None:
    async for item in session.stream("while True: print('x')"):
        assert isinstance(item, OutputChunk)
        break
    assert (await session.run("1 + 1")).value == 2


async def test_too_much_memory(place: Place) -> None:
    async with place.sandbox(limits=Limits(memory_bytes=256 * 1024 * 1024)) as sandbox:
        result = await sandbox.run("x = []\nwhile True: x.append('a' * 10_000_000)")
        assert result.outcome is Outcome.MEMORY, result
        assert result.exit_code == 137
        assert result.limit == "memory"
        assert (await sandbox.run("1")).value == 1


async def test_deep_recursion_is_an_error(sandbox: Sandbox) -> None:
    result = await sandbox.run("def f(n):\n    return f(n + 1)\nf(0)")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert result.error.type == "RecursionError"


async def test_rolling_back_undoes_everything_since(session: Session) -> None:
    await session.run("x = 40\ny = [1]")
    mark = await session.checkpoint()
    await session.run("x = None\ny.append(2)\nz = 1")
    await session.rollback(mark)
    result = await session.run("try:\n    z\n    seen = True\nexcept NameError:\n    seen = False\n[x + 2, y, seen]")
    assert result.value == [42, [1], False], result


async def test_checkpoints_nest_and_last(session: Session) -> None:
    await session.run("x = 1")
    one = await session.checkpoint()
    await session.run("x = 2")
    two = await session.checkpoint()
    await session.run("x = 3")
    await session.rollback(two)
    assert (await session.run("x")).value == 2
    await session.run("x = 4")
    await session.rollback(two)
    assert (await session.run("x")).value == 2
    await session.rollback(one)
    assert (await session.run("x")).value == 1
    with pytest.raises(RequestError, match="checkpoint is gone"):
        await session.rollback(two)
    await session.rollback(one)
    assert (await session.run("x")).value == 1


async def test_a_checkpoint_outlives_a_deadline(session: Session) -> None:
    await session.run("x = 1")
    mark = await session.checkpoint()
    await session.run("x = 2\nwhile True: pass", timeout=0.3)
    await session.rollback(mark)
    assert (await session.run("x")).value == 1


async def test_many_at_once(sandbox: Sandbox) -> None:
    results = await asyncio.gather(*(sandbox.run(f"print({i})\n{i} * 2") for i in range(40)))
    assert [result.value for result in results] == [2 * i for i in range(40)]
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(40)]


async def test_a_language_that_nobody_runs(sandbox: Sandbox) -> None:
    with pytest.raises(RequestError, match="'cobol'"):
        await sandbox.run("DISPLAY 'HI'", language="cobol")


async def test_starting_by_itself_and_closing_twice(place: Place) -> None:
    sandbox = place.sandbox()
    assert (await sandbox.run("1")).value == 1
    await sandbox.close()
    await sandbox.close()


async def test_a_closed_session_says_so(sandbox: Sandbox) -> None:
    session = sandbox.session()
    await session.close()
    with pytest.raises(RequestError, match="session is closed"):
        await session.run("1")
