"""What the example does not show: tests of other kinds, cheats, and the runtime."""

from __future__ import annotations

from typing import Any

import pytest
import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage

from coderoom.integrations.verifiers import CodeRoomRuntime, TestedData
from tests.integrations.inside.processes import descendants, kill

EQUAL = "class Any(int):\n    def __eq__(self, _):\n        return True\n"
FN = "coderoom.integrations.verifiers:passed"


def trace_of(task: vf.Task[Any], answer: str) -> vf.Trace:
    nodes = [
        MessageNode(parent=None, message=UserMessage(content="?"), sampled=False),
        MessageNode(parent=0, message=AssistantMessage(content=answer), sampled=True),
    ]
    whole = vf.TraceTask(type="Task", data=task.data)
    return vf.Trace(agent=vf.AgentInfo(config=vf.AgentConfig()), task=whole, nodes=nodes)


@pytest.mark.parametrize(
    ("answer", "reward", "separated"),
    [
        ("```python\ndef twice(n):\n    return 2 * n\n```", 1.0, True),
        ("```python\ndef twice(n):\n    return n\n```", 0.0, True),
        (f"```python\n{EQUAL}def twice(n):\n    return Any()\n```", 0.0, False),
    ],
)
async def test_reward_that_a_config_names(answer: str, reward: float, separated: bool) -> None:
    config = vf.TaskConfig(rewards={"passed": vf.RewardFunctionConfig(fn=FN, weight=2.0)})
    task: vf.Task[Any] = vf.Task(TestedData(prompt="?", tests=["assert twice(2) == 4"]), config)
    trace = trace_of(task, answer)
    await task.score(trace)
    assert (trace.rewards["passed"].score, trace.rewards["passed"].weight) == (reward, 2.0)
    assert trace.metrics["cannot_separate"] == (not separated)


async def test_task_without_tests_is_an_error() -> None:
    config = vf.TaskConfig(rewards={"passed": vf.RewardFunctionConfig(fn=FN)})
    task: vf.Task[Any] = vf.Task(vf.TaskData(prompt="?"), config)
    with pytest.raises(vf.TaskError, match="no tests"):
        await task.score(trace_of(task, "x = 1"))


async def test_runtime_runs_commands_and_keeps_files() -> None:
    async with CodeRoomRuntime(limits={"wall_seconds": 20}) as one, CodeRoomRuntime() as two:
        await one.write("folder/solution.py", b"import os; print(os.environ['GREETING']); raise SystemExit(3)")
        view = one.with_env({"GREETING": "hello"})
        done = await view.run(["python3", "folder/solution.py"], {})
        assert (done.exit_code, done.stdout) == (3, "hello\n")
        assert (await one.run(["no-such-program"], {})).exit_code == 127
        assert await one.alive()
        await one.run_background(["sh", "-c", "echo started; sleep 1000"], {}, "log")
        await one.run(["sh", "-c", "until [ -s log ]; do sleep 0.05; done"], {})
        assert await one.read("log", max_bytes=100) == b"started\n"
        with pytest.raises(SandboxError, match="over the 3 byte limit"):
            await one.read("log", max_bytes=3)
        with pytest.raises(SandboxError):
            await two.read("log")
        assert vf.AgentInfo(config=vf.AgentConfig(), runtime=one.info).runtime.id.startswith("coderoom-")


async def test_broken_sandbox_is_an_error_of_the_sandbox() -> None:
    before = descendants()
    async with CodeRoomRuntime() as runtime:
        kill(descendants() - before)
        with pytest.raises(SandboxError):
            await runtime.run(["true"], {})
        assert not await runtime.alive()
    assert descendants() <= before
