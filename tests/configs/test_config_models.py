"""From a short text to a model client."""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from autogen_core.models import UserMessage
from autogen_ext.models.openai import AzureOpenAIChatCompletionClient, OpenAIChatCompletionClient

from coderoom._util.autogen import agents_of, model_client_of
from coderoom.configs import (
    ReplayModel,
    default_model,
    dump_team,
    load_team,
    make_model,
    resolve_model,
    team_warnings,
)
from coderoom.errors import ConfigError, MissingDependencyError, RequestError
from coderoom.models.names import innermost_client
from tests.configs.config_files import ENV, TEAM, changed, found, write
from tests.support.commands import coderoom
from tests.support.openai_server import OpenAIServer


def config_of(client: Any) -> dict[str, Any]:
    config: dict[str, Any] = client.dump_component().config
    if "api_key" in config:
        config["api_key"] = config["api_key"].get_secret_value()
    return config


def test_openai() -> None:
    client = make_model("openai:gpt-4o", env={"OPENAI_API_KEY": "sk-1"})
    assert isinstance(client, OpenAIChatCompletionClient)
    assert config_of(client) == {"model": "gpt-4o", "api_key": "sk-1"}
    assert client.model_info["vision"] is True


def test_openai_model_that_autogen_does_not_know() -> None:
    client = make_model("openai:my-model:7b", env={"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://x/v1"})
    config = config_of(client)
    assert config["model"] == "my-model:7b"
    assert config["base_url"] == "http://x/v1"
    assert dict(client.model_info) == {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "structured_output": True,
        "family": "unknown",
        "multiple_system_messages": True,
    }


def test_openai_key() -> None:
    with pytest.raises(MissingDependencyError, match=r"set OPENAI_API_KEY.* or use --model"):
        make_model("openai:gpt-4o", env={})
    client = make_model("openai:gpt-4o", env={"OPENAI_BASE_URL": "http://localhost:1/v1"})
    assert config_of(client)["base_url"] == "http://localhost:1/v1"


def test_openai_key_does_not_go_to_another_host() -> None:
    with pytest.raises(MissingDependencyError, match="set GEMINI_API_KEY"):
        make_model("openai:gemini-1.5-flash", env={"OPENAI_API_KEY": "sk-1"})
    client = make_model("openai:gemini-1.5-flash", env={"OPENAI_API_KEY": "sk-1", "GEMINI_API_KEY": "g-1"})
    assert config_of(client)["api_key"] == "g-1"


def test_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert config_of(make_model("openai:gpt-4o"))["api_key"] == "sk-env"


@pytest.mark.parametrize("name", ["ollama", "anthropic"])
def test_missing_packages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for module in [one for one in sys.modules if one.startswith(f"autogen_ext.models.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'coderoom\[{name}\]'"):
        make_model(f"{name}:some", env={"ANTHROPIC_API_KEY": "k"})


def fake_client(monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def make(**arguments: Any) -> object:
        calls.append(arguments)
        if arguments["model"] == "refused":
            raise ValueError("no such option")
        if arguments["model"] == "strange" and "model_info" not in arguments:
            raise ValueError("model_info is required when model name is not recognized")
        return object()

    module = ModuleType(package)
    setattr(module, name, make)
    monkeypatch.setitem(sys.modules, package, module)
    return calls


def test_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_client(monkeypatch, "autogen_ext.models.ollama", "OllamaChatCompletionClient")
    make_model("ollama:llama3.2:3b", env={"OLLAMA_HOST": "http://box:11434"})
    make_model("ollama:strange", env={})
    assert calls[0] == {"model": "llama3.2:3b", "host": "http://box:11434"}
    assert [sorted(call) for call in calls[1:]] == [["model"], ["model", "model_info"]]
    with pytest.raises(RequestError, match="'ollama:refused' was refused: no such option"):
        make_model("ollama:refused", env={})


def test_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_client(monkeypatch, "autogen_ext.models.anthropic", "AnthropicChatCompletionClient")
    with pytest.raises(MissingDependencyError, match="set ANTHROPIC_API_KEY"):
        make_model("anthropic:claude", env={})
    make_model("anthropic:claude", env={"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://x"})
    assert calls == [{"model": "claude", "api_key": "k", "base_url": "http://x"}]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("openai:", "names nothing after the colon"),
        ("opnai:gpt-4o", "did you mean 'openai:'?"),
        ("gpt-4o", "Expected openai:NAME, azure:DEPLOYMENT, anthropic:NAME, ollama:NAME,"),
        ("", "there is no model ''"),
        ("nowhere.yaml", "there is no file 'nowhere.yaml'"),
        ("replay:nowhere", "there is no file './nowhere'"),
    ],
)
def test_unknown_forms(spec: str, part: str) -> None:
    with pytest.raises(RequestError) as caught:
        make_model(spec, env={})
    assert part in str(caught.value)


