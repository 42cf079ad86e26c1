"""Running teams and files, and what a run came to."""

from coderoom.runs._doctor import NOT_ISOLATED, Finding, examine
from coderoom.runs._exec import BlockRun, FileResult, read_blocks, run_file
from coderoom.runs._prepare import DEFAULT_WORKSPACE, WORKSPACE_VARIABLE, PreparedRun, prepare_run
from coderoom.runs._record import RunRecord
from coderoom.runs._signals import EXIT_INTERRUPTED
from coderoom.runs._team_run import run_team
from coderoom.runs._view import ExecView, RunView

__all__ = [
    "DEFAULT_WORKSPACE",
    "EXIT_INTERRUPTED",
    "NOT_ISOLATED",
    "WORKSPACE_VARIABLE",
    "BlockRun",
    "ExecView",
    "FileResult",
    "Finding",
    "PreparedRun",
    "RunRecord",
    "RunView",
    "examine",
    "prepare_run",
    "read_blocks",
    "run_file",
    "run_team",
]
