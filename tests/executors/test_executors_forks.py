"""Forks of an executor: executors that go on from its state on their own, until it becomes one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor, forks_of, runner_for
from coderoom.sandbox import MOST_FORKS_IN_A_ROW, MOST_FORKS_WITH_LANDLOCK, WallName, host_functions
from tests.executors.helpers import python, raw_local
from tests.executors.helpers import run_in as run


@pytest.mark.parametrize("wall", ["auto", "none"])
async def test_the_winner_is_what_goes_on(wall: WallName, tmp_path: Path) -> None:
    asked = []

    def note(what: str) -> int:
        """Note something."""
        asked.append(what)
        return len(asked)

    async with SandboxCodeExecutor(tmp_path, wall=wall) as executor:
        await executor.offer(await host_functions([note]))
        await run(executor, "x = [note('before')]")
        winner, loser = await forks_of(executor).fork(2)
        for fork in (winner, loser):
            assert runner_for(fork) is fork
            assert fork.work_dir is None
        blocked = await loser.run([python("# filename: folder/inside.py"), python("# filename: folder")])
        assert "the file 'folder' cannot be written (is not a file)" in blocked.output
        results = await asyncio.gather(
            winner.run([python("# filename: lib/made.py\nanswer = 42"), python("x.append(note('winner'))\nx")]),
            loser.run([python("# filename: lost.py"), python("x.append(note('loser'))\n1 / 0")]),
        )
        assert [each.exit_code for each in results] == [0, 1]
        assert (await winner.run([python("from lib.made import answer\nanswer")])).output == "42\n"
        assert list(tmp_path.iterdir()) == []
        await executor.become(winner)
        assert sorted(each.name for each in tmp_path.rglob("*.py")) == ["made.py"]
        assert (await run(executor, "answer, len(x), note('after')")).output == "(42, 2, 4)\n"
        assert sorted(asked) == ["after", "before", "loser", "winner"]
        assert "x" in (await loser.run([python("print(dir())")])).output
        await loser.stop()
        for gone in (winner, loser):
            with pytest.raises(RequestError, match="has ended"):
                await gone.run([python("x")])
            with pytest.raises(RequestError, match="a fork of its own"):
                await executor.become(gone)


@pytest.mark.parametrize("given", [{}, {"workspace_mode": "overlay"}])
async def test_lost_variables_and_restarts_are_those_of_the_fork(given: dict[str, Any], tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path, **given) as executor:
        await run(executor, "import os, signal\nx = 1\nopen('first', 'w').close()")
        killed, restarted = await executor.fork(2)
        await killed.run([python("os.remove('first')\nos.kill(os.getpid(), signal.SIGKILL)")])
        await restarted.restart()
        look = "import os\nprint('x' in globals(), os.listdir())"
        assert (await restarted.run([python(look)])).output == "False ['first']\n"
        await executor.become(killed)
        assert (await run(executor, look)).output == "False []\n"
        await executor.restart()
        with pytest.raises(RequestError, match="ended or was restarted"):
            await executor.become(restarted)


async def test_each_has_processes_of_its_own() -> None:
    async with SandboxCodeExecutor(processes=True) as executor:
        await run(executor, "start_process('echo first; cat')")
        (fork,) = await executor.fork()
        result = await fork.run([python("print(start_process('echo of the fork; cat'))\nread_process(1)")])
        assert "of the fork\n\n[Process 2 runs.]" in result.output
        assert "There is no process 1; there are: 2." in result.output
        assert "[Process 1 runs.]" in (await run(executor, "print(read_process(1, 0))")).output


async def test_the_end_of_the_executor_is_that_of_its_forks() -> None:
    executor = SandboxCodeExecutor()
    await run(executor, "x = 1")
    (fork,) = await executor.fork()
    await executor.stop()
    with pytest.raises(RequestError, match="ended"):
        await fork.run([python("x")])


@pytest.mark.parametrize(
    ("executor", "why"),
    [
        (lambda: SandboxCodeExecutor(state="fresh"), "state='session'"),
        (lambda: SandboxCodeExecutor(engine="monty"), "engine='cpython'"),
        (raw_local, "use SandboxCodeExecutor"),
    ],
)
def test_what_can_never_fork_says_what_can(executor: Any, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        forks_of(executor())


def test_there_are_fewer_in_a_row_where_landlock_keeps_them_apart() -> None:
    walls: list[WallName] = ["none", "landlock", "sandlock"]
    most = [SandboxCodeExecutor(wall=wall).most_forks_in_a_row for wall in walls]
    assert most == [MOST_FORKS_IN_A_ROW, MOST_FORKS_WITH_LANDLOCK, MOST_FORKS_WITH_LANDLOCK]
