"""The messages and events of a turn, why it ends, and what the model is asked about retries. Used by all agents."""

from __future__ import annotations

import asyncio
import io
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core import Image
from autogen_core.code_executor import CodeBlock
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from PIL import Image as PILImage
from pydantic import BaseModel, model_validator

from coderoom._util.tasks import cancel_and_wait
from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import Attempt
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import Artifact, OutputChunk

__all__ = [
    "RetryDecision",
    "StopReason",
    "ask_for_retry",
    "before_reflection",
    "code_event",
    "context_message",
    "decision_event",
    "execution_event",
    "facts",
    "final_message",
    "output_chunk",
    "picture_of",
    "plain_answer",
    "report",
    "retry_plan",
    "stopped_early",
    "why_no_more",
    "with_output",
    "without_questions",
]

T = TypeVar("T")


class RetryDecision(BaseModel):
    """A model's decision on whether failed code is worth another attempt."""

    reason: str
    """What went wrong, and how the next attempt fixes it."""
    retry: bool
    """Whether to try again."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        # Strict structured output needs every field; other models may leave it out.
        return {"reason": "", **data} if isinstance(data, dict) else data


class StopReason(StrEnum):
    """Why an agent ended its turn."""

    SUCCEEDED = "succeeded"
    """The code succeeded."""
    NO_CODE = "no_code"
    """There was nothing to run: the reply is the answer."""
    REJECTED = "rejected"
    """The approval, or the policy of the sandbox, rejected the code."""
    CANCELLED = "cancelled"
    """The executor was stopped while the code ran."""
    FAILED = "failed"
    """The code failed, and retries are not allowed."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    """The last of the allowed attempts failed."""
    SAME_FAILURE = "same_failure"
    """The same code failed in the same way as before, so another attempt would not help."""
    ANSWERED = "answered"
    """The model answered without code, after code that ran."""
    MAX_STEPS = "max_steps"
    """The step limit of the turn was reached."""
    MAX_TOKENS = "max_tokens"
    """The token limit of the turn was reached."""
    MAX_SECONDS = "max_seconds"
    """The time limit of the turn was reached."""
    NOT_RETRIED = "not_retried"
    """The model decided against another attempt, or its decision could not be read."""

    @property
    def why_without_answer(self) -> str:
        """Why a turn that ended for this reason has no answer, in words; empty if it has one."""
        why = _WHY_WITHOUT_ANSWER.get(self)
        return "" if why is None else f"The turn was ended before there was an answer: {why}."


_WHY_WITHOUT_ANSWER = {
    StopReason.MAX_STEPS: "the step limit was reached",
    StopReason.MAX_TOKENS: "the token limit was reached",
    StopReason.MAX_SECONDS: "the time limit was reached",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.CANCELLED: "the code was stopped from outside",
}


_MOST_STREAMED = 1_000_000
_MOST_AT_ONCE = 100
"""How many chunks are passed on as they arrive. Later ones are combined, since showing each of them costs time."""
_GATHER_SECONDS = 0.05
_NO_MORE = "\n[Further output of the code is not shown while it runs.]\n"
_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000
_MOST_CALLS = 20


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent that runs code found in messages does not run it again.
    """
    parts = [_whole(summary.strip())] if summary.strip() else []
    if attempt.ran:
        parts.append(f"Attempt {attempt.number}: {attempt.outcome}, exit code {attempt.exit_code}.")
    else:
        parts.append(f"Attempt {attempt.number} was not run. {attempt.refusal}".strip())
    parts += [fence(block.code, block.language, "no-run") for block in attempt.blocks]
    if attempt.output.strip():
        parts += ["Output:", fence(attempt.output, "text", "no-run")]
    if attempt.artifacts:
        parts.append(f"Files: {', '.join(named(artifact.name) for artifact in attempt.artifacts)}")
    return "\n\n".join([*parts, *attempt.notes])


def _whole(summary: str) -> str:
    # A fence without an end would contain the report after it.
    if all(block.closed for block in extract_code_blocks(summary)):
        return summary
    return fence(summary, "text", "no-run")


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """An attempt as metadata, for programs."""
    found = {
        keys.OUTCOME: attempt.outcome.value,
        keys.EXIT_CODE: str(attempt.exit_code),
        keys.RAN: str(attempt.ran).lower(),
        keys.ATTEMPTS: str(attempt.number),
    }
    if stop_reason is not None:
        found[keys.STOP_REASON] = stop_reason.value
    if attempt.failure is not None:
        found[keys.FAILURE] = attempt.failure
    if attempt.artifacts:
        listed = [
            {"name": item.name, "media_type": item.media_type, "path": None if item.path is None else str(item.path)}
            for item in attempt.artifacts
        ]
        found[keys.ARTIFACTS] = json.dumps(listed)
    if attempt.output_file is not None:
        found[keys.OUTPUT_FILE] = str(attempt.output_file)
    return found


