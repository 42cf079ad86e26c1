"""Galleries for AutoGen Studio."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMentionTermination
from autogen_core import Component, ComponentLoader
from pydantic import BaseModel, ConfigDict, SecretStr

from coderoom.configs import load_team, make_gallery, shipped_teams
from coderoom.errors import ConfigError, RequestError
from tests.configs.config_files import TEAM, write
from tests.support.commands import ROOT, coderoom

LISTS = ("teams", "agents", "models", "tools", "terminations", "workbenches")
KEY = "sk-a-key-that-nobody-may-see"


class Part(BaseModel):
    """What Studio demands of a component; its pages also read the type and the label."""

    model_config = ConfigDict(extra="forbid", strict=True)
    provider: str
    component_type: str
    version: int
    component_version: int
    description: str
    label: str
    config: dict[str, Any]


class Parts(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    teams: list[Part]
    agents: list[Part]
    models: list[Part]
    tools: list[Part]
    terminations: list[Part]
    workbenches: list[Part]


class Metadata(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    author: str
    version: str
    description: str
    tags: list[str]
    license: str


class Gallery(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    id: str
    name: str
    url: str | None
    metadata: Metadata
    components: Parts


class LockedConfig(BaseModel):
    pin: SecretStr | None = None
    word: str = ""


class Locked(TextMentionTermination, Component[LockedConfig]):
    """Ends the run at a word."""

    component_config_schema = LockedConfig  # type: ignore[assignment]
    component_provider_override = "tests.configs.test_gallery.Locked"


def labels(gallery: dict[str, Any], name: str) -> list[str]:
    return [component["label"] for component in gallery["components"][name]]


def test_a_gallery_is_what_studio_reads() -> None:
    gallery = make_gallery()
    Gallery.model_validate_json(json.dumps(gallery))
    assert labels(gallery, "teams") == list(shipped_teams())
    kinds = {name: {part["component_type"] for part in gallery["components"][name]} for name in LISTS}
    assert kinds == {
        "teams": {"team"},
        "agents": {"agent"},
        "models": {"model"},
        "tools": set(),
        "terminations": {"termination"},
        "workbenches": set(),
    }
    for team in gallery["components"]["teams"]:
        names = [participant["config"]["name"] for participant in team["config"]["participants"]]
        assert names
        assert len(names) == len(set(names))


def test_every_component_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = json.loads(json.dumps(make_gallery([ROOT / "examples/team.yaml", write(tmp_path, TEAM)])))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    for name in LISTS:
        for component in gallery["components"][name]:
            ComponentLoader.load_component(component, object)
    for team in gallery["components"]["teams"]:
        assert isinstance(Team.load_component(team), Team)
    # Studio makes every component to see whether it can.
    assert sorted(tmp_path.iterdir()) == before


def test_another_model_takes_the_place_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = f"replay:{ROOT / 'examples' / 'primes.replay.yaml'}"
    gallery = make_gallery([write(tmp_path, TEAM)], model=model)
    [played] = gallery["components"]["models"]
    assert played["provider"] == "coderoom.configs.ReplayModel"
    assert "OpenAI" not in json.dumps(gallery)
    assert str(ROOT) not in json.dumps(gallery)
    for team in gallery["components"]["teams"]:
        assert isinstance(Team.load_component(team), Team)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    gallery = make_gallery(model="openai:gpt-4o-mini")
    assert [each["config"]["model"] for each in gallery["components"]["models"]] == ["gpt-4o-mini"]
    assert KEY not in json.dumps(gallery)
    with pytest.raises(RequestError, match="there is no model 'gpt'"):
        make_gallery(model="gpt")


def test_a_server_that_needs_no_key_gets_a_placeholder_and_an_agent_without_a_model_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("CODEROOM_API_KEY", raising=False)
    agent = {"provider": "coderoom.agents.CodeActAgent", "config": {"name": "coder"}}
    team = {"provider": "coderoom.teams.CodingTeam", "config": {"participants": [agent]}}
    gallery = make_gallery([write(tmp_path, json.dumps(team))], model="http://127.0.0.1:9/v1#own")
    [found] = gallery["components"]["models"]
    assert (found["config"]["model"], found["config"]["api_key"]) == ("own", "none")
    assert gallery["components"]["teams"][-1]["config"]["participants"][0]["config"]["model_client"] == found
    agent["config"]["model_client"] = {  # type: ignore[index]
        "provider": "OpenAIChatCompletionClient",
        "config": {"model": "own", "base_url": "http://127.0.0.1:9/v1"},
    }
    path = write(tmp_path, json.dumps(team))
    load_team(path)
    [*_, own] = make_gallery([path])["components"]["models"]
    assert own["config"]["api_key"] == "none"
    agent["config"]["model_client"]["config"]["api_key"] = KEY  # type: ignore[index]
    [*_, own] = make_gallery([write(tmp_path, json.dumps(team))])["components"]["models"]
    assert "api_key" not in own["config"]


def test_nothing_is_there_twice() -> None:
    gallery = make_gallery(["analyst", ROOT / "coderoom/configs/shipped/code-act.yaml"])
    assert gallery == make_gallery()
    for name in LISTS:
        parts = [json.dumps([part["provider"], part["config"]]) for part in gallery["components"][name]]
        assert len(parts) == len(set(parts))
        assert len(set(labels(gallery, name))) == len(parts)


def test_no_two_have_the_same_label_and_all_have_plain_descriptions(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.yaml" for number in range(2)]
    for number, file in enumerate(files):
        file.write_text(f"{(ROOT / 'examples/team.yaml').read_text()}  name: team_{number}\nlabel: analyst\n")
    gallery = make_gallery(files)
    assert labels(gallery, "teams") == [*shipped_teams(), "analyst (2)", "analyst (3)"]
    for name in LISTS:
        assert len(set(labels(gallery, name))) == len(gallery["components"][name])
        for component in gallery["components"][name]:
            assert component["description"].strip()
            assert "`" not in component["description"]


def test_a_team_of_ones_own_is_taken_apart(tmp_path: Path) -> None:
    gallery = make_gallery([write(tmp_path, TEAM, "pair.yaml")])
    before = make_gallery()
    assert labels(gallery, "teams") == [*labels(before, "teams"), "pair"]
    assert (before["name"], gallery["name"]) == ("CodeRoom", "CodeRoom and pair")
    team = gallery["components"]["teams"][-1]
    assert team["description"] == "Two agents that talk."
    added = gallery["components"]["terminations"][len(before["components"]["terminations"]) :]
    assert [part["provider"].rpartition(".")[2] for part in added] == [
        "OrTerminationCondition",
        "MaxMessageTermination",
        "TextMentionTermination",
    ]
    # The short name of a provider is none that Studio's pages know.
    model = team["config"]["participants"][0]["config"]["model_client"]
    assert model["provider"] == "autogen_ext.models.openai.OpenAIChatCompletionClient"


NESTED = """\
provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: coderoom.agents.CodeExecutorAgent
      config: {name: first, code_executor: {provider: coderoom.executors.SandboxCodeExecutor}}
    - provider: coderoom.teams.CodingTeam
      config:
        name: my_pair
        description: Two of them.
        participants: [SECOND, DEEPER]
        max_turns: 2
    - provider: autogen_agentchat.teams.RoundRobinGroupChat
      config: {participants: [THIRD], max_turns: 1}
  max_turns: 3
