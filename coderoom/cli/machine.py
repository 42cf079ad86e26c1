"""The commands about this machine: `doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import typer

from coderoom.cli.app import DebugOption, JsonOption, command
from coderoom.exit_codes import EXIT_OK, print_json


@command()
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
