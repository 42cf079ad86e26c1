"""Answers a question by Python code that a model writes and a sandbox runs.

Not the turn of an agent: the code has no history, the answer is the value of a variable, and nothing but the error of a
failed attempt goes back to the model.
"""

from __future__ import annotations

import os
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
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

from coderoom._util.tasks import aside, await_with_token
from coderoom._util.text import encodable
from coderoom.blocks import extract_code_blocks, without_thoughts
from coderoom.configs import default_model, resolve_model
from coderoom.errors import CodeRoomError, ModelError, RequestError
from coderoom.executors import bound_output
from coderoom.models.calling import make_ready
from coderoom.models.services import in_words
from coderoom.outcome import Outcome
from coderoom.runs.record import NO_CODE, usage_of
from coderoom.runs.team_run import WALL_VARIABLE
from coderoom.sandbox import ExecutionResult, Sandbox
from coderoom.skills import Inlined, Skills, inline, skills_for

_MODULES: Final = (
    "math, cmath, random, statistics, decimal, fractions, numbers, json, re, string, textwrap, datetime, time, "
    "collections, itertools, functools, operator, copy, heapq, bisect, dataclasses, enum, typing"
)
"""The modules in the instructions. The policy allows a few more, which no answer needs."""

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

_UNCLEAR: Final = "It cannot be told where the code in your answer ends, so nothing was run. Write it again as a whole."
_CUT_OFF: Final = (
    "Your answer is cut off before the end of its code, so nothing was run. Write the code again as a whole, shorter "
    "if need be."
)
_FILTERED: Final = "The service's content filter ended the model's answer, and nothing was run: rephrase the question."

_ADVICE: Final = {Outcome.TIMEOUT: " Find a faster way.", Outcome.MEMORY: " Find a way that needs less memory."}
_RETRIED: Final = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.REJECTED})
_NAMES_RESULT: Final = re.compile(r"\bresult\b")
_LONGEST_TIMEOUT: Final = 86_400
_LEAST_OUTPUT: Final = 200
_QUOTED: Final = 300


class ExecuteCodeResult(TypedDict):
    """The result of `execute_code`, as a plain dict. All of it is computed; nothing is a model's claim.

    Attributes:
        success: Whether the code ran to its end with exit code 0.
        result: The value of the variable `result`, or of a last expression where there is no such variable; `None`
            if there is neither, or the code failed.
        result_is_repr: Whether `result` is only the `repr` of a value, because it is not data or too large.
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
    skills: Skills | str | Path | None = None,
) -> ExecuteCodeResult:
    """Let a model write Python code that answers a question, run it in a sandbox, and return the answer.

    The error of code that failed or that the policy rejected goes back to the model, which may try again. A model that
    answers without code is asked once more.

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
        skills: The folder of functions that an agent has saved, or a `Skills`: the code may import them.

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
    _check(prompt, timeout, max_output, max_retries, sandbox, skills)
    token = CancellationToken() if cancellation_token is None else cancellation_token
    chosen = default_model() if model is None else model
    client = resolve_model(chosen)
    name = repr(chosen) if isinstance(chosen, str) else type(client).__name__
    messages: list[LLMMessage] = [
        SystemMessage(content=_INSTRUCTIONS.format(timeout=timeout, modules=_MODULES)),
        UserMessage(content=encodable(prompt), source="user"),
    ]
    question = _Question(client, name, messages, token, timeout, max_output, max_retries, skills)
    try:
        return await await_with_token(question.answer(sandbox), token)
    finally:
        if client is not model:
            await client.close()


def _check(prompt: Any, timeout: Any, max_output: Any, max_retries: Any, sandbox: Any, skills: Any) -> None:
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
    if isinstance(skills, str | Path) and not Path(skills).expanduser().is_dir():
        raise RequestError(f"skills={str(skills)!r} is not a folder; name one that an agent has saved skills in.")


