"""What a readable file says wrongly: every mistake at once, each with its line and its path."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from coderoom.configs import check_team, load_team, team_warnings
from coderoom.errors import ConfigError
from tests.configs.config_files import TEAM, changed, found, one, write
from tests.support.commands import ROOT

MAX_MESSAGES = "{provider: autogen_agentchat.conditions.MaxMessageTermination, config: {max_messages: 3}}"
AGENT = "config.participants[0]"


def test_good_team(tmp_path: Path) -> None:
    assert found(write(tmp_path, TEAM)) == []


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        (
            "  max_turns:",
            "  max_turn:",
            "config.max_turn",
            "unknown key 'max_turn'; did you mean 'max_turns'?",
        ),
        (
            "component_type: team",
            "component_typ: team",
            "component_typ",
            "unknown key 'component_typ'; did you mean 'component_type'?",
        ),
        (
            "        name: coder",
            "        nam: coder",
            f"{AGENT}.config.nam",
            "unknown key 'nam'; did you mean 'name'?",
        ),
        (
            "            model: ${MODEL:-gpt-4o}",
            "            model: x\n            frobnicate: 1",
            f"{AGENT}.config.model_client.config.frobnicate",
            "unknown key 'frobnicate'",
        ),
    ],
)
def test_f1_unknown_keys_are_told(tmp_path: Path, old: str, new: str, path: str, message: str) -> None:
    assert one(tmp_path, old, new, at=path.rpartition(".")[2] + ":") == (path, message)


def test_f1_unknown_key_in_a_nested_model(tmp_path: Path) -> None:
    new = "name: coder\n        handoffs: [{target: x, mesage: y}]"
    path, message = one(tmp_path, "name: coder", new, at="mesage")
    assert path == f"{AGENT}.config.handoffs[0].mesage"
    assert message == "unknown key 'mesage'; did you mean 'message'?"


def test_key_of_the_config_beside_it(tmp_path: Path) -> None:
    new = "description: Two agents that talk.\nmax_turns: 3"
    path, message = one(tmp_path, "description: Two agents that talk.", new, at="max_turns: 3")
    assert (path, message) == ("max_turns", "unknown key 'max_turns'; it belongs into 'config'")


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        (
            "max_turns: 5",
            "max_turns: many",
            "config.max_turns",
            "expected an integer, got 'many' (a string)",
        ),
        ("max_turns: 5", "max_turns: [1]", "config.max_turns", "expected an integer, got a list of 1"),
        ("max_turns: 5", "max_turns: 1.5", "config.max_turns", "expected an integer, got 1.5 (a number)"),
        (
            "reflect_on_tool_use: false",
            "reflect_on_tool_use: perhaps",
            f"{AGENT}.config.reflect_on_tool_use",
            "expected true or false, got 'perhaps' (a string)",
        ),
        (
            "reflect_on_tool_use: false",
            "reflect_on_tool_use: false\n        max_tool_iterations: 0",
            f"{AGENT}.config.max_tool_iterations",
            "expected at least 1, got 0 (an integer)",
        ),
        ("text: DONE", "text: {a: 1}", "config.termination_condition.config.conditions[1].config.text", "a text"),
        ("description: Writes code.", "description: true", f"{AGENT}.config.description", "got true (a boolean)"),
        ("description: Writes code.", "description: ~", f"{AGENT}.config.description", "got nothing (null)"),
        (
            "model: ${MODEL:-gpt-4o}",
            "model: x\n            reasoning_effort: lo",
            f"{AGENT}.config.model_client.config.reasoning_effort",
            "expected 'minimal', 'low', 'medium' or 'high', got 'lo' (a string); did you mean 'low'?",
        ),
        (
            "model: ${MODEL:-gpt-4o}",
            "model: x\n            stop: 5",
            f"{AGENT}.config.model_client.config.stop",
            "expected a text or a list, got 5 (an integer)",
        ),
        ("description: Two agents that talk.", "description: 5", "description", "expected a text, got 5 (an integer)"),
        ("component_type: team", "version: one", "version", "expected an integer, got 'one' (a string)"),
    ],
)
def test_wrong_types(tmp_path: Path, old: str, new: str, path: str, message: str) -> None:
    at = new.rpartition("\n")[2].strip()
    where, what = one(tmp_path, old, new, at=at)
    assert where == path
    assert message in what


def test_config_that_is_no_mapping(tmp_path: Path) -> None:
    text = "provider: autogen_agentchat.teams.Swarm\nconfig: 5\n"
    assert (2, "config", "expected a mapping, got 5 (an integer)") in found(write(tmp_path, text))


def test_left_out_config_is_empty(tmp_path: Path) -> None:
    text = "provider: autogen_agentchat.teams.Swarm\n"
    assert found(write(tmp_path, text)) == [(1, "config", "the key 'participants' is missing")]
    assert found(write(tmp_path, text + "config:\n")) == [(2, "config", "the key 'participants' is missing")]


def test_missing_key_has_the_line_of_its_mapping(tmp_path: Path) -> None:
    problems = found(write(tmp_path, changed(TEAM, "        name: coder\n", "")))
    assert problems == [(8, f"{AGENT}.config", "the key 'name' is missing")]


def test_missing_provider(tmp_path: Path) -> None:
    text = changed(TEAM, "provider: autogen_agentchat.teams.RoundRobinGroupChat\n", "")
    ((line, path, message),) = found(write(tmp_path, text))
    assert (line, path) == (1, "")
    assert "a team file is a mapping with the keys 'provider' and 'config'" in message
    text = changed(TEAM, "    - provider: autogen_agentchat.agents.AssistantAgent\n      comp", "    - comp")
    ((line, path, message),) = found(write(tmp_path, text))
    assert (line, path) == (6, AGENT)
    assert message == "the key 'provider' is missing, which names the class of this component"
    text = changed(TEAM, "provider: autogen_agentchat.base.OrTerm", "provder: autogen_agentchat.base.OrTerm")
    assert [message for _, _, message in found(write(tmp_path, text))] == [
        "unknown key 'provder'; did you mean 'provider'?"
    ]
    text = changed(TEAM, "provider: autogen_agentchat.base.OrTerminationCondition", "provider:")
    assert "the provider is empty" in found(write(tmp_path, text))[0][2]


def test_component_type(tmp_path: Path) -> None:
    path, message = one(tmp_path, "component_type: agent", "component_type: tool")
    assert path == f"{AGENT}.component_type"
    assert message == "expected 'agent', which is what AssistantAgent is, got 'tool' (a string)"


def test_f8_newer_component_version(tmp_path: Path) -> None:
    path, message = one(tmp_path, "component_type: agent", "component_version: 9")
    assert path == f"{AGENT}.component_version"
    assert message == "AssistantAgent is installed in version 2, and this config is of version 9"


def test_f8_older_component_version_that_nobody_reads(tmp_path: Path) -> None:
    path, message = one(tmp_path, "component_type: agent", "component_version: 1")
    assert path == f"{AGENT}.component_version"
    assert message == "AssistantAgent is installed in version 2 and reads no config of version 1"


def test_names_of_participants(tmp_path: Path) -> None:
    person = "    - {provider: autogen_agentchat.agents.UserProxyAgent, config: {name: %s, description: d}}\n"
    text = changed(TEAM, "  termination_condition", person % "coder" + person % "not-good" + "  termination_condition")
    assert [(path, message) for _, path, message in found(write(tmp_path, text))] == [
        ("config.participants[1].config.name", "two participants have the name 'coder'; each needs its own"),
        (
            "config.participants[2].config.name",
            "the name 'not-good' is not a valid identifier; use letters, digits and '_' only",
        ),
    ]
    text = "provider: autogen_agentchat.teams.RoundRobinGroupChat\nconfig:\n  participants: []\n"
    assert found(write(tmp_path, text)) == [(3, "config.participants", "a team needs at least one participant")]


def test_missing_variables_all_at_once(tmp_path: Path) -> None:
    text = changed(TEAM, "max_turns: 5", "max_turns: ${TURNS}")
    text = changed(text, "text: DONE", "text: ${A}-${B}-${A}")
    unset = "the environment variable {0!r} is not set; set it, or write ${{{0}:-default}}"
    assert found(write(tmp_path, text), env={}) == [
        (22, f"{AGENT}.config.model_client.config.api_key", unset.format("OPENAI_API_KEY")),
        (31, "config.termination_condition.config.conditions[1].config.text", unset.format("A")),
        (31, "config.termination_condition.config.conditions[1].config.text", unset.format("B")),
        (32, "config.max_turns", unset.format("TURNS")),
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("${never", "is never closed with '}'"),
        ("${not a name}", "does not name a variable"),
        ("${}", "does not name a variable"),
        ("${A:-{}}", "cannot hold a '{'"),
        ("${A:-${B}}", "cannot hold a '{'"),
    ],
)
def test_broken_references(tmp_path: Path, text: str, part: str) -> None:
    path, message = one(tmp_path, "text: DONE", f"text: '{text}'")
    assert path == "config.termination_condition.config.conditions[1].config.text"
    assert part in message


def test_secret_values_are_not_shown(tmp_path: Path) -> None:
    text = changed(TEAM, "max_turns: 5", "max_turns: ${OPENAI_API_KEY}")
    text = changed(text, "name: coder", "name: ${OPENAI_API_KEY}")
    text = changed(text, "provider: autogen_agentchat.base.OrT", "provider: ${OPENAI_API_KEY}.base.OrT")
    problems = found(write(tmp_path, text))
    assert len(problems) == 3
    assert (32, "config.max_turns", "expected an integer, got the value of '${OPENAI_API_KEY}'") in problems
    assert "sk-from" not in repr(problems)
    long = "sk-" + "0123456789" * 20
    problems = found(write(tmp_path, text), env={"OPENAI_API_KEY": long})
    assert "0123" not in repr(problems)


def test_anchor_keys_are_dropped_where_keys_are_known(tmp_path: Path) -> None:
    text = """\
