"""`coderoom exec`: runs the code blocks of a file in order, without a model and without AutoGen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic_core import to_json

from coderoom._util.files import name_inside, read_inside
from coderoom._util.terminal import PlainConsole
from coderoom.blocks import Block
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.runs.controls import stoppable
from coderoom.runs.exec_result import BlockRun, FileResult, without_state
from coderoom.runs.exec_source import STDIN, Source
from coderoom.runs.exec_view import ExecView
from coderoom.runs.interrupts import Interrupt
from coderoom.runs.review import Ask, review
from coderoom.runs.workspace import FileChanges, open_workspace
from coderoom.runs.writer import Writer
from coderoom.sandbox import (
    CANCELLED_CODE,
    Artifact,
    CodeError,
    ExecutionResult,
    Limits,
    OutputChunk,
    Sandbox,
    Session,
    named_file,
    save_named,
)
from coderoom.sandbox.remote import at_server
from coderoom.sandbox.requirements import packages_in
from coderoom.steps import StepObserver

if TYPE_CHECKING:
    from rich.console import Console

_FRAME: Final = re.compile(r'^  File "<cell (\d{1,6})>", line (\d{1,6})', re.MULTILINE)
_PLACE_IN_CELL: Final = re.compile(r" \(<cell \d+>, line \d+\)$")


def _remarks(result: ExecutionResult, source: Source) -> str:
    """The text after the printed output of a cell: its value, which Python shows of no script, or why it was ended.

    It does not say whether variables are kept: after a failure no further block runs.
    """
    said = [] if result.value_repr is None or source.kind == "script" else [result.value_repr]
    error = result.error
    if error is not None and not error.traceback and error.type != "Exit":
        said.append(f"[{without_state(error.message)}]")
    if not said:
        return ""
    gap = "" if not result.output or result.output.endswith("\n") else "\n"
    return gap + "\n".join(said) + "\n"


def _as_json(value: Any) -> Any:
    """A value as JSON-like data; `None` if it has a text or a key that JSON cannot represent."""
    with contextlib.suppress(ValueError, TypeError):
        return json.loads(to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str))
    return None


def check_request(source: Source, arguments: Sequence[str]) -> None:
    """Refuse arguments that no block takes, and blocks that name a file outside of the workspace."""
    if arguments and all(block.language not in ("python", "sh") for block in source.blocks):
        raise RequestError(f"{source.name!r} takes no arguments: only code in python, sh and bash does.")
    for number, block in enumerate(source.blocks, start=1):
        name = None if source.kind == "script" else named_file(block)
        try:
            name_inside("-" if name is None else name)
        except RequestError:
            place = source.place(number, 1)
            raise RequestError(f"{place}: the file {name!r} is outside of the workspace. Name one inside.") from None


def prelude(source: Source, arguments: Sequence[str], workspace: Path) -> str:
    """The cell that sets `sys.argv`, and `__file__` and `sys.path` for scripts; empty if none of them is needed."""
    is_script = source.kind == "script"
    if not (is_script or arguments) or all(block.language != "python" for block in source.blocks):
        return ""
    if source.name == STDIN:
        return f"__import__('sys').argv[:] = {['-', *arguments]!r}"
    path = Path(source.name)
    path = path.parent.resolve() / path.name
    name = path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.name
    lines = [f"__import__('sys').argv[:] = {[name, *arguments]!r}"]
    if is_script:
        lines.append(f"__file__ = __import__('os').path.abspath({name!r})")
        if "/" in name:  # Like Python, find the modules beside the script.
            lines.append("__import__('sys').path.insert(0, __import__('os').path.dirname(__file__))")
    return "\n".join(lines)


def code_to_run(block: Block, arguments: Sequence[str]) -> str:
    """The code of a block. Shell code sets its arguments on the first line, so that line numbers stay right."""
    if not arguments or block.language != "sh":
        return block.code
    return f"set -- {shlex.join(arguments)}; {block.code}"


async def run_file(
    source: Source,
    console: Console | PlainConsole,
    *,
    arguments: Sequence[str] = (),
    workspace: Path,
    timeout: float,
    wall: str = "auto",
    network: bool | Sequence[str] = False,
    packages: Sequence[str] = (),
    credentials: Mapping[str, Mapping[str, Any]] | None = None,
    local_network: bool = False,
    server: str | None = None,
    fresh: bool = False,
    writer: Writer | None = None,
    observers: Sequence[StepObserver] = (),
    stdin: bytes | AsyncIterator[bytes] | None = None,
    workspace_mode: Literal["direct", "overlay"] = "direct",
    ask: Ask | None = None,
) -> FileResult:
    """Run a file's blocks in order, as cells of one session in a sandbox, up to the first that fails.

    Output is shown as it comes. SIGINT and SIGTERM end the run, whose result is then `cancelled`.

    Args:
        source: The file.
        console: Where to show it.
        arguments: The arguments in `sys.argv` and `$@`.
        workspace: The folder to run in. It is created if its parent exists.
        timeout: Seconds for each block.
        wall: The name of the wall around the code, or `auto`.
        network: Whether the code may use the network, or the hosts that it may reach.
        packages: Packages for the code, besides those that its inline metadata (`# /// script`) names.
        credentials: What the proxy adds to requests to a host, as `Sandbox` takes it.
        local_network: Whether the code may run servers, for itself.
        server: The URL of a server that runs the code; `None`: it runs here.
        fresh: Whether each block has a state of its own, so that variables do not last.
        writer: Writes the run into the journal; `None`: it is not kept.
        observers: Who else is told of each block, such as a tracer.
        stdin: What each block reads from standard input, or what a single one reads as it comes; `None`: nothing.
        workspace_mode: With `overlay`, the workspace stays as it is.
        ask: Asks whether the changes are written into it then; `None`: they are not.

    Raises:
        SandboxUnavailable: The sandbox broke, or no wall works.
        RequestError: There is no such wall, or code cannot run in that folder.
    """
    check_request(source, arguments)
    Sandbox(wall)  # Rejects an unknown name.
    folder, made = open_workspace(workspace)
    wanted = [*packages, *(each for block in source.blocks for each in packages_in(block.code))]
    sandbox = Sandbox(
        wall,
        limits=Limits(wall_seconds=timeout),
        workspace=folder,
        network=network,
        packages=list(dict.fromkeys(wanted)),
        local_network=local_network,
        credentials=credentials,
        workspace_mode=workspace_mode,
        **at_server(server),
    )
    result = FileResult(source, folder, made)
    writer = Writer(None) if writer is None else writer
    request = {"arguments": list(arguments), "workspace": str(folder), "timeout": timeout, "wall": wall}
    request["network"] = network if isinstance(network, bool) else list(network)
    writer.begin("exec", source.name, "", None, request)
    try:
        await _FileRun(
            result, sandbox, ExecView(console), arguments, fresh, writer, observers, stdin=stdin, ask=ask
        ).run()
    except (SystemExit, KeyboardInterrupt, BrokenPipeError):  # The reader of the output may be gone.
        result.cancelled = not result.succeeded
        raise
    except Exception:
        result.broke = True
        raise
    finally:
        facts = {name: value for name, value in result.to_json().items() if name != "runs"}
        writer.close(result.outcome, facts)
    return result


@dataclass
class _FileRun:
    """One run of a file."""

    result: FileResult
    sandbox: Sandbox
    view: ExecView
    arguments: Sequence[str]
    fresh: bool
    writer: Writer
    observers: Sequence[StepObserver] = ()
    interrupt: Interrupt = field(default_factory=Interrupt)
    started_at: float | None = None
    cells: list[int] = field(default_factory=list)
    """The number of the block of each Python cell of the session, by which tracebacks name it."""
    stdin: bytes | AsyncIterator[bytes] | None = None
    ask: Ask | None = None
    last: Session | None = None
    """The session that has the changes of the workspace, if they are kept apart."""
    room: int = 16 * 1024 * 1024
    """How many bytes of files that are displayed the journal still takes."""

    async def run(self) -> None:
        """Run it and show it."""
        result = self.result
        changes = FileChanges([result.workspace], self.writer.path)
        try:
            with self.interrupt.caught():
                async with stoppable(self.writer, self.interrupt.request):
                    await self._start()
                    await self._run_blocks()
                    if self.last is not None:
                        self.view.stop()
                        result.reviewed = await review([self.last], self.ask)
        except asyncio.CancelledError:
            if not self.interrupt.requested:
                raise
            # A block that had not started, or that did not end when it was cancelled.
            seconds = 0.0 if self.started_at is None else time.monotonic() - self.started_at
            if len(result.runs) < result.total:
                number = len(result.runs) + 1
                block = result.source.blocks[number - 1]
                self._add(BlockRun(number, block, Outcome.CANCELLED, CANCELLED_CODE, "", seconds))
            if self.started_at is not None:
                self.view.show_run(result.runs[-1])
        finally:
            self.view.stop()
            result.lock = self.sandbox.lock
            await self.sandbox.close()
        result.files = changes.written()
        result.cancelled = self.interrupt.requested and not result.succeeded
        self.view.end(result)

    def _add(self, run: BlockRun) -> None:
        self.result.runs.append(run)
        facts = {**run.to_json(self.result.source.kind == "notebook"), "value": None, "value_repr": None}
        contents: dict[str, bytes] = {}
        facts["artifacts"] = [self._keep(each, contents) for each in run.shown]
        self.writer.write("code", facts, seconds=run.seconds, contents=contents)
        self.writer.doings.end("code", f"block {run.number}")
        for observer in self.observers:
            request = {"blocks": [[run.block.language, run.block.code]]}
            observer.keep("code", request, facts, run.seconds, known=False)

    def _keep(self, shown: Artifact, contents: dict[str, bytes]) -> dict[str, Any]:
        """What the journal has of a file that was displayed; its content too, if it is small and has no secrets."""
        facts: dict[str, Any] = {
            "name": shown.name,
            "size": shown.size,
            "media_type": shown.media_type,
            "position": shown.position,
        }
        if (journal := self.writer.journal) is None or shown.size > self.room:
            return facts
        with contextlib.suppress(OSError, RequestError):
            data = shown.data
            if data is None:
                data = read_inside(self.result.workspace, shown.name, self.room)
            text = data.decode("latin-1")
            if journal.hide(text) == text:
                self.room -= len(data)
                facts["hash"] = sha256(data).hexdigest()[:32]
                contents[facts["hash"]] = data
        return facts

    async def _start(self) -> None:
        try:
            await self.sandbox.start()
        except BaseException:
            if self.result.workspace_made:
                with contextlib.suppress(OSError):
                    self.result.workspace.rmdir()
            raise
        self.result.isolation = self.sandbox.wall
        self.view.begin(self.result)

    async def _run_blocks(self) -> None:
        source = self.result.source
        first = prelude(source, self.arguments, self.result.workspace)
        async with contextlib.AsyncExitStack() as stack:
            session: Session | None = None
            for number, block in enumerate(source.blocks, start=1):
                self.view.show_block(source, number)
                if session is None or self.fresh:
                    await stack.aclose()
                    session = await stack.enter_async_context(self.sandbox.session())
                    if self.last is not None:
                        await session.take_over(self.last)
                    if self.sandbox.config.workspace_mode == "overlay":
                        self.last = session
                    self.cells = [number] if first else []
                    if first:
                        await session.run(first)
                self.started_at = time.monotonic()
                self.writer.doings.begin("code", f"block {number}")
                with self.interrupt.ends_cell(session):
                    run = await self._run_block(session, number, block)
                self.started_at = None
                self._add(run)
                self.view.show_run(run)
                if run.outcome is not Outcome.OK or self.interrupt.requested:
                    break

    async def _run_block(self, session: Session, number: int, block: Block) -> BlockRun:
        source = self.result.source
        problem = (
            "" if source.kind == "script" else await save_named(block, self.sandbox, self.result.workspace, self.last)
        )
        if problem:
            result = ExecutionResult(Outcome.ERROR, 1, error=CodeError("OSError", problem))
        else:
            code = code_to_run(block, self.arguments)
            self.cells += [number] if block.language == "python" else []
            final = self.fresh or number == self.result.total
            result = await self._run_cell(session, code, block.run_language, final)
        more = _remarks(result, source)
        self.view.show_output(more)
        error = result.error
        if error is not None:  # The text of a syntax error ends with its place in the cell.
            error = replace(error, message=_PLACE_IN_CELL.sub("", error.message))
        place = None if error is None or error.line is None else source.place(number, error.line)
        cells = dict(enumerate(self.cells, start=1))  # The code may have written any other number.
        frames = [] if error is None else _FRAME.findall(error.traceback)
        places = [source.place(cells[int(cell)], int(line)) for cell, line in frames[-1:] if int(cell) in cells]
        return BlockRun(
            number=number,
            block=block,
            outcome=result.outcome,
            exit_code=result.exit_code,
            output=result.output + more,
            seconds=result.duration,
            value=_as_json(result.value) if result.value_is_data else None,
            value_repr=result.value_repr,
            truncated=result.truncated,
            error=error,
            place=place,
            cause=next((each for each in places if each != place), None),
            network=result.network,
            shown=tuple(each for each in result.artifacts if each.position is not None),
        )

    async def _run_cell(self, session: Session, code: str, language: str, final: bool = False) -> ExecutionResult:
        async with contextlib.aclosing(session.stream(code, language=language, stdin=self.stdin, final=final)) as items:
            async for item in items:
                if not isinstance(item, OutputChunk):
                    return item
                self.view.show_output(item.text)
                self.writer.doings.write("code", f"block {len(self.result.runs) + 1}", item.text)
        raise AssertionError("unreachable: the result comes last")
