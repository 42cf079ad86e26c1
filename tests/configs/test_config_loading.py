"""Making teams of files, with their own models or with another."""

from __future__ import annotations

import importlib.resources
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import Component, ComponentModel
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from coderoom._util.autogen import agents_of, model_client_of
from coderoom.configs import ReplayModel, dump_team, load_team, shipped_teams
from coderoom.errors import ConfigError, MissingDependencyError, RequestError, SandboxUnavailable
from tests.configs.config_files import ENV, TEAM, changed, found, write

AGENT = "config.participants[0]"


class HolderConfig(BaseModel):
    name: str
    model_client: ComponentModel
    mode: str = "fine"


class Holder(UserProxyAgent):
    """An agent of somebody else that keeps the client it is given."""

    component_provider_override = f"{__name__}.Holder"
    component_config_schema: Any = HolderConfig
    made: list[Holder] = []

    def __init__(self, name: str, client: ChatCompletionClient, mode: str) -> None:
        errors: dict[str, Exception] = {
            "value": ValueError(f"bad value\nin {name}"),
            "import": ModuleNotFoundError("No module named 'frobnicate'", name="frobnicate"),
            "missing": MissingDependencyError("set FROBNICATE"),
            "sandbox": SandboxUnavailable("no sandbox"),
            "request": RequestError("not so"),
        }
        if mode in errors:
            raise errors[mode]
        super().__init__(name)
        self.client = client
        Holder.made.append(self)

    def _to_config(self) -> Any:
        return HolderConfig(name=self.name, model_client=self.client.dump_component())

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        return cls(config.name, ChatCompletionClient.load_component(config.model_client), config.mode)


class Undumpable(ReplayChatCompletionClient):
    """A client that cannot be dumped."""

    def _to_config(self) -> Any:
        raise NotImplementedError("this client cannot be dumped")


HOLDERS = f"""\
provider: autogen_agentchat.teams.RoundRobinGroupChat
config:
  participants:
    - &first
      provider: {__name__}.Holder
      config: &config
        name: first
        model_client:
          provider: OpenAIChatCompletionClient
          config: {{model: gpt-4o, api_key: "${{OPENAI_API_KEY}}"}}
    - <<: *first
      config: {{<<: *config, name: second}}
"""
TRUST = (__name__.partition(".")[0],)


@pytest.fixture(autouse=True)
def _forget_holders() -> Iterator[None]:
    Holder.made.clear()
    yield
    Holder.made.clear()


def clients() -> list[ChatCompletionClient]:
    return [holder.client for holder in Holder.made]


def test_load(tmp_path: Path) -> None:
    team = load_team(write(tmp_path, TEAM), env={**ENV, "MESSAGES": "3"})
    assert isinstance(team, RoundRobinGroupChat)
    config = team.dump_component().config
    assert config["max_turns"] == 5
    assert config["termination_condition"]["config"]["conditions"][0]["config"]["max_messages"] == 3
    agent = config["participants"][0]["config"]
    assert agent["system_message"] == "You write code.\n\n  - short\n  - tested\n"
    assert agent["model_client"]["config"]["model"] == "gpt-4o"
    assert agent["model_client"]["config"]["api_key"].get_secret_value() == ENV["OPENAI_API_KEY"]


def test_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, TEAM)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="'OPENAI_API_KEY' is not set"):
        load_team(file)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc")
    assert load_team(str(file)).name == "RoundRobinGroupChat"


def test_json(tmp_path: Path) -> None:
    file = tmp_path / "team.json"
    text = dump_team(load_team(write(tmp_path, TEAM), env=ENV), file)
    assert text == file.read_text()
    assert dump_team(load_team(file, env=ENV), tmp_path / "again.json") == text


