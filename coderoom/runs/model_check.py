"""What is configured of the model services, and whether a model answers, for `coderoom models`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from autogen_core.models import UserMessage

from coderoom._util.advice import in_words
from coderoom.configs import make_model
from coderoom.errors import CodeRoomError

_SERVICES: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "openai": ("openai", ("OPENAI_API_KEY", "OPENAI_BASE_URL"), ()),
    "azure": ("openai", (), ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY")),
    "anthropic": ("anthropic", (), ("ANTHROPIC_API_KEY",)),
    "ollama": ("ollama", (), ()),
    "gemini": ("openai", (), ("GEMINI_API_KEY",)),
    "openrouter": ("openai", (), ("OPENROUTER_API_KEY",)),
    "vllm": ("openai", (), ()),
}
"""For each service: its package, variables of which one is needed, and variables that are all needed."""
_QUESTION: Final = "Answer with the one word: ready"


@dataclass(frozen=True)
class Service:
    """The state of a model service.

    Attributes:
        name: What the texts of its models begin with.
        missing: What must be installed or set before its models can be used; empty if nothing.
    """

    name: str
    missing: tuple[str, ...]


def services() -> list[Service]:
    """The model services, and what is missing for each."""
    found = []
    for name, (package, any_of, all_of) in _SERVICES.items():
        missing = [variable for variable in all_of if not os.environ.get(variable)]
        if any_of and not any(map(os.environ.get, any_of)):
            missing.append(" or ".join(any_of))
        if importlib.util.find_spec(package) is None:
            missing.insert(0, f"pip install 'coderoom[{name}]'")
        found.append(Service(name, tuple(missing)))
    return found


@dataclass(frozen=True)
class ModelCheck:
    """Whether a model answers.

    Attributes:
        model: Its text.
        answer: The answer; empty if there was none.
        seconds: How long it took.
        tokens: How many tokens were used.
        error: Why there was no answer, in words.
    """

    model: str
    answer: str = ""
    seconds: float = 0.0
    tokens: int = 0
    error: str = ""


async def check_model(model: str) -> ModelCheck:
    """Ask a model for one word.

    Args:
        model: A text that `make_model` understands.
    """
    try:
        client = make_model(model)
    except CodeRoomError as error:
        return ModelCheck(model, error=str(error))
    begin = perf_counter()
    try:
        reply = await client.create([UserMessage(content=_QUESTION, source="user")])
    except Exception as error:  # The clients raise exceptions of any kind.
        return ModelCheck(model, seconds=perf_counter() - begin, error=in_words("The request", error))
    finally:
        await client.close()
    tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens
    return ModelCheck(model, str(reply.content).strip(), perf_counter() - begin, tokens)
