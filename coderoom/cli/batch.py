"""The command `batch`: a team on many tasks."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext, redirect_stdout
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from coderoom._util.files import refusing
from coderoom._util.terminal import log_to_stderr
from coderoom.cli import app
from coderoom.cli.app import EXIT_FAILED, EXIT_OK, end_code, print_json, typer
from coderoom.cli.runs import MaxTurnsOption, NetworkOption, TeamWallOption, TimeoutOption, budgets_of
from coderoom.errors import CodeRoomError, RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from coderoom.agents.checks import Check
    from coderoom.models.budgets import Budget
    from coderoom.runs.batch import Batch
    from coderoom.runs.batch_report import Summary


_MOST_SHOWN: Final = 10


class Engine(StrEnum):
    """Where the runs of a batch are."""

    LOCAL = "local"
    RAY = "ray"


@app.command()
def batch(
    team: Annotated[
        str,
        typer.Argument(
            help="A team file, or the name of a shipped team; or 'diff'.", autocompletion=app.completion.teams
        ),
    ],
    items: Annotated[str, typer.Argument(help="The tasks: .jsonl, .json, .csv, .parquet, or a dataset's folder.")],
    other: Annotated[str | None, typer.Argument(help="With 'diff': the folder of the other batch.")] = None,
    out: Annotated[
        Path | None, app.option("DIR", "The folder of the batch, which goes on in it.", "--out", "-o")
    ] = None,
    task: Annotated[
        str | None, app.option("TEXT", "The task of all lines: '${NAME}' is the field NAME of a line.")
    ] = None,
    check: Annotated[
        str | None, app.option("FILE", "Python that raises if an answer is wrong, for lines without a check.")
    ] = None,
    id_field: Annotated[str, app.option("NAME", "The field with the id of a line.", "--id")] = "id",
    repeat: Annotated[int, app.option("N", "How often each task is run, for pass@N.", min=1)] = 1,
    concurrency: Annotated[
        int | None, app.option("N", "The most runs at a time; 4, or as many as a Ray cluster has room for.", min=1)
    ] = None,
    retries: Annotated[int, app.option("N", "Retries of a run whose model service or sandbox failed.", min=0)] = 5,
    model: app.ModelOption = None,
    wall: TeamWallOption = None,
    max_turns: MaxTurnsOption = None,
    timeout: TimeoutOption = None,
    network: NetworkOption = None,
    allowed_hosts: app.HostsOption = None,
    credentials: app.CredentialsOption = None,
    server: app.ServerOption = None,
    budget: Annotated[
        list[str] | None, app.option("LIMIT=N", "A limit of all runs together, as cost_usd=5; of each: run.cells=9.")
    ] = None,
    requests_per_minute: Annotated[float | None, app.option("N", "Requests to models in a minute.", min=0.01)] = None,
    tokens_per_minute: Annotated[int | None, app.option("N", "Tokens in a minute.", min=1)] = None,
    engine: Annotated[
        Engine, app.option("NAME", "Where the runs are: 'local', or 'ray' for a Ray cluster.")
    ] = Engine.LOCAL,
    address: Annotated[
        str | None,
        app.option(
            "ADDRESS", "The Ray cluster: 'auto', or HOST:6379. Without it, that of RAY_ADDRESS, or a local one."
        ),
    ] = None,
    cpus: Annotated[float, app.option("N", "Processors of the cluster that a run takes.", min=0.01)] = 1,
    memory: Annotated[int | None, app.option("MIB", "Memory of the cluster that a run takes.", min=1)] = None,
    html: Annotated[Path | None, app.option("FILE", "With 'diff': write a page that compares the batches.")] = None,
    trust: app.TrustOption = None,
    env_file: app.EnvFileOption = None,
    otlp: app.OtlpOption = None,
    as_json: app.JsonOption = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log each run to standard error, and show the traceback of a failure.")
    ] = False,
) -> int:
    """Run a team on many tasks, with checks.

    A line of the tasks has the fields task, and perhaps id, files, check and variables; other fields are variables too.
    The same command goes on with a batch that was ended. Exit code 1: a run has failed or errored. Without a check
    no run passes: one that ends well is 'unchecked'.

    'coderoom batch diff DIR DIR' compares two batches, item by item.
    """
    if team == "diff":
        return _compare(Path(items), other, html, as_json)
    if html is not None:
        raise RequestError("--html is for 'coderoom batch diff DIR DIR': the page of a batch is in its folder.")
    if other is not None:
        raise RequestError(f"There is one argument too many: {other!r}.")
    if out is None:
        raise RequestError("Name the folder of the batch: --out DIR.")
    from coderoom.runs.batch import Batch
    from coderoom.runs.observers import exporting

    of_all, of_each = _budgets_in(budget)
    runs = Batch(
        team,
        items,
        out,
        model=model,
        task=task,
        check=None if check is None else _check_in(check),
        id_field=id_field,
        repeat=repeat,
        concurrency=concurrency,
        retries=retries,
        budget=of_all,
        item_budget=of_each,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        wall=wall,
        arguments={
            "trust": trust or (),
            "max_turns": max_turns,
            "timeout": timeout,
            "network": network,
            "allowed_hosts": allowed_hosts or (),
            "credentials": app.credentials_of(credentials),
            "server": server,
        },
        engine=engine.value,
        address=address,
        cpus=cpus,
        memory=None if memory is None else memory * 2**20,
    )
    with exporting(otlp), log_to_stderr() if debug else nullcontext():
        return asyncio.run(_run(runs, as_json))


def _budgets_in(limits: list[str] | None) -> tuple[Budget | None, Budget | None]:
    """The budget of all runs together, and that of each."""
    from coderoom.models.budgets import make_budget

    of_all, of_others = budgets_of(limits)
    if set(of_others) - {"run"}:
        raise RequestError(f"--budget {next(iter(of_others))}.…: there are LIMIT=N and run.LIMIT=N.")
    return make_budget(of_all), make_budget(of_others.get("run", {}))


def _check_in(file: str) -> Check:
    from coderoom.agents.checks import make_check

    with refusing(f"The check {file!r} cannot be read"):
        return make_check(Path(file).read_text("utf-8"))


async def _run(batch: Batch, as_json: bool) -> int:
    """Run a batch, show it while it runs and at its end, and return the exit code."""
    from rich.console import Console

    from coderoom.runs.exec_view import show_isolation

    console = Console(file=sys.stdout, quiet=as_json)
    # In a terminal, nothing must be written across the line that shows the progress.
    beside = console if console.is_interactive else Console(stderr=True, quiet=as_json)
    with redirect_stdout(sys.stderr):  # Ray prints its log.
        isolation = await _show_while_it_runs(batch, console, beside)
    if batch.isolation != isolation:  # The nodes have chosen.
        show_isolation(Console(stderr=True, quiet=as_json), batch.isolation)
    facts = batch.summary.to_json()
    _show_end(batch, facts, console)
    passed = not batch.bad_lines and not batch.stopped and facts["results"] == facts["passed"] + facts["unchecked"] > 0
    if as_json:
        bad = [{"line": each.number, "why": each.why} for each in batch.bad_lines]
        more = {"bad_lines": bad, "notes": batch.notes, "stopped": batch.stopped}
        print_json({"succeeded": passed, **facts, **more})
    return end_code(passed, bool(batch.stopped) and not batch.over_budget)


async def _show_while_it_runs(batch: Batch, console: Console, beside: Console) -> str:
    """Run a batch, and show how far it is; return what kept its runs apart at the beginning."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from coderoom._util.text import visible
    from coderoom.runs.batch_report import Summary
    from coderoom.runs.batches import note_batch
    from coderoom.runs.exec_view import show_isolation
    from coderoom.runs.interrupts import route_signals
    from coderoom.runs.items import count_items

    total = asyncio.create_task(asyncio.to_thread(count_items, batch.items)) if console.is_interactive else None
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    now = Summary()
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as progress:
        shown = progress.add_task("begins")
        async with batch:
            note_batch(batch.out)
            show_isolation(beside, isolation := batch.isolation)
            try:
                with route_signals(batch.stop):
                    async for result in batch:
                        now.add(result)
                        items = total.result() if total and total.done() and not total.exception() else None
                        line = _progress_in_words(batch, now, progress.tasks[shown].elapsed or 0, items)
                        progress.update(shown, description=line)
                        if result.why and result.status == "errored":
                            console.print(visible(f"{result.id}: {result.why}"), style="yellow", markup=False)
            except CodeRoomError:  # A full disk, for instance.
                console.print("Finished runs are kept: the same command goes on.", style="yellow")
                raise
    return isolation


