"""AutoGen's tools and workbenches, and functions that take its cancellation token, as functions of the host.

It is an entry point, which `coderoom.sandbox` loads when a session is offered something and AutoGen is imported. A call
is cancelled through its task; the token that a tool gets is never cancelled.
"""

from __future__ import annotations

import functools
import inspect
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jsonschema
import referencing
from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, Tool, Workbench
from pydantic import AliasChoices, BaseModel, ValidationError

from coderoom._util.autogen import function_of, is_started, mcp_tool_of, mcp_tools, server_params_of, tools_of
from coderoom.errors import CodeRoomError, RequestError
from coderoom.sandbox.functions.callables import LateFunctions, effect_of, from_callable, misfit, read_signature
from coderoom.sandbox.functions.effects import Effect, decorated_effect
from coderoom.sandbox.functions.function import Arguments, HostFunction
from coderoom.sandbox.functions.schemas import bind, sign, tool_name, unsigned_defaults

TOKEN = "cancellation_token"
"""The parameter's name, by which AutoGen's `FunctionTool` knows it."""


def from_tool(tool: Tool) -> HostFunction:
    """Return a tool as a function of the host."""
    name = tool_name(tool.name)
    schema: Mapping[str, Any] = tool.schema.get("parameters") or {}
    wrapped, own = function_of(tool)
    if own is None:
        signature, shown, notes = sign(schema)
    else:  # The signature of the function of a `FunctionTool` has more details than its schema.
        parameters = [each for name, each in own.parameters.items() if name != TOKEN]
        signature, shown, notes = read_signature(wrapped, own.replace(parameters=parameters))[1]
    args_type = tool.args_type() if isinstance(tool, BaseTool) else None
    offered = schema.get("properties") or {}
    defaults = {name: each.default for name, each in signature.parameters.items()}

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bound = bind(name, signature, args, kwargs)
        if isinstance(args_type, type) and issubclass(args_type, BaseModel):
            try:
                checked = args_type.model_validate(bound)
                if args_type.model_validate(bound) != checked:
                    bound = _with_defaults(checked) or bound
            except ValidationError as error:
                raise misfit(name, error, signature) from error
            known = _by_names(checked)
            seen = {
                key: known[key]
                for key in known
                if key in bound or (key in offered and (key not in defaults or known[key] != defaults[key]))
            }
            return Arguments((), bound, seen=bound | seen)
        return Arguments((), bound)

    async def run(arguments: Arguments) -> Any:
        try:
            result = await tool.run_json(arguments.kwargs, CancellationToken())
        except ExceptionGroup as error:
            raise _from_group(error) from None
        result = await result if inspect.isawaitable(result) else result
        # An MCP server's tool returns a list of objects of the protocol.
        if not (isinstance(result, list) and result) or not all(
            isinstance(part, BaseModel) and type(part).__module__.partition(".")[0] == "mcp" for part in result
        ):
            return result
        parts: list[Any] = []
        for part in result:
            image = {"type": "image", "base64": part.data} if part.type == "image" else part.model_dump_json()
            parts.append(part.text if part.type == "text" else image)
        return parts[0] if len(parts) == 1 else parts  # As the server's workbench returns them.

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
        gives_text=server_params_of(tool) is not None,
        effect=effect_of_tool(tool),
    )


def _by_names(checked: BaseModel) -> dict[str, Any]:
    """The fields of checked arguments by all names that they can come with."""
    fields = type(checked).model_fields
    found = {name: getattr(checked, name) for name in fields}
    aliases: dict[str, Any] = {}
    for name, field in fields.items():
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        aliases |= {each: found[name] for each in choices if isinstance(each, str)}
    return found | aliases


def _with_defaults(checked: BaseModel) -> dict[str, Any]:
    """Checked arguments with what is new each time they are checked, such as an id; empty if that cannot be given."""
    with suppress(Exception):  # A field can be of any class.
        data = checked.model_dump(mode="json", by_alias=True)
        if type(checked).model_validate(data) == checked:
            return data
    return {}


def effect_of_tool(tool: object) -> Effect | None:
    """The effect that a tool declares, or its function or its `run`; or that an MCP server hints at."""
    function, signature = function_of(tool)
    if signature is None and callable(function := getattr(tool, "run", None)):
        signature = inspect.signature(function)
    declared = decorated_effect(tool) or (None if signature is None else effect_of(function, signature))
    return declared or _hint(mcp_tool_of(tool))


def _hint(tool: Any) -> Effect | None:
    """What an MCP server says of its tool, if it says anything."""
    said = getattr(tool, "annotations", None)
    if getattr(said, "readOnlyHint", None):
        return Effect("read", is_hint=True)
    # A server that says that its tool is not read-only says that it writes.
    writes = getattr(said, "destructiveHint", None) or getattr(said, "readOnlyHint", None) is False
    return Effect("write", is_hint=True) if writes else None


