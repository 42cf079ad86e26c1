"""OpenAI Agents SDK: a tool that runs Python code in the sandbox.

    with code_tool() as tool:
        agent = Agent("coder", tools=[tool])
        result = await Runner.run(agent, "...")

Variables last from call to call, and from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from coderoom.integrations.tool import CODE, NAME, CodeSession, describe_tool, missing

try:
    from agents import FunctionTool, RunContextWrapper, function_tool
except ImportError as error:
    raise missing("The OpenAI Agents SDK", "openai-agents") from error

__all__ = ["code_tool"]


@contextmanager
def code_tool(**options: Any) -> Iterator[FunctionTool]:
    """Make a tool with a session of a sandbox, which ends with the context.

    Runs with the same `context` share a session, which others do not see; so do all runs without one.

    A broken sandbox ends the agent's run with the SDK's `UserError`, whose `__cause__` is `SandboxUnavailable`.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.

    Yields:
        The tool.
    """
    with CodeSession(**options) as session:

        async def run(context: RunContextWrapper[Any], code: Annotated[str, CODE]) -> str:
            return await session.answer(code, context.context)

        words = describe_tool(options)
        yield function_tool(run, name_override=NAME, description_override=words, failure_error_function=None)
