"""Sandboxes that executors leave to each other."""

from __future__ import annotations

from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.executors import SandboxCodeExecutor
from coderoom.executors.base import WarmSandboxes
from coderoom.sandbox import Sandbox


async def test_a_sandbox_is_left_to_executors_with_the_same_settings_and_nothing_else_is(tmp_path: Path) -> None:
    warm = WarmSandboxes()
    code = "import os\nprint('x' in globals(), os.path.exists('/tmp/mark'))\nx = open('/tmp/mark', 'w').close() or 1"

    async def run(timeout: float) -> str:
        executor = SandboxCodeExecutor(work_dir=tmp_path, timeout=timeout)
        try:
            result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
            return result.output
        finally:
            await executor.stop()

    with warm.lending():
        assert await run(20) == "False False\n"
        [left] = warm.idle
        assert await run(20) == "False False\n"
        assert [*warm.idle] == [left]
        assert await run(30) == "False False\n"
        assert len(warm.idle) == 2
    async with Sandbox(workspace=tmp_path) as other:
        assert warm.take(other) is other
    await warm.close()
    assert await run(20) == "False False\n"
    assert not warm.idle
