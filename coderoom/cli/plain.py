"""The few parts of Typer that the commands use, on `argparse`: for `coderoom-slim`, which does without Typer.

So each command is defined once. Names and arguments are Typer's.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin

from coderoom.cli.examples import examples_of

F = TypeVar("F", bound=Callable[..., Any])

_COLOURS: Final = {"green": 32, "yellow": 33}


class Abort(Exception):  # noqa: N818 (as Typer's)
    """Nothing raises it here."""


class Command:
    """Typer's class says how the help of a command looks; here that is argparse's."""


class Group(Command):
    """Several commands."""


class UsageProblem(Exception):  # noqa: N818 (as Typer's)
    """The words of the command line are wrong."""

    exit_code = 2

    def __init__(self, message: str, parser: _Parser) -> None:
        super().__init__(message)
        self.message = message
        self.ctx = Context(parser)

    def format_message(self) -> str:
        """What is wrong."""
        return self.message

    def show(self) -> None:
        """Print it."""
        echo(f"{self.ctx.parser.format_usage()}{self.message}", err=True)


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        return super().format_help() + examples_of(self.prog.partition(" ")[2])

    def error(self, message: str) -> NoReturn:
        raise UsageProblem(message, self)


@dataclass
class Context:
    """What a command knows of its caller."""

    parser: _Parser
    obj: Any = None
    invoked_subcommand: str | None = None

    @property
    def info_name(self) -> str:
        """The name of the command."""
        return self.parser.prog.rpartition(" ")[2]

    def get_help(self) -> str:
        """The help of the command."""
        return self.parser.format_help()


@dataclass(frozen=True)
class Parameter:
    """What the annotation of a command's parameter says."""

    names: Sequence[str] = ()
    is_argument: bool = False
    help: str = ""
    metavar: str | None = None
    envvar: str | None = None
    min: float | None = None
    max: float | None = None
    show_default: bool = True
    callback: Callable[[Any], Any] = lambda value: value
    is_eager: bool = False
    autocompletion: Callable[[str], Any] | None = None


def Option(*names: str, **more: Any) -> Parameter:  # noqa: N802
    """An option; by default it has the name of its parameter."""
    return Parameter(names, **more)


