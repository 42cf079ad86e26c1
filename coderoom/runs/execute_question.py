"""A question in words, answered by code that a model writes and a sandbox runs."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from autogen_core import CancellationToken
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)

from coderoom._util.advice import in_words
from coderoom._util.calls import await_with_token
from coderoom._util.text import encodable
from coderoom.blocks import extract_code_blocks
from coderoom.configs import default_model, resolve_model
from coderoom.errors import CodeRoomError, ModelError, RequestError
from coderoom.executors import bound_output
from coderoom.outcome import Outcome
from coderoom.runs.record import NO_CODE
from coderoom.runs.team_run import WALL_VARIABLE
from coderoom.sandbox import CodeError, ExecutionResult, Sandbox, Session

__all__ = ["ExecuteCodeResult", "execute_code"]


_MODULES: Final = (
    "math, cmath, random, statistics, decimal, fractions, numbers, json, re, string, textwrap, datetime, time, "
    "collections, itertools, functools, operator, copy, heapq, bisect, dataclasses, enum, typing"
)
"""What the model is told it may import. The policy allows some more, which nobody needs for an answer."""

_INSTRUCTIONS: Final = """\
You answer by writing Python code. It is run for you, and what it computes is the answer.

Answer with one ```python block: complete, ready to run as it is, with the data of the task written into it. Assign \
the answer to the variable `result`, as plain data: numbers, texts, True, False, None, and lists, tuples, sets and \
dicts of these. Compute it; do not write down an answer that you have worked out yourself.

The code has {timeout:g} seconds. It begins with nothing each time, nobody can type anything in, and there are no \
files, no network, no other programs and no third-party packages. It may import {modules}, and nothing else; open, \
eval, exec, compile, globals and attributes such as __dict__ are refused. Code that breaks these rules is not run, \
and there is no second try. If the task cannot be done within them, let the code raise a RuntimeError that says why."""

_NO_CODE: Final = (
    "There is no Python code in your answer, so nothing was run. Answer with one ```python block that assigns the "
    "answer to `result`."
)

_CUT_OFF: Final = (
    "Your code is cut off: the closing fence of its block is missing, so nothing was run. Write it again as a whole, "
    "shorter if need be."
)

_ADVICE: Final = {Outcome.TIMEOUT: " Find a faster way.", Outcome.MEMORY: " Find a way that needs less."}


def _instructions(timeout: float) -> str:
    """The system message.

    Args:
        timeout: The seconds that the code has.
    """
    return _INSTRUCTIONS.format(timeout=timeout, modules=_MODULES)


def _after_failure(outcome: Outcome, problem: str, printed: str) -> str:
    """What a model is told about code that failed; the code itself is in its own message just before.

    Args:
        outcome: How the code ended.
        problem: The error, with the lines that it came from.
        printed: What the code printed, bounded.
    """
    shown = f"\n\nIt had printed:\n{printed.rstrip()}" if printed.strip() else ""
    advice = _ADVICE.get(outcome, "")
    return (
        f"Your code failed:\n{problem.rstrip()}{advice}{shown}\n\n"
        "Nothing of that run is left. Fix the cause, and answer with the whole code again in one ```python block."
    )


_SHOWN: Final = 300


class _Dialogue:
    """What was said to a model and what it answered.

    Args:
        client: The model.
        name: What to call it in an error.
        instructions: The system message.
        prompt: What the person wants to know.
        token: Ends a call.
    """

    def __init__(
        self, client: ChatCompletionClient, name: str, instructions: str, prompt: str, token: CancellationToken
    ) -> None:
        self.usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        self.why_no_code = ""
        self._client = client
        self._name = name
        self._token = token
        self._messages: list[LLMMessage] = [
            SystemMessage(content=instructions),
            UserMessage(content=encodable(prompt), source="user"),
        ]
        self._reminded = False

    def tell(self, text: str) -> None:
        """Say something to the model, which it reads with the next question."""
        self._messages.append(UserMessage(content=text, source="user"))

    async def ask_for_code(self) -> str:
        """Let the model answer; if it does so without code, remind it, once in a dialogue.

        Returns:
            The code; empty if there is none.

        Raises:
            ModelError: The model could not be asked.
        """
        while True:
            reply = await self._ask()
            code, cut = _code_in(reply)
            if code:
                return code
            if self._reminded:
                self.why_no_code = _complaint(reply, cut)
                return ""
            self._reminded = True
            self.tell(_CUT_OFF if cut else _NO_CODE)

    async def _ask(self) -> str:
        try:
            answer = await self._client.create(self._messages, cancellation_token=self._token)
        except CodeRoomError:
            raise
        except Exception as error:
            raise ModelError(in_words(f"The model {self._name}", error)) from error
        self.usage.prompt_tokens += answer.usage.prompt_tokens
        self.usage.completion_tokens += answer.usage.completion_tokens
        # No tools are offered, so that calls of some are no answer.
        text = encodable(answer.content) if isinstance(answer.content, str) else ""
        # Some services refuse a history with an empty message.
        self._messages.append(AssistantMessage(content=text.strip() or "(no answer)", source="assistant"))
        return text


