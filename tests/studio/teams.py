"""Teams for the playground, as data: shipped ones with recorded models, and small ones of all sorts."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

from coderoom.configs import make_gallery

__all__ = [
    "ACT",
    "CODING",
    "EXECUTOR",
    "REVIEWER",
    "ROUND",
    "agent",
    "openai",
    "part",
    "replay",
    "sandbox",
    "shipped",
    "team",
    "team_agent",
]

Json = dict[str, Any]

CODING = "coderoom.teams.CodingTeam"
ROUND = "autogen_agentchat.teams.RoundRobinGroupChat"
EXECUTOR = "coderoom.agents.CodeExecutorAgent"
ACT = "coderoom.agents.CodeActAgent"
REVIEWER = "coderoom.agents.ReviewerAgent"


def part(kind: str, provider: str, **config: Any) -> Json:
    return {"provider": provider, "component_type": kind, "version": 1, "config": config}


def team(provider: str, *participants: Json, turns: int | None = None, **config: Any) -> Json:
    made = part("team", provider, participants=list(participants), max_turns=turns or len(participants), **config)
    return {**made, "label": "a team", "description": "For a test."}


def team_agent(inner: Json) -> Json:
    return part("agent", "coderoom.teams.TeamAgent", team=inner)


def agent(provider: str, name: str, **config: Any) -> Json:
    return part("agent", provider, name=name, **config)


def replay(*replies: str | Json, **model_info: bool) -> Json:
    info = {"model_info": model_info} if model_info else {}
    return part("model", "coderoom.configs.ReplayModel", replies=list(replies), **info)


def openai(base_url: str) -> Json:
    config = {"model": "gpt-4o", "api_key": "none", "base_url": base_url, "max_retries": 0}
    return part("model", "autogen_ext.models.openai.OpenAIChatCompletionClient", **config)


def sandbox(folder: Path, **config: Any) -> Json:
    provider = "coderoom.executors.SandboxCodeExecutor"
    return part("code_executor", provider, work_dir=str(folder), timeout=60, **config)


@functools.cache
def _gallery() -> Json:
    return make_gallery()


def shipped_teams() -> list[Json]:
    return copy.deepcopy(list(_gallery()["components"]["teams"]))


def shipped(label: str, folder: Path, *models: Json) -> Json:
    """A shipped team that works in this folder, whose models are these."""
    found = next(team for team in shipped_teams() if team["label"] == label)
    left = list(models)
    for participant in found["config"]["participants"]:
        config = participant["config"].get("agent", participant)["config"]
        if "model_client" in config:
            config["model_client"] = left.pop(0)
        for place in (config, config.get("code_executor", {}).get("config", {})):
            if "work_dir" in place:
                place["work_dir"] = str(folder)
    assert left == []
    return found
