"""Teams whose code is held to tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from autogen_agentchat.messages import TextMessage

from coderoom import dump_team, load_team
from coderoom.agents import JudgeAgent
from coderoom.agents import metadata as keys
from coderoom.errors import RequestError
from coderoom.teams import CodingTeam

TESTS = """\
from solution import twice

def test_small():
    assert twice(2) == 4

def test_zero():
    assert twice(0) == 0
"""
WRONG = "```python\ndef twice(n):\n    return n + 2\n```"
RIGHT = "```python\ndef twice(n):\n    return 2 * n\n```"


def team_of(folder: Path, tests: str, replies: list[str], *, judge: bool) -> CodingTeam:
    """A coder that is held to tests by a condition, or by a judge."""
    model = {"provider": "coderoom.configs.ReplayModel", "config": {"replies": replies}}
    coder = {
        "provider": "autogen_agentchat.agents.AssistantAgent",
        "config": {"name": "coder", "model_client": model},
    }
    agent = {"provider": "coderoom.agents.JudgeAgent", "config": {"name": "judge", "tests": tests}}
    passing = {"provider": "coderoom.teams.TestsPass", "config": {"tests": tests}}
    approved = {"provider": "coderoom.teams.ReviewApproved", "config": {}}
    config = {
        "participants": [coder, agent] if judge else [coder],
        "termination_condition": approved if judge else passing,
        "max_turns": 6,
    }
    file = folder / "team.json"
    file.write_text(json.dumps({"provider": "coderoom.teams.CodingTeam", "config": config}))
    team = load_team(file)
    (folder / "dumped.yaml").write_text(dump_team(team))
    again = load_team(folder / "dumped.yaml")
    assert dump_team(again) == dump_team(team)
    assert isinstance(again, CodingTeam)
    return again


@pytest.mark.slow
async def test_the_judge_says_what_has_failed_until_all_tests_pass(tmp_path: Path) -> None:
    (tmp_path / "test_twice.py").write_text(TESTS.replace("4", "FOUR") + "from values import FOUR\n")
    (tmp_path / "values.py").write_text("FOUR = 4")
    (tmp_path / "solution.py").write_text("twice = None")  # It is no part of the tests.
    team = team_of(tmp_path, str(tmp_path / "test_twice.py"), [WRONG, "Done.", RIGHT], judge=True)
    result = await team.run(task="Go.")
    said = [message for message in result.messages if isinstance(message, TextMessage) and message.source == "judge"]
    assert [message.metadata[keys.APPROVED] for message in said] == ["false", "false", "true"]
    for message in said[:2]:  # Words without code change nothing.
        assert "1 of 2 tests passed" in message.content
        assert "test_zero: failed: " in message.content
        assert "test_small" not in message.content
    assert result.stop_reason == "judge approved."


@pytest.mark.slow
async def test_a_team_ends_when_tests_pass(tmp_path: Path) -> None:
    result = await team_of(tmp_path, TESTS, ["Hello.", WRONG, RIGHT, RIGHT], judge=False).run(task="Go.")
    assert [message.source for message in result.messages] == ["user", "coder", "coder", "coder"]
    assert result.stop_reason == "2 of 2 tests passed."


@pytest.mark.parametrize("tests", ["", "no tests", "missing.py", "missing.json"])
def test_tests_that_cannot_be_read_are_refused(tests: str) -> None:
    with pytest.raises(RequestError, match=r"tests|cannot be read"):
        JudgeAgent("judge", tests)
