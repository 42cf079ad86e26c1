"""Types and notes of tools whose parameters are described by JSON schemas."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.sandbox.functions.schemas import Shapes, bind, sign, tool_name

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/A Node"}, "n": {"type": "integer", "default": 1}}}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "integer"}, "int"),
        ({"type": ["string", "null", "string"]}, "str | None"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}, 5]}, "float | None"),
        ({"enum": ["a", 1]}, "Literal['a', 1]"),
        ({"const": None, "enum": [2]}, "Literal[None]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}, "list[list[bool]]"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "dict[str, str]"),
        ({"allOf": [{"type": "string"}]}, "str"),
        ({"allOf": [{"type": "string"}, {}]}, "Any"),
        ({"$ref": "#/$defs/A Node"}, "A_Node"),
        ({"$ref": "#/$defs/Plain"}, "str"),
        ({"$ref": "#/$defs/none"}, "Any"),
        ("string", "Any"),
    ],
    ids=str,
)
def test_types(schema: Any, name: str) -> None:
    shapes = Shapes()
    shapes.use({"$defs": {"A Node": NODE, "Plain": {"type": "string"}}})
    assert shapes.type_of(schema) == name
    noted = ("A_Node: a dict {'next': A_Node (may be left out), 'n': int = 1}",)
    assert shapes.lines() == (noted if name == "A_Node" else ())


def test_a_signature_and_notes() -> None:
    signature, _, notes = sign(
        {
            "properties": {
                "limit": {"type": "integer", "default": 10, "minimum": 1, "description": "How\nmany."},
                "name": {"type": "string", "description": "Name", "maxLength": 5},
                "on": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
                "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            },
            "required": ["name"],
        }
    )
    assert str(signature) == "(name: 'str', limit: 'int' = 10, on: 'str | None' = None, where: 'dict' = None)"
    assert [note for note in notes if not note.startswith("on: ")] == [
        "limit: How many.; at least 1",
        "name: at most 5 characters",
        "where: {'x': float}",
    ]
    assert bind("f", signature, ["a"], {"limit": 3}) == {"name": "a", "limit": 3}
    with pytest.raises(TypeError, match=r"f\(\): missing a required argument: 'name'"):
        bind("f", signature, [], {})
    assert tool_name("list-files.v2") == "list_files_v2"


def test_names_that_are_no_parameters() -> None:
    signature, _, _ = sign({"properties": {"class": {"type": "string"}, "a": {}}})
    assert str(signature) == "(**arguments)"
    assert bind("f", signature, [], {"class": 1}) == {"class": 1}
    assert bind("f", signature, [], {}) == {}
    shapes = Shapes()
    shapes.note("a", {"minimum": 1, "description": "A"}, bounds=False)
    assert shapes.lines() == ()
