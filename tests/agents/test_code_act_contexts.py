"""Initial variables, conversations side by side, and executors of others of a `CodeActAgent`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.agents import CodeActAgent, CodeExecutorAgent, Selection
from coderoom.configs import ReplayModel
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from tests.agents.acting import add
from tests.agents.helpers import python
from tests.support.openai_server import OpenAIServer


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


async def test_initial_imports_are_there_before_any_code_or_said_to_be_missing() -> None:
    model = ReplayModel([python("print(m.floor(2.5), p.join('a', 'b'))"), "Done.", python("1"), "Done."])
    agent = CodeActAgent("actor", model, initial_imports={"m": "math", "p": "os.path", "json": "json"})
    assert "2 a/b" in said(await agent.run(task="Show it."))
    assert "imported already: math as m, os.path as p, json." in model.create_calls[0]["messages"][0].content
    await agent.close()
    agent = CodeActAgent("actor", model, initial_imports={"n": "no_such_module"})
    with pytest.raises(RequestError, match="No module named 'no_such_module'"):
        await agent.run(task="Show it.")
    await agent.close()


async def test_the_default_model_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(["Hello."]) as server:
        monkeypatch.setenv("CODEROOM_MODEL", f"{server.base_url}#mine")
        agent = CodeActAgent("actor")
        config = agent.dump_component()
        assert config.config.get("model_client") is None
        loaded = CodeActAgent.load_component(config)
        assert said(await loaded.run(task="Greet me.")) == "Hello."
        assert server.requests[0].body["model"] == "mine"
        await agent.close()
        await loaded.close()


def in_brackets(reply: str) -> Selection:
    code = reply.partition("[[")[2].partition("]]")[0]
    return Selection(blocks=(CodeBlock(code=code, language="python"),) if code else ())


class Bracketed(CodeActAgent):
    def find_code(self, reply: str) -> Selection:
        return in_brackets(reply)


class BracketedExecutor(CodeExecutorAgent):
    def find_code(self, reply: str) -> Selection:
        return in_brackets(reply)


async def test_a_subclass_finds_the_code_in_its_own_way() -> None:
    replies = ["Look: [[print(6 * 7)]]", "It is 42."]
    actor = Bracketed("actor", ReplayModel(replies))
    coder = BracketedExecutor("coder", SandboxCodeExecutor(), model_client=ReplayModel(replies))
    terminal = BracketedExecutor("terminal", SandboxCodeExecutor())
    for agent in (actor, coder, terminal):
        result = await agent.run(task=replies[0])
        assert "42" in said(result)
        assert result.messages[-1].metadata["coderoom.outcome"] == "ok"
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
        ({"initial_imports": {"m": "math"}}, "initial_imports need an executor that keeps variables"),
        ({"code_executor": None, "initial_imports": {"m": "math; x"}}, "must be the name of a module"),
        ({"code_executor": None, "initial_imports": {"a b": "math"}}, "'a b' cannot be the name"),
        ({"code_executor": None, "initial_imports": ["math"]}, "must be names with modules.*not \\['math'\\]"),
        ({"code_executor": None, "initial_imports": {"print": "math"}}, "'print' would hide the function"),
        ({"code_executor": None, "initial_imports": {"add": "math"}, "tools": [add]}, "'add' would hide the function"),
        ({"code_executor": None, "initial_variables": [1]}, "must be names with values"),
        ({"code_executor": None, "initial_variables": {"x y": 1}}, "'x y' cannot be the name"),
        ({"code_executor": None, "initial_variables": {"x": Path()}}, "must be made of numbers.*not 'PosixPath'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    executor = LocalCommandLineCodeExecutor(work_dir=tmp_path)
    with pytest.raises(ValueError, match=words):
        CodeActAgent("actor", ReplayModel([]), **{"code_executor": executor, **arguments})
