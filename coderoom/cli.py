"""The command line: one thin command per verb. AutoGen is imported inside the commands, because that is slow."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from coderoom import __version__
from coderoom._util.text import counted, visible
from coderoom.errors import Problem, RequestError
from coderoom.exit_codes import EXIT_OK, EXIT_WRONG_REQUEST, end_code, print_json, run_and_exit

__all__ = ["app", "main"]

app = typer.Typer(
    name="coderoom",
    help="Teams of LLM agents that write, run, repair and review code.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # In which a paragraph is filled as wide as the terminal is.
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
WALL_HELP = "The wall (isolation backend): auto, bubblewrap, namespaces, sandlock, landlock, docker or none."
WallOption = Annotated[str, typer.Option("--wall", metavar="NAME", envvar="CODEROOM_WALL", help=WALL_HELP)]
TeamsOption = Annotated[
    list[str] | None, typer.Option("--team", metavar="FILE", help="Add this team file. May be repeated.")
]
TrustOption = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="NAMESPACE", help="Load components of this package too. May be repeated."),
]


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"coderoom {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Replace the team's models: openai:NAME, ollama:NAME, anthropic:NAME, replay:FILE or a YAML file.",
    ),
]
CopiedFilesOption = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Copy this file into the workspace. May be repeated."),
]


@app.command()
def run(
    context: typer.Context,
    team: Annotated[str, typer.Argument(help="A team file (YAML or JSON), or the name of a shipped team.")],
    task: Annotated[str, typer.Argument(help="The task. '-' reads it from standard input.")],
    model: ModelOption = None,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-w", metavar="DIR", help="The folder that the code works in."),
    ] = None,
    wall: Annotated[str | None, typer.Option("--wall", metavar="NAME", help=WALL_HELP)] = None,
    files: CopiedFilesOption = None,
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
        team, _text(task), model=model, workspace=workspace, wall=wall, files=files or (), trust=trust or ()
    )
    if not debug:
        _silence_autogen()
    view = RunView(Console(quiet=as_json))
    record = prepared.record
    try:
        begin = partial(view.begin, record)
        with pausing_for_questions(view.pause):
            asyncio.run(run_team(prepared.team, record, view.show, begin=begin, owns_process=bool(context.obj)))
    finally:
        view.stop()
    view.end(record)
    if as_json:
        print_json(record.to_json())
    if record.exception is not None and debug:
        traceback.print_exception(record.exception)
    return end_code(record.succeeded, record.cancelled)


def _silence_autogen() -> None:
    # AutoGen logs a traceback for every failure and cancellation, which are reported here anyway, and warns of model
    # names that are newer than it.
    logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="Resolved model mismatch")


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logger = logging.getLogger("coderoom")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


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


@app.command("exec")
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

    source = read_blocks(file, _standard_input() if file == "-" else None, language)
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


SolveDebugOption = Annotated[
    bool, typer.Option("--debug", help="Log each step to standard error, and show the traceback of a failure.")
]
SolveModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="openai:NAME, ollama:NAME, anthropic:NAME, replay:FILE or a YAML file; CODEROOM_MODEL by default.",
    ),
]


CacheDirOption = Annotated[
    Path | None,
    typer.Option("--cache-dir", metavar="DIR", help="The folder of the cache; the user's cache folder by default."),
]
_NOT_GENERATOR_OPTIONS = frozenset(["instruction", "tests_for", "out", "name", "model", "wall", "as_json", "debug"])


@app.command()
def solve(
    instruction: Annotated[
        str,
        typer.Argument(help="What the program must do; '-' reads standard input. Optional with --tests-for."),
    ] = "",
    tests_for: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE[:NAME]",
            help="Write only tests, for a function of FILE.py or all public ones. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Write the module, its tests and a report to this folder."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the module in DIR.")] = None,
    model: SolveModelOption = None,
    language: Annotated[str, typer.Option("--language", metavar="NAME", help="python, javascript, shell.")] = "python",
    wall: WallOption = "auto",
    max_attempts: Annotated[int, typer.Option(metavar="N", min=1, help="Attempts for each function.")] = 6,
    max_test_changes: Annotated[int, typer.Option(metavar="N", min=0, help="Changes of tests for each function.")] = 2,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Token budget; without it, unlimited.")
    ] = None,
    max_answer_tokens: Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens of one reply.")] = None,
    request_timeout: Annotated[
        float | None, typer.Option(metavar="SEC", min=0, help="Timeout of a request, which is then repeated.")
    ] = None,
    max_seconds: Annotated[
        float,
        typer.Option(metavar="SEC", min=0, help="Time budget; a running request is cut off."),
    ] = 1800.0,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Concurrent requests.")] = 4,
    requests_per_minute: Annotated[float | None, typer.Option(metavar="N", min=0, help="Requests per minute.")] = None,
    retries: Annotated[int, typer.Option(metavar="N", min=0, help="Retries after a connection error.")] = 4,
    test_timeout: Annotated[float, typer.Option(metavar="SEC", min=0, help="Timeout of each test.")] = 5.0,
    allowed_imports: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Let the code import only this module. May be repeated."),
    ] = None,
    block_severity: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Do not run code in which the scanner finds this severity or more: low, medium, high or none.",
        ),
    ] = "high",
    accept_changed_tests: Annotated[
        bool,
        typer.Option(
            "--accept-changed-tests", help="Count functions as passed if their tests were changed during the repair."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail tests that pass alone, but not after the others in one process.")
    ] = False,
    cache: Annotated[bool, typer.Option(help="Reuse solutions that passed, and resume interrupted work.")] = True,
    embeddings: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Reuse solutions of similar instructions, too, by this embedding model."),
    ] = None,
    similarity: Annotated[
        float,
        typer.Option(metavar="N", min=0, max=1, help="With --embeddings: the least cosine."),
    ] = 0.95,
    cache_dir: CacheDirOption = None,
    as_json: JsonOption = False,
    debug: SolveDebugOption = False,
) -> int:
    """Turn an instruction into tested functions: specs, tests, code, and repair until the tests pass.

    All code runs in a sandbox, and test results are computed outside of it. Exit code 1: not all tests passed.
    """
    options = {name: value for name, value in locals().items() if name not in _NOT_GENERATOR_OPTIONS}
    options["block_severity"] = None if block_severity == "none" else block_severity
    from rich.console import Console

    from coderoom.runs import solve

    if not debug:
        _silence_autogen()
    # Progress bars would be torn by the log.
    console = Console(quiet=as_json, force_interactive=False if debug else None)
    with _log_to_stderr() if debug else nullcontext():
        solved = asyncio.run(
            solve(
                _text(instruction),
                console,
                model=model,
                out=out,
                name=name,
                wall=wall,
                options=options,
                tests_for=tests_for or (),
            )
        )
    if as_json:
        print_json(solved.to_json())
    return end_code(solved.succeeded, solved.cancelled)


cache_app = typer.Typer(help="Show or clear what `solve` has cached.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")


_LONGEST_SHOWN = 80
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (0, "s"))


@cache_app.command("show")
def show_cache(
    cache_dir: CacheDirOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Show the cached solutions, the most recently used first, and the size of the cache."""
    from coderoom.generation import SolutionCache

    cache = SolutionCache(cache_dir)
    if cache.path.exists() and not cache.path.is_dir():
        raise RequestError(f"The cache {str(cache.path)!r} is not a folder.")
    stats, entries = cache.stats(), cache.entries()
    if as_json:
        facts = {"solutions": stats.entries, "replies": stats.answers, "bytes": stats.bytes}
        listed = [asdict(entry) | {"used": entry.used.isoformat()} for entry in entries]
        print_json({"folder": str(cache.path), **facts, "max_bytes": stats.max_bytes, "entries": listed})
        return EXIT_OK
    replies = f", {counted(stats.answers, 'reply', 'replies')} of unfinished work" if stats.answers else ""
    typer.echo(visible(f"{cache.path}: {counted(stats.entries, 'solution')}{replies}, {stats.bytes:,} bytes"))
    for entry in entries:
        instruction = " ".join(entry.instruction.split())
        shown = instruction if len(instruction) <= _LONGEST_SHOWN else f"{instruction[:_LONGEST_SHOWN]}..."
        typer.echo(visible(f"{_age(entry.used):>7}  {entry.bytes:>9,} bytes  {entry.model}  {shown}"))
    return EXIT_OK