x-unused: {api_key: "${NOWHERE}", provider: acme.Thing, config: {}}
provider: autogen_agentchat.teams.RoundRobinGroupChat
config:
  x-stop: &stop {provider: autogen_agentchat.conditions.MaxMessageTermination, config: {max_messages: "${NO}"}}
  participants:
    - provider: autogen_agentchat.agents.AssistantAgent
      x-note: nothing
      config:
        name: a
        description: b
        reflect_on_tool_use: false
        tool_call_summary_format: c
        model_client:
          provider: OpenAIChatCompletionClient
          config: {model: gpt-4o, api_key: "${OPENAI_API_KEY}", default_headers: {x-kept: "${GONE}"}}
"""
    assert [path for _, path, _ in found(write(tmp_path, text))] == [
        f"{AGENT}.config.model_client.config.default_headers.x-kept"
    ]


def test_mistake_in_an_anchor_is_told_once(tmp_path: Path) -> None:
    text = """\
provider: autogen_agentchat.base.OrTerminationCondition
config:
  conditions:
    - &stop
      provider: autogen_agentchat.conditions.MaxMessageTermination
      config:
        max_mesages: 5
    - *stop
"""
    assert [(line, path) for line, path, _ in found(write(tmp_path, text))][1:] == [
        (7, "config.conditions[0].config.max_mesages")
    ]


@pytest.mark.parametrize("name", ["team.yaml", "team.json"])
def test_thirty_mistakes_at_once(tmp_path: Path, name: str) -> None:
    participants = [
        f'{{"provider": "autogen_agentchat.agents.UserProxyAgent", "config": '
        f'{{"nme": "a{n}", "name": "a{n}", "description": {n}}}}}'
        for n in range(14)
    ]
    text = (
        '{"provider": "autogen_agentchat.teams.RoundRobinGroupChat", "labl": "x",\n"config": {"participants": [\n'
        + ",\n".join(participants)
        + '],\n"max_turns": "x"}}'
    )
    problems = found(write(tmp_path, text, name))
    assert len(problems) == 30
    assert problems[0][:2] == (1, "labl")
    assert problems[1][:2] == (3, "config.participants[0].config.nme")
    assert problems[2] == (3, "config.participants[0].config.description", "expected a text, got 0 (an integer)")
    assert problems[-1][:2] == (17, "config.max_turns")
    with pytest.raises(ConfigError) as caught:
        load_team(tmp_path / name)
    assert len(caught.value.problems) == 30
    assert len(str(caught.value).splitlines()) == 30


def test_thirty_mistakes_on_one_line(tmp_path: Path) -> None:
    text = (
        '{"provider": "autogen_agentchat.base.OrTerminationCondition", "config": {"conditions": ['
        + ", ".join(['{"provider": "acme.X"}'] * 30)
        + "]}}"
    )
    assert len(found(write(tmp_path, text, "team.json"))) == 31


def test_validator_that_raises_something_else(tmp_path: Path) -> None:
    new = "handoffs: [5]\n        max_tool_iterations: 0"
    text = changed(changed(TEAM, "name: coder", new), "description: Writes code.", "descripton: Writes code.")
    assert [(path, message.partition(":")[0]) for _, path, message in found(write(tmp_path, text))] == [
        (f"{AGENT}.config", "the key 'name' is missing"),
        (f"{AGENT}.config.handoffs", "the value was refused"),
        (f"{AGENT}.config.max_tool_iterations", "expected at least 1, got 0 (an integer)"),
        (f"{AGENT}.config.descripton", "unknown key 'descripton'; did you mean 'description'?"),
    ]


def test_replaced_models_are_not_looked_at(tmp_path: Path) -> None:
    text = changed(TEAM, "provider: OpenAIChatCompletionClient", "provider: acme.Model")
    assert len(found(write(tmp_path, text), env={})) == 2
    assert found(write(tmp_path, text), env={}, model_replaced=True) == []
    text = changed(TEAM, "        model_client:\n", "        model_client: gpt\n        x-model_client:\n")
    ((_, path, message),) = found(write(tmp_path, text), env={}, model_replaced=True)
    assert path == f"{AGENT}.config.model_client"
    assert "expected a model client" in message


def test_a_message_type_is_an_import_and_has_to_be_trusted(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        "provider: coderoom.teams.CodingTeam\n"
        "config:\n"
        "  participants:\n"
        "    - provider: coderoom.agents.CodeExecutorAgent\n"
        "      config:\n"
        "        name: runner\n"
        "        code_executor: {provider: coderoom.executors.LocalCodeExecutor, config: {}}\n"
        "  custom_message_types:\n"
        "    - antigravity.Message\n"
        "    - autogen_agentchat.messages.StructuredMessage[antigravity.Content]\n"
    )
    problems = check_team(path)
    assert [problem.line for problem in problems] == [9, 10]
    assert all("antigravity" in problem.message and "trust" in problem.message for problem in problems)
    assert check_team(path, trust=["antigravity"]) == []


@pytest.mark.parametrize("line", ["max_turns: 0", "max_turns: -1"])
def test_a_number_that_cannot_be_is_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"provider: coderoom.teams.CodingTeam\nconfig:\n  {line}\n  participants: []\n")
    assert any(problem.line == 3 for problem in check_team(path))


def test_a_version_of_thousands_of_digits_is_told(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    version = "0x" + "f" * 5000
    path.write_text(f"provider: coderoom.teams.CodingTeam\ncomponent_version: {version}\nconfig: {{}}\n")
    assert any(problem.line == 2 for problem in check_team(path))


def test_a_provider_does_not_run_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("provider: coderoom.__main__.X\nconfig: {}\n")
    assert check_team(path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("", "needs model_client_stream=True"),
        ("model_client_stream: true, check_types: true", "check_types cannot judge"),
    ],
)
def test_what_does_not_go_together_with_eager_is_told(tmp_path: Path, keys: str, words: str) -> None:
    path = tmp_path / "team.yaml"
    agent = f"{{provider: coderoom.agents.CodeActAgent, config: {{name: actor, eager: true, {keys}}}}}"
    path.write_text(f"provider: coderoom.teams.CodingTeam\nconfig:\n  participants:\n    - {agent}\n")
    [problem] = check_team(path)
    assert (problem.path, problem.line) == (f"{AGENT}.config", 4)
    assert words in problem.message


def test_every_key_of_a_component_is_in_the_table_of_the_docs() -> None:
    page = (ROOT / "docs" / "configs.md").read_text()
    for provider, keys in re.findall(r"^\| `(coderoom\.[\w.]+)`[^|]*\| (.*) \|$", page, re.MULTILINE):
        module, _, name = provider.rpartition(".")
        config = getattr(importlib.import_module(module), name).component_config_schema
        assert config.model_fields.keys() <= set(re.findall(r"`(\w+)`", keys)), provider


def test_names_that_nobody_has_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        "provider: coderoom.teams.CodingTeam\n"
        "config:\n"
        "  participants:\n"
        "    - {provider: coderoom.agents.CodeActAgent, config: {name: actor, handoffs: [user, revewer]}}\n"
        "    - {provider: coderoom.agents.ReviewerAgent, config: {name: reviewer, model_client: "
        "{provider: OpenAIChatCompletionClient, config: {model: gpt-4o}}}}\n"
        "  termination_condition:\n"
        "    provider: coderoom.teams.TextMentionTermination\n"
        "    config: {text: DONE, sources: [actor, somebody]}\n"
    )
    handoff, source = team_warnings(path)
    assert (handoff.line, source.line) == (4, 8)
    assert handoff.message.endswith("'revewer'; did you mean 'reviewer'?")
    assert source.message.endswith("'somebody'; the names are actor, reviewer")


@pytest.mark.parametrize("end", ["max_turns: 3", f"termination_condition: {MAX_MESSAGES}", ""])
def test_a_team_that_nothing_ends_is_warned_of(tmp_path: Path, end: str) -> None:
    path = tmp_path / "team.yaml"
    agent = "{provider: coderoom.agents.CodeActAgent, config: {name: actor}}"
    path.write_text(f"provider: coderoom.teams.CodingTeam\nconfig:\n  participants: [{agent}]\n  {end}\n")
    assert [each.line for each in team_warnings(path)] == ([] if end else [1])
