"""Running code for agents: in a sandbox, or as ordinary processes of the user, as AutoGen components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import coderoom._util.full  # noqa: F401
from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom._util.processes import adopt_orphans, descendants, end_descendants, kill_until_gone, send
    from coderoom._util.text import bound_output, save_output
    from coderoom.executors.base import SandboxCodeResult
    from coderoom.executors.config import LocalCodeExecutorConfig, SandboxCodeExecutorConfig
    from coderoom.executors.runner import Checkpoints, ExecutorRunner, Forks, forks_of, keeps_variables, runner_for
    from coderoom.executors.sandbox import LocalCodeExecutor, SandboxCodeExecutor
    from coderoom.sandbox import ExecutionResult as Execution

__all__ = [
    "Checkpoints",
    "Execution",
    "ExecutorRunner",
    "Forks",
    "LocalCodeExecutor",
    "LocalCodeExecutorConfig",
    "SandboxCodeExecutor",
    "SandboxCodeExecutorConfig",
    "SandboxCodeResult",
    "adopt_orphans",
    "bound_output",
    "descendants",
    "end_descendants",
    "forks_of",
    "keeps_variables",
    "kill_until_gone",
    "runner_for",
    "save_output",
    "send",
]

# Lazy, so that an executor is imported without the others.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom._util.processes": "adopt_orphans descendants end_descendants kill_until_gone send",
        "coderoom._util.text": "bound_output save_output",
        "coderoom.executors.base": "SandboxCodeResult",
        "coderoom.executors.config": "LocalCodeExecutorConfig SandboxCodeExecutorConfig",
        "coderoom.executors.runner": "Checkpoints ExecutorRunner Forks forks_of keeps_variables runner_for",
        "coderoom.executors.sandbox": "LocalCodeExecutor SandboxCodeExecutor",
        "coderoom.sandbox": "Execution=ExecutionResult",
    },
)
