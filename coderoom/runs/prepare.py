"""From what a person asked for to a team that is ready to run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autogen_agentchat.base import Team

from coderoom.agents import CodeGeneratorAgent
from coderoom.configs import load_team
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs.record import RunRecord
from coderoom.runs.workspace import copy_in, executors_of, folder_of, isolation_of
from coderoom.sandbox import Sandbox

__all__ = ["DEFAULT_WORKSPACE", "WALL_VARIABLE", "WORKSPACE_VARIABLE", "PreparedRun", "prepare_run"]

WORKSPACE_VARIABLE = "CODEROOM_WORKSPACE"
"""The variable by which a team file leaves the choice of the folder to whoever runs it."""
WALL_VARIABLE = "CODEROOM_WALL"
"""The variable by which a team file leaves the choice of the wall to whoever runs it."""
DEFAULT_WORKSPACE = "coderoom-workspace"


@dataclass(frozen=True)
class PreparedRun:
    """A team and what is known of its run beforehand.

    Attributes:
        team: The team.
        record: The record to fill in.
    """

    team: Team
    record: RunRecord


def prepare_run(
    team: str,
    task: str,
    *,
    model: str | None = None,
    workspace: Path | None = None,
    wall: str | None = None,
    files: Sequence[Path] = (),
    trust: Sequence[str] = (),
) -> PreparedRun:
    """Load a team, put files into its workspace, and say what it will run with.

    Args:
        team: A team file, or the name of a shipped team.
        task: What to do.
        model: What replaces the team's models.
        workspace: The folder that the code works in, for a team that leaves the choice to us.
        wall: The wall around the code, for a team that leaves the choice to us.
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
    env = {**os.environ, WORKSPACE_VARIABLE: str(folder)}
    if wall is not None:
        Sandbox(wall)  # Refuses a name that is none.
        env[WALL_VARIABLE] = wall
    loaded = load_team(team, model=model, trust=trust, env=env)
    executors = executors_of(loaded)
    ours = [one for one in executors if isinstance(one, SandboxCodeExecutor | CodeGeneratorAgent)]
    if wall is not None and not any(one.wall == wall for one in ours):
        raise RequestError(
            f"The team {team!r} does not leave the wall to us: --wall needs a SandboxCodeExecutor or a "
            f"CodeGeneratorAgent with 'wall: ${{{WALL_VARIABLE}:-auto}}'."
        )
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
    return PreparedRun(loaded, record)


def _folder(workspace: Path) -> Path:
    try:
        folder = workspace.resolve()
        usable = folder.is_dir() or not folder.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {error}.") from error
    if not usable:
        raise RequestError(f"The workspace {str(folder)!r} is not a folder.")
    return folder
