"""What agents that write code say: events, and the report that ends a turn."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    TextMessage,
)
from autogen_core.code_executor import CodeBlock
from autogen_core.models import (
    CreateResult,
)

from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import EDITED, MOST_CALLS, Attempt, calls_of_failures
from coderoom.agents.metadata import StopReason
from coderoom.blocks import extract_code_blocks, fence


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent that runs code found in messages does not run it again.
    """
    parts = [summary.strip()] if summary.strip() else []
    if not all(block.closed for block in extract_code_blocks(summary.strip())):
        parts = [fence(summary.strip(), "text", "no-run")]  # A fence without an end would contain the report after it.
    if attempt.ran:
        parts.append(f"Attempt {attempt.number}: {attempt.outcome}, exit code {attempt.exit_code}.")
    else:
        parts.append(f"Attempt {attempt.number} was not run. {attempt.refusal}".strip())
    parts += [EDITED] if attempt.edited else []
    parts += attempt.fenced()
    if attempt.output.strip():
        parts += ["What was found:" if attempt.stopped_by_check else "Output:", fence(attempt.output, "text", "no-run")]
    if attempt.artifacts:
        parts.append(f"Files: {', '.join(named(artifact.name) for artifact in attempt.artifacts)}")
    about_calls = [*attempt.edited_calls(), *calls_of_failures(attempt.calls_left)]
    return "\n\n".join([*parts, *about_calls, *attempt.selection.notes])


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """An attempt as metadata, for programs."""
    found = {
        keys.OUTCOME: attempt.outcome.value,
        keys.EXIT_CODE: str(attempt.exit_code),
        keys.RAN: str(attempt.ran).lower(),
        keys.ATTEMPTS: str(attempt.number),
        **({keys.EDITED_CODE: "true"} if attempt.edited else {}),
        **({keys.CHECKED: "failed"} if attempt.stopped_by_check else {}),
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


def edited_event(source: str, attempt: Attempt) -> CodeGenerationEvent:
    """A person has edited the code of an attempt."""
    return CodeGenerationEvent(
        retry_attempt=attempt.number - 1,
        content="\n\n".join([EDITED, *attempt.fenced()]),
        code_blocks=list(attempt.blocks),
        source=source,
        metadata={keys.EVENT: keys.EDITED},
    )


def execution_event(source: str, attempt: Attempt) -> CodeExecutionEvent:
    """The code has run, or was rejected."""
    found = facts(attempt)
    if attempt.calls:
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:MOST_CALLS]])
    return CodeExecutionEvent(
        retry_attempt=attempt.number - 1, result=attempt.code_result, source=source, metadata=found
    )


def final_message(
    source: str,
    message_id: str,
    reply: CreateResult | None,
    attempt: Attempt | None,
    stop_reason: StopReason = StopReason.NO_CODE,
    otherwise: str = "",
) -> TextMessage:
    """The turn has ended, with a reply of the model, `otherwise` without one, and a report if it has run code."""
    text, usage = ("", None) if reply is None else (str(reply.content), reply.usage)
    if reply is not None and not text.strip():
        text, otherwise = "", keys.EMPTY_REPLY
    cut = None if reply is None else keys.WHY_CUT.get(reply.finish_reason)
    if cut:
        text = f"{text.rstrip()}\n\n(The model's reply is incomplete: {cut}.)".lstrip()
    if attempt is None:
        content, metadata = text or otherwise, {keys.STOP_REASON: stop_reason.value}
    else:
        # An answer does not change the result of the code.
        content, metadata = report(text or otherwise, attempt), facts(attempt, stop_reason) | {keys.SUMMARY: text}
    if reply is not None and cut:
        metadata[keys.CUT] = reply.finish_reason
    return TextMessage(id=message_id, content=content, source=source, models_usage=usage, metadata=metadata)


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})
