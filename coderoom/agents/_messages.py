"""The messages and events of a turn: what agents and people read about it, and what programs read beside it."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, TextMessage
from autogen_core.code_executor import CodeBlock
from autogen_core.models import CreateResult, RequestUsage

from coderoom.agents import _prompts as prompts
from coderoom.agents import metadata as keys
from coderoom.agents._attempt import Attempt
from coderoom.agents._decisions import RetryDecision, StopReason
from coderoom.blocks import extract_code_blocks, fence

__all__ = [
    "code_event",
    "decision_event",
    "execution_event",
    "facts",
    "final_message",
    "plain_answer",
    "report",
]


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
    return CodeExecutionEvent(
        retry_attempt=attempt.number - 1, result=attempt.result, source=source, metadata=facts(attempt)
    )


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


def plain_answer(source: str, message_id: str, reply: CreateResult, attempts: Sequence[Attempt]) -> TextMessage:
    """The model has answered without code."""
    text, metadata = str(reply.content), {keys.STOP_REASON: StopReason.NO_CODE.value}
    if attempts:
        # What was run before, in this turn, stays true: a model cannot talk a failure away.
        metadata = facts(attempts[-1], StopReason.NO_CODE) | {keys.SUMMARY: text}
        text = report(text, attempts[-1])
    return TextMessage(id=message_id, content=text, source=source, models_usage=reply.usage, metadata=metadata)


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
        metadata=facts(attempt, stop_reason) | {keys.SUMMARY: words},
    )
