"""The commands about team files, and those for AutoGen Studio."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from coderoom._util.text import visible
from coderoom.cli import app
from coderoom.cli.app import EXIT_OK, EXIT_WRONG_REQUEST, print_json, typer
from coderoom.errors import Problem, RequestError


@app.command()
def teams(as_json: app.JsonOption = False, debug: app.DebugOption = False) -> None:
    """List the shipped teams."""
    from coderoom.configs import shipped_teams

    shipped = shipped_teams()
    if as_json:
        print_json({"teams": [{"name": name, "description": text} for name, text in shipped.items()]})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table.grid("", "", padding=(0, 2))
    for name, text in shipped.items():
        table.add_row(name, text)
    Console(highlight=False).print(table)


@app.command()
def show(
    team: app.TeamArgument,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Show what a team consists of.

    That is its agents, their models, where code runs, and when it ends.
    """
    from coderoom.configs import read_team
    from coderoom.runs import team_tree

    content = read_team(team)
    if as_json:
        print_json(content)
        return
    from rich.console import Console

    Console(highlight=False).print(team_tree(content))


_STARTER = "team.yaml"


@app.command()
def init(
    file: Annotated[str | None, typer.Argument(help=f"The file to write; {_STARTER} by default.")] = None,
    team: Annotated[
        str | None,
        app.option(
            "NAME", "Copy this shipped team, instead of the starter.", "--team", autocompletion=app.completion.teams
        ),
    ] = None,
    model: Annotated[str | None, app.option("NAME", "The default model in the file.", "--model", "-m")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    force: app.ForceOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Write a team file with comments, to start from."""
    from coderoom.configs import write_starter

    if not yes and sys.stdin is not None and sys.stdin.isatty():
        file = file or typer.prompt("File", default=_STARTER)
        model = model or typer.prompt("Default model", default="gpt-4o")
    path = Path(file or _STARTER)
    write_starter(path, team, model, force=force)
    typer.echo(visible(f'{path}: written. Run it with: coderoom run {path} "your task"'))


@app.command()
def validate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Team files, or names of shipped teams.", autocompletion=app.completion.teams
        ),
    ],
    trust: app.TrustOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Check team files, and print every mistake.

    Nothing is started, no model is needed, and no code of the files runs.
    """
    app.hasten_autogen()
    from coderoom.configs import check_team, team_warnings

    listed: list[dict[str, Any]] = []
    lines: list[object] = []
    for file in files:
        warnings: list[Problem] = []
        try:
            problems = check_team(file, trust=trust or ())
            warnings = team_warnings(file, trust=trust or ())
        except RequestError as error:
            problems = [Problem(str(error), file)]
        listed.append({"file": file, "problems": list(map(asdict, problems)), "warnings": list(map(asdict, warnings))})
        lines += [replace(each, message=f"warning: {each.message}") for each in warnings]
        lines += problems or [f"{file}: ok"]
    valid = not any(each["problems"] for each in listed)
    app.show_result(as_json, {"valid": valid, "files": listed}, *lines)
    return EXIT_OK if valid else EXIT_WRONG_REQUEST


@app.command()
def convert(
    file: Annotated[str, typer.Argument(help="A team file of AutoGen (YAML or JSON): a team, or one agent.")],
    out: Annotated[Path | None, app.option("FILE", "Write this file: .yaml or .json.", "--out", "-o")] = None,
    force: app.ForceOption = False,
    trust: app.TrustOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Convert a team file of AutoGen to CodeRoom's.

    Its agents and executors become those of CodeRoom, and what changes is shown. Without --out, nothing is written.
    """
    from coderoom.configs import convert_team

    made = convert_team(file, out, force=force, trust=trust or ())
    written = str(out) if out is not None and made.diff else None
    end = f"{written}: written" if written else f"{file}: nothing to convert"
    if made.diff and not written:
        end = f"Nothing is written. To write it: coderoom convert {file} --out FILE"
    if made.diff and not as_json:
        _print_diff(visible(made.diff))
    facts = {"succeeded": True, "file": written, "diff": made.diff, "notes": [asdict(note) for note in made.notes]}
    app.show_result(as_json, facts, *made.notes, end)


def _print_diff(diff: str) -> None:
    from rich.console import Console
    from rich.syntax import Syntax

    console = Console()
    if console.is_terminal:
        console.print(Syntax(diff, "diff", theme="ansi_dark", word_wrap=True))
    else:
        typer.echo(diff)


@app.command()
def gallery(
    teams: app.TeamsOption = None,
    model: app.ModelOption = None,
    out: app.OutFileOption = None,
    force: app.ForceOption = False,
    trust: app.TrustOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Make a gallery for AutoGen Studio.

    It has the shipped teams, your own, and their parts. It contains nothing of this machine: no keys, no paths, and
    no values of variables except those of --model.
    """
    from coderoom.configs import make_gallery

    made = make_gallery(teams or (), model=model, trust=trust or ())
    counts = {name: len(components) for name, components in made["components"].items()}
    _write_or_print(made, out, force, as_json, components=counts)


@app.command()
def studio(
    teams: app.TeamsOption = None,
    model: app.ModelOption = None,
    appdir: Annotated[
        Path | None, app.option("DIR", "Where Studio keeps its teams, sessions and runs.", "--appdir")
    ] = None,
    port: Annotated[int, app.option("N", "The port; 0: any that is free.", min=0, max=65_535)] = 8081,
    trust: app.TrustOption = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Start AutoGen Studio with the shipped teams.

    It has your own teams too, and runs until Ctrl-C. The first start installs Studio in an environment of its own.
    It listens on this machine only, and has no authentication: anyone who can reach its port can run code as you.
    """
    from rich.console import Console

    from coderoom.studio import RunningStudio, run_studio

    console = Console(quiet=as_json)

    def begin(running: RunningStudio) -> None:
        if as_json:
            typer.echo(json.dumps(running.to_json()))
        else:
            running.show(console)
        if browser:
            running.open()

    run_studio(teams or (), console, appdir=appdir, port=port, model=model, trust=trust or (), begin=begin)


@app.command()
def schema(
    out: app.OutFileOption = None,
    force: app.ForceOption = False,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Print the JSON Schema of team files, for editors."""
    from coderoom.configs import make_schema

    _write_or_print(make_schema(), out, force, as_json)


def _write_or_print(made: dict[str, Any], out: Path | None, force: bool, as_json: bool, **facts: Any) -> None:
    from coderoom.configs import write_made

    if out is None:
        print_json(made)
    else:
        write_made(out, made, force=force)
        app.show_result(as_json, {"succeeded": True, "file": str(out), **facts}, f"{out}: written")