def Argument(**more: Any) -> Parameter:  # noqa: N802
    """An argument without a name."""
    return Parameter(is_argument=True, **more)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text."""
    print(text, end="\n" if nl else "", file=sys.stderr if err else sys.stdout, flush=True)


def style(text: str, fg: str) -> str:
    """A text in a colour, on a terminal."""
    return f"\033[{_COLOURS[fg]}m{text}\033[0m" if sys.stdout.isatty() else text


class Typer:
    """Several commands, and a function that is called before each."""

    def __init__(self, *, help: str = "", **_: Any) -> None:
        self._help = help
        self._commands: dict[str, Callable[..., Any] | Typer] = {}
        self._listed: list[str] = []
        self._callback: Callable[..., Any] | None = None

    def command(self, name: str | None = None, *, hidden: bool = False, **_: Any) -> Callable[[F], F]:
        """Add a function as a command."""

        def add(function: F) -> F:
            self._commands[name or function.__name__] = function
            self._listed += [] if hidden else [name or function.__name__]
            return function

        return add

    def callback(self, **_: Any) -> Callable[[F], F]:
        """Call a function before each command, or without one."""

        def add(function: F) -> F:
            self._callback = function
            return function

        return add

    def add_typer(self, group: Typer, *, name: str) -> None:
        """Add several commands under a name."""
        self._commands[name] = group
        self._listed.append(name)

    def __call__(self, *, obj: Any = None, **_: Any) -> Any:
        """Run the command that the command line names."""
        return self._run("coderoom", sys.argv[1:], obj)

    def _run(self, path: str, words: Sequence[str], obj: Any) -> Any:
        listed = "".join(f"\n  {name:12} {_summary(self._commands[name])}" for name in self._listed)
        parser = _Parser(
            path,
            f"{path} [OPTIONS] COMMAND ...",
            self._help,
            f"commands:{listed}",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parameters = _parameters(self._callback) if self._callback else {}
        _add_options(parser, self._callback, parameters)
        parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        values = vars(parser.parse_args(words))
        rest = values.pop("rest")
        name = rest[0] if rest else None
        if name is not None and name not in self._commands:
            parser.error(f"No such command {name!r}.")
        result = None
        if self._callback is not None:
            result = self._callback(Context(parser, obj, name), **values)
        elif name is None:
            echo(parser.format_help())
        if name is None:
            return result
        command = self._commands[name]
        if isinstance(command, Typer):
            return command._run(f"{path} {name}", rest[1:], obj)
        return _call(command, f"{path} {name}", rest[1:], obj)


def _summary(command: Callable[..., Any] | Typer) -> str:
    return command._help if isinstance(command, Typer) else inspect.getdoc(command).partition("\n")[0]  # type: ignore[union-attr]


def _call(command: Callable[..., Any], path: str, words: Sequence[str], obj: Any) -> Any:
    parameters = _parameters(command)
    arguments = {name: found for name, found in parameters.items() if found[0].is_argument}
    shown = " ".join(each.metavar or name.upper() for name, (each, _, _) in arguments.items())
    parser = _Parser(path, f"{path} [OPTIONS] {shown}".rstrip(), inspect.getdoc(command), allow_abbrev=False)
    _add_options(parser, command, parameters)
    end = words.index("--") if "--" in words else len(words)
    if {"-h", "--help"} & {*words[:end]}:
        for name, (each, _, _) in arguments.items():
            parser.add_argument(name, metavar=each.metavar or name.upper(), help=each.help.replace("%", "%%"))
    known, given = parser.parse_known_args(words[:end])
    if unknown := next((word for word in given if word.startswith("-") and word != "-"), None):
        parser.error(f"No such option: {unknown}")
    values, given = vars(known), [*given, *words[end + 1 :]]
    for name, (_, _, many) in arguments.items():
        default = inspect.signature(command).parameters[name].default
        if not given and default is inspect.Parameter.empty:
            parser.error(f"Missing argument '{name.upper()}'.")
        if given:
            values[name] = given if many else given[0]
            given = [] if many else given[1:]
        else:
            values[name] = default
    if given:
        parser.error(f"Got unexpected extra argument ({' '.join(given)})")
    for name, (each, _, _) in parameters.items():
        values[name] = each.callback(values[name])
    context = {"context": Context(parser, obj)} if "context" in inspect.signature(command).parameters else {}
    return command(**values, **context)


def _parameters(function: Callable[..., Any]) -> dict[str, tuple[Parameter, Any, bool]]:
    """The parameters of a command by their names: what is said of each, its type, and whether it is a list."""
    found = {}
    for name, each in inspect.signature(function, eval_str=True).parameters.items():
        if name != "context":
            kind, parameter = get_args(each.annotation)[:2]
            if isinstance(kind, UnionType):
                kind = next(each for each in get_args(kind) if each is not type(None))
            many = get_origin(kind) is list
            found[name] = parameter, get_args(kind)[0] if many else kind, many
    return found


def _add_options(
    parser: _Parser, function: Callable[..., Any] | None, parameters: dict[str, tuple[Parameter, Any, bool]]
) -> None:
    for name, (each, kind, many) in parameters.items():
        if each.is_argument or function is None:
            continue
        default = inspect.signature(function).parameters[name].default
        is_needed = default is inspect.Parameter.empty
        more: dict[str, Any] = {"dest": name, "help": each.help.replace("%", "%%"), "default": default}
        names = each.names or (f"--{name.replace('_', '-')}",)
        if kind is bool:
            has_two = not each.names or "/" in names[0]
            names = (names[0].partition("/")[0], *names[1:])
            more["action"] = argparse.BooleanOptionalAction if has_two else "store_true"
        else:
            more |= {"metavar": each.metavar, "type": _reader(kind, each), "required": is_needed}
            more["default"] = (os.environ.get(each.envvar) if each.envvar else None) or (None if is_needed else default)
            more |= {"action": "append"} if many else {}
        parser.add_argument(*names, **more)


def _reader(kind: Any, of: Parameter) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if (of.min is not None and value < of.min) or (of.max is not None and value > of.max):
            raise argparse.ArgumentTypeError(f"{text} is not in the range from {of.min} to {of.max}")
        return value

    read.__name__ = kind.__name__  # Which argparse tells of a text that is none.
    return read
