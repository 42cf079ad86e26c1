"""Microsoft Agent Framework: a tool that runs Python code in the sandbox.

    with code_tool() as tool:
        agent = Agent(client, tools=[tool])
        response = await agent.run("...")

Variables last from call to call, and from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from coderoom.errors import SandboxUnavailable
from coderoom.integrations.tool import CODE, NAME, CodeSession, describe_tool, missing

try:
    from agent_framework import FunctionInvocationContext, FunctionTool, MiddlewareFailure, tool
except ImportError as error:
    raise missing("Microsoft Agent Framework", "agent-framework") from error

__all__ = ["code_tool"]


@contextmanager
def code_tool(**options: Any) -> Iterator[FunctionTool]:
    """Make a tool with a session of a sandbox, which ends with the context.

    Each `AgentSession` has a session of its own, which others do not see; runs without one share a session.

    A broken sandbox ends the agent's run with `MiddlewareFailure`; other exceptions would be shown to the model.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.

    Yields:
        The tool.
    """
    with CodeSession(**options) as session:

        async def run(code: Annotated[str, CODE], context: FunctionInvocationContext) -> str:
            try:
                return await session.answer(code, context.session and context.session.session_id)
            except SandboxUnavailable as error:
                raise MiddlewareFailure(str(error)) from error

        yield tool(run, name=NAME, description=describe_tool(options))
