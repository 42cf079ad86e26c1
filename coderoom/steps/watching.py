"""Live objects whose work becomes steps: tools, executors, conversations and questions.

Those of models are in `coderoom.models`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from functools import wraps
from typing import Any, Final

from autogen_core.code_executor import CodeResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage, UserMessage
from autogen_core.tools import ToolResult

from coderoom._util.autogen import current_agent, streams
from coderoom._util.terminal import asking
from coderoom.steps import CODE, SETTLE_SECONDS, hear, once, write_step

_WATCHED: Final = "coderoom_watched"

Undo = Callable[[], None]


def put(owner: Any, make: Callable[[], Mapping[str, Any]]) -> Undo:
    """Put other methods in the place of an object's own, until all who asked for it have undone it.

    Args:
        owner: The object.
        make: Makes the methods by their names, if nobody has before.

    Returns:
        What undoes it.
    """
    shared = vars(owner).get(_WATCHED)
    if shared is None:
        methods = make()
        shared = {"before": {name: vars(owner).get(name) for name in methods}, "count": 0}
        vars(owner).update(methods, **{_WATCHED: shared})
    shared["count"] += 1

    def undo() -> None:
        shared["count"] -= 1
        if not shared["count"]:
            del vars(owner)[_WATCHED]
            for name, before in shared["before"].items():
                if before is None:
                    del vars(owner)[name]
                else:
                    vars(owner)[name] = before

    return undo


def watch_tools(workbench: Any) -> Undo:
    """Make each call of a tool a step; an agent or a team that is a tool has steps of its own."""
    call_tool: Callable[..., Awaitable[ToolResult]] = workbench.call_tool
    stream: Any = getattr(workbench, "call_tool_stream", None)

    def dump(result: ToolResult) -> dict[str, Any]:
        return {**result.model_dump(mode="json"), "value": result.to_text("[image]")}

    @wraps(call_tool)
    async def called(name: str, arguments: Mapping[str, Any] | None = None, *rest: Any, **more: Any) -> ToolResult:
        def call() -> Awaitable[ToolResult]:
            return call_tool(name, arguments, *rest, **more)

        if streams(workbench, name):
            return await call()
        request = {"name": name, "arguments": json.dumps(arguments, sort_keys=True, default=str)}
        return await once("call", request, call, dump, ToolResult.model_validate)

    async def streamed(name: str, *arguments: Any, **more: Any) -> AsyncGenerator[Any, None]:
        if not streams(workbench, name):
            yield await called(name, *arguments, **more)
            return
        async with aclosing(stream(name, *arguments, **more)) as items:
            async for item in items:
                yield item

    return put(workbench, lambda: {"call_tool": called} | ({} if stream is None else {"call_tool_stream": streamed}))


def watch_executor(executor: Any) -> Undo:
    """Make each run of code a step: for agents of AutoGen, since ours do so themselves."""
    execute = executor.execute_code_blocks
    is_live = "on_output" in inspect.signature(execute).parameters

    @wraps(execute)
    async def executed(*arguments: Any, **named: Any) -> CodeResult:
        blocks = arguments[0] if arguments else named["code_blocks"]
        agent = current_agent()
        live = {"on_output": lambda chunk: write_step(agent, chunk.text)} if is_live else {}
        result: CodeResult = await once(
            CODE,
            {"blocks": [[block.language, block.code] for block in blocks]},
            lambda: execute(*arguments, **named, **live),
            _dump,
            lambda known: CodeResult(known["exit_code"], known["output"]),
        )
        return result

    return put(executor, lambda: {"execute_code_blocks": executed})


def watch_context(context: ChatCompletionContext) -> Undo:
    """Add what a person says while the team works, before each request: for agents of AutoGen."""
    get_messages = context.get_messages

    @wraps(get_messages)
    async def got() -> list[LLMMessage]:
        for text in await hear(get_messages):
            await context.add_message(UserMessage(content=text, source="user"))
        return await get_messages()

    return put(context, lambda: {"get_messages": got})


def _dump(result: CodeResult) -> dict[str, Any]:
    network = getattr(getattr(result, "execution", None), "network", ())  # Of a sandbox.
    return {"exit_code": result.exit_code, "output": result.output, "network": [asdict(use) for use in network]}


def watch_questions(agent: Any) -> Undo:
    """Make each question that AutoGen's agent asks a person a step."""
    ask = agent.input_func

    async def asked(*arguments: Any, **named: Any) -> str:
        async def ask_now() -> str:
            await asyncio.sleep(SETTLE_SECONDS)
            async with asking():
                answer: str = await ask(*arguments, **named)
            return answer

        return await once("input", {}, ask_now, str, str)

    return put(agent, lambda: {"input_func": asked})
