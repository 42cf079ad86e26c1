"""The protocol by which the generator calls models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel

__all__ = ["Message", "Model", "Reply"]


@dataclass(frozen=True)
class Message:
    """A message of a conversation with a model.

    Attributes:
        role: Who says it.
        content: What is said.
    """

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Reply:
    """What a model answered.

    Attributes:
        text: The answer.
        prompt_tokens: The tokens of the question, as far as they were told.
        completion_tokens: The tokens of the answer, as far as they were told.
        complete: Whether the answer was not cut off at a limit.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    complete: bool = True


@runtime_checkable
class Model(Protocol):
    """A model that can be asked.

    Attributes:
        name: What it is called; solutions in the cache are told apart by it.
    """

    name: str

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """Answer.

        Args:
            messages: The whole conversation.
            form: What the answer has to be as JSON; `None`: it is text. The answer is read tolerantly, so a model that
                cannot be held to a form is of use too.

        Raises:
            Exception: The model could not be asked.
        """
