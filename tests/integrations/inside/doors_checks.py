"""What the examples do not show: sessions that last and end, and a sandbox that breaks."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Iterator
from typing import Any

import agent_framework
import agents
import pandas
import pytest
import smolagents
from agent_framework.openai import OpenAIChatCompletionClient
from PIL import Image
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


async def test_langchain_threads_have_sessions_of_their_own() -> None:
    async with CodeTool() as tool:
        one, two = ({"configurable": {"thread_id": name}} for name in "12")
        await tool.ainvoke({"code": "x = 1; open('x', 'w').write('x')"}, one)
        assert "NameError" in await tool.ainvoke({"code": "x"}, two)
        assert "FileNotFoundError" in tool.invoke({"code": "open('x')"}, two)
        assert tool.invoke({"code": "x"}, one) == "1"


async def test_contexts_of_openai_agents_have_sessions_of_their_own() -> None:
    with OpenAIServer() as server, agents_door.code_tool() as tool:
        agents.set_default_openai_client(agents.AsyncOpenAI(base_url=server.base_url, api_key="test"), False)
        agents.set_default_openai_api("chat_completions")
        agent = agents.Agent[Any]("coder", model="gpt-5-mini", tools=[tool])
        first, second = {"user": 1}, {"user": 2}
        for context, code, text in ((first, "x = 1", "(no output)"), (second, "x", "NameError"), (first, "x", "1")):
            server.add(call(1, code), "Done.")
            await agents.Runner.run(agent, "Go on.", context=context)
            assert text in server.requests[-1].messages[-1]["content"]


async def test_sessions_of_agent_framework_have_sessions_of_their_own() -> None:
    with OpenAIServer() as server, framework_door.code_tool() as tool:
        client = OpenAIChatCompletionClient(model="gpt-5-mini", base_url=server.base_url, api_key="test")
        agent = agent_framework.Agent(client, tools=[tool])
        first, second = agent.create_session(), agent.create_session()
        for session, code, text in ((first, "x = 1", "(no output)"), (second, "x", "NameError"), (first, "x", "1")):
            server.add(call(1, code), "Done.")
            await agent.run("Go on.", session=session)
            assert text in str(server.requests[-1].messages[-1]["content"])


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


async def test_pydantic_ai_has_a_session_for_each_run() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(str(last.content))])
        return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, json.dumps({"code": last.content}))])

    before = descendants()
    agent = Agent(FunctionModel(respond), toolsets=[CodeToolset()])
    async with agent:
        first = await agent.run("x = 41")
        history = first.all_messages()
        assert first.output == "(no output)"
        assert "NameError" in (await agent.run("x")).output  # That is another conversation.
        assert (await agent.run("x + 1", message_history=history)).output == "42"
        assert len(descendants()) > len(before)
        wait = "import time; own = {}; time.sleep(0.2); (own, 'x' in globals())"
        both = await asyncio.gather(*(agent.run(wait.format(each), message_history=history) for each in (1, 2)))
        assert [run.output for run in both] == ["(1, True)", "(2, False)"]
    assert descendants() <= before
    runs = await asyncio.gather(*(agent.run(f"x{each} = 1; import time; time.sleep(0.2); dir()") for each in (1, 2)))
    assert [("x1" in run.output, "x2" in run.output) for run in runs] == [(True, False), (False, True)]
    assert descendants() <= before

    async with agent:
        history = (await agent.run("x = 1")).all_messages()
        kill(descendants() - before)
        with pytest.raises(SandboxUnavailable):
            await agent.run("x", message_history=history)


@pytest.mark.parametrize("door", [CodeToolset, CodeTool, SandboxExecutor])
def test_wrong_option_is_refused_at_once(door: Any) -> None:
    with pytest.raises(RequestError, match="There is no wall 'nothing'"):
        door(wall="nothing")


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


@smolagents.tool  # type: ignore[untyped-decorator, unused-ignore]
def size_of(picture: Image.Image) -> str:
    """Measure a picture.

    Args:
        picture: The picture.
    """
    return f"{picture.size}"


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    final_answer(1)\nexcept Exception:\n    effect()\neffect()",
        "try:\n    final_answer(1)\nexcept:\n    effect()\neffect()",
        "try:\n    final_answer(1)\nfinally:\n    effect()",
        "try:\n    final_answer(1)\nexcept BaseException:\n    pass\nfinal_answer(2)",
        "from threading import Thread\nt = Thread(target=final_answer, args=[1])\nt.start()\nt.join()\neffect()",
    ],
)
def test_nothing_is_called_after_the_final_answer(code: str, final: SandboxExecutor, calls: list[str]) -> None:
    answer = final(code)
    assert (answer.output, answer.is_final_answer, calls) == (1, True, [])


def test_final_answer_ends_the_code(final: SandboxExecutor) -> None:
    assert final("try:\n    final_answer(1)\nexcept Exception:\n    pass\nprint('goes on')").logs == ""
    assert not final("effect()").is_final_answer


def test_values_of_smolagents(final: SandboxExecutor) -> None:
    array = final("import numpy\nfinal_answer(numpy.arange(6.0).reshape(2, 3))").output
    assert (array.dtype, array.tolist()) == ("float64", [[0, 1, 2], [3, 4, 5]])
    assert final("import datetime\nfinal_answer([(1, {2}), datetime.date(2024, 2, 29)])").output == [
        (1, {2}),
        datetime.date(2024, 2, 29),
    ]
    records = "numpy.array([(1, 2.5)], [('a', 'i4'), ('b', 'f8')])"
    assert final(f"import numpy\nfinal_answer([{records}, {records}.view(numpy.recarray)])").output == [[(1, 2.5)]] * 2
    days = pandas.to_datetime(["2024-02-29", None])
    table = pandas.DataFrame({"n": [1, 2], "day": days}, ["a", "b"])
    made = "pandas.DataFrame({'n': [1, 2], 'day': pandas.to_datetime(['2024-02-29', None])}, ['a', 'b'])"
    assert final(f"import pandas\ntable = {made}\nfinal_answer(table)").output.equals(table)
    assert final("final_answer(table.groupby(['n', 'day']).agg({'n': ['min', 'max']}))").output.shape == (1, 2)
    assert final("final_answer({'days': table['day']})").output["days"].equals(table["day"])
    answer = final("from PIL import Image\nfinal_answer(Image.new('CMYK', (4, 3)))").output
    assert (answer.size, answer.getpixel((0, 0))) == ((4, 3), (255, 255, 255))
    assert final("final_answer(size_of(drawn(5)))").output == "(5, 5)"
    figure = """
