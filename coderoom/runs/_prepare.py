"""From what a person asked for to a team that is ready to run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autogen_agentchat.base import Team

from coderoom.configs import load_team
from coderoom.errors import RequestError
from coderoom.runs._doctor import NOT_ISOLATED
from coderoom.runs._record import RunRecord
from coderoom.runs._workspace import copy_in, executors_of, folder_of, isolation_of

__all__ = ["DEFAULT_WORKSPACE", "WORKSPACE_VARIABLE", "PreparedRun", "prepare_run"]

WORKSPACE_VARIABLE = "CODEROOM_WORKSPACE"
"""The variable by which a team file leaves the choice of the folder to whoever runs it."""
DEFAULT_WORKSPACE = "coderoom-workspace"


@dataclass(frozen=True)
class PreparedRun:
    """A team and what is known of its run beforehand.

    Attributes:
        team: The team.
        record: The record to fill in.
        notices: What a person must be told first, in plain words.
    """

    team: Team
    record: RunRecord
    notices: tuple[str, ...]


def prepare_run(
    team: str,
    task: str,
    *,
    model: str | None = None,
    workspace: Path | None = None,
    files: Sequence[Path] = (),
    trust: Sequence[str] = (),
) -> PreparedRun:
    """Load a team, put files into its workspace, and say what it will run with.

    Args:
        team: A team file, or the name of a shipped team.
        task: What to do.
        model: What replaces the team's models.
        workspace: The folder that the code works in, for a team that leaves the choice to us.
        files: Files to copy into the workspace.
        trust: Namespaces of other packages whose components may be loaded.

    Raises:
        ConfigError: If the team file is wrong.
        RequestError: If something that was asked for is not there or does not fit.
        MissingDependencyError: If the model needs a key or a package that is not there.
    """
    if not task.strip():
        raise RequestError("The task is empty: say what to do.")
    folder = _folder(workspace or Path(DEFAULT_WORKSPACE))
    loaded = load_team(team, model=model, trust=trust, env={**os.environ, WORKSPACE_VARIABLE: str(folder)})
    executors = executors_of(loaded)
    used = any(folder_of(executor) == folder for executor in executors)
    if (workspace is not None or files) and not used:
        raise RequestError(
            f"The team {team!r} does not work in a folder of our choice: --workspace and --file need an executor with "
            f"'work_dir: ${{{WORKSPACE_VARIABLE}}}'."
        )
    names = copy_in(files, folder)
    if names:
        task = f"{task}\n\nFiles in the working folder: {', '.join(names)}"
    record = RunRecord(team=team, task=task, model=model, isolation=isolation_of(executors))
    return PreparedRun(loaded, record, tuple(_notices(record)))


def _folder(workspace: Path) -> Path:
    try:
        folder = workspace.resolve()
        usable = folder.is_dir() or not folder.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {error}.") from error
    if not usable:
        raise RequestError(f"The workspace {str(folder)!r} is not a folder.")
    return folder


def _notices(record: RunRecord) -> list[str]:
    notices = [NOT_ISOLATED] if record.isolation == "none" else []
    if record.model is not None and record.model.startswith("replay:"):
        notices.append(
            f"The model is a recording ({record.model.removeprefix('replay:')}): its replies were written beforehand. "
            "Everything else is real: the code runs, its output is its own, and the outcome is computed."
        )
    return notices
