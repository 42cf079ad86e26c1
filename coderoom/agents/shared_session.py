"""`SharedSession`: one session for the code of several agents. Used by their runners and by `share_session`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from autogen_core import CancellationToken

from coderoom.agents.inverses import Functions
from coderoom.agents.replay import PastCell, SessionPast, run_all_again
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.sandbox import CallRecorder, HostFunction


class Member(Protocol):
    """The part of an agent in a session that it shares: its functions and its initial variables."""

    async def find_functions(self) -> tuple[HostFunction, ...]:
        """The functions that the agent offers."""
        ...

    async def inverses(self) -> Functions:
        """The agent's functions as they undo calls; none if none does."""
        ...

    def search_in(self, functions: Iterable[HostFunction]) -> None:
        """Have the agent's search for functions find these."""
        ...

    async def set_variables(self, cancellation_token: CancellationToken) -> None:
        """Set the agent's initial variables, if they are not set."""
        ...

    def forget_variables(self) -> None:
        """The initial variables are no longer set."""
        ...


class SharedSession:
    """The session of several agents: the functions that all of their code may call, and what has run.

    Functions are offered once, before the first code of any agent. In a new session all code is run again in its
    order, whichever agent's it was.

    Args:
        executor: Where the code runs.
        members: The agents that have functions or initial variables.

    Attributes:
        past: What has run in the session.
        recorder: Has what is recorded of its calls of functions.
    """

    def __init__(self, executor: SandboxCodeExecutor, members: Sequence[Member]) -> None:
        self.executor = executor
        self.past = SessionPast()
        self._members = members
        self.recorder = CallRecorder()
        self._is_offered = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._restored = 0
        self._news = ""
        self._told: dict[int, int] = {}

    async def offer(self) -> None:
        """Offer the functions of all agents, unless they are offered.

        Raises:
            RequestError: Two agents have different functions with the same name.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:  # The session was left in the other.
            self.end()
        self._loop = loop
        if self._is_offered:
            return
        found: dict[str, HostFunction] = {}
        for member in self._members:
            for function in await member.find_functions():
                if found.setdefault(function.name, function).describe() != function.describe():
                    raise RequestError(
                        f"Two agents with a shared session have different functions named {function.name!r}. Rename "
                        "one of them, or give the agents sessions of their own."
                    )
                if function.asks:  # Another agent may offer it freely.
                    found[function.name] = function
        for member in self._members:
            member.search_in(found.values())
        await self.executor.offer([self.recorder.wrap(function) for function in found.values()])
        self._is_offered = True

    async def prepare(self, cancellation_token: CancellationToken) -> None:
        """Get the session ready for code: its functions, its variables, and in a new one all that has run before."""
        await self.offer()
        if self.past.to_restore:
            await self.executor.restart()
            self.lose_variables()
        for member in self._members:
            await member.set_variables(cancellation_token)
        if self.past.to_restore:
            again = await run_all_again(self.past.cells, self.recorder, self.executor, cancellation_token)
            self.past.cells, self.past.known, self.past.to_restore = again.cells, [], False
            self._news, self._restored = "\n\n".join(again.notes()), self._restored + 1

    def news_for(self, reader: object) -> str | None:
        """What was lost since the last call for this reader; `None` if no session was restored since."""
        told, self._told[id(reader)] = self._told.get(id(reader), 0), self._restored
        return self._news if told != self._restored else None

    async def functions(self) -> Functions:
        """The functions of all agents as they undo calls."""
        return {name: function for each in self._members for name, function in (await each.inverses()).items()}

    def save(self) -> dict[str, Any]:
        """What `load` takes, as JSON-like data."""
        return {"cells": [cell.model_dump(mode="json") for cell in self.past.cells]}

    def load(self, cells: Sequence[PastCell]) -> None:
        """Have these run again before the next code."""
        self.past.cells, self.past.to_restore = list(cells), True

    def end(self) -> None:
        """The executor has stopped: what has run is to run again in the next session."""
        self.past.to_restore, self._is_offered = bool(self.past.cells), False
        self.lose_variables()

    def lose_variables(self) -> None:
        """The session has begun anew."""
        for member in self._members:
            member.forget_variables()
