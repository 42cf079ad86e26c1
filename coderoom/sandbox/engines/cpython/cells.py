"""A cell that runs in a room, and its result, which is made of what the untrusted process has reported."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import functools
import signal
from collections.abc import Mapping
from typing import Any

from coderoom._util.tasks import Deadline
from coderoom._util.text import encodable
from coderoom.outcome import Outcome
from coderoom.sandbox.cell import STATE_KEPT, STATE_LOST, Collector, artifacts_of, stopped
from coderoom.sandbox.config import MIB, Limits, SandboxConfig
from coderoom.sandbox.functions.calls import Calls
from coderoom.sandbox.guest.decoding import Decoder, TaggedError
from coderoom.sandbox.result import Artifact, CodeError, ExecutionResult, FunctionCall, Limit

_LONGEST = 30_000

_LIMIT_OF_ERRNO: dict[int, Limit] = {
    errno.EMFILE: "open_files",
    errno.EFBIG: "file_size",
    errno.ENOSPC: "disk",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
}
_FIELD_OF_LIMIT: dict[Limit, str] = {
    "open_files": "open_files",
    "file_size": "file_bytes",
    "processes": "processes",
}


class RunningCell:
    """A cell that runs.

    Attributes:
        number: Its number, which its answer must have.
        output: What it has printed so far.
        answer: What its process reported at its end; `None` if the process ended before that.
        ended: What the parent of the process reported about the end of the process; `None` while it runs.
        calls: Answers its calls to functions of the host; `None` if none are offered.
        sending: The request with the cell, while it is being sent in several steps.
        deadline: Its time limit, while it is waited for.
    """

    def __init__(self, number: int, output: Collector) -> None:
        self.number = number
        self.output = output
        self.answer: Mapping[str, Any] | None = None
        self.ended: Mapping[str, Any] | None = None
        self.calls: Calls | None = None
        self.sending: asyncio.Future[None] | None = None
        self.deadline: Deadline | None = None
        self._ending: Ending | None = None
        self._waiter: asyncio.Future[None] | None = None

    def finish(self, ending: Ending) -> None:
        """Stop waiting for the cell; only the first reason counts."""
        self._ending = self._ending or ending
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> Ending:
        """Wait until the cell has finished, was cancelled or has used up its time."""
        if self._ending is None:
            self._waiter = asyncio.get_running_loop().create_future()
            self.deadline = Deadline(seconds, functools.partial(self.finish, Ending.TIMEOUT))
            try:
                await self._waiter
            finally:
                self.deadline.cancel()
        assert self._ending is not None
        return self._ending

    async def wait_longer(self, seconds: float) -> bool:
        """After `wait`, wait longer for an answer or for the end of the process; return whether one came."""
        self._ending = None if self.answer is None and self.ended is None else Ending.BY_ITSELF
        return await self.wait(seconds) is Ending.BY_ITSELF

    async def end_calls(self) -> tuple[FunctionCall, ...]:
        """End the calls that still run, and return all calls."""
        return () if self.calls is None else await self.calls.close()

    async def stop_sending(self) -> None:
        """Cancel the request if it is still being sent, and end the calls."""
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.gather(self.sending, return_exceptions=True)
            self.sending = None
        await self.end_calls()


class Ending(enum.Enum):
    """Why the host no longer waits for a cell."""

    BY_ITSELF = enum.auto()
    TIMEOUT = enum.auto()
    CANCELLED = enum.auto()


def conclude(
    cell: RunningCell,
    ending: Ending,
    code: str,
    config: SandboxConfig,
    duration: float,
    seconds: float,
    state_lost: bool | None,
) -> ExecutionResult:
    """Make the result of a cell, whose answer is untrusted; `seconds` is how long it was allowed to take.

    `state_lost` is `None` for a one-shot run, which has no session.
    """
    answer: Mapping[str, Any] = cell.answer or {}
    limits = config.limits
    facts: dict[str, Any] = {}
    if ending is not Ending.BY_ITSELF:
        rest = "" if state_lost is None else STATE_LOST if state_lost else STATE_KEPT
        facts = stopped(None if ending is Ending.CANCELLED else seconds, "wall", rest)
    elif cell.answer is not None:
        facts = _answered(answer, limits)
    elif cell.ended is not None:
        facts = _died(cell.ended, limits, state_lost)
    if cell.output.truncated or answer.get("value_too_large") is True:
        facts["limit"] = facts.get("limit") or ("output" if cell.output.truncated else "value")
    artifacts: tuple[Artifact, ...] = ()
    if reported := answer.get("artifacts"):
        shown = cell.output.marked()
        artifacts = artifacts_of(reported, answer.get("contents", b""), config.shared_workspace, shown)
    return cell.output.make_result(
        **facts,
        duration=duration,
        artifacts=artifacts,
        artifacts_left_out=natural(answer.get("artifacts_left_out")),
        code=code,
        state_lost=bool(state_lost),
        peak_memory=natural((cell.ended or answer).get("peak"), 1 << 63) or None,
    )


def _answered(answer: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    exit_code = answer.get("exit_code")
    if type(exit_code) is not int or not 0 <= exit_code <= 255:
        exit_code = 1
    if answer.get("outcome") == "ok" and exit_code == 0:
        untrusted = answer.get("value_repr")
        shown = _text(untrusted[:_LONGEST]) if isinstance(untrusted, str) else None
        value, is_data = answer.get("value"), answer.get("value") is not None
        if "tagged" in answer:
            with contextlib.suppress(TaggedError, RecursionError):
                value, is_data = Decoder().read(answer["tagged"]), True
        return {
            "outcome": Outcome.OK,
            "exit_code": 0,
            "value": value if is_data else shown,
            "value_repr": shown,
            "value_is_data": is_data,
        }
    error, limit = _error(answer.get("error"), limits)
    memory = answer.get("outcome") == "memory" or limit == "memory"
    return {
        "outcome": Outcome.MEMORY if memory else Outcome.ERROR,
        "exit_code": 137 if memory else exit_code or 1,
        "error": error,
        "limit": "memory" if memory else limit,
    }


def _error(untrusted: Any, limits: Limits) -> tuple[CodeError, Limit | None]:
    if not isinstance(untrusted, dict):
        return CodeError("Error", "The code failed and did not say why."), None
    kind, message = str(untrusted.get("type"))[:200], str(untrusted.get("message"))[:_LONGEST]
    line = untrusted.get("line")
    limit = _LIMIT_OF_ERRNO.get(untrusted["errno"]) if isinstance(untrusted.get("errno"), int) else None
    if kind == "RuntimeError" and message == "can't start new thread":
        limit = "processes"
    message = _with_limit(message, limit, limits)
    text = _text(str(untrusted.get("traceback") or "")[: 4 * _LONGEST])
    return CodeError(_text(kind), _text(message), text, line if isinstance(line, int) else None), limit


def _with_limit(message: str, limit: Limit | None, limits: Limits) -> str:
    if limit == "disk":
        met = f"or the limit disk_bytes={limits.disk_bytes:,} of /tmp was met"
        return f"{message.rstrip('.')}. The disk is full, {met} if the file is there."
    field = _FIELD_OF_LIMIT.get(limit) if limit is not None else None
    if field is None:
        return message
    return f"{message.rstrip('.')}. The limit {field}={getattr(limits, field):,} was met."


def _died(ended: Mapping[str, Any], limits: Limits, lost: bool | None) -> dict[str, Any]:
    rest = f" {STATE_LOST}" if lost else ""
    met = ended.get("limit")
    if met == "cpu":
        return stopped(limits.cpu_seconds or 0, "cpu", rest.strip())
    did = {
        "memory": f"wanted more memory than the {limits.memory_bytes // MIB:,} MiB that it may have",
        "processes": f"had more than {limits.processes} processes at a time",
        "disk": f"wrote more than {limits.disk_bytes // MIB:,} MiB into its workspace",
    }.get(str(met))
    if did is not None:
        outcome = Outcome.MEMORY if met == "memory" else Outcome.ERROR
        error = CodeError("Limit", f"The code {did}.{rest}")
        return {"outcome": outcome, "exit_code": 137, "error": error, "limit": met}
    status = ended.get("status")
    if not isinstance(status, int):
        message = _with_limit(f"The code's process could not be started: {ended.get('fork')}.", "processes", limits)
        error = CodeError("Error", f"{message}{rest}")
        return {"outcome": Outcome.ERROR, "exit_code": 126, "error": error, "limit": "processes"}
    if status < 0:
        limit: Limit | None = "file_size" if -status == signal.SIGXFSZ else None
        message = _with_limit(f"The code's process was ended by {_signal(-status)}.", limit, limits)
        error = CodeError("Signal", f"{message}{rest}")
        return {"outcome": Outcome.ERROR, "exit_code": 128 - status, "error": error, "limit": limit}
    if status == 0:
        return {"outcome": Outcome.OK, "exit_code": 0}
    return {"outcome": Outcome.ERROR, "exit_code": status, "error": CodeError("Exit", f"exit code {status}.{rest}")}


def describe_end(facts: Mapping[str, Any]) -> str:
    """Say why a process ended that never got ready for code, from what its parent reported."""
    if facts.get("lost"):
        return "everything in the sandbox has ended"
    if facts.get("fork"):
        return str(facts["fork"])
    status = facts.get("status")
    if isinstance(status, int) and status < 0:
        return f"it was ended by {_signal(-status)}"
    return f"it ended with exit code {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(untrusted: str) -> str:
    return untrusted if untrusted.isascii() else encodable(untrusted)


def natural(untrusted: Any, end: int = 1 << 31) -> int:
    """The number, if it is one from 0 on and below `end`; else 0."""
    return untrusted if type(untrusted) is int and 0 <= untrusted < end else 0
