"""Configs of classes with every kind of schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import pytest
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage
from autogen_core import Component, ComponentModel
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel, StringConstraints
from pydantic import model_validator as validator
from typing_extensions import TypeAliasType, TypedDict

from tests.configs.config_files import found, write

Bound = TypeVar("Bound", bound=int)
Free = TypeVar("Free")


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Free1(BaseModel, Generic[Free]):
    value: Free


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 1


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    known: int = 1


class Names(RootModel[dict[str, Closed]]):
    """A mapping as a model."""


class Loose(TypedDict, total=False):
    known: int


class Failing(BaseModel):
    value: int = 0

    @validator(mode="before")
    @classmethod
    def fail(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("value") == 13:
            raise KeyError("thirteen")
        return value


Alias = TypeAliasType("Alias", dict[str, Closed])


class OddConfig(BaseModel):
    """One field of each kind."""

    aliased: int = Field(default=1, alias="theAlias")
    either: int = Field(default=1, validation_alias=AliasChoices("one", AliasPath("two", 0)))
    by_tag: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    by_keys: Closed | Dog | None = None
    opened: Open | None = None
    closed: dict[str, Closed] = {}
    names: Names | None = None
    listed: Sequence[Closed] = ()
    pair: tuple[int, Closed] | None = None
    loose: Loose | None = None
    any_thing: Any = None
    text: Annotated[str, StringConstraints(min_length=2, max_length=3)] = "ab"
    few: list[int] = Field(default=[], min_length=1, max_length=2)
    share: float = Field(default=0.5, gt=0, lt=1)
    rest: int = Field(default=1, multiple_of=2)
    alias: Alias | None = None
    failing: Failing | None = None
    component_or_not: ComponentModel | dict[str, Any] | None = None
    components: dict[str, ComponentModel] = {}
    generic: Free1[int] | None = None


class Both(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    aliased: int = Field(default=1, alias="theAlias")


class Odd(TerminationCondition, Component[OddConfig]):
    """A component that only has its config."""

    component_config_schema: Any = OddConfig
    component_provider_override = f"{__name__}.Odd"

    @property
    def terminated(self) -> bool:
        return False

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        return None

    async def reset(self) -> None:
        pass

    @classmethod
    def _from_config(cls, config: OddConfig) -> Self:
        return cls()


def odd(tmp_path: Path, config: str) -> list[tuple[str, str]]:
    """Give what is wrong with a config of `Odd`, in the place of a termination condition."""
    text = f"""\
provider: autogen_agentchat.teams.RoundRobinGroupChat
config:
  participants: [{{provider: autogen_agentchat.agents.UserProxyAgent, config: {{name: a, description: b}}}}]
  termination_condition:
    provider: {__name__}.Odd
    config: {{{config}}}
"""
    start = "config.termination_condition.config"
    problems = found(write(tmp_path, text), trust=("tests",))
    assert all(line == 6 and path.startswith(start) for line, path, _ in problems), problems
    return [(path.removeprefix(start).removeprefix("."), message) for _, path, message in problems]


@pytest.mark.parametrize(
    "config",
    [
        "theAlias: 2",
        "one: 3",
        "two: [3]",
        "by_tag: {kind: cat, lives: '7'}",
        "by_tag: {kind: dog, tricks: [sit]}",
        "by_keys: {kind: dog}",
        "by_keys: {known: 1}",
        "opened: {anything: {at: all}, x-y: 1}",
        "closed: {a: {known: 1}, x-b: {known: 2}}",
        "names: {a: {known: 1}}",
        "listed: [{known: 1, x-note: 5}]",
        "pair: [1, {known: 2}]",
        "loose: {unknown: 1, x-y: 2}",
        "any_thing: {provider: 5, a: [{provider: autogen_x.Y, config: {}}, {provider: a.B}]}",
        "component_or_not: {some: thing}",
        "components: {a: {provider: autogen_agentchat.conditions.MaxMessageTermination, config: {max_messages: 1}}}",
        "alias: {a: {known: 1}}",
        "failing: {value: 1}",
        "generic: {value: 3}",
    ],
)
def test_good_configs(tmp_path: Path, config: str) -> None:
    assert odd(tmp_path, config) == []


@pytest.mark.parametrize(
    ("config", "path", "message"),
    [
        ("aliased: 2", "aliased", "unknown key 'aliased'; did you mean 'alias'?"),
        ("one: x", "one", "expected an integer, got 'x' (a string)"),
        ("by_tag: {kind: cat, lifes: 7}", "by_tag.lifes", "unknown key 'lifes'; did you mean 'lives'?"),
        ("by_tag: {kind: cow}", "by_tag", "Input tag 'cow' found using 'kind' does not match"),
        ("by_keys: {kind: dog, trick: 5}", "by_keys.trick", "unknown key 'trick'; did you mean 'tricks'?"),
        ("by_keys: {known: x}", "by_keys.known", "expected an integer, got 'x' (a string)"),
        ("by_keys: 5", "by_keys", "expected a mapping, got 5 (an integer)"),
        ("opened: {known: x, more: 1}", "opened.known", "expected an integer"),
        ("closed: {a: {knwn: 1}}", "closed.a.knwn", "unknown key 'knwn'; did you mean 'known'?"),
        ("names: {'a b': {knwn: 1}}", "names['a b'].knwn", "unknown key 'knwn'"),
        ("listed: [{known: 1}, {knwn: 1}]", "listed[1].knwn", "unknown key 'knwn'"),
        ("listed: {a: 1}", "listed", "expected a list, got a mapping"),
        ("pair: [1, {knwn: 2}]", "pair[1].knwn", "unknown key 'knwn'"),
        ("loose: {known: x}", "loose.known", "expected an integer"),
        ("any_thing: [{provider: os.X, config: {}}]", "any_thing[0].provider", "not trusted"),
        ("text: a", "text", "expected a text of at least 2 characters, got 'a' (a string)"),
        ("text: abcd", "text", "expected a text of at most 3 characters"),
        ("few: []", "few", "expected a list of at least 1, got an empty list"),
        ("few: [1, 2, 3]", "few", "expected a list of at most 2, got a list of 3"),
        ("share: 0", "share", "expected more than 0, got 0 (an integer)"),
        ("share: 1.5", "share", "expected less than 1, got 1.5 (a number)"),
        ("share: {}", "share", "expected a number, got a mapping"),
        ("rest: 3", "rest", "Input should be a multiple of 2"),
        ("one: 100000000000000000000000.5", "one", "expected an integer, got 1.0000000000000001e+23"),
        ("alias: {a: {knwn: 1}}", "alias.a.knwn", "unknown key 'knwn'"),
        ("failing: {value: 13}", "failing", "the value was refused: KeyError: 'thirteen'"),
        ("component_or_not: {provider: os.X}", "component_or_not.provider", "not trusted"),
        ("components: {a: {provider: autogen_agentchat.x.Y}}", "components.a.provider", "no such provider"),
        ("components: {a: {prvider: x}}", "components.a.prvider", "did you mean 'provider'?"),
        ("generic: {value: x}", "generic.value", "expected an integer"),
    ],
)
def test_wrong_configs(tmp_path: Path, config: str, path: str, message: str) -> None:
    ((where, what),) = odd(tmp_path, config)
    assert where == path
    assert message in what
