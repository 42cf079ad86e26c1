"""The messages and events of a turn: what agents and people read about it, and what programs read beside it."""

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
    """What went wrong, and how the next attempt mends it."""
    retry: bool
    """Whether to try again."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        # Required, as strict structured output wants it; a model without that may leave it out.
        return {"reason": "", **data} if isinstance(data, dict) else data


class StopReason(StrEnum):
    """Why an agent ended its turn."""

    SUCCEEDED = "succeeded"
    """The code ran and ended well."""
    NO_CODE = "no_code"
    """There was nothing to run: the reply is the answer."""
    REJECTED = "rejected"
    """The approval, or the policy of the sandbox, said no."""
    CANCELLED = "cancelled"
    """The executor was stopped while the code ran."""
    FAILED = "failed"
    """The code failed, and no further attempt was allowed in the first place."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    """The last attempt that was allowed failed."""
    SAME_FAILURE = "same_failure"
    """The same code failed in the same way as before: another attempt would cost and not help."""
    ANSWERED = "answered"
    """After code that ran the model answered without any."""
    MAX_STEPS = "max_steps"
    """As many pieces of code were run as a turn may have."""
    MAX_TOKENS = "max_tokens"
    """The model has used the tokens that a turn may have."""
    MAX_SECONDS = "max_seconds"
    """The time that a turn may take was up."""
    NOT_RETRIED = "not_retried"
    """The model decided that another attempt is not worth it, or its decision could not be read."""

    @property
    def why_without_answer(self) -> str:
        """Why a turn that ended so has no answer, in words; empty if it has one."""
        why = _WHY_WITHOUT_ANSWER.get(self)
        return "" if why is None else f"The turn was ended before there was an answer: {why}."


_WHY_WITHOUT_ANSWER = {
    StopReason.MAX_STEPS: "as many pieces of code were run as a turn may have",
    StopReason.MAX_TOKENS: "the model has used the tokens that a turn may have",
    StopReason.MAX_SECONDS: "the time that a turn may take was up",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.CANCELLED: "the code was stopped from outside",
}


_MOST_STREAMED = 1_000_000
_MOST_AT_ONCE = 100
"""How many pieces are told as they come. Each has a price for whoever shows it: a flood comes in fewer, larger ones."""
_GATHER_SECONDS = 0.05
_NO_MORE = "\n[What the code prints after this is not shown while it runs.]\n"
_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000
_MOST_CALLS = 20


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent which runs what others write does not run it again.
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
    # A fence that was never closed would swallow the report behind it.
    if all(block.closed for block in extract_code_blocks(summary)):
        return summary
    return fence(summary, "text", "no-run")


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """The same for programs, as metadata."""
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
    """The code has run, or was not allowed to."""
    found = facts(attempt)
    if attempt.calls:
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:_MOST_CALLS]])
    return CodeExecutionEvent(retry_attempt=attempt.number - 1, result=attempt.result, source=source, metadata=found)


def decision_event(
    source: str, attempt: Attempt, decision: RetryDecision, usage: RequestUsage | None
) -> CodeGenerationEvent:
    """The model has decided on another attempt.

    It is of AutoGen's own type, since a team refuses types that it does not know; the metadata tells it apart.
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
    """The model has answered without code; `after_code` is what to call that if there was code before."""
    text, metadata = str(reply.content), {keys.STOP_REASON: StopReason.NO_CODE.value}
    if attempts:
        # What was run before, in this turn, stays true: a model cannot talk a failure away.
        metadata = facts(attempts[-1], after_code) | {keys.SUMMARY: text}
        text = report(text, attempts[-1])
    metadata |= _cut(reply)
    return TextMessage(id=message_id, content=text, source=source, models_usage=reply.usage, metadata=metadata)


def _cut(reply: CreateResult | None) -> dict[str, str]:
    if reply is None or reply.finish_reason not in ("length", "content_filter"):
        return {}
    return {keys.CUT: reply.finish_reason}


def output_chunk(source: str, message_id: str, chunk: OutputChunk) -> ModelClientStreamingChunkEvent:
    """The code has printed something; of AutoGen's own type, told apart by its metadata."""
    return ModelClientStreamingChunkEvent(
        content=chunk.text, source=source, full_message_id=message_id, metadata={keys.EVENT: keys.OUTPUT}
    )


