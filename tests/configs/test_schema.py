"""The JSON Schema of team files, as an editor uses it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from coderoom.configs import check_team, make_gallery, make_schema, shipped_teams
from tests.configs.config_files import ENV, TEAM, write
from tests.support.commands import ROOT, coderoom

EXAMPLES = sorted(
    str(file) for file in (ROOT / "examples").rglob("*.yaml") if "provider: coderoom.teams." in file.read_text()
)
SHIPPED = ROOT / "coderoom" / "configs" / "shipped"
EXAMPLE = (ROOT / "examples/team.yaml").read_text()


@cache
def validator() -> Draft202012Validator:
    schema = json.loads(json.dumps(make_schema()))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def mistakes(file: str | Path) -> list[str]:
    # The whole file, with what stands under `x-`, as an editor has it.
    from ruamel.yaml import YAML

    path = SHIPPED / f"{file}.yaml" if file in shipped_teams() else Path(file)
    data = YAML(typ="safe", pure=True).load(path)
    return [f"{error.json_path}: {error.message}" for error in validator().iter_errors(data)]


def written(folder: Path, text: str) -> list[str]:
    return mistakes(write(folder, text))


@pytest.mark.slow
def test_what_the_constructor_of_autogens_class_fills_in_is_not_required() -> None:
    schema: Any = validator().schema
    for name, needed in (("AssistantAgentConfig", {"name", "model_client"}), ("TokenUsageTerminationConfig", set())):
        assert set(schema["$defs"][name].get("required", [])) == needed


@pytest.mark.parametrize("team", [*shipped_teams(), *EXAMPLES])
def test_what_comes_with_the_package_is_right(team: str) -> None:
    assert mistakes(team) == []


def test_all_examples_are_among_them() -> None:
    assert {Path(file).name for file in EXAMPLES} >= {"team.yaml", "code_act_team.yaml"}


def test_short_names_references_and_past_forms_are_right(tmp_path: Path) -> None:
    assert written(tmp_path, TEAM) == []
    assert written(tmp_path, TEAM.replace("max_turns: 5", 'max_turns: "${TURNS:-5}"')) == []
    assert written(tmp_path, EXAMPLE.replace("action: deny", "action: ${ACTION}")) == []
    assert written(tmp_path, EXAMPLE.replace("timeout: 60", "timeout: ${SECONDS:-60}\n            x-note: 1")) == []
    assert written(tmp_path, EXAMPLE + "x-anchors: [&a 1]\n") == []
    older = TEAM.replace("component_type: agent", "component_version: 1\n      component_type: agent")
    assert written(tmp_path, older.replace("reflect_on_tool_use: false", "of_the_past: 1")) == []
    deep = "autogen_agentchat.teams._group_chat._round_robin_group_chat.RoundRobinGroupChat"
    assert written(tmp_path, TEAM.replace("autogen_agentchat.teams.RoundRobinGroupChat", deep)) == []


def test_other_packages_components_may_stand_in_it(tmp_path: Path) -> None:
    text = "provider: my_package.MyTeam\nconfig:\n  anything: [1]\n"
    assert written(tmp_path, text) == []


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("max_turns: 6", "max_turn: 6", "$.config"),
        ("max_turns: 6", "max_turns: many", "$.config.max_turns"),
        ("max_turns: 6", "max_turns: [6]", "$.config.max_turns"),
        ("provider: coderoom.teams.CodingTeam", "provider: coderoom.teams.CodeTeam", "$.provider"),
        ("coderoom.agents.ReviewerAgent", "coderoom.agents.Reviewer", "$.config.participants[1].provider"),
        ("coderoom.agents.ReviewerAgent", "coderoom.teams.NoProgress", "$.config.participants[1].provider"),
        ("autogen_agentchat.base.Or", "autogen_agentchat.base.Either", "$.config.termination_condition.provider"),
        ("            timeout: 60", "            timeout: -1", "$.config.participants[0].config.code_executor.config"),
        ("max_retries_on_error: 3", "max_retries: 3", "$.config.participants[0].config"),
        ("        name: reviewer\n", "", "$.config.participants[1].config"),
        ("default: allow", "default: perhaps", "$.config.participants[0].config.approval.config.default"),
        ("action: deny", "acton: deny", "$.config.participants[0].config.approval.config.rules[0]"),
        ("            model: $", "            modell: $", "$.config.participants[0].config.model_client.config"),
        ("config:\n  participants", "component_type: agent\nconfig:\n  participants", "$.component_type"),
        ("config:\n  participants", "extra: 1\nconfig:\n  participants", "$"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert old in EXAMPLE
    text = EXAMPLE.replace(old, new)
    found = written(tmp_path, text)
    assert found
    assert any(mistake.startswith(place) for mistake in found), found
    # Whoever runs `validate` is told of it too.
    assert check_team(write(tmp_path, text), env=ENV)


def test_every_component_of_a_gallery_is_right() -> None:
    definitions = make_schema()["$defs"]
    either = Draft202012Validator({"$defs": definitions, "$ref": "#/$defs/component"})
    for components in make_gallery()["components"].values():
        for component in components:
            assert not [error.message for error in either.iter_errors(component)]


def test_coderooms_components_are_described_key_by_key() -> None:
    definitions: dict[str, Any] = make_schema()["$defs"]
    own = [name for name in definitions if name.startswith("coderoom.")]
    assert len(own) >= 17
    for name in own:
        config = definitions[name]["properties"]["config"]
        while "$ref" in config:
            config = definitions[config["$ref"].rpartition("/")[2]]
        assert config["additionalProperties"] is False, name
        assert definitions[name]["description"], name
        silent = [key for key, schema in config.get("properties", {}).items() if "description" not in schema]
        assert not silent, (name, silent)


@pytest.mark.slow
def test_the_command_prints_or_writes(tmp_path: Path) -> None:
    printed = coderoom("schema", cwd=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, "")
    done = coderoom("schema", "--out", "team.schema.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "team.schema.json").read_text()
    assert json.loads(text) == json.loads(printed.stdout)
    assert json.loads(coderoom("schema", "--out", "team.schema.json", "--json", cwd=tmp_path).stdout) == {
        "succeeded": True,
        "file": "team.schema.json",
    }
    (tmp_path / "other.json").write_text("[]")
    refused = coderoom("schema", "--out", "other.json", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert str(Path.home()) not in text
