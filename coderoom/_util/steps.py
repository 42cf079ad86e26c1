"""The steps of a durable run: work that is done once, whose result a journal keeps for a run that is resumed.

A step is asked for by `once`, wherever work reaches out: a model, code, a person, a function of the host. Without a
journal `once` just does the work. The journal is in `coderoom.runs`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class Steps(Protocol):
    """Keeps the results of steps."""

    def find(self, kind: str, request: Any) -> Any:
        """The result of a step that was done before the run was resumed, each once; `None` if it is not known."""
        ...

    def keep(self, kind: str, request: Any, result: Any, seconds: float) -> None:
        """Keep the result of a step; from any thread."""
        ...

    def note(self, text: str) -> None:
        """Tell the user of the run."""
        ...


STEPS: Final[ContextVar[Steps | None]] = ContextVar("coderoom_steps", default=None)
"""What keeps the steps of the current run; `None`: nothing does."""


def note(text: str) -> None:
    """Tell the user of a run that is resumed."""
    if (steps := STEPS.get()) is not None:
        steps.note(text)


async def once(
    kind: str, request: Any, do: Callable[[], Awaitable[T]], dump: Callable[[T], Any], load: Callable[[Any], T]
) -> T:
    """Do a step, unless its result is known from before the run was resumed.

    Args:
        kind: The kind of the step.
        request: What identifies it, as JSON-like data. Equal requests are told apart by their order.
        do: Does it. What it raises is not kept, so that a resumed run tries again.
        dump: Makes JSON-like data of the result, not `None`.
        load: Makes a result of the data.
    """
    steps = STEPS.get()
    if steps is None:
        return await do()
    found = steps.find(kind, request)
    if found is not None:
        return load(found)
    begun = perf_counter()
    result = await do()
    steps.keep(kind, request, dump(result), perf_counter() - begun)
    return result
