from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from coderoom.errors import SandboxUnavailable
from coderoom.executors import ExecutorRunner, LocalCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import FOREVER, all_gone, python, raw_local, run, shell, until

Answer = Callable[[CancellationToken], Awaitable[CodeResult]]


async def well(token: CancellationToken) -> CodeResult:
    return CodeResult(0, "fine\n")


class OwnExecutor(CodeExecutor):
    """An executor as somebody else might write it."""

    def __init__(self, answer: Answer = well, start_problem: Exception | None = None) -> None:
        self.answer = answer
        self.start_problem = start_problem
        self.calls: list[str] = []

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        self.calls.append("execute")
        return await self.answer(cancellation_token)

    async def start(self) -> None:
        await asyncio.sleep(0.05)
        self.calls.append("start")
        if self.start_problem is not None:
            raise self.start_problem

    async def stop(self) -> None:
        self.calls.append("stop")

    async def restart(self) -> None:
        self.calls.append("restart")


def answering(result: CodeResult | BaseException) -> OwnExecutor:
    async def answer(token: CancellationToken) -> CodeResult:
        if isinstance(result, BaseException):
            raise result
        return result

    return OwnExecutor(answer)


async def test_it_starts_once_even_for_runs_that_begin_together_and_again_after_a_stop() -> None:
    executor = OwnExecutor()
    runner = ExecutorRunner(executor)
    assert executor.calls == []
    await runner.stop()
    await runner.restart()
    assert executor.calls == []
    await asyncio.gather(*(runner.run([python("")]) for _ in range(3)))
    assert executor.calls == ["start", "execute", "execute", "execute"]
    await runner.restart()
    await runner.stop()
    await runner.stop()
    assert executor.calls[4:] == ["restart", "stop"]
    await runner.run([python("")])
    assert executor.calls[6:] == ["start", "execute"]


async def test_an_executor_that_was_started_before_is_used_as_it_is_and_stopped() -> None:
    for is_used in (True, False):
        async with LocalCodeExecutor() as executor:
            folder = executor.work_dir
            runner = ExecutorRunner(executor)
            if is_used:
                await run(runner, python("open('kept', 'w')"))
                assert executor.work_dir == folder
            await runner.stop()
            assert folder is not None
            assert not folder.exists()


async def test_a_stop_that_comes_with_the_start_waits_for_it() -> None:
    executor = OwnExecutor()
    runner = ExecutorRunner(executor)
    starting = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # The start is under way.
    async with asyncio.timeout(20):
        await runner.stop()
        await starting
        await runner.run([python("")])
    assert executor.calls == ["start", "stop", "start", "execute"]


async def test_a_start_that_is_cancelled_is_whole() -> None:
    executor = OwnExecutor()
    runner = ExecutorRunner(executor)
    running = asyncio.create_task(runner.run([python("")]))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await runner.stop()
    assert executor.calls == ["start", "stop"]


async def test_a_failed_start_is_our_failure_and_can_be_tried_again() -> None:
    executor = OwnExecutor(start_problem=OSError("no daemon"))
    runner = ExecutorRunner(executor)
    with pytest.raises(
        SandboxUnavailable, match=r"'OwnExecutor' could not be started \(OSError: no daemon\)"
    ) as failure:
        await runner.run([python("")])
    assert isinstance(failure.value.__cause__, OSError)
    executor.start_problem = None
    assert (await runner.run([python("")])).outcome is Outcome.OK


@pytest.mark.parametrize("what", ["stop", "restart"])
async def test_a_failed_stop_or_restart_is_our_failure(what: str) -> None:
    class Failing(OwnExecutor):
        async def stop(self) -> None:
            raise OSError("no daemon")

        restart = stop

    runner = ExecutorRunner(Failing())
    assert isinstance(runner.executor, Failing)
    await runner.start()
    with pytest.raises(SandboxUnavailable, match=rf"'Failing' could not be {what}.*no daemon"):
        await getattr(runner, what)()


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (CodeResult(0, "fine"), Outcome.OK),
        (CodeResult(3, "bad"), Outcome.ERROR),
        (CodeResult(124, "some\nTimeout"), Outcome.TIMEOUT),
        (CodeResult(124, "exited so itself"), Outcome.ERROR),
        (CodeResult(0, "Timeout"), Outcome.OK),
    ],
)
async def test_the_outcome_is_computed_and_ce18_the_result_is_not_changed(result: CodeResult, outcome: Outcome) -> None:
    before = copy.deepcopy(result)
    execution = await ExecutorRunner(answering(result)).run([python("")])
    assert (execution.outcome, execution.exit_code, execution.output) == (outcome, before.exit_code, before.output)
    assert result == before


