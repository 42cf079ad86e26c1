"""Tools of AutoGen, known by their shape, as functions of the host."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ValidationError

from coderoom.executors.autogen_tools.token import Token, without_token
from coderoom.sandbox.functions import (
    Arguments,
    HostFunction,
    Signed,
    bind,
    misfit,
    resolve,
    show,
    sign,
    tool_name,
    without_remarks,
)

__all__ = ["ToolLike", "from_tool"]


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


def from_tool(tool: ToolLike) -> HostFunction:
    """A tool.

    Raises:
        RequestError: Its name cannot be made one of Python's.
    """
    name = tool_name(tool.name)
    schema = tool.schema.get("parameters") or {}
    signature, shown, notes = _own_signature(tool) or sign(schema)
    args_type = _args_type(tool)

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bound = bind(name, signature, args, kwargs)
        if isinstance(args_type, type) and issubclass(args_type, BaseModel):
            try:
                args_type.model_validate(bound)
            except ValidationError as error:
                raise misfit(name, error, signature) from None
        return Arguments((), bound)

    async def run(arguments: Arguments) -> Any:
        try:
            result = await tool.run_json(arguments.kwargs, Token())
        except ExceptionGroup as error:
            raise _from_group(error) from None
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
        gives_text=hasattr(tool, "_server_params"),
    )


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


def _from_group(error: Exception) -> Exception:
    """What an MCP server's tool has failed with; AutoGen's adapters raise it in groups, and as JSON."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    try:
        parts = json.loads(str(error))
        return RuntimeError("\n".join(part["text"] for part in parts))
    except (ValueError, TypeError, KeyError):
        return error


def _mcp_part(part: Any) -> Any:
    if part.type == "text":
        return part.text
    return {"type": "image", "base64": part.data} if part.type == "image" else part.model_dump_json()


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
