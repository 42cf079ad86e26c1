"""Model clients that answer from recorded replies: in their order, or from the recording of a run's model traffic.

A recording is a text file with a JSON object in each line: the first says what it is, each other one has a request to a
model and its reply. Replies are found by the content of the request.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import json
import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from autogen_core import CancellationToken, Component, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from coderoom._util.autogen import current_agent
from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom._util.text import Masking
from coderoom.errors import RequestError
from coderoom.models.json_output import REQUEST_FOR_JSON
from coderoom.models.watching import request_of


class ReplayUsage(StrictConfig):
    """The token usage of a reply."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)


class ReplayReply(StrictConfig):
    """A recorded reply with more than a text.

    Attributes:
        content: The text, or the function calls.
        thought: The reasoning of the model.
        finish_reason: Why the model stopped; by default `stop`, or `function_calls` for function calls.
        usage: The token usage; by default the number of words.
    """

    content: str | list[FunctionCall]
    thought: str | None = None
    finish_reason: Literal["stop", "length", "function_calls", "content_filter", "unknown"] | None = None
    usage: ReplayUsage | None = None


class ReplayModelInfo(StrictConfig):
    """The capabilities of the recorded model."""

    vision: bool = False
    function_calling: bool = False
    json_output: bool = True
    structured_output: bool = True
    family: str = "unknown"
    multiple_system_messages: bool = True


class ReplayModelConfig(StrictConfig):
    """The config of a `ReplayModel`."""

    replies: list[str | ReplayReply]
    model_info: ReplayModelInfo | None = None
    name: str | None = None


_LONGEST_COUNTED = 1_000_000
_CHUNK = re.compile(r"\s*\S+(?:\s+\Z)?|\s+\Z")


class _RecordedReplies(ReplayChatCompletionClient):
    """What model clients with recorded replies have in common: they count words as tokens, and stream words."""

    recording: str | None
    """The name of the recording, which is shown as that of the model."""

    def __init__(self, model_info: Any) -> None:
        super().__init__([], model_info)
        self._cached_bool_value = False

    @abstractmethod
    def _find(self, messages: Sequence[LLMMessage], arguments: Mapping[str, Any]) -> CreateResult:
        """The reply to a request."""

    def _reply(
        self, messages: Sequence[LLMMessage], *, cancellation_token: CancellationToken | None = None, **arguments: Any
    ) -> CreateResult:
        if cancellation_token is not None and cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        result = self._find(messages, {**arguments, "cancellation_token": cancellation_token})
        self._cur_usage = result.usage
        self._update_total_usage()
        return result

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        """Return the recorded reply to a request.

        Args:
            messages: The messages of the request.
            **arguments: The other arguments of AutoGen's clients.

        Raises:
            RequestError: There is no reply. For a request that was not recorded, the message shows the nearest one.
            asyncio.CancelledError: The token is cancelled already.
        """
        return self._reply(messages, **arguments)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Return the reply word by word, and then whole; the words joined are exactly its content.

        Args:
            messages: As for `create`.
            **arguments: As for `create`.

        Yields:
            The words with the white space around them, then the reply.

        Raises:
            RequestError: There is no reply.
        """
        result = self._reply(messages, **arguments)
        if isinstance(result.content, str):
            for chunk in _CHUNK.finditer(result.content):
                yield chunk[0]
        yield result

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Count words, which serve as tokens here."""
        return sum(_count(message.content) for message in messages)


def _count(content: object) -> int:
    text = str(content)
    # Of a very long text, the words are estimated, since they are counted in the event loop.
    return len(text.split()) if len(text) <= _LONGEST_COUNTED else len(text) // 4


