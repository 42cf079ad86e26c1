"""The skills of a `CodeActAgent`: judged behind the wall of its executor, and described in its system message."""

from __future__ import annotations

from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor

from coderoom._util.tasks import await_with_token
from coderoom.executors import SandboxCodeExecutor
from coderoom.sandbox import SandboxConfig
from coderoom.skills import Skills
from coderoom.steps import once


def skills_for(given: Skills | str | Path | None, executor: CodeExecutor) -> Skills | None:
    """The skills that a constructor gets, with a judge whose rooms are like that of the executor.

    Raises:
        ValueError: The executor's code cannot import skills, or could write to their folder.
    """
    if given is None:
        return None
    config = executor.dump_component().config if isinstance(executor, SandboxCodeExecutor) else {}
    engine = config.get("engine", "")
    if engine not in ("cpython", "remote") or config["state"] != "session" or config["policy"] != "open":
        raise ValueError(
            "skills need a SandboxCodeExecutor with state='session', policy='open' and the engine 'cpython' or "
            "'remote', whose code can import them."
        )
    names = ("wall", "engine", "python", "packages", "allowed_packages", "options")
    like = SandboxConfig(**{name: config[name] for name in names if config.get(name)})
    skills = given if isinstance(given, Skills) else Skills.like(given, like)
    skills.check_apart(Path(config["work_dir"]) if config.get("work_dir") else None)
    return skills


async def describe_skills(skills: Skills, cancellation_token: CancellationToken) -> str:
    """What the system message says of the skills; a resumed run says what it has said before."""
    return await await_with_token(
        once("skills", {"folder": skills.source}, skills.describe, str, str), cancellation_token
    )