@dataclass
class _Question:
    """A question to a model: its client with its name in errors, the messages and attempts so far, and the limits."""

    client: ChatCompletionClient
    name: str
    messages: list[LLMMessage]
    token: CancellationToken
    timeout: float
    max_output: int
    max_retries: int
    skills: Skills | str | Path | None
    usage: RequestUsage = field(default_factory=lambda: RequestUsage(prompt_tokens=0, completion_tokens=0))
    attempts: list[tuple[ExecutionResult, str | None]] = field(default_factory=list)
    """The runs of code, whose values are the answers, and why each failed."""

    async def answer(self, sandbox: Sandbox | None) -> ExecuteCodeResult:
        """Ask, run the code, and ask again as long as that is worth it."""
        feedback = ""
        is_reminded = False
        async with AsyncExitStack() as stack:
            if sandbox is None:
                own = Sandbox(os.environ.get(WALL_VARIABLE) or "auto", policy="restricted")
                sandbox = await stack.enter_async_context(own)
            await sandbox.start()  # Before a model writes code that cannot run.
            skills = await self._skills_of(sandbox, stack)
            while True:
                reply, finish_reason = await self._ask(feedback)
                code, problem = _code_in(reply)
                if not code:
                    if finish_reason == "content_filter":
                        return self._result(_FILTERED)
                    problem = _CUT_OFF if finish_reason == "length" else problem
                    if is_reminded:
                        return self._result(_complaint(reply, problem))
                    is_reminded, feedback = True, problem or _NO_CODE
                    continue
                ran = await self._run(sandbox, code, skills)
                self.attempts.append((ran, _error(ran, self.timeout, sandbox)))
                *earlier, (_, why) = self.attempts
                # Repeating the same failure would only cost tokens.
                repeated = any((ran.code, why) == (old.code, before) for old, before in earlier)
                if ran.outcome not in _RETRIED or len(earlier) >= self.max_retries or repeated:
                    return self._result()
                # The code is in the model's own message just before, and the traceback in the standard error too.
                traceback = "" if ran.error is None else ran.error.traceback
                printed = bound_output(ran.stdout if traceback else ran.output, self.max_output)
                problem = bound_output(traceback or why or "", self.max_output)
                how = "was not run" if ran.outcome is Outcome.REJECTED else "failed"
                shown = f"\n\nIt had printed:\n{printed.rstrip()}" if printed.strip() else ""
                feedback = (
                    f"Your code {how}:\n{problem.rstrip()}{_ADVICE.get(ran.outcome, '')}{shown}\n\nNothing of that run "
                    "is left. Fix the cause, and answer with the whole code again in one ```python block."
                )

    async def _ask(self, more: str) -> tuple[str, str]:
        """Send the messages, and one more if it is given; return the answer, and why it ended.

        The answer is the last message afterwards.
        """
        if more:
            self.messages.append(UserMessage(content=more, source="user"))
        try:
            await make_ready(self.client)
            answer = await self.client.create(self.messages, cancellation_token=self.token)
        except CodeRoomError:
            raise
        except Exception as error:
            raise ModelError(in_words(f"The model {self.name}", error)) from error
        self.usage.prompt_tokens += answer.usage.prompt_tokens
        self.usage.completion_tokens += answer.usage.completion_tokens
        # The request offers no tools, so calls of tools are not an answer.
        text = await aside(encodable, answer.content) if isinstance(answer.content, str) else ""
        # Some services refuse a history with an empty message.
        self.messages.append(AssistantMessage(content=text.strip() or "(no answer)", source="assistant"))
        return text, answer.finish_reason

    async def _skills_of(self, sandbox: Sandbox, stack: AsyncExitStack) -> Skills | None:
        """The skills that the code may import, which the model is told of."""
        if self.skills is None or isinstance(self.skills, Skills):
            skills = self.skills
        else:
            skills = await stack.enter_async_context(Skills.like(self.skills, sandbox.config))
        if skills is not None:
            skills.check_apart(sandbox.workspace)
            first, question = self.messages
            shown = await skills_for(skills, str(question.content), restricted=sandbox.config.policy == "restricted")
            self.messages[0] = SystemMessage(content=f"{first.content}\n\n{shown}".rstrip())
        return skills

    async def _run(self, sandbox: Sandbox, code: str, skills: Skills | None) -> ExecutionResult:
        """Run code; the value of the variable `result` takes precedence over that of a last expression."""
        async with sandbox.session() as session:
            inlined = Inlined("", code) if skills is None else await inline(skills, code)
            ran = await session.run(inlined.before or inlined.code, timeout=self.timeout)
            if inlined.before and ran.success:
                ran = await session.run(inlined.code, timeout=self.timeout)
            ran = replace(ran, code=code)
            if ran.success and _NAMES_RESULT.search(code):
                named = await session.run("result", timeout=self.timeout)
                if named.success:  # Else there is no such variable.
                    ran = replace(ran, value=named.value, value_is_data=named.value_is_data)
        return ran

    def _result(self, why_no_code: str = "") -> ExecuteCodeResult:
        ran, error = self.attempts[-1] if self.attempts else (None, why_no_code)
        stdout, stderr = (ran.stdout, ran.stderr) if ran else ("", "")
        value = ran.value if ran and ran.success else None
        return ExecuteCodeResult(
            success=ran is not None and ran.success,
            result=value,
            result_is_repr=ran is not None and value is not None and not ran.value_is_data,
            code=ran.code if ran else "",
            error=error and bound_output(error, self.max_output),
            outcome=ran.outcome.value if ran else NO_CODE,
            stdout=bound_output(stdout, self.max_output),
            stderr=bound_output(stderr, self.max_output),
            truncated=ran is not None and (ran.truncated or max(len(stdout), len(stderr)) > self.max_output),
            attempts=len(self.attempts),
            usage=usage_of([self.usage]),
        )