def code_event(
    source: str, message_id: str, reply: CreateResult, attempt: int, blocks: Sequence[CodeBlock]
) -> CodeGenerationEvent:
    """The model has written code, as attempt number `attempt`."""
    return CodeGenerationEvent(
        id=message_id,
        retry_attempt=attempt - 1,
        content=str(reply.content),
        code_blocks=list(blocks),
        source=source,
        models_usage=reply.usage,
    )


def execution_event(source: str, attempt: Attempt) -> CodeExecutionEvent:
    """The code has run, or was rejected."""
    found = facts(attempt)
    if attempt.calls:
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:_MOST_CALLS]])
    return CodeExecutionEvent(retry_attempt=attempt.number - 1, result=attempt.result, source=source, metadata=found)


def decision_event(
    source: str, attempt: Attempt, decision: RetryDecision, usage: RequestUsage | None
) -> CodeGenerationEvent:
    """The model has decided on another attempt.

    It has one of AutoGen's types, since a team refuses types that it does not know; its metadata identifies it.
    """
    return CodeGenerationEvent(
        retry_attempt=attempt.number - 1,
        content=_retry_notice(attempt, decision),
        code_blocks=[],
        source=source,
        models_usage=usage,
        metadata={keys.EVENT: keys.RETRY_DECISION, keys.RETRY: str(decision.retry).lower()},
    )


def plain_answer(
    source: str,
    message_id: str,
    reply: CreateResult,
    attempts: Sequence[Attempt],
    after_code: StopReason = StopReason.NO_CODE,
) -> TextMessage:
    """The model has answered without code; `after_code` is the stop reason if there was code before."""
    text, metadata = str(reply.content), {keys.STOP_REASON: StopReason.NO_CODE.value}
    if attempts:
        # An answer does not change the result of the code.
        metadata = facts(attempts[-1], after_code) | {keys.SUMMARY: text}
        text = report(text, attempts[-1])
    metadata |= _cut(reply)
    return TextMessage(id=message_id, content=text, source=source, models_usage=reply.usage, metadata=metadata)


def _cut(reply: CreateResult | None) -> dict[str, str]:
    if reply is None or reply.finish_reason not in ("length", "content_filter"):
        return {}
    return {keys.CUT: reply.finish_reason}


def output_chunk(source: str, message_id: str, chunk: OutputChunk) -> ModelClientStreamingChunkEvent:
    """The code has printed something. The event has one of AutoGen's types; its metadata identifies it."""
    return ModelClientStreamingChunkEvent(
        content=chunk.text, source=source, full_message_id=message_id, metadata={keys.EVENT: keys.OUTPUT}
    )


async def with_output(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]],
) -> AsyncGenerator[OutputChunk | T, None]:
    """Run a coroutine that reports output.

    Args:
        run: Makes the coroutine; its argument is the function that takes the output.

    Yields:
        The output in chunks, up to a limit, and last what the coroutine returned.
    """
    waiting: deque[OutputChunk] = deque()
    news = asyncio.Event()
    size = 0

    def report_output(chunk: OutputChunk) -> None:
        nonlocal size
        if size < _MOST_STREAMED:
            size += len(chunk.text)
            waiting.append(chunk if size < _MOST_STREAMED else OutputChunk("stderr", _NO_MORE))
            news.set()

    task = asyncio.ensure_future(run(report_output))
    task.add_done_callback(lambda _: news.set())
    pieces = 0
    try:
        while waiting or not task.done():
            if not waiting:
                news.clear()
                await news.wait()
                continue
            pieces += 1
            if pieces > _MOST_AT_ONCE:
                await asyncio.wait([task], timeout=_GATHER_SECONDS)
                while waiting:
                    yield _gathered(waiting)
            else:
                yield waiting.popleft()
        yield await task
    finally:
        await cancel_and_wait(task)


