"""A test of a function, as data. Everything that writes, runs or exports tests uses it."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from coderoom.generation.parsing import UNREADABLE, parsed_expression
from coderoom.generation.specs import FunctionSpec, name_problem
from coderoom.generation.testing.values import decode

__all__ = ["FunctionTest"]

_LONGEST = 20_000
_OPEN = frozenset(dir(builtins)) | {"math"}
_EXPECTATIONS = ("expected_output", "expected_error", "property")
_OPTIONAL = ("setup", "error_message", "rel", "abs", "exact_types")


class FunctionTest(BaseModel):
    """A call of a function, and what is expected of it: an output, an error or a property.

    Attributes:
        name: What it is about.
        kind: Whether it is an ordinary case, one at an edge, or one that is to fail.
        inputs: The arguments by their names, as tagged data.
        expected_output: What is to be returned, as tagged data.
        expected_error: The name of the exception that is to be raised, or of a class above it.
        error_message: Text that the exception's message has to contain, in whatever case.
        property: An expression of Python over `result` and the names of the inputs, as they were, that is to be `True`;
            objects stand in it with their fields as attributes. The dict `after` has the arguments as the call has left
            them, by their names; where one of them is called so, the name means that one.
        setup: Code that runs before the call. It may change the dict `inputs`, whose values are what the function is
            called with, and bring the program into a state by calling its functions; see `check_setup`.
        rel: How far floats may be apart, as a part of the larger one.
        abs: How far they may always be apart.
        exact_types: Whether a list that is expected has to be a list; see `compare`.
    """

    __test__: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=300)
    kind: Literal["normal", "edge", "error"] = "normal"
    inputs: dict[str, Any] = Field(default_factory=dict)
    expected_output: Any = None
    expected_error: str | None = Field(default=None, max_length=100)
    error_message: str | None = Field(default=None, max_length=_LONGEST)
    property: str | None = Field(default=None, max_length=_LONGEST)
    setup: str | None = Field(default=None, max_length=_LONGEST)
    rel: float = Field(default=1e-9, ge=0, le=1, allow_inf_nan=False)
    abs: float = Field(default=1e-12, ge=0, allow_inf_nan=False)
    exact_types: bool = False

    @model_validator(mode="before")
    @classmethod
    def _forget_nulls(cls, data: Any) -> Any:
        """Models write `null` for what they leave open; only a lone `expected_output` may mean it."""
        if not isinstance(data, Mapping):
            return data
        given = {
            key: value for key, value in data.items() if value is not None or key not in (*_OPTIONAL, *_EXPECTATIONS)
        }
        if "expected_output" in data and not any(key in given for key in _EXPECTATIONS):
            given["expected_output"] = None
        return given

    @model_validator(mode="after")
    def _check(self) -> FunctionTest:
        given = [key for key in _EXPECTATIONS if key in self.model_fields_set]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"exactly one of {', '.join(_EXPECTATIONS)} is needed, and there is {found}")
        if self.error_message is not None and self.expected_error is None:
            raise ValueError("error_message stands only beside expected_error")
        for name, data in self.inputs.items():
            problem = name_problem(name)
            if problem is not None:
                raise ValueError(f"inputs: {problem}")
            decode(data, f"inputs[{name!r}]")
        decode(self.expected_output, "expected_output")
        if self.expected_error is not None and not self.expected_error.isidentifier():
            raise ValueError(f"expected_error: {self.expected_error!r} is no exception's name; ValueError is one")
        if self.property is not None:
            _check_property(self.property, self.inputs)
        return self

    @model_serializer(mode="wrap")
    def _dump(self, handler: Any) -> dict[str, Any]:
        """Leave out what does not count, so that an expected `None` and no expectation stay apart."""
        told: dict[str, Any] = handler(self)
        left_out = {key for key in _EXPECTATIONS if key not in self.model_fields_set}
        left_out |= {key for key in _OPTIONAL if getattr(self, key) == type(self).model_fields[key].default}
        return {key: value for key, value in told.items() if key not in left_out}

    @builtins.property
    def expects(self) -> Literal["output", "error", "property"]:
        """Which of the three it has."""
        if self.expected_error is not None:
            return "error"
        return "output" if self.property is None else "property"

    @builtins.property
    def sees_after(self) -> bool:
        """Whether the property says something about the arguments after the call."""
        text = self.property or ""
        return "after" in text and "after" not in self.inputs and "after" in _names_in(text)

    def problems(self, spec: FunctionSpec) -> list[str]:
        """What does not fit the function that it is for: arguments that it does not have, or that are not given."""
        names = [each.name for each in spec.inputs]
        unknown = [name for name in self.inputs if name not in names]
        missing = [name for name in names if name not in self.inputs and not _is_optional(spec, name)]
        takes = ", ".join(map(repr, names)) or "none"
        found = [f"the function has no argument {name!r}; it has {takes}" for name in unknown]
        return found + [f"the argument {name!r} is not given" for name in missing]


def _is_optional(spec: FunctionSpec, name: str) -> bool:
    """Whether the spec's words for a type say that the argument may be left out."""
    told = next(each.type for each in spec.inputs if each.name == name).lower()
    return "=" in told or "optional" in told or "default" in told


def _check_property(text: str, inputs: Mapping[str, Any]) -> None:
    try:
        tree = parsed_expression(text)
        names = _names_in(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "property", "eval")  # Not all that is wrong is found before.
    except UNREADABLE as error:
        raise ValueError(f"property: it is no Python: {error}") from error
    unknown = sorted(names - _OPEN - {"result", "after", *inputs})
    if unknown:
        listed = ", ".join(map(repr, unknown))
        known = "result, the inputs, after, math and the builtins"
        raise ValueError(f"property: {listed} is not known there; it has {known}")
    told_of = {"result"} | ({"after"} & names) - set(inputs)
    if not any(isinstance(node, ast.Name) and node.id in told_of for node in ast.walk(tree)):
        raise ValueError("property: it says nothing about result")


def _names_in(text: str) -> set[str]:
    """The names that an expression does not define itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _free(symtable.symtable(text, "property", "eval"))


def _free(table: symtable.SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    if table.get_type() == "module":
        names = {symbol.get_name() for symbol in table.get_symbols() if not symbol.is_assigned()}
    return names.union(*(_free(child) for child in table.get_children()))
