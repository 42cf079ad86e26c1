"""The base classes of CodeRoom's AutoGen components and their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from autogen_core import ComponentBase, ComponentLoader, ComponentModel
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

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


class ArgumentsConfig(DumpsAsItself):
    """Dumps and loads a component whose config has the arguments of its constructor.

    Each argument is kept in an attribute: `_timeout` for the config's field `timeout`. Components are dumped and
    loaded. What a config leaves out gets the constructor's default.
    """

    component_config_schema: Any
    ARGUMENTS: ClassVar[Mapping[str, str]] = {}
    """The constructor's arguments whose fields have other names, by the names of the fields."""

    def _to_config(self) -> Any:
        schema = self.component_config_schema
        return schema(**{name: self._dump_argument(name, getattr(self, f"_{name}")) for name in schema.model_fields})

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        given = {name: cls._load_argument(name, getattr(config, name)) for name in config.model_fields_set}
        return cls(**{cls.ARGUMENTS.get(name, name): value for name, value in given.items()})

    def _dump_argument(self, name: str, value: Any) -> Any:
        if isinstance(value, ComponentBase):
            return value.dump_component()
        return [self._dump_argument(name, item) for item in value] if isinstance(value, list | tuple) else value

    @classmethod
    def _load_argument(cls, name: str, value: Any) -> Any:
        if isinstance(value, ComponentModel):
            return ComponentLoader.load_component(value, object)
        return [cls._load_argument(name, item) for item in value] if isinstance(value, list) else value
