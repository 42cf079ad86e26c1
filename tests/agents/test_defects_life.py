"""An agent's life beside its turns: CE11 (reset), CE12 (state, close, pause)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import LLMMessage, UserMessage

from coderoom.agents import CodeExecutorAgent
from coderoom.approval import AlwaysApprove
from coderoom.executors import LocalCodeExecutor
from tests.agents.helpers import (
    GOOD,
    TASK,
    BareExecutor,
    Client,
    FailingClient,
    MakeCoder,
    MakeTerminal,
    context_of,
    facts_of,
    let_others_run,
    python,
    roles_of,
    text_of,
    turn,
)

WRITE = python("open('kept.txt', 'w').write('x')\nprint('written')")
LIST = python("import os\nprint(sorted(name for name in os.listdir() if name.endswith('.txt')))")


async def reset(agent: CodeExecutorAgent) -> None:
    await agent.on_reset(CancellationToken())


# --- CE11: a reset resets ---


async def test_ce11_a_reset_forgets_the_conversation(coder: MakeCoder) -> None:
    client = Client(GOOD, "Done.", "Hello.")
    agent = coder(client)
    await turn(agent, TASK)
    await reset(agent)
    assert await context_of(agent) == []
    await turn(agent, "Hi.")
    assert client.calls[-1].texts == [CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE, "Hi."]


async def test_ce11_a_reset_goes_back_to_what_the_agent_began_with(coder: MakeCoder) -> None:
    examples: list[LLMMessage] = [UserMessage(content="an example", source="user")]
    agent = coder(Client("One.", "Two."), model_context=UnboundedChatCompletionContext(initial_messages=examples))
    await turn(agent, TASK)
    await reset(agent)
    assert await context_of(agent) == ["an example"]
    await turn(agent, TASK)
    await reset(agent)
    assert await context_of(agent) == ["an example"]


async def test_ce11_a_reset_before_the_first_turn_keeps_what_the_agent_began_with(coder: MakeCoder) -> None:
    examples: list[LLMMessage] = [UserMessage(content="an example", source="user")]
    agent = coder(Client("One."), model_context=UnboundedChatCompletionContext(initial_messages=examples))
    await reset(agent)
    assert await context_of(agent) == ["an example"]


async def test_ce11_a_reset_gives_code_an_empty_place(terminal: MakeTerminal) -> None:
    agent = terminal(code_executor=LocalCodeExecutor())
    await turn(agent, WRITE)
    assert text_of(await turn(agent, LIST)) == "['kept.txt']\n"
    await reset(agent)
    assert text_of(await turn(agent, LIST)) == "[]\n"


async def test_ce11_a_message_counts_again_after_a_reset(coder: MakeCoder) -> None:
    message = TextMessage(content=TASK, source="user")
    agent = coder(FailingClient([0], "Hello."))
    with pytest.raises(ConnectionError):
        await turn(agent, message)
    await reset(agent)
    await turn(agent, message)
    assert await context_of(agent) == [TASK, "Hello."]


# --- CE12: state, close, pause ---


async def test_ce12_another_agent_goes_on_from_a_saved_state(coder: MakeCoder) -> None:
    first = coder(Client(GOOD, "Done."))
    await turn(first, TASK)
    state = json.loads(json.dumps(await first.save_state()))

    client = Client("It was 42.")
    second = coder(client)
    await second.load_state(state)
    assert await context_of(second) == await context_of(first)
    assert await roles_of(second) == await roles_of(first)
    await turn(second, "What was it?")
    assert client.calls[0].texts[1:] == [TASK, GOOD, "42\n", "Done.", "What was it?"]


async def test_ce12_a_state_replaces_what_was_there(coder: MakeCoder) -> None:
    first, second = coder(Client("One.")), coder(Client("Two."))
    await turn(first, "first")
    await turn(second, "second")
    await second.load_state(await first.save_state())
    assert await context_of(second) == ["first", "One."]


async def test_ce12_the_empty_state_of_autogens_agent_is_taken(coder: MakeCoder) -> None:
    agent = coder(Client("One."))
    await turn(agent, TASK)
    await agent.load_state({"type": "BaseState", "version": "1.0.0"})
    assert await context_of(agent) == []


async def test_ce12_a_saved_state_does_not_change_with_the_agent(coder: MakeCoder) -> None:
    agent = coder(Client("One.", "Two."))
    await turn(agent, TASK)
    state = await agent.save_state()
    before = json.dumps(state)
    await turn(agent, "More.")
    assert json.dumps(state) == before


async def test_ce12_a_failed_turn_that_was_saved_is_not_doubled_when_it_is_repeated(coder: MakeCoder) -> None:
    # A team saves the messages of a failed turn with its state, and gives them to the agent again.
    message = TextMessage(content=TASK, source="user")
    first = coder(FailingClient([0]))
    with pytest.raises(ConnectionError):
        await turn(first, message)
    second = coder(Client("Hello."))
    await second.load_state(json.loads(json.dumps(await first.save_state())))
    await turn(second, message)
    assert (await context_of(second)).count(TASK) == 1


async def test_ce12_close_stops_the_executor(terminal: MakeTerminal) -> None:
    executor = LocalCodeExecutor()
    agent = terminal(code_executor=executor)
    await turn(agent, WRITE)
    folder = executor.work_dir
    assert folder is not None
    assert folder.is_dir()
    await agent.close()
    assert not folder.exists()
    assert executor.work_dir is None


async def test_ce12_a_closed_agent_starts_again_when_it_is_used(terminal: MakeTerminal) -> None:
    agent = terminal(code_executor=LocalCodeExecutor())
    await turn(agent, WRITE)
    await agent.close()
    await agent.close()
    assert text_of(await turn(agent, LIST)) == "[]\n"


async def test_ce12_closing_what_was_never_used_is_nothing(terminal: MakeTerminal) -> None:
    await terminal().close()


class Closing(AlwaysApprove):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_ce12_close_lets_go_of_the_approval(terminal: MakeTerminal) -> None:
    approval = Closing()
    agent = terminal(approval_func=approval)
    await agent.close()
    assert approval.closed == 1


async def test_ce12_a_paused_agent_asks_its_model_nothing(coder: MakeCoder) -> None:
    client = Client("Hello.")
    agent = coder(client)
    await agent.on_pause(CancellationToken())
    running = asyncio.create_task(turn(agent, TASK))
    await let_others_run()
    assert client.calls == []
    await agent.on_resume(CancellationToken())
    assert text_of(await running) == "Hello."


class Pausing(Client):
    """Somebody pauses its agent in the middle of its first call."""

    agent: CodeExecutorAgent

    async def before(self, number: int) -> None:
        if number == 0:
            await self.agent.on_pause(CancellationToken())


async def test_ce12_an_agent_that_is_paused_in_its_turn_does_not_run_code(coder: MakeCoder) -> None:
    executor, client = BareExecutor(CodeResult(0, "42\n")), Pausing(GOOD, "Done.")
    client.agent = agent = coder(client, code_executor=executor)
    running = asyncio.create_task(turn(agent, TASK))
    await let_others_run()
    assert (len(client.calls), executor.received) == (1, [])
    await agent.on_resume(CancellationToken())
    assert facts_of(await running)["outcome"] == "ok"
    assert executor.received == [[CodeBlock(code="print(6 * 7)", language="python")]]


async def test_ce12_a_paused_agent_without_a_model_runs_nothing(terminal: MakeTerminal) -> None:
    executor = BareExecutor(CodeResult(0, "42\n"))
    agent = terminal(code_executor=executor)
    await agent.on_pause(CancellationToken())
    running = asyncio.create_task(turn(agent, GOOD))
    await let_others_run()
    assert executor.received == []
    await agent.on_resume(CancellationToken())
    assert text_of(await running) == "42\n"


async def test_ce12_a_paused_agent_can_be_cancelled(coder: MakeCoder) -> None:
    client, token = Client("Hello."), CancellationToken()
    agent = coder(client)
    await agent.on_pause(token)
    running = asyncio.create_task(turn(agent, TASK, token=token))
    await let_others_run()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert client.calls == []


async def test_ce12_files_of_a_given_folder_outlive_the_agent(terminal: MakeTerminal, tmp_path: Path) -> None:
    agent = terminal()
    await turn(agent, WRITE)
    await agent.close()
    assert (tmp_path / "kept.txt").read_text() == "x"