"""


def _nested() -> str:
    """A team of an agent and two teams, one of which has another team in it."""

    def agent(name: str) -> str:
        executor = "{provider: coderoom.executors.SandboxCodeExecutor}"
        return f"{{provider: coderoom.agents.CodeExecutorAgent, config: {{name: {name}, code_executor: {executor}}}}}"

    deeper = f"{{provider: coderoom.teams.CodingTeam, config: {{participants: [{agent('deep')}], max_turns: 1}}}}"
    text = NESTED.replace("SECOND", agent("second")).replace("DEEPER", deeper)
    # AutoGen's team takes what says no type for a team.
    return text.replace("THIRD", agent("third").replace("{", "{component_type: agent, ", 1))


@pytest.mark.slow
async def test_a_team_in_a_coding_team_becomes_an_agent_that_does_the_same(tmp_path: Path) -> None:
    """Studio's builder drops teams that stand there."""
    file = write(tmp_path, _nested())
    gallery = make_gallery([file])
    (team,) = (team for team in gallery["components"]["teams"] if team["label"] == "team")
    agents = team["config"]["participants"]
    assert [agent["provider"].rpartition(".")[2] for agent in agents] == ["CodeExecutorAgent", "TeamAgent", "TeamAgent"]
    assert [agent["component_type"] for agent in agents] == ["agent"] * 3
    assert [agent["config"]["name"] for agent in agents] == ["first", "my_pair", "RoundRobinGroupChat"]
    assert (agents[1]["label"], agents[1]["description"]) == ("my_pair", "Two of them.")
    assert "my_pair" in labels(gallery, "agents")
    assert {"second", "deep", "third"} <= set(labels(gallery, "agents")), "what it consists of is there as before"
    Gallery.model_validate(gallery)

    told = []
    for loaded in (load_team(file), Team.load_component(team)):
        async with loaded:  # type: ignore[attr-defined]
            result = await loaded.run(task="```python\nprint(6 * 7)\n```")
        told.append([(message.source, message.to_text()) for message in result.messages])
    assert told[0] == told[1]
    assert {"first", "second", "deep", "third"} <= {source for source, _ in told[0]}