def test_component_file(tmp_path: Path) -> None:
    text = "provider: OpenAIChatCompletionClient\nconfig:\n  model: gpt-4o\n  api_key: ${KEY}\n"
    file = write(tmp_path, text, "model.yaml")
    assert config_of(make_model(str(file), env={"KEY": "sk-1"}))["api_key"] == "sk-1"
    with pytest.raises(ConfigError, match="'KEY' is not set"):
        make_model(str(file), env={})
    team = write(tmp_path, "provider: autogen_agentchat.conditions.MaxMessageTermination\nconfig: {max_messages: 1}\n")
    with pytest.raises(ConfigError, match="expected a model client"):
        make_model(str(team), env={})
    with pytest.raises(ConfigError, match="not trusted"):
        make_model(str(write(tmp_path, "provider: acme.Model\n", "m.yml")), env={})
    with pytest.raises(ConfigError, match="no such provider"):
        make_model(str(tmp_path / "m.yml"), env={}, trust=["acme"])


async def test_replay_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "- one ${NOT_RESOLVED}\n- content: two\n  thought: hm\n", "talk")
    monkeypatch.chdir(tmp_path)
    client = make_model("replay:talk", env={})
    assert isinstance(client, ReplayModel)
    ask = [UserMessage(content="hi", source="user")]
    assert (await client.create(ask)).content == "one ${NOT_RESOLVED}"
    second = await client.create(ask)
    assert (second.content, second.thought) == ("two", "hm")
    with pytest.raises(RequestError, match="the recording 'talk' has 2 replies"):
        await client.create(ask)


def test_replay_mapping(tmp_path: Path) -> None:
    text = '{"model_info": {"function_calling": true}, "replies": ["a"], "name": "mine"}'
    client = make_model(f"replay:{write(tmp_path, text, 'r.json')}", env={})
    assert client.model_info["function_calling"] is True
    assert client.dump_component().config["name"] == "mine"


