"""What the generator needs of a model, and of embeddings: protocols, their messages and replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from coderoom.models.replies import check_responses


@dataclass(frozen=True)
class Message:
    """A message in a conversation with a model.

    Attributes:
        role: The role of the author.
        content: The text.
    """

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Reply:
    """The reply of a model.

    Attributes:
        text: The text of the reply.
        prompt_tokens: The number of prompt tokens; 0 if the server does not report it.
        completion_tokens: The number of completion tokens; 0 if the server does not report it.
        complete: Whether the reply is whole, that is, was not cut off at a length limit.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    complete: bool = True


def as_data(reply: Reply, *, cached: bool = False) -> dict[str, Any]:
    """A reply as the result of a step; a cached one has cost nothing."""
    usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    return {"text": reply.text, "usage": usage, "complete": reply.complete, "cached": cached}


def of_data(data: Mapping[str, Any]) -> Reply:
    """The reply that is the result of a step."""
    return Reply(data["text"], **data["usage"], complete=data["complete"])


@runtime_checkable
class Model(Protocol):
    """A model that the generator can call.

    Attributes:
        name: The name of the model. It is part of the key of cached solutions.
    """

    name: str

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """Request a reply.

        Args:
            messages: The whole conversation.
            form: The schema of the reply as JSON; `None`: plain text. The reply is parsed tolerantly, so models
                without structured output can be used too.

        Raises:
            Exception: The request failed.
        """


@runtime_checkable
class Embeddings(Protocol):
    """Turns texts into vectors.

    Attributes:
        name: The name of its model. Only vectors of the same model are compared.
    """

    name: str

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """The vectors of texts.

        Raises:
            Exception: The request failed.
        """


class OpenAIEmbeddings:
    """Embeddings of a service with OpenAI's API.

    Args:
        model: The name of its model.
        api_key: The key; `None`: the variable `OPENAI_API_KEY`.
        base_url: The address; `None`: the variable `OPENAI_BASE_URL`, else that of OpenAI.
    """

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None) -> None:
        self.name = model
        self._options = {"api_key": api_key, "base_url": base_url}

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embeddings.embed`."""
        from openai import AsyncOpenAI

        async with AsyncOpenAI(**self._options) as client:  # type: ignore[arg-type]
            check_responses(client._client)
            found = await client.embeddings.create(model=self.name, input=[*texts], encoding_format="float")
        return [each.embedding for each in found.data]
