"""Tools and workbenches of AutoGen, known by their shape, as functions of the host."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jsonschema
import referencing
from pydantic import BaseModel, ValidationError

from coderoom.errors import RequestError
from coderoom.sandbox._functions._callables import bind_arguments, misfit
from coderoom.sandbox._functions._function import Arguments, HostFunction, check_name
from coderoom.sandbox._functions._hints import resolve, show, without_remarks
from coderoom.sandbox._functions._shapes import Shapes
from coderoom.sandbox._functions._token import Token, without_token

__all__ = ["ToolLike", "WorkbenchLike", "from_tool", "from_workbench"]

Signed = tuple[inspect.Signature, inspect.Signature, tuple[str, ...]]
"""A signature, how a model is shown it, and what else there is to say of it."""

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


def from_tool(tool: ToolLike) -> HostFunction:
    """A tool.

    Raises:
        RequestError: Its name cannot be made one of Python's.
    """
    name = _name(tool.name)
    schema = tool.schema.get("parameters") or {}
    signature, shown, notes = _own_signature(tool) or _signature(schema)
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
        result = await tool.run_json(arguments.kwargs, Token())
        result = await result if inspect.isawaitable(result) else result
        return _from_mcp(result) if _is_mcp(result) else result

    wrapped = getattr(tool, "_func", None)
    return HostFunction(
        name=name,
        signature=signature,
        doc=tool.description,
        is_async=inspect.iscoroutinefunction(wrapped),
        in_thread=False,
        check=check,
        run=run,
        shown=shown,
        notes=notes,
    )


async def from_workbench(workbench: WorkbenchLike) -> list[HostFunction]:
    """All tools of a workbench, in its order.

    Raises:
        RequestError: The name of one cannot be made one of Python's.
    """
    tools = await workbench.list_tools()
    whole = await _mcp_schemas(workbench) if "$ref" in str(tools) else {}
    return [_from_schema(workbench, tool, whole.get(tool["name"])) for tool in tools]


async def _mcp_schemas(workbench: Any) -> dict[str, Mapping[str, Any]]:
    """The schemas of an MCP server's tools as the server gives them: AutoGen's lack what `$ref` refers to."""
    names = {original: name for name, original in getattr(workbench, "_override_name_to_original", {}).items()}
    try:
        answer = await (await workbench._actor.call("list_tools", None))
        return {names.get(tool.name, tool.name): tool.inputSchema for tool in answer.tools}
    except Exception:  # It is none of an MCP server, or another version of it.
        return {}


def _from_schema(
    workbench: WorkbenchLike, told: Mapping[str, Any], whole: Mapping[str, Any] | None = None
) -> HostFunction:
    name, schema = _name(told["name"]), told.get("parameters") or {}
    if whole is not None:
        schema = {**{key: whole[key] for key in ("$defs", "definitions") if key in whole}, **schema}
    signature, shown, notes = _signature(schema)
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
        return _content(name, await workbench.call_tool(told["name"], arguments.kwargs, Token()))

    doc = str(told.get("description") or "")
    return HostFunction(
        name,
        signature,
        doc,
        is_async=False,
        in_thread=False,
        check=check,
        run=run,
        shown=shown,
        notes=notes,
        gives_text=True,
    )


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


def _is_mcp(result: Any) -> bool:
    """Whether it is what AutoGen's adapters of an MCP server's tools return: a list of the protocol's own objects."""
    return (
        isinstance(result, list)
        and bool(result)
        and all(isinstance(part, BaseModel) and type(part).__module__.partition(".")[0] == "mcp" for part in result)
    )


def _from_mcp(result: list[Any]) -> Any:
    """The same as the server's workbench would answer."""
    parts = [_mcp_part(part) for part in result]
    return parts[0] if len(parts) == 1 else parts


def _mcp_part(part: Any) -> Any:
    if part.type == "text":
        return part.text
    return {"type": "image", "base64": part.data} if part.type == "image" else part.model_dump_json()


def _name(name: str) -> str:
    return check_name(re.sub(r"\W", "_", name))


def _args_type(tool: Any) -> Any:
    args_type = getattr(tool, "args_type", None)
    return args_type() if callable(args_type) else None


def _own_signature(tool: Any) -> Signed | None:
    """The signature of the function that a `FunctionTool` has, which tells more than its schema."""
    signature = getattr(tool, "_signature", None)
    if not isinstance(signature, inspect.Signature):
        return None
    signature = without_token(signature)
    function = getattr(tool, "_func", None)
    resolved = resolve(function, signature) if callable(function) else signature
    return without_remarks(signature, resolved), *show(signature, resolved)


def _signature(schema: Mapping[str, Any]) -> Signed:
    shapes = Shapes()
    shapes.use(schema)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    required = list(schema.get("required") or ())
    for name, told in properties.items():
        shapes.note(str(name), told)
    if not all(_is_parameter(name) for name in properties):
        signature = inspect.Signature([_FOR_ANYTHING])
        return signature, signature, shapes.told()
    parameters = [_parameter(name, told, name in required, shapes) for name, told in properties.items()]
    parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    signature = inspect.Signature(parameters)
    return signature, signature, shapes.told()


def _is_parameter(name: str) -> bool:
    try:
        return check_name(name) == name
    except RequestError:
        return False


def _parameter(name: str, told: Any, required: bool, shapes: Shapes) -> inspect.Parameter:
    told = told if isinstance(told, Mapping) else {}
    default = inspect.Parameter.empty if required else told.get("default")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=shapes.type_of(told))


def _bind(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = bind_arguments(name, signature, args, kwargs)
    return bound.get(_FOR_ANYTHING.name, {}) if _FOR_ANYTHING in signature.parameters.values() else bound
