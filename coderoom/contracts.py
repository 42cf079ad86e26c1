"""The seams of CodeRoom on one page: where a part can be replaced by another, or by that of another package.

- `Engine` and `EngineSession` interpret cells: `sandbox/engines/` and entry points `coderoom.engines`. Used by
  `Sandbox`.
- `Wall` and `StartedWorker` isolate an engine's worker: `sandbox/walls/` and entry points `coderoom.walls`. Used by
  `CPythonEngine`.
- `Executor` runs the blocks of an agent's attempt: `SandboxedExecutor` and `ExecutorRunner`. Used by
  `agents/attempt.py`.
- `Judge` runs tests against code, and `Harness` is what it needs of a language: `judge/`, `generation/languages/` and
  entry points `coderoom.languages`. Used by `generation/`.
- `Door` lets other programs in: `integrations/mcp.py` and `chat_completions.py`. Used by `cli/doors.py`.

None of them knows AutoGen. `coderoom.testing` has the tests that prove a wall, an engine and a language.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from coderoom.judge import Harness, Judge
from coderoom.sandbox import Engine, EngineSession, ExecutionResult, OnOutput, StartedWorker, Wall

__all__ = ["Door", "Engine", "EngineSession", "Executor", "Harness", "Judge", "StartedWorker", "Wall", "WebApp"]

WebApp: TypeAlias = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]
"""An application of ASGI."""


class Executor(Protocol):
    """Runs the blocks of an agent's attempts; any code executor of AutoGen becomes one by `executors.runner_for`."""

    @property
    def work_dir(self) -> Path | None:
        """The folder of the code on this machine; `None` if there is none, or before the start."""

    async def start(self) -> None:
        """Start it, if it is not started.

        Raises:
            SandboxUnavailable: It cannot be started.
        """

    async def run(
        self, blocks: Sequence[Any], cancellation_token: Any = None, on_output: OnOutput | None = None, /
    ) -> ExecutionResult:
        """Run blocks in order, up to the first that fails; start it first if necessary.

        Args:
            blocks: AutoGen's `CodeBlock`s.
            cancellation_token: AutoGen's token, which ends the code.
            on_output: Called with output while the code runs, if that is possible.

        Returns:
            What the code did. If `stop` or `restart` ended it, its outcome is `cancelled`.

        Raises:
            CancelledError: The token or the task was cancelled; the code has been ended.
            SandboxUnavailable: The executor failed, and not the code.
        """

    async def restart(self) -> None:
        """End all runs; variables are gone."""

    async def stop(self) -> None:
        """End all runs; the next one starts it again."""


class Door(Protocol):
    """A server by which other programs use the sandbox or the teams.

    Attributes:
        path: The path of its address that clients are told.
    """

    path: str

    async def try_out(self) -> str:
        """Start once what a client will need, so that what is missing is known before one comes.

        Returns:
            What isolates the code from this machine: the name of a wall, for instance.

        Raises:
            ConfigError: The file of a team has mistakes.
            MissingDependencyError: A package or a key is missing.
            SandboxUnavailable: The wall cannot be built.
        """

    @property
    def app(self) -> WebApp:
        """What answers its requests. It is given those only that have a token, whose number is in the scope."""
