"""What the tests of `execute_code` share: recorded answers of a model."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from coderoom.configs import ReplayModel

__all__ = ["asked", "children", "model", "python"]


def python(code: str) -> str:
    return f"Here it is.\n\n```python\n{code}\n```"


def model(*codes: str) -> ReplayModel:
    """A model that answers with these pieces of code."""
    return ReplayModel([python(code) for code in codes])


def asked(client: ReplayModel, call: int) -> list[tuple[str, str]]:
    """Who said what in the conversation that a call sent, but for the instructions."""
    messages: list[Any] = client.create_calls[call]["messages"]
    assert messages[0].type == "SystemMessage"
    return [(message.type.removesuffix("Message"), message.content) for message in messages[1:]]


def children() -> set[str]:
    """The processes that this one has started."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # A thread that has just ended.
            found.update((task / "children").read_text().split())
    return found
