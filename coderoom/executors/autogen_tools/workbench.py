"""Workbenches of AutoGen, known by their shape, as functions of the host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import jsonschema
import referencing

from coderoom.errors import CodeRoomError, RequestError
from coderoom.executors.autogen_tools.token import Token
from coderoom.sandbox.functions import Arguments, HostFunction, bind, sign, tool_name

__all__ = ["WorkbenchLike", "from_workbench"]


@runtime_checkable
class WorkbenchLike(Protocol):
    """What AutoGen's workbenches have."""

    async def list_tools(self) -> list[Any]:
        """The schemas of its tools."""

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, cancellation_token: Any = None
    ) -> Any:
        """Run one."""


async def from_workbench(workbench: WorkbenchLike) -> list[HostFunction]:
    """All tools of a workbench, in its order. AutoGen's start for that if they have not been started.

    Raises:
        RequestError: It cannot be started or does not answer, or the name of a tool cannot be made one of Python's.
    """
    started = _is_started(workbench)
    try:
        tools = await workbench.list_tools()
    except CodeRoomError:
        raise
    except Exception as error:
        if not started:  # Else it would never be tried again.
            with suppress(Exception):
                await workbench.stop()  # type: ignore[attr-defined]
        raise _unusable(workbench, error) from error
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


def _unusable(workbench: object, error: BaseException) -> RequestError:
    """What is raised for a workbench that does not tell its tools."""
    again = ", or stop it and start it again if its server has ended" if _is_started(workbench) else ""
    return RequestError(
        f"The workbench {type(workbench).__name__!r} cannot be used, since it does not tell its tools "
        f"({_cause(error)}). Check its settings, and that {_server_of(workbench)} can be started and reached{again}."
    )


def _is_started(workbench: object) -> bool:
    # AutoGen's keeps that to itself, under this name.
    return getattr(workbench, "_actor", None) is not None


def _server_of(workbench: object) -> str:
    params = getattr(workbench, "_server_params", None)
    command, url = getattr(params, "command", None), getattr(params, "url", None)
    if isinstance(command, str):
        return f"its server `{shlex.join([command, *map(str, getattr(params, 'args', None) or ())])}`"
    return f"its server at {url.partition('?')[0]}" if isinstance(url, str) else "its server"


def _cause(error: BaseException) -> str:
    """What was raised, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _name_in(workbench: WorkbenchLike, name: str) -> str:
    try:
        return tool_name(name)
    except RequestError as error:
        raise RequestError(
            f"The tool {name!r} of the workbench {type(workbench).__name__!r} cannot be offered, since that is no name "
            "that code can call. Give it another one where the workbench is made: "
            f"tool_overrides={{{name!r}: ToolOverride(name={_another(name)!r})}}."
        ) from error


def _another(name: str) -> str:
    return f"tool_{name.strip('_')}"


def _from_schema(
    workbench: WorkbenchLike, told: Mapping[str, Any], whole: Mapping[str, Any] | None = None
) -> HostFunction:
    name, schema = _name_in(workbench, told["name"]), told.get("parameters") or {}
    if whole is not None:
        schema = {**{key: whole[key] for key in ("$defs", "definitions") if key in whole}, **schema}
    signature, shown, notes = sign(schema)
    validator_type = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    # Without a registry of its own it would fetch what the schema, which may be anybody's, refers to.
    validator = validator_type(schema, registry=referencing.Registry())

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bound = bind(name, signature, args, kwargs)
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
        return _content(workbench, name, await workbench.call_tool(told["name"], arguments.kwargs, Token()))

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


def _content(workbench: WorkbenchLike, name: str, result: Any) -> Any:
    """What a tool of a workbench has answered: its text, or a list if there is more than one part."""
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
