"""Calls of tools by AutoGen's agents as steps."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import wraps
from typing import Any, Final

from autogen_core.tools import ToolResult

from coderoom._util.autogen import streams
from coderoom.steps import once

_WATCHED: Final = "coderoom_watched"


def watch_tools(workbench: Any) -> None:
    """Make each call of a tool a step, from now on; an agent or a team that is a tool has steps of its own."""
    call_tool: Callable[..., Awaitable[ToolResult]] = workbench.call_tool
    stream: Any = getattr(workbench, "call_tool_stream", None)
    if hasattr(call_tool, _WATCHED):
        return

    @wraps(call_tool)
    async def called(name: str, arguments: Mapping[str, Any] | None = None, *rest: Any, **more: Any) -> ToolResult:
        def call() -> Awaitable[ToolResult]:
            return call_tool(name, arguments, *rest, **more)

        if streams(workbench, name):
            return await call()
        request = {"name": name, "arguments": json.dumps(arguments, sort_keys=True, default=str)}
        return await once("call", request, call, _dump_result, ToolResult.model_validate)

    async def streamed(name: str, *arguments: Any, **more: Any) -> AsyncGenerator[Any, None]:
        if not streams(workbench, name):
            yield await called(name, *arguments, **more)
            return
        async with aclosing(stream(name, *arguments, **more)) as items:
            async for item in items:
                yield item

    setattr(called, _WATCHED, True)
    workbench.call_tool = called
    if stream is not None:
        workbench.call_tool_stream = streamed


def _dump_result(result: ToolResult) -> dict[str, Any]:
    return {**result.model_dump(mode="json"), "value": result.to_text("[image]")}
