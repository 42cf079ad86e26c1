"""`CompactingContext`: a conversation that stays below a limit. Used by agents and team files.

Long outputs become files, of which the conversation has the beginning and the end; then the oldest steps do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from autogen_core import Component, FunctionCall, Image
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import Field

from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom._util.files import write_inside
from coderoom._util.text import bound_output, counted, output_name
from coderoom.errors import RequestError

_BYTES: Final = 3
"""The bytes of a token. Of most texts, models take more at a time; of hashes and long numbers, fewer."""
_OF_A_MESSAGE, _OF_A_PICTURE = 4, 1_000
_LEFT: Final = 600
"""The characters that stay of a long output."""
_NEWEST: Final = 4
"""How many messages stay as they are: code and output, twice."""


class CompactingContextConfig(StrictConfig):
    """The config of a `CompactingContext`. Each field is the constructor's argument of the same name."""

    max_tokens: int = Field(default=50_000, ge=1_000)
    folder: str | None = None
    initial_messages: list[LLMMessage] | None = None


class CompactingContext(ArgumentsConfig, ChatCompletionContext, Component[CompactingContextConfig]):
    """A conversation in which old outputs are shortened before it is too long for the model.

    Once it has more than `max_tokens`, old outputs are replaced by their beginning and end, with the name of a file
    that has the whole, until half of the room is free again. If that is not enough, the oldest steps of the agent are
    left out, code together with its output, and a message names the file that has them. The first message, messages of
    the user and the newest two steps always stay as they are. Results of a call of tools that take more than a quarter
    of the room are shortened at once.

    It depends on nothing but the messages, so a run that is resumed sends the same requests again.

    Args:
        max_tokens: How long the conversation may be, without the system message. A token is counted for each three
            bytes, and 1,000 for each picture. That is more than models count in most texts, and less in hashes and long
            numbers, so leave a third of the model's limit free.
        folder: The folder of the code, for the files of agents other than CodeRoom's, which have one. Without it, and
            without such an agent, there are no files.
        initial_messages: The messages that it begins with.

    Raises:
        RequestError: `max_tokens` or `folder` cannot be used.
    """

    component_config_schema = CompactingContextConfig
    component_provider_override = "coderoom.models.CompactingContext"

    def __init__(
        self,
        max_tokens: int = 50_000,
        *,
        folder: str | Path | None = None,
        initial_messages: Sequence[LLMMessage] | None = None,
    ) -> None:
        if type(max_tokens) is not int or max_tokens < 1_000:
            raise RequestError(f"max_tokens must be a whole number of at least 1,000, not {max_tokens!r}.")
        if not isinstance(folder, str | Path | None):
            raise RequestError(f"folder must be the path of a folder, not {folder!r}.")
        super().__init__(None if initial_messages is None else list(initial_messages))
        self._max_tokens = max_tokens
        self._folder = None if folder is None else str(folder)
        self._keep: Callable[[str], Awaitable[Path]] | None = None

    def keep_by(self, keep: Callable[[str], Awaitable[Path]]) -> None:
        """Have an agent save what is left out; `keep` returns the path at which its code can read it."""
        self._keep = keep

    async def add_message(self, message: LLMMessage) -> None:
        """Add a message, and make room for it."""
        if isinstance(
            message, FunctionExecutionResultMessage
        ):  # The newest stays, and may be longer than all the room.
            most = self._max_tokens * _BYTES // 4 // max(1, len(message.content))
            message = await self._with_short_results(message, max(most, 2 * _LEFT))
        await super().add_message(message)
        if _tokens(self._messages) > self._max_tokens:
            await self._make_room()

    async def get_messages(self) -> list[LLMMessage]:
        """The conversation as it is now."""
        return list(self._messages)

    async def _make_room(self) -> None:
        messages, end = self._messages, len(self._messages) - _NEWEST
        if end > 1 and isinstance(messages[end - 1], AssistantMessage):  # Its output stays.
            end -= 1
        old = [at for at in range(1, end) if not _stays(messages[at])]
        size = _tokens(messages)
        fixed = size - _tokens([messages[at] for at in old])
        goal = fixed + max(0, self._max_tokens - fixed) // 2
        for at in old:
            if size <= goal:
                return
            before, messages[at] = messages[at], await self._shortened(messages[at])
            size -= _tokens([before]) - _tokens([messages[at]])
        out: list[int] = []
        for at in old:
            # Code goes together with its output.
            if size <= goal and (not out or isinstance(messages[at], AssistantMessage)):
                break
            size -= _tokens([messages[at]])
            out.append(at)
        if out:
            left_out = [messages[at] for at in out]
            where = await self._save("\n\n".join(f"{_source(each)}:\n{_text(each)}" for each in left_out))
            text = f"[{counted(len(out), 'earlier message')} left out{'' if where is None else f'; see {where}'}]"
            messages[out[0]] = UserMessage(content=text, source=_source(left_out[0]))
            for at in reversed(out[1:]):
                del messages[at]

    async def _shortened(self, message: LLMMessage) -> LLMMessage:
        if isinstance(message, FunctionExecutionResultMessage):
            return await self._with_short_results(message, 2 * _LEFT)
        if isinstance(message, UserMessage):
            return message.model_copy(update={"content": await self._short(_text(message))})
        return message

    async def _with_short_results(self, message: FunctionExecutionResultMessage, most: int) -> LLMMessage:
        results = [
            each.model_copy(update={"content": await self._short(each.content, most)}) for each in message.content
        ]
        return message.model_copy(update={"content": results})

    async def _short(self, text: str, most: int = 2 * _LEFT) -> str:
        """The beginning and the end of a text that has more than `most` characters; half of them stay."""
        return text if len(text) <= most else bound_output(text, most // 2, whole=await self._save(text))

    async def _save(self, text: str) -> Path | None:
        if self._keep is not None:
            return await self._keep(text)
        if self._folder is None:
            return None
        data = text.encode("utf-8", "replace")
        with suppress(OSError):  # The disk may be full.
            name = output_name(data, "earlier")
            await asyncio.to_thread(write_inside, Path(self._folder), name, data)
            return Path(name)
        return None


def _stays(message: LLMMessage) -> bool:
    return isinstance(message, SystemMessage) or (isinstance(message, UserMessage) and message.source == "user")


def _source(message: LLMMessage) -> str:
    return message.source if isinstance(message, UserMessage | AssistantMessage) else "tools"


def _text(message: LLMMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    parts = []
    for each in content:
        if isinstance(each, FunctionCall):
            parts.append(f"{each.name}({each.arguments})")
        elif isinstance(each, Image):
            parts.append("[A picture that is left out.]")
        else:
            parts.append(each if isinstance(each, str) else each.content)
    return "\n".join(parts)


def _tokens(messages: Sequence[LLMMessage]) -> int:
    """An estimate that needs no tables of a model, which would be fetched from the network."""
    tokens = 0
    for message in messages:
        content, text = message.content, _text(message)
        pictures = 0 if isinstance(content, str) else sum(isinstance(part, Image) for part in content)
        if isinstance(message, AssistantMessage):
            text += message.thought or ""
        tokens += _OF_A_MESSAGE + _OF_A_PICTURE * pictures + len(text.encode("utf-8", "replace")) // _BYTES
    return tokens
