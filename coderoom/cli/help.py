"""How Typer shows the help of commands, and the base class of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from coderoom.cli.examples import examples_of

_HYPHEN = "\ue000"
"""Stands for a hyphen while lines are wrapped, so that names are not broken."""


_context: Any = TyperCommand.context_class  # Of Click, which Typer bundles.
_formatter: Any = _context.formatter_class


class _Formatter(_formatter):  # type: ignore[misc]
    """Wraps lines at white space only."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Sequence[tuple[str, str]], **widths: int) -> None:
        super().write_dl([(first, second.replace("-", _HYPHEN)) for first, second in rows], **widths)

    def getvalue(self) -> str:
        return str(super().getvalue()).replace(_HYPHEN, "-")


class _Context(_context):  # type: ignore[misc]
    formatter_class = _Formatter


class _PlainHelp:
    """Help in which a flag has no type, and an argument is a word in capitals."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
            elif isinstance(param, TyperArgument):
                param.metavar = param.metavar or (param.name or "").upper()
                param.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]
        return params

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        words: list[str] = []
        while ctx.parent is not None:
            words, ctx = [ctx.info_name, *words], ctx.parent
        formatter.write(examples_of(" ".join(words)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.replace("{", "").replace("}", "") for piece in pieces]


class Command(_PlainHelp, TyperCommand):
    """A command of the application."""

    context_class = _Context


class Group(_PlainHelp, TyperGroup):
    """Several commands."""

    context_class = _Context

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As Typer; a group that is a command itself says so, as for `coderoom runs list`."""
        try:
            return super().resolve_command(ctx, args)
        except UsageProblem as problem:
            if self.invoke_without_command and ctx.parent is not None and not args[0].startswith("-"):
                problem.message += f" {ctx.command_path!r} alone is a command, and has {', '.join(self.commands)}."
            raise


# Typer bundles Click or uses an installed one, and does not export the base class of its errors.
UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
