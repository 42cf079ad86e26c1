"""What all of CodeRoom's AutoGen components share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

from autogen_core import ComponentModel
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

__all__ = ["DumpsAsItself", "Seconds", "StrictConfig", "TimedConfig", "load_if_given"]

T = TypeVar("T")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StrictConfig(BaseModel):
    """A component config that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid")


class TimedConfig(StrictConfig):
    """A config whose `timeout` may be `None`, for no limit, and stays so when it is dumped."""

    timeout: Seconds | None

    @model_serializer(mode="wrap")
    def _keep_no_timeout(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # AutoGen leaves out what is `None` when it dumps, and loading would put the default in its place.
        return {**handler(self), "timeout": self.timeout}


class DumpsAsItself:
    """Keeps a subclass from being dumped under its base class's name.

    AutoGen inherits `component_provider_override`, so that a user's subclass would come back as the base.
    """

    component_provider_override: ClassVar[str | None]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "component_provider_override" not in cls.__dict__:
            cls.component_provider_override = None


def load_if_given(model: ComponentModel | None, load: Callable[[ComponentModel], T]) -> T | None:
    """What `load`, a class's `load_component`, makes of `model`, or `None` for `None`."""
    return None if model is None else load(model)