def _progress_in_words(batch: Batch, now: Summary, seconds: float, items: int | None) -> str:
    """How far a batch of so many items is; `None`: they are not counted yet."""
    from coderoom._util.text import in_dollars

    rate = now.total / max(seconds, 1e-3)
    parts = [f"{number:,} {status}" for status, number in now.counts.items()]
    parts += [f"{batch.earlier:,} earlier"] * bool(batch.earlier)
    parts += [f"{rate:.1f} runs/s"]
    parts += [in_dollars(now.cost_usd)] if now.cost_usd else []
    if items is not None:
        left = items * batch.repeat - batch.earlier - now.total
        parts += [f"{timedelta(seconds=round(left / rate))} left"]
    return " · ".join(parts)


def _show_end(batch: Batch, facts: Mapping[str, Any], console: Console) -> None:
    """Show what came of a batch."""
    from coderoom._util.text import counted, visible
    from coderoom.runs.batch_report import summary_lines

    for line in batch.bad_lines:
        console.print(visible(f"{batch.items}:{line.number}: {line.why}"), style="red", markup=False)
    bad_lines = [("no items", counted(len(batch.bad_lines), "line"))] if batch.bad_lines else []
    for name, value in [*summary_lines(facts), *bad_lines]:
        console.print(f"{name:<9} {value}", markup=False, highlight=False)
    for each in facts["not_passed"][:_MOST_SHOWN]:
        run = each["id"] + (f", run {each['repeat']}" if each["repeat"] > 1 else "")
        console.print(visible(f"{run}: {each['status']}: {each['why']}"), style="red", markup=False)
    if (more := facts["failed"] + facts["errored"] - _MOST_SHOWN) > 0:
        console.print(f"and {more:,} more, which the page below lists", style="red", markup=False)
    for warning in facts["warnings"]:
        console.print(warning, style="yellow", markup=False)
    if batch.earlier:
        console.print(f"{batch.earlier:,} of these results are from an earlier start.", style="dim")
    for note in batch.notes:
        console.print(visible(note), style="yellow", markup=False)
    if batch.stopped:
        larger = " with a larger --budget" if batch.over_budget else ""
        console.print(f"Ended early: {batch.stopped}. The same command{larger} goes on.", style="yellow", markup=False)
    console.print(f"{batch.out / 'index.html'}", markup=False, highlight=False, soft_wrap=True)