def test_nested_team_without_its_type(tmp_path: Path) -> None:
    """AutoGen alone takes it for an agent and fails with `Expected type does not match`."""
    inner = TEAM.replace("component_type: team\n", "")
    nested = "provider: autogen_agentchat.teams.RoundRobinGroupChat\nconfig:\n  participants:\n    - "
    nested += inner.replace("\n", "\n      ").rstrip() + "\n"
    assert isinstance(load_team(write(tmp_path, nested), env=ENV), Team)
    config = load_team(write(tmp_path, f"{nested}  max_turns: 3\n"), env=ENV, max_turns=1).dump_component().config
    assert (config["max_turns"], config["participants"][0]["config"]["max_turns"]) == (1, 5)


EXECUTOR = """\
provider: autogen_agentchat.teams.RoundRobinGroupChat
config:
  participants:
    - provider: coderoom.agents.CodeExecutorAgent
      config:
        name: runner
        code_executor:
          provider: coderoom.executors.SandboxCodeExecutor
          config:
            timeout: 20
            NETWORK
            packages: [tqdm]
"""
CREDENTIALS = "network: [a.example.org]\n            credentials: {a.example.org: {value: one}}"


def test_packages_hosts_and_credentials_are_added_and_the_rest_is_replaced(tmp_path: Path) -> None:
    def made(network: str, /, **settings: Any) -> dict[str, Any]:
        team = load_team(write(tmp_path, EXECUTOR.replace("NETWORK", network)), env={}, **settings)
        config: dict[str, Any] = team.dump_component().config["participants"][0]["config"]["code_executor"]["config"]
        return config

    own = "network: [a.example.org]"
    config = made(own, packages=["polars"], allowed_hosts=["b.example.org"], timeout=7)
    assert config["packages"] == ["tqdm", "polars"]
    assert config["network"] == ["a.example.org", "b.example.org"]
    assert config["timeout"] == 7
    assert made("network: false", allowed_hosts=["a.example.org"])["network"] == ["a.example.org"]
    assert made(own, network=False)["network"] is False
    with pytest.raises(RequestError, match="the team lets code use the whole network"):
        made("network: true", allowed_hosts=["b.example.org"])
    config = made(CREDENTIALS, credentials={"b.example.org": {"value": "two"}}, allowed_hosts=["b.example.org"])
    assert config["credentials"].keys() == {"a.example.org", "b.example.org"}
    with pytest.raises(RequestError, match="timeout cannot be set to -1"):
        made(own, timeout=-1)


async def test_one_model_for_all(tmp_path: Path) -> None:
    client = ReplayModel(["hello"])
    file = write(tmp_path, HOLDERS)
    load_team(file, client, trust=TRUST, env={})
    assert len(clients()) == 2
    assert all(one is client for one in clients())

    other = ReplayChatCompletionClient(["hello"])
    load_team(file, model=other, trust=TRUST, env={})
    assert clients()[2:] == [other, other]


def test_model_by_a_text_is_made_once(tmp_path: Path) -> None:
    replay = write(tmp_path, "[hello]", "replies.yaml")
    load_team(write(tmp_path, HOLDERS), f"replay:{replay}", trust=TRUST, env={})
    first, second = clients()
    assert isinstance(first, ReplayModel)
    assert first is second


async def test_team_with_another_model_runs(tmp_path: Path) -> None:
    replay = write(tmp_path, "[hello, DONE]", "replies.yaml")
    team = load_team(write(tmp_path, TEAM), f"replay:{replay}", env={})
    result = await team.run(task="hi")
    assert isinstance(result, TaskResult)
    assert [message.content for message in result.messages] == ["hi", "hello", "DONE"]  # type: ignore[union-attr]


def test_model_is_replaced_wherever_it_stands(tmp_path: Path) -> None:
    text = changed(
        TEAM,
        "        reflect_on_tool_use",
        """\
        model_context:
          provider: autogen_core.model_context.TokenLimitedChatCompletionContext
          config: {model_client: {provider: acme.Model}, token_limit: 10}
        reflect_on_tool_use""",
    )
    file = write(tmp_path, text)
    assert len(found(file, env={})) == 2
    client = ReplayModel([])
    config = load_team(file, client, env={}).dump_component().config["participants"][0]["config"]
    assert config["model_client"]["provider"] == "coderoom.configs.ReplayModel"
    assert config["model_context"]["config"]["model_client"]["provider"] == "coderoom.configs.ReplayModel"