async def with_output(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]],
) -> AsyncGenerator[OutputChunk | T, None]:
    """Run something that tells of output.

    Args:
        run: What to run; it gets the function to tell output to.

    Yields:
        The output, piece by piece, as long as it is not endless, and last what `run` returned.
    """
    waiting: deque[OutputChunk] = deque()
    news = asyncio.Event()
    told = 0

    def tell(chunk: OutputChunk) -> None:
        nonlocal told
        if told < _MOST_STREAMED:
            told += len(chunk.text)
            waiting.append(chunk if told < _MOST_STREAMED else OutputChunk("stderr", _NO_MORE))
            news.set()

    task = asyncio.ensure_future(run(tell))
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
    """The first piece, together with those behind it that went to the same place."""
    first = waiting.popleft()
    texts = [first.text]
    while waiting and waiting[0].stream == first.stream:
        texts.append(waiting.popleft().text)
    return OutputChunk(first.stream, "".join(texts))


def context_message(source: str, attempt: Attempt, sees: bool) -> UserMessage:
    """What the model is told of an attempt; a model that sees gets the pictures that it drew."""
    text = attempt.describe()
    images = [picture_of(artifact) for artifact in attempt.artifacts] if sees else []
    found = [image for image in images if image is not None]
    return UserMessage(content=[text, *found] if found else text, source=source)


def picture_of(artifact: Artifact) -> Image | None:
    """A picture of a sane size; what only claims to be one is none."""
    if artifact.media_type not in _PICTURES or artifact.size > _LARGEST_PICTURE:
        return None
    try:
        data = artifact.data if artifact.path is None else artifact.path.read_bytes()
        if data is None:
            return None
        picture = PILImage.open(io.BytesIO(data), formats=[_PICTURES[artifact.media_type]])
        return Image.from_pil(picture) if picture.width * picture.height <= _MOST_PIXELS else None
    except Exception:  # Pillow raises all sorts of errors for what is no picture.
        return None


def stopped_early(source: str, stop_reason: StopReason, attempt: Attempt | None) -> TextMessage:
    """The turn is over before there was an answer; `attempt` is the last one, if anything was run."""
    text, metadata = stop_reason.why_without_answer, {keys.STOP_REASON: stop_reason.value}
    if attempt is not None:
        text, metadata = report(text, attempt), facts(attempt, stop_reason) | {keys.SUMMARY: ""}
    return TextMessage(content=text, source=source, metadata=metadata)


def final_message(
    source: str, message_id: str, summary: CreateResult | None, attempt: Attempt, stop_reason: StopReason
) -> TextMessage:
    """The turn is over; `summary` is what the model said about it, if it was asked."""
    words = "" if summary is None else str(summary.content)
    return TextMessage(
        id=message_id,
        content=report(words, attempt),
        source=source,
        models_usage=None if summary is None else summary.usage,
        metadata=facts(attempt, stop_reason) | {keys.SUMMARY: words} | _cut(summary),
    )


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions that a person was asked: they are for people, not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})


_WHY_STOPPED = {
    StopReason.FAILED: "none was allowed",
    StopReason.RETRIES_EXHAUSTED: "no attempts are left",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.NOT_RETRIED: "it was decided not to try again",
}


def ask_for_retry(attempt: Attempt) -> str:
    """The question that a `RetryDecision` answers. The output stands just before it in the context."""
    return (
        f"Attempt {attempt.number} failed ({attempt.outcome}, exit code {attempt.exit_code}); "
        "its output is in the message above. Is another attempt worth it? Say in `reason` what went wrong and how "
        "you would mend it, and in `retry` whether to try again."
    )


def _retry_notice(attempt: Attempt, decision: RetryDecision) -> str:
    """What the event says about the decision; the wording of a retry is the one that AutoGen's users know."""
    what = "Proposed correction" if decision.retry else "Not tried again"
    return f"Attempt number: {attempt.number}\n{what}: {decision.reason}"


def retry_plan(decision: RetryDecision, undone: str = "") -> str:
    """What the next attempt is told about the decision that led to it, and what of the failed one was undone."""
    plan = f"Try again. What went wrong and how to mend it: {decision.reason}"
    if not undone:
        return plan
    return (
        f"{plan}\nThe failed attempt was undone: {undone} are as they were before it, and nothing that it made of them "
        "is left. Write the whole code again."
    )


def why_no_more(stop_reason: str) -> str | None:
    """Why there is no further attempt where there might have been one; `None` if the turn ended otherwise."""
    told = (StopReason.RETRIES_EXHAUSTED, StopReason.SAME_FAILURE)
    return next((_WHY_STOPPED[reason] for reason in told if reason == stop_reason), None)


def before_reflection(attempt: Attempt, stop_reason: StopReason) -> str | None:
    """What to tell a model that is to sum up a failure, so that it does not sound like a success."""
    if stop_reason not in _WHY_STOPPED:
        return None
    return (
        f"There will be no further attempt: {_WHY_STOPPED[stop_reason]}. The last one ended with outcome "
        f"{attempt.outcome.value!r} and exit code {attempt.exit_code}. Sum up plainly what failed and what is missing. "
        "Write no code."
    )
