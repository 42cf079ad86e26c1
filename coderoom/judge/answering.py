"""Pure code answers the requests of a test in one process with other such code, which takes a fifth of the time.

`is_pure` has proved that such code leaves nothing behind and reaches nothing but its arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from coderoom.judge.apart import MODULES
from coderoom.judge.harness import call_inside, make_harness
from coderoom.judge.session import value_of
from coderoom.sandbox import Sandbox

_MOST: Final = 16
_WHOLE: Final = 0.5  # The seconds after which no more code begins.
_SECONDS: Final = 1.5  # The time limit of all code of a process.
_VARY: Final = ("builtins.MemoryError", "builtins.RecursionError")  # They depend on what the process has done before.


class Answers(NamedTuple):
    """The answers of code, which are untrusted texts, and how many seconds it took."""

    texts: Sequence[str]
    seconds: float


class Answering:
    """Gathers code that waits for its turn to answer.

    Args:
        requests: The requests that all of it answers.
    """

    def __init__(self, requests: Sequence[str]) -> None:
        self._requests = requests
        self._waiting: list[tuple[Mapping[str, str], asyncio.Future[Answers | None]]] = []
        self._places = 0  # In processes that have not begun.
        self._work: set[asyncio.Task[None]] = set()

    async def answers(self, sandbox: Sandbox, files: Mapping[str, str], turn: asyncio.Semaphore) -> Answers | None:
        """The answers of pure code.

        Args:
            sandbox: See `sandbox_apart`.
            files: The files of the code, by name.
            turn: Each process waits for it.

        Returns:
            The answers; `None` if the code has to run in a process of its own, as it is slow or no other code waits.

        Raises:
            SandboxUnavailable: The sandbox broke, which says nothing about the code.
        """
        found: asyncio.Future[Answers | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((files, found))
        if len(self._waiting) > self._places:
            self._places += _MOST
            work = asyncio.create_task(self._answer(sandbox, turn))
            self._work.add(work)
            work.add_done_callback(self._work.discard)
        return await found

    async def _answer(self, sandbox: Sandbox, turn: asyncio.Semaphore) -> None:
        """Let one process answer for the code that waits; it cannot fail but for the sandbox."""
        async with turn:
            several = self._waiting[:_MOST]
            del self._waiting[:_MOST]
            self._places -= _MOST
            several = [each for each in several if not each[1].done()]
            codes = [*dict.fromkeys(tuple(files.items()) for files, _ in several)]
            answered: dict[Any, Answers | None] = {}
            try:
                if len(several) > 1:
                    given = [*map(dict, codes)], self._requests, _WHOLE
                    cell = make_harness(MODULES, sandbox.preload) + call_inside("checks", "answer_in_turn", *given)
                    value = value_of(await sandbox.run(cell, timeout=_SECONDS))
                    answered = dict(zip(codes, read_answers(value), strict=False))
            except Exception as error:
                for _, found in several:
                    if not found.done():
                        found.set_exception(error)
            finally:
                for files, found in several:
                    if not found.done():
                        found.set_result(answered.get(tuple(files.items())))


def read_answers(value: Any) -> list[Answers | None]:
    """The answers of each code that has begun; `None` for those that cannot be used."""
    found: list[Answers | None] = []
    for each in value if isinstance(value, list) else []:
        match each:
            case [list(texts), float(seconds)] if all(isinstance(text, str) for text in texts):
                varies = any(word in text for text in texts for word in _VARY)
                found.append(None if varies else Answers(texts, seconds))
            case _:
                found.append(None)
    return found
