"""The command `ask`: one question to a model, without a team."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.cli.runs import MaxSecondsOption, budgets_of, last_run

_STANDARD_INPUT: Final = "Standard input"


@app.command()
def ask(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="The question; without one, what is piped in.")] = "",
    model: Annotated[
        str | None,
        app.option("MODEL", f"The model: {app.MODEL_FORMS}.", "--model", "-m", autocompletion=app.completion.models),
    ] = None,
    files: Annotated[
        list[Path] | None,
        app.option(
            "FILE",
            "A text file that the model reads too, of at most 1,000,000 bytes with the others; '-': standard input. "
            "May be repeated.",
            "--file",
            "-f",
        ),
    ] = None,
    system: Annotated[str, app.option("TEXT", "Instructions for the model.", "--system", "-s")] = "",
    goes_on: Annotated[bool, typer.Option("--continue", "-c", help="Go on after the last question.")] = False,
    max_seconds: MaxSecondsOption = None,
    record: app.RecordOption = None,
    env_file: app.EnvFileOption = None,
    otlp: app.OtlpOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Ask a model one question, without a team and without code.

    What is piped in is a file of the question: git diff | coderoom ask "What may break?" Standard output gets the
    answer and nothing else. The question and its files are kept in the journal.
    """
    from rich.console import Console

    from coderoom.runs import open_journal

    app.hasten_autogen()
    from coderoom.models.budgets import make_budget
    from coderoom.runs import Run, RunRequest, RunView, exporting
    from coderoom.runs.asking import ASK, AnswerStream, question_team, question_with
    from coderoom.steps import observing

    text = question_with(question, _named(files or ()))
    limits, _ = budgets_of(None, max_seconds)
    kept = open_journal(journal, off=no_journal)
    if goes_on:
        last = last_run(kept, ASK, False, {"model": model, "system": system or None})
        run = Run.resume(last, kept, task=text, budget=limits, recording=record)
    else:
        prepared = RunRequest(question_team(system), text, model=model).prepare()
        run = Run.begin(prepared, kept, command=ASK, budget=make_budget(limits), recording=record)
    view = RunView(Console(stderr=True, quiet=as_json), brief=True)

    def write(piece: str) -> None:
        view.stop()
        sys.stdout.write(piece)
        sys.stdout.flush()

    answer = AnswerStream(write)
    watch = answer.show if sys.stdout.isatty() and not as_json else lambda message: None
    try:
        with exporting(otlp), observing(answer):
            done = asyncio.run(run.go(watch, begin=view.begin, owns_process=bool(context.obj)))
    finally:
        view.stop()
    if sys.stdout.isatty() and not as_json:
        answer.end(done.answer)
    elif not as_json:
        app.print_answer(done.answer)
    if not (goes_on and done.succeeded):  # Nobody needs to know that the question before was not asked again.
        view.end(done)
    if answer.is_cut:
        typer.echo("The answer was cut off at the model's limit of tokens.", err=True)
    if done.exception is not None and debug:
        traceback.print_exception(done.exception)
    return app.end(done, as_json, cut_off=answer.is_cut)


def _named(files: Sequence[Path]) -> list[tuple[str, bytes]]:
    """The files of a question by their names, and what is piped in."""
    from coderoom.runs.asking import read_file

    named = [(_STANDARD_INPUT, _piped()) if str(file) == "-" else read_file(file) for file in files]
    if Path("-") not in files and (piped := _piped(asked_for=False)):
        named.append((_STANDARD_INPUT, piped))
    return named


def _piped(*, asked_for: bool = True) -> bytes:
    """Standard input; if nobody asked for it, only a pipe or a file, which come to an end."""
    if not asked_for:
        mode = 0 if sys.stdin is None else os.fstat(sys.stdin.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return b""
    return app.standard_input()