@pytest.mark.parametrize(
    ("text", "line", "path", "part"),
    [
        ("- one\n- 5\n", 2, "replies[1]", "expected a text or a mapping, got 5 (an integer)"),
        ("- one\n- contnt: x\n", 2, "replies[1].contnt", "did you mean 'content'?"),
        ("replies:\n  - content: x\n    finish_reason: done\n", 3, "replies[0].finish_reason", "expected 'stop', "),
        ("replies: []\nmodel_inf: {}\n", 2, "model_inf", "did you mean 'model_info'?"),
        ("model_info: {vision: maybe}\nreplies: []\n", 1, "model_info.vision", "expected true or false"),
        ("model_info: {}\n", 1, "", "the key 'replies' is missing"),
        ("just text\n", 1, "", "expected a mapping"),
        ("replies: one\n", 1, "replies", "expected a list, got 'one' (a string)"),
    ],
)
def test_wrong_replay_files(tmp_path: Path, text: str, line: int, path: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_model(f"replay:{write(tmp_path, text, 'r.yaml')}", env={})
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (line, path)
    assert part in problem.message


@pytest.mark.parametrize(
    ("variable", "spec"),
    [
        (None, "openai:gpt-4o"),
        (" ", "openai:gpt-4o"),
        ("gpt-4.1-mini", "openai:gpt-4.1-mini"),
        ("some/new:7b", "openai:some/new:7b"),
        ("ollama:llama3.2", "ollama:llama3.2"),
        ("replay:talk", "replay:talk"),
        ("model.yaml", "model.yaml"),
    ],
)
def test_default_model(variable: str | None, spec: str) -> None:
    assert default_model({} if variable is None else {"CODEROOM_MODEL": variable}) == spec


def test_default_model_is_the_shipped_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEROOM_MODEL", raising=False)
    name = default_model().removeprefix("openai:")
    for file in resources.files("coderoom.configs").joinpath("shipped").iterdir():
        assert f"${{CODEROOM_MODEL:-{name}}}" in file.read_text()


@pytest.mark.parametrize(
    ("spec", "env", "key"),
    [
        ("{url}#my-own", {}, "none"),
        ("{url}#my-own", {"OPENAI_API_KEY": "not for others", "CODEROOM_API_KEY": "k"}, "k"),
        ("vllm:my-own", {"VLLM_BASE_URL": "{url}"}, "none"),
        ("openrouter:my-own", {"OPENROUTER_BASE_URL": "{url}", "OPENROUTER_API_KEY": "k"}, "k"),
        ("gemini:my-own", {"GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": "k"}, "k"),
    ],
)
async def test_services_with_openais_protocol(spec: str, env: dict[str, str], key: str) -> None:
    with OpenAIServer(["Hello."]) as server:
        made = {name: value.format(url=server.base_url) for name, value in env.items()}
        client = make_model(spec.format(url=server.base_url), env=made)
        reply = await client.create([UserMessage(content="Hi", source="user")])
        await client.close()
    assert reply.content == "Hello."
    [request] = server.requests
    assert (request.body["model"], request.headers["authorization"]) == ("my-own", f"Bearer {key}")


def test_azure() -> None:
    env = {"AZURE_OPENAI_ENDPOINT": "https://x.example", "AZURE_OPENAI_API_KEY": "k"}
    client = make_model("azure:gpt-4o", env=env)
    assert isinstance(client, AzureOpenAIChatCompletionClient)
    assert client.model_info["vision"] is True
    with pytest.raises(MissingDependencyError, match="set AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY"):
        make_model("azure:gpt-4o", env={})


@pytest.mark.parametrize("spec", ["openrouter:x", "gemini:x"])
def test_a_service_without_its_key(spec: str) -> None:
    with pytest.raises(MissingDependencyError, match=f"set {spec.partition(':')[0].upper()}_API_KEY"):
        make_model(spec, env={"OPENAI_API_KEY": "sk-1"})


def test_the_variable_of_a_team_names_a_model_of_any_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All agents share it, as with `--model`; a model that does not refer to the variable stays."""
    replies = write(tmp_path, "- first\n- second\n", "r.yaml")
    team = load_team("coder-reviewer", env={"CODEROOM_MODEL": f"replay:{replies}"})
    clients = [model_client_of(agent) for agent in agents_of(team)]
    assert isinstance(clients[0], ReplayModel)
    assert all(client is clients[0] for client in clients)
    # The file is written back as it was, not as the variable says here.
    assert "ReplayModel" not in dump_team(team)
    assert dump_team(team).count("model: ${CODEROOM_MODEL:-gpt-4o}") == 2
    text = (
        resources.files("coderoom.configs")
        .joinpath("shipped/analyst.yaml")
        .read_text()
        .replace("${CODEROOM_MODEL:-gpt-4o}", "gpt-4o", 1)
    )
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    fixed = load_team(write(tmp_path, text, "t.yaml"), env={"CODEROOM_MODEL": f"replay:{replies}"})
    found = [type(model_client_of(agent)) for agent in agents_of(fixed) if model_client_of(agent)]
    assert found == [OpenAIChatCompletionClient, ReplayModel]


def test_a_name_of_openai_keeps_the_other_settings_of_the_file(tmp_path: Path) -> None:
    text = changed(TEAM, "model: ${MODEL:-gpt-4o}", "model: ${CODEROOM_MODEL:-gpt-4o}\n            temperature: 0.5")
    file = write(tmp_path, text)
    for named in ("openai:gpt-4o-mini", "gpt-4o-mini"):
        team = load_team(file, env={**ENV, "CODEROOM_MODEL": named})
        (client,) = [model_client_of(agent) for agent in agents_of(team)]
        config = config_of(client)
        assert (config["model"], config["temperature"], config["api_key"]) == (
            "gpt-4o-mini",
            0.5,
            ENV["OPENAI_API_KEY"],
        )
        assert "model: ${CODEROOM_MODEL:-gpt-4o}" in dump_team(team)
        assert "temperature: 0.5" in dump_team(team)


def test_a_default_and_a_literal_name_models_of_other_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "[one, two]\n", "r.yaml")
    for text in ("replay:r.yaml", "${CODEROOM_MODEL:-replay:r.yaml}"):
        # The key of the client that is not made need not be set.
        file = write(tmp_path, changed(TEAM, "model: ${MODEL:-gpt-4o}", f"model: {text}"))
        assert found(file, env={}) == []
        team = load_team(file, env={})
        assert [type(model_client_of(agent)) for agent in agents_of(team)] == [ReplayModel]
        assert f"model: {text}\n" in dump_team(team)
    # With an address, the text is a name that the server there may have; the variable is always meant for us.
    for text, kind in (
        ("ollama:x", OpenAIChatCompletionClient),
        ("${MODEL:-ollama:x}", OpenAIChatCompletionClient),
        ("${CODEROOM_MODEL:-replay:r.yaml}", ReplayModel),
    ):
        own = f"model: {text}\n            base_url: http://127.0.0.1:9/v1"
        team = load_team(write(tmp_path, changed(TEAM, "model: ${MODEL:-gpt-4o}", own)), env=ENV)
        (client,) = [model_client_of(agent) for agent in agents_of(team)]
        assert type(client) is kind
        assert kind is ReplayModel or config_of(client)["model"] == "ollama:x"


def test_a_wrapped_model_of_a_team(tmp_path: Path) -> None:
    replies = write(tmp_path, "[one]\n", "r.yaml")
    text = """\
provider: coderoom.models.RateLimitedClient
config:
  requests_per_minute: 600
  client:
    provider: OpenAIChatCompletionClient
    config: {model: "${CODEROOM_MODEL:-gpt-4o}"}
"""
    file = write(tmp_path, text.replace("${CODEROOM_MODEL:-gpt-4o}", f"replay:{replies}"), "model.yaml")
    assert isinstance(innermost_client(make_model(str(file), env={})), ReplayModel)
    # The variable that names this file does not mean the model inside it.
    file = write(tmp_path, text, "model.yaml")
    client = make_model(str(file), env={"CODEROOM_MODEL": str(file), "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert config_of(innermost_client(client))["model"] == "gpt-4o"


def test_a_variable_that_names_no_model(tmp_path: Path) -> None:
    file = write(tmp_path, changed(TEAM, "${MODEL:-gpt-4o}", "${CODEROOM_MODEL:-gpt-4o}"))
    with pytest.raises(ConfigError, match=r"config\.model_client: .*there is no file '.*nowhere\.yaml'"):
        load_team(file, env={**ENV, "CODEROOM_MODEL": "replay:nowhere.yaml"})
    with pytest.raises(MissingDependencyError, match=r"config\.model_client: .*set GEMINI_API_KEY"):
        load_team(file, env={**ENV, "CODEROOM_MODEL": "gemini:x"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"${MODEL:-gpt-4o}": "mine"}, [("model", "vision: false, function_calling: true, json_output: true")]),
        ({"${OPENAI_API_KEY}": "'**********'"}, [("api_key", "masked")]),
        ({"${OPENAI_API_KEY}": "sk-1\n            model_info: {family: unknown}"}, []),
    ],
)
def test_warnings(tmp_path: Path, changes: dict[str, str], expected: list[tuple[str, str]]) -> None:
    text = TEAM
    for old, new in changes.items():
        text = changed(text, old, new)
    file = write(tmp_path, text)
    warnings = team_warnings(file, env=ENV)
    assert [warning.path.rpartition(".")[2] for warning in warnings] == [key for key, _ in expected]
    for warning, (key, part) in zip(warnings, expected, strict=True):
        assert part in warning.message
        assert warning.line == text[: text.index(f" {key}: ")].count("\n") + 1


def test_warnings_of_the_command(tmp_path: Path) -> None:
    file = write(tmp_path, changed(TEAM, "${MODEL:-gpt-4o}", "mine"))
    done = coderoom("validate", str(file), cwd=tmp_path, env=ENV)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [f"{file}: ok"])
    assert done.stdout.startswith(f"{file}:21: config.participants[0].config.model_client.config.model: warning: ")
    (told,) = json.loads(coderoom("validate", str(file), "--json", cwd=tmp_path, env=ENV).stdout)["files"]
    assert (told["problems"], [one["line"] for one in told["warnings"]]) == ([], [21])


def test_resolve_model() -> None:
    client = ReplayModel([])
    assert resolve_model(client) is client
    assert config_of(resolve_model("openai:gpt-4o", env={"OPENAI_API_KEY": "sk-1"}))["model"] == "gpt-4o"
    with pytest.raises(RequestError, match="expected a model client or a text such as 'openai:gpt-4o', got 5"):
        resolve_model(5)  # type: ignore[arg-type]
