"""A sandbox agent of the OpenAI Agents SDK, whose sandbox is CodeRoom's.

It needs `pip install 'coderoom[openai-agents]'` and a key.
"""

import asyncio

from agents import RunConfig, Runner, set_default_openai_api
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File

from coderoom.integrations.openai_sandbox import CodeRoomSandboxClient

set_default_openai_api("chat_completions")


async def main() -> None:
    """Have an agent count the lines of a file."""
    agent = SandboxAgent(
        name="coder",
        model="gpt-5-mini",
        capabilities=[Shell()],
        default_manifest=Manifest(entries={"poem.txt": File(content=b"one\ntwo\nthree\n")}),
    )
    with CodeRoomSandboxClient(limits={"wall_seconds": 60}) as client:
        config = RunConfig(sandbox=SandboxRunConfig(client=client))
        result = await Runner.run(agent, "How many lines has poem.txt?", run_config=config)
        print(result.final_output)


asyncio.run(main())
