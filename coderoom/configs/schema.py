"""Makes the JSON Schema of team files, with which editors complete and check them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable
from typing import Any

from autogen_core import ComponentModel
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from coderoom.configs.components import TEAM, TOOL, Entry, Kind, all_kinds, catalog, constructor_defaults, kind_for

_ANY = "component"
_COMPONENT_REF = "#/$defs/ComponentModel"
_OTHERS = (
    r"^(?!(coderoom|autogen_agentchat|autogen_core)\.)[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
    r"|^autogen_(agentchat|core)(\.\w+)*\._\w+(\.\w+)+$|\$\{"
)
"""Providers that are not known but may be right: other packages, private modules of AutoGen, references."""


def make_schema() -> dict[str, Any]:
    """Make the JSON Schema (2020-12) of team files.

    It describes the components of CodeRoom, and those of AutoGen that are installed. A file may also contain components
    of other packages; their configs are not checked.

    Returns:
        The schema, as plain data.
    """
    entries = catalog()
    inputs: list[tuple[str, JsonSchemaMode, Any]] = [
        (entry.names[0], "validation", entry.component_class.component_config_schema.__pydantic_core_schema__)
        for entry in entries
    ]
    generator = _Generator(by_alias=True, ref_template="#/$defs/{model}")
    schemas, definitions = generator.generate_definitions(inputs)
    found: dict[str, Any] = {
        "placeholder": {"description": "The value of a variable of the environment.", **PLACEHOLDER}
    }
    found |= {str(name): _linked(schema) for name, schema in definitions.items()}
    for entry in entries:
        found[entry.names[0]] = _component(entry, _linked(schemas[entry.names[0], "validation"]), found)
    for kind in all_kinds():
        found[_name(kind)] = _choice(kind, [entry for entry in entries if kind.has(entry.component_class)])
    found[_ANY] = _choice(None, entries)
    needed: set[str] = set()
    waiting = [_name(TEAM)]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += re.findall(r'"#/\$defs/([^"]+)"', json.dumps(found[name]))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CodeRoom team file",
        "description": "A team in AutoGen's component format. `coderoom validate` finds more mistakes than this.",
        "type": "object",
        "$ref": f"#/$defs/{_name(TEAM)}",
        "$defs": {name: found[name] for name in sorted(needed)},
    }


def _name(kind: Kind | None) -> str:
    return _ANY if kind is None else re.sub(r"\ban? ", "", kind.phrase).replace(" ", "_")


def _choice(kind: Kind | None, entries: Iterable[Entry]) -> dict[str, Any]:
    """Describe an envelope, whose provider decides about its other keys."""
    known = list(entries)
    names = [entry.names[0] for entry in known]
    aliases = [name for entry in known for name in entry.names[1:]]
    number = {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/placeholder"}, {"type": "null"}]}
    text = {"type": ["string", "null"]}
    others = [{"enum": aliases}] if aliases else []
    provider = {
        "description": "The class of this component.",
        "type": "string",
        "anyOf": [{"enum": names}, *others, {"pattern": _OTHERS}],
    }
    # The references to it say whether it may also be null.
    return {
        "description": kind.phrase[:1].upper() + kind.phrase[1:] + "." if kind else "A component.",
        "required": ["provider"],
        "properties": {
            "provider": provider,
            "component_type": {"type": ["string", "null"], "description": "The kind of component that the class is."},
            "version": {"description": "The version of this form.", **number},
            "component_version": {"description": "The version of the config.", **number},
            "label": {"description": "Its name in AutoGen Studio.", **text},
            "description": {"description": "What it is, in one sentence.", **text},
            "config": {"type": ["object", "null"], "description": "The arguments of the component."},
        },
        "patternProperties": dict(ANCHORS),
        "additionalProperties": False,
        "allOf": [
            {
                "if": {"required": ["provider"], "properties": {"provider": {"enum": entry.names}}},
                "then": {"$ref": f"#/$defs/{entry.names[0]}"},
            }
            for entry in known
        ],
    }


def _component(entry: Entry, config: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Describe the keys beside one provider."""
    component_class = entry.component_class
    target = config
    while "$ref" in target:
        target = definitions[target["$ref"].rpartition("/")[2]]
    # The keys of the config are the arguments of the class, which its docstring describes.
    described = fields_of(component_class)
    for name, schema in target.get("properties", {}).items():
        text = described.get(name) or described.get(f"{name}_func")
        if text:
            schema.setdefault("description", text)
    if "required" in target:
        filled_in = constructor_defaults(component_class)
        target["required"] = [name for name in target["required"] if name not in filled_in]
    made: dict[str, Any] = {
        "properties": {
            "component_type": {"anyOf": [{"const": component_class.component_type}, {"type": "null"}]},
            "config": config,
        },
    }
    if summary_of(component_class):
        made["description"] = summary_of(component_class)
    if target.get("required"):
        made["required"] = ["config"]
    if component_class.component_version == 1:
        return made
    # Only the class knows the configs of other versions.
    current = {"properties": {"component_version": {"enum": [component_class.component_version, 0, None]}}}
    return {"if": current, "then": made}