def test_references_become_their_defaults_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"MODEL": "secret-model", "MESSAGES": "99", "OPENAI_API_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CODEROOM_WORKSPACE", "/somewhere/else")
    gallery = make_gallery([write(tmp_path, TEAM)])
    text = json.dumps(gallery)
    for unwanted in ("secret-model", "/somewhere/else", KEY, "${", "****", "api_key", str(Path.home()), str(ROOT)):
        assert unwanted not in text
    messages = [part for part in gallery["components"]["terminations"] if "max_messages" in part["config"]]
    assert [part["config"]["max_messages"] for part in messages] == [7]


@pytest.mark.parametrize(
    "key", ["sk-written-into-the-file", "**********", "${OPENAI_API_KEY:-sk-default}", "${MY_KEY}"]
)
def test_keys_are_left_out(tmp_path: Path, key: str) -> None:
    text = TEAM.replace("${OPENAI_API_KEY}", json.dumps(key))
    gallery = make_gallery([write(tmp_path, text)])
    model = gallery["components"]["teams"][-1]["config"]["participants"][0]["config"]["model_client"]
    assert model["config"] == {"model": "gpt-4o"}


def test_what_a_class_calls_a_secret_is_left_out(tmp_path: Path) -> None:
    condition = (
        "provider: autogen_agentchat.conditions.TextMentionTermination\n          config:\n            text: DONE"
    )
    locked = 'provider: tests.configs.test_gallery.Locked\n          config: {pin: "1234", word: DONE}'
    assert condition in TEAM
    file = write(tmp_path, TEAM.replace(condition, locked))
    with pytest.raises(ConfigError, match="not trusted"):
        make_gallery([file])
    added = make_gallery([file], trust=["tests"])["components"]["terminations"][-1]
    assert (added["config"], added["description"]) == ({"word": "DONE"}, "Ends the run at a word.")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("text: DONE", "text: ${STOP_WORD}", "needs a default"),
        ("text: DONE", f"text: {Path.home()}/done", "path of this machine"),
        ("model: ${MODEL:-gpt-4o}", "model: x\n            base_url: http://me:mine@host/v1", "password"),
        ("model: ${MODEL:-gpt-4o}", "model: x\n            base_url: https://mine@host/v1", "password or a key"),
        (
            "model: ${MODEL:-gpt-4o}",
            "model: x\n            base_url: https://h/v1?v=1&api-key=0123456789",
            "password or a key",
        ),
        ("text: DONE", "text: Use ghp_0123456789abcdefghijklmnop.", "looks like a key"),
        ("text: DONE", "text: Use sk-proj-0123456789abcdefghijklmnop.", "looks like a key"),
        ("max_turns: 5", "max_turn: 5", "unknown key"),
    ],
)
def test_what_cannot_leave_this_machine_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = write(tmp_path, TEAM.replace(old, new))
    with pytest.raises(ConfigError, match=words) as caught:
        make_gallery([file])
    assert all(problem.line for problem in caught.value.problems)


def test_what_an_alias_repeats_is_told_once(tmp_path: Path) -> None:
    text = (ROOT / "examples/team.yaml").read_text().replace("${CODEROOM_MODEL:-gpt-4o}", "${MY_MODEL}")
    with pytest.raises(ConfigError, match="needs a default") as caught:
        make_gallery([write(tmp_path, text)])
    places = [problem.path for problem in caught.value.problems]
    assert places == ["config.participants[0].config.model_client.config.model"]


