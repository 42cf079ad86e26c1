"""Agents that are closed when a test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.models import ChatCompletionClient

from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from tests.agents.acting import MakeActor
from tests.agents.helpers import MakeCoder, MakeTerminal


@pytest.fixture
async def agents() -> AsyncIterator[list[CodeExecutorAgent]]:
    """The agents of a test; whoever is put in here is closed at its end."""
    made: list[CodeExecutorAgent] = []
    yield made
    for agent in made:
        await agent.close()


@pytest.fixture
def coder(agents: list[CodeExecutorAgent], tmp_path: Path) -> MakeCoder:
    def make(client: ChatCompletionClient, **arguments: Any) -> CodeExecutorAgent:
        executor = arguments.pop("code_executor", None) or LocalCodeExecutor(work_dir=tmp_path)
        agents.append(CodeExecutorAgent("coder", executor, model_client=client, **arguments))
        return agents[-1]

    return make


@pytest.fixture
def terminal(agents: list[CodeExecutorAgent], tmp_path: Path) -> MakeTerminal:
    def make(**arguments: Any) -> CodeExecutorAgent:
        executor = arguments.pop("code_executor", None) or LocalCodeExecutor(work_dir=tmp_path)
        agents.append(CodeExecutorAgent("terminal", executor, **arguments))
        return agents[-1]

    return make


@pytest.fixture(params=["token", "task"])
def way(request: pytest.FixtureRequest) -> str:
    """How a turn is cancelled: by its token, or with its task."""
    found: str = request.param
    return found


@pytest.fixture
async def actor(tmp_path: Path) -> AsyncIterator[MakeActor]:
    made: list[CodeActAgent] = []

    def make(client: ChatCompletionClient, **arguments: Any) -> CodeActAgent:
        executor = arguments.pop("code_executor", None) or SandboxCodeExecutor(tmp_path / "work")
        made.append(CodeActAgent("actor", client, executor, **arguments))
        return made[-1]

    yield make
    for agent in made:
        await agent.close()
