"""An agent's messages: its conversation, events, reports of code, pictures, and handoffs to other agents."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from autogen_agentchat.base import Handoff, TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.state import BaseState
from autogen_agentchat.utils import remove_images
from autogen_core import Image
from autogen_core.code_executor import CodeBlock
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool
from PIL import Image as PILImage
from pydantic import Field

from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import MOST_CALLS, Attempt
from coderoom.agents.metadata import StopReason
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import Artifact


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
    return "\n\n".join([*parts, *attempt.selection.notes])


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
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:MOST_CALLS]])
    return CodeExecutionEvent(retry_attempt=attempt.number - 1, result=attempt.result, source=source, metadata=found)


def final_message(
    source: str,
    message_id: str,
    reply: CreateResult | None,
    attempt: Attempt | None,
    stop_reason: StopReason = StopReason.NO_CODE,
) -> TextMessage:
    """The turn has ended, with a reply of the model if it was asked for one, and a report if it has run code."""
    text = "" if reply is None else str(reply.content)
    if attempt is None:
        content, metadata = text, {keys.STOP_REASON: stop_reason.value}
    else:
        # An answer does not change the result of the code.
        content, metadata = report(text, attempt), facts(attempt, stop_reason) | {keys.SUMMARY: text}
    return TextMessage(
        id=message_id,
        content=content,
        source=source,
        models_usage=None if reply is None else reply.usage,
        metadata=metadata | _cut_of(reply),
    )


def _cut_of(reply: CreateResult | None) -> dict[str, str]:
    """The metadata about a reply that the service has cut off."""
    if reply is None or reply.finish_reason not in ("length", "content_filter"):
        return {}
    return {keys.CUT: reply.finish_reason}


_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000


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


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})


HandoffList = list[Annotated[str | Handoff, Field(union_mode="left_to_right")]]
"""The field of a config; `Handoff` itself refuses a text with an `AttributeError`."""


class Handoffs:
    """The agents that an agent can hand over to: `Handoff`s or names, among which its model chooses.

    `given` is the argument, and `tools` what the model is offered.
    """

    def __init__(self, handoffs: Sequence[Handoff | str] | None, model_client: ChatCompletionClient | None) -> None:
        self.given = None if handoffs is None else list(handoffs)
        made = [Handoff(target=each) if isinstance(each, str) else each for each in handoffs or ()]
        if made and model_client is None:
            raise ValueError("handoffs need a model_client, which chooses when to hand over.")
        if made and model_client is not None and not model_client.model_info["function_calling"]:
            raise ValueError("handoffs need a model that can call functions (function_calling in its model_info).")
        self._by_name = {handoff.name: handoff for handoff in made}
        if len(self._by_name) < len(made):
            raise ValueError(f"Two handoffs have the same name: {[handoff.name for handoff in made]}.")
        self.tools: list[BaseTool[Any, Any]] = [handoff.handoff_tool for handoff in made]

    def hand_over(
        self, source: str, reply: CreateResult, attempts: Sequence[Attempt]
    ) -> tuple[list[BaseAgentEvent], FunctionExecutionResultMessage, HandoffMessage]:
        """What follows from a reply that calls a handoff: events, the message for the context, and the last message.

        If a reply calls several, the first one counts. Code beside a call is not run. The next agent gets the report of
        the code that has run in this turn.
        """
        assert not isinstance(reply.content, str)
        for call in reply.content:
            if call.name not in self._by_name:
                raise TypeError(f"The model called {call.name!r}, and its tools are: {', '.join(self._by_name)}.")
        chosen = self._by_name[reply.content[0].name]
        results = [
            FunctionExecutionResult(content=self._by_name[call.name].message, name=call.name, call_id=call.id)
            for call in reply.content
        ]
        ran = [report("", attempts[-1])] if attempts else []
        context: list[LLMMessage] = [UserMessage(content=text, source=source) for text in ran]
        events: list[BaseAgentEvent] = [
            ToolCallRequestEvent(content=list(reply.content), source=source, models_usage=reply.usage),
            ToolCallExecutionEvent(content=results, source=source),
        ]
        found = facts(attempts[-1]) if attempts else {}
        last = HandoffMessage(
            content=chosen.message, target=chosen.target, source=source, context=context, metadata=found
        )
        return events, FunctionExecutionResultMessage(content=results), last


class ConversationState(BaseState):
    """The conversation in an agent's saved state; the fields are the arguments of `Conversation.load`."""

    llm_context: Mapping[str, Any] = Field(default_factory=dict)
    taken: list[str] = Field(default_factory=list)


class Conversation:
    """An agent's memory: the model context, the system message, and which messages were added already."""

    def __init__(self, context: ChatCompletionContext, system_message: str | None) -> None:
        self.context = context
        self.system_message = system_message
        self._taken: set[str] = set()
        self._initial: Mapping[str, Any] | None = None

    async def take(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add messages to the context, each of them once, also if a failed turn is repeated."""
        await self._save_initial()
        for message in messages:
            # A question to a person is not for models.
            if message.id in self._taken or keys.SHOWN in message.metadata:
                continue
            self._taken.add(message.id)
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self.context.add_message(earlier)
            await self.context.add_message(message.to_model_message())

    async def save(self) -> dict[str, Any]:
        """The fields of a `ConversationState`: the context, and which messages of an unfinished turn it contains."""
        return {"llm_context": dict(await self.context.save_state()), "taken": sorted(self._taken)}

    def end_turn(self) -> None:
        """The turn succeeded: from now on the same message may be added again."""
        self._taken.clear()

    async def reset(self) -> None:
        """Restore the context as it was before the first message."""
        await self._save_initial()
        await self.load(self._initial or {})

    async def load(self, llm_context: Mapping[str, Any], taken: Sequence[str] = ()) -> None:
        """Restore what `save` returned; an empty context clears it."""
        await self._save_initial()
        self._taken = set(taken)
        if llm_context:
            await self.context.load_state(llm_context)
        else:
            await self.context.clear()

    async def _save_initial(self) -> None:
        if self._initial is None:
            self._initial = await self.context.save_state()

    async def for_model(self, model_client: ChatCompletionClient, *more: LLMMessage) -> list[LLMMessage]:
        """The messages to send: system message, context, then `more`; without images if the model has no vision."""
        system = [] if self.system_message is None else [SystemMessage(content=self.system_message)]
        messages = [*system, *await self.context.get_messages(), *more]
        return messages if model_client.model_info.get("vision") else remove_images(messages)
