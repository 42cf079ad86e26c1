"""Writing teams as files: nothing is lost that the file said, and no secret is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, Component
from autogen_core.tools import BaseTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, SecretStr
from ruamel.yaml import YAML

from coderoom.configs import ReplayModel, dump_team, load_team
from coderoom.errors import RequestError
from tests.configs.config_files import ENV, TEAM, changed, write


def made_in_python(**arguments: Any) -> RoundRobinGroupChat:
    arguments.setdefault("model", "gpt-4o")
    client = OpenAIChatCompletionClient(**arguments)
    agent = AssistantAgent("coder", client, system_message="Say ${HOME} in one line.\n\nThen stop.")
    stop = MaxMessageTermination(3) | TextMentionTermination("yes") & TextMentionTermination("1e3")
    return RoundRobinGroupChat([agent], termination_condition=stop)


def content(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_references_are_written_back(tmp_path: Path) -> None:
    text = dump_team(load_team(write(tmp_path, TEAM), env={**ENV, "MESSAGES": "9", "MODEL": "gpt-4o-mini"}))
    assert "            model: ${MODEL:-gpt-4o}\n            api_key: ${OPENAI_API_KEY}\n" in text
    assert "            max_messages: ${MESSAGES:-7}\n" in text
    assert ENV["OPENAI_API_KEY"] not in text
    assert "gpt-4o-mini" not in text


@pytest.mark.parametrize("name", ["again.yaml", "again.json"])
def test_dump_load_dump_is_stable(tmp_path: Path, name: str) -> None:
    once = dump_team(load_team(write(tmp_path, TEAM), env=ENV), tmp_path / name)
    twice = dump_team(load_team(tmp_path / name, env=ENV), tmp_path / name)
    assert once == twice == (tmp_path / name).read_text()
    if name.endswith("json"):
        assert json.loads(once)["config"]["max_turns"] == 5


def test_team_made_in_python(tmp_path: Path) -> None:
    once = dump_team(made_in_python(api_key="sk-literal"), tmp_path / "team.yaml")
    assert "        system_message: |-\n          Say $${HOME} in one line.\n\n          Then stop.\n" in once
    assert "text: 'yes'" not in once  # in YAML 1.2 that is a text anyway
    assert "sk-literal" not in once
    assert "api_key" not in once
    assert ": null" not in once
    loaded = load_team(tmp_path / "team.yaml", OpenAIChatCompletionClient(model="gpt-4o", api_key="sk-x"))
    assert dump_team(loaded) == once


def test_f2_literal_key_is_left_out(tmp_path: Path) -> None:
    file = write(tmp_path, changed(TEAM, "api_key: ${OPENAI_API_KEY}", "api_key: sk-literal"))
    for name in ("out.yaml", "out.json"):
        text = dump_team(load_team(file), tmp_path / name)
        assert "sk-literal" not in text
        assert "***" not in text
        assert "api_key" not in text


def test_f2_reference_to_a_key_is_written_back_and_loads_again(tmp_path: Path) -> None:
    text = dump_team(load_team(write(tmp_path, TEAM), env=ENV), tmp_path / "out.yaml")
    assert "***" not in text
    again = load_team(tmp_path / "out.yaml", env={"OPENAI_API_KEY": "sk-second"})
    config = again.dump_component().config["participants"][0]["config"]["model_client"]["config"]
    assert config["api_key"].get_secret_value() == "sk-second"


def test_replies_that_look_like_masks_are_no_matter(tmp_path: Path) -> None:
    team = RoundRobinGroupChat([AssistantAgent("a", ReplayChatCompletionClient(["one", "two ${x}", "********** "]))])
    text = dump_team(team, tmp_path / "team.yaml")
    assert dump_team(load_team(tmp_path / "team.yaml")) == text
    assert "- two $${x}" in text


class LookConfig(BaseModel):
    name: str
    url: str
    key: SecretStr


class Look(BaseTool[LookConfig, LookConfig], Component[LookConfig]):
    """A tool that can be dumped."""

    component_provider_override = f"{__name__}.Look"
    component_config_schema = LookConfig

    def __init__(self, config: LookConfig) -> None:
        super().__init__(LookConfig, LookConfig, config.name, "Looks.")
        self._config = config

    async def run(self, args: LookConfig, cancellation_token: CancellationToken) -> LookConfig:
        return args

    def _to_config(self) -> LookConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: LookConfig) -> Self:
        return cls(config)


LOOK = f"""\
        tools:
          - provider: {__name__}.Look
            config: {{name: "${{TOOL_NAME}}", url: "http://x/?${{SERVICE_TOKEN}}", key: "${{SERVICE_TOKEN}}"}}
