"""The generator on the command line: `solve`, and `cache` for its cache."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coderoom._util.database import FILE_NAME
from coderoom._util.terminal import log_to_stderr
from coderoom._util.text import counted
from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.cli.runs import budgets_of
from coderoom.errors import RequestError
from coderoom.models.services import MODEL_FORMS

if TYPE_CHECKING:
    from coderoom.generation import SolutionCache


CacheDirOption = Annotated[
    Path | None, app.option("DIR", "The folder of the cache, if it is not in the journal.", "--cache-dir")
]


@app.command()
@app.with_fields(
    "coderoom.generation.options:GeneratorOptions",
    {
        "request_timeout": "SEC", "max_seconds": "SEC", "test_timeout": "SEC",
        "allowed_imports": "MODULE", "block_severity": "LEVEL", "cache_dir": "DIR", "embeddings": "MODEL",
    },
)  # fmt: skip
def solve(
    instruction: Annotated[
        str, typer.Argument(help="What the program must do; '-' reads standard input. Optional with --tests-for.")
    ] = "",
    tests_for: Annotated[
        list[str] | None,
        app.option("FILE[:NAME]", "Write only tests, for a function of FILE.py or all public ones. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, app.option("DIR", "Write the module, its tests and a report to this folder.", "--out", "-o")
    ] = None,
    name: Annotated[str | None, app.option("NAME", "The name of the module in DIR.")] = None,
    model: Annotated[
        str | None,
        app.option(
            "MODEL", f"CODEROOM_MODEL by default. {MODEL_FORMS}.", "--model", "-m", autocompletion=app.completion.models
        ),
    ] = None,
    branch_models: Annotated[
        list[str] | None,
        app.option(
            "MODEL", "A model that repairs in branches, in turn with others. May be repeated.", "--branch-model"
        ),
    ] = None,
    wall: app.WallOption = "auto",
    server: app.ServerOption = None,
    budget: Annotated[
        list[str] | None,
        app.option("LIMIT=N", "A limit: tokens, cost_usd, model_calls or seconds. May be repeated.", "--budget"),
    ] = None,
    record: app.RecordOption = None,
    env_file: app.EnvFileOption = None,
    otlp: app.OtlpOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    as_json: app.JsonOption = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log each step to standard error, and show the traceback of a failure.")
    ] = False,
    **options: Any,
) -> int:
    """Turn an instruction into tested functions.

    The model writes specs, tests and code, and repairs the code until the tests pass. All code runs in a sandbox,
    and test results are computed outside of it. Exit code 1: not all tests passed.
    """
    from rich.console import Console

    from coderoom.runs import Recorder, RunLog, exporting, open_journal, solve

    limits, of_agents = budgets_of(budget)
    if of_agents:
        raise RequestError(f"--budget {next(iter(of_agents))}.…: `solve` has no agents.")
    # Progress bars would be torn by the log.
    console = Console(quiet=as_json, force_interactive=False if debug else None)
    log = RunLog(open_journal(journal, off=no_journal))
    recorders = () if record is None else (Recorder(record, model),)
    with exporting(otlp), log_to_stderr() if debug else nullcontext():
        solved = asyncio.run(
            solve(
                app.text_of(instruction),
                console,
                model=model,
                branch_models=branch_models or (),
                out=out,
                name=name,
                wall=wall,
                server=server,
                options=options,
                limits=limits,
                tests_for=tests_for or (),
                log=log,
                observers=recorders,
            )
        )
    if log.failure:
        typer.echo(log.failure, err=True)
    return app.end(solved, as_json)


cache_app = typer.Typer(cls=app.Group, help="Show or clear what `solve` has cached.", no_args_is_help=True)
app.app.add_typer(cache_app, name="cache")


_LONGEST_SHOWN = 80
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (0, "s"))


def _open_cache(cache_dir: Path | None, named: str | None) -> SolutionCache:
    from coderoom.generation import SolutionCache
    from coderoom.runs import open_journal

    if cache_dir is not None:
        return SolutionCache(cache_dir / FILE_NAME)
    journal = open_journal(named)
    if journal is None:
        raise RequestError("There is no journal, and so no cache; name one by --journal FILE, or --cache-dir DIR.")
    return SolutionCache(journal.path)


@cache_app.command("show", cls=app.Command)
def show_cache(
    cache_dir: CacheDirOption = None,
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Show the cached solutions.

    The most recently used is first. The size of the cache is shown too.
    """
    cache = _open_cache(cache_dir, journal)
    stats, entries = cache.stats(), cache.entries()
    facts = {
        "path": str(cache.path),
        "solutions": stats.entries,
        "replies": stats.answers,
        "bytes": stats.bytes,
        "max_bytes": stats.max_bytes,
        "entries": [asdict(entry) | {"used": entry.used.isoformat()} for entry in entries],
    }
    replies = f", {counted(stats.answers, 'reply', 'replies')} of unfinished work" if stats.answers else ""
    lines = [f"{cache.path}: {counted(stats.entries, 'solution')}{replies}, {stats.bytes:,} bytes"]
    for entry in entries:
        instruction = " ".join(entry.instruction.split())
        shown = instruction if len(instruction) <= _LONGEST_SHOWN else f"{instruction[:_LONGEST_SHOWN]}..."
        seconds = max((datetime.now(UTC) - entry.used).total_seconds(), 0)
        size, unit = next(each for each in _UNITS if seconds >= each[0])
        age = f"{seconds / (size or 1):.0f} {unit}"
        lines.append(f"{age:>7}  {entry.bytes:>9,} bytes  {entry.model}  {shown}")
    app.show_result(as_json, facts, *lines)


@cache_app.command("clear", cls=app.Command)
def clear_cache(
    cache_dir: CacheDirOption = None,
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Remove all cached solutions.

    The stored replies of unfinished work are removed too.
    """
    cache = _open_cache(cache_dir, journal)
    removed = cache.clear()
    facts = {"succeeded": True, "path": str(cache.path), "removed": removed}
    app.show_result(as_json, facts, f"{cache.path}: {counted(removed, 'solution')} removed")
