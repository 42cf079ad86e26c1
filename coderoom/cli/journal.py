"""The commands about runs that are in the journal: `runs` lists, shows, serves and removes them."""

from __future__ import annotations

import difflib
import re
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coderoom._util.files import refusing
from coderoom._util.text import counted, visible
from coderoom.cli import app
from coderoom.cli.app import EXIT_FAILED, EXIT_OK, print_json, typer
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from coderoom.runs import Journal, RunEntry
    from coderoom.sandbox import NetworkUse

runs_app = typer.Typer(
    cls=app.Group, help="List, show and remove the runs in the journal.", invoke_without_command=True
)
app.app.add_typer(runs_app, name="runs")

_LONGEST_TASK = 60
_PATIENCE_SECONDS = 2.0
_UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


def _open(named: str | None) -> Journal:
    from coderoom.runs import open_journal

    journal = open_journal(named)
    if journal is None:
        raise RequestError("There is no journal; name one by --journal FILE.")
    return journal


@runs_app.callback()
def list_runs(
    context: typer.Context,
    team: Annotated[str | None, app.option("NAME", "Only runs of this team or file.")] = None,
    outcome: Annotated[
        str | None, app.option("NAME", "Only runs with this outcome, or `running`, or `killed`.")
    ] = None,
    since: Annotated[
        str | None, app.option("WHEN", "Only runs of the last 30d, 12h or 90min, or since 2026-11-20.")
    ] = None,
    search: Annotated[
        str | None,
        app.option("TEXT", 'Only runs with these words in their tasks, answers or code; a phrase is in "quotes".'),
    ] = None,
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """List the runs in the journal, the newest first.

    The commands show, compare and remove them.
    """
    if context.invoked_subcommand is not None:
        return
    from coderoom.runs.journal import summary

    if outcome is not None:
        from coderoom.generation import StopReason
        from coderoom.runs.record import OUTCOMES

        known = dict.fromkeys([*OUTCOMES, "running", "killed", *StopReason])
        if outcome not in known:
            raise RequestError(f"There is no outcome {outcome!r}; there are {', '.join(known)}.")
    begin = 0.0 if since is None else _moment_of(since)
    opened = _open(journal)
    if search is not None:
        _index(opened)
    found = opened.runs(name=team, outcome=outcome, since=begin, text=search or "")
    width = max((len(entry.name or entry.command) for entry in found), default=0)
    lines = [_line(entry, width) for entry in found] or [
        "There are no such runs." if opened.path.exists() else f"There is no journal {str(opened.path)!r} yet."
    ]
    facts = {"succeeded": True, "runs": [summary(entry) for entry in found] if as_json else []}
    app.show_result(as_json, facts, *lines)


def _index(journal: Journal) -> None:
    """Index the words of new runs, and tell of it if it takes long."""
    left = 0
    while journal.path.exists() and (now := journal.catch_up(_PATIENCE_SECONDS)):
        is_stuck, left = now == left, now
        what = (
            "cannot be searched, since nothing can be written beside the journal" if is_stuck else "are indexed first"
        )
        typer.echo(f"{counted(now, 'run')} {what}.", err=True)
        if is_stuck:
            break


@runs_app.command("show", cls=app.Command)
def show_run(
    run: app.RunArgument = "last",
    html: Annotated[
        Path | None, app.option("FILE", "Write one page that works offline; '-': to the output.", "--html")
    ] = None,
    all_branches: Annotated[
        bool, typer.Option("--all", help="Show the code and output of all branches, and not only of those that won.")
    ] = False,
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Show a run as it was.

    With its code, output, messages and summary; with --json, every step.
    """
    from rich.console import Console

    from coderoom.runs import RunView
    from coderoom.runs.journal import MESSAGE, TASK
    from coderoom.runs.record import network_in, network_words
    from coderoom.runs.run_log import read_records, read_steps
    from coderoom.runs.said import undone_in
    from coderoom.runs.story import Branching, approval_of, tasks_of, tell_steps
    from coderoom.runs.view import branch_tree
    from coderoom.steps import APPROVAL

    opened = _open(journal)
    entry = opened.find(run)
    if as_json:
        print_json({"succeeded": True, **read_steps(opened, entry)})
        return
    if html is not None:
        from coderoom.runs.pages.run import run_page

        page = run_page(opened, entry)
        if str(html) == "-":
            typer.echo(page, nl=False)
        else:
            with refusing(f"The file {str(html)!r} cannot be written"):
                html.write_text(page, encoding="utf-8")
            typer.echo(visible(f"{html}: written"))
        return
    typer.echo(visible(_line(entry)))
    records, steps = read_records(opened, entry), list(opened.steps(entry.id))
    undone = undone_in(steps)
    are_undone = [step.number in undone for step in steps if step.kind == TASK]
    console = Console()
    view = RunView(console, all_branches=all_branches)
    for record, task, is_undone in zip(records, tasks_of(steps), are_undone, strict=True):
        view.begin(record)
        view.stop()
        messages = iter(record.messages)
        for step in task:
            if step.kind == MESSAGE:
                view.show(next(messages))
            elif step.kind == APPROVAL:
                view.tell(approval_of(step))
        if is_undone:
            typer.echo("The person has undone this task.")
        if entry.ended is not None and record is records[-1]:  # Only how a run has ended is known.
            view.end(record)
    view.show_rest()
    if entry.state == "killed":
        typer.echo(f"The run was killed; coderoom resume {entry.id} goes on with it.")
    if not records:
        used: tuple[NetworkUse, ...] = ()
        branchings = (told for told in tell_steps(steps) if isinstance(told, Branching))
        for step in steps:
            result = step.result
            if "branches" in result:
                console.print(branch_tree(next(branchings).facts))
                continue
            used += network_in(result) if "exit_code" in result else ()
            text = result.get("text") or f"{result.get('code', '')}\n\n{result.get('output', '')}"
            typer.echo(visible(text.rstrip()))
            if "exit_code" in result:
                typer.echo(f"{result['outcome']} · exit code {result['exit_code']} · {step.seconds:.2f} s\n")
        typer.echo(f"outcome  {entry.state}")
        if words := network_words(used):
            typer.echo(f"network  {visible(words)}")


@runs_app.command("export", cls=app.Command)
def export_run(
    run: app.RunArgument = "last",
    kind: Annotated[
        str | None, app.option("KIND", "notebook, markdown or script; by default what FILE's suffix says.", "--as")
    ] = None,
    out: Annotated[Path | None, app.option("FILE", "The file to write, instead of the output.", "--out")] = None,
    journal: app.JournalOption = None,
    debug: app.DebugOption = False,
) -> None:
    """Write a run as a notebook, Markdown, or a script that repeats it.

    With words, code, output and pictures; a script has the code that ran, in order. Of branches, only those that won.
    """
    from coderoom.runs import export_run
    from coderoom.runs.export.run import SUFFIXES

    opened = _open(journal)
    named: Any = kind or SUFFIXES.get("" if out is None else out.suffix.lower())
    if named is None:
        kinds = ", ".join(f"{kind} ({suffix})" for suffix, kind in SUFFIXES.items())
        raise RequestError(f"Say what the run is written as, by --as or the suffix of --out: {kinds}.")
    text = export_run(opened, opened.find(run), named)
    if out is None or str(out) == "-":
        typer.echo(text, nl=False)
        return
    with refusing(f"The file {str(out)!r} cannot be written"):
        out.write_text(text, encoding="utf-8")
    typer.echo(visible(f"{out}: written"))


@runs_app.command("serve", cls=app.Command)
def serve_runs(
    port: Annotated[int, app.option("N", "The port; 0: any that is free.", min=0, max=65_535)] = 0,
    journal: app.JournalOption = None,
    debug: app.DebugOption = False,
) -> None:
    """Show all runs in the browser, live.

    Only this machine can reach the page, by its address.
    """
    from coderoom.runs.pages.server import RunServer

    with RunServer(_open(journal), port) as server:
        typer.echo(f"The runs are at {server.url}\nCtrl-C ends this.")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


@runs_app.command("diff", cls=app.Command)
def compare_runs(
    first: app.RunArgument,
    second: app.RunArgument,
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Compare two runs.

    Shows a unified diff of their messages, code and outcomes. Exit code 1: they differ.
    """
    from coderoom.runs.run_log import lines_of

    opened = _open(journal)
    entries = [opened.find(run) for run in (first, second)]
    before, now = (lines_of(opened, entry) for entry in entries)
    lines = list(difflib.unified_diff(before, now, entries[0].id, entries[1].id, lineterm=""))
    facts = {"succeeded": True, "equal": not lines, "diff": lines}
    app.show_result(as_json, facts, *(lines or ["The runs are equal."]))
    return EXIT_FAILED if lines else EXIT_OK


@runs_app.command("policy", cls=app.Command)
def show_policy(
    run: app.RunArgument = "last",
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Show the smallest lists that a run needed.

    Hosts, packages, readable folders and functions, as a diff of the team file. What was refused has a comment.
    """
    from coderoom.runs.needs import policy_of

    opened = _open(journal)
    entry = opened.find(run)
    policy = policy_of(entry, list(opened.steps(entry.id)))
    facts = {"succeeded": True, "needs": vars(policy.needs), "diff": policy.lines, "unknown": policy.unknown}
    nothing = ["The run needed nothing else than it had."]
    app.show_result(as_json, facts, *(policy.lines or nothing), *(f"# {each}" for each in policy.unknown))


@runs_app.command("lock", cls=app.Command)
def show_lock(
    run: app.RunArgument = "last",
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Print the packages that the code of a run had.

    It is a requirements file with exact versions and digests: `--package FILE.lock` gives another run the same.
    """
    lock = _open(journal).find(run).facts.get("lock") or ""
    app.show_result(as_json, {"succeeded": True, "lock": lock}, lock.rstrip() or "# The code was given no packages.")


@runs_app.command("rm", cls=app.Command)
def remove_runs(
    runs: Annotated[
        list[str], typer.Argument(help="The ids of the runs, or their beginnings.", autocompletion=app.completion.runs)
    ],
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Remove runs from the journal."""
    opened = _open(journal)
    _remove(opened, [opened.find(run).id for run in runs], as_json)


@runs_app.command("prune", cls=app.Command)
def prune_runs(
    older: Annotated[
        str, app.option("WHEN", "Remove runs that began longer ago than 30d or 12h, or before 2026-11-20.")
    ],
    journal: app.JournalOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Remove old runs from the journal, but none that goes on."""
    opened = _open(journal)
    old = opened.runs(before=_moment_of(older))
    _remove(opened, [entry.id for entry in old if entry.state != "running"], as_json)


def _moment_of(text: str) -> float:
    """The moment, in seconds since the epoch, of a date such as `2026-11-20`, or so long ago as `30d` or `12h`.

    Raises:
        RequestError: It is neither.
    """
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)", text.strip()):
        return time.time() - float(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise RequestError(
            f"{text!r} is not an age or a date; expected one as in 30d, 12h, 90min, 2w or 2026-11-20."
        ) from None


def _remove(journal: Journal, runs: list[str], as_json: bool) -> None:
    if runs:
        journal.remove(runs)
    app.show_result(as_json, {"succeeded": True, "removed": runs}, f"{counted(len(runs), 'run')} removed")


def _line(entry: RunEntry, width: int = 0) -> str:
    from coderoom.runs.journal import without_files

    task = " ".join(without_files(entry.task).split())
    shown = task if len(task) <= _LONGEST_TASK else f"{task[:_LONGEST_TASK]}..."
    began = datetime.fromtimestamp(entry.started).astimezone()
    name = f"{entry.name or entry.command:<{width}}"
    return f"{entry.id}  {began:%Y-%m-%d %H:%M}  {entry.state:<12}  {name}  {shown}".rstrip()
