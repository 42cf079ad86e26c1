"""Verifiers: a reward that judges code by tests, a tool that runs code, and a runtime, all of them in a sandbox.

    class Twice(vf.Task[TestedData, vf.State, CodeTaskConfig]):
        @classmethod
        def toolsets(cls, config):
            return [CodeToolset(config.tools)]

        @vf.reward
        async def passed(self, trace):
            return await passed(self.data, trace)

Without a class: `--env.taskset.task.rewards.passed.fn coderoom.integrations.verifiers:passed`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from pydantic import Field

from coderoom.errors import SandboxUnavailable
from coderoom.integrations.machine import Machine
from coderoom.integrations.rewards import Rewards
from coderoom.integrations.tool import CodeSession, missing

try:
    import verifiers.v1 as vf
    from verifiers.v1.errors import SandboxError
    from verifiers.v1.runtimes import ProgramResult, Runtime, SubprocessConfig, SubprocessRuntimeInfo, register
except ImportError as error:
    raise missing("Verifiers", "verifiers") from error

__all__ = ["CodeRoomRuntime", "CodeTaskConfig", "CodeToolset", "CodeToolsetConfig", "TestedData", "passed"]

_BACKGROUND: Final = 'log=$1; shift; "$@" > "$log" 2>&1 < /dev/null &'


class TestedData(vf.TaskData):  # type: ignore[misc, unused-ignore]
    """The data of a task with tests: `tests`, or other fields that `coderoom.integrations.rewards.read_row` takes."""

    __test__ = False

    tests: str | list[str] | list[dict[str, str]] | None = None


async def passed(task: vf.TaskData, trace: vf.Trace) -> float:
    """The reward: 1 if the code of the last answer passes the tests in the data of the task, else 0.

    The trace has the metrics `can_be_fooled` and `cannot_separate`.

    Raises:
        SandboxError: The sandbox broke, which says nothing about the answer.
        RequestError: The task has no tests.
    """
    try:
        verdict = await _rewards().verdict(trace.last_reply, task.model_dump())
    except SandboxUnavailable as error:
        raise SandboxError(str(error)) from error
    found = {"can_be_fooled": verdict.can_be_fooled, "cannot_separate": bool(verdict.cannot_separate)}
    trace.record_metrics(found)
    return float(verdict.passed)


@functools.cache
def _rewards() -> Rewards:
    return Rewards()


class CodeToolsetConfig(vf.ToolsetConfig):  # type: ignore[misc, unused-ignore]
    """The arguments of `Sandbox`, as data."""

    sandbox: dict[str, Any] = Field(default_factory=dict)


class CodeTaskConfig(vf.TaskConfig):  # type: ignore[misc, unused-ignore]
    """The config of a task with `CodeToolset`."""

    tools: CodeToolsetConfig = CodeToolsetConfig()


class CodeToolset(vf.Toolset[CodeToolsetConfig, vf.State]):  # type: ignore[misc, unused-ignore]
    """The tool `run_code`, with a session of a sandbox for each rollout."""

    TOOL_PREFIX = None

    async def setup(self) -> None:
        """Make the session, which ends with the server; see `vf.Toolset`."""
        self._session = CodeSession(**self.config.sandbox)
        self._exit_stack.callback(self._session.close)

    @vf.tool  # type: ignore[untyped-decorator, unused-ignore]
    async def run_code(self, code: str) -> str:
        """Run Python code in an isolated sandbox and return what it prints and the value of its last expression.

        Variables, imports and files last from call to call. The last line says how the code ended if it failed.
        """
        return await self._session.answer(code)


class CodeRoomRuntime(Runtime):  # type: ignore[misc, unused-ignore]
    """A runtime whose commands and files are those of a session of a sandbox, for `agent.run(task, runtime=...)`.

        async with CodeRoomRuntime() as runtime:
            await agent.run(task, runtime=runtime)

    Traces call it `subprocess`, since they allow no other names; its id begins with `coderoom`. A harness that reaches
    its model from inside needs `network=True`.

    Args:
        name: Its name.
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    scripts_dir = "/tmp/vf-scripts"

    def __init__(self, name: str | None = None, **options: Any) -> None:
        super().__init__(name)
        self.config = SubprocessConfig()
        self.info = SubprocessRuntimeInfo(id=f"coderoom-{uuid4().hex[:12]}")
        self._machine = Machine(**options)
        register(self)

    async def start(self) -> None:
        """Start the session."""
        await self.run(["true"], {})

    async def run(self, argv: list[str], env: Mapping[str, str]) -> ProgramResult:
        """Run a command; see `Runtime`."""
        try:
            done = await self._machine.run(argv, env=self.process_env(dict(env)))
        except SandboxUnavailable as error:
            raise SandboxError(str(error)) from error
        return ProgramResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    async def run_background(self, argv: list[str], env: Mapping[str, str], log: str) -> None:
        """Start a command that runs until the runtime stops; see `Runtime`."""
        await self.run(["sh", "-c", _BACKGROUND, "sh", log, *argv], env)

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        try:
            return await self._machine.read(path, max_bytes)
        except (SandboxUnavailable, OSError) as error:
            raise SandboxError(f"read {path!r}: {error}") from error

    async def write(self, path: str, data: bytes) -> None:
        """Write a file, and the folders above it; see `Runtime`."""
        try:
            await self._machine.write(path, data)
        except (SandboxUnavailable, OSError) as error:
            raise SandboxError(f"write {path!r}: {error}") from error

    async def teardown(self) -> None:
        """End all; see `Runtime`."""
        await asyncio.to_thread(self.cleanup)

    def cleanup(self) -> None:
        """End all; see `Runtime`."""
        self._machine.close()

    async def __aenter__(self) -> CodeRoomRuntime:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


if __name__ == "__main__":
    CodeToolset.run()