def test_wrong_model(tmp_path: Path) -> None:
    file = write(tmp_path, TEAM)
    with pytest.raises(RequestError, match="expected a model client"):
        load_team(file, 5, env={})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="there is no model 'nonsense'"):
        load_team(file, "nonsense", env={})


def test_executors_of_a_sandbox_run_their_code_at_a_server(tmp_path: Path) -> None:
    agent = """
    - provider: coderoom.agents.CodeExecutorAgent
      config:
        name: {name}
        code_executor: {{provider: coderoom.executors.{executor}, config: {config}}}
"""
    head = "provider: autogen_agentchat.teams.RoundRobinGroupChat\nconfig:\n  participants:"
    local = agent.format(name="here", executor="LocalCodeExecutor", config="{timeout: 7}")
    boxed = agent.format(name="there", executor="SandboxCodeExecutor", config="{timeout: 8, wall: none}")
    team = load_team(write(tmp_path, head + local + boxed), server="http://127.0.0.1:9")
    found = [each["config"]["code_executor"]["config"] for each in team.dump_component().config["participants"]]
    assert [(each.get("engine"), each.get("options"), each["timeout"]) for each in found] == [
        (None, None, 7),
        ("remote", {"url": "http://127.0.0.1:9"}, 8),
    ]
    with pytest.raises(RequestError, match="needs a SandboxCodeExecutor"):
        load_team(write(tmp_path, head + local), server="http://127.0.0.1:9")


def test_dump_has_the_other_model(tmp_path: Path) -> None:
    replay = write(tmp_path, "[hello]", "replies.yaml")
    text = dump_team(load_team(write(tmp_path, TEAM), f"replay:{replay}", env={}))
    assert "provider: coderoom.configs.ReplayModel" in text
    assert "InjectedModel" not in text
    assert "OPENAI_API_KEY" not in text
    again = load_team(write(tmp_path, text, "again.yaml"), env={})
    assert dump_team(again) == text


def test_dump_has_the_files_model_where_the_other_cannot_be_dumped(tmp_path: Path) -> None:
    text = changed(TEAM, "api_key: ${OPENAI_API_KEY}", "api_key: sk-literal\n            organization: ${ORG:-mine}")
    text = changed(text, "  max_turns: 5", "  max_turns: 5\n  x-note: {api_key: sk-other}")
    team = load_team(write(tmp_path, text), Undumpable([]), env={})
    dumped = dump_team(team)
    assert "organization: ${ORG:-mine}" in dumped
    assert "max_messages: ${MESSAGES:-7}" in dumped
    assert "sk-" not in dumped
    assert "x-note" not in dumped
    assert "InjectedModel" not in dumped
    assert found(write(tmp_path, dumped, "again.yaml")) == []
    own = RoundRobinGroupChat([AssistantAgent("a", Undumpable([]))])
    with pytest.raises(RequestError, match=r"cannot be dumped: NotImplementedError"):
        dump_team(own)


@pytest.mark.parametrize(
    ("mode", "error", "part"),
    [
        ("value", ConfigError, "Holder could not be made: ValueError: bad value in second"),
        ("import", MissingDependencyError, "Holder: it needs the module 'frobnicate', which is not installed"),
        ("missing", MissingDependencyError, "set FROBNICATE"),
        ("request", ConfigError, "Holder could not be made: not so"),
    ],
)
def test_failing_component_is_named(tmp_path: Path, mode: str, error: type[Exception], part: str) -> None:
    text = changed(HOLDERS, "name: second}", f"name: second, mode: {mode}}}")
    file = write(tmp_path, text)
    with pytest.raises(error) as caught:
        load_team(file, trust=TRUST, env=ENV)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"{file}:11: config.participants[1]: ")
    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.__cause__ is not None


def test_our_own_failure_stays_our_own(tmp_path: Path) -> None:
    file = write(tmp_path, changed(HOLDERS, "name: second}", "name: second, mode: sandbox}"))
    with pytest.raises(SandboxUnavailable, match="no sandbox"):
        load_team(file, trust=TRUST, env=ENV)


