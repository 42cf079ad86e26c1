"""Agents that are closed when a test ends."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.models import ChatCompletionClient

from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.executors.base import WarmSandboxes
from tests.agents.acting import MakeActor
from tests.agents.helpers import MakeCoder, MakeTerminal


@pytest.fixture(scope="session")
async def warm() -> AsyncIterator[WarmSandboxes]:
    """Sandboxes that executors leave to those of later tests: starting one takes longer than most tests."""
    sandboxes = WarmSandboxes()
    yield sandboxes
    await sandboxes.close()


@pytest.fixture
async def lent(warm: WarmSandboxes) -> AsyncIterator[None]:
    """A test with this uses them."""
    with warm.lending():
        yield


@pytest.fixture(scope="session")
def one_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agents")


@pytest.fixture
def tmp_path(one_folder: Path) -> Iterator[Path]:
    """The same folder for all tests, which is empty for each of them, so that they can use the same sandboxes."""
    yield one_folder
    for path in one_folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.fixture
async def agents(tmp_path: Path, lent: None) -> AsyncIterator[list[CodeExecutorAgent]]:
    """The agents of a test; whoever is put in here is closed at its end, before the folder is emptied."""
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
