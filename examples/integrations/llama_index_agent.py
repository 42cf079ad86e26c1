"""LlamaIndex's CodeActAgent, whose code runs in the sandbox, and calls a tool that runs here.

It needs `pip install 'coderoom[llama-index]' llama-index-llms-openai` and a key.
"""

import asyncio

from llama_index.core.workflow import Context
from llama_index.llms.openai import OpenAI

from coderoom.integrations.llama_index import CodeActAgent, code_executor


def limit_of(name: str) -> int:
    """The number of a name, such as "thousand"."""
    return {"hundred": 100, "thousand": 1000}[name]


async def main() -> None:
    """Ask twice; the second run has the variables of the first one."""
    with code_executor([limit_of], limits={"wall_seconds": 30}) as execute:
        agent = CodeActAgent(execute, tools=[limit_of], llm=OpenAI("gpt-5-mini"))
        context = Context(agent)
        print(await agent.run("How many primes are there below a thousand?", ctx=context))
        print(await agent.run("What is their sum?", ctx=context))


asyncio.run(main())