class ReplayModel(_RecordedReplies, Component[ReplayModelConfig]):
    """A model client that returns recorded replies in their order, streamed or not.

    Args:
        replies: Texts, or replies with more than a text.
        model_info: The capabilities of the model; by default JSON and structured output.
        name: The name of the recording in error messages.
    """

    component_type = "model"
    component_provider_override = "coderoom.configs.ReplayModel"
    component_config_schema = ReplayModelConfig  # type: ignore[assignment]

    def __init__(
        self,
        replies: Sequence[str | ReplayReply | Mapping[str, Any]],
        model_info: ReplayModelInfo | Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        given = {"replies": list(replies), "model_info": model_info, "name": name}
        config = ReplayModelConfig.model_validate(given)
        info: Any = (config.model_info or ReplayModelInfo()).model_dump()
        super().__init__(info)
        self._config = config
        self.recording = config.name
        self.provided_message_count = len(config.replies)

    def _find(self, messages: Sequence[LLMMessage], arguments: Mapping[str, Any]) -> CreateResult:
        """The next reply; the arguments are recorded in `create_calls`."""
        replies = self._config.replies
        if self._current_index >= len(replies):
            name = f" {self._config.name!r}" if self._config.name else ""
            count = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
            raise RequestError(f"the recording{name} has {count}, and the model was asked once more; add a reply to it")
        reply = replies[self._current_index]
        self._current_index += 1
        defaults: dict[str, Any] = {"tools": [], "tool_choice": "auto", "json_output": None, "extra_create_args": {}}
        self._create_calls.append({**defaults, **arguments, "messages": list(messages)})
        return self._result(ReplayReply(content=reply) if isinstance(reply, str) else reply, messages)

    def skip_reply(self) -> None:
        """Skip a reply, which a resumed run has had before."""
        self._current_index += 1

    def _result(self, reply: ReplayReply, messages: Sequence[LLMMessage]) -> CreateResult:
        if reply.usage is None:
            usage = RequestUsage(self.count_tokens(messages), _count(reply.content))
        else:
            usage = RequestUsage(reply.usage.prompt_tokens, reply.usage.completion_tokens)
        reason: Any = reply.finish_reason or ("stop" if isinstance(reply.content, str) else "function_calls")
        return CreateResult(
            finish_reason=reason,
            content=reply.content,
            usage=usage,
            cached=self._cached_bool_value,
            thought=reply.thought,
        )

    def _to_config(self) -> ReplayModelConfig:  # type: ignore[override]
        return self._config.model_copy(deep=True)

    @classmethod
    def _from_config(cls, config: ReplayModelConfig) -> Self:  # type: ignore[override]
        return cls(config.replies, config.model_info, name=config.name)


HEADER: Final = {"coderoom": "recording", "version": 1}


class _Message(TypedDict):
    type: str
    content: Any


class _Request(TypedDict):
    messages: list[_Message]


class _Entry(TypedDict):
    agent: str
    model_info: dict[str, Any]
    request: _Request
    reply: CreateResult


_ENTRY: Final = TypeAdapter(_Entry)
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{4,}")
_MOST_LINES: Final = 40
_MOST_COMPARED: Final = 500
_MOST_DIFFERENT: Final = 2_000


class _Recording:
    """The requests of a recording, found by what identifies them."""

    def __init__(self, entries: list[Mapping[str, Any]]) -> None:
        self.entries = entries
        self.by_key: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._infos: dict[str, dict[str, Any]] = {}
        for entry in entries:
            self.by_key[key_of(entry["request"])].append(entry)
            self._infos.setdefault(entry["agent"], entry["model_info"])

    def model_info(self, agent: str) -> ModelInfo:
        found = [self._infos[agent]] if agent in self._infos else [*self._infos.values()]
        merged: dict[str, Any] = dict(ReplayModelInfo())
        for info in found:
            for name, value in info.items():
                merged[name] = value if info is found[0] or name == "family" else merged.get(name) or value
        return merged  # type: ignore[return-value]


@functools.lru_cache(maxsize=4)
def _read_once(file: Path, *_state: int) -> _Recording:
    return _Recording(read_recording(file))


class RecordedModelConfig(StrictConfig):
    """The config of a `RecordedModel`."""

    file: str


class RecordedModel(ArgumentsConfig, _RecordedReplies, Component[RecordedModelConfig]):
    """A model client that answers from a recording, streamed or not.

    A reply is found by the request: its messages, its tools and the form of the answer. The order of the requests does
    not matter. Equal requests get their replies in the order of the recording, first those of the same agent, and the
    last reply again when there are no more.

    Args:
        file: The recording.

    Raises:
        RequestError: The file cannot be read, or is no recording.
    """

    component_type = "model"
    component_provider_override = "coderoom.configs.RecordedModel"
    component_config_schema = RecordedModelConfig  # type: ignore[assignment]

    def __init__(self, file: str | Path) -> None:
        self.file, self._file = Path(file), str(file)
        self.recording = self.file.name
        try:
            found = self.file.stat()
        except OSError as error:
            raise RequestError(f"the recording {str(self.file)!r} cannot be read: {error}") from error
        # It is read once for all items of a batch, and again if the file has changed.
        self._recording = _read_once(self.file.absolute(), found.st_ino, found.st_size, found.st_mtime_ns)
        self._masking = Masking()
        self._served: set[int] = set()
        super().__init__(self.model_info)
        self._total_available_tokens = 1_000_000

    @property
    def model_info(self) -> ModelInfo:
        """The abilities of the model that the current agent was recorded with; without one, those of all."""
        return self._recording.model_info(current_agent())

    def _find(self, messages: Sequence[LLMMessage], arguments: Mapping[str, Any]) -> CreateResult:
        asked = request_of({}, messages, arguments)
        request = self._masking.hide({**asked, "messages": dump_messages(messages)})
        entries = self._recording.by_key.get(key_of(request), [])
        if not entries:
            raise RequestError(self._miss(request))
        agent = current_agent()
        unserved = [entry for entry in entries if id(entry) not in self._served]
        own = [entry for entry in unserved if entry["agent"] == agent]
        entry = next(iter(own or unserved), entries[-1])
        self._served.add(id(entry))
        return CreateResult.model_validate(entry["reply"])

    def _miss(self, request: Mapping[str, Any]) -> str:
        asked = lines_of(request)
        entries = self._recording.entries
        recorded, counts = [lines_of(entry["request"]) for entry in entries[:_MOST_COMPARED]], Counter(asked)
        shared = [2 * (Counter(lines) & counts).total() / max(1, len(lines) + len(asked)) for lines in recorded]
        nearest = recorded[shared.index(max(shared))] if recorded else []
        nearest, asked = nearest[:_MOST_DIFFERENT], asked[:_MOST_DIFFERENT]  # A comparison takes more than linear time.
        found = list(difflib.unified_diff(nearest, asked, "recorded", "asked now", lineterm="", n=1))
        more = f"\n... {len(found) - _MOST_LINES} more lines" if len(found) > _MOST_LINES else ""
        difference = "\n".join(found[:_MOST_LINES])
        return (
            f"the recording {self.file.name!r} has no reply to this request of {current_agent() or 'the model'}; "
            f"record the run again. The nearest of its {len(entries)} requests differs:\n{difference}{more}"
        )


def read_recording(file: Path) -> list[Mapping[str, Any]]:
    """The requests of a recording with their replies, in order. A line that was cut off at the end is left out."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise RequestError(f"the recording {str(file)!r} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise RequestError(f"{file}:{number}: this line of the recording is not JSON: {error}") from error
    if not found or found[0] != HEADER:
        raise RequestError(f"the file {str(file)!r} is no recording of CodeRoom, or one of another version")
    for number, entry in enumerate(found[1:], 2):
        try:
            _ENTRY.validate_python(entry)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise RequestError(f"{file}:{number}: {place or 'the line'}: {error.errors()[0]['msg']}") from error
    return found[1:]


def dump_messages(messages: Sequence[LLMMessage]) -> list[dict[str, Any]]:
    """Messages as JSON-like data."""
    return [message.model_dump(mode="json") for message in messages]


def key_of(request: Mapping[str, Any]) -> str:
    """What identifies a request: not the model or its settings, so that other models can be asked by recordings."""
    return _ADDRESS.sub("0x", json.dumps(_essence_of(request), sort_keys=True))


def lines_of(request: Mapping[str, Any]) -> list[str]:
    """A request as lines for a comparison."""
    essence, found = _essence_of(request), []
    for message in essence.pop("messages"):
        content = message["content"]
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        found += [f"{message['type']} {message.get('source', '')}:", *text.splitlines()]
    return [*found, *json.dumps(essence, indent=1, sort_keys=True).splitlines()]


def _essence_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as any client would send it: services are asked for JSON in different ways, one of them in words."""
    messages = list(request["messages"])
    extra = request.get("extra_create_args", {})
    asks_for_json = bool(request.get("json_output") or "response_format" in extra or "format" in extra)
    if messages and str(messages[-1]["content"]).startswith(REQUEST_FOR_JSON):
        asks_for_json = True
        messages.pop()
    choice = request.get("tool_choice", "auto")
    return {"json": asks_for_json, "tools": request.get("tools", []), "tool_choice": choice, "messages": messages}
