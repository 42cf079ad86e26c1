"""The commands about this machine: `doctor`, and `models`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import textwrap
from dataclasses import asdict
from typing import Annotated

import typer

from coderoom._util.text import visible
from coderoom.cli.app import DebugOption, JsonOption, command
from coderoom.exit_codes import EXIT_FAILED, EXIT_OK, print_json


@command()
def doctor(as_json: JsonOption = False, debug: DebugOption = False) -> int:
    """Show what works on this machine, and what is missing."""
    from coderoom.runs import examine

    findings = asyncio.run(examine())
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
        return EXIT_OK
    signs = {"ok": typer.style("✓", fg="green"), "missing": "-", "warning": typer.style("!", fg="yellow")}
    width = max(shutil.get_terminal_size().columns, 60)
    for finding in findings:
        lines = textwrap.wrap(finding.detail, width - 22, break_long_words=False, break_on_hyphens=False) or [""]
        typer.echo(f"{signs[finding.state]} {finding.name:18} " + f"\n{'':21}".join(lines))
    return EXIT_OK


@command()
def models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Models to check, instead of those that are configured.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Ask each for one word.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> int:
    """Show which model services are configured.

    With --check, the default model and one of each other service that is set up are asked a word. Exit code 1: one does
    not answer.
    """
    from coderoom.configs import default_model
    from coderoom.runs import check_model, models_to_check, services

    default = default_model()
    checks = []
    for name in names or models_to_check(default) if check or names else ():
        if not as_json and sys.stderr.isatty():
            typer.echo(visible(f"asking {name} ..."), err=True)
        checks.append(asyncio.run(check_model(name)))
    if as_json:
        listed = [asdict(service) for service in services()]
        print_json({"default": default, "services": listed, "checks": [asdict(each) for each in checks]})
    elif checks:
        for each in checks:
            words = each.error or f"{each.answer!r} after {each.seconds:.1f} s, {each.tokens} tokens"
            typer.echo(visible(f"{'-' if each.error else '✓'} {each.model}: {words}"))
    else:
        typer.echo(visible(f"default model: {default}"))
        for service in services():
            missing = ", ".join(service.missing)
            typer.echo(f"{'-' if missing else '✓'} {service.name:12} {f'needs {missing}' if missing else 'is set up'}")
    return EXIT_FAILED if any(each.error for each in checks) else EXIT_OK
