"""Initial variables, conversations side by side, and executors of others of a `CodeActAgent`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel
from tests.agents.acting import add
from tests.agents.helpers import python


def said(result: Any) -> str:
    return str(result.messages[-1].content)


async def test_initial_variables_are_set_before_any_code_and_again_after_a_reset() -> None:
    model = ReplayModel([python("data['a'].append(limit); print(data)"), "Done.", python("print(data)"), "Done."])
    variables = {"data": {"a": [1, 2.5, (b"x", None)]}, "limit": 7}
    agent = CodeActAgent("actor", model, initial_variables=variables)
    result = await agent.run(task="Show it.")
    assert "{'a': [1, 2.5, (b'x', None), 7]}" in said(result)
    assert "data (dict), limit (int)" in model.create_calls[0]["messages"][0].content
    await agent.on_reset(None)  # type: ignore[arg-type]
    assert "{'a': [1, 2.5, (b'x', None)]}" in said(await agent.run(task="Again."))
    await agent.close()


async def test_conversations_side_by_side_have_their_own_words_and_variables() -> None:
    model = ReplayModel([python("x = 1"), "Set.", python("print('x' in globals())"), "No.", python("print(x)"), "One."])
    agent = CodeActAgent("actor", model, tools=[add])
    ctx, other = agent.context(), agent.context()
    await agent.run(task="Set x.", ctx=ctx)
    assert "False" in said(await agent.run(task="Is there an x?", ctx=other))
    assert "Set x." not in str(model.create_calls[2]["messages"])
    items = [item async for item in agent.run_stream(task="What is x?", ctx=ctx)]
    assert "One." in said(items[-1])
    assert "Set x." in str(model.create_calls[4]["messages"])
    await agent.close()


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
async def test_any_executor_runs_its_code(tmp_path: Path) -> None:
    model = ReplayModel([python("x = 41"), python("print('x' in globals())"), "It is gone."])
    agent = CodeActAgent("actor", model, LocalCommandLineCodeExecutor(work_dir=tmp_path))
    assert "False" in said(await agent.run(task="Set x, then look."))
    assert "do not stay for later" in model.create_calls[0]["messages"][0].content
    await agent.close()


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tools": [add]}, "tools and workbench need a SandboxCodeExecutor"),
        ({"initial_variables": {"x": 1}}, "need an executor that keeps variables, not 'LocalCommand"),
        ({"on_error": "rollback"}, "on_error='rollback' needs an executor with checkpoints"),
        ({"code_executor": None, "initial_variables": {"x y": 1}}, "'x y' cannot be the name"),
        ({"code_executor": None, "initial_variables": {"x": Path()}}, "must be made of numbers.*not 'PosixPath'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    executor = LocalCommandLineCodeExecutor(work_dir=tmp_path)
    with pytest.raises(ValueError, match=words):
        CodeActAgent("actor", ReplayModel([]), **{"code_executor": executor, **arguments})
