"""Processes that stay, as functions that an agent's code may call."""

from __future__ import annotations

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import CodeExecutorAgent
from coderoom.executors import SandboxCodeExecutor


async def test_an_agents_code_has_a_process_that_stays() -> None:
    start = "```python\nprint(start_process('python3 -q', terminal=True))\nx = 1\n```"
    use = "```python\nprint(write_process(x, '6 * 7\\n'))\nprint(stop_process(x))\nread_process(9)\n```"
    model = ReplayChatCompletionClient([start, "Started.", use, "Done."])
    agent = CodeExecutorAgent("coder", SandboxCodeExecutor(processes=True), model_client=model)
    try:
        for expected in (["Process 1 runs."], ["42", "Process 1 has ended", "There is no process 9; there are: 1."]):
            message = TextMessage(content="Go on.", source="user")
            response = await agent.on_messages([message], CancellationToken())
            assert all(text in response.chat_message.to_text() for text in expected), response.chat_message
        assert "start_process(command" in str(model.create_calls[0]["messages"][0])
    finally:
        await agent.close()
