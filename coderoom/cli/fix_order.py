"""What `coderoom fix` was asked for, and how it is carried out. Used by `fix` and `resume`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coderoom._util.text import visible
from coderoom.cli import app
from coderoom.cli.app import typer

if TYPE_CHECKING:
    from coderoom.runs import Run, RunRecord
    from coderoom.runs.review import Ask


@dataclass(frozen=True)
class Order:
    """What was asked for, as plain data for the journal.

    Attributes:
        repository: The folder.
        test: Its test command.
        out: The file of the patch.
        problem: What is wrong, in one line.
        branch: The branch that is made; empty: none.
        apply: Whether a person is asked whether the patch is written into the folder.
        commit: Whether it is committed then, too.
        wall: The wall (isolation backend) for the tests.
        timeout: The time limit of the test command in seconds.
        packages: Packages for the code and the tests.
    """

    repository: str
    test: str
    out: str
    problem: str
    branch: str = ""
    apply: bool = False
    commit: bool = False
    wall: str = "auto"
    timeout: float | None = None
    packages: list[str] = field(default_factory=list)


def carry_out(order: Order, run: Run, context: typer.Context, as_json: bool) -> int:
    """Let the team work, judge what it has changed, and show the report; return the exit code."""
    from rich.console import Console

    from coderoom.runs import RunView, asking_a_person
    from coderoom.runs.delivery import Delivery
    from coderoom.runs.fix import fix

    folder, out, here = Path(order.repository), Path(order.out), Path.cwd()
    view = RunView(Console(quiet=as_json))

    async def work(ask: Ask) -> RunRecord:
        done = await run.go(view.show, begin=view.begin, owns_process=bool(context.obj), ask=ask)
        view.stop()
        view.end(replace(done, reviewed=None))  # What of the changes is in the patch is said at the end.
        return done

    delivery = Delivery(order.branch, order.apply, order.commit, partial(asking_a_person, folder))
    judged = fix(
        folder,
        order.test,
        work,
        out=out.relative_to(here) if out.is_relative_to(here) else out,
        problem=order.problem,
        delivery=delivery,
        wall=order.wall,
        timeout=order.timeout,
        packages=order.packages,
    )
    try:
        fixed = asyncio.run(judged)
    finally:
        view.stop()
    if not as_json:
        typer.echo(visible(str(fixed)))
    return app.end(fixed, as_json)