@pytest.mark.parametrize("error", [TimeoutError(), TimeoutError("late")])
async def test_a_timeout_that_is_raised_is_one_that_is_returned(error: Exception) -> None:
    execution = await ExecutorRunner(answering(error)).run([python("")])
    assert (execution.outcome, execution.exit_code, execution.output) == (Outcome.TIMEOUT, 124, str(error))


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("PATH"), asyncio.CancelledError()])
async def test_other_exceptions_are_our_failure(error: BaseException) -> None:
    with pytest.raises(SandboxUnavailable, match="'OwnExecutor'") as failure:
        await ExecutorRunner(answering(error)).run([python("")])
    assert failure.value.__cause__ is not None
    assert "not a failure of the code" in str(failure.value)


async def test_a_sandbox_unavailable_of_the_executor_passes_as_it_is() -> None:
    error = SandboxUnavailable("as it is")
    with pytest.raises(SandboxUnavailable) as failure:
        await ExecutorRunner(answering(error)).run([python("")])
    assert failure.value is error


async def test_a_token_that_was_cancelled_before_starts_nothing() -> None:
    executor = OwnExecutor()
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ExecutorRunner(executor).run([python("")], token)
    assert executor.calls == []


async def test_an_executor_that_is_deaf_to_cancelling_is_not_waited_for() -> None:
    released = asyncio.Event()
    told = asyncio.Event()

    async def hang(token: CancellationToken) -> CodeResult:
        token.add_callback(told.set)
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("too late to matter")

    token = CancellationToken()
    task = asyncio.create_task(ExecutorRunner(OwnExecutor(hang)).run([python("")], token))
    await asyncio.sleep(0.2)
    token.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert told.is_set()
    released.set()
    await asyncio.sleep(0.05)


async def test_stop_ends_what_runs(tmp_path: Path) -> None:
    runner = ExecutorRunner(raw_local(work_dir=tmp_path))
    task = asyncio.create_task(run(runner, python(FOREVER)))
    await until((tmp_path / "ready").exists)
    await runner.stop()
    execution = await task
    assert (execution.outcome, execution.exit_code) == (Outcome.CANCELLED, 125)
    await all_gone(tmp_path)


async def test_a_stop_ends_what_starts_at_that_moment(tmp_path: Path) -> None:
    async def stop_after(steps: int) -> Outcome:
        runner = ExecutorRunner(raw_local(work_dir=tmp_path))
        task = asyncio.create_task(run(runner, shell("exec sleep 20")))
        for _ in range(steps):  # Of the event loop: the process starts in one, and AutoGen knows it in a later one.
            await asyncio.sleep(0)
        await runner.stop()
        return (await task).outcome

    assert set(await asyncio.gather(*map(stop_after, range(1, 24)))) == {Outcome.CANCELLED}
    await all_gone(tmp_path)


async def test_a_token_may_outlive_the_loop(tmp_path: Path) -> None:
    token = CancellationToken()

    def other_loop() -> None:
        asyncio.run(ExecutorRunner(OwnExecutor()).run([python("")], token))

    thread = threading.Thread(target=other_loop)
    thread.start()
    await asyncio.to_thread(thread.join)
    token.cancel()


async def test_a_runner_serves_one_loop_after_the_other(tmp_path: Path) -> None:
    runner = ExecutorRunner(raw_local(work_dir=tmp_path))
    for _ in range(2):
        output = await asyncio.to_thread(lambda: asyncio.run(runner.run([python("print(1)")])).output)
        assert output == "1\n"
    await runner.stop()


async def test_many_runs_at_once(tmp_path: Path) -> None:
    runner = ExecutorRunner(raw_local(work_dir=tmp_path))
    executions = await asyncio.gather(*(run(runner, python(f"print({number})")) for number in range(8)))
    assert [execution.output for execution in executions] == [f"{number}\n" for number in range(8)]
    await runner.stop()


async def test_the_work_dir_is_known_from_the_start_on(tmp_path: Path) -> None:
    runner = ExecutorRunner(raw_local(work_dir=tmp_path))
    folders = [runner.work_dir]
    await runner.start()
    folders.append(runner.work_dir)
    await runner.stop()
    assert folders == [None, tmp_path]


async def test_an_executor_without_a_folder_has_no_work_dir() -> None:
    runner = ExecutorRunner(OwnExecutor())
    await runner.start()
    assert runner.work_dir is None


async def test_autogens_executor_runs_in_order_and_stays_as_its_owner_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNERS_CHOICE", "seen")
    executor = raw_local(work_dir=tmp_path, timeout=20)
    before = dict(vars(executor))
    dumped = executor.dump_component()
    runner = ExecutorRunner(executor)
    code = "import os, sys; print(os.environ['OWNERS_CHOICE'], os.environ['PATH'], sys.executable)"
    execution = await run(runner, shell("echo one"), python(code), shell("exit 3"), shell("echo never"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 3)
    assert execution.output.startswith("one\nseen ")
    assert "coderoom" not in execution.output.partition("/bin")[0]
    await runner.restart()
    await runner.stop()
    assert dict(vars(executor)) == before
    assert executor.dump_component() == dumped


async def test_a_result_that_makes_no_sense_is_the_executors_failure() -> None:
    with pytest.raises(SandboxUnavailable, match="exit code False"):
        await ExecutorRunner(answering(CodeResult(False, "x"))).run([python("")])
