"""Live objects are watched as long as somebody asks for it, and are as before afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import ApprovalResponse, CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import UserMessage

from coderoom.executors import SandboxCodeExecutor
from coderoom.models import Budget, ReplayModel, limiting
from coderoom.models.rates import Pace
from coderoom.models.watching import watch_client
from coderoom.runs.record import watching
from coderoom.steps import CODE, MODEL, StepObserver, observing

ASK = [UserMessage(content="Go on.", source="user")]


class Steps(StepObserver):
    """Notes what is done."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.written = ""

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        self.kinds.append(kind)

    def write(self, agent: str, text: str) -> None:
        self.written += text


async def test_two_who_watch_see_each_request_once_until_the_last_has_gone() -> None:
    client, steps = ReplayModel(["one", "two", "three"]), Steps()
    first, second = watch_client(client), watch_client(client)
    with observing(steps):
        await client.create(ASK)
        first()
        await client.create(ASK)
        second()
        await client.create(ASK)
    assert steps.kinds == [MODEL, MODEL]
    assert "create" not in vars(client)


async def test_limits_leave_the_client_as_it_was() -> None:
    client = ReplayModel(["one"])
    with limiting(client, Budget(model_calls=1)) as spending:
        await client.create(ASK)
    assert spending.used["model_calls"] == 1
    assert not {"create", "create_stream"} & vars(client).keys()


async def test_agents_of_autogen_are_watched_and_left_as_they_were() -> None:
    executor, steps = SandboxCodeExecutor(), Steps()
    person = UserProxyAgent("person", input_func=lambda _: "yes")
    ask = person.input_func
    team = RoundRobinGroupChat(
        [
            CodeExecutorAgent("coder", executor, approval_func=lambda _: ApprovalResponse(approved=True, reason="")),
            person,
        ]
    )
    try:
        with watching(team), observing(steps):
            block = CodeBlock(code="print(6 * 7)", language="python")
            await executor.execute_code_blocks([block], CancellationToken())
            assert person.input_func is not ask
    finally:
        await executor.stop()
    assert steps.kinds == [CODE]
    assert steps.written == "42\n"
    assert person.input_func is ask
    assert "execute_code_blocks" not in vars(executor)


async def test_a_delayed_request_ends_with_its_token() -> None:
    client, token = ReplayModel(["one", "two"]), CancellationToken()
    watch_client(client)
    with observing(Pace(0.001, None)):
        await client.create(ASK)
        waiting = asyncio.ensure_future(client.create(ASK, cancellation_token=token))
        await asyncio.sleep(0)
        token.cancel()
        done, _ = await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert done
