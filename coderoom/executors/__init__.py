"""Running code for agents: in a sandbox, or as ordinary processes of the user, as AutoGen components."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom._util.processes import adopt_orphans, descendants, end_descendants, kill_until_gone, send
    from coderoom._util.text import bound_output, save_output
    from coderoom.executors.base import SandboxCodeResult
    from coderoom.executors.runner import Checkpoints, ExecutorRunner, keeps_variables, runner_for
    from coderoom.executors.sandbox import LocalCodeExecutor, SandboxCodeExecutor
    from coderoom.sandbox import ExecutionResult as Execution

__all__ = [
    "Checkpoints",
    "Execution",
    "ExecutorRunner",
    "LocalCodeExecutor",
    "SandboxCodeExecutor",
    "SandboxCodeResult",
    "adopt_orphans",
    "bound_output",
    "descendants",
    "end_descendants",
    "keeps_variables",
    "kill_until_gone",
    "runner_for",
    "save_output",
    "send",
]

_MODULES = {
    "Checkpoints": "coderoom.executors.runner",
    "Execution": "coderoom.sandbox:ExecutionResult",
    "ExecutorRunner": "coderoom.executors.runner",
    "LocalCodeExecutor": "coderoom.executors.sandbox",
    "SandboxCodeExecutor": "coderoom.executors.sandbox",
    "SandboxCodeResult": "coderoom.executors.base",
    "adopt_orphans": "coderoom._util.processes",
    "bound_output": "coderoom._util.text",
    "descendants": "coderoom._util.processes",
    "end_descendants": "coderoom._util.processes",
    "keeps_variables": "coderoom.executors.runner",
    "kill_until_gone": "coderoom._util.processes",
    "runner_for": "coderoom.executors.runner",
    "save_output": "coderoom._util.text",
    "send": "coderoom._util.processes",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that an executor is imported without the others.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other_name = _MODULES[name].partition(":")
    return getattr(importlib.import_module(module), other_name or name)


def __dir__() -> list[str]:
    return sorted(__all__)
