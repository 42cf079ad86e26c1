"""Shows the blocks of a file while they run, for `coderoom exec`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from coderoom._util.terminal import PlainConsole
from coderoom._util.text import visible
from coderoom.outcome import Outcome
from coderoom.runs.doctor import NOT_ISOLATED
from coderoom.runs.exec_source import Source
from coderoom.runs.pictures import linked, show_pictures
from coderoom.sandbox import choose_wall

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from coderoom.runs.exec_result import BlockRun, FileResult

NO_WALL: Final = "none"
NO_CODE_IS_RUN: Final = "no code is run"
_LONGEST_LINE: Final = 65_536
_LONGEST_TAIL: Final = 400


class ExecView:
    """Shows the blocks of a file and their output.

    On a terminal, the last incomplete line and the running time are shown below the output. To a file or a pipe, and
    without Rich, output is written as it is.

    Args:
        console: Where to show it.
    """

    def __init__(self, console: Console | PlainConsole) -> None:
        self._console = console
        self._live: Live | None = None
        self._begun = 0.0
        self._printed = False
        self._rest = ""  # Output that is not shown yet: half of a line end, or on a terminal an incomplete line.
        self._in_line = False

    def begin(self, result: FileResult) -> None:
        """Show how code is isolated from this machine, or that it is not."""
        show_isolation(self._console, result.isolation)
        if result.workspace_made:
            words = f"The workspace {str(result.workspace)!r} did not exist and was created."
            show_line(self._console, words, "yellow")

    def show_block(self, source: Source, number: int) -> None:
        """Show a block that is about to run; of a script, only what it prints."""
        block = source.blocks[number - 1]
        place = f" {block.tag or block.language}, {source.where(block)}"
        code = visible(block.code.rstrip())
        if isinstance(self._console, PlainConsole):
            self._console.print()
            self._console.rule(f"{number}{place}")
            if source.kind != "script":
                self._console.print(code)
                self._console.rule()
        else:
            from rich.live import Live
            from rich.rule import Rule
            from rich.syntax import Syntax
            from rich.text import Text

            self._console.print()
            self._console.print(Rule(Text.assemble((f"{number}", "bold cyan"), place), align="left", style="dim"))
            if source.kind != "script":
                self._console.print(Syntax(code, block.language, theme="ansi_dark", word_wrap=True))
                self._console.print(Rule(style="dim"))
            if self._console.is_interactive and not self._console.quiet:
                self._live = Live(self, console=self._console, transient=True, refresh_per_second=8)
                self._live.start()
        self._begun = time.monotonic()
        self._printed = False

    def show_output(self, text: str) -> None:
        """Show a piece of output as it comes."""
        if not text or self._console.quiet:
            return
        self._printed = True
        text = self._rest + text
        if self._live is None:
            self._rest = "\r" if text.endswith("\r") else ""
            self._write(text.removesuffix("\r"))
            return
        lines, end, self._rest = text.rpartition("\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, end, self._rest = text, "\n", ""
        if end:
            show_line(self._console, lines)

    def show_run(self, run: BlockRun) -> None:
        """Show the result of a block."""
        self.stop()
        if not self._printed:
            show_line(self._console, "(no output)", "dim")
        style = "green" if run.outcome is Outcome.OK else "red"
        if run.place is not None and run.error is not None:
            first = f"{run.error.type}: {run.error.message}".partition("\n")[0].rstrip(": ")
            places = f"{run.place}, {run.cause}" if run.cause else run.place
            show_line(self._console, f"{places}: {first}", f"bold {style}")
        subject = f"{run.outcome} · exit code {run.exit_code} · {run.seconds:.2f} s"
        if isinstance(self._console, PlainConsole):
            self._console.rule(subject)
        else:
            from rich.rule import Rule
            from rich.text import Text

            self._console.print(Rule(Text(subject, style=style), align="left", style=style))

    def stop(self) -> None:
        """Show the rest of the output, and end the region that is redrawn."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        rest, self._rest = self._rest, ""
        self._write(rest)
        if self._in_line:
            self._write("\n")

    def end(self, result: FileResult) -> None:
        """Show the result of the file."""
        well = sum(run.outcome is Outcome.OK for run in result.runs)
        style = "bold green" if result.succeeded else "bold red"
        words = f"{well} of {result.total} blocks succeeded" + (", then it was cancelled" if result.cancelled else "")
        show_line(self._console, words, style)
        if result.files:
            show_pictures(self._console, result.files)
            words = "files made or changed: "
            if isinstance(self._console, PlainConsole):
                show_line(self._console, f"{words}{', '.join(map(os.path.relpath, result.files))}")
            else:
                from rich.text import Text

                links = linked(result.files, os.path.relpath, ", ")
                self._console.print(Text.assemble(words, links, style="dim"), soft_wrap=True)
        if result.reviewed is not None:
            show_line(self._console, str(result.reviewed))
        for block in result.source.skipped:
            label = repr(visible(block.tag)) if block.tag else "no language"
            show_line(self._console, f"not run: the block at line {block.line} ({label})", "yellow")

    def _write(self, text: str) -> None:
        # Not by Rich, which turns tabs into spaces and adds a line end.
        if text and not self._console.quiet:
            self._console.file.write(visible(text))
            self._console.file.flush()
            self._in_line = not text.endswith("\n")

    def __rich__(self) -> RenderableType:
        # The region below the output while a block runs.
        from rich.console import Group
        from rich.text import Text

        seconds = Text(f"running, {time.monotonic() - self._begun:.0f} s", style="dim")
        return Group(Text(visible(self._rest[-_LONGEST_TAIL:])), seconds) if self._rest else seconds


async def chosen_isolation(name: str) -> str:
    """What isolates code here, in which `auto` is the name of the wall that it takes.

    Raises:
        SandboxUnavailable: It is `auto`, and no wall can be built.
    """
    if "auto" not in (names := name.split(", ")):
        return name
    wall = (await choose_wall()).name
    return ", ".join(sorted({wall if each == "auto" else each for each in names}))


def show_line(console: Console | PlainConsole, words: str, style: str = "", *, wrap: bool = False) -> None:
    """Show a text, which may have several lines; Rich may wrap it."""
    if isinstance(console, PlainConsole):
        console.print(visible(words))
    else:
        from rich.text import Text

        console.print(Text(visible(words), style=style), soft_wrap=not wrap)


def show_isolation(console: Console | PlainConsole, name: str) -> None:
    """Show how the wall of this name isolates code from this machine, or that it does not."""
    if name == NO_WALL:
        show_line(console, NOT_ISOLATED, "yellow", wrap=True)
    elif name == "remote":
        show_line(console, "Code runs at a server, and not on this machine.", "green", wrap=True)
    elif name not in ("", NO_CODE_IS_RUN):
        chosen = name.replace("auto", "the strongest wall of each node")
        show_line(console, f"Code is isolated from this machine by: {chosen}", "green", wrap=True)