def _from_group(error: Exception) -> Exception:
    """The error of an MCP server's tool; AutoGen raises it in exception groups, and as JSON."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    try:
        parts = json.loads(str(error))
        return RuntimeError("\n".join(part["text"] for part in parts))
    except (ValueError, TypeError, KeyError):
        return error


async def from_workbench(workbench: Workbench) -> list[HostFunction]:
    """Return all tools of a workbench in its order. AutoGen's workbenches start for that."""
    started = is_started(workbench)
    try:
        if not started:
            await workbench.start()
        tools = await workbench.list_tools()
        served = await mcp_tools(workbench)
    except CodeRoomError:
        raise
    except Exception as error:
        if not started:  # Otherwise it would count as started from now on.
            with suppress(Exception):
                await workbench.stop()
        again = ", or stop it and start it again if its server has ended" if is_started(workbench) else ""
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        cause = f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
        raise RequestError(
            f"The workbench {type(workbench).__name__!r} cannot be used, since it does not list its tools ({cause}). "
            f"Check its settings, and that {_server_of(workbench)} can be started and reached{again}."
        ) from error
    effects = {name: effect_of_tool(tool) for name, tool in tools_of(workbench).items()}
    effects |= {name: _hint(tool) for name, tool in served.items()}
    whole = {name: tool.inputSchema for name, tool in served.items()}
    found = [(tool["name"], _from_schema(workbench, tool, whole.get(tool["name"]))) for tool in tools]
    return [replace(function, effect=effects.get(name)) for name, function in found]


def _server_of(workbench: object) -> str:
    params = server_params_of(workbench)
    command, url = getattr(params, "command", None), getattr(params, "url", None)
    if isinstance(command, str):
        return f"its server `{shlex.join([command, *map(str, getattr(params, 'args', None) or ())])}`"
    return f"its server at {url.partition('?')[0]}" if isinstance(url, str) else "its server"


def _name_in(workbench: Workbench, name: str) -> str:
    try:
        return tool_name(name)
    except RequestError as error:
        another = f"tool_{name.strip('_')}"
        raise RequestError(
            f"The tool {name!r} of the workbench {type(workbench).__name__!r} cannot be offered, since that is not "
            "a Python name. Give it another one where the workbench is created: "
            f"tool_overrides={{{name!r}: ToolOverride(name={another!r})}}."
        ) from error


def _from_schema(workbench: Workbench, tool: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> HostFunction:
    name, schema = _name_in(workbench, tool["name"]), tool.get("parameters") or {}
    if whole is not None:
        schema = {**{key: whole[key] for key in ("$defs", "definitions") if key in whole}, **schema}
    signature, shown, notes = sign(schema)
    defaults = unsigned_defaults(schema, signature)
    validator_type = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    # Without its own registry it would fetch the references of an untrusted schema from the network.
    validator = validator_type(schema, registry=referencing.Registry())

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bound = bind(name, signature, args, kwargs)
        try:
            wrong = jsonschema.exceptions.best_match(validator.iter_errors(bound))
        except Exception as error:  # A schema can be wrong in any way.
            raise RuntimeError(
                f"{name}(): its arguments cannot be checked, since its schema is wrong: {error}"
            ) from None
        if wrong is not None:
            where = wrong.json_path.removeprefix("$").removeprefix(".")
            text = f"{name}(): {where}: {wrong.message}" if where else f"{name}(): {wrong.message}"
            raise TypeError(text) from wrong
        return Arguments((), bound, seen=defaults | bound)

    async def run(arguments: Arguments) -> Any:
        return _content(workbench, name, await workbench.call_tool(tool["name"], arguments.kwargs, CancellationToken()))

    doc = str(tool.get("description") or "")
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


def _content(workbench: Workbench, name: str, result: Any) -> Any:
    """The result of a workbench's tool: its text, or a list if it has several parts."""
    parts = [_part(part) for part in result.result]
    if result.is_error:
        text = "\n".join(str(part) for part in parts).strip()
        silent = f"{name}() failed and did not say why; perhaps {_server_of(workbench)} has ended"
        raise RuntimeError(text or silent)
    return parts[0] if len(parts) == 1 else parts


def _part(part: Any) -> Any:
    content = part.content
    if isinstance(content, str):
        return content
    encoded = getattr(content, "to_base64", None)
    return {"type": "image", "base64": encoded()} if callable(encoded) else str(content)


def adapt(item: Any) -> HostFunction | LateFunctions | None:
    """Return the function of the host for an object of AutoGen's; `None` for other objects."""
    if isinstance(item, Workbench):
        return functools.partial(from_workbench, item)
    if isinstance(item, Tool):
        return from_tool(item)
    with suppress(TypeError, ValueError):  # Some functions written in C have no signature.
        parameter = inspect.signature(item).parameters.get(TOKEN) if callable(item) else None
        if parameter is not None and "CancellationToken" in str(parameter.annotation):
            return from_callable(item, {TOKEN: CancellationToken})
    return None
