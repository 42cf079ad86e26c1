"""What the tests of the executors share: looking for processes, and waiting in bounds."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.executors import ExecutorRunner, LocalCodeExecutor, SandboxCodeExecutor, SandboxCodeResult
from coderoom.sandbox import ExecutionResult

TREE = """
import os, subprocess, sys, time
# A child, a child in a session of its own, and a daemon made by two forks; they are known by their working directory.
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"])
    os._exit(0)
time.sleep(0.3)
open("ready", "w").close()
"""
MARKED_TREE = """
import os, subprocess
# The same, but known by a mark in their commands, wherever they think that they work.
subprocess.Popen(["sh", "-c", "sleep 300; : MARK"])
subprocess.Popen(["sh", "-c", "sleep 300; : MARK"], start_new_session=True, stdout=-3, stderr=-3)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done; : MARK"])
    os._exit(0)
"""
FOREVER = "print('begun')\nopen('ready', 'w').close()\nwhile True:\n    pass\n"
DEAF = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("begun")
open("ready", "w").close()
while True:
    time.sleep(1)
"""


def python(code: str) -> CodeBlock:
    return CodeBlock(code=code, language="python")


def shell(code: str) -> CodeBlock:
    return CodeBlock(code=code, language="sh")


def executor_of(kind: str, folder: Path, timeout: int = 20, **more: Any) -> CodeExecutor:
    """One of ours, `local` or by the name of the sandbox's state, or AutoGen's own local one."""
    if kind == "autogen":
        return raw_local(work_dir=folder, timeout=timeout, **more)
    if kind == "local":
        return LocalCodeExecutor(folder, timeout, **more)
    return SandboxCodeExecutor(folder, timeout, state=cast(Any, kind), **more)


def raw_local(**arguments: Any) -> LocalCommandLineCodeExecutor:
    """AutoGen's own executor; it warns whenever one is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LocalCommandLineCodeExecutor(**arguments)


def processes(folder: Path) -> list[str]:
    """Describe the living processes that work in the folder, or name it in their command or environment."""
    mark = os.fsencode(folder)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            facts = [(entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()]
            facts.append(os.fsencode((entry / "cwd").readlink()))
        except OSError:  # Ended meanwhile, or not ours.
            continue
        if any(mark in fact for fact in facts):
            found.append(f"{entry.name} {facts[0]!r}")
    return found


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something is so; fail if it never is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


async def all_gone(folder: Path) -> None:
    """Wait until nothing of what worked in the folder is left."""
    end = time.monotonic() + 5
    while left := processes(folder):
        assert time.monotonic() < end, left
        await asyncio.sleep(0.02)


async def run(runner: ExecutorRunner, *blocks: CodeBlock, token: CancellationToken | None = None) -> ExecutionResult:
    """Run blocks; one that never ends fails the test."""
    async with asyncio.timeout(30):
        return await runner.run(blocks, token)


async def run_in(executor: CodeExecutor, *blocks: CodeBlock | str) -> SandboxCodeResult:
    """Run blocks, those without a language in Python, as AutoGen's agents do."""
    async with asyncio.timeout(60):
        wanted = [python(block) if isinstance(block, str) else block for block in blocks]
        result = await executor.execute_code_blocks(wanted, CancellationToken())
    assert isinstance(result, SandboxCodeResult)
    assert (result.exit_code, result.output) == (result.execution.exit_code, result.execution.output)
    return result


async def run_once(executor: CodeExecutor, *blocks: CodeBlock) -> ExecutionResult:
    """Run blocks, and stop the executor."""
    runner = ExecutorRunner(executor)
    try:
        return await run(runner, *blocks)
    finally:
        await runner.stop()


def marked(mark: str) -> list[str]:
    """Describe the living processes whose command holds a mark, wherever they think that they are."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command:
                found.append(f"{entry.name} {command!r}")
    return found


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
