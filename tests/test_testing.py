"""The pytest plugin: a test asks a model once, and its recording afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import environment
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

SUITE = """
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from coderoom.agents import CodeActAgent

@pytest.mark.coderoom_replay
async def test_it_computes():
    client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06")
    result = await CodeActAgent("actor", client, model_client_stream=True).run(task="6 * 7?")
    assert "It is 42." in result.messages[-1].content
    result = await AssistantAgent("writer", client).run(task="Say it.")
    assert result.messages[-1].content == "42!"
    await client.close()

@pytest.mark.coderoom_replay(file="own.jsonl")
async def test_of_another_name():
    client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06")
    result = await AssistantAgent("a", client).run(task="Hello?")
    await client.close()
    assert result.messages[-1].content == "Hello."
"""


def run_suite(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini", "."]
    return subprocess.run(command, cwd=folder, env=environment(env), capture_output=True, text=True, check=False)


def test_a_test_records_once_and_replays_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    settings = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    refused = run_suite(tmp_path)
    assert "no key to make one. Set one of OPENAI_API_KEY" in refused.stdout
    with OpenAIServer(["```python\nprint(42)\n```", "It is 42.", "42!", "Wrong.", "Hello."]) as server:
        key = {"OPENAI_API_KEY": "test-key-1234", "OPENAI_BASE_URL": server.base_url}
        assert "1 failed, 1 passed" in run_suite(tmp_path, **key).stdout
        assert not any(tmp_path.glob("own.*"))
        recorded = run_suite(tmp_path, **key)
        assert recorded.returncode == 0, recorded.stdout
    assert (tmp_path / "recordings" / "test_it-test_it_computes.jsonl").read_text().count("\n") == 4
    assert (tmp_path / "own.jsonl").is_file()
    replayed = run_suite(tmp_path)
    assert replayed.returncode == 0, replayed.stdout
    (tmp_path / "test_it.py").write_text(SUITE.replace("Hello?", "Goodbye?"))
    missed = run_suite(tmp_path)
    assert "1 failed, 1 passed" in missed.stdout
    assert "+Goodbye?" in missed.stdout
