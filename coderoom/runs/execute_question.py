"""A question in words, answered by code that a model writes and a sandbox runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypedDict

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, RequestUsage

from coderoom._util.components import linked
from coderoom.configs import default_model, resolve_model
from coderoom.errors import RequestError
from coderoom.executors import bound_output
from coderoom.outcome import Outcome
from coderoom.runs import execute_prompts as prompts
from coderoom.runs.execute_attempt import Attempt, attempt_code
from coderoom.runs.execute_dialogue import Dialogue
from coderoom.runs.prepare import WALL_VARIABLE
from coderoom.runs.record import NO_CODE
from coderoom.sandbox import Sandbox

__all__ = ["ExecuteCodeResult", "execute_code"]

_LONGEST_TIMEOUT: Final = 86_400
_LEAST_OUTPUT: Final = 200
_WORTH_A_RETRY: Final = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.MEMORY})


class ExecuteCodeResult(TypedDict):
    """What came of `execute_code`, as a plain dict. All of it is computed from what ran; nothing is a model's word.

    Attributes:
        success: Whether code ran to its end with exit code 0.
        result: The value of the variable `result`, or of a last expression where there is no such variable; `None`
            if there is neither, or the code failed.
        result_is_repr: Whether `result` is only the `repr` of a value, since that is no plain data or too large.
        code: The code that was tried last; empty if the model wrote none.
        error: Why there is no success, in words; `None` if there is.
        outcome: An `Outcome` (`ok`, `error`, `timeout`, `memory`, `rejected`, `cancelled`), or `no_code`.
        stdout: What the code wrote to standard output, bounded.
        stderr: What it wrote to standard error, bounded; the traceback of an error is there.
        truncated: Whether something that it wrote was left out.
        attempts: How many pieces of code were tried.
        usage: The model's tokens: `prompt_tokens`, `completion_tokens`, `total_tokens`.
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

    Code that fails is shown to the model with its error, to be mended. Code that the policy refuses is not: that ends
    the call, with the refusal as its `error`. A model that answers without code is asked once more.

    Args:
        prompt: What to find out, in words, with the data in it.
        model: An AutoGen model client, which stays open; or what `--model` takes, such as `openai:gpt-4o-mini`,
            `replay:FILE` or a YAML file. `None`: the variable `CODEROOM_MODEL`, else OpenAI's `gpt-4o`.
        timeout: The seconds that each attempt has to run.
        max_output: How many characters of each of the two outputs are kept, and shown to the model, at least 200:
            their beginning and their end.
        max_retries: How many further attempts may follow one that failed, 0 or more.
        sandbox: Where the code runs, for a warm one that many calls share; its policy, wall and limits hold, and it
            stays open. `None`: one with the policy `restricted`, for this call alone, with the wall of the variable
            `CODEROOM_WALL` or the strongest that can be built.
        cancellation_token: Ends the call; so does a cancel of the task.

    Returns:
        What came of it. That the code failed, or was refused, is no exception.

    Raises:
        RequestError: An argument is wrong, or there is no such model.
        ConfigError: The model's file has mistakes.
        MissingDependencyError: The model needs a key or a package that is not there.
        ModelError: The model could not be asked; `__cause__` is what its client raised.
        SandboxUnavailable: The sandbox broke, or there is no wall to be had; no model is asked without one.
        asyncio.CancelledError: The call was cancelled; nothing is left running.
    """
    _check(prompt, timeout, max_output, max_retries, sandbox)
    token = CancellationToken() if cancellation_token is None else cancellation_token
    chosen = default_model() if model is None else model
    client = resolve_model(chosen)
    try:
        name = repr(chosen) if isinstance(chosen, str) else type(client).__name__
        dialogue = Dialogue(client, name, prompts.instructions(timeout), prompt, token)
        return await linked(_answer(dialogue, sandbox, timeout, max_output, max_retries), token)
    finally:
        if client is not model:
            await client.close()


def _check(prompt: Any, timeout: Any, max_output: Any, max_retries: Any, sandbox: Any) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        raise RequestError(
            f"The prompt {prompt!r} is no text that says what to do; write what the code is to find out."
        )
    if type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST_TIMEOUT:
        raise RequestError(f"timeout={timeout!r} must be seconds, above 0 and at most {_LONGEST_TIMEOUT:,}.")
    if type(max_output) is not int or max_output < _LEAST_OUTPUT:
        raise RequestError(f"max_output={max_output!r} must be a number of characters, at least {_LEAST_OUTPUT}.")
    if type(max_retries) is not int or max_retries < 0:
        raise RequestError(f"max_retries={max_retries!r} must be a whole number, 0 or more.")
    if sandbox is not None and not isinstance(sandbox, Sandbox):
        raise RequestError(f"sandbox={sandbox!r} is no coderoom.sandbox.Sandbox; make one, or leave it out.")


async def _answer(
    dialogue: Dialogue, sandbox: Sandbox | None, timeout: float, max_output: int, max_retries: int
) -> ExecuteCodeResult:
    attempts: list[Attempt] = []
    async with _standing(sandbox) as place:
        while code := await dialogue.ask_for_code():
            attempt = await attempt_code(place, code, timeout)
            attempts.append(attempt)
            if not _may_go_on(attempts, max_retries):
                break
            printed = bound_output(attempt.printed, max_output)
            problem = bound_output(attempt.problem, max_output)
            dialogue.tell(prompts.after_failure(attempt.outcome, problem, printed))
    if not attempts:
        return _without_code(dialogue)
    return _with_code(attempts, dialogue.usage, max_output)


@asynccontextmanager
async def _standing(sandbox: Sandbox | None) -> AsyncIterator[Sandbox]:
    """A sandbox that stands, so that no model is asked for code that nothing can run."""
    if sandbox is not None:
        await sandbox.start()
        yield sandbox
        return
    async with Sandbox(os.environ.get(WALL_VARIABLE) or "auto", policy="restricted") as own:
        yield own


def _may_go_on(attempts: list[Attempt], max_retries: int) -> bool:
    last = attempts[-1]
    # The same code that fails in the same way would only cost.
    repeated = any((last.code, last.error) == (earlier.code, earlier.error) for earlier in attempts[:-1])
    return last.outcome in _WORTH_A_RETRY and len(attempts) <= max_retries and not repeated


def _with_code(attempts: list[Attempt], usage: RequestUsage, max_output: int) -> ExecuteCodeResult:
    """The last attempt counts, whatever the model said after it."""
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


def _without_code(dialogue: Dialogue) -> ExecuteCodeResult:
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