def _compare(first: Path, second: str | None, html: Path | None, as_json: bool) -> int:
    import os
    from urllib.parse import quote

    from coderoom._util.text import visible
    from coderoom.runs.batch import read_results, read_settings
    from coderoom.runs.batch_diff import compare_batches, comparison_lines
    from coderoom.runs.pages.batch_diff import batch_diff_page

    if second is None:
        raise RequestError("Name the folders of two batches: coderoom batch diff DIR DIR.")
    folders = first, Path(second)
    for folder in folders:
        if not (folder / "batch.json").exists():
            raise RequestError(f"The folder {str(folder)!r} has no batch.")
    compared = compare_batches(read_results(first), read_results(folders[1]))
    if html is not None:
        here = html.resolve().parent
        links = (quote(os.path.relpath(first.resolve(), here)), quote(os.path.relpath(folders[1].resolve(), here)))
        page = batch_diff_page(compared, folders, (read_settings(first), read_settings(folders[1])), links)
        with refusing(f"The page {str(html)!r} cannot be written"):
            html.write_text(page, encoding="utf-8")
    if as_json:
        print_json({"succeeded": True, **compared.to_json()})
    else:
        changed = list(map(str, compared.changed)) or ["The batches have the same results."]
        typer.echo(visible("\n".join([*changed, *comparison_lines(compared)])))
    return EXIT_FAILED if compared.changed else EXIT_OK
