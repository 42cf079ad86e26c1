"""The base classes of CodeRoom's AutoGen components and their configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

from autogen_core import ComponentModel
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

__all__ = ["DumpsAsItself", "Seconds", "StrictConfig", "TimedConfig", "load_if_given"]

T = TypeVar("T")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StrictConfig(BaseModel):
    """A component config that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid")


class TimedConfig(StrictConfig):
    """A config whose `timeout` may be `None`, for no limit, also in a dump."""

    timeout: Seconds | None

    @model_serializer(mode="wrap")
    def _keep_no_timeout(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # AutoGen leaves `None` out of a dump, so loading would use the default.
        return {**handler(self), "timeout": self.timeout}


class DumpsAsItself:
    """Dumps a subclass under its own name.

    Subclasses inherit AutoGen's `component_provider_override`, so they would be loaded as the base class.
    """

    component_provider_override: ClassVar[str | None]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "component_provider_override" not in cls.__dict__:
            cls.component_provider_override = None


def load_if_given(model: ComponentModel | None, load: Callable[[ComponentModel], T]) -> T | None:
    """Load a component with a class's `load_component`; `None` stays `None`."""
    return None if model is None else load(model)
