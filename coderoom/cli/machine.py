"""The commands about this machine: `doctor`."""

from __future__ import annotations

import asyncio
import shutil
import textwrap
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
    width = max(shutil.get_terminal_size().columns, 60)
    for finding in findings:
        lines = textwrap.wrap(finding.detail, width - 22, break_long_words=False, break_on_hyphens=False) or [""]
        typer.echo(f"{signs[finding.state]} {finding.name:18} " + f"\n{'':21}".join(lines))
    return EXIT_OK
