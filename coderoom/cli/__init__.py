"""The command line: one thin command per verb, and the reports of failures.

AutoGen is imported inside the commands, because that is slow.
"""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NoReturn

from coderoom._util.distribution import MORE_NEEDED, is_slim
from coderoom._util.text import visible

# Each module adds its commands to the application, in this order.
# isort: off
from coderoom.cli import (
    app,
    runs,
    asking,
    batch,
    judge,
    journal,
    solving,
    fixing,
    teams,
    doors,
    skills,
    service,
    machine,
)

# isort: on
from coderoom.cli.first_run import may_ask, set_up_model
from coderoom.errors import CodeRoomError, ConfigError, MissingDependencyError, MissingKeyError

__all__ = [
    "app",
    "asking",
    "batch",
    "doors",
    "fixing",
    "journal",
    "judge",
    "machine",
    "main",
    "runs",
    "service",
    "skills",
    "solving",
    "teams",
]


def main(*, owns_process: bool = True) -> NoReturn:
    """Run the command line and exit.

    Exit codes: 0 worked, 1 the task failed, 2 wrong request, 3 something is missing, 130 interrupted, 141 the
    reader of the output has closed it, as by `head`.

    Args:
        owns_process: Whether the process does nothing else. Then `run` leaves no child process of any kind behind.
    """
    # The null device in place of closed standard streams, so that no file or socket gets their descriptors.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 must not fail on the text of a model.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if owns_process:
        gc.set_threshold(100_000)  # What is imported stays: looking for garbage in it takes a sixth of a start.
        # A warning, of AutoGen for instance, is a sentence and no line of code.
        warnings.formatwarning = lambda message, *_, **__: f"warning: {visible(str(message))}\n"
    if not _flag("--debug"):
        # AutoGen logs a traceback for every failure and cancellation, which are reported here anyway, and warns of
        # model names that are newer than it.
        logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", message="Resolved model mismatch")
    try:
        app.add_fields()
        with app.completion.with_whole_words():
            code = _run(owns_process)
    except app.UsageProblem as error:
        if "unexpected extra argument" in error.message and error.ctx.info_name in ("run", "ask", "solve", "chat"):
            error.message += ". Quote a task of several words."
        if _flag("--json"):
            app.print_json({"succeeded": False, "error": error.format_message(), "problems": []})
        error.show()
        code = error.exit_code
    except (app.typer.Abort, KeyboardInterrupt):
        code = app.EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # The reader of the output has closed it, which Rich tells by a `SystemExit`.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _discard_output()
        code = app.EXIT_BROKEN_PIPE
    except Exception as error:
        code = _report(error)
    if owns_process:
        gc.freeze()  # At its end Python looks through all that was imported, which takes a third of a short command.
    sys.exit(code or app.EXIT_OK)


def _run(owns_process: bool) -> Any:
    """Run the command; if it has no key and no model, ask for them and run it once more."""
    try:
        return app.app(standalone_mode=False, obj=owns_process)
    except MissingKeyError as error:
        if _flag("--json") or not may_ask():
            raise
        app.typer.echo("No model service is set up yet.", err=True)
        if not set_up_model():
            raise error from None
    return app.app(standalone_mode=False, obj=owns_process)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception) -> int:
    """Say what has failed; return the exit code."""
    if isinstance(error, ModuleNotFoundError) and is_slim():
        error = MissingDependencyError(f"This command {MORE_NEEDED}")
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    is_bug = not isinstance(error, CodeRoomError) and not is_full
    words = f"{type(error).__name__}: {error}" if is_bug else str(error)
    if isinstance(error, OSError) and is_full:
        words = f"The output cannot be written: {error.strerror}."
    problems = error.problems if isinstance(error, ConfigError) else ()
    if _flag("--json"):
        with suppress(OSError):
            app.print_json({"succeeded": False, "error": words, "problems": list(map(asdict, problems))})
    if _flag("--debug"):
        traceback.print_exception(error)
    else:
        lines = words.splitlines() if isinstance(error, ConfigError) else [f"coderoom: {words}"]
        lines += ["This is a bug in CodeRoom; --debug shows the traceback."] if is_bug else []
        for line in lines:
            print(visible(line), file=sys.stderr)  # noqa: T201
    try:
        sys.stdout.flush()
    except OSError:  # What is left cannot be written either, which Python would report at its end.
        _discard_output()
    return app.exit_code_of(error)


def _flag(name: str) -> bool:
    """Whether an option was given, before any `--`."""
    arguments = sys.argv[1:]
    return name in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
