"""AutoGen's own Jupyter executor, given by a user, under our supervision."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors._common import silence_pip
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor
from nbclient.exceptions import DeadKernelError

from coderoom._util.text import encodable
from coderoom.executors.execution import TIMEOUT_CODE, Execution, Transcript
from coderoom.executors.launch import KEEP, WHOLE, Output
from coderoom.executors.supervise import PrivateFolder
from coderoom.outcome import Outcome

__all__ = ["RawJupyter"]

_PYTHON = ("python", "python3", "py", "ipython")
_INTERRUPT_PATIENCE = 1.0
_DEATH_PATIENCE = 5.0
_LOST = "[The kernel {why}, and a new one was started: its variables are lost.]\n"


class RawJupyter:
    """Starts, uses and stops an executor that stays its owner's: its kernel, its folder, its timeout.

    Its kernel runs one request at a time; the next one waits.

    Args:
        executor: An executor, perhaps started.
    """

    def __init__(self, executor: JupyterCodeExecutor) -> None:
        self._executor = executor
        self._private: PrivateFolder | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Start the executor."""
        self._executor._output_dir.mkdir(parents=True, exist_ok=True)
        await self._executor.start()

    async def stop(self) -> None:
        """Stop the executor; its temporary folder goes if there is nothing in it."""
        # A run that was cancelled may still be about to give it a new kernel.
        async with self._lock:
            try:
                await self._executor.stop()
            finally:
                if self._private is not None:
                    self._private.remove()
                    self._private = None
                _remove_if_empty(self._executor._output_dir)

    async def restart(self) -> None:
        """Restart the executor."""
        async with self._lock:
            await self._executor.restart()

    async def run(self, blocks: Sequence[CodeBlock]) -> Execution:
        """Run the blocks in order, up to the first that fails."""
        if self._private is None:
            self._private = PrivateFolder()
        transcript = Transcript(self._executor._output_dir)
        # AutoGen's client of the kernel loses the answers of one cell to another.
        async with self._lock:
            for block in blocks:
                if not await transcript.add(await self._run_block(block, self._private.path)):
                    break
        return transcript.execution()

    async def _run_block(self, block: CodeBlock, folder: Path) -> Execution:
        known = self._languages()
        if block.language.strip().lower() not in known:
            return Execution.refused(f"Unknown language {block.language!r}: this kernel runs {', '.join(known)}.")
        code = encodable(silence_pip(block.code, "python"))
        run = _Run(self._executor, code)
        await run.go()
        result = await self._read(run.cell)
        text = encodable(result.output)
        text += "\n" if text and not text.endswith("\n") else ""
        outcome, exit_code = Outcome.OK, 0
        if run.timed_out:
            outcome, exit_code = Outcome.TIMEOUT, TIMEOUT_CODE
        elif result.exit_code or run.notice:
            outcome, exit_code = Outcome.ERROR, result.exit_code or 1
        text, whole, total = await asyncio.to_thread(_bound, text + run.notice, folder)
        return Execution(outcome, exit_code, text, run.duration, whole, total + run.left_out)

    async def _read(self, cell: Any) -> Any:
        # AutoGen's executor turns the cell into text and files.
        async def executed(_: Any) -> Any:
            return cell

        reader = copy.copy(self._executor)
        reader._execute_cell = executed  # type: ignore[method-assign, assignment]
        return await reader._execute_code_block(CodeBlock(code="", language="python"), CancellationToken())

    def _languages(self) -> tuple[str, ...]:
        client = self._executor._client
        if client is None or client.km is None:
            raise RuntimeError("the kernel is not running")
        spec = client.km.kernel_spec
        language = str(getattr(spec, "language", "python")).lower()
        return _PYTHON if language == "python" else (language,)


