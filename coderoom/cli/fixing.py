"""The command `fix`: a team changes a repository, and its tests judge the change."""

from __future__ import annotations

from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated

from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.cli.fix_order import Order, carry_out
from coderoom.cli.runs import BudgetOption, budgets_of
from coderoom.errors import RequestError


@app.command("fix")
def fix(
    context: typer.Context,
    repository: Annotated[Path, typer.Argument(metavar="REPO", help="The folder of the repository.")],
    problem: Annotated[str, typer.Argument(help="What is wrong; '-' reads standard input.")] = "",
    test: Annotated[str, app.option("COMMAND", "The test command of the repository.")] = "pytest -q",
    issue: Annotated[Path | None, app.option("FILE", "A file that says what is wrong.")] = None,
    out: Annotated[
        Path | None, app.option("FILE", "The file of the patch; by default REPO-fix.patch, not in REPO.", "--out", "-o")
    ] = None,
    branch: Annotated[str, app.option("NAME", "Make this branch, with one commit that has the patch.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Ask whether the patch is written into the folder.")] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Ask whether the patch is written into the folder and committed.")
    ] = False,
    team: Annotated[
        str, app.option("TEAM", "Another team, whose executor has 'work_dir: ${CODEROOM_WORKSPACE}'.")
    ] = "maintainer",
    model: app.ModelOption = None,
    wall: Annotated[str, app.option("NAME", app.WALL_HELP, "--wall", autocompletion=app.completion.walls)] = "auto",
    timeout: Annotated[float | None, app.option("SEC", "The timeout of the test command.", min=0.1, max=86_400)] = None,
    packages: app.PackageOption = None,
    allow_builds: app.AllowBuildsOption = None,
    budget: BudgetOption = None,
    env_file: app.EnvFileOption = None,
    record: app.RecordOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Fix a repository, which stays as it is: the result is a patch.

    A team works on a copy. The repository's tests are run before and after, as they were: changes of tests and of
    their configuration do not count, and are named. If all tests pass with it, the patch can also become a branch or a
    commit, or be written into the folder. Exit code 1: there is no patch, or not all tests pass with it.
    """
    folder = repository.resolve()
    if not folder.is_dir():
        raise RequestError(f"{str(repository)!r} is no folder of a repository.")
    text = "\n\n".join(filter(None, (app.text_of(problem).strip(), _content(issue).strip())))
    if not text:
        raise RequestError("Say what is wrong, as the second argument or with --issue FILE.")
    file = out or _unused(folder)
    if file.resolve().is_relative_to(folder):
        raise RequestError("The patch would be in the repository, which stays as it is: name another place by --out.")
    app.hasten_autogen()
    from coderoom.models.budgets import make_budget
    from coderoom.runs import Run, RunRequest, open_journal
    from coderoom.runs.fix import task_of

    needed, (limits, of_agents) = app.packages_of(packages, allow_builds), budgets_of(budget)
    request = RunRequest(
        team,
        task_of(folder, text, test),
        model=model,
        workspace=folder,
        wall=None if wall == "auto" else wall,
        workspace_mode="overlay",
        budgets=of_agents,
        packages=needed,
    )
    order = Order(
        str(folder),
        test,
        str(file.absolute()),
        text.splitlines()[0],
        branch,
        apply,
        commit,
        wall=wall,
        timeout=timeout,
        packages=needed,
    )
    run = Run.begin(
        request.prepare(),
        open_journal(journal, off=no_journal),
        command="fix",
        budget=make_budget(limits),
        recording=record,
        more={"fix": asdict(order)},
    )
    return carry_out(order, run, context, as_json)


def _content(file: Path | None) -> str:
    try:
        return "" if file is None else file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"Cannot read {str(file)!r}: {getattr(error, 'strerror', None) or error}.") from error


def _unused(repository: Path) -> Path:
    """The file of a patch that is not there yet: in the current folder, or beside a repository which that is in."""
    where = repository.parent if Path.cwd().is_relative_to(repository) else Path()
    names = (where / f"{repository.name}-fix{f'-{number}' if number else ''}.patch" for number in count())
    return next(each for each in names if not each.exists())
