"""A placeholder component that stands for a model client that already exists.

A team that is loaded with another model has this placeholder under every `model_client`. Loading it gives the very
same client each time, through the same door as any component, so it works for every agent that loads its client with
`load_component`, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from autogen_core import Component
from autogen_core.models import ChatCompletionClient
from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from typing import Self

__all__ = ["InjectedModel", "injected"]

_client: ContextVar[ChatCompletionClient | None] = ContextVar("coderoom_injected_model", default=None)


class InjectedModelConfig(BaseModel):
    """The config of the placeholder: nothing."""

    model_config = ConfigDict(extra="forbid")


class InjectedModel(ChatCompletionClient, Component[InjectedModelConfig]):
    """The placeholder; no object of this class ever exists."""

    component_type = "model"
    component_config_schema = InjectedModelConfig
    component_provider_override = "coderoom.configs.inject.InjectedModel"

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