class Figure:
    def savefig(self, file, **options):
        from PIL import Image
        Image.new('RGB', (7, 2)).save(file, 'png')
final_answer({'plot': Figure()})
"""
    assert final(figure).output["plot"].size == (7, 2)  # As one of matplotlib.
    with pytest.raises(InterpreterError, match="JSON cannot carry"):
        final("final_answer(object())")


@pytest.mark.parametrize("options", [{"policy": "restricted"}, {"engine": "monty"}])
def test_values_are_plain_data_where_nothing_can_be_offered_inside(options: dict[str, str], tools: Any) -> None:
    with SandboxExecutor(**options) as executor:
        executor.send_tools(tools)
        assert executor("final_answer({'a': [1, (2, 3)]})").output["a"][0] == 1
        assert executor("try:\n    final_answer(double(2))\nexcept Exception:\n    effect()\neffect()").output == 4


def test_model_sees_what_a_value_shows(final: SandboxExecutor) -> None:
    assert final("import numpy\nnumpy.zeros(10_000)").output == "array([0., 0., 0., ..., 0., 0., 0.], shape=(10000,))"
    assert final("numpy.float64(1.5)").output == 1.5
    assert final("{'one': (1, 'two')}").output == {"one": (1, "two")}


@pytest.fixture(scope="module")
def calls() -> list[str]:
    return []


@pytest.fixture(scope="module")
def tools(calls: list[str]) -> dict[str, Any]:
    @smolagents.tool  # type: ignore[untyped-decorator, unused-ignore]
    def effect() -> None:
        """Do something."""
        calls.append("effect")

    @smolagents.tool  # type: ignore[untyped-decorator, unused-ignore]
    def drawn(size: int) -> Image.Image:
        """Draw a picture.

        Args:
            size: Its size.
        """
        return Image.new("RGB", (size, size))

    final_answer = smolagents.FinalAnswerTool()
    return {"effect": effect, "drawn": drawn, "double": double, "size_of": size_of, "final_answer": final_answer}


@pytest.fixture(scope="module")
def final(tools: dict[str, Any]) -> Iterator[SandboxExecutor]:
    with SandboxExecutor() as executor:
        executor.send_tools(tools)
        yield executor


@pytest.fixture(autouse=True)
def no_calls(calls: list[str]) -> None:
    calls.clear()


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