def test_a_folder_of_this_machine_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "examples/team.yaml").read_text().replace("${CODEROOM_WORKSPACE:-coderoom-workspace}", str(tmp_path))
    with pytest.raises(ConfigError, match="path of this machine"):
        make_gallery([write(tmp_path, text)])


def test_what_servers_are_given_to_identify_themselves_is_left_out(tmp_path: Path) -> None:
    text = """provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: autogen_agentchat.agents.AssistantAgent
      config:
        name: helper
        description: Helps.
        reflect_on_tool_use: false
        tool_call_summary_format: "{result}"
        model_client: {provider: OpenAIChatCompletionClient, config: {model: gpt-4o}}
        workbench:
          - provider: autogen_ext.tools.mcp.McpWorkbench
            config:
              server_params:
                type: StdioServerParams
                command: serve
                env: {GITHUB_TOKEN: hidden-1, LANG: C, OTHER: "${SOME_PASSWORD}"}
          - provider: autogen_ext.tools.mcp.McpWorkbench
            config:
              server_params:
                type: SseServerParams
                url: http://localhost/sse
                headers: {Authorization: hidden-2, Accept: all, X-Token: hidden-3, subKey: hidden-4, Cookie: a=b}
"""
    benches = make_gallery([write(tmp_path, text)])["components"]["workbenches"]
    assert [bench["config"]["server_params"].get("env") for bench in benches] == [{"LANG": "C"}, None]
    assert [bench["config"]["server_params"].get("headers") for bench in benches] == [None, {"Accept": "all"}]
    for arguments in ("[--token, hidden-5]", "[-v, --api-key=hidden-5]"):
        given = text.replace("command: serve", f"command: serve\n                args: {arguments}")
        with pytest.raises(ConfigError, match="looks like a key"):
            make_gallery([write(tmp_path, given)])
    given = text.replace("command: serve", "command: serve\n                args: [--max-tokens, '5', --token, -v]")
    assert make_gallery([write(tmp_path, given)])


def test_a_team_that_studio_cannot_show_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="participants"):
        make_gallery([write(tmp_path, "provider: coderoom.teams.CodingTeam\nconfig: {participants: []}\n")])


def test_a_number_without_an_end_is_refused(tmp_path: Path) -> None:
    text = TEAM.replace(
        'MaxMessageTermination\n          config: {max_messages: "${MESSAGES:-7}"}',
        "TimeoutTermination\n          config: {timeout_seconds: .inf}",
    )
    with pytest.raises(RequestError, match="infinite number"):
        make_gallery([write(tmp_path, text)])


def test_the_folder_that_one_is_in_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="path of this machine"):
        make_gallery([write(tmp_path, TEAM.replace("text: DONE", f"text: Look into {tmp_path}!"))])


def test_a_secret_in_the_midst_of_a_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", KEY)
    file = write(tmp_path, TEAM.replace("You write code.", f"You write code. Use {KEY}."))
    with pytest.raises(RequestError, match="SOME_TOKEN") as caught:
        make_gallery([file])
    assert KEY not in str(caught.value)


def test_the_command_prints_or_writes(tmp_path: Path) -> None:
    printed = coderoom("gallery", cwd=tmp_path, env={"OPENAI_API_KEY": KEY})
    assert (printed.returncode, printed.stderr) == (0, "")
    write(tmp_path, TEAM, "pair.yaml")
    done = coderoom("gallery", "--out", "g.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "g.json").read_text()) == json.loads(printed.stdout)
    told = json.loads(done.stdout)
    assert (told["succeeded"], told["file"], told["components"]["teams"]) == (True, "g.json", len(shipped_teams()))
    again = coderoom("gallery", "--team", "pair.yaml", "--out", "g.json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "pair" in labels(json.loads((tmp_path / "g.json").read_text()), "teams")


def test_the_command_keeps_what_is_not_its_own(tmp_path: Path) -> None:
    file = tmp_path / "g.json"
    file.write_text('{"id": "mine"}')
    done = coderoom("gallery", "--out", "g.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert file.read_text() == '{"id": "mine"}'
    assert coderoom("gallery", "--out", "g.json", "--force", cwd=tmp_path).returncode == 0
    assert json.loads(file.read_text())["id"] == "coderoom"
    assert os.listdir(tmp_path) == ["g.json"]  # noqa: PTH208
