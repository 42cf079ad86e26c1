"""Pydantic AI: a toolset with a tool that runs Python code in the sandbox.

    agent = Agent(model, toolsets=[CodeToolset()])
    async with agent:  # One session for all runs inside; without this, each run has its own.
        await agent.run("...")

The toolset can be shared by agents, which then share the session, too.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Self

from pydantic import Field

from coderoom.errors import RequestError
from coderoom.integrations.tool import CODE, DESCRIPTION, NAME, CodeSession, missing

try:
    from pydantic_ai.toolsets import FunctionToolset
except ImportError as error:
    raise missing("Pydantic AI", "pydantic-ai") from error

__all__ = ["CodeToolset"]


class CodeToolset(FunctionToolset):  # type: ignore[misc, type-arg, unused-ignore]
    """Runs Python code in a session of a sandbox, which ends when nobody uses the toolset any more.

    A broken sandbox ends the agent's run with `SandboxUnavailable`; it is no answer of the tool.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._session: CodeSession | None = None
        self._users = 0
        self.add_function(self._run, name=NAME, description=DESCRIPTION)

    async def _run(self, code: Annotated[str, Field(description=CODE)]) -> str:
        if self._session is None:
            raise RequestError("The toolset is not entered: use it in an agent, or with `async with`.")
        return await self._session.answer(code)

    async def __aenter__(self) -> Self:
        self._session = self._session or CodeSession(**self._options)
        self._users += 1
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._users -= 1
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            await asyncio.to_thread(session.close)
