"""Which components a file may name, and what their configs say about the shape of values."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent

from coderoom.configs.components import (
    Components,
    ProviderError,
    by_field,
    constructor_defaults,
    fields_by_key,
    how_to_install,
    model_for,
    provider_of,
)
from tests.configs.test_config_schemas import Cat, Closed, Dog

OURS = Components.trusting(["mine.teams"], {"AUTOGEN_ALLOWED_PROVIDER_NAMESPACES": " other , "})


def test_namespaces_that_are_trusted() -> None:
    providers = ("mine.teams.A", "mine.teams", "mine.teamsters.A", "mine.A", "other.A", "coderoom.A", "coderoomy.A")
    assert [OURS.trusts(each) for each in providers] == [True, True, False, False, True, True, False]
    assert OURS.trusts("autogen_ext.models.A")
    assert Components.trusting("mine", {}).trusted == ("mine",)


@pytest.mark.parametrize(
    ("provider", "why", "close"),
    [
        (
            "os.path.Join",
            "'os.path.Join' is in a namespace that is not trusted; if you trust its code, pass --trust os",
            [],
        ),
        ("AssistantAgent", "is not the dotted name of a class, such as", []),
        ("coderoom.agents.", "is not the dotted name of a class", []),
        ("coderoom.agents.CodeExecuterAgent", "there is no such provider", ["coderoom.agents.CodeExecutorAgent"]),
        ("coderoom.agens.CodeActAgent", "there is no such provider", ["coderoom.agents.CodeActAgent"]),
        ("coderoom.errors.ConfigError", "is not a component class$", []),
        ("mine.teams.A", "there is no such provider", []),
    ],
)
def test_providers_that_cannot_be_used(provider: str, why: str, close: list[str]) -> None:
    with pytest.raises(ProviderError, match=why) as raised:
        OURS.find(provider)
    assert not raised.value.not_installed
    assert list(raised.value.close)[:1] == close


def test_a_provider_that_is_found() -> None:
    found = OURS.find("autogen_agentchat.agents.AssistantAgent")
    assert found is AssistantAgent
    assert provider_of(found) == "autogen_agentchat.agents.AssistantAgent"
    assert constructor_defaults(found)["reflect_on_tool_use"] is False
    assert "name" not in constructor_defaults(found)


def test_what_is_to_be_installed() -> None:
    said = [
        how_to_install(error)
        for error in (
            ModuleNotFoundError("No module", name="anthropic.x"),
            ModuleNotFoundError("No module\nthere", name="nothing"),
            ImportError("cannot import name", name="nothing"),
        )
    ]
    assert said == [
        "it needs the package 'anthropic': pip install 'coderoom[anthropic]'",
        "it needs the module 'nothing', which is not installed (No module there)",
        "an import that it needs failed: cannot import name",
    ]


def test_the_model_that_a_mapping_is_meant_for() -> None:
    values: list[Any] = [{"kind": "dog"}, {"tricks": []}, {"kind": "cow"}]
    meant: list[Any] = [model_for(each, [Cat, Dog]) for each in values]
    assert meant == [Dog, Dog, Cat]
    assert model_for({"known": 1}, []) is None
    assert fields_by_key(Dog) == {"kind": "kind", "tricks": "tricks"}


def test_fields_that_are_wrong() -> None:
    wrong = by_field(Cat, {"lives": "many"})
    assert wrong.keys() == {"kind", "lives"}
    assert wrong["kind"] is None
    assert isinstance(wrong["lives"], ValueError)
    assert by_field(Closed, {}) == by_field(Cat, {"kind": "cat"}) == {}