def _code_in(reply: str) -> tuple[str, bool]:
    """The Python of a reply, and whether it is cut off and therefore not there.

    Several blocks are one program, in their order. A block without a label counts where none has Python's.
    """
    blocks = [block for block in extract_code_blocks(reply) if not block.no_run]
    for language in ("python", ""):
        found = [block for block in blocks if block.language == language and block.code.strip()]
        if found:
            cut = not all(block.closed for block in found)
            return "" if cut else "\n\n".join(block.code for block in found), cut
    return "", False


def _complaint(reply: str, cut: bool) -> str:
    if cut:
        return (
            "The model's code was cut off, also when it was asked once more, and nothing was run: let the model write "
            "longer answers, or ask for less at a time."
        )
    said = " ".join(reply.split())
    said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
    return f"The model wrote no Python code, also when it was asked once more, and nothing was run. It said: {said!r}"


_NAMES_RESULT: Final = re.compile(r"\bresult\b")
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class _Attempt:
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


async def _attempt_code(sandbox: Sandbox, code: str, timeout: float) -> _Attempt:
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
        value, is_repr = await _value_of(session, ran, timeout)
    return _Attempt(code, ran, value, is_repr, _error(ran, timeout, sandbox))


async def _value_of(session: Session, ran: ExecutionResult, timeout: float) -> tuple[Any, bool]:
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


_LONGEST_TIMEOUT: Final = 86_400
_LEAST_OUTPUT: Final = 200
_WORTH_A_RETRY: Final = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.MEMORY})


class ExecuteCodeResult(TypedDict):
    """The result of `execute_code`, as a plain dict. All of it is computed; nothing is a model's claim.

    Attributes:
        success: Whether code ran to its end with exit code 0.
        result: The value of the variable `result`, or of a last expression where there is no such variable; `None`
            if there is neither, or the code failed.
        result_is_repr: Whether `result` is only the `repr` of a value, because it is not plain data or too large.
        code: The code of the last attempt; empty if the model wrote none.
        error: Why it failed; `None` if it succeeded.
        outcome: An `Outcome` (`ok`, `error`, `timeout`, `memory`, `rejected`, `cancelled`), or `no_code`.
        stdout: What the code wrote to standard output, bounded.
        stderr: What it wrote to standard error, bounded; the traceback of an error is there.
        truncated: Whether output was left out.
        attempts: The number of attempts.
        usage: Token usage: `prompt_tokens`, `completion_tokens`, `total_tokens`.
    """

    success: bool
    result: Any
    result_is_repr: bool
    code: str
    error: str | None
    outcome: str
    stdout: str
    stderr: str
    truncated: bool
    attempts: int
    usage: dict[str, int]


async def execute_code(
    prompt: str,
    *,
    model: ChatCompletionClient | str | None = None,
    timeout: float = 5.0,
    max_output: int = 10_000,
    max_retries: int = 2,
    sandbox: Sandbox | None = None,
    cancellation_token: CancellationToken | None = None,
) -> ExecuteCodeResult:
    """Let a model write Python that answers a question, run it in a sandbox, and return what it computed.

    Code that fails goes back to the model with its error. Code that the policy rejects does not: it ends the call, with
    the rejection as its `error`. A model that answers without code is asked once more.

    Args:
        prompt: The question, with its data.
        model: An AutoGen model client, which stays open; or what `--model` takes, such as `openai:gpt-4o-mini`,
            `replay:FILE` or a YAML file. `None`: the variable `CODEROOM_MODEL`, else OpenAI's `gpt-4o`.
        timeout: The timeout of each attempt, in seconds.
        max_output: How many characters of each of the two outputs are kept, and shown to the model, at least 200:
            their beginning and their end.
        max_retries: The number of further attempts after a failed one, 0 or more.
        sandbox: The sandbox, to share a warm one between calls; its policy, wall and limits apply, and it stays open.
            `None`: one with the policy `restricted` for this call, with the wall that `CODEROOM_WALL` names, or the
            strongest that works.
        cancellation_token: Ends the call; so does a cancel of the task.

    Returns:
        The result. Code that failed or was rejected does not raise.

    Raises:
        RequestError: An argument is wrong, or the model does not exist.
        ConfigError: The model's file has mistakes.
        MissingDependencyError: The model needs a key or a package that is missing.
        ModelError: The request to the model failed; `__cause__` is what its client raised.
        SandboxUnavailable: The sandbox broke, or no wall works; then no request goes to a model.
        asyncio.CancelledError: The call was cancelled; nothing keeps running.
    """
    _check(prompt, timeout, max_output, max_retries, sandbox)
    token = CancellationToken() if cancellation_token is None else cancellation_token
    chosen = default_model() if model is None else model
    client = resolve_model(chosen)
    try:
        name = repr(chosen) if isinstance(chosen, str) else type(client).__name__
        dialogue = _Dialogue(client, name, _instructions(timeout), prompt, token)
        return await await_with_token(_answer(dialogue, sandbox, timeout, max_output, max_retries), token)
    finally:
        if client is not model:
            await client.close()


