"""A client with a rate limit, as all that call models use it: in a team file, with streams, decisions and functions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from coderoom import dump_team, execute_code, load_team
from coderoom.configs import ReplayModel, check_team, resolve_model
from coderoom.errors import RequestError
from coderoom.generation import AICodeGenerator, AutoGenModel
from coderoom.models import RateLimitedClient
from coderoom.models.structured import ask_structured
from tests.support.openai_server import OpenAIServer, Reply

MODEL = "gpt-4o-2024-08-06"
PER_MINUTE = 300
SECONDS = 60 / PER_MINUTE
QUESTION = [UserMessage(content="Go on.", source="user")]

TEAM = """\
provider: coderoom.teams.CodingTeam
component_type: team
config:
  name: two
  participants:
    - provider: coderoom.agents.CodeExecutorAgent
      component_type: agent
      config:
        name: coder
        code_executor:
          provider: coderoom.executors.SandboxCodeExecutor
          component_type: code_executor
          config: {}
        model_client: &model
          provider: coderoom.models.RateLimitedClient
          component_type: model
          config:
            requests_per_minute: 300
            client:
              provider: autogen_ext.models.openai.OpenAIChatCompletionClient
              component_type: model
              config:
                model: gpt-4o-2024-08-06
                api_key: test
                base_url: ${ADDRESS}
    - provider: coderoom.agents.ReviewerAgent
      component_type: agent
      config:
        name: reviewer
        model_client: *model
  max_turns: 4
"""


class Timed(ReplayModel):
    """Notes when it is called."""

    def __init__(self, replies: list[str]) -> None:
        super().__init__(replies)
        self.times: list[float] = []

    async def create(self, *arguments: Any, **more: Any) -> CreateResult:
        self.times.append(time.monotonic())
        return await super().create(*arguments, **more)


def spaced(begin: float, times: list[float]) -> bool:
    """Whether none came before its turn; a busy machine makes them later only."""
    return all(each >= begin + number * SECONDS - 0.001 for number, each in enumerate(sorted(times)))


class Decision(BaseModel):
    yes: bool


async def test_all_who_use_it_share_the_limit() -> None:
    inner = Timed(["x"] * 6)
    limited = RateLimitedClient(inner, PER_MINUTE)
    begin = time.monotonic()
    await asyncio.gather(*(limited.create(QUESTION) for _ in range(3)), execute_code("Do it.", model=limited))
    assert len(inner.times) >= 4
    assert spaced(begin, inner.times)


async def test_equal_clients_share_the_limit_and_others_do_not() -> None:
    equal = [Timed(["x"]) for _ in range(2)]
    other = Timed(["y"])
    limited = [RateLimitedClient(each, PER_MINUTE) for each in (*equal, other)]
    begin = time.monotonic()
    await asyncio.gather(*(each.create(QUESTION) for each in limited))
    assert spaced(begin, equal[0].times + equal[1].times)
    assert other.times[0] < max(equal[0].times + equal[1].times)


async def test_a_team_file_declares_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []

    def respond(request: Any) -> Reply:
        times.append(time.monotonic())
        verdict = '{"approved": false, "issues": ["x"], "summary": "No."}'
        return Reply(verdict if "response_format" in request.body else "Nothing to run.")

    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    with OpenAIServer(respond=respond) as server:
        monkeypatch.setenv("ADDRESS", server.base_url)
        assert check_team(path) == []
        team = load_team(path)
        assert "coderoom.models.RateLimitedClient" in str(dump_team(team))
        begin = time.monotonic()
        result = await team.run(task="Do it.")
        assert len(result.messages) >= 4
        assert len(times) == 4
        assert spaced(begin, times)


def test_mistakes_in_its_config_are_found(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(TEAM.replace("requests_per_minute: 300", "requests_per_minute: 0").replace("ADDRESS", "ADDRESS:-x"))
    assert "requests_per_minute" in str(check_team(path)[0])
    path.write_text(TEAM.replace("ADDRESS", "ADDRESS:-x").replace("model: gpt-4o", "modell: gpt-4o"))
    assert "did you mean 'model'" in str(check_team(path)[0])
    with pytest.raises(RequestError, match="requests_per_minute"):
        RateLimitedClient(ReplayModel([]), float("nan"))


def test_it_is_dumped_and_loaded() -> None:
    dumped = RateLimitedClient(ReplayModel(["x"]), 7.5).dump_component()
    loaded = RateLimitedClient.load_component(dumped)
    assert loaded.dump_component() == dumped
    assert isinstance(loaded.client, ReplayModel)
    assert resolve_model(loaded) is loaded
    assert loaded.model_info == loaded.client.model_info


async def test_streams_and_their_tokens_come_through() -> None:
    with OpenAIServer([Reply("Hello there.", usage=(7, 3))]) as server:
        inner = OpenAIChatCompletionClient(model=MODEL, api_key="test", base_url=server.base_url)
        limited = RateLimitedClient(inner, PER_MINUTE)
        items = [item async for item in limited.create_stream(QUESTION)]
        await limited.close()
    assert "".join(item for item in items if isinstance(item, str)) == "Hello there."
    last = items[-1]
    assert isinstance(last, CreateResult)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (7, 3)


async def test_decisions_use_structured_output_as_without_it() -> None:
    with OpenAIServer(['{"yes": true}', "not JSON"]) as server:
        inner = OpenAIChatCompletionClient(model=MODEL, api_key="test", base_url=server.base_url)
        limited = RateLimitedClient(inner, 6000)
        token = CancellationToken()
        asked = [
            await ask_structured(limited, QUESTION, Decision, source="me", cancellation_token=token) for _ in range(2)
        ]
        await limited.close()
        assert [answer.value for answer in asked] == [Decision(yes=True), None]
        assert asked[1].text == "not JSON"
        assert server.requests[0].body["response_format"]["type"] == "json_schema"


async def test_a_cancelled_token_ends_the_wait() -> None:
    inner = Timed(["x", "x"])
    limited = RateLimitedClient(inner, 0.5)
    await limited.create(QUESTION)
    token = CancellationToken()
    waiting = asyncio.create_task(limited.create(QUESTION, cancellation_token=token))
    await asyncio.sleep(0.05)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(inner.times) == 1


def test_the_generator_uses_it_in_any_event_loop() -> None:
    inner = Timed(["no"] * 4)
    generator = AICodeGenerator(RateLimitedClient(inner, PER_MINUTE), cache=False, max_answer_tokens=50)
    begin = time.monotonic()
    for _ in range(2):
        assert not generator.generate_solution_sync("Double.").all_tests_passed
    assert len(inner.times) == 4
    assert spaced(begin, inner.times)
    assert inner.create_calls[0]["extra_create_args"] == {"max_tokens": 50}


async def test_the_name_of_its_model_is_that_of_the_client() -> None:
    client = OpenAIChatCompletionClient(model=MODEL, api_key="test", base_url="http://127.0.0.1:9")
    assert AutoGenModel(RateLimitedClient(client, PER_MINUTE)).name == MODEL
    await client.close()
