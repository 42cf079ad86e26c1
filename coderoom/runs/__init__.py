"""Runs teams, files, questions and instructions, and shows what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom.agents.checks import make_check, verdict_on
    from coderoom.runs.batch import Batch
    from coderoom.runs.doctor import (
        NOT_ISOLATED,
        Finding,
        ModelCheck,
        ServiceState,
        check_model,
        examine,
        models_to_check,
        services,
    )
    from coderoom.runs.durable import Run
    from coderoom.runs.exec import run_file
    from coderoom.runs.exec_result import BlockRun, FileResult
    from coderoom.runs.exec_source import read_blocks
    from coderoom.runs.exec_view import ExecView
    from coderoom.runs.execute_question import ExecuteCodeResult, execute_code
    from coderoom.runs.export.run import export_run
    from coderoom.runs.interrupts import EXIT_INTERRUPTED
    from coderoom.runs.journal import Journal, RunEntry, Step, open_journal
    from coderoom.runs.observers import Recorder, exporting
    from coderoom.runs.prompt.loop import chat
    from coderoom.runs.record import RunRecord
    from coderoom.runs.review import Reviewed, asking_a_person
    from coderoom.runs.run_log import RunLog
    from coderoom.runs.solving import Solved, resume_solve, solve
    from coderoom.runs.team_run import (
        DEFAULT_WORKSPACE,
        WALL_VARIABLE,
        WORKSPACE_VARIABLE,
        PreparedRun,
        RunRequest,
        prepare_run,
        run_team,
    )
    from coderoom.runs.view import RunView, team_tree
    from coderoom.runs.writer import Writer

__all__ = [
    "DEFAULT_WORKSPACE",
    "EXIT_INTERRUPTED",
    "NOT_ISOLATED",
    "WALL_VARIABLE",
    "WORKSPACE_VARIABLE",
    "Batch",
    "BlockRun",
    "ExecView",
    "ExecuteCodeResult",
    "FileResult",
    "Finding",
    "Journal",
    "ModelCheck",
    "PreparedRun",
    "Recorder",
    "Reviewed",
    "Run",
    "RunEntry",
    "RunLog",
    "RunRecord",
    "RunRequest",
    "RunView",
    "ServiceState",
    "Solved",
    "Step",
    "Writer",
    "asking_a_person",
    "chat",
    "check_model",
    "examine",
    "execute_code",
    "export_run",
    "exporting",
    "make_check",
    "models_to_check",
    "open_journal",
    "prepare_run",
    "read_blocks",
    "resume_solve",
    "run_file",
    "run_team",
    "services",
    "solve",
    "team_tree",
    "verdict_on",
]

# Lazy, because `coderoom doctor` and `coderoom exec` need no AutoGen.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.runs.batch": "Batch",
        "coderoom.runs.prompt.loop": "chat",
        "coderoom.agents.checks": "make_check verdict_on",
        "coderoom.runs.doctor": "NOT_ISOLATED Finding ModelCheck ServiceState "
        "check_model examine models_to_check services",
        "coderoom.runs.durable": "Run",
        "coderoom.runs.exec": "run_file",
        "coderoom.runs.exec_result": "BlockRun FileResult",
        "coderoom.runs.exec_source": "read_blocks",
        "coderoom.runs.exec_view": "ExecView",
        "coderoom.runs.execute_question": "ExecuteCodeResult execute_code",
        "coderoom.runs.export.run": "export_run",
        "coderoom.runs.interrupts": "EXIT_INTERRUPTED",
        "coderoom.runs.review": "Reviewed asking_a_person",
        "coderoom.runs.journal": "Journal RunEntry Step open_journal",
        "coderoom.runs.writer": "Writer",
        "coderoom.runs.observers": "Recorder exporting",
        "coderoom.runs.record": "RunRecord",
        "coderoom.runs.run_log": "RunLog",
        "coderoom.runs.solving": "Solved resume_solve solve",
        "coderoom.runs.team_run": "DEFAULT_WORKSPACE WALL_VARIABLE WORKSPACE_VARIABLE "
        "PreparedRun RunRequest prepare_run run_team",
        "coderoom.runs.view": "RunView team_tree",
    },
)