def _check(prompt: Any, timeout: Any, max_output: Any, max_retries: Any, sandbox: Any) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        raise RequestError(f"The prompt {prompt!r} is not a question; write what the code must find out.")
    if type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST_TIMEOUT:
        raise RequestError(f"timeout={timeout!r} must be seconds, above 0 and at most {_LONGEST_TIMEOUT:,}.")
    if type(max_output) is not int or max_output < _LEAST_OUTPUT:
        raise RequestError(f"max_output={max_output!r} must be a number of characters, at least {_LEAST_OUTPUT}.")
    if type(max_retries) is not int or max_retries < 0:
        raise RequestError(f"max_retries={max_retries!r} must be a whole number, 0 or more.")
    if sandbox is not None and not isinstance(sandbox, Sandbox):
        raise RequestError(f"sandbox={sandbox!r} is not a coderoom.sandbox.Sandbox; create one, or leave it out.")


async def _answer(
    dialogue: _Dialogue, sandbox: Sandbox | None, timeout: float, max_output: int, max_retries: int
) -> ExecuteCodeResult:
    attempts: list[_Attempt] = []
    async with _standing(sandbox) as place:
        while code := await dialogue.ask_for_code():
            attempt = await _attempt_code(place, code, timeout)
            attempts.append(attempt)
            if not _may_go_on(attempts, max_retries):
                break
            printed = bound_output(attempt.printed, max_output)
            problem = bound_output(attempt.problem, max_output)
            dialogue.tell(_after_failure(attempt.outcome, problem, printed))
    if not attempts:
        return _without_code(dialogue)
    return _with_code(attempts, dialogue.usage, max_output)


@asynccontextmanager
async def _standing(sandbox: Sandbox | None) -> AsyncIterator[Sandbox]:
    """A started sandbox, so that no model is asked for code that cannot run."""
    if sandbox is not None:
        await sandbox.start()
        yield sandbox
        return
    async with Sandbox(os.environ.get(WALL_VARIABLE) or "auto", policy="restricted") as own:
        yield own


def _may_go_on(attempts: list[_Attempt], max_retries: int) -> bool:
    last = attempts[-1]
    # Repeating the same failure only costs tokens.
    repeated = any((last.code, last.error) == (earlier.code, earlier.error) for earlier in attempts[:-1])
    return last.outcome in _WORTH_A_RETRY and len(attempts) <= max_retries and not repeated


def _with_code(attempts: list[_Attempt], usage: RequestUsage, max_output: int) -> ExecuteCodeResult:
    """The result of the last attempt."""
    last = attempts[-1]
    stdout, stderr = last.ran.stdout, last.ran.stderr
    return ExecuteCodeResult(
        success=last.ran.success,
        result=last.value,
        result_is_repr=last.value_is_repr,
        code=last.code,
        error=None if last.error is None else bound_output(last.error, max_output),
        outcome=last.outcome.value,
        stdout=bound_output(stdout, max_output),
        stderr=bound_output(stderr, max_output),
        truncated=last.ran.truncated or max(len(stdout), len(stderr)) > max_output,
        attempts=len(attempts),
        usage=_tokens(usage),
    )


def _without_code(dialogue: _Dialogue) -> ExecuteCodeResult:
    return ExecuteCodeResult(
        success=False,
        result=None,
        result_is_repr=False,
        code="",
        error=dialogue.why_no_code,
        outcome=NO_CODE,
        stdout="",
        stderr="",
        truncated=False,
        attempts=0,
        usage=_tokens(dialogue.usage),
    )


def _tokens(usage: RequestUsage) -> dict[str, int]:
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
