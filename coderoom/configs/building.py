"""Builds the components of a checked file, or only what shows whether their constructors accept it.

A team that is loaded with another model has a placeholder under every `model_client`. Building the placeholder returns
that model's client. This works for every agent that loads its client with `load_component`.
"""

from __future__ import annotations

import copy
import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self, TypeVar

from autogen_core import Component, ComponentLoader
from autogen_core.models import ChatCompletionClient

from coderoom._util.components import StrictConfig
from coderoom.configs.components import how_to_install, provider_of
from coderoom.configs.dumping import remember
from coderoom.configs.findings import Checked
from coderoom.configs.yaml import Location, value_at
from coderoom.errors import (
    CodeRoomError,
    ConfigError,
    MissingDependencyError,
    MissingKeyError,
    RequestError,
    SandboxUnavailable,
)
from coderoom.models.services import SERVICES, says

T = TypeVar("T")
MakeModel = Callable[[str | None], ChatCompletionClient]

_make: ContextVar[MakeModel | None] = ContextVar("coderoom_injected_model", default=None)


class InjectedModelConfig(StrictConfig):
    """The config of the placeholder: the text that `make_model` understands, or `None` for the model that is given."""

    text: str | None = None


class InjectedModel(ChatCompletionClient, Component[InjectedModelConfig]):
    """The placeholder for a model client; it is never instantiated."""

    component_type = "model"
    component_config_schema = InjectedModelConfig
    component_provider_override = "coderoom.configs.building.InjectedModel"

    @classmethod
    def _from_config(cls, config: InjectedModelConfig) -> Self:
        make = _make.get()
        if make is None:
            raise RuntimeError("the placeholder of a model client was loaded outside of coderoom.load_team")
        client: Any = make(config.text)
        return client  # type: ignore[no-any-return]


@contextmanager
def making(make: MakeModel) -> Iterator[None]:
    """Have placeholders made into what `make` makes of their texts."""
    token = _make.set(make)
    try:
        yield
    finally:
        _make.reset(token)


def build(checked: Checked, expected: type[T], make: MakeModel) -> T:
    """Build the component that a file without mistakes describes; `make` makes the clients in place of placeholders."""
    with making(functools.cache(make)):  # One client for all agents with the same model: a recording has an order.
        try:
            made = load(checked.data, expected)
            remember(made, checked)
            return made
        except Exception as error:
            path, cause = _culprit(checked, error)
            raise as_our_own(checked, path, cause) from cause


def load(data: dict[str, Any], expected: type[T]) -> T:
    """Load a component of a checked file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # AutoGen modifies its argument.
        made = ComponentLoader.load_component(copy.deepcopy(data), expected)
    runs_here = [each for each in caught if "Loading a FunctionTool" in str(each.message)]
    for each in caught:
        if each not in runs_here:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno, source=each.source)
    if runs_here:
        warnings.warn("Functions of a team file run on this machine, outside of any wall.", stacklevel=2)
    return made


def _culprit(checked: Checked, error: Exception) -> tuple[Location, Exception]:
    """Find the innermost component that fails on its own."""
    for path in (*checked.replaced, *checked.components):
        try:
            load(value_at(checked.data, path), object)
        except Exception as cause:
            return path, cause
    return (), error


def as_our_own(checked: Checked, path: Location, error: Exception) -> CodeRoomError:
    """The error that says why the component at a path could not be made."""
    if isinstance(error, (ConfigError, SandboxUnavailable)):
        return error
    name = checked.components[path].__name__ if path in checked.components else "the model"
    missing, openai, kind_of_missing = None, sys.modules.get("openai"), MissingDependencyError
    if isinstance(error, MissingDependencyError):
        missing, kind_of_missing = checked.references.hide(str(error)), type(error)
    elif isinstance(error, ImportError):
        missing = f"{name}: {how_to_install(error)}"
    elif openai is not None and type(error) is openai.OpenAIError and says(error, "no key"):
        missing = _how_to_give_a_key(checked.components[path], value_at(checked.data, path)["config"])
        kind_of_missing = MissingKeyError
    if kind_of_missing is MissingKeyError and missing is not None and not Path(checked.document.file).is_file():
        return MissingKeyError(f"{missing[0].upper()}{missing[1:]}.")  # In a shipped team nobody looks for it.
    if missing is not None:
        return kind_of_missing(str(checked.document.problem(path, missing)))
    text = checked.references.hide(" ".join(str(error).split()))
    is_own = path in checked.components and checked.components[path].__module__.startswith("coderoom.")
    is_clear = isinstance(error, RequestError) or (is_own and isinstance(error, ValueError | TypeError))
    kind = "" if is_clear else f"{type(error).__name__}: "
    place = _place(path, value_at(checked.data, path).get("config"), text)
    return ConfigError([checked.document.problem(place, f"{name} could not be made: {kind}{text}")])


def _place(path: Location, config: Any, text: str) -> Location:
    """Where to look for what a constructor refuses: at the first key of the config that it names, if it names one."""
    keys = config.keys() - {"name", "description"} if isinstance(config, dict) else ()  # These are words, too.
    return next(((*path, "config", word) for word in re.findall(r"\w+", text) if word in keys), path)


def _how_to_give_a_key(client_class: type, config: Mapping[str, Any]) -> str:
    provider = provider_of(client_class)
    service = next((each for each in SERVICES.values() if each.provider == provider), SERVICES["openai"])
    try:
        service.config(config.get("model", service.example), {})
    except MissingDependencyError as error:
        return str(error)
    raise AssertionError("unreachable: a key is missing")
