"""LangChain: a tool that runs Python code in the sandbox, for `create_agent`, LangGraph and `bind_tools`.

    with CodeTool() as tool:
        agent = create_agent(model, [tool])
        agent.invoke({"messages": [("user", "...")]})

It works in threads and in event loops, with `invoke` and with `ainvoke`.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Annotated, Any

from pydantic import BaseModel, Field, PrivateAttr

from coderoom.integrations.tool import CODE, NAME, CodeSession, describe_tool, missing

try:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
except ImportError as error:
    raise missing("LangChain", "langchain") from error

__all__ = ["CodeTool"]


class Arguments(BaseModel):
    """What the model writes."""

    code: Annotated[str, Field(description=CODE)]


class CodeTool(
    BaseTool,  # type: ignore[misc, unused-ignore]
    AbstractContextManager["CodeTool"],
    AbstractAsyncContextManager["CodeTool"],
):
    """Runs Python code in a session of a sandbox, which lasts until `close`.

    Each `thread_id` of LangGraph has a session of its own; calls without one share a session.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    name: str = NAME
    description: str = describe_tool()
    args_schema: type[BaseModel] = Arguments
    _session: CodeSession = PrivateAttr()

    def __init__(self, **options: Any) -> None:
        super().__init__()
        if self.description == describe_tool():
            self.description = describe_tool(options)
        self._session = CodeSession(**options)

    def _run(self, code: str, config: RunnableConfig) -> str:
        return self._session.describe(self._session.run_blocking(code, _thread_of(config)))

    async def _arun(self, code: str, config: RunnableConfig) -> str:
        return await self._session.answer(code, _thread_of(config))

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _thread_of(config: RunnableConfig) -> str | None:
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)
