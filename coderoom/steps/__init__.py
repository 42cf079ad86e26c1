"""The steps of a run: where its work reaches out, to a model, to code, to a person, or to a function of the host.

Each is asked for by `once`; `watching` does so for requests to models and calls of tools. Observers see each step: the
journal in `coderoom.runs` knows steps from before a run was resumed, which are not done again; a budget refuses steps;
a tracer tells others of them. Without observers a step is just done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from time import perf_counter
from typing import Any, Final, Literal, TypeVar

from coderoom._util.tasks import aside, is_large

T = TypeVar("T")

MODEL: Final = "model"
CODE: Final = "code"
APPROVAL: Final = "approval"
CALL_BEGUN: Final = "call_begun"
"""A function of the host is called, which has effects: so that it is not called again if its answer gets lost."""
CALLS_TO_UNDO: Final = "calls_to_undo"
INVERSE: Final = "inverse"
INVERSE_BEGUN: Final = "inverse_begun"
"""The same of a call that undoes another one."""
WORDS: Final = "words"
"""An agent has got what a person says while the team works."""
SETTLE_SECONDS: Final = 0.15
"""A team passes messages on with a short delay; so long waits what has to come after them."""

AskedAbout = Literal["code", "call", "changes"]
"""What a person is asked about: code, a call of a function of the host, or changes of files."""


class StepObserver:
    """Sees the steps of a run. By default it does nothing."""

    def find(self, kind: str, request: Any) -> Any:
        """The result of a step that was done before the run was resumed, each once; `None` if it is not known."""
        return None

    def before(self, kind: str, request: Any) -> None:
        """A step is about to be done; an exception refuses it."""

    async def wait(self, kind: str, request: Any) -> None:
        """Delays a request to a model that is about to be done."""

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """A step has its result, which was known or is new; from any thread."""

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """A step has failed or was cancelled."""

    def tell(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Something was decided: a `decision` or a `verdict` of an agent, or that a `limit` was reached."""

    def write(self, agent: str, text: str) -> None:
        """The code that an agent runs has written something, which nobody else shows."""

    def has_words(self) -> bool:
        """Whether there may be words for the agent that is about to ask its model, new ones or known ones."""
        return False

    def unheard(self) -> list[str]:
        """What a person has said that this agent has not got yet."""
        return []

    def note(self, text: str) -> None:
        """There is something to tell the user of the run."""

    async def ask(self, question: str, code: str = "", about: AskedAbout = "code") -> str | None:
        """Wait for somebody who watches the run to answer a question; `None` if nobody can.

        Args:
            question: The question, as Markdown.
            code: The code in it, which they may edit; empty if they may not.
            about: What the question is about.
        """
        return None


_observers: Final[ContextVar[tuple[StepObserver, ...]]] = ContextVar("coderoom_steps", default=())


cell: Final[ContextVar[str]] = ContextVar("coderoom_cell", default="")
"""What identifies the code that runs, so that calls of functions of the host belong to it."""


runs_again: Final[ContextVar[bool]] = ContextVar("coderoom_runs_again", default=False)
"""Whether that code had ended before the run was resumed, so that it makes no new calls."""


branch: Final[ContextVar[str]] = ContextVar("coderoom_branch", default="")
"""The branch in which steps are done: `2.1` is the first one of an agent's second branching; empty outside of one."""


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


Observers = Sequence[StepObserver] | None
"""Who sees a step; `None`: those of the context."""


async def find_step(kind: str, request: Any, observers: Observers = None) -> Any:
    """The result of a step that is known, or `None`."""
    return await aside(partial(find_now, observers=observers), kind, request)


def find_now(kind: str, request: Any, observers: Observers = None) -> Any:
    """As `find_step`, where nothing can wait; for small requests, from any thread."""
    if (found := _known(kind, request, observers)) is not None:
        keep_step(kind, request, found, 0.0, observers, known=True)
    return found


