"""The command line: one thin command per verb. AutoGen is imported inside the commands, because that is slow."""

from __future__ import annotations

from typing import NoReturn

# Each module adds its commands to the application, in this order.
# isort: off
from coderoom.cli import app, runs, batch, journal, solving, teams, doors, machine

# isort: on
from coderoom.exit_codes import run_and_exit

__all__ = ["app", "batch", "doors", "journal", "machine", "main", "runs", "solving", "teams"]


def main(*, owns_process: bool = True) -> NoReturn:
    """Run the command line and exit.

    Args:
        owns_process: Whether the process does nothing else. Then `run` leaves no child process of any kind behind.
    """
    run_and_exit(app.app, owns_process=owns_process)
