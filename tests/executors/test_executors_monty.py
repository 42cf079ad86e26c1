"""The sandbox's executor over the engine `monty`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken

from coderoom.configs import check_team
from coderoom.errors import RequestError
from coderoom.executors import ExecutorRunner, SandboxCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import TEAM, python, run_once, shell
from tests.executors.helpers import run_in as run

STATES: list[Any] = ["session", "fresh"]
each_state = pytest.mark.parametrize("state", STATES)


@pytest.fixture(autouse=True)
def monty_is_installed() -> None:
    pytest.importorskip("pydantic_monty", reason="the engine monty is an extra: coderoom[monty]")


def monty(work_dir: Path | None = None, **arguments: Any) -> SandboxCodeExecutor:
    return SandboxCodeExecutor(work_dir, engine="monty", **arguments)


async def test_a_session_lasts_and_shows_what_a_notebook_shows() -> None:
    async with monty() as executor:
        assert executor.wall == "monty"
        assert (await run(executor, "x = 40\nprint('a')", "x + 2")).output == "a\n42\n"
        result = await run(executor, "x / 0", "print('never')")
        assert (result.execution.outcome, result.exit_code) == (Outcome.ERROR, 1)
        assert result.output.endswith("ZeroDivisionError: division by zero\n")
        assert (await run(executor, "x")).output == "40\n"
    assert executor.wall == "auto"


async def test_a_fresh_state_has_nothing_but_the_files(tmp_path: Path) -> None:
    async with monty(tmp_path, state="fresh") as executor:
        result = await run(executor, "x = 1\nopen('a.txt', 'w').write('kept')\nNone", "open('a.txt').read()", "x")
    assert result.output.startswith("'kept'\n")
    assert "NameError" in result.output
    assert [(artifact.name, artifact.path) for artifact in result.artifacts] == [("a.txt", tmp_path / "a.txt")]


@each_state
async def test_other_languages_are_an_error_result(state: Any) -> None:
    execution = await run_once(monty(state=state), python("print('before')"), shell("echo never"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\nThe engine 'monty' runs only Python, and this is 'sh'.")
    assert "never" not in execution.output


@each_state
async def test_a_limit_is_told_of_once(state: Any) -> None:
    async with monty(state=state, timeout=0.5, limits={"memory_bytes": 64 << 20}) as executor:
        result = await run(executor, "print('before')\nwhile True: pass")
        assert (result.execution.outcome, result.exit_code) == (Outcome.TIMEOUT, 124)
        assert result.output.startswith("before\n[The code was stopped after 0.5 seconds.")
        result = await run(executor, "x = 'a' * 10 ** 9")
        assert (result.execution.outcome, result.exit_code) == (Outcome.MEMORY, 137)
        assert result.output.count("wanted more memory than the 64 MiB that it may have.") == 1


async def test_a_cancel_ends_the_cell_and_keeps_the_variables() -> None:
    async with monty() as executor:
        await run(executor, "x = 1")
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python("x = 2\nwhile True: pass")], token))
        await asyncio.sleep(0.2)
        token.cancel()
        async with asyncio.timeout(4):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await run(executor, "x")).output == "1\n"


async def test_going_back_undoes_variables_and_files(tmp_path: Path) -> None:
    async with monty(tmp_path) as executor:
        await run(executor, "x = 1\nopen('a.txt', 'w').write('1')\nNone")
        mark, other = await executor.checkpoint(), await executor.checkpoint()
        await executor.release(other)
        for _ in range(2):
            await run(executor, "x = 2\nopen('a.txt', 'w').write('2')\nopen('b.txt', 'w').close()")
            assert await executor.rollback(mark) == "variables and files"
            assert (await run(executor, "import os\nx, open('a.txt').read(), os.listdir()")).output == (
                "(1, '1', ['a.txt'])\n"
            )
        await executor.release(mark)
        await executor.restart()
        assert "NameError" in (await run(executor, "x")).output


async def test_the_policy_is_the_same(tmp_path: Path) -> None:
    async with monty(tmp_path, policy="restricted") as executor:
        assert (await run(executor, "result = 6 * 7")).output == "42\n"
        assert (await run(executor, "import os")).execution.outcome is Outcome.REJECTED


async def test_a_module_that_it_has_not_cannot_be_preloaded() -> None:
    with pytest.raises(RequestError, match="numpy"):
        await ExecutorRunner(monty(preload=["numpy"])).run([python("1")])


def test_f6_the_engine_survives_a_round_trip() -> None:
    dumped = monty(state="fresh").dump_component()
    assert dumped.config["engine"] == "monty"
    assert SandboxCodeExecutor.load_component(dumped).dump_component() == dumped


@pytest.mark.parametrize(
    "asked",
    [{"wall": "none"}, {"network": True}, {"python": "python3"}, {"readable": ["/srv"]}, {"options": {"image": "x"}}],
    ids=lambda asked: next(iter(asked)),
)
def test_what_it_has_not_is_refused_at_once(asked: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"the engine 'monty' has no {next(iter(asked))}"):
        monty(**asked)


def test_a_wrong_engine_in_a_file_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.format(key="engine", value="montey"))
    [problem] = check_team(tmp_path / "team.yaml")
    assert (problem.line, "'monty'" in problem.message) == (10, True), problem
