"""Running teams, files and questions, and what a run came to."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom.runs._doctor import NOT_ISOLATED, Finding, examine
    from coderoom.runs._exec import BlockRun, FileResult, read_blocks, run_file
    from coderoom.runs._exec_view import ExecView
    from coderoom.runs._execute_code import ExecuteCodeResult, execute_code
    from coderoom.runs._prepare import DEFAULT_WORKSPACE, WALL_VARIABLE, WORKSPACE_VARIABLE, PreparedRun, prepare_run
    from coderoom.runs._record import RunRecord
    from coderoom.runs._signals import EXIT_INTERRUPTED
    from coderoom.runs._solve import Solved, solve
    from coderoom.runs._team_run import run_team
    from coderoom.runs._view import RunView

__all__ = [
    "DEFAULT_WORKSPACE",
    "EXIT_INTERRUPTED",
    "NOT_ISOLATED",
    "WALL_VARIABLE",
    "WORKSPACE_VARIABLE",
    "BlockRun",
    "ExecView",
    "ExecuteCodeResult",
    "FileResult",
    "Finding",
    "PreparedRun",
    "RunRecord",
    "RunView",
    "Solved",
    "examine",
    "execute_code",
    "prepare_run",
    "read_blocks",
    "run_file",
    "run_team",
    "solve",
]

_MODULES = {
    "_doctor": ("NOT_ISOLATED", "Finding", "examine"),
    "_exec": ("BlockRun", "FileResult", "read_blocks", "run_file"),
    "_exec_view": ("ExecView",),
    "_execute_code": ("ExecuteCodeResult", "execute_code"),
    "_prepare": ("DEFAULT_WORKSPACE", "WALL_VARIABLE", "WORKSPACE_VARIABLE", "PreparedRun", "prepare_run"),
    "_record": ("RunRecord",),
    "_signals": ("EXIT_INTERRUPTED",),
    "_solve": ("Solved", "solve"),
    "_team_run": ("run_team",),
    "_view": ("RunView",),
}


def __getattr__(name: str) -> Any:
    # Lazy: `coderoom doctor` needs no AutoGen.
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"coderoom.runs.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
