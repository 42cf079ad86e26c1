"""Running the blocks of a file, in order, without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom._components import linked
from coderoom.blocks import Block, extract_code_blocks, normalize_language
from coderoom.errors import RequestError
from coderoom.executors import ExecutorRunner, SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.runs._signals import cancel_on_signal
from coderoom.sandbox import Sandbox

__all__ = ["BlockRun", "FileResult", "read_blocks", "run_file"]

RUNNABLE = frozenset({"python", "sh", "javascript"})
_SUFFIXES = {".py": "python", ".sh": "sh", ".bash": "bash", ".js": "javascript", ".mjs": "javascript"}
_MOST_BYTES = 16 * 1024 * 1024


CANCELLED_CODE = 125


class Watcher(Protocol):
    """Is told what happens."""

    def begin(self, isolation: str) -> None:
        """The place where code runs stands; `isolation` names its wall."""

    def show_block(self, number: int, block: Block) -> None:
        """A block is about to run."""

    def show_run(self, run: BlockRun) -> None:
        """It has ended."""


@dataclass(frozen=True)
class BlockRun:
    """How one block of a file went.

    Attributes:
        number: The block's number among those that are run, counted from 1.
        block: The block.
        outcome: How it ended.
        exit_code: Its exit code.
        output: What it printed.
        seconds: How long it took.
        output_file: The file with the whole output, if `output` is not all of it.
    """

    number: int
    block: Block
    outcome: Outcome
    exit_code: int
    output: str
    seconds: float
    output_file: Path | None = None


def read_blocks(file: str, stdin: bytes | None = None) -> tuple[list[Block], list[Block]]:
    """The blocks of a Markdown file, or a script as one block.

    Args:
        file: The file's path; a script is known by its suffix, anything else is read as Markdown.
        stdin: What to read instead of the file.

    Returns:
        The blocks whose language runs here, in order, and those that somebody may have expected to run: in another
        language, or in none. Blocks of data, and those marked `no-run`, are in neither.

    Raises:
        RequestError: If the file cannot be read, is not text, or holds nothing to run.
    """
    text = _read_text(file, stdin)
    language = _SUFFIXES.get(Path(file).suffix.lower())
    if language is not None:
        tag, name = language, normalize_language(language)
        return [Block(language=name, code=text, closed=True, filename=None, tag=tag, attributes={}, line=1)], []
    found = [block for block in extract_code_blocks(text) if not block.no_run]
    blocks = [block for block in found if block.language in RUNNABLE]
    if not blocks:
        languages = ", ".join(sorted(RUNNABLE))
        raise RequestError(f"{file!r} holds no code block to run. Blocks in {languages} run here.")
    return blocks, [block for block in found if block.language not in RUNNABLE and not block.is_data]


def _read_text(file: str, stdin: bytes | None) -> str:
    try:
        if stdin is None:
            with Path(file).open("rb") as source:
                data = source.read(_MOST_BYTES + 1)
        else:
            data = stdin
    except (OSError, ValueError) as error:
        raise RequestError(f"Cannot read {file!r}: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > _MOST_BYTES:
        raise RequestError(f"{file!r} has more than {_MOST_BYTES} bytes.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{file!r} is not UTF-8 text: byte {error.start} cannot be read.") from error
    if "\0" in text:
        raise RequestError(f"{file!r} is not text: it holds a NUL character at position {text.index(chr(0))}.")
    return text


@dataclass
class FileResult:
    """What running a file came to.

    Attributes:
        total: How many blocks there were to run.
        runs: Those that were run, in order; the last one may have failed.
        skipped: Blocks that somebody may have expected to run, but that do not run here.
        cancelled: Whether a person or a program took it back.
        isolation: What keeps the code from this machine.
    """

    total: int
    skipped: list[Block] = field(default_factory=list)
    runs: list[BlockRun] = field(default_factory=list)
    cancelled: bool = False
    isolation: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether all blocks ran well."""
        return len(self.runs) == self.total and all(run.outcome is Outcome.OK for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """The facts, as JSON-like data."""
        return {
            "succeeded": self.succeeded,
            "cancelled": self.cancelled,
            "isolation": self.isolation,
            "blocks": self.total,
            "skipped": [{"line": block.line, "language": block.tag} for block in self.skipped],
            "runs": [
                {
                    "number": run.number,
                    "line": run.block.line,
                    "language": run.block.language,
                    "code": run.block.code,
                    "outcome": run.outcome.value,
                    "exit_code": run.exit_code,
                    "output": run.output,
                    "output_file": None if run.output_file is None else str(run.output_file),
                    "seconds": round(run.seconds, 3),
                }
                for run in self.runs
            ],
        }


async def run_file(
    blocks: Sequence[Block],
    watch: Watcher,
    *,
    workspace: Path,
    timeout: float,
    wall: str = "auto",
    network: bool = False,
    fresh: bool = False,
    skipped: Sequence[Block] = (),
) -> FileResult:
    """Run blocks in order, as cells of one session in a sandbox; the first that fails is the last.

    Ctrl-C (SIGINT) and SIGTERM end it and are noted as `cancelled`.

    Args:
        blocks: The blocks. One that was never closed is not run and counts as a failure.
        watch: Told of each block before it runs and when it has ended.
        workspace: The folder to run them in.
        timeout: Seconds for each block.
        wall: The name of the wall around the code, or `auto`.
        network: Whether the code may use the network.
        fresh: Whether each block has a state of its own, so that variables do not last.
        skipped: Blocks that are only named in the result.

    Raises:
        SandboxUnavailable: If the place where code runs broke, or cannot be had at all.
        RequestError: If there is no such wall, or code cannot run in that folder.
    """
    Sandbox(wall)  # Refuses a name that is none.
    result = FileResult(len(blocks), list(skipped))
    token = CancellationToken()
    executor = SandboxCodeExecutor(
        work_dir=workspace,
        timeout=timeout,
        state="fresh" if fresh else "session",
        wall=cast(Any, wall),
        network=network,
    )
    runner = ExecutorRunner(executor)
    try:
        with cancel_on_signal(token):
            await linked(runner.start(), token)
            result.isolation = executor.wall
            watch.begin(result.isolation)
            for number, block in enumerate(blocks, start=1):
                watch.show_block(number, block)
                run = await _run_block(runner, number, block, token)
                result.runs.append(run)
                watch.show_run(run)
                if run.outcome is not Outcome.OK:
                    break
    except asyncio.CancelledError:
        if not token.is_cancelled():
            raise
        result.cancelled = True
        number = len(result.runs) + 1
        result.runs.append(BlockRun(number, blocks[number - 1], Outcome.CANCELLED, CANCELLED_CODE, "", 0.0))
    finally:
        await runner.stop()
    return result


async def _run_block(runner: ExecutorRunner, number: int, block: Block, token: CancellationToken) -> BlockRun:
    if not block.closed:
        reason = f"The block at line {block.line} is never closed, so it is not all there. It was not run."
        return BlockRun(number, block, Outcome.REJECTED, 1, reason, 0.0)
    ran = await runner.run([CodeBlock(code=block.code, language=block.run_language)], token)
    return BlockRun(number, block, ran.outcome, ran.exit_code, ran.output, ran.duration, ran.whole_output)
