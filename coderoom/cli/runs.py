"""The commands that run code: `run` a team, `exec` a file."""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from coderoom.cli.app import (
    WALL_HELP,
    CopiedFilesOption,
    DebugOption,
    JsonOption,
    ModelOption,
    TrustOption,
    WallOption,
    command,
    silence_autogen,
    standard_input,
    text_of,
)
from coderoom.exit_codes import end_code, print_json

WorkspaceOption = Annotated[
    Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="The folder that the code works in.")
]
TeamWallOption = Annotated[str | None, typer.Option("--wall", metavar="NAME", help=WALL_HELP)]


@command()
def run(
    context: typer.Context,
    team: Annotated[str, typer.Argument(help="A team file (YAML or JSON), or the name of a shipped team.")],
    task: Annotated[str, typer.Argument(help="The task. '-' reads it from standard input.")],
    model: ModelOption = None,
    workspace: WorkspaceOption = None,
    wall: TeamWallOption = None,
    files: CopiedFilesOption = None,
    max_turns: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most turns, instead of the team's own limit.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="SEC", min=0.1, help="End the run after this time.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End the run when it has used this many tokens.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SEC", min=0.1, help="The timeout of each piece of code, instead of the team's own."),
    ] = None,
    network: Annotated[
        bool | None,
        typer.Option(
            "--network/--no-network",
            help="Let the code use the network or not, instead of the team's own.",
            show_default=False,
        ),
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Run a team on a task, and show what it does.

    Shipped teams: coder-executor, coder-reviewer, analyst, code-act, test-driven, human-approves. Without --workspace,
    the code works in coderoom-workspace. It runs in a sandbox; where no wall works, nothing runs unless you pass
    --wall none.
    """
    from rich.console import Console

    from coderoom._util.terminal import pausing_for_questions
    from coderoom.runs import RunView, prepare_run, run_team

    prepared = prepare_run(
        team,
        text_of(task),
        model=model,
        workspace=workspace,
        wall=wall,
        files=files or (),
        trust=trust or (),
        max_turns=max_turns,
        network=network,
        timeout=timeout,
    )
    if not debug:
        silence_autogen()
    view = RunView(Console(quiet=as_json))
    record = prepared.record
    try:
        begin = partial(view.begin, record)
        with pausing_for_questions(view.pause):
            asyncio.run(
                run_team(
                    prepared.team,
                    record,
                    view.show,
                    begin=begin,
                    owns_process=bool(context.obj),
                    max_seconds=max_seconds,
                    max_tokens=max_tokens,
                )
            )
    finally:
        view.stop()
    view.end(record)
    if as_json:
        print_json(record.to_json())
    if record.exception is not None and debug:
        traceback.print_exception(record.exception)
    return end_code(record.succeeded, record.cancelled)


@command()
def chat(
    context: typer.Context,
    team: Annotated[str, typer.Argument(help="A team file (YAML or JSON), or the name of a shipped team.")],
    task: Annotated[str, typer.Argument(help="The first task.")] = "",
    model: ModelOption = None,
    workspace: WorkspaceOption = None,
    wall: TeamWallOption = None,
    files: CopiedFilesOption = None,
    trust: TrustOption = None,
    debug: DebugOption = False,
) -> int:
    """Run a team on one task after the other.

    Tasks are lines of standard input. The team goes on with its conversation, its variables and its files.
    """
    from rich.console import Console

    from coderoom.runs import chat, prepare_run

    prepared = prepare_run(
        team, task, model=model, workspace=workspace, wall=wall, files=files or (), trust=trust or (), more_tasks=True
    )
    if not debug:
        silence_autogen()
    records = asyncio.run(chat(prepared, Console(), owns_process=bool(context.obj)))
    return end_code(all(record.succeeded for record in records), cancelled=False)


FileArgument = Annotated[
    str,
    typer.Argument(
        help="Markdown, a notebook (.ipynb), or a script (.py, .sh, .bash, .js, .mjs). '-' reads standard input: "
        "Markdown, if --language does not name a script's."
    ),
]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARG", help="After '--': the arguments of the script, in sys.argv or $@.")
]
ScriptLanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="NAME",
        help="Read the file as a script in python, sh, bash or javascript, or as markdown, whatever its name says.",
    ),
]
ExecTimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SEC", min=0.1, max=86_400, help="The timeout of each block.")
]


@command("exec")
def execute(
    file: FileArgument,
    arguments: ScriptArguments = None,
    workspace: Annotated[
        Path,
        typer.Option("--workspace", "-w", metavar="DIR", help="The folder to run in; the current one by default."),
    ] = Path(),
    timeout: ExecTimeoutOption = 60.0,
    wall: WallOption = "auto",
    network: Annotated[bool, typer.Option("--network", help="Let the code use the network.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run each block in a fresh state, without the variables of earlier blocks.")
    ] = False,
    language: ScriptLanguageOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Run the code blocks of a file in order, without a model, up to the first that fails.

    The blocks run in one session in a sandbox: variables, imports and files of earlier blocks stay.
    Blocks in python, sh, bash and javascript run; one marked no-run (```python no-run) does not.
    """
    from rich.console import Console

    from coderoom.runs import read_blocks, run_file

    source = read_blocks(file, standard_input() if file == "-" else None, language)
    run_it = run_file(
        source,
        Console(quiet=as_json),
        arguments=arguments or (),
        workspace=workspace,
        timeout=timeout,
        wall=wall,
        network=network,
        fresh=fresh,
    )
    result = asyncio.run(run_it)
    if as_json:
        print_json(result.to_json() | {"file": file})
    return end_code(result.succeeded, result.cancelled)
