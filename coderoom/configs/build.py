"""From a checked file to the objects it describes, and, where that fails, to the component that is to blame.

A team that is loaded with another model has a placeholder under every `model_client`. Loading it returns the very same
client each time, in the way that any component is loaded, so it works for every agent that loads its client with
`load_component`, whoever wrote it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from autogen_core import Component, ComponentLoader
from autogen_core.models import ChatCompletionClient
from pydantic import BaseModel, ConfigDict

from coderoom.configs.findings import Checked
from coderoom.configs.locations import Location
from coderoom.configs.providers import how_to_install
from coderoom.errors import CodeRoomError, ConfigError, MissingDependencyError, RequestError, SandboxUnavailable

if TYPE_CHECKING:
    from typing import Self

__all__ = ["InjectedModel", "build", "refuse_mistakes"]


_client: ContextVar[ChatCompletionClient | None] = ContextVar("coderoom_injected_model", default=None)


class InjectedModelConfig(BaseModel):
    """The config of the placeholder: nothing."""

    model_config = ConfigDict(extra="forbid")


class InjectedModel(ChatCompletionClient, Component[InjectedModelConfig]):
    """The placeholder; no object of this class ever exists."""

    component_type = "model"
    component_config_schema = InjectedModelConfig
    component_provider_override = "coderoom.configs.build.InjectedModel"

    @classmethod
    def _from_config(cls, config: InjectedModelConfig) -> Self:
        client: Any = _client.get()
        if client is None:
            raise RuntimeError("the placeholder of a model client was loaded outside of coderoom.load_team")
        return client  # type: ignore[no-any-return]


@contextmanager
def injected(client: ChatCompletionClient | None) -> Iterator[None]:
    """Make every placeholder that is loaded in here give this client."""
    token = _client.set(client)
    try:
        yield
    finally:
        _client.reset(token)


T = TypeVar("T")


def refuse_mistakes(checked: Checked) -> None:
    """Raise the mistakes of a file, if it has any.

    Args:
        checked: The checked file.

    Raises:
        MissingDependencyError: Nothing is wrong but that packages are missing.
        ConfigError: The file has mistakes.
    """
    if not checked.problems:
        return
    if len(checked.not_installed) == len(checked.problems):
        raise MissingDependencyError("\n".join(str(problem) for problem in checked.not_installed))
    raise ConfigError(checked.problems)


def build(checked: Checked, expected: type[T], client: ChatCompletionClient | None = None) -> T:
    """Make the component at the top of a file, with everything in it.

    Args:
        checked: The checked file, which has no mistakes.
        expected: What it has to be.
        client: The model client that stands where placeholders are.

    Returns:
        The component.

    Raises:
        ConfigError: A component refused its config.
        MissingDependencyError: A component needs what is not installed or not set.
    """
    with injected(client):
        try:
            return _load(checked.data, expected)
        except Exception as error:
            path, cause = _culprit(checked, error)
            raise _as_our_own(checked, path, cause) from cause


def _load(data: dict[str, Any], expected: type[T]) -> T:
    # A copy, because AutoGen writes into what it is given.
    return ComponentLoader.load_component(copy.deepcopy(data), expected)


def _culprit(checked: Checked, error: Exception) -> tuple[Location, Exception]:
    """Find the innermost component that fails on its own."""
    for path in checked.components:
        data = checked.data
        for step in path:
            data = data[step]
        try:
            _load(data, object)
        except Exception as cause:  # the one we look for
            return path, cause
    return (), error


def _as_our_own(checked: Checked, path: Location, error: Exception) -> CodeRoomError:
    if isinstance(error, (ConfigError, SandboxUnavailable)):
        return error
    text = checked.references.hide(" ".join(str(error).split()))
    name = checked.components[path].__name__
    if isinstance(error, MissingDependencyError):
        return MissingDependencyError(str(checked.document.problem(path, text)))
    if isinstance(error, ImportError):
        return MissingDependencyError(str(checked.document.problem(path, f"{name}: {how_to_install(error)}")))
    if _is_missing_key(error):
        message = f"{name} has no API key; set OPENAI_API_KEY, or give another model (--model NAME)"
        return MissingDependencyError(str(checked.document.problem(path, message)))
    if "model_info is required" in text:
        text += "; give 'model_info' with vision, function_calling, json_output, structured_output and family"
    kind = "" if isinstance(error, RequestError) else f"{type(error).__name__}: "
    return ConfigError([checked.document.problem(path, f"{name} could not be made: {kind}{text}")])


def _is_missing_key(error: Exception) -> bool:
    openai = sys.modules.get("openai")
    return openai is not None and type(error) is openai.OpenAIError and "api_key" in str(error)
