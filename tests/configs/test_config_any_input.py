"""Whatever a file holds: problems, or a team, and nothing else."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.configs import check_team, load_team
from coderoom.errors import ConfigError, MissingDependencyError
from tests.configs.config_files import ENV, TEAM

PIECES = st.one_of(
    st.sampled_from(["provider", "config", ": ", ":", "\n", "\n  ", "\n    - ", "- ", "[", "]", "{", "}", ", ", "x-a"]),
    st.sampled_from(["&a ", "*a", "<<: *a", "!!str ", "!x ", "| \n", ">-\n", '"', "'", "#", "---\n", "...\n", "? "]),
    st.sampled_from(["%YAML 1.1\n", "\t", "${A}", "${", "$${", "1", "~", "\x00", "\u2028", "\ufeff", "@"]),
    st.sampled_from(["autogen_agentchat.teams.RoundRobinGroupChat", "participants"]),
)
WORDS = st.one_of(
    st.sampled_from(["", "name", "coder", "5", "${OPENAI_API_KEY}", "${NOPE}", "x-thing", "component_type", "team"]),
    st.sampled_from(
        ["OpenAIChatCompletionClient", "autogen_agentchat.agents.AssistantAgent", "autogen_agentchat.base"]
    ),
    st.sampled_from(["autogen_agentchat.conditions.MaxMessageTermination", "autogen_agentchat.base.OrTermination"]),
)
KEYS = st.one_of(
    st.sampled_from(["provider", "config", "component_type", "component_version", "label", "participants", "x-a"]),
    st.sampled_from(["model_client", "conditions", "termination_condition", "max_turns", "name", "model", "api_key"]),
    st.sampled_from(["model_info", "handoffs", "max_messages", "tools", "workbench", "memory", "stop", "metadata"]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


def check(data: bytes, name: str = "team.yaml") -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        problems = check_team(file, env=ENV)
        assert all(len(str(problem).splitlines()) == 1 and problem.message for problem in problems)
        try:
            load_team(file, env=ENV)
            told = []
        except MissingDependencyError:
            return
        except ConfigError as error:
            told = list(error.problems)
        assert told == problems or (told and not problems)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check(data)
    check(data, "team.json")


@given(st.lists(PIECES, max_size=25).map("".join))
def test_any_text_like_yaml(text: str) -> None:
    check(text.encode())


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    check(text.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.sampled_from(["team.yaml", "team.json"]))
@settings(deadline=None)
def test_any_document_like_a_team(data: dict[str, Any], name: str) -> None:
    data = {"provider": "autogen_agentchat.teams.RoundRobinGroupChat", **data}
    check(json.dumps(data).encode(), name)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None)
def test_good_team_with_any_damage(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(TEAM)))
    end = data.draw(st.integers(start, min(len(TEAM), start + 30)))
    text = TEAM[:start] + data.draw(st.lists(PIECES | WORDS, max_size=3).map("".join)) + TEAM[end:]
    check(text.encode())
