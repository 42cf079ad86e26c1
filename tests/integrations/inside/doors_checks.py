"""What the examples do not show: sessions that last and end, and a sandbox that breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import agent_framework
import agents
import pytest
import smolagents
from agent_framework.openai import OpenAIChatCompletionClient
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from smolagents.local_python_executor import InterpreterError
from smolagents.models import ChatMessage, MessageRole

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.integrations import agent_framework as framework_door
from coderoom.integrations import openai_agents as agents_door
from coderoom.integrations.langchain import CodeTool
from coderoom.integrations.pydantic_ai import CodeToolset
from coderoom.integrations.smolagents import SandboxExecutor
from tests.integrations.inside.processes import descendants, kill
from tests.integrations.support import call
from tests.support.openai_server import OpenAIServer


def test_langchain_in_threads_and_loops() -> None:
    before = descendants()
    with CodeTool() as tool:
        assert tool.invoke({"code": "x = 40"}) == "(no output)"
        assert asyncio.run(tool.ainvoke({"code": "x += 1; x"})) == "41"
        assert asyncio.run(tool.ainvoke({"code": "x + 1"})) == "42"
        kill(descendants() - before)
        with pytest.raises(SandboxUnavailable):
            tool.invoke({"code": "1"})
    assert descendants() <= before
    with pytest.raises(RequestError, match="closed"):
        tool.invoke({"code": "1"})


async def test_langchain_call_that_is_cancelled() -> None:
    async with CodeTool() as tool:
        await tool.ainvoke({"code": "x = 1"})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tool.ainvoke({"code": "import time\ntime.sleep(1000)"}), 0.3)
        assert await tool.ainvoke({"code": "x"}) == "1"


async def test_openai_agents_with_a_broken_sandbox() -> None:
    before = descendants()
    with OpenAIServer() as server, agents_door.code_tool() as tool:
        agents.set_default_openai_client(agents.AsyncOpenAI(base_url=server.base_url, api_key="test"), False)
        agents.set_default_openai_api("chat_completions")
        agent = agents.Agent("coder", model="gpt-5-mini", tools=[tool])
        server.add(call(1, "x = 1"), "Done.")
        assert (await agents.Runner.run(agent, "Go on.")).final_output == "Done."
        kill(descendants() - before)
        server.add(call(2, "x"))
        with pytest.raises(agents.UserError) as caught:
            await agents.Runner.run(agent, "Go on.")
        assert isinstance(caught.value.__cause__, SandboxUnavailable)
        assert len(server.requests) == 3  # The model saw nothing of it.
    assert descendants() <= before


async def test_agent_framework_with_a_broken_sandbox() -> None:
    before = descendants()
    with OpenAIServer() as server, framework_door.code_tool() as tool:
        client = OpenAIChatCompletionClient(model="gpt-5-mini", base_url=server.base_url, api_key="test")
        agent = agent_framework.Agent(client, tools=[tool])
        server.add(call(1, "x = 1"), "Done.")
        assert (await agent.run("Go on.")).text == "Done."
        kill(descendants() - before)
        server.add(call(2, "x"))
        with pytest.raises(agent_framework.MiddlewareFailure) as caught:
            await agent.run("Go on.")
        assert isinstance(caught.value.__cause__, SandboxUnavailable)
        assert len(server.requests) == 3
    assert descendants() <= before


async def test_pydantic_ai_has_a_session_as_long_as_it_is_entered() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(str(last.content))])
        return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, json.dumps({"code": last.content}))])

    before = descendants()
    agent = Agent(FunctionModel(respond), toolsets=[CodeToolset()])
    async with agent:
        assert (await agent.run("x = 41")).output == "(no output)"
        assert (await agent.run("x + 1")).output == "42"
        assert len(descendants()) > len(before)
    assert descendants() <= before
    assert "NameError" in (await agent.run("x")).output
    assert descendants() <= before

    async with agent:
        await agent.run("x = 1")
        kill(descendants() - before)
        with pytest.raises(SandboxUnavailable):
            await agent.run("x")


@smolagents.tool  # type: ignore[untyped-decorator, unused-ignore]
def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return 2 * number


def test_smolagents_executor() -> None:
    before = descendants()
    with SandboxExecutor(limits={"wall_seconds": 1}) as executor:
        tools = {"double": double, "final_answer": smolagents.FinalAnswerTool()}
        executor.send_variables({"numbers": [1, 2], "pair": (1, 2)})
        executor.send_tools(tools)
        result = executor("print('hello')\n[double(number) for number in numbers]")
        assert (result.output, result.logs, result.is_final_answer) == ([2, 4], "hello\n", False)
        with pytest.raises(InterpreterError, match="stopped after 1 second"):
            executor("while True: pass")
        with pytest.raises(InterpreterError, match="TypeError"):
            executor("double('one')")
        executor.send_tools(tools)  # Before each run of an agent; the session stays.
        answer = executor("try:\n    final_answer({'sum': sum(pair)})\nexcept Exception:\n    print('caught')")
        assert (answer.output, answer.is_final_answer) == ({"sum": 3}, True)
        assert not executor("1").is_final_answer

        executor.send_tools({})
        with pytest.raises(InterpreterError, match="NameError"):
            executor("numbers")
    assert descendants() <= before


def test_smolagents_managed_agent_runs_on_the_host() -> None:
    class Model(smolagents.Model):  # type: ignore[misc, unused-ignore]
        def __init__(self, *texts: str) -> None:
            super().__init__()
            self.texts = list(texts)

        def generate(self, *_: Any, **__: Any) -> ChatMessage:
            return ChatMessage(role=MessageRole.ASSISTANT, content=self.texts.pop(0))

    with SandboxExecutor() as inner, SandboxExecutor() as outer:
        helper = smolagents.CodeAgent(
            [], Model("<code>\nfinal_answer(6 * 7)\n</code>"), executor=inner, name="helper", description="Helps."
        )
        main = smolagents.CodeAgent(
            [],
            Model("<code>\nfinal_answer('42' in helper(task='six times seven'))\n</code>"),
            executor=outer,
            managed_agents=[helper],
        )
        assert main.run("Ask the helper.") is True