def _linked(value: Any, key: str | None = None) -> Any:
    """Replace the components in a schema by the kind that belongs under their key."""
    if isinstance(value, list):
        return [_linked(inner, key) for inner in value]
    if not isinstance(value, dict):
        return value
    if value == PLACEHOLDER:
        return {"$ref": "#/$defs/placeholder"}
    if value == COMPONENT or value.get("$ref") == _COMPONENT_REF:
        component = {"type": "object", "$ref": f"#/$defs/{_name(kind_for(key))}"}
        if kind_for(key) is not TOOL:
            return component
        return {"if": {"type": "string"}, "then": {"description": "The source of a function."}, "else": component}
    made = {name: _linked(inner, key) for name, inner in value.items() if name != "properties"}
    if "properties" in value:
        made["properties"] = {name: _linked(inner, name) for name, inner in value["properties"].items()}
    choices = made.get("anyOf", [])
    if len(choices) == 2 and "$ref" in choices[0] and "type" in choices[0] and choices[1] == {"type": "null"}:
        # An optional component: alternatives would hide the mistakes inside it.
        del made["anyOf"]
        made |= {"$ref": choices[0]["$ref"], "type": ["object", "null"]}
    return made


ANCHORS = {"^x-": True}
"""Keys that only carry anchors, which any mapping may have."""
PLACEHOLDER = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}"}
"""A text that refers to a variable, which may replace any scalar."""
COMPONENT = {"x-coderoom": "component"}
"""Stands for a component until its key is known."""


_SCALARS = {"str", "int", "float", "bool", "literal", "enum", "url"}


class _Generator(GenerateJsonSchema):
    """Allows a reference to a variable in place of every scalar, and refuses unknown keys."""

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
        return False  # It would repeat the key.

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        made = super().generate_inner(schema)
        if not (schema["type"] in _SCALARS or "enum" in made) or made == {"type": "string"}:
            return made
        return {"anyOf": [made, dict(PLACEHOLDER)]}


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    schema.pop("title", None)
    # Pydantic would use the docstring of a base class.
    schema.pop("description", None)
    if summary_of(model) and model.__doc__ != BaseModel.__doc__:
        schema["description"] = summary_of(model)
    for name, text in fields_of(model).items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", text)


_SECTION = re.compile(r"(?:Args|Arguments|Attributes):\s*")
_FIELD = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^:]*\))?:\s*(?P<text>.*)")


def summary_of(documented: type) -> str:
    """The first paragraph of a class's docstring, on one line."""
    paragraph, _, _ = inspect.cleandoc(documented.__doc__ or "").partition("\n\n")
    return " ".join(paragraph.split())


def fields_of(documented: type) -> dict[str, str]:
    """The descriptions of arguments and attributes in a class's docstring, each on one line."""
    found: dict[str, list[str]] = {}
    inside, name, depth = False, "", None
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            inside, name, depth = _SECTION.fullmatch(line) is not None, "", None
        elif inside and line.strip():
            depth = depth or indent
            match = _FIELD.fullmatch(line.strip()) if indent == depth else None
            if match:
                name = match["name"]
                found[name] = [match["text"]]
            elif name:
                found[name].append(line.strip())
    return {key: " ".join(" ".join(lines).split()) for key, lines in found.items()}
