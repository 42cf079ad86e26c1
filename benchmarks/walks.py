"""Count the files and functions of CodeRoom that a call passes through, so that layers are seen when they come.

python benchmarks/walks.py [--files]

Each walk is warm: the same call was made before. Counted are the files of the package in which a function was entered,
the functions, and the switches from one file to another. What runs behind the wall is a process of its own and is not
counted. `--files` lists the files in the order in which they were first entered.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import yaml
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_ext.models.replay import ReplayChatCompletionClient

import coderoom
from coderoom.agents import CodeExecutorAgent
from coderoom.executors import SandboxCodeExecutor
from coderoom.generation import AICodeGenerator
from coderoom.sandbox import Sandbox

PACKAGE = f"{Path(coderoom.__file__).parent}/"
BLOCK = "```python\nprint(sum(range(10)))\n```"
SOLUTION = Path(__file__).parents[1] / "examples" / "solve.replay.yaml"


class Walk:
    """What a call has passed through."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.functions: set[CodeType] = set()
        self.switches = 0
        self._last = ""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a function that is entered."""
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(PACKAGE):
            return
        self.files[name.removeprefix(PACKAGE)] = None
        self.functions.add(frame.f_code)
        self.switches += name != self._last
        self._last = name


async def walk(call: Callable[[], Awaitable[object]]) -> Walk:
    """Make a call twice and follow the second one."""
    await call()
    found = Walk()
    threading.setprofile(found.note)
    sys.setprofile(found.note)
    try:
        await call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


async def walks() -> dict[str, Walk]:
    """Follow the calls that users make most."""
    found: dict[str, Walk] = {}
    with tempfile.TemporaryDirectory() as folder:
        client = ReplayChatCompletionClient([BLOCK, "45", BLOCK, "45"])
        agent = CodeExecutorAgent("coder", SandboxCodeExecutor(folder), model_client=client)
        task = TextMessage(content="Add the numbers below ten.", source="user")
        found["CodeExecutorAgent turn, one block"] = await walk(lambda: agent.on_messages([task], CancellationToken()))
        await agent.close()
    async with Sandbox() as sandbox, sandbox.session() as session:
        found["Sandbox.run"] = await walk(lambda: sandbox.run("print(1)"))
        found["Session.run"] = await walk(lambda: session.run("print(1)"))
    replies = yaml.safe_load(SOLUTION.read_text())["replies"]
    async with AICodeGenerator(ReplayChatCompletionClient([*replies, *replies]), cache=False) as generator:
        found["AICodeGenerator, 2 functions, 13 tests"] = await walk(lambda: generate(generator))
    return found


async def generate(generator: AICodeGenerator) -> None:
    """Make a solution of two functions from recorded replies."""
    solution = await generator.generate_solution("Write numbers as Roman numerals, and read them.")
    assert solution.all_tests_passed
    assert len(solution.test_results) == 13


async def main() -> None:
    """Print a line for each walk."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files too")
    arguments = parser.parse_args()
    for name, found in (await walks()).items():
        print(f"{name:38} {len(found.files):3} files {len(found.functions):4} functions {found.switches:5} switches")
        if arguments.files:
            print("".join(f"    {file}\n" for file in found.files), end="")


if __name__ == "__main__":
    asyncio.run(main())