def test_team_that_fails_as_a_whole(tmp_path: Path) -> None:
    text = """\
provider: autogen_agentchat.teams.SelectorGroupChat
config:
  model_client: {}
  selector_prompt: x
  allow_repeated_speaker: false
  participants:
    - provider: autogen_agentchat.agents.UserProxyAgent
      config: {name: a, description: b}
"""
    with pytest.raises(ConfigError) as caught:
        load_team(write(tmp_path, text), ReplayModel([]))
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (6, "config.participants")
    assert problem.message.startswith("SelectorGroupChat could not be made: ValueError: ")


def test_openai_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    file = write(tmp_path, changed(TEAM, "            api_key: ${OPENAI_API_KEY}\n", ""))
    assert found(file) == []
    with pytest.raises(MissingDependencyError) as caught:
        load_team(file)
    assert "config.participants[0].config.model_client" in str(caught.value)
    assert "set OPENAI_API_KEY" in str(caught.value)
    assert "--model" in str(caught.value)


def test_model_that_autogen_does_not_know(tmp_path: Path) -> None:
    team = load_team(write(tmp_path, TEAM), env={**ENV, "MODEL": "my-own"})
    (client,) = [model_client_of(agent) for agent in agents_of(team)]
    assert client.model_info["family"] == "unknown"
    assert "model_info" not in dump_team(team)


def test_secrets_are_not_in_errors_of_constructors(tmp_path: Path) -> None:
    text = changed(HOLDERS, "name: second}", 'name: "${MY_TOKEN}", mode: value}')
    with pytest.raises(ConfigError) as caught:
        load_team(write(tmp_path, text), trust=TRUST, env={**ENV, "MY_TOKEN": "abcdefgh"})
    assert "bad value in ${MY_TOKEN}" in str(caught.value)
    assert "abcdefgh" not in str(caught.value)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    write(folder, TEAM, "talk.yaml")
    write(folder, changed(TEAM, "description: Two agents that talk.", "description:"), "bare.yaml")
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    return folder


def test_shipped_teams(shipped: Path) -> None:
    assert shipped_teams() == {"bare": "", "talk": "Two agents that talk."}
    assert load_team("talk", env=ENV).name == "RoundRobinGroupChat"
    with pytest.raises(ConfigError, match=r"^talk:22: "):
        load_team("talk", env={})


def test_unknown_name(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError) as caught:
        load_team("tlak")
    assert "there is no shipped team 'tlak' (did you mean 'talk'?)" in str(caught.value)
    assert "the shipped teams are bare, talk" in str(caught.value)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, TEAM, "mine")
    with pytest.raises(RequestError, match=r"write '\./mine'"):
        load_team("mine")
    (shipped / "talk.yaml").unlink()
    (shipped / "bare.yaml").unlink()
    shipped.rmdir()
    assert shipped_teams() == {}
    with pytest.raises(RequestError, match="there is no shipped team"):
        load_team("")


def test_shipped_teams_of_the_package_are_fine() -> None:
    for name, description in shipped_teams().items():
        assert description, name


class Old(MaxMessageTermination, Component[Any]):
    """A component that reads its old configs."""

    component_version = 3
    component_provider_override = f"{__name__}.Old"

    @classmethod
    def _from_config_past_version(cls, config: dict[str, Any], version: int) -> Self:
        return cls(config["limit"] + version)


def test_old_config_is_left_to_its_class(tmp_path: Path) -> None:
    stop = f"provider: {__name__}.Old\n          component_version: 2\n          config: {{limit: 4}}"
    start = TEAM.index("provider: autogen_agentchat.conditions.Max")
    end = TEAM.index("\n        - provider: autogen_agentchat.conditions.Text")
    text = TEAM[:start] + stop + TEAM[end:]
    file = write(tmp_path, text)
    assert found(file, trust=TRUST) == []
    config = load_team(file, trust=TRUST, env=ENV).dump_component().config
    assert config["termination_condition"]["config"]["conditions"][0]["config"]["max_messages"] == 6
    assert sys.modules[__name__].Old is Old
