"""Message types by their dotted names, so that they can stand in a config."""

from __future__ import annotations

import importlib
import re
from typing import cast

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StructuredMessage
from pydantic import BaseModel

__all__ = ["find_message_type", "name_of_message_type"]


def name_of_message_type(kind: type[BaseAgentEvent | BaseChatMessage]) -> str:
    """The dotted name of `kind`.

    Raises:
        TypeError: If it is a local class, which no name leads to.
    """
    if issubclass(kind, StructuredMessage):
        arguments = kind.__pydantic_generic_metadata__["args"]
        if len(arguments) == 1:
            return f"autogen_agentchat.messages.StructuredMessage[{_dotted(arguments[0])}]"
    return _dotted(kind)


def _dotted(kind: type[BaseModel]) -> str:
    if "<" in kind.__qualname__:
        raise TypeError(f"{kind.__qualname__!r} is a local class and cannot stand in a config; define it in a module.")
    return f"{kind.__module__}.{kind.__qualname__}"


def find_message_type(name: str) -> type[BaseAgentEvent | BaseChatMessage]:
    """The type that `name` names.

    Raises:
        ValueError: If there is none, or it is no message type.
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]+)\])?", name.strip())
    if match is None:
        raise ValueError(f"{name!r} is no name of a message type.")
    kind, content = _imported(match[1]), match[2]
    if content is not None:
        if kind is not StructuredMessage:
            raise ValueError(f"{name!r} is no message type: only StructuredMessage has a type in brackets.")
        return cast("type[BaseChatMessage]", kind.__class_getitem__(_imported(content)))
    if not issubclass(kind, BaseAgentEvent | BaseChatMessage):
        raise ValueError(f"{name!r} is no message type.")
    return kind


def _imported(name: str) -> type[BaseModel]:
    module, *attributes = name.split(".")
    try:
        found: object = importlib.import_module(module)
        for attribute in attributes:
            module = f"{module}.{attribute}"
            # A class may stand in a class, and a module may not be imported yet.
            found = getattr(found, attribute) if hasattr(found, attribute) else importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise ValueError(f"There is no message type {name!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ValueError(f"{name!r} is no message type.")
    return found
