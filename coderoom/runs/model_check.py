"""What is configured of the model services, and whether a model answers, for `coderoom models`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from autogen_core.models import UserMessage

from coderoom._util.advice import in_words
from coderoom._util.services import OPENAI, SERVICES, Service
from coderoom.configs import make_model
from coderoom.errors import CodeRoomError, MissingDependencyError

_WAIT_SECONDS: Final = 60.0
_QUESTION: Final = "Answer with the one word: ready"


@dataclass(frozen=True)
class ServiceState:
    """The state of a model service.

    Attributes:
        name: What the texts of its models begin with.
        missing: What must be installed or set before its models can be used; empty if nothing.
    """

    name: str
    missing: tuple[str, ...]


def services() -> list[ServiceState]:
    """The model services, and what is missing for each."""
    return [ServiceState(name, tuple(_missing(service))) for name, service in SERVICES.items() if name != "http"]


def models_to_check(default: str) -> list[str]:
    """The default model, and the example of each other service that a variable of the environment configures."""
    found = [default]
    for service in SERVICES.values():
        is_set = any(os.environ.get(name) for name in service.variables.values())
        if is_set and service.example[0].islower() and not default.startswith(f"{service.name}:"):
            found.append(f"{service.name}:{service.example}")
    return found


def _missing(service: Service) -> Iterator[str]:
    if importlib.util.find_spec(service.package) is None:
        yield f"pip install 'coderoom[{service.package}]'"
    try:
        service.config(service.example, os.environ)
    except MissingDependencyError:
        variables = [service.variables[field] for field in service.needed]
        if "base_url" in service.variables and service.provider == OPENAI:  # A server that needs no key.
            yield " or ".join([*variables, service.variables["base_url"]])
        else:
            yield from (name for name in variables if not os.environ.get(name))


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
        async with asyncio.timeout(_WAIT_SECONDS):
            reply = await client.create([UserMessage(content=_QUESTION, source="user")])
    except TimeoutError:
        return ModelCheck(model, seconds=_WAIT_SECONDS, error=f"There was no answer within {_WAIT_SECONDS:g} s.")
    except Exception as error:  # The clients raise exceptions of any kind.
        return ModelCheck(model, seconds=perf_counter() - begin, error=in_words("The request", error))
    finally:
        await client.close()
    tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens
    return ModelCheck(model, str(reply.content).strip(), perf_counter() - begin, tokens)
