"""One piece of code, run, and what it says about the answer."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Final

from coderoom.outcome import Outcome
from coderoom.sandbox import CodeError, ExecutionResult, Sandbox, Session

__all__ = ["Attempt", "attempt_code"]

_NAMES_RESULT: Final = re.compile(r"\bresult\b")
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Attempt:
    """How one piece of code went.

    Attributes:
        code: The code.
        ran: What the sandbox knows of it.
        value: The answer.
        value_is_repr: Whether the answer is only the `repr` of a value.
        error: Why it failed, in a line where that is possible; `None` if it did not.
    """

    code: str
    ran: ExecutionResult
    value: Any
    value_is_repr: bool
    error: str | None

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.ran.outcome

    @property
    def problem(self) -> str:
        """Why it failed, with the lines that it came from, where there are some."""
        return self._traceback or self.error or ""

    @property
    def printed(self) -> str:
        """What it printed, without the traceback, which goes to standard error too."""
        return self.ran.stdout if self._traceback else self.ran.output

    @property
    def _traceback(self) -> str:
        return "" if self.ran.error is None else self.ran.error.traceback


async def attempt_code(sandbox: Sandbox, code: str, timeout: float) -> Attempt:
    """Run code in a fresh state.

    Args:
        sandbox: Where.
        code: The code.
        timeout: The seconds that it has.

    Raises:
        SandboxUnavailable: The sandbox broke.
    """
    async with sandbox.session() as session:
        ran = await session.run(code, timeout=timeout)
        value, is_repr = await _value(session, ran, timeout)
    return Attempt(code, ran, value, is_repr, _error(ran, timeout, sandbox))


async def _value(session: Session, ran: ExecutionResult, timeout: float) -> tuple[Any, bool]:
    if not ran.success:
        return None, False
    answer = ran
    if _NAMES_RESULT.search(ran.code):
        # The variable counts, also where the code goes on to an expression; without one, this is a `NameError`.
        named = await session.run("result", timeout=timeout)
        answer = named if named.success else ran
    if answer.value is None or answer.value_is_data:
        return answer.value, False
    try:
        return ast.literal_eval(answer.value), False
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return answer.value, True


def _error(ran: ExecutionResult, timeout: float, sandbox: Sandbox) -> str | None:
    error = ran.error
    if ran.success:
        return None
    match ran.outcome:
        case Outcome.TIMEOUT if ran.limit != "cpu":
            return f"Timeout: the code was stopped after {timeout:g} seconds."
        case Outcome.TIMEOUT:
            return f"Timeout: the code used more than its {sandbox.limits.cpu_seconds} seconds of processor time."
        case Outcome.MEMORY:
            return (
                f"Memory: the code wanted more than the {sandbox.limits.memory_bytes // _MIB:,} MiB that it may have."
            )
        case _ if error is not None:
            return _in_a_line(error)
        case _:
            return f"The code ended with exit code {ran.exit_code}."


def _in_a_line(error: CodeError) -> str:
    text = f"{error.type}: {error.message}" if error.message else error.type
    # A syntax error tells its line itself.
    return text if error.line is None or f"line {error.line}" in text else f"{text} (line {error.line})"
