"""Processes that stay as tools for a model: started, read, written to and stopped by number.

Used by the MCP server, and by executors that offer them to code as functions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Final
from weakref import WeakKeyDictionary

from pydantic import Field

from coderoom._util.text import bound_output, encodable
from coderoom.errors import RequestError
from coderoom.sandbox.functions.callables import from_callable
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.processes import Process
from coderoom.sandbox.session import Session

PROCESSES_HELP: Final = (
    "For a program that stays from block to block, such as a server, a shell or a debugger, Python code may call "
    "start_process(command, terminal=False, seconds=2), which returns its number and its first output, then "
    "read_process(process, seconds=2), write_process(process, text, seconds=2) and stop_process(process). Each returns "
    "text; print it."
)
"""What a model has to know of the tools, if code calls them."""
_MOST_CHARACTERS: Final = 30_000
_QUIET_SECONDS: Final = 0.3
_MOMENT: Final = 0.05
_LONGEST_SECONDS: Final = 600

Command = Annotated[str, Field(min_length=1, description="A command for bash.")]
Terminal = Annotated[bool, Field(description="Whether it has a terminal, as programs need that edit lines.")]
Input = Annotated[
    str, Field(description="What it reads, with a newline at the end of a line. At a terminal \\x03 is Ctrl-C.")
]
Number = Annotated[int, Field(description="The number of the process.")]
Seconds = Annotated[
    float, Field(ge=0, le=_LONGEST_SECONDS, description="The most seconds to wait for output, if there is none yet.")
]


class ProcessTools:
    """The processes of a session by their numbers, and the four tools.

    Args:
        session: Gives the session; each fork has processes of its own.
    """

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._started: WeakKeyDictionary[Session, dict[int, Process]] = WeakKeyDictionary()
        self._count = 0

    @property
    def functions(self) -> Sequence[HostFunction]:
        """The tools, as functions that code of the session may call without `await`."""
        tools = (self.start_process, self.read_process, self.write_process, self.stop_process)
        return [replace(from_callable(tool), is_async=False) for tool in tools]

    async def start_process(self, command: Command, terminal: Terminal = False, seconds: Seconds = 2.0) -> str:
        """Start a program that stays beside later code, such as a server or a shell; return its number and output."""
        try:
            process = await self._session().start(["bash", "-c", command], pty=terminal)
        except OSError as error:
            raise RequestError(f"The process could not be started: {error.strerror}: bash.") from error
        started = {number: each for number, each in self._processes.items() if not each.closed}
        self._count += 1
        self._started[self._session()] = {**started, self._count: process}
        return await self._told(self._count, seconds)

    async def read_process(self, process: Number, seconds: Seconds = 2.0) -> str:
        """Return what a process has printed since the last time, and whether it still runs."""
        return await self._told(process, seconds)

    async def write_process(self, process: Number, text: Input, seconds: Seconds = 2.0) -> str:
        """Write to the standard input of a process; return what it prints then."""
        try:
            async with asyncio.timeout(max(seconds, _QUIET_SECONDS)):
                await self._of(process).write(text)
        except TimeoutError:
            raise RequestError(f"The process {process} does not read its input.") from None
        except BrokenPipeError:  # What is returned says that it has ended.
            pass
        return await self._told(process, seconds)

    async def stop_process(self, process: Number) -> str:
        """End a process and what it has started; return the rest of its output."""
        await self._of(process).stop()
        return await self._told(process, 0)

    @property
    def _processes(self) -> dict[int, Process]:
        return self._started.get(self._session(), {})

    def _of(self, number: int) -> Process:
        if number not in self._processes:
            there = ", ".join(map(str, self._processes)) or "none"
            raise RequestError(f"There is no process {number}; there are: {there}.")
        return self._processes[number]

    async def _told(self, number: int, seconds: float) -> str:
        process, now = self._of(number), asyncio.get_running_loop().time
        end, text, more = now() + seconds, "", await self._of(number).read(seconds)
        while more and len(text) < _MOST_CHARACTERS:  # Until it is quiet for a moment.
            text += more
            more = await process.read(max(0, min(_QUIET_SECONDS, end - now())))
        state = "runs"
        with contextlib.suppress(TimeoutError):  # Its end may be told a little later than its last output.
            async with asyncio.timeout(_MOMENT):
                await process.wait()
        if process.exit_code is not None:
            why = f", ended by the limit on {process.limit}" if process.limit else ""
            state = f"has ended with exit code {process.exit_code}{why}"
        return f"{bound_output(encodable(text), _MOST_CHARACTERS)}\n[Process {number} {state}.]".lstrip("\n")
