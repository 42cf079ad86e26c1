"""LlamaIndex: an executor for `CodeActAgent` that runs its code in a sandbox.

    with code_executor([add]) as execute:
        agent = CodeActAgent(execute, tools=[add], llm=llm)
        context = Context(agent)
        await agent.run("...", ctx=context)
        await agent.run("...", ctx=context)  # Goes on with its variables.

`CodeActAgent` of this module is LlamaIndex's, whose run a broken sandbox ends; its own shows that to the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from coderoom.errors import SandboxUnavailable
from coderoom.integrations.tool import CodeSession, missing

try:
    from llama_index.core.agent import workflow
    from llama_index.core.tools import FunctionTool
    from llama_index.core.workflow import Context
except ImportError as error:
    raise missing("LlamaIndex", "llama-index") from error

__all__ = ["CodeActAgent", "code_executor"]

_KEY: Final = "coderoom_conversation"


class CodeActAgent(workflow.CodeActAgent):  # type: ignore[misc, unused-ignore]
    """LlamaIndex's `CodeActAgent`; a broken sandbox ends its run with `SandboxUnavailable`."""

    async def handle_tool_call_results(self, ctx: Context, results: list[Any], memory: Any) -> None:
        """See `CodeActAgent`."""
        for each in results:
            if isinstance(each.tool_output.exception, SandboxUnavailable):
                raise each.tool_output.exception
        await super().handle_tool_call_results(ctx, results, memory)


@contextmanager
def code_executor(tools: Sequence[Any] = (), **options: Any) -> Iterator[Callable[..., Awaitable[str]]]:
    """Make a `code_execute_fn`, with a session of a sandbox for each context of the agent's runs.

    Runs with the same `ctx=` go on with the variables of the one before; others do not see them.

    Args:
        tools: The agent's tools, which the code calls: functions and `FunctionTool`s. They run on the host.
        options: Arguments of `coderoom.sandbox.Sandbox`.

    Yields:
        The function.
    """
    functions = [each.real_fn if isinstance(each, FunctionTool) else each for each in tools]
    with CodeSession(functions, **options) as session:

        async def execute(ctx: Context, code: str) -> str:
            conversation = await ctx.store.get(_KEY, default=None)
            if conversation is None:
                await ctx.store.set(_KEY, conversation := uuid4().hex)
            return await session.answer(code, conversation)

        # LlamaIndex reads the class of the context from here.
        execute.__annotations__ = {"ctx": Context, "code": str, "return": str}
        yield execute
