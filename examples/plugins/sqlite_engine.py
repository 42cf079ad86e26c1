"""The engine `sqlite`: cells of SQL, each session a database in memory, a checkpoint a copy of it.

It shows how small an engine can be. Its databases are in the host's own process: SQLite's authorizer keeps SQL from
files, and nothing else stands between the two.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import CodeError, ExecutionResult, HostFunction, Limits, OutputChunk, SandboxConfig

_FORBIDDEN = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)
_STEPS = 1000  # How many instructions of SQLite's machine run before it is asked whether to stop.


class SQLiteEngine:
    """Databases in memory. A limit of memory bounds each database; other limits but that of time have no meaning."""

    name = "sqlite"
    languages = ("sql",)
    lacks = ("wall", "network", "python", "readable", "options", "preload", "env", "policy")
    wall = "sqlite"

    def __init__(self, config: SandboxConfig) -> None:
        self._limits = config.limits
        self._sessions: set[SQLiteSession] = set()
        self.lost = True

    @property
    def facts(self) -> Mapping[str, Any]:
        """The version of SQLite."""
        return {} if self.lost else {"sqlite": sqlite3.sqlite_version}

    async def start(self) -> None:
        """Nothing has to be started."""
        self.lost = False

    async def open(self, functions: Mapping[str, HostFunction]) -> SQLiteSession:
        """Open a session with an empty database."""
        if functions:
            raise RequestError("SQL cannot call functions of the host; use engine='cpython'.")
        session = SQLiteSession(self._limits, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Close all databases."""
        for session in list(self._sessions):
            await session.close()
        self.lost = True

    def kill(self) -> None:
        """As `close`, without an event loop."""
        for session in list(self._sessions):
            session.stop(Outcome.CANCELLED)
        self._sessions.clear()
        self.lost = True


class SQLiteSession:
    """A database in memory."""

    _database: sqlite3.Connection

    def __init__(self, limits: Limits, on_close: Callable[[SQLiteSession], None]) -> None:
        self._limits = limits
        self._on_close = on_close
        self._marks: list[Mark] = []
        self._stopped: Outcome | None = None
        self._working: asyncio.Future[Any] | None = None
        self._fill(b"")

    async def run(
        self,
        code: str,
        program: object,
        timeout: float | None,
        final: bool,
        on_chunk: Callable[[OutputChunk], None] | None,
    ) -> ExecutionResult:
        """Run the statements of a cell; its value has the rows of the last one, or its only number or text."""
        await self._idle()
        seconds, begin = timeout or self._limits.wall_seconds, time.monotonic()
        self._stopped = None
        timer = asyncio.get_running_loop().call_later(seconds, self.stop, Outcome.TIMEOUT)
        # SQLite works in a thread; shielded, so that a cancelled caller leaves no statement that runs.
        self._working = asyncio.ensure_future(asyncio.to_thread(self._run, code))
        try:
            value, failed = await asyncio.shield(self._working)
        except asyncio.CancelledError:
            self.stop(Outcome.CANCELLED)
            raise
        finally:
            timer.cancel()
        facts: dict[str, Any] = {"duration": time.monotonic() - begin, "code": code}
        if failed is None:
            size = len(repr(value))
            shown = None if value is None else repr(value)[:1000]
            kept = value if size <= self._limits.value_bytes else None
            return ExecutionResult(Outcome.OK, 0, value=kept, value_repr=shown, value_is_data=kept is not None, **facts)
        if self._stopped is Outcome.TIMEOUT:
            error = CodeError("Timeout", f"The code was stopped after {seconds:g} seconds. The database is kept.")
            facts |= {"outcome": Outcome.TIMEOUT, "exit_code": 124, "limit": "wall"}
        elif self._stopped is not None:
            error = CodeError("Cancelled", "The code was cancelled. The database is kept.")
            facts |= {"outcome": Outcome.CANCELLED, "exit_code": 125}
        else:
            error = CodeError(type(failed).__name__, str(failed))
            full = getattr(failed, "sqlite_errorcode", None) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM)
            limit = {"outcome": Outcome.MEMORY, "exit_code": 137, "limit": "memory"}
            facts |= limit if full else {"outcome": Outcome.ERROR, "exit_code": 1}
        text = f"{error}\n"
        return ExecutionResult(**facts, stderr=text, output=text, output_size=len(text.encode()), error=error)

    def stop(self, why: Outcome) -> None:
        """End the cell that runs."""
        self._stopped = self._stopped or why

    async def cancel(self) -> None:
        """End the cell that runs."""
        self.stop(Outcome.CANCELLED)

    async def checkpoint(self) -> Mark:
        """Keep a copy of the database."""
        await self._idle()
        self._database.set_authorizer(None)  # SQLite itself uses a pragma for it.
        mark = Mark(self._database.serialize())
        self._database.set_authorizer(_authorize)
        self._marks.append(mark)
        return mark

    async def rollback(self, mark: Mark) -> None:
        """Return to a copy."""
        if mark not in self._marks:
            raise RequestError("This checkpoint is gone: it was released, or the session was rolled back past it.")
        await self._idle()
        del self._marks[self._marks.index(mark) + 1 :]
        self._fill(mark.state)

    def release(self, mark: Mark) -> None:
        """Forget a copy."""
        if mark in self._marks:
            self._marks.remove(mark)

    async def restart(self) -> None:
        """Begin with an empty database."""
        await self._idle()
        self._marks.clear()
        self._fill(b"")

    def suspend_output(self, suspended: bool) -> None:
        """There is no output."""

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Nothing writes to files."""
        yield

    async def close(self) -> None:
        """Close the database."""
        self.stop(Outcome.CANCELLED)
        await self._idle()
        self._marks.clear()
        self._database.close()
        self._on_close(self)

    def abandon(self) -> None:
        """As `close`, without waiting."""
        self._closing = asyncio.ensure_future(self.close())

    async def _idle(self) -> None:
        """Wait for the statement that a cancelled caller has left behind."""
        if self._working is not None:
            await asyncio.wait([self._working])

    def _fill(self, state: bytes) -> None:
        if hasattr(self, "_database"):
            self._database.close()
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if state:
            self._database.deserialize(state)
        self._database.execute("PRAGMA temp_store = MEMORY")
        pages = self._limits.memory_bytes // self._database.execute("PRAGMA page_size").fetchone()[0]
        self._database.execute(f"PRAGMA max_page_count = {pages}")
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._limits.memory_bytes // 4)
        self._database.set_progress_handler(lambda: self._stopped is not None, _STEPS)
        self._database.set_authorizer(_authorize)

    def _run(self, code: str) -> tuple[Any, Exception | None]:
        try:
            value = None
            for statement in _statements(code):
                found = self._database.execute(statement)
                rows = found.fetchall()
                is_one = len(rows) == 1 and len(rows[0]) == 1
                value = None if found.description is None else rows[0][0] if is_one else [list(row) for row in rows]
            return value, None
        except Exception as error:
            return None, error


class Mark:
    """A copy of a database."""

    def __init__(self, state: bytes) -> None:
        self.state = state


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action in _FORBIDDEN else sqlite3.SQLITE_OK


def _statements(code: str) -> Iterator[str]:
    begun = ""
    for part in code.split(";"):
        begun += f"{part};"
        if sqlite3.complete_statement(begun):
            yield begun
            begun = ""
    if begun.strip(" \n\t;"):
        yield begun