"""
TOOL_ENV = {**ENV, "TOOL_NAME": "look", "SERVICE_TOKEN": "tok-123456"}


def test_references_in_parts_that_autogen_moves(tmp_path: Path) -> None:
    """It puts an agent's tools into a workbench."""
    text = changed(TEAM, "        reflect_on", LOOK + "        reflect_on")
    dumped = dump_team(load_team(write(tmp_path, text), env=TOOL_ENV, trust=["tests"]), tmp_path / "out.yaml")
    tool = content(dumped)["config"]["participants"][0]["config"]["workbench"][0]["config"]["tools"][0]["config"]
    assert tool == {"name": "${TOOL_NAME}", "url": "http://x/?${SERVICE_TOKEN}", "key": "${SERVICE_TOKEN}"}
    assert dump_team(load_team(tmp_path / "out.yaml", env=TOOL_ENV, trust=["tests"])) == dumped


def test_part_that_autogen_cannot_dump(tmp_path: Path) -> None:
    """It reads a function's source from a file, and a function that was loaded has none."""
    tool = """\
        tools:
          - provider: autogen_core.tools.FunctionTool
            config:
              source_code: |
                def look() -> str:
                    return "$${x}"
              name: ${TOOL_NAME}
              description: look
              global_imports: []
              has_cancellation_support: false
"""
    text = changed(TEAM, "        reflect_on", tool + "        reflect_on")
    with pytest.warns(UserWarning, match="run on this machine"):
        team = load_team(write(tmp_path, text), env=TOOL_ENV)
    assert content(dump_team(team)) == content(text)


def test_a_function_that_stands_there_as_its_source(tmp_path: Path) -> None:
    text = """\
provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: coderoom.agents.CodeActAgent
      config:
        name: seller
        tools:
          - |
            from typing import Annotated
            from coderoom.sandbox import Effect

            async def order(item: str) -> Annotated[str, Effect("write")]:
                \"\"\"Order an item.\"\"\"
                return f"ordered $${item}"
        call_approval: {provider: coderoom.approval.NeverApprove, config: {}}
"""
    with pytest.warns(UserWarning, match="run on this machine"):
        team = load_team(write(tmp_path, text), ReplayModel(["~~~python\nawait order('tea')\n~~~", "No."]), env=ENV)
    dumped = content(dump_team(team))["config"]["participants"][0]["config"]["tools"]
    assert dumped == content(text)["config"]["participants"][0]["config"]["tools"]


def test_labels_and_descriptions_of_the_file_stay(tmp_path: Path) -> None:
    text = changed(TEAM, "description: Two agents that talk.", "description: About $${x}\nlabel: ${LABEL:-my team}")
    dumped = dump_team(load_team(write(tmp_path, text), env=ENV))
    assert "\ndescription: About $${x}\nlabel: ${LABEL:-my team}\n" in dumped
    assert "\n            label: MaxMessageTermination\n" in dumped or "label: MaxMessageTermination" in dumped


def test_writing_a_file(tmp_path: Path) -> None:
    file = write(tmp_path, "old", "out.yaml")
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    text = dump_team(made_in_python(api_key="k"), str(link))
    assert link.is_symlink()
    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.yaml", "out.yaml"]


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    team = made_in_python(api_key="k")
    with pytest.raises(RequestError, match="cannot be written: No such file or directory"):
        dump_team(team, tmp_path / "nowhere" / "out.yaml")
    with pytest.raises(RequestError, match="is not a file that can be replaced"):
        dump_team(team, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    team = made_in_python(api_key="k", temperature=float("nan"))
    assert ".nan" in dump_team(team)
    with pytest.raises(RequestError, match="the team cannot be written"):
        dump_team(team, tmp_path / "out.json")