def _error(ran: ExecutionResult, timeout: float, sandbox: Sandbox) -> str | None:
    if ran.success:
        return None
    if ran.outcome is Outcome.TIMEOUT and ran.limit == "cpu":
        return f"Timeout: the code used more than its {sandbox.limits.cpu_seconds} seconds of processor time."
    if ran.outcome is Outcome.TIMEOUT:
        return f"Timeout: the code was stopped after {timeout:g} seconds."
    if ran.outcome is Outcome.MEMORY:
        return f"Memory: the code wanted more than the {sandbox.limits.memory_bytes >> 20:,} MiB that it may have."
    if ran.error is None:
        return f"The code ended with exit code {ran.exit_code}."
    error = ran.error
    text = f"{error.type}: {error.message}" if error.message else error.type
    # The message of a syntax error has the line.
    return text if error.line is None or f"line {error.line}" in text else f"{text} (line {error.line})"


def _code_in(reply: str) -> tuple[str, str]:
    """The Python code of a reply, or why there is none although it contains code.

    Several blocks are one program, in their order. Blocks without a label count if no block is labelled as Python.
    Code in the model's thoughts is a draft.
    """
    blocks = [block for block in extract_code_blocks(without_thoughts(reply)) if not block.no_run]
    for block in blocks:
        if block.unclear:
            return "", f"{_UNCLEAR} At line {block.line}, {block.unclear}."
    for language in ("python", ""):
        found = [block for block in blocks if block.language == language and block.code.strip()]
        if found:
            is_whole = all(block.closed for block in found)
            return ("\n\n".join(block.code for block in found), "") if is_whole else ("", _CUT_OFF)
    return "", ""


def _complaint(reply: str, problem: str) -> str:
    if problem.startswith(_UNCLEAR):
        return problem
    if problem:
        return (
            "The model's answer was cut off before the end of its code, and again in a second answer, and nothing was "
            "run: allow longer answers of the model (max_tokens), or ask for less at a time."
        )
    text = " ".join(reply.split())
    text = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
    said = f"It said: {text!r}" if text else "Its reply was empty."
    return f"The model wrote no Python code, also when it was asked once more, and nothing was run. {said}"
