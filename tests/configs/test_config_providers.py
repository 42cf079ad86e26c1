"""Which classes a file may name, and which kind of component belongs where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coderoom.configs import check_team, load_team
from coderoom.errors import ConfigError, MissingDependencyError
from tests.configs.config_files import ENV, TEAM, changed, found, one, write

AGENT = "config.participants[0]"


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (
            "autogen_agentchat.agents.AsistantAgent",
            "there is no such provider: 'autogen_agentchat.agents.AsistantAgent'; "
            "did you mean 'autogen_agentchat.agents.AssistantAgent'?",
        ),
        (
            "autogen_agentchat.agent.AssistantAgent",
            "there is no such provider: 'autogen_agentchat.agent.AssistantAgent'; "
            "did you mean 'autogen_agentchat.agents.AssistantAgent'?",
        ),
        ("autogen_nothing.Agent", "there is no such provider: 'autogen_nothing.Agent'"),
        ("coderoom.nothing.Agent", "there is no such provider: 'coderoom.nothing.Agent'"),
        ("AssistantAgent", "the provider 'AssistantAgent' is not the dotted name of a class"),
        ("autogen_agentchat..Agent", "is not the dotted name of a class"),
        ("autogen_agentchat.agents.", "is not the dotted name of a class"),
        ("autogen_agentchat.base.Response", "is not a component class"),
        ("autogen_agentchat.agents._assistant_agent.json", "is not a component class"),
        ("autogen_agentchat.base.ChatAgent", "is not a component class"),
        ("coderoom.configs.building.InjectedModel", "is abstract"),
    ],
)
def test_unknown_provider(tmp_path: Path, provider: str, message: str) -> None:
    path, what = one(tmp_path, "autogen_agentchat.agents.AssistantAgent", provider)
    assert path == f"{AGENT}.provider"
    assert message in what


def test_the_class_that_may_be_meant_has_its_config_checked(tmp_path: Path) -> None:
    text = changed(TEAM, "autogen_agentchat.agents.AssistantAgent", "coderoom.agents.CodeAktAgent")
    (_, first, message), *others = found(write(tmp_path, text))
    # `CodeActAgentConfig`, which is nearer than the others, is no component.
    near = (
        "'coderoom.agents.CodeActAgent' or 'coderoom.agents.CodeExecutorAgent' or 'coderoom.agents.CodeGeneratorAgent'"
    )
    assert f"did you mean {near}?" in message
    assert first == f"{AGENT}.provider"
    assert f"{AGENT}.config" in str(others)


def test_short_names_of_autogen(tmp_path: Path) -> None:
    _, message = one(tmp_path, "OpenAIChatCompletionClient", "OpenAIChatCompletionClint")
    assert "did you mean 'OpenAIChatCompletionClient'?" in message


def test_unknown_class_does_not_hide_what_is_inside(tmp_path: Path) -> None:
    text = changed(TEAM, "teams.RoundRobinGroupChat", "teams.RoundRobin")
    text = changed(text, "text: DONE", "txt: DONE")
    text = changed(text, "autogen_agentchat.agents.AssistantAgent", "acme.Agent")
    assert [path for _, path, _ in found(write(tmp_path, text))] == [
        "provider",
        f"{AGENT}.provider",
        "config.termination_condition.config.conditions[1].config.txt",
    ]


def make_package(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> None:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


OWN_AGENT = """\
from autogen_agentchat.agents import AssistantAgent
class Mine(AssistantAgent):
    component_provider_override = "{name}.Mine"
