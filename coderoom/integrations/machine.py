"""A session of a sandbox as a machine with commands and files: for the doors whose frameworks ask for one.

Files are read and written by code behind the wall, so that no path reaches a file of the host.
"""

from __future__ import annotations

import asyncio
import builtins
import signal
from base64 import b64encode
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import uuid4

from coderoom.errors import RequestError
from coderoom.integrations.tool import CodeSession
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits

T = TypeVar("T")

MIB: Final = 1024 * 1024
LIMITS: Final = Limits(
    wall_seconds=3600, memory_bytes=2048 * MIB, output_bytes=32 * MIB, value_bytes=32 * MIB
).model_dump(include={"wall_seconds", "memory_bytes", "output_bytes", "value_bytes"})
"""Of a command that has no timeout of its own."""
_PART: Final = 4 * MIB
_WRITE: Final = """\
import binascii, os
path = {path!r}
{append} or os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
with open(path, "ab" if {append} else "wb") as file:
    file.write(binascii.a2b_base64({data!r}))
None
"""
_READ: Final = """\
with open({path!r}, "rb") as file:
    file.seek({begin})
    data = file.read({size})
data
"""
_EXEC: Final = """\
import os, subprocess
with open({stdin!r} or os.devnull, "rb") as stdin:
    {stdin!r} and os.unlink({stdin!r})
    try:
        status = subprocess.call({argv!r}, stdin=stdin, cwd={cwd!r}, env={{**os.environ, **{env!r}}})
    except KeyboardInterrupt:  # The host has stopped it, and says so.
        status = 130
status
"""


def writing(path: str, data: bytes) -> Iterator[str]:
    """The cells that write a file, and the folders above it."""
    for begin in range(0, len(data) or 1, MIB):
        yield _WRITE.format(path=path, append=begin > 0, data=b64encode(data[begin : begin + MIB]).decode())


def reading(path: str, begin: int, size: int) -> str:
    """The cell that reads a part of a file."""
    return _READ.format(path=path, begin=begin, size=size)


def executing(
    argv: Sequence[str], *, stdin: str = "", cwd: str | None = None, env: Mapping[str, str] | None = None
) -> str:
    """The cell that runs a command; `stdin` is a file for its input, which is removed."""
    return _EXEC.format(argv=[*argv], stdin=stdin, cwd=cwd, env=dict(env or {}))


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    Attributes:
        exit_code: As in a shell: 126 and 127 if it could not be started, and 128 more than the signal that ended it.
        stdout: Its output.
        stderr: Its errors. The last line says what a limit or a missing program was.
        output: Both as they came.
        truncated: Whether output was left out.
        timed_out: Whether its time ended it.
    """

    exit_code: int
    stdout: str
    stderr: str
    output: str
    truncated: bool
    timed_out: bool


def finished(result: ExecutionResult) -> Finished:
    """How the command of `executing` ended."""
    stdout, stderr, output, timed_out = result.stdout, result.stderr, result.output, result.outcome is Outcome.TIMEOUT
    if result.error is None:
        status = result.value if isinstance(result.value, int) else 1
        code = 128 - status if status < 0 else status
    else:  # It could not be started, or a limit or a signal ended it.
        was_started = result.error.type in ("Limit", "Signal", "Cancelled", "MemoryError")
        missing = isinstance(failure_of(result), FileNotFoundError)
        code = result.exit_code if was_started or timed_out else 127 if missing else 126
        message = "The command was stopped at its time limit.\n" if timed_out else f"{result.error.message}\n"
        stderr = stderr.removesuffix(result.error.traceback) + message
        output = output.removesuffix(result.error.traceback) + message
    return Finished(code, stdout, stderr, output, result.truncated, timed_out)


def failure_of(result: ExecutionResult) -> OSError:
    """The exception that code met behind the wall, or that says what ended it."""
    assert result.error is not None
    if result.outcome is Outcome.TIMEOUT:
        return TimeoutError(result.error.message)
    kind = getattr(builtins, result.error.type, None)
    return (kind if isinstance(kind, type) and issubclass(kind, OSError) else OSError)(result.error.message)


class Machine:
    """Machines of one sandbox: each conversation has a session of its own, with its files, commands and processes.

    Commands of one conversation run one after the other. What they leave running goes on until the session ends.

    Args:
        most: Of more conversations, the one that was idle for longest loses its files; 0: none does.
        options: Arguments of `Sandbox`. The limits that are not set are those of `LIMITS`.
    """

    def __init__(self, most: int = 0, **options: Any) -> None:
        limits = options.pop("limits", None) or {}
        if isinstance(limits, Mapping):
            limits = {**LIMITS, **limits}
        if options.get("policy", "open") != "open" or options.get("engine") == "monty":
            raise RequestError("Commands need all of Python: engine 'cpython' and policy 'open'.")
        self._code = CodeSession(most=most, limits=limits, **options)
        self._part = min(_PART, self._code.limits.value_bytes // 2)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        conversation: Any = None,
    ) -> Finished:
        """Run a command. A caller that is cancelled ends it, and so does the timeout, with all of its processes."""
        file = ""
        if stdin is not None:
            file = f"/tmp/.input-{uuid4().hex}"
            await self.write(file, stdin, conversation=conversation)
        code = executing(argv, stdin=file, cwd=cwd, env=env)
        result = await self._code.run(code, conversation, timeout)
        if result.error is None and result.value == -signal.SIGKILL:
            await self._code.run("None", conversation)  # If what did it also killed the sandbox, this raises.
        return finished(result)

    async def write(self, path: str, data: bytes, *, conversation: Any = None) -> None:
        """Write a file, and the folders above it.

        Raises:
            OSError: The one that the code has met.
        """
        for cell in writing(path, data):
            result = await self._code.run(cell, conversation)
            if result.error is not None:
                raise failure_of(result)

    async def read(self, path: str, most: int | None = None, *, conversation: Any = None) -> bytes:
        """Read a file, or at most so many bytes of it.

        Raises:
            OSError: The one that the code has met.
        """
        data = bytearray()
        while most is None or len(data) < most:
            size = self._part if most is None else min(self._part, most - len(data))
            result = await self._code.run(reading(path, len(data), size), conversation)
            if result.error is not None:
                raise failure_of(result)
            if not isinstance(result.value, bytes):
                raise OSError(f"{path!r} was not read: {result.value_repr}")
            data += result.value
            if len(result.value) < size:
                break
        return bytes(data)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what a method returns, for callers without an event loop. A caller that is interrupted ends it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._code.loop)
        except RuntimeError as error:
            work.close()
            raise RequestError("The machines are closed; make new ones.") from error
        try:
            return future.result()
        finally:
            future.cancel()

    async def end(self, conversation: Any) -> None:
        """End the session of a conversation, with all that it has started."""
        with suppress(RequestError):
            await self._code.end(conversation)

    def close(self) -> None:
        """End all; a second time does nothing."""
        self._code.close()