def _gathered(waiting: deque[OutputChunk]) -> OutputChunk:
    """The first chunk, combined with those after it of the same stream."""
    first = waiting.popleft()
    texts = [first.text]
    while waiting and waiting[0].stream == first.stream:
        texts.append(waiting.popleft().text)
    return OutputChunk(first.stream, "".join(texts))


def context_message(source: str, attempt: Attempt, has_vision: bool) -> UserMessage:
    """An attempt as a message for the model; with vision, it contains the pictures that the code made."""
    text = attempt.describe()
    images = [picture_of(artifact) for artifact in attempt.artifacts] if has_vision else []
    found = [image for image in images if image is not None]
    return UserMessage(content=[text, *found] if found else text, source=source)


def picture_of(artifact: Artifact) -> Image | None:
    """The picture in a file; `None` if it is too large or not a picture."""
    if artifact.media_type not in _PICTURES or artifact.size > _LARGEST_PICTURE:
        return None
    try:
        data = artifact.data if artifact.path is None else artifact.path.read_bytes()
        if data is None:
            return None
        picture = PILImage.open(io.BytesIO(data), formats=[_PICTURES[artifact.media_type]])
        return Image.from_pil(picture) if picture.width * picture.height <= _MOST_PIXELS else None
    except Exception:  # Pillow raises many kinds of errors for a broken file.
        return None


def stopped_early(source: str, stop_reason: StopReason, attempt: Attempt | None) -> TextMessage:
    """The turn has ended without an answer; `attempt` is the last one, if there was any."""
    text, metadata = stop_reason.why_without_answer, {keys.STOP_REASON: stop_reason.value}
    if attempt is not None:
        text, metadata = report(text, attempt), facts(attempt, stop_reason) | {keys.SUMMARY: ""}
    return TextMessage(content=text, source=source, metadata=metadata)


def final_message(
    source: str, message_id: str, summary: CreateResult | None, attempt: Attempt, stop_reason: StopReason
) -> TextMessage:
    """The turn has ended; `summary` is the model's summary, if it was asked for one."""
    words = "" if summary is None else str(summary.content)
    return TextMessage(
        id=message_id,
        content=report(words, attempt),
        source=source,
        models_usage=None if summary is None else summary.usage,
        metadata=facts(attempt, stop_reason) | {keys.SUMMARY: words} | _cut(summary),
    )


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})


_WHY_STOPPED = {
    StopReason.FAILED: "none is allowed",
    StopReason.RETRIES_EXHAUSTED: "no attempts are left",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.NOT_RETRIED: "it was decided not to try again",
}


def ask_for_retry(attempt: Attempt) -> str:
    """The question that a `RetryDecision` answers. The message before it in the context has the output."""
    return (
        f"Attempt {attempt.number} failed ({attempt.outcome}, exit code {attempt.exit_code}); "
        "its output is in the message above. Is another attempt worth it? Say in `reason` what went wrong and how "
        "you would fix it, and in `retry` whether to try again."
    )


def _retry_notice(attempt: Attempt, decision: RetryDecision) -> str:
    """The text of the event of a decision; for a retry it is worded as by AutoGen's agent."""
    what = "Proposed correction" if decision.retry else "Not tried again"
    return f"Attempt number: {attempt.number}\n{what}: {decision.reason}"


def retry_plan(decision: RetryDecision, undone: str = "") -> str:
    """The message to the model before the next attempt: the decision, and what of the failed attempt was undone."""
    plan = f"Try again. What went wrong and how to fix it: {decision.reason}"
    if not undone:
        return plan
    return f"{plan}\nThe failed attempt was undone: {undone} are as they were before it. Write the whole code again."


def why_no_more(stop_reason: str) -> str | None:
    """Why there is no further attempt, for a turn that stopped although retries are allowed; else `None`."""
    limits = (StopReason.RETRIES_EXHAUSTED, StopReason.SAME_FAILURE)
    return next((_WHY_STOPPED[reason] for reason in limits if reason == stop_reason), None)


def before_reflection(attempt: Attempt, stop_reason: StopReason) -> str | None:
    """What the model is told before it sums up a failure, so that the summary does not sound like a success."""
    if stop_reason not in _WHY_STOPPED:
        return None
    return (
        f"There will be no further attempt: {_WHY_STOPPED[stop_reason]}. The last one ended with outcome "
        f"{attempt.outcome.value!r} and exit code {attempt.exit_code}. Sum up plainly what failed and what is missing. "
        "Write no code."
    )