class _Run:
    """One cell in the kernel.

    Args:
        executor: A started executor.
        code: What is in the cell.

    Attributes:
        cell: The cell, with what it wrote.
        duration: How long it took, in seconds.
        timed_out: Whether its time was up.
        notice: What there is to say about the kernel.
        left_out: How many characters were too many to be kept at all.
    """

    def __init__(self, executor: JupyterCodeExecutor, code: str) -> None:
        self._executor = executor
        self._client: Any = executor._client
        self._pieces: dict[int, list[str]] = {}
        self._room = WHOLE
        self.cell: Any = nbformat.v4.new_code_cell(code)  # type: ignore[no-untyped-call]
        self.duration = 0.0
        self.timed_out = False
        self.notice = ""
        self.left_out = 0

    async def go(self) -> None:
        """Run it."""
        client, keep = self._client, self._client.output
        client.nb.cells[:] = [self.cell]
        client.timeout = None  # It would leave the kernel at work.
        client.output = lambda outputs, message, *rest: self._take(keep, outputs, message, *rest)
        begin = time.monotonic()
        task = asyncio.ensure_future(client.async_execute_cell(self.cell, 0))
        try:
            await asyncio.wait((task,), timeout=self._executor._timeout)
            self.timed_out = not task.done()
        finally:
            if not task.done():
                await asyncio.shield(self._interrupt(task))
            client.output = keep
            client.nb.cells.clear()
        self.duration = time.monotonic() - begin
        for output in self.cell.get("outputs", []):
            if id(output) in self._pieces:
                output["text"] = "".join(self._pieces[id(output)])
        try:
            task.result()
        except DeadKernelError:
            if not self.notice:
                self.notice = _LOST.format(why="died")
                await self._executor.restart()

    async def _interrupt(self, task: asyncio.Future[Any]) -> None:
        """End the code, and if it is deaf to that, the kernel."""
        kernel = self._client.km
        with contextlib.suppress(RuntimeError):  # It has died.
            await kernel.interrupt_kernel()
        await asyncio.wait((task,), timeout=_INTERRUPT_PATIENCE)
        if not task.done():
            self.notice = _LOST.format(why="did not stop when it was interrupted")
            # nbclient sees that itself, and clears away what waits for answers.
            await kernel.shutdown_kernel(now=True)
            await asyncio.wait((task,), timeout=_DEATH_PATIENCE)
            task.cancel()
            await self._executor.restart()

    def _take(self, keep: Any, outputs: list[Any], message: dict[str, Any], *rest: Any) -> Any:
        """Take what the code writes: one text for all that comes in a row, and no more than there is room for."""
        if message["msg_type"] != "stream":
            data = message["content"].get("data") or {}
            size = sum(len(value) for value in data.values() if isinstance(value, str))
            if size > self._room:
                self.left_out += size
                return None
            self._room -= size
            return keep(outputs, message, *rest)
        text = message["content"].get("text", "")
        output = keep(outputs, {**message, "content": {**message["content"], "text": ""}}, *rest)
        if output is None:
            return None
        if len(outputs) > 1 and id(outputs[-2]) in self._pieces:
            outputs.pop()
        pieces = self._pieces.setdefault(id(outputs[-1]), [])
        pieces.append(text[: self._room])
        self.left_out += max(0, len(text) - self._room)
        self._room -= len(pieces[-1])
        return outputs[-1]


def _bound(text: str, folder: Path) -> tuple[str, Path | None, int]:
    """Return the text in bounds, the file with all of it if that is more, and its length."""
    output = Output(str(folder / uuid.uuid4().hex), KEEP, WHOLE)
    output.feed(text.encode())
    output.close()
    whole = Path(output.path)
    if not output.truncated:
        whole.unlink(missing_ok=True)
    return output.text(), whole if whole.exists() else None, output.total_chars


def _remove_if_empty(folder: Path) -> None:
    # AutoGen's executor makes one if its owner gave none, and does not say so.
    if folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(tempfile.gettempprefix()):
        with contextlib.suppress(OSError):
            folder.rmdir()
