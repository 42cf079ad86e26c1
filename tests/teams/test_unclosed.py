"""Teams and agents that nobody closes: the process ends with exit code 0 and says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.openai_server import OpenAIServer, Request
from tests.support.processes import run_often

SCRIPT = """
import asyncio, sys
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_ext.models.openai import OpenAIChatCompletionClient
from coderoom.agents import CodeActAgent, CodeExecutorAgent, ReviewerAgent
from coderoom.executors import SandboxCodeExecutor
from coderoom.teams import CodingTeam

url, folder = sys.argv[1:]
client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06", api_key="none", base_url=url)
coder = CodeExecutorAgent("coder", SandboxCodeExecutor(folder), model_client=client)

async def leave_early():
    async for item in CodingTeam([coder], max_turns=1).run_stream(task="Compute it."):
        if type(item).__name__ == "CodeExecutionEvent":
            return

async def stop():
    try:
        await asyncio.wait_for(CodingTeam([coder], max_turns=1).run(task="Compute it."), 0.05)
    except TimeoutError:
        pass
"""
RUNS = {
    "our team": "asyncio.run(CodingTeam([coder], max_turns=1).run(task='Compute it.'))",
    "AutoGen's team": "asyncio.run(RoundRobinGroupChat([coder], max_turns=1).run(task='Compute it.'))",
    "an agent": "asyncio.run(coder.run(task='Compute it.'))",
    "a stream that is left": "asyncio.run(leave_early())",
    "a run that is stopped": "asyncio.run(stop())",
    "two event loops": "team = CodingTeam([coder], max_turns=1)\nfor _ in range(2):\n"
    "    asyncio.run(team.run(task='Compute it.'))",
    "a session, with chunks": "actor = CodeActAgent('actor', client, SandboxCodeExecutor(folder), "
    "model_client_stream=True)\nasyncio.run(RoundRobinGroupChat([actor], max_turns=1).run(task='Compute it.'))",
    "a reviewer": "asyncio.run(CodingTeam([ReviewerAgent('reviewer', client)], max_turns=1).run(task='Review it.'))",
    "a model and no code": "asyncio.run(CodingTeam([CodeExecutorAgent('coder', SandboxCodeExecutor(folder), "
    "model_client=client, system_message='words')], max_turns=1).run(task='Say hello.'))",
}


def reply(request: Request) -> str:
    last = str(request.body["messages"][-1]["content"])
    if "Review" in last:
        return '{"approved": false, "issues": [], "summary": "No code."}'
    if "hello" in last:
        return "Hello."
    return "It is 42." if "42" in last else "```python\nprint(6 * 7)\n```"


def end(run: str, folder: Path, times: int = 1) -> None:
    folder.joinpath("work").mkdir()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with OpenAIServer(respond=reply) as server:
        run_often(SCRIPT, RUNS[run], times, folder, server.base_url, str(folder / "work"), env=env)


@pytest.mark.slow
def test_it_ends_silently(tmp_path: Path) -> None:
    end("our team", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", RUNS)
def test_it_ends_silently_each_time(run: str, tmp_path: Path) -> None:
    end(run, tmp_path, times=5)
