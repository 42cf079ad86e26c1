"""`coderoom.agent`: a function with a docstring and types is an agent."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from coderoom import agent, execute_code
from coderoom.agents import CodeExecutorAgent
from coderoom.configs import ReplayModel
from coderoom.errors import ModelError, RequestError
from coderoom.executors import LocalCodeExecutor
from tests.agents.helpers import info


class Person(BaseModel):
    name: str
    age: int


def client(*replies: str | CreateResult) -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(list(replies), model_info=info(function_calling=True))


def calls(name: str, **arguments: Any) -> CreateResult:
    call = FunctionCall(id="1", name=name, arguments=json.dumps(arguments))
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)


def asked(model: ReplayChatCompletionClient, number: int = 0) -> str:
    request: Any = model.create_calls[number]["messages"]
    return "\n\n".join(str(message.content) for message in request[1:])


async def test_the_docstring_is_the_request_with_its_arguments() -> None:
    model = client("<think>Hm.</think>\nTry all.")

    @agent(model=model)
    async def plan(problem: str, people: list[Person], depth: int = 2) -> str:
        """
        Describe the algorithm: {{ problem }}

        For {{people[0].name}}.
        """

    assert await plan("{{ depth }}?", people=[Person(name="Ada", age=36)]) == "Try all."
    assert asked(model) == "Describe the algorithm: {{ depth }}?\n\nFor Ada.\n\ndepth: 2"
    with pytest.raises(TypeError, match="people"):
        await plan("x")


@pytest.mark.parametrize(
    ("kind", "reply", "result"),
    [
        (int, '{"result": 42}', 42),
        (float, "6.5", 6.5),
        (bool, '```json\n{"result": true}\n```', True),
        (list[int], "[2, 3, 5]", [2, 3, 5]),
        (dict[str, float], '{"result": {"mean": 1.5}}', {"mean": 1.5}),
        (str | None, '{"result": null}', None),
        (Person, 'Here: {"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (list[Person], '{"result": [{"name": "Ada", "age": "36"}]}', [Person(name="Ada", age=36)]),
    ],
)
async def test_the_result_has_the_declared_type(kind: Any, reply: str, result: Any) -> None:
    async def find(text: str) -> None:
        """Find it: {{ text }}"""

    find.__annotations__["return"] = kind
    model = client("I do not know.", '{"result": [[]], "age": "old"}', reply)
    assert await agent(model=model)(find)("x") == result
    assert "does not fit" in asked(model, 1)
    with pytest.raises(ModelError, match=r"'find' gave no answer that fits .*, in 1 tries: "):
        await agent(model=client("no"), max_retries=0)(find)("x")


async def test_what_does_not_fit_is_said() -> None:
    model = client('{"name": "Ada", "age": "old"}', '{"name": "Ada", "age": 36}')

    class Local(BaseModel):
        name: str
        age: int

    @agent(model=model)
    async def extract(text: str) -> Local:
        """Who is it in {{ text }}?"""
        ...

    assert await extract("Ada, 36") == Local(name="Ada", age=36)
    assert "age: Input should be a valid integer" in asked(model, 1)


async def test_a_function_with_code_of_its_own_is_run() -> None:
    model = ReplayModel(["```python\nresult = (5 + 3) * 2 - 10\n```"])

    @agent
    async def calculate(expression: str) -> float:
        """A calculator agent that evaluates expressions"""
        answer = await execute_code(f"Calculate: {expression}", model=model)
        return answer["result"]  # type: ignore[no-any-return]

    result = await calculate("(5 + 3) * 2 - 10")
    assert (result, type(result)) == (6.0, float)


async def test_the_model_calls_tools_and_other_agents() -> None:
    @agent(model=client("Use a loop."))
    async def advise(topic: str) -> str:
        """Advice on {{ topic }}."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    code = "```python\nresult = sum(range(101))\n```"
    model = client(
        calls("advise", topic="sums"), calls("double", number="x"), calls("other"), calls("double", number=21),
        calls("execute_code", question="Sum 1 to 100"), code, '{"result": 5050}',
    )  # fmt: skip

    @agent(model=model, tools=[advise, double, execute_code])
    async def solve(task: str) -> int:
        """Solve {{ task }}."""

    assert await solve("a sum") == 5050
    request: Any = model.create_calls[-1]["messages"]
    results = [message.content[0] for message in request if message.type.startswith("Function")]
    assert [each.is_error for each in results] == [False, True, True, False, False]
    assert (results[0].content, results[3].content) == ("Use a loop.", "42")
    assert json.loads(results[4].content)["result"] == 5050


async def test_it_joins_a_team(tmp_path: Any) -> None:
    @agent(model=client("```python\nprint(6 * 7)\n```"))
    async def coder(task: str) -> str:
        """Write a program: {{ task }}"""

    filled = client('{"first": 6, "second": 7}', '{"result": 42}')

    @agent(model=filled)
    async def multiply(first: int, second: int) -> int:
        """Multiply {{ first }} by {{ second }}."""

    terminal = CodeExecutorAgent("terminal", LocalCodeExecutor(work_dir=tmp_path))
    team = RoundRobinGroupChat([coder, terminal, multiply], termination_condition=MaxMessageTermination(4))
    result = await team.run(task="Six times seven.")
    await terminal.close()
    assert [(each.source, each.to_text().strip()) for each in result.messages[3:]] == [
        ("terminal", "42"),
        ("multiply", "42"),
    ]
    assert "Multiply 6 by 7." in asked(filled, 1)
    with pytest.raises(ValueError, match="made of a function"):
        coder.dump_component()


def test_a_function_that_cannot_be_an_agent_is_refused() -> None:
    def plain(x: str) -> str:
        """Do {{ x }}."""
        return x

    async def silent(x: str) -> str: ...

    async def wrong(x: str) -> str:
        """Do {{ y }}."""

    async def control(x: str) -> str:
        """Do {% if x %}."""

    for function, why in (
        (plain, "async"),
        (silent, "docstring"),
        (wrong, "no parameter; there are: x"),
        (control, "{%"),
    ):
        with pytest.raises(RequestError, match=why):
            agent(function)  # type: ignore[arg-type]
