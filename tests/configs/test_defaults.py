"""Where AutoGen's class has a default, a config need not have the value, even if AutoGen's schema demands it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import coderoom
from coderoom.configs import check_team

MODEL = {"provider": "coderoom.configs.ReplayModel", "config": {"replies": ["Done."]}}
AGENT: dict[str, Any] = {
    "provider": "autogen_agentchat.agents.AssistantAgent",
    "config": {"name": "helper", "model_client": MODEL},
}


def team(**more: Any) -> dict[str, Any]:
    config = {"participants": [AGENT], "max_turns": 1, **more}
    return {"provider": "autogen_agentchat.teams.RoundRobinGroupChat", "config": config}


def write(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(json.dumps(data))
    return path


async def test_an_assistant_agent_needs_a_name_and_a_model(tmp_path: Path) -> None:
    path = write(tmp_path / "team.json", team())
    assert check_team(path) == []
    result = await coderoom.load_team(path).run(task="Go on.")
    assert result.messages[-1].to_text() == "Done."


def test_what_is_given_stays(tmp_path: Path) -> None:
    data = team()
    data["config"]["participants"] = [{**AGENT, "config": {**AGENT["config"], "description": "Mine."}}]
    dumped = coderoom.load_team(write(tmp_path / "team.json", data)).dump_component().model_dump(mode="json")
    assert dumped["config"]["participants"][0]["config"]["description"] == "Mine."


def test_what_has_no_default_is_still_missing(tmp_path: Path) -> None:
    agent = {"provider": AGENT["provider"], "config": {"name": "helper"}}
    [problem] = check_team(write(tmp_path / "team.json", team(participants=[agent])))
    assert "model_client" in str(problem)


def test_what_autogen_leaves_out_of_a_dump_is_filled_in_again(tmp_path: Path) -> None:
    condition = {
        "provider": "autogen_agentchat.conditions.TokenUsageTermination",
        "config": {"max_total_token": 100, "max_prompt_token": None, "max_completion_token": None},
    }
    loaded = coderoom.load_team(write(tmp_path / "a.json", team(termination_condition=condition)))
    first = loaded.dump_component().model_dump(mode="json", exclude_none=True)
    assert "max_prompt_token" not in first["config"]["termination_condition"]["config"]
    again = coderoom.load_team(write(tmp_path / "b.json", first)).dump_component()
    assert again.model_dump(mode="json", exclude_none=True) == first
