"""The base classes of all agents, with their conversation; and what they say: events, reports of code, pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    TextMessage,
)
from autogen_agentchat.state import BaseState
from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken, Image
from autogen_core.code_executor import CodeBlock
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from PIL import Image as PILImage
from pydantic import BaseModel, Field

from coderoom._util.closing import at_end_of_run, note_run
from coderoom._util.components import ArgumentsConfig
from coderoom._util.files import read_inside
from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import MOST_CALLS, Attempt
from coderoom.agents.metadata import StopReason
from coderoom.blocks import extract_code_blocks, fence
from coderoom.models.budgets import Budget, Spending
from coderoom.models.prices import priced_as
from coderoom.models.structured import Answer, ask_structured
from coderoom.sandbox import Artifact
from coderoom.steps import MODEL

DecisionT = TypeVar("DecisionT", bound=BaseModel)


class StreamingAgent(BaseChatAgent):
    """An agent whose turns are streams that end with a `Response`."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(name, description=description)
        note_run()
        at_end_of_run(self.close)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Take a turn and return its last item."""
        items = [item async for item in self.on_messages_stream(messages, cancellation_token)]
        assert isinstance(items[-1], Response)
        return items[-1]


class ConversationState(BaseState):
    """An agent's saved state: its conversation, and which messages of an unfinished turn it contains."""

    llm_context: Mapping[str, Any] = Field(default_factory=dict)
    taken: list[str] = Field(default_factory=list)


class ModelAgent(ArgumentsConfig, StreamingAgent):
    """An agent with a conversation, which is unbounded without a `model_context`."""

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        system_message: str | None,
        budget: Budget | None,
    ) -> None:
        super().__init__(name, description)
        if model_client is not None and getattr(model_client, "model_info", None) is None:
            raise ValueError(
                f"model_client must be one of AutoGen's model clients, not {model_client!r}; for instance "
                "OpenAIChatCompletionClient(model=...) of autogen_ext.models.openai."
            )
        self._model_client = model_client
        self._model_context = UnboundedChatCompletionContext() if model_context is None else model_context
        self._initial_context: Mapping[str, Any] | None = None
        self._taken: set[str] = set()
        self._system_message = self._instructions = system_message or None
        self.limit(budget)

    @property
    def model_context(self) -> ChatCompletionContext:
        """Where the conversation is kept."""
        return self._model_context

    async def _take(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add messages to the conversation, each of them once, also if a failed turn is repeated."""
        await self._save_initial_context()
        for message in messages:
            # A question to a person is not for models.
            if message.id in self._taken or keys.SHOWN in message.metadata:
                continue
            self._taken.add(message.id)
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self._model_context.add_message(earlier)
            await self._model_context.add_message(message.to_model_message())

    def _end_turn(self) -> None:
        """The turn succeeded: from now on the same message may be added again."""
        self._taken.clear()

    async def _conversation(self, *more: LLMMessage) -> list[LLMMessage]:
        """What the model gets: instructions, messages, then `more`; without images if it has no vision."""
        assert self._model_client is not None
        system = [] if self._instructions is None else [SystemMessage(content=self._instructions)]
        messages = [*system, *await self._model_context.get_messages(), *more]
        return messages if self._model_client.model_info.get("vision") else remove_images(messages)

    async def _ask_for(
        self, schema: type[DecisionT], question: str, cancellation_token: CancellationToken
    ) -> Answer[DecisionT]:
        """Ask a question about the conversation, without adding question and answer to it."""
        assert self._model_client is not None
        self._check_budget(MODEL)
        answer = await ask_structured(
            self._model_client,
            await self._conversation(UserMessage(content=question, source=self.name)),
            schema,
            source=self.name,
            cancellation_token=cancellation_token,
        )
        self._count(MODEL, answer.usage)
        return answer

    # --- Its budget ---

    @property
    def budget(self) -> Budget | None:
        """What the agent may use."""
        return self._budget

    def limit(self, budget: Budget | None) -> None:
        """Replace the agent's budget, and begin to count anew."""
        self._budget = budget
        self._spending = None if budget is None else Spending(budget, f"agent {self.name!r}")
        self._model_name = "" if budget is None or self._model_client is None else priced_as(self._model_client)

    def _check_budget(self, kind: str) -> None:
        if self._spending is not None:
            self._spending.check(kind, self._model_name)

    def _count(self, kind: str, usage: RequestUsage | None = None) -> None:
        if self._spending is not None:
            self._spending.add(kind, self._model_name, usage)

    # --- Its state and its config ---

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Return to the conversation before the first message, and begin to count anew."""
        await self._save_initial_context()
        await self._load_conversation(ConversationState(llm_context=self._initial_context or {}))
        self.limit(self._budget)

    async def save_state(self) -> Mapping[str, Any]:
        """The conversation, as JSON-like data."""
        context = dict(await self._model_context.save_state())
        state = ConversationState(type=f"{type(self).__name__}State", llm_context=context, taken=sorted(self._taken))
        return state.model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned; the empty state of AutoGen's agent is accepted too."""
        await self._load_conversation(ConversationState.model_validate(state))

    async def _load_conversation(self, state: ConversationState) -> None:
        await self._save_initial_context()
        self._taken = set(state.taken)
        if state.llm_context:
            await self._model_context.load_state(state.llm_context)
        else:
            await self._model_context.clear()

    async def _save_initial_context(self) -> None:
        if self._initial_context is None:
            self._initial_context = await self._model_context.save_state()

    def _dump_argument(self, name: str, value: Any) -> Any:
        # AutoGen leaves None out of a dump, and a missing system message means the default one.
        return value or "" if name == "system_message" else super()._dump_argument(name, value)


# --- What agents say ---


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


_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000


def picture_of(artifact: Artifact) -> Image | None:
    """The picture in a file; `None` if it is too large or not a picture."""
    if artifact.media_type not in _PICTURES or artifact.size > _LARGEST_PICTURE:
        return None
    try:
        data, path = artifact.data, artifact.path
        if path is not None:  # The code may have put something else there since.
            root = path.parents[len(PurePosixPath(artifact.name).parts) - 1]
            data = read_inside(root, artifact.name, _LARGEST_PICTURE)
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
