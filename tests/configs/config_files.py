"""Team files for the tests, and short ways to make and check them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coderoom.configs import check_team

ENV = {"OPENAI_API_KEY": "sk-from-the-environment"}

TEAM = """\
provider: autogen_agentchat.teams.RoundRobinGroupChat
component_type: team
description: Two agents that talk.
config:
  participants:
    - provider: autogen_agentchat.agents.AssistantAgent
      component_type: agent
      config:
        name: coder
        description: Writes code.
        system_message: |
          You write code.

            - short
            - tested
        reflect_on_tool_use: false
        tool_call_summary_format: "{result}"
        model_client:
          provider: OpenAIChatCompletionClient
          config:
            model: ${MODEL:-gpt-4o}
            api_key: ${OPENAI_API_KEY}
  termination_condition:
    provider: autogen_agentchat.base.OrTerminationCondition
    config:
      conditions:
        - provider: autogen_agentchat.conditions.MaxMessageTermination
          config: {max_messages: "${MESSAGES:-7}"}
        - provider: autogen_agentchat.conditions.TextMentionTermination
          config:
            text: DONE
  max_turns: 5
"""

REPLAY = """\
provider: coderoom.configs.ReplayModel
config:
  replies: [one, two]
"""


def write(folder: Path, text: str | bytes, name: str = "team.yaml") -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def found(
    file: Path, *, env: Mapping[str, str] | None = None, trust: tuple[str, ...] = (), model_replaced: bool = False
) -> list[tuple[int | None, str, str]]:
    """Give the problems of a file as line, path and message, each of them on one line and under the file's name."""
    problems = check_team(file, env=ENV if env is None else env, trust=trust, model_replaced=model_replaced)
    for problem in problems:
        assert problem.file == str(file)
        assert len(str(problem).splitlines()) == 1
        assert "Traceback" not in str(problem)
    assert [one.line or 0 for one in problems] == sorted(one.line or 0 for one in problems)
    return [(problem.line, problem.path, problem.message) for problem in problems]


def line_of(text: str, part: str) -> int:
    """Give the line of the only place where a text has a part."""
    assert text.count(part) == 1, part
    return text[: text.index(part)].count("\n") + 1


def changed(text: str, old: str, new: str) -> str:
    """Replace the only place where a text has a part."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


def one(tmp_path: Path, old: str, new: str, *, at: str | None = None, name: str = "team.yaml") -> tuple[str, str]:
    """Change the good team in one place; give path and message of the only problem, whose line is checked."""
    text = changed(TEAM, old, new)
    problems = found(write(tmp_path, text, name))
    assert len(problems) == 1, problems
    line, path, message = problems[0]
    assert line == line_of(text, at or new)
    return path, message