@cache_app.command("clear")
def clear_cache(
    cache_dir: CacheDirOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Remove all cached solutions, and all stored replies of unfinished work."""
    from coderoom.generation import SolutionCache

    cache = SolutionCache(cache_dir)
    removed = cache.clear()
    if as_json:
        print_json({"succeeded": True, "folder": str(cache.path), "removed": removed})
    else:
        typer.echo(visible(f"{cache.path}: {counted(removed, 'solution')} removed"))
    return EXIT_OK


def _age(used: datetime) -> str:
    """How long ago a solution was used, in the largest unit that fits."""
    seconds = max((datetime.now(UTC) - used).total_seconds(), 0)
    size, unit = next(each for each in _UNITS if seconds >= each[0])
    return f"{seconds / (size or 1):.0f} {unit}"


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Team files, or names of shipped teams.")],
    trust: TrustOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Check team files without building anything, and print every mistake."""
    from coderoom.configs import check_team

    found: dict[str, list[Problem]] = {}
    for file in files:
        try:
            found[file] = check_team(file, trust=trust or ())
        except RequestError as error:
            found[file] = [Problem(str(error), file)]
    if as_json:
        listed = [{"file": file, "problems": [asdict(p) for p in problems]} for file, problems in found.items()]
        print_json({"valid": not any(found.values()), "files": listed})
    else:
        for file, problems in found.items():
            for line in [str(problem) for problem in problems] or [f"{file}: ok"]:
                typer.echo(visible(line))
    return EXIT_WRONG_REQUEST if any(found.values()) else EXIT_OK


OutFileOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write this file; standard output by default.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file, whatever it contains.")]


@app.command()
def gallery(
    teams: TeamsOption = None,
    model: ModelOption = None,
    out: OutFileOption = None,
    force: ForceOption = False,
    trust: TrustOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Make a gallery for AutoGen Studio: the shipped teams, your own, and their parts.

    It contains nothing of this machine: no keys, no paths, and no values of variables except those of --model.
    """
    from coderoom.configs import make_gallery

    made = make_gallery(teams or (), model=model, trust=trust or ())
    counts = {name: len(components) for name, components in made["components"].items()}
    return _write_or_print(made, out, force=force, as_json=as_json, facts={"components": counts})


@app.command()
def studio(
    teams: TeamsOption = None,
    model: ModelOption = None,
    appdir: Annotated[
        Path | None,
        typer.Option("--appdir", metavar="DIR", help="Where Studio keeps its teams, sessions and runs."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any that is free.")] = 8081,
    trust: TrustOption = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start AutoGen Studio with the shipped teams and your own, until Ctrl-C.

    The first start installs Studio in an environment of its own. It listens on this machine only, and has no
    authentication: anyone who can reach its port can run code as you.
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
    out: OutFileOption = None, force: ForceOption = False, as_json: JsonOption = False, debug: DebugOption = False
) -> int:
    """Print the JSON Schema of team files, with which editors complete and check them."""
    from coderoom.configs import make_schema

    return _write_or_print(make_schema(), out, force=force, as_json=as_json, facts={})


def _write_or_print(
    made: dict[str, Any], out: Path | None, *, force: bool, as_json: bool, facts: dict[str, Any]
) -> int:
    from coderoom.configs import write_made

    if out is None:
        print_json(made)
        return EXIT_OK
    write_made(out, made, force=force)
    if as_json:
        print_json({"succeeded": True, "file": str(out), **facts})
    else:
        typer.echo(visible(f"{out}: written"))
    return EXIT_OK


@app.command()
def doctor(as_json: JsonOption = False, debug: DebugOption = False) -> int:
    """Show what works on this machine, and what is missing."""
    from coderoom.runs import examine

    findings = asyncio.run(examine())
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
        return EXIT_OK
    signs = {"ok": typer.style("✓", fg="green"), "missing": "-", "warning": typer.style("!", fg="yellow")}
    for finding in findings:
        typer.echo(f"{signs[finding.state]} {finding.name:18} {finding.detail}")
    return EXIT_OK


def _text(argument: str) -> str:
    """The text of an argument, for which '-' stands for standard input."""
    return _standard_input().decode("utf-8", "replace") if argument == "-" else argument


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise RequestError("There is no standard input to read from.")
    return sys.stdin.buffer.read()


def main(*, owns_process: bool = True) -> NoReturn:
    """Run the command line and exit.

    Args:
        owns_process: Whether the process does nothing else. Then `run` leaves no child process of any kind behind.
    """
    run_and_exit(app, owns_process=owns_process)


if __name__ == "__main__":
    main()
