"""What LlamaIndex's example does not show: sessions of contexts, and a sandbox that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.workflow import Context
from llama_index.llms.openai import OpenAI

from coderoom.errors import SandboxUnavailable
from coderoom.integrations.llama_index import CodeActAgent, code_executor
from tests.integrations.inside.processes import descendants, kill
from tests.support.openai_server import OpenAIServer

# LlamaIndex says so of its own memory.
pytestmark = pytest.mark.filterwarnings("ignore:Skipping serialization")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def agent_of(server: OpenAIServer, execute: Any) -> CodeActAgent:
    return CodeActAgent(execute, llm=OpenAI("gpt-5-mini", api_base=server.base_url, api_key="test", max_retries=0))


async def test_contexts_have_sessions_of_their_own(server: OpenAIServer) -> None:
    with code_executor() as execute:
        agent = agent_of(server, execute)
        first, second = Context(agent), Context(agent)
        for context, code, text in ((first, "x = 1", "(no output)"), (second, "x", "NameError"), (first, "x", "1")):
            server.add(f"<execute>\n{code}\n</execute>", "Done.")
            await agent.run("Go on.", ctx=context)
            assert text in str(server.requests[-1].messages[-1]["content"])


async def test_broken_sandbox_ends_the_run(server: OpenAIServer) -> None:
    before = descendants()
    with code_executor() as execute:
        agent = agent_of(server, execute)
        context = Context(agent)
        server.add("<execute>\nx = 1\n</execute>", "Done.")
        await agent.run("Go on.", ctx=context)
        kill(descendants() - before)
        server.add("<execute>\nx\n</execute>")
        with pytest.raises(SandboxUnavailable):
            await agent.run("Go on.", ctx=context)