def _known(kind: str, request: Any, observers: Observers = None) -> Any:
    results = (observer.find(kind, request) for observer in (_observers.get() if observers is None else observers))
    return next((found for found in results if found is not None), None)


def keep_step(
    kind: str, request: Any, result: Any, seconds: float, observers: Observers = None, *, known: bool = False
) -> None:
    """Say that a step was done, or that its result is known; from any thread."""
    for observer in _observers.get() if observers is None else observers:
        observer.keep(kind, request, result, seconds, known=known)


@contextmanager
def doing_step(kind: str, request: Any, observers: Observers = None) -> Iterator[Callable[[Any], Awaitable[None]]]:
    """Do a step, which an observer may refuse; what this yields is awaited with the result as JSON-like data."""
    told: list[StepObserver] = []
    begun, is_kept = perf_counter(), False

    async def keep(result: Any) -> None:
        nonlocal is_kept
        is_kept = True
        # The files that code has made are read too.
        large = isinstance(result, Mapping) and bool(result.get("artifacts"))
        await aside(keep_step, kind, request, result, perf_counter() - begun, observers, large=large)

    try:
        for observer in _observers.get() if observers is None else observers:
            observer.before(kind, request)
            told.append(observer)
        yield keep
    except BaseException as error:
        if not is_kept:
            for observer in told:
                observer.fail(kind, request, error, perf_counter() - begun)
        raise


def tell_step(kind: str, facts: Mapping[str, Any]) -> None:
    """Say what an agent has decided."""
    for observer in _observers.get():
        observer.tell(kind, facts)


def write_step(agent: str, text: str) -> None:
    """Say what the code of an agent writes while it runs."""
    for observer in _observers.get():
        observer.write(agent, text)


async def hear(conversation: Callable[[], Awaitable[Sequence[Any]]]) -> list[str]:
    """What a person has said while the team works, for the agent that is about to ask its model; each once.

    A resumed run gives it the same words at the same place of its conversation. Branches hear nothing.

    Args:
        conversation: Gets the messages that the model would be asked with.
    """
    if branch.get() or not any(observer.has_words() for observer in _observers.get()):
        return []
    request = {"messages": await conversation()}
    known: list[str] | None = await aside(_known, WORDS, request)
    words = [text for observer in _observers.get() for text in observer.unheard()] if known is None else known
    if words:
        await asyncio.sleep(SETTLE_SECONDS)
        keep_step(WORDS, request, words, 0.0, known=known is not None)
    return words


async def await_step(kind: str, request: Any) -> None:
    """Wait until a step, which nobody has refused, may begin."""
    for observer in _observers.get():
        await observer.wait(kind, request)


def note(text: str) -> None:
    """Tell the user of a run something."""
    for observer in _observers.get():
        observer.note(text)


async def answer_elsewhere(question: str, code: str = "", about: AskedAbout = "code") -> str:
    """The answer of somebody who watches the run to what a person is asked, who may edit the code in the question.

    It never comes if nobody can.
    """
    for observer in _observers.get():
        if (answer := await observer.ask(question, code, about)) is not None:
            return answer
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable: it is never done")


async def once(
    kind: str,
    request: Any,
    do: Callable[[], Awaitable[T]],
    dump: Callable[[T], Any],
    load: Callable[[Any], T],
    observers: Observers = None,
) -> T:
    """Do a step, unless its result is known from before the run was resumed.

    The request is JSON-like data, and so is what `dump` makes of the result, which is not `None`. Equal requests are
    told apart by their order. What `do` raises is not kept, so that a resumed run tries again.
    """
    if observers is None and not is_observed():
        return await do()
    found = await find_step(kind, request, observers)
    if found is not None:
        return load(found)
    with doing_step(kind, request, observers) as keep:
        result = await do()
        await keep(await aside(dump, result, large=is_large(getattr(result, "output", ""))))
    return result
