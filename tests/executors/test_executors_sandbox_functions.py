"""Functions of the host offered through `SandboxCodeExecutor`, and what it knows of a run that was cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken

from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import LANGUAGES, CallRecorder, HostFunction, Limits, host_functions
from tests.executors.helpers import FOREVER, python, until
from tests.executors.helpers import run_in as run


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


def treble(number: int) -> int:
    """Thrice the number."""
    return 3 * number


async def test_what_is_offered_can_be_called_and_nothing_else() -> None:
    async with SandboxCodeExecutor() as executor:
        await executor.offer(await host_functions([double]))
        result = await run(executor, "double(21)")
        assert result.output == "42\n"
        assert [str(call) for call in result.execution.calls] == ["double(number=21): ok"]
        await executor.offer(await host_functions([treble]))
        assert (await run(executor, "treble(14)")).output.endswith("42\n")
        assert "NameError" in (await run(executor, "double(21)")).output


async def test_an_offer_takes_a_session_away_and_says_so_but_not_the_sandbox(tmp_path: Path) -> None:
    async with SandboxCodeExecutor() as executor:
        await run(executor, "x = 1\nopen('kept', 'w').close()")
        running = asyncio.ensure_future(run(executor, FOREVER))
        assert executor.work_dir is not None
        ready = executor.work_dir / "ready"
        await until(ready.exists)
        await executor.offer(await host_functions([double]))
        assert (await running).execution.outcome is Outcome.CANCELLED
        ready.unlink()
        result = await run(executor, "import os\nprint('x' in globals(), os.listdir())")
        assert result.output == "[The session was restarted: earlier variables are gone.]\nFalse ['kept']\n"
        assert result.execution.state_lost


async def test_what_is_offered_lasts_over_stop_and_restart_and_another_loop(tmp_path: Path) -> None:
    executor = SandboxCodeExecutor(tmp_path)
    await executor.offer(await host_functions([double]))
    for end in (executor.restart, executor.stop):
        assert (await run(executor, "double(21)")).output == "42\n"
        await end()
    assert await asyncio.to_thread(asyncio.run, _once(executor)) == "42\n"


async def _once(executor: SandboxCodeExecutor) -> str:
    async with executor:
        return (await run(executor, "double(21)")).output


async def test_without_a_session_nothing_can_be_offered() -> None:
    executor = SandboxCodeExecutor(state="fresh")
    with pytest.raises(RequestError, match="state='session'"):
        await executor.offer(await host_functions([double]))
    await executor.offer([])


@pytest.mark.parametrize(
    ("arguments", "languages"),
    [
        ({}, LANGUAGES),
        ({"policy": "restricted"}, ("python",)),
        ({"engine": "monty"}, ("python",)),
    ],
)
def test_languages(arguments: dict[str, Any], languages: tuple[str, ...]) -> None:
    assert SandboxCodeExecutor(**arguments).languages == languages


async def test_what_is_known_of_a_run_that_was_cancelled(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path) as executor:
        await executor.offer(await host_functions([double]))
        token = CancellationToken()
        blocks = [
            python("print('first', double(1))"),
            python("double(2)\nopen('begun', 'w')\nimport time; time.sleep(300)"),
        ]
        running = asyncio.create_task(executor.execute_code_blocks(blocks, token))
        async with asyncio.timeout(30):
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.01)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        known = executor.interrupted
        assert known is not None
        assert (known.outcome, known.exit_code, known.state_lost) == (Outcome.CANCELLED, 125, False)
        assert known.output.startswith("first 2\n")
        assert "[The code was cancelled. Variables that were set before are still there.]" in known.output
        assert [str(call) for call in known.calls] == ["double(number=1): ok", "double(number=2): ok"]
        await run(executor, "1")
        assert not executor.interrupted


# --- Calls that are written down, to be answered again ---


async def recorded(code: str, *functions: Callable[..., Any], **limits: Any) -> tuple[str, str]:
    """What code prints, and what it prints when its calls are answered from what was written down."""
    recorder = CallRecorder()
    offered: list[HostFunction] = [recorder.wrap(function) for function in await host_functions(functions)]
    async with SandboxCodeExecutor(limits=Limits(**limits)) as executor:
        await executor.offer(offered)
        first = (await run(executor, code)).output
        recorder.answer_from(recorder.take())
        await executor.restart()
        return first, (await run(executor, code)).output


async def test_answers_come_in_the_order_in_which_they_came() -> None:
    numbers = iter(range(10))

    def following() -> int:
        """The following number."""
        return next(numbers)

    first, again = await recorded("print([following() for _ in range(4)])", following)
    assert first == again == "[0, 1, 2, 3]\n"


async def test_what_failed_fails_in_the_same_way() -> None:
    async def late() -> None:
        """Answer too late."""
        await asyncio.sleep(60)

    def wrong() -> None:
        """Raise."""
        raise LookupError("not here", 7)

    code = "try:\n    await late()\nexcept TimeoutError:\n    print('late')\n"
    code += "try:\n    wrong()\nexcept LookupError as error:\n    print(error.args)\n"
    first, again = await recorded(code, late, wrong, call_seconds=0.5)
    assert first == again == "late\n('not here', 7)\n"
