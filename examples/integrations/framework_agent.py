"""An agent of Microsoft Agent Framework that runs code.

It needs `pip install 'coderoom[agent-framework]' agent-framework-openai` and a key.
"""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

from coderoom.integrations.agent_framework import code_tool


async def main() -> None:
    """Ask the agent."""
    with code_tool() as tool:
        agent = Agent(OpenAIChatCompletionClient(model="gpt-5-mini"), tools=[tool])
        response = await agent.run("How many primes are there below a thousand?")
        print(response.text)


asyncio.run(main())
