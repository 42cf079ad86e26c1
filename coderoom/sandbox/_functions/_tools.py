"""Tools and workbenches of AutoGen, known by their shape, as functions of the host."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jsonschema
import referencing
from pydantic import BaseModel, ValidationError

from coderoom.errors import RequestError
from coderoom.sandbox._functions._callables import bind_arguments, misfit
from coderoom.sandbox._functions._function import Arguments, HostFunction, check_name

__all__ = ["ToolLike", "WorkbenchLike", "from_tool", "from_workbench"]

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
_FOR_ANYTHING = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)


@runtime_checkable
class ToolLike(Protocol):
    """What AutoGen's tools have."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def description(self) -> str:
        """What it is for."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """Its name, description and parameters, the latter as JSON Schema."""

    async def run_json(self, args: Mapping[str, Any], cancellation_token: Any) -> Any:
        """Run it."""


@runtime_checkable
class WorkbenchLike(Protocol):
    """What AutoGen's workbenches have."""

    async def list_tools(self) -> list[Any]:
        """The schemas of its tools."""

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, cancellation_token: Any = None
    ) -> Any:
        """Run one."""


class _Token:
    """Stands for AutoGen's `CancellationToken`: whoever runs a tool cancels its task, and needs no more than this."""

    def is_cancelled(self) -> bool:
        return False

    def cancel(self) -> None:
        raise RequestError("A tool cannot cancel the call that it answers.")

    def add_callback(self, callback: Callable[[], None]) -> None:
        """The task is cancelled instead."""

    def link_future(self, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        return future


def from_tool(tool: ToolLike) -> HostFunction:
    """A tool.

    Raises:
        RequestError: Its name cannot be made one of Python's.
    """
    name = _name(tool.name)
    schema = tool.schema.get("parameters") or {}
    signature = _own_signature(tool) or _signature(schema)
    args_type = _args_type(tool)

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bound = _bind(name, signature, args, kwargs)
        if isinstance(args_type, type) and issubclass(args_type, BaseModel):
            try:
                args_type.model_validate(bound)
            except ValidationError as error:
                raise misfit(name, error, signature) from None
        return Arguments((), bound)

    async def run(arguments: Arguments) -> Any:
        return await tool.run_json(arguments.kwargs, _Token())

    wrapped = getattr(tool, "_func", None)
    return HostFunction(
        name=name,
        signature=signature,
        doc=tool.description,
        is_async=inspect.iscoroutinefunction(wrapped),
        in_thread=False,
        check=check,
        run=run,
    )


async def from_workbench(workbench: WorkbenchLike) -> list[HostFunction]:
    """All tools of a workbench, in its order.

    Raises:
        RequestError: The name of one cannot be made one of Python's.
    """
    return [_from_schema(workbench, schema) for schema in await workbench.list_tools()]


def _from_schema(workbench: WorkbenchLike, told: Mapping[str, Any]) -> HostFunction:
    name, schema = _name(told["name"]), told.get("parameters") or {}
    signature = _signature(schema)
    validator_type = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    # Without a registry of its own it would fetch what the schema, which may be anybody's, refers to.
    validator = validator_type(schema, registry=referencing.Registry())

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bound = _bind(name, signature, args, kwargs)
        try:
            wrong = jsonschema.exceptions.best_match(validator.iter_errors(bound))
        except Exception as error:  # A schema may be wrong in any way.
            raise RuntimeError(
                f"{name}(): its arguments cannot be checked, since its schema is wrong: {error}"
            ) from None
        if wrong is not None:
            where = wrong.json_path.removeprefix("$").removeprefix(".")
            raise TypeError(f"{name}(): {where}: {wrong.message}" if where else f"{name}(): {wrong.message}")
        return Arguments((), bound)

    async def run(arguments: Arguments) -> Any:
        return _content(name, await workbench.call_tool(told["name"], arguments.kwargs, _Token()))

    doc = str(told.get("description") or "")
    return HostFunction(name, signature, doc, is_async=False, in_thread=False, check=check, run=run)


def _content(name: str, result: Any) -> Any:
    """What a tool of a workbench has answered: its text, or a list if there is more than one part."""
    parts = [_part(part) for part in result.result]
    if result.is_error:
        text = "\n".join(str(part) for part in parts).strip()
        raise RuntimeError(text or f"{name}() failed and did not say why")
    return parts[0] if len(parts) == 1 else parts


def _part(part: Any) -> Any:
    content = part.content
    if isinstance(content, str):
        return content
    encoded = getattr(content, "to_base64", None)
    return {"type": "image", "base64": encoded()} if callable(encoded) else str(content)


def _name(name: str) -> str:
    return check_name(re.sub(r"\W", "_", name))


def _args_type(tool: Any) -> Any:
    args_type = getattr(tool, "args_type", None)
    return args_type() if callable(args_type) else None


def _own_signature(tool: Any) -> inspect.Signature | None:
    """The signature of the function that a `FunctionTool` has, which tells more than its schema."""
    signature = getattr(tool, "_signature", None)
    if not isinstance(signature, inspect.Signature):
        return None
    parameters = [item for name, item in signature.parameters.items() if name != "cancellation_token"]
    return signature.replace(parameters=parameters)


def _signature(schema: Mapping[str, Any]) -> inspect.Signature:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    required = list(schema.get("required") or ())
    if not all(_is_parameter(name) for name in properties):
        return inspect.Signature([_FOR_ANYTHING])
    parameters = [_parameter(name, told, name in required) for name, told in properties.items()]
    parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    return inspect.Signature(parameters)


def _is_parameter(name: str) -> bool:
    try:
        return check_name(name) == name
    except RequestError:
        return False


def _parameter(name: str, told: Any, required: bool) -> inspect.Parameter:
    told = told if isinstance(told, Mapping) else {}
    default = inspect.Parameter.empty if required else told.get("default")
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=_type(told))


def _type(told: Mapping[str, Any]) -> str:
    if isinstance(told.get("enum"), list):
        return f"Literal[{', '.join(map(repr, told['enum']))}]"
    options = told.get("anyOf") or told.get("oneOf")
    if isinstance(options, list):
        return _union(_type(option) for option in options if isinstance(option, Mapping))
    kind = told.get("type")
    if isinstance(kind, list):
        return _union(_TYPES.get(str(item), "Any") for item in kind)
    if kind == "array" and isinstance(told.get("items"), Mapping):
        return f"list[{_type(told['items'])}]"
    return _TYPES.get(str(kind), "Any")


def _union(names: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(names)) or "Any"


def _bind(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = bind_arguments(name, signature, args, kwargs)
    return bound.get(_FOR_ANYTHING.name, {}) if _FOR_ANYTHING in signature.parameters.values() else bound
