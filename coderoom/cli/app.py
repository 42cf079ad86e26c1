"""The application of the command line, and the options that several commands have."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from coderoom import __version__
from coderoom.errors import RequestError

app = typer.Typer(
    name="coderoom",
    help="Teams of LLM agents that write, run, repair and review code.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # In which a paragraph is filled as wide as the terminal is.
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
WALL_HELP = "The wall (isolation backend): auto, bubblewrap, namespaces, sandlock, landlock, docker or none."
WallOption = Annotated[str, typer.Option("--wall", metavar="NAME", envvar="CODEROOM_WALL", help=WALL_HELP)]
TeamsOption = Annotated[
    list[str] | None, typer.Option("--team", metavar="FILE", help="Add this team file. May be repeated.")
]
TrustOption = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="NAMESPACE", help="Load components of this package too. May be repeated."),
]


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"coderoom {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Replace the team's models: openai:NAME, ollama:NAME, anthropic:NAME, replay:FILE or a YAML file.",
    ),
]
CopiedFilesOption = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Copy this file into the workspace. May be repeated."),
]


OutFileOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write this file; standard output by default.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file, whatever it contains.")]


def silence_autogen() -> None:
    """Leave reports to CodeRoom."""
    # AutoGen logs a traceback for every failure and cancellation, which are reported here anyway, and warns of model
    # names that are newer than it.
    logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="Resolved model mismatch")


def text_of(argument: str) -> str:
    """The text of an argument, for which '-' stands for standard input."""
    return standard_input().decode("utf-8", "replace") if argument == "-" else argument


def standard_input() -> bytes:
    """All of standard input."""
    if sys.stdin is None:
        raise RequestError("There is no standard input to read from.")
    return sys.stdin.buffer.read()
