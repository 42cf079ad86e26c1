"""Running code in the sandbox's executor, for tests."""

from __future__ import annotations

import asyncio

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from coderoom.executors import SandboxCodeResult
from tests.executors.helpers import python

# A team file; the key is in its tenth line.
TEAM = """\
provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: coderoom.agents.CodeExecutorAgent
      config:
        name: runner
        code_executor:
          provider: coderoom.executors.SandboxCodeExecutor
          config:
            {key}: {value}
"""


async def run(executor: CodeExecutor, *blocks: CodeBlock | str) -> SandboxCodeResult:
    async with asyncio.timeout(60):
        wanted = [python(block) if isinstance(block, str) else block for block in blocks]
        result = await executor.execute_code_blocks(wanted, CancellationToken())
    assert isinstance(result, SandboxCodeResult)
    assert (result.exit_code, result.output) == (result.execution.exit_code, result.execution.output)
    return result
