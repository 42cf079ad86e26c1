"""Recordings of model traffic: found by content, whoever asks in whatever order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import UserMessage
from autogen_core.tools import FunctionTool

from coderoom.configs import RecordedModel, ReplayModel, make_model
from coderoom.errors import RequestError
from coderoom.models.watching import watch_client
from coderoom.runs import Recorder
from coderoom.steps import StepObserver, observing
from tests.support.commands import coderoom
from tests.support.openai_server import OpenAIServer
from tests.support.selector_team import respond, selector


def transcript(shown: str) -> list[tuple[str, str]]:
    return [(message["source"], str(message.get("content"))) for message in json.loads(shown)["messages"]]


@pytest.mark.slow
def test_a_team_with_a_selector_replays_without_network_and_key(tmp_path: Path) -> None:
    with OpenAIServer(respond=respond) as server:
        selector(tmp_path, server.base_url)
        env = {"OPENAI_API_KEY": "sk-test-0123456789abcdef"}
        done = coderoom("run", "team.yaml", "6 * 7?", "--json", "--record", "run.jsonl", cwd=tmp_path, env=env)
    assert json.loads(done.stdout)["error"] is None, done.stdout
    # Those of the selector too, which has no messages.
    assert json.loads(done.stdout)["usage_by_agent"]["SelectorGroupChatManager"]["total_tokens"] > 0
    assert len({source for source, _ in transcript(done.stdout)}) == 4  # The user, and all three.
    recorded = (tmp_path / "run.jsonl").read_text()
    assert "sk-test-0123" not in recorded
    assert len(recorded.splitlines()) == len(server.requests) + 1
    for _ in range(2):
        again = coderoom("run", "team.yaml", "6 * 7?", "--json", "--model", "replay:run.jsonl", cwd=tmp_path)
        assert transcript(again.stdout) == transcript(done.stdout)
    missed = coderoom("run", "team.yaml", "6 * 8?", "--json", "--model", "replay:run.jsonl", cwd=tmp_path)
    error = json.loads(missed.stdout)["error"]
    assert "has no reply to this request" in error
    assert "-user: 6 * 7?" in error
    assert "+user: 6 * 8?" in error
    over = ("--model", "replay:run.jsonl", "--record", "./run.jsonl")
    assert "record into another file" in coderoom("run", "team.yaml", "6 * 7?", *over, cwd=tmp_path).stderr
    assert (tmp_path / "run.jsonl").read_text() == recorded


async def test_tool_calls_thoughts_usage_and_equal_requests_come_back(tmp_path: Path) -> None:
    call = FunctionCall(id="1", name="add", arguments='{"a": 1}')
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    client = ReplayModel(
        [{"content": [call], "thought": "Hm.", "usage": usage}, "first", "second"], {"function_calling": True}
    )
    watch_client(client)

    def add(a: int) -> int:
        """Add."""
        return a

    tool = FunctionTool(add, description="Add.")
    question = [UserMessage(content="Now?", source="user")]
    with observing(Recorder(tmp_path / "r.jsonl")):
        made = [await client.create(question, tools=tools) for tools in ([tool], [], [])]
    recorded = make_model(f"replay:{tmp_path / 'r.jsonl'}")
    assert isinstance(recorded, RecordedModel)
    assert recorded.model_info["function_calling"]
    found = [await recorded.create(question, tools=tools) for tools in ([], [], [tool])]
    assert found == [made[1], made[2], made[0]]
    streamed = [item async for item in recorded.create_stream(question)]
    assert streamed == ["second", made[2]]  # There are no more than two.
    loaded = RecordedModel.load_component(recorded.dump_component())
    assert await loaded.create(question) == made[1]


class Counter(StepObserver):
    count = 0

    def before(self, kind: str, request: Any) -> None:
        self.count += 1


async def test_a_streamed_request_is_one_step(tmp_path: Path) -> None:
    question = [UserMessage(content="Now?", source="user")]
    client = ReplayModel(["first", "second"])
    watch_client(client)
    with observing(Recorder(tmp_path / "r.jsonl")):
        await client.create(question)
    recorded = make_model(f"replay:{tmp_path / 'r.jsonl'}")
    watch_client(recorded)
    for each, words in ((client, "second"), (recorded, "first")):
        counter = Counter()
        with observing(counter):
            streamed = [item async for item in each.create_stream(question)]
        assert streamed[0] == words
        assert counter.count == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"coderoom": "recording", "version": 2}\n', "one of another version"),
        ('{"coderoom": "recording", "version": 1}\n{"a"\n{}\n', "r.jsonl:2: this line"),
        ('{"coderoom": "recording", "version": 1}\n{"request": 5}\n', "r.jsonl:2: agent: Field required"),
    ],
)
def test_a_damaged_recording_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(RequestError, match=words):
        make_model(f"replay:{tmp_path / 'r.jsonl'}")


async def test_a_recording_is_read_again_if_it_has_changed(tmp_path: Path) -> None:
    question = [UserMessage(content="Now?", source="user")]
    for reply in ("first", "another"):
        client = ReplayModel([reply])
        watch_client(client)
        with observing(Recorder(tmp_path / "new.jsonl")):
            await client.create(question)
        (tmp_path / "new.jsonl").replace(tmp_path / "r.jsonl")
        for _ in range(2):  # Each client has its own place in the recording.
            assert (await make_model(f"replay:{tmp_path / 'r.jsonl'}").create(question)).content == reply
