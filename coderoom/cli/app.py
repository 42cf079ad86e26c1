"""The application of the command line, the options that several commands have, and the exit codes."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from coderoom import __version__
from coderoom._util.tasks import resolve
from coderoom._util.text import visible
from coderoom.cli import completion as completion
from coderoom.errors import ConfigError, JournalError, MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.models.services import MODEL_FORMS
from coderoom.sandbox.registry import WALLS
from coderoom.sandbox.requirements import ALLOW_BUILDS

try:
    import typer as typer

    from coderoom.cli.help import Command as Command
    from coderoom.cli.help import Group as Group
    from coderoom.cli.help import UsageProblem as UsageProblem
except ModuleNotFoundError:  # In coderoom-slim.
    if not TYPE_CHECKING:
        from coderoom.cli import plain as typer
        from coderoom.cli.plain import Command, Group, UsageProblem  # noqa: F401

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

F = TypeVar("F", bound=Callable[..., Any])

EXIT_OK, EXIT_FAILED, EXIT_WRONG_REQUEST, EXIT_MISSING, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 0, 1, 2, 3, 130, 141

app = typer.Typer(
    cls=Group,
    name="coderoom",
    help="Teams of LLM agents that write, run, repair and review code.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """An option with a value; by default it has the name of its parameter."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def with_options_of(other: Callable[..., Any]) -> Callable[[F], F]:
    """Give a command with `**options` those of another function: its keyword-only parameters."""
    shared = [
        each for each in inspect.signature(other, eval_str=True).parameters.values() if each.kind is each.KEYWORD_ONLY
    ]

    def add(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        needed = [each for each in own if each.default is each.empty]
        options = [each.replace(kind=each.POSITIONAL_OR_KEYWORD) for each in shared]
        parameters = [*needed, *options, *(each for each in own if each not in needed)]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return add


_WITH_FIELDS: dict[str, tuple[Callable[..., Any], str, Mapping[str, str]]] = {}


def with_fields(place: str, metavars: Mapping[str, str]) -> Callable[[F], F]:
    """Give a command with `**options` an option for each field of a model that it has no parameter for.

    Args:
        place: The model (of pydantic), as MODULE:NAME.
        metavars: What stands for the values of fields in the help; N for numbers and NAME for texts by default.
    """

    def note(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        function.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        _WITH_FIELDS[function.__name__] = function, place, metavars
        return function

    return note


def add_fields() -> None:
    """Add the fields of models to the commands that the command line names; the import of pydantic is slow."""
    completed = (os.environ.get(name, "").split() for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"))
    words = {*sys.argv, *chain(*completed)}
    for command, (function, place, metavars) in _WITH_FIELDS.items():
        if command not in words:
            continue
        signature, (module, _, model) = inspect.signature(function), place.partition(":")
        parameters = dict(signature.parameters)
        for name, field in getattr(import_module(module), model).model_fields.items():
            if name not in parameters:
                parameters[name] = _parameter(name, field, metavars.get(name))
        function.__signature__ = signature.replace(parameters=[*parameters.values()])  # type: ignore[attr-defined]


def _parameter(name: str, field: FieldInfo, metavar: str | None) -> inspect.Parameter:
    """The option for a field of a model."""
    parts = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else (field.annotation,)
    kind: Any = get_args(parts[0])[0] if get_origin(parts[0]) is Annotated else parts[0]
    if many := get_origin(kind) is list:
        kind = list[str]
    elif kind not in (bool, int, float):
        kind = str
    help = f"{field.description} May be repeated." if many else str(field.description)
    names = (f"--{name.replace('_', '-')}",) if field.default is False else ()
    least = next((each.ge for each in field.metadata if hasattr(each, "ge")), None)
    shown = None if kind is bool else metavar or ("N" if kind in (int, float) else "NAME")
    annotation = Annotated[  # type: ignore[valid-type]
        kind | None if field.default is None else kind, typer.Option(*names, metavar=shown, help=help, min=least)
    ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation)


def hasten_autogen() -> None:
    """Import what AutoGen takes for references in JSON Schemas without `requests`, which takes a tenth of a start.

    It would only fetch references into the web, which Python's own client then does.
    """
    modules: dict[str, Any] = sys.modules
    if not modules.keys() & {"jsonref", "requests"}:
        modules["requests"] = None
        try:
            with suppress(ImportError):
                import_module("jsonref")
        finally:
            del modules["requests"]


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
WALL_HELP = f"The wall (isolation backend): auto, {', '.join(WALLS.own)}, or that of another package."
WallOption = Annotated[
    str, option("NAME", WALL_HELP, "--wall", envvar="CODEROOM_WALL", autocompletion=completion.walls)
]
PackageOption = Annotated[
    list[str] | None,
    option(
        "PACKAGE",
        "A package for the code, such as 'polars>=1' or 'npm:lodash', or a requirements file (.txt, .lock). May be "
        "repeated.",
        "--package",
    ),
]
AllowBuildsOption = Annotated[
    bool | None, typer.Option("--allow-builds", help="Build packages that have no wheel, behind a wall.")
]
LocalNetworkOption = Annotated[bool, typer.Option("--local-network", help="Let the code run servers on 127.0.0.1.")]
TeamLocalNetworkOption = Annotated[
    bool | None, typer.Option("--local-network", help="Let the code run servers on 127.0.0.1.")
]
NetworkOption = Annotated[bool, typer.Option("--network", help="Let the code use the network.")]
HostsOption = Annotated[
    list[str] | None,
    option(
        "HOST",
        "Let the code reach this host, and nothing else: 'api.example.org:443', '*.example.org'; 'observe' lets "
        "nothing through. What else the code asks for is noted. May be repeated.",
        "--allow-host",
    ),
]
CredentialsOption = Annotated[
    list[str] | None,
    option(
        "HOST=HEADER",
        "Let the code use this host with a header that it never sees, whose value is in the environment: "
        "'api.github.com=Authorization: Bearer ${GITHUB_TOKEN}'. Methods stand before the host, beginnings of paths "
        "after it: 'GET,POST api.github.com/repos/me,/user=...'. May be repeated.",
        "--credential",
    ),
]
CodeTimeoutOption = Annotated[float | None, option("SEC", "The timeout of code.", "--timeout", min=0.1, max=86_400)]
PreloadOption = Annotated[
    list[str] | None, option("MODULE", "Import this once, for all code. May be repeated.", "--preload")
]
ServerOption = Annotated[
    str | None,
    option(
        "URL",
        "Run the code at this server ('coderoom sandbox serve'), whose token is in CODEROOM_SERVER_TOKEN.",
        "--server",
    ),
]
TeamsOption = Annotated[list[str] | None, option("FILE", "Add this team file. May be repeated.", "--team")]
TrustOption = Annotated[
    list[str] | None, option("NAMESPACE", "Load components of this package too. May be repeated.", "--trust")
]


def packages_of(packages: Sequence[str] | None, allow_builds: bool | None) -> list[str]:
    """What `packages` of a sandbox is, by the options of a command."""
    return [*(packages or ()), *([ALLOW_BUILDS] if allow_builds else ())]


ASKING_MODELS = ("run", "ask", "chat", "resume", "batch", "solve", "fix", "serve", "mcp", "models", "studio")
"""The commands that may need the key of a model service."""
_FROM_CONFIG: set[str] = set()
"""The variables that the user's config file has set, which `--env-file` replaces."""


def _set_from_file(path: Path | None) -> Path | None:
    if path is not None:
        from coderoom.models.keys import set_from_file

        set_from_file(path, os.environ, over=_FROM_CONFIG)
    return path


EnvFileOption = Annotated[
    Path | None,
    option(
        "FILE",
        "Set the variables in this file, such as .env, that have no value yet. None is read unasked.",
        "--env-file",
        callback=_set_from_file,
        is_eager=True,
    ),
]


command = partial(app.command, cls=Command)
"""Adds a function as a command."""


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"coderoom {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        from coderoom.configs.user_config import apply_kept_keys, apply_user_config

        _FROM_CONFIG.clear()
        _FROM_CONFIG.update(apply_user_config(os.environ))
        if context.invoked_subcommand in ASKING_MODELS:
            try:
                apply_kept_keys(os.environ)
            except MissingDependencyError as error:  # The key may not be needed.
                typer.echo(visible(str(error)), err=True)


@command(hidden=True)
def version() -> None:
    """Print the version."""
    typer.echo(f"coderoom {__version__}")


ModelOption = Annotated[
    str | None,
    option("MODEL", f"Replace the team's models: {MODEL_FORMS}.", "--model", "-m", autocompletion=completion.models),
]
RunArgument = Annotated[
    str,
    typer.Argument(help="The id of the run, or its beginning, or 'last'.", autocompletion=completion.runs),
]
TeamArgument = Annotated[
    str,
    typer.Argument(help="A team file (YAML or JSON), or the name of a shipped team.", autocompletion=completion.teams),
]
CopiedFilesOption = Annotated[
    list[Path] | None, option("FILE", "Copy this file into the workspace. May be repeated.", "--file", "-f")
]


JournalOption = Annotated[
    str | None,
    option(
        "FILE",
        "The journal of runs; 'required': end a run if the journal cannot be written; 'off': keep none.",
        "--journal",
        envvar="CODEROOM_JOURNAL",
    ),
]
NoJournalOption = Annotated[bool, typer.Option("--no-journal", help="Keep nothing of this run in the journal.")]
OtlpOption = Annotated[
    str | None, option("URL", "Send traces to this OpenTelemetry collector: http://localhost:4318.", "--otlp")
]
RecordOption = Annotated[
    Path | None, option("FILE", "Record the model's replies in FILE; --model replay:FILE uses them.", "--record")
]


OutFileOption = Annotated[Path | None, option("FILE", "Write this file; standard output by default.", "--out", "-o")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file, whatever it contains.")]


def network_of(whole: bool, hosts: list[str] | None) -> bool | list[str]:
    """What code may use of the network, by the options of a command."""
    if whole and hosts:
        raise RequestError("--network lets the code use the whole network: leave out that, or --allow-host.")
    return hosts or whole


def credentials_of(given: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """What `credentials` of a sandbox is, by the options of a command."""
    found: dict[str, dict[str, Any]] = {}
    for text in given or ():
        place, _, line = text.partition("=")
        methods, _, rest = place.strip().rpartition(" ")
        host, slash, paths = rest.partition("/")
        header, _, value = line.partition(":")
        if not value.strip():  # What was given may be the secret.
            raise RequestError(
                "--credential is HOST=HEADER, such as 'api.github.com=Authorization: Bearer ${GITHUB_TOKEN}'."
            )
        names = re.findall(r"\$\{(\w+)\}", value)
        if unset := [name for name in names if not os.environ.get(name)]:
            raise RequestError(f"--credential {host!r:.100}: the environment variable {unset[0]!r} is not set.")
        if not names:  # Others can see the arguments of a command.
            raise RequestError(
                f"--credential {host!r:.100}: its value must be in a variable of the environment, as ${{TOKEN}}; put "
                "it into single quotes, so that the shell does not replace it."
            )
        found[host] = {"header": header.strip(), "value": value.strip()}
        if methods:
            found[host]["methods"] = re.split(r"[\s,]+", methods.strip())
        if slash:
            found[host]["paths"] = f"/{paths}".split(",")
    return found


def show_result(as_json: bool, facts: dict[str, Any], *lines: object) -> None:
    """Print a result: as JSON, or as these lines."""
    if as_json:
        print_json(facts)
    else:
        for line in lines:
            typer.echo(visible(str(line)))


def end(result: Any, as_json: bool, **more: Any) -> int:
    """Print the facts of a task that has ended, if that is asked for; return its exit code."""
    if as_json:
        print_json(result.to_json() | more)
    return end_code(result.succeeded, result.cancelled)


def end_code(succeeded: bool, cancelled: bool) -> int:
    """The exit code of a task."""
    if cancelled:
        return EXIT_INTERRUPTED
    return EXIT_OK if succeeded else EXIT_FAILED


def exit_code_of(error: Exception) -> int:
    """The exit code for an error."""
    if isinstance(error, ConfigError | RequestError):
        return EXIT_WRONG_REQUEST
    if isinstance(error, MissingDependencyError | SandboxUnavailable | JournalError):
        return EXIT_MISSING
    return EXIT_FAILED


def print_json(data: dict[str, Any]) -> None:
    """Print a result as JSON, where NaN and infinities are null.

    There are escapes, if the encoding is not UTF-8 or there are lone surrogates.
    """
    data = json.loads(json.dumps(data), parse_constant=lambda _: None)
    text = json.dumps(data, ensure_ascii=False, indent=2)
    try:
        is_readable = codecs.lookup(sys.stdout.encoding).name == "utf-8" and bool(text.encode())
    except UnicodeEncodeError:
        is_readable = False
    typer.echo(text if is_readable else json.dumps(data, indent=2))


def print_answer(answer: str) -> None:
    """Print an answer and nothing else: as it is, or as a terminal can show it."""
    if answer:
        sys.stdout.write(f"{visible(answer) if sys.stdout.isatty() else answer}".rstrip("\n") + "\n")
        sys.stdout.flush()


def text_of(argument: str) -> str:
    """The text of an argument, for which '-' stands for standard input."""
    text = standard_input().removesuffix(b"\n") if argument == "-" else os.fsencode(argument)
    return text.decode("utf-8", "replace")


def standard_input() -> bytes:
    """All of standard input."""
    if sys.stdin is None:
        raise RequestError("There is no standard input to read from.")
    return sys.stdin.buffer.read()


async def standard_input_as_it_comes() -> AsyncIterator[bytes]:
    """The pieces of standard input; who waits for one keeps the command from nothing, such as its end."""
    if sys.stdin is None:
        raise RequestError("There is no standard input to read from.")
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(fd, resolve, ready)
        except PermissionError:  # A plain file never makes anybody wait.
            ready.set_result(None)
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        if not (piece := os.read(fd, 65_536)):
            return
        yield piece
