"""Pydantic AI: a toolset with a tool that runs Python code in the sandbox.

    agent = Agent(model, toolsets=[CodeToolset()])
    async with agent:  # Without this, the session of a run ends with it.
        result = await agent.run("...")
        await agent.run("...", message_history=result.all_messages())  # Goes on with its session.

Agents and runs that share the toolset do not see each other's variables.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Self

from pydantic import Field

from coderoom.errors import RequestError
from coderoom.integrations.tool import CODE, NAME, CodeSession, describe_tool, missing
from coderoom.sandbox import Sandbox

try:
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset
except ImportError as error:
    raise missing("Pydantic AI", "pydantic-ai") from error

__all__ = ["CodeToolset"]


class CodeToolset(FunctionToolset):  # type: ignore[misc, type-arg, unused-ignore]
    """Runs Python code in a sandbox, in a session for each run.

    While the toolset is entered, a run that continues a conversation has its session, unless another run uses it. A
    broken sandbox ends the agent's run with `SandboxUnavailable`; it is no answer of the tool.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.

    Raises:
        RequestError: The sandbox does not take such options.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        Sandbox(**options)  # Wrong options are refused now.
        self._options = options
        self._session: CodeSession | None = None
        self._users = 0
        self._runs: dict[str | None, str | None] = {}
        self.add_function(self._run, name=NAME, description=describe_tool(options))

    async def _run(self, ctx: RunContext[Any], code: Annotated[str, Field(description=CODE)]) -> str:
        if self._session is None:
            raise RequestError("The toolset is not entered: use it in an agent, or with `async with`.")
        return await self._session.answer(code, self._runs.get(ctx.run_id))

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """The toolset of one run; see `AbstractToolset`."""
        return _OneRun(self, ctx.run_id, ctx.conversation_id)

    async def begin_run(self, run: str | None, conversation: str | None) -> None:
        """Give a run the session of its conversation, or if another run has it, one of its own."""
        await self.__aenter__()
        self._runs[run] = run if conversation in self._runs.values() else conversation

    async def end_run(self, run: str | None) -> None:
        """Take back the session of a run."""
        if self._session is not None and self._runs.pop(run, None) == run:
            await self._session.end(run)
        await self.__aexit__()

    async def __aenter__(self) -> Self:
        self._session = self._session or CodeSession(**self._options)
        self._users += 1
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._users -= 1
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            await asyncio.to_thread(session.close)


class _OneRun(WrapperToolset):  # type: ignore[misc, type-arg, unused-ignore]
    def __init__(self, toolset: CodeToolset, run: str | None, conversation: str | None) -> None:
        super().__init__(toolset)
        self._toolset = toolset
        self._run = run
        self._conversation = conversation

    async def __aenter__(self) -> Self:
        await self._toolset.begin_run(self._run, self._conversation)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._toolset.end_run(self._run)
