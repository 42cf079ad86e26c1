"""The command `skills`: what code of models has kept for later, and whether it still passes its tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coderoom._util.text import counted
from coderoom.cli import app
from coderoom.cli.app import EXIT_FAILED, EXIT_OK, typer

if TYPE_CHECKING:
    from coderoom.skills import Skill


@app.command()
def skills(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of skills.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this one, with its tests.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Judge all of them again by their tests.")] = False,
    packages: app.PackageOption = None,
    allow_builds: app.AllowBuildsOption = None,
    wall: app.WallOption = "auto",
    server: app.ServerOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Show the functions that agents have saved.

    With --check, their tests are run in rooms of a sandbox. Exit code 1: one does not pass, or cannot be read.
    """
    from coderoom.errors import RequestError
    from coderoom.sandbox import SandboxConfig
    from coderoom.sandbox.remote import at_server
    from coderoom.skills import SkillFolder, Skills

    if not folder.is_dir():
        raise RequestError(f"There is no folder {str(folder)!r}.")
    if name is not None:
        try:
            skill = SkillFolder(folder).read(name)
        except (LookupError, ValueError) as error:
            raise RequestError(str(error.args[0])) from None
        state = f"Judged {skill.judged}: {skill.strength}" if skill.judged else _UNJUDGED
        whole = {"name": name, "code": skill.code, "tests": skill.tests, "judged": skill.judged}
        app.show_result(as_json, whole, f"# {state}", skill.code, "# Tests", skill.tests.rstrip("\n"))
        return EXIT_OK

    async def judge_all() -> dict[str, Skill | str]:
        packages_given = app.packages_of(packages, allow_builds)
        config = SandboxConfig(wall=wall, packages=packages_given, **at_server(server))
        async with Skills.like(folder, config) as made:
            return await made.check()

    found = asyncio.run(judge_all()) if check else SkillFolder(folder).read_all()
    facts, lines = list[dict[str, str]](), list[str]()
    for each, known in found.items():
        if isinstance(known, str):
            facts.append({"name": each, "why": known})
            lines.append(f"✗ {each}: {known}")
            continue
        facts.append({"name": each, "why": "", "judged": known.judged, "strength": known.strength})
        state = known.strength if known.judged else _UNJUDGED
        lines.append(f"{'✓' if known.judged else '-'} {_described(known)} ({state})")
    succeeded = not any(isinstance(each, str) for each in found.values())
    lines.append(f"{counted(len(found), 'skill')} in {folder}")
    app.show_result(as_json, {"succeeded": succeeded, "skills": facts}, *lines)
    return EXIT_OK if succeeded else EXIT_FAILED


_UNJUDGED = "not judged since it was written or changed; --check judges it"


def _described(skill: Skill) -> str:
    try:
        return f"{skill.signature}: {skill.summary}"
    except ValueError as error:
        return str(error)