"""


def test_f9_untrusted_providers_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_package(tmp_path, monkeypatch, "acme_untrusted", "raise AssertionError('imported')")
    path, message = one(tmp_path, "autogen_agentchat.agents.AssistantAgent", "acme_untrusted.Mine")
    assert path == f"{AGENT}.provider"
    assert "--trust acme_untrusted" in message
    assert "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES=acme_untrusted" in message
    assert "acme_untrusted" not in sys.modules
    with pytest.raises(ConfigError, match="not trusted"):
        load_team(tmp_path / "team.yaml", env=ENV)
    assert "acme_untrusted" not in sys.modules


def test_f9_untrusted_provider_where_no_schema_looks(tmp_path: Path) -> None:
    new = "model: x\n            default_headers: {x: {provider: os.path.Evil, config: {}}}"
    problems = found(write(tmp_path, changed(TEAM, "model: ${MODEL:-gpt-4o}", new)))
    assert any("namespace that is not trusted" in message for _, _, message in problems)


def test_f9_trusted_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_package(tmp_path, monkeypatch, "acme_trusted", OWN_AGENT.format(name="acme_trusted"))
    file = write(tmp_path, changed(TEAM, "autogen_agentchat.agents.AssistantAgent", "acme_trusted.Mine"))
    assert found(file, trust=("acme_trust", "acme_trusted.deeper")) != []
    assert found(file, trust=("acme_trusted",)) == []
    assert found(file, env={**ENV, "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES": "other, acme_trusted"}) == []
    assert check_team(file, trust="acme_trusted", env=ENV) == []
    assert load_team(file, trust=["acme_trusted.Mine"], env=ENV).name == "RoundRobinGroupChat"


def test_package_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_package(tmp_path, monkeypatch, "acme_broken", "1 / 0")
    file = write(tmp_path, changed(TEAM, "autogen_agentchat.agents.AssistantAgent", "acme_broken.Mine"))
    ((_, _, message),) = found(file, trust=("acme_broken",))
    assert message == "acme_broken.Mine cannot be imported: ZeroDivisionError: division by zero"


def test_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ollama", None)
    monkeypatch.delitem(sys.modules, "autogen_ext.models.ollama", raising=False)
    file = write(tmp_path, changed(TEAM, "OpenAIChatCompletionClient", "OllamaChatCompletionClient"))
    problems = found(file)
    assert any("pip install 'coderoom[ollama]'" in message for _, _, message in problems)
    with pytest.raises(MissingDependencyError, match=r"coderoom\[ollama\]"):
        load_team(file, env=ENV)


def test_wrong_kind(tmp_path: Path) -> None:
    path, message = one(
        tmp_path, "provider: OpenAIChatCompletionClient\n", "provider: autogen_core.models.UserMessage\n"
    )
    assert path == f"{AGENT}.config.model_client.provider"
    assert "is not a component class" in message
    text = """\
provider: autogen_agentchat.agents.UserProxyAgent
config:
  name: user
  description: a person
"""
    assert found(write(tmp_path, text)) == [
        (
            1,
            "provider",
            "expected a team at the top of a team file, and UserProxyAgent is an agent; list it under 'participants' "
            "of a 'coderoom.teams.CodingTeam'",
        )
    ]
    agent = "{provider: autogen_agentchat.agents.UserProxyAgent, config: {name: u, description: d}}"
    stop = "{provider: autogen_agentchat.conditions.MaxMessageTermination, config: {max_messages: 1}}"
    text = f"""\
provider: autogen_agentchat.teams.SelectorGroupChat
config:
  participants:
    - {stop}
  model_client:
    {agent}
  termination_condition:
    {agent[:-1]}}}
  model_context: {stop}
  selector_prompt: x
  allow_repeated_speaker: false
"""
    assert [(line, path, message.partition(",")[0]) for line, path, message in found(write(tmp_path, text))] == [
        (4, "config.participants[0].provider", "expected an agent or a team here"),
        (6, "config.model_client.provider", "expected a model client here"),
        (8, "config.termination_condition.provider", "expected a termination condition here"),
        (9, "config.model_context.provider", "expected a model context here"),
    ]


def test_no_component_at_all(tmp_path: Path) -> None:
    text = changed(TEAM, "  max_turns: 5", "  max_turns: 5\n  x-nothing: 1")
    text = text[: text.index("  termination_condition")] + "  termination_condition: soon\n"
    ((_, path, message),) = found(write(tmp_path, text))
    assert path == "config.termination_condition"
    assert message == "expected a termination condition (a mapping with 'provider' and 'config'), got 'soon' (a string)"
