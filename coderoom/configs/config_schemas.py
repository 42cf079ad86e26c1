"""JSON Schemas of configs, as a person may write them in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_core import ComponentModel
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from coderoom.configs.docstrings import fields_of, summary_of

__all__ = ["ANCHORS", "COMPONENT", "PLACEHOLDER", "config_schemas"]

ANCHORS = {"^x-": True}
"""Keys that only carry anchors may stand in any mapping."""
PLACEHOLDER = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}"}
"""A text that refers to a variable, which may stand for any scalar."""
COMPONENT = {"x-coderoom": "component"}
"""Stands for a component, until it is known under which key."""


def config_schemas(models: Mapping[str, type[BaseModel]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the schemas of configs.

    Args:
        models: The classes of the configs, by any names.

    Returns:
        The schema of each, and the definitions that they refer to.
    """
    generator = _Generator(by_alias=True, ref_template="#/$defs/{model}")
    inputs: list[tuple[Any, JsonSchemaMode, Any]] = [
        (name, "validation", model.__pydantic_core_schema__) for name, model in models.items()
    ]
    schemas, definitions = generator.generate_definitions(inputs)
    return {str(name): schema for (name, _), schema in schemas.items()}, {
        str(name): schema for name, schema in definitions.items()
    }


class _Generator(GenerateJsonSchema):
    """Lets a reference to a variable stand wherever a scalar does, and refuses keys that nothing reads."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model: Any = schema["cls"]
        if issubclass(model, ComponentModel):
            return dict(COMPONENT)
        made = super().model_schema(schema)
        if "properties" in made or made.get("type") == "object":
            made.setdefault("additionalProperties", False)
            made["patternProperties"] = dict(ANCHORS)
        _describe(made, model)
        return made

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # it would be the key again

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return _or_placeholder(super().int_schema(schema))

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return _or_placeholder(super().float_schema(schema))

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return _or_placeholder(super().bool_schema(schema))

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return _or_placeholder(super().literal_schema(schema))

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return _or_placeholder(super().enum_schema(schema))

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        made = super().str_schema(schema)
        return made if made == {"type": "string"} else _or_placeholder(made)

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        return _or_placeholder(super().url_schema(schema))


def _or_placeholder(schema: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [schema, dict(PLACEHOLDER)]}


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    schema.pop("title", None)
    # Pydantic would take the docstring of a base class, which says nothing about this one.
    schema.pop("description", None)
    if summary_of(model) and model.__doc__ != BaseModel.__doc__:
        schema["description"] = summary_of(model)
    for name, text in fields_of(model).items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", text)
