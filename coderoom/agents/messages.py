"""The messages and events of a turn: what agents and people read about it, and what programs read beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

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

from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents import prompts
from coderoom.agents.attempt import Attempt, RetryDecision, StopReason
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import Artifact, OutputChunk

__all__ = [
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
    "stopped_early",
    "without_questions",
]

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
        content=prompts.retry_notice(attempt, decision),
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
