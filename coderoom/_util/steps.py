"""The steps of a run: where its work reaches out to a model, to code, to a person or to a function of the host.

Each step is asked for by `once`; `_util.model_steps` does so for requests to models. Observers see each step: the
journal in `coderoom.runs` knows steps from before a run was resumed, which are not done again; a budget refuses steps;
a tracer tells others of them. Without observers a step is just done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, TypeVar

T = TypeVar("T")

MODEL: Final = "model"
CODE: Final = "code"


class StepObserver:
    """Sees the steps of a run. By default it does nothing."""

    def find(self, kind: str, request: Any) -> Any:
        """The result of a step that was done before the run was resumed, each once; `None` if it is not known."""
        return None

    def before(self, kind: str, request: Any) -> None:
        """A step is about to be done; an exception refuses it."""

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """A step has its result, which was known or is new; from any thread."""

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """A step has failed or was cancelled."""

    def tell(self, kind: str, facts: Mapping[str, Any]) -> None:
        """An agent has decided something: `decision`, `verdict`."""

    def note(self, text: str) -> None:
        """There is something to tell the user of the run."""


_observers: Final[ContextVar[tuple[StepObserver, ...]]] = ContextVar("coderoom_steps", default=())


cell: Final[ContextVar[str]] = ContextVar("coderoom_cell", default="")
"""What identifies the code that runs, so that calls of functions of the host belong to it."""


@contextmanager
def observing(*observers: StepObserver) -> Iterator[None]:
    """Have these see the steps that are done in this context, besides those around it."""
    token = _observers.set((*_observers.get(), *observers))
    try:
        yield
    finally:
        _observers.reset(token)


def is_observed() -> bool:
    """Whether anybody sees the steps that are done in this context."""
    return bool(_observers.get())


def find_step(kind: str, request: Any) -> Any:
    """The result of a step that is known, or `None`."""
    for observer in _observers.get():
        if (found := observer.find(kind, request)) is not None:
            _keep(kind, request, found, 0.0, known=True)
            return found
    return None


def keep_step(kind: str, request: Any, result: Any, seconds: float) -> None:
    """Say that a step was done; from any thread."""
    _keep(kind, request, result, seconds, known=False)


def _keep(kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
    for observer in _observers.get():
        observer.keep(kind, request, result, seconds, known=known)


def begin_step(kind: str, request: Any) -> None:
    """Say that a step is about to be done; an observer may refuse it."""
    observers = _observers.get()
    for place, observer in enumerate(observers):
        try:
            observer.before(kind, request)
        except BaseException as error:
            for told in observers[:place]:
                told.fail(kind, request, error, 0.0)
            raise


def fail_step(kind: str, request: Any, error: BaseException, seconds: float) -> None:
    """Say that a step has failed or was cancelled."""
    for observer in _observers.get():
        observer.fail(kind, request, error, seconds)


def tell_step(kind: str, facts: Mapping[str, Any]) -> None:
    """Say what an agent has decided."""
    for observer in _observers.get():
        observer.tell(kind, facts)


def note(text: str) -> None:
    """Tell the user of a run something."""
    for observer in _observers.get():
        observer.note(text)


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
    if not is_observed():
        return await do()
    found = find_step(kind, request)
    if found is not None:
        return load(found)
    begin_step(kind, request)
    begun = perf_counter()
    try:
        result = await do()
    except BaseException as error:
        fail_step(kind, request, error, perf_counter() - begun)
        raise
    keep_step(kind, request, dump(result), perf_counter() - begun)
    return result
