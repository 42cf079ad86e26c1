"""A team of three agents and a selector over HTTP, and a model that answers by what is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import SelectorGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

from coderoom.agents import CodeActAgent, ReviewerAgent
from coderoom.configs import dump_team
from coderoom.teams import ReviewApproved
from tests.support.openai_server import Reply, Request

CODE = "```python\nprint(6 * 7)\n```"
VERDICT = json.dumps({"approved": True, "issues": [], "summary": "It is 42."})


def respond(request: Request) -> str | Reply:
    """Answers by what is asked, so that the order does not matter here either."""
    system = str(request.messages[0]["content"])
    text = json.dumps(request.messages)
    if "select the next" in text and "Read the above conversation" in text:
        return "writer" if "Planned" not in text else "reviewer" if "It is 42" in text else "actor"
    if "You plan" in system:
        return "Planned: multiply."
    if "response_format" in request.body:
        return VERDICT
    return "It is 42." if "exit code 0" in text or "42\\n" in text or "print(6" in text else CODE


def selector(folder: Path, base_url: str) -> Path:
    def model() -> Any:
        return OpenAIChatCompletionClient(
            model="gpt-4o-2024-08-06", base_url=base_url, api_key="sk-test-0123456789abcdef"
        )

    team = SelectorGroupChat(
        [
            AssistantAgent("writer", model(), system_message="You plan.", model_client_stream=True),
            CodeActAgent("actor", model(), model_client_stream=True),
            ReviewerAgent("reviewer", model()),
        ],
        model_client=model(),
        termination_condition=ReviewApproved(),
        max_turns=5,
    )
    file = folder / "team.yaml"
    dump_team(team, file)
    return file
