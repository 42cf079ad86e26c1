"""Runs the command line: its exit codes, and the reports of failures."""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
import warnings
from dataclasses import asdict
from typing import Any, NoReturn

import typer

from coderoom._util.text import visible
from coderoom.errors import (
    CodeRoomError,
    ConfigError,
    JournalError,
    MissingDependencyError,
    RequestError,
    SandboxUnavailable,
)

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_MISSING",
    "EXIT_OK",
    "EXIT_WRONG_REQUEST",
    "end_code",
    "print_json",
    "run_and_exit",
]

EXIT_OK, EXIT_FAILED, EXIT_WRONG_REQUEST, EXIT_MISSING, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 0, 1, 2, 3, 130, 141


def run_and_exit(app: typer.Typer, *, owns_process: bool) -> NoReturn:
    """Run a command line and exit.

    Exit codes: 0 worked, 1 the task failed, 2 wrong request, 3 something is missing, 130 interrupted, 141 the
    reader of the output has closed it, as by `head`.

    Args:
        app: The command line.
        owns_process: Passed to the commands as `obj` of their context.
    """
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 must not fail on the text of a model.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if owns_process:  # A warning, of AutoGen for instance, is a sentence and no line of code.
        warnings.formatwarning = lambda message, *_, **__: f"warning: {visible(str(message))}\n"
    try:
        code = app(standalone_mode=False, obj=owns_process)
    except _UsageProblem as error:
        if _flag("--json"):
            print_json({"succeeded": False, "error": error.format_message(), "problems": []})
        error.show()
        code = error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # The reader of the output has closed it, which Rich tells by a `SystemExit`.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_BROKEN_PIPE
    except CodeRoomError as error:
        code = _report(error)
    except Exception as error:
        code = _report_bug(error)
    sys.exit(code or EXIT_OK)


def _open_standard_streams() -> None:
    """Open the null device for closed standard streams, so that no file or socket gets their descriptors."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


# Typer bundles Click or uses an installed one, and does not export the base class of its errors.
_UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _report(error: CodeRoomError) -> int:
    if _flag("--json"):
        problems = error.problems if isinstance(error, ConfigError) else ()
        listed = [asdict(problem) for problem in problems]
        print_json({"succeeded": False, "error": str(error), "problems": listed})
    if _flag("--debug"):
        traceback.print_exception(error)
    else:
        for line in str(error).splitlines() if isinstance(error, ConfigError) else [f"coderoom: {error}"]:
            print(visible(line), file=sys.stderr)  # noqa: T201
    return _exit_code(error)


def _report_bug(error: Exception) -> int:
    words = f"{type(error).__name__}: {error}"
    if _flag("--json"):
        print_json({"succeeded": False, "error": words, "problems": []})
    if _flag("--debug"):
        traceback.print_exception(error)
    else:
        advice = "This is a bug in CodeRoom; --debug shows the traceback."
        print(f"coderoom: {visible(words)}\n{advice}", file=sys.stderr)  # noqa: T201
    return EXIT_FAILED


def _exit_code(error: CodeRoomError) -> int:
    if isinstance(error, ConfigError | RequestError):
        return EXIT_WRONG_REQUEST
    if isinstance(error, MissingDependencyError | SandboxUnavailable | JournalError):
        return EXIT_MISSING
    return EXIT_FAILED


def _flag(name: str) -> bool:
    """Whether an option was given, before any `--`."""
    arguments = sys.argv[1:]
    return name in (arguments[: arguments.index("--")] if "--" in arguments else arguments)


def end_code(succeeded: bool, cancelled: bool) -> int:
    """The exit code of a task."""
    if cancelled:
        return EXIT_INTERRUPTED
    return EXIT_OK if succeeded else EXIT_FAILED


def print_json(data: dict[str, Any]) -> None:
    """Print a result as JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
