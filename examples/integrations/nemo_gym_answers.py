"""A tiny evaluation with NeMo Gym's sandboxes: tries answers, and rewards those that pass tests.

It needs `pip install 'coderoom[nemo-gym]'`. The answers stand here in place of a model's.
"""

import asyncio

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec
from nemo_gym.sandbox.providers import register_provider

from coderoom.integrations.nemo_gym import CodeRoomProvider
from coderoom.integrations.rewards import Rewards

ANSWERS = ("def twice(n): return n", "def twice(n): return 2 * n")

register_provider("coderoom", CodeRoomProvider, override=True)  # An installed CodeRoom is found without this.


async def main() -> None:
    """Give each answer a sandbox of its own."""
    with Rewards() as rewards:
        for answer in ANSWERS:
            async with AsyncSandbox({"coderoom": {"limits": {"wall_seconds": 30}}}) as sandbox:
                await sandbox.start(SandboxSpec())
                tried = await sandbox.exec(f"python3 -c '{answer}\nprint(twice(2))'")
            verdict = await rewards.verdict(answer, "assert twice(2) == 4")
            print(tried.stdout.strip(), float(verdict.passed))


asyncio.run(main())
