"""The commands about this machine: `doctor`, `packages` and `models`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import textwrap
import time
from dataclasses import asdict
from typing import Annotated

from coderoom.cli import app
from coderoom.cli.app import EXIT_FAILED, EXIT_OK, print_json, typer
from coderoom.cli.first_run import set_up_model
from coderoom.errors import CodeRoomError, RequestError
from coderoom.models.services import SERVICES


@app.command()
def doctor(as_json: app.JsonOption = False, debug: app.DebugOption = False) -> None:
    """Show what works on this machine, and what is missing."""
    from coderoom.runs import examine

    findings = asyncio.run(examine())
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
        return
    signs = {"ok": typer.style("✓", fg="green"), "missing": "-", "warning": typer.style("!", fg="yellow")}
    width = max(shutil.get_terminal_size().columns, 60)
    for finding in findings:
        lines = textwrap.wrap(finding.detail, width - 22, break_long_words=False, break_on_hyphens=False) or [""]
        typer.echo(f"{signs[finding.state]} {finding.name:18} " + f"\n{'':21}".join(lines))


@app.command()
def packages(
    prune: Annotated[
        float | None,
        app.option("DAYS", "Remove those that were not used for so many days; 0 removes all.", "--prune", min=0),
    ] = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Show the packages that code has been given, or remove them.

    A sandbox that still runs needs its own: prune what was not used for longer than that.
    """
    from coderoom.sandbox.packages import cache_folder, kept_environments, prune_environments

    removed = [] if prune is None else prune_environments(prune)
    kept = kept_environments()
    if as_json:
        print_json({
            "folder": str(cache_folder()),
            **{
                name: [{**each._asdict(), "folder": str(each.folder)} for each in found]
                for name, found in (("environments", kept), ("removed", removed))
            },
        })  # fmt: skip
        return
    for each in kept:
        days = (time.time() - each.used) / 86_400
        typer.echo(
            f"{each.folder.name}  {each.size / 2**20:.0f} MiB, used {days:.0f} days ago: {', '.join(each.packages)}"
        )
    if prune is not None:
        freed = sum(each.size for each in removed) / 2**20
        typer.echo(f"{len(removed)} removed, {freed:.0f} MiB")
    typer.echo(f"{len(kept)} environments in {cache_folder()}")


@app.command()
def models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Models to check, instead of those that are configured.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Ask each for one word.")] = False,
    setup: Annotated[
        bool, typer.Option("--setup", help="Ask you for a service, its key and a model, which is the default then.")
    ] = False,
    env_file: app.EnvFileOption = None,
    as_json: app.JsonOption = False,
    debug: app.DebugOption = False,
) -> int:
    """Show which model services are configured.

    With --check, the default model and one of each other service that is set up are asked a word. Exit code 1: one does
    not answer; 2: a name is wrong; 3: a key is missing.
    """
    import coderoom._util.full  # noqa: F401

    if setup:
        if as_json or not sys.stdin.isatty():
            raise RequestError("--setup asks at a terminal: set the variables of the service instead (docs/models.md).")
        return EXIT_OK if set_up_model() else EXIT_FAILED
    from coderoom.configs import default_model
    from coderoom.runs import ModelCheck, check_model, models_to_check, services

    default = default_model()
    checks, code = [], EXIT_OK
    for name in names or models_to_check(default) if check or names else ():
        if not as_json and sys.stderr.isatty():
            typer.echo(f"asking {name} ...", err=True)
        try:
            checks.append(asyncio.run(check_model(name)))
        except CodeRoomError as error:
            checks.append(ModelCheck(name, error=str(error)))
            code = max(code, app.exit_code_of(error))
    found = services()
    facts = {"default": default, "services": list(map(asdict, found)), "checks": list(map(asdict, checks))}
    lines = []
    for each in checks:
        words = each.error or f"{each.answer!r} after {each.seconds:.1f} s, {each.tokens:,} tokens"
        lines.append(f"{'-' if each.error else '✓'} {each.model}: {words}")
    if not checks:
        lines.append(f"default model: {default}")
        for service in found:
            is_set = any(map(os.environ.get, SERVICES[service.name].variables.values()))
            ready = "is set up" if is_set else "needs no key"
            state = f"needs {', '.join(service.missing)}" if service.missing else ready
            lines.append(f"{'-' if service.missing else '✓'} {service.name:12} {state}")
    app.show_result(as_json, facts, *lines)
    return code or (EXIT_FAILED if any(each.error for each in checks) else EXIT_OK)
