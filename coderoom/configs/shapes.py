"""What pydantic models and annotations say about the shape of a value. Used by the check and the gallery."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, RootModel, TypeAdapter

__all__ = ["alternatives", "by_field", "fields_by_key", "item_alternatives", "model_for", "value_alternatives"]


_LISTS = (list, tuple, set, frozenset)


def alternatives(annotation: Any) -> list[Any]:
    """The plain annotations that an annotation allows, without `Annotated`, unions and aliases."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [part for choice in get_args(annotation) for part in alternatives(choice)]
    if hasattr(annotation, "__value__"):  # a `type X = ...` alias
        return alternatives(annotation.__value__)
    if isinstance(annotation, typing.TypeVar):
        return alternatives(annotation.__bound__) if annotation.__bound__ else [Any]
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return alternatives(annotation.model_fields["root"].annotation)
    return [annotation]


def item_alternatives(choices: Iterable[Any]) -> list[Any]:
    """The annotations that the items of a list may have."""
    items: list[Any] = []
    for choice in choices:
        origin, arguments = get_origin(choice), get_args(choice)
        if _is_class(origin, (*_LISTS, Sequence)) or (_is_class(origin, Iterable) and len(arguments) == 1):
            items += [part for argument in arguments if argument is not ... for part in alternatives(argument)]
    return items


def value_alternatives(choices: Iterable[Any]) -> list[Any] | None:
    """The annotations that the values of a mapping may have; `None` if no mapping is allowed."""
    values: list[Any] = []
    is_mapping = False
    for choice in choices:
        origin, arguments = get_origin(choice), get_args(choice)
        if _is_class(origin, Mapping) and len(arguments) == 2:
            is_mapping = True
            values += alternatives(arguments[1])
        elif _is_class(choice, Mapping) or typing.is_typeddict(choice) or choice in (Any, object):
            is_mapping = True
    return values if is_mapping else None


def model_for(value: Mapping[str, Any], models: Sequence[type[BaseModel]]) -> type[BaseModel] | None:
    """The model that a mapping is most likely meant for: by its tag if it has one, else by its keys."""
    fitting = [model for model in models if not _contradicts(value, model)] or list(models)
    if not fitting:
        return None
    return max(fitting, key=lambda model: sum(key in fields_by_key(model) for key in value))


def fields_by_key(model: type[BaseModel]) -> dict[str, str]:
    """The keys that a model reads, including aliases, each with its field."""
    keys: dict[str, str] = {}
    config = model.model_config
    by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
    by_alias = config.get("validate_by_alias") is not False
    for name, field in model.model_fields.items():
        alias = field.validation_alias if field.validation_alias is not None else field.alias
        if alias is None or by_name:
            keys[name] = name
        if alias is not None and by_alias:
            choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
            for choice in choices:
                keys[choice if isinstance(choice, str) else str(choice.path[0])] = name
    return keys


def by_field(model: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Exception | None]:
    """Validate each field of a model on its own.

    Args:
        model: The model.
        data: Its input.

    Returns:
        The exception for each wrong key; `None` for a missing one.
    """
    keys = fields_by_key(model)
    given = {keys[key] for key in data if key in keys}
    wrong: dict[str, Exception | None] = {}
    for key, name in keys.items():
        field = model.model_fields[name]
        if key in data:
            try:
                annotation: Any = Annotated[field.annotation, field]
                TypeAdapter(annotation).validate_python(data[key])
            except Exception as error:  # A validator may raise anything.
                wrong[key] = error
        elif field.is_required() and name not in given:
            wrong[key] = None
    return wrong


def _contradicts(value: Mapping[str, Any], model: type[BaseModel]) -> bool:
    for key, name in fields_by_key(model).items():
        for choice in alternatives(model.model_fields[name].annotation):
            if get_origin(choice) is Literal and key in value and value[key] not in get_args(choice):
                return True
    return False


def _is_class(annotation: Any, bases: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, bases)
