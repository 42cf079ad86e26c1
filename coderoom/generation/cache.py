"""The cache of solutions, and the replies with which interrupted work continues. Used by the generator.

Both are in the table `solutions` of the journal's database: each row is a solution, or one reply to a request on the
way to it. Any number of processes, threads and event loops may use it at once: each operation is one transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import stat
import time
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from coderoom._util.database import FILE_NAME, Database
from coderoom._util.text import encodable
from coderoom.errors import JournalError, RequestError
from coderoom.generation.models import Reply, as_data, of_data
from coderoom.generation.solution import Solution
from coderoom.judge import FrozenTests
from coderoom.judge.values import canonical
from coderoom.steps import StepObserver

_log = logging.getLogger("coderoom.generation")

_KEEP_REPLIES: Final = 30 * 86_400.0
_FORGET: Final = "DELETE FROM solutions WHERE request <> '' AND used < ?"
_EVICT: Final = """
    DELETE FROM solutions WHERE rowid IN (
        SELECT id FROM (
            SELECT rowid AS id, SUM(size) OVER (ORDER BY used DESC ROWS UNBOUNDED PRECEDING) AS total FROM solutions
        ) WHERE total > ?
    )
"""


@dataclass(frozen=True)
class CacheStats:
    """What is in a cache.

    Attributes:
        entries: The number of solutions.
        answers: The number of replies of unfinished work.
        bytes: The size of all of them.
        max_bytes: The size limit.
        oldest: When the least recently used one was used; `None` if the cache is empty.
        newest: When the most recently used one was used.
        hits: How often this object found a solution or a reply.
    """

    entries: int
    answers: int
    bytes: int
    max_bytes: int
    oldest: datetime | None
    newest: datetime | None
    hits: int


@dataclass(frozen=True)
class CacheEntry:
    """A solution in a cache.

    Attributes:
        instruction: The instruction.
        model: The name of the model.
        language: The language of the functions.
        functions: The names of the functions.
        used: When it was stored or last found.
        bytes: Its size.
    """

    instruction: str
    model: str
    language: str
    functions: tuple[str, ...]
    used: datetime
    bytes: int


class SolutionCache(Database):
    """Keeps solutions that passed, and model replies of unfinished work, in the journal's database.

    Many processes and threads can use it at once, and may be killed at any moment. What is damaged is removed, with a
    warning. If the database cannot be used, the generator goes on as if the cache were empty. It is not protected
    against changes by others, so run the tests of a cached solution again.

    What contains a secret, that is the value of a variable of the environment whose name tells of one or a value given
    to `hide_values`, or what looks like a key, is not stored: to mask it, as in the journal, would change the code.

    Args:
        path: The database, or the folder of a `journal.sqlite3`; `None`: the journal. The file is made when something
            is stored.
        max_bytes: The size limit. What was least recently used is removed first.
        keeps_replies: Whether it keeps the replies of unfinished work, which nobody else does.

    Attributes:
        path: The database, which may not exist yet.

    Raises:
        RequestError: `max_bytes` is negative, or `path` is not given and there is no home folder.
    """

    def __init__(
        self, path: str | Path | None = None, *, max_bytes: int = 100 * 1024 * 1024, keeps_replies: bool = True
    ) -> None:
        if max_bytes < 0:
            raise RequestError(f"max_bytes={max_bytes!r} must not be below 0.")
        self._max_bytes = max_bytes
        self.keeps_replies = keeps_replies
        super().__init__(None if path is None else Path(path).expanduser().absolute())
        if self.path.is_dir():
            self.path /= FILE_NAME
        self._hits = 0
        self._warned = False

    def get(self, key: str) -> Solution | None:
        """Look up a solution, and count that as a use.

        Args:
            key: Its key; see `cache_key`.

        Returns:
            The solution as it was stored; `None` if there is no valid one.
        """
        content = self._content(key)
        if content is None:
            return None
        try:
            solution = _parse(content)
        except (ValueError, RecursionError) as error:
            _log.warning("A solution in the cache is damaged and was removed: %s", _line(error))
            self.remove(key)
            return None
        self._run("UPDATE solutions SET used = ? WHERE key = ? AND request = ''", time.time(), key, writes=True)
        self._hits += 1
        return solution

    def put(self, key: str, solution: Solution, *, scope: str = "", vector: Sequence[float] = ()) -> None:
        """Store a solution and replace an earlier one. One with a secret, or above the size limit, is not stored.

        Args:
            key: Its key; see `cache_key`.
            solution: The solution.
            scope: Where `nearest` finds it.
            vector: The embedding of its instruction, by which `nearest` finds it.

        Raises:
            RequestError: Not all of its tests passed, or it is inconsistent.
        """
        why = _why_unsound(solution)
        if why:
            raise RequestError(f"Only a solution that passed all of its tests can be cached: {why}.")
        try:
            data = solution.model_dump(mode="json", warnings=False)
            body = encodable(json.dumps(data, ensure_ascii=False, allow_nan=False)).encode()
            _parse(body)
        except (ValueError, TypeError, RecursionError) as error:
            _log.warning("A solution was not cached, because it cannot be stored as JSON: %s", _line(error))
            return
        self._store(key, "", 0, data, body, scope, array("d", vector).tobytes())

    def nearest(self, scope: str, vector: Sequence[float], similarity: float) -> str | None:
        """The key of the solution whose instruction has the nearest embedding.

        Args:
            scope: Only solutions that were stored with the same one are compared.
            vector: The embedding of an instruction.
            similarity: The least cosine of the two embeddings.
        """
        found: list[tuple[float, str]] = []
        for key, data in self._run("SELECT key, vector FROM solutions WHERE request = '' AND scope = ?", scope):
            with contextlib.suppress(ValueError, TypeError):
                other = array("d", data)
                size = math.hypot(*vector) * math.hypot(*other)
                if len(vector) != len(other) or not size or not math.isfinite(size):
                    continue  # They cannot be compared.
                cosine = sum(a * b for a, b in zip(vector, other, strict=True)) / size
                found += [(cosine, key)] if cosine >= similarity else []
        return max(found, default=(0.0, None))[1]

    def remove(self, key: str) -> None:
        """Remove a solution, if there is one."""
        self._run("DELETE FROM solutions WHERE key = ? AND request = ''", key, writes=True)

    def clear(self) -> int:
        """Remove all solutions and all replies of unfinished work.

        Returns:
            The number of solutions that were removed.

        Raises:
            JournalError: The database cannot be used.
        """
        removed = self.stats().entries
        self._run("DELETE FROM solutions", writes=True, strict=True)
        return removed

    def stats(self) -> CacheStats:
        """Statistics of the current content.

        Raises:
            JournalError: The database cannot be used.
        """
        counts = "COUNT(*), TOTAL(request <> ''), TOTAL(size), MIN(used), MAX(used)"
        found = self._run(f"SELECT {counts} FROM solutions", strict=True) or [(0, 0, 0, None, None)]
        (rows, answers, size), used = map(int, found[0][:3]), found[0][3:]
        oldest, newest = (None if each is None else datetime.fromtimestamp(each, UTC) for each in used)
        return CacheStats(rows - answers, answers, size, self._max_bytes, oldest, newest, self._hits)

    def entries(self) -> list[CacheEntry]:
        """The solutions, the most recently used first.

        Raises:
            JournalError: The database cannot be used.
        """
        found: list[CacheEntry] = []
        query = "SELECT content, used, size FROM solutions WHERE request = '' ORDER BY used DESC, rowid DESC"
        for content, used, size in self._run(query, strict=True):
            # Another version of this package may have written what this one cannot read.
            with contextlib.suppress(ValueError, RecursionError):
                each = _parse(content)
                facts = each.instruction, each.model, each.language, tuple(each.implementations)
                found.append(CacheEntry(*facts, datetime.fromtimestamp(used, UTC), size))
        return found

    def journal(self, key: str) -> Journal:
        """A journal of the replies for the solution with a key, starting at the first one."""
        return Journal(self, key)

    def _content(self, key: str, request: str = "", number: int = 0) -> Any:
        query = "SELECT content FROM solutions WHERE key = ? AND request = ? AND number = ?"
        return next((content for (content,) in self._run(query, key, request, number)), None)

    def _store(
        self, key: str, request: str, number: int, data: Any, body: bytes, scope: str = "", vector: bytes = b""
    ) -> None:
        what, size = "reply" if request else "solution", len(body) + len(vector)
        if self.hide(data) != data:
            _log.warning("A %s is not stored: it contains a secret, or what looks like a key.", what)
        elif size > self._max_bytes:
            _log.info("A %s is not stored: %d bytes are too large for the cache.", what, size)
        else:
            row = (key, request, number, time.time(), size, scope, vector, body)
            with self._tolerant(), self._safely(writes=True, synced=True) as database:
                database.execute("INSERT OR REPLACE INTO solutions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                database.execute(_FORGET, (time.time() - _KEEP_REPLIES,))
                database.execute(_EVICT, (self._max_bytes,))

    def _run(self, statement: str, *values: Any, writes: bool = False, strict: bool = False) -> list[Any]:
        """Run a statement, if there is a database; one that cannot be used is an error if that is `strict`."""
        with contextlib.nullcontext() if strict else self._tolerant():
            if self.path.exists():
                with self._safely(writes=writes, synced=False) as database:
                    return database.execute(statement, values).fetchall()
        return []

    @contextlib.contextmanager
    def _safely(self, *, writes: bool, synced: bool) -> Iterator[Connection]:
        """Use the database, one thread at a time, if nobody else can put files beside it."""
        with contextlib.suppress(OSError):  # If it is not there, or not a folder, the database says so.
            status = self.path.parent.stat()
            if status.st_uid not in (os.geteuid(), 0):
                raise JournalError(f"The folder of {self.path} belongs to another user ({status.st_uid}).")
            if status.st_mode & stat.S_IWOTH:
                raise JournalError(f"Every user may write to the folder of {self.path}.")
        with self._lock, self._using(writes=writes, synced=synced) as database:
            yield database

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Go on without the database if it cannot be used, so that paid work is not lost. Warn once."""
        try:
            yield
        except (JournalError, OSError) as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            _log.log(level, "There is no cache of solutions: %s", error)


def cache_key(
    *, instruction: str, model: str, prompt_version: str, package_version: str, options: Mapping[str, Any]
) -> str:
    """A SHA-256 of everything that a solution depends on, the same in every process.

    Args:
        instruction: The instruction. Unicode normalization and trailing white space do not matter.
        model: The name of the model.
        prompt_version: The version of the prompts.
        package_version: The version of this package.
        options: Everything else that matters, as JSON-like data.

    Raises:
        RequestError: The options are not JSON-like.
    """
    parts = {
        "instruction": unicodedata.normalize("NFC", instruction).rstrip(),
        "model": model,
        "prompt_version": prompt_version,
        "package_version": package_version,
        "options": dict(options),
    }
    try:
        return hashlib.sha256(canonical(parts).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"options= must be JSON-like data: {error}.") from error


def _parse(body: bytes) -> Solution:
    solution = Solution.model_validate_json(body)
    why = _why_unsound(solution)
    if why:
        raise ValueError(why)
    return solution


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _why_unsound(solution: Solution) -> str:
    """Why a solution cannot be a consistent one that passed; empty if it can."""
    names = {spec.name for spec in solution.function_specs}
    expected = sorted((function, test.name) for function, tests in solution.tests.items() for test in tests)
    sound = {
        "it does not say that all tests passed": solution.all_tests_passed,
        "a function has no code or no test": names
        and all(solution.implementations.get(name) and solution.tests.get(name) for name in names),
        "a test of it failed": all(result.passed for result in solution.test_results),
        "its results are not those of its tests": expected
        == sorted((result.function, result.test) for result in solution.test_results),
        "a function of it did not pass": all(
            report.passed and not report.only_by_changed_tests for report in solution.functions
        ),
        "its tests do not follow from those that were frozen": _are_frozen(solution),
    }
    return next((why for why, holds in sound.items() if not holds), "")


def _are_frozen(solution: Solution) -> bool:
    """Whether the tests follow from those that were frozen first and the recorded changes."""
    hashes = [solution.tests_hash, *(change.hash_after for change in solution.test_changes)]
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        FrozenTests(tests=solution.tests, hash=hashes[-1]).verify()
        return hashes[:-1] == [change.hash_before for change in solution.test_changes]
    return False


_FIELDS: Final = {"text": str, "prompt_tokens": int, "completion_tokens": int, "complete": bool}


class Journal(StepObserver):
    """The model replies of one unfinished piece of work; `SolutionCache.journal` creates it.

    As an observer, it knows the requests that were answered before, and keeps the new answers. Replies to the same
    request are numbered, and each journal has its own position. If several processes do the same work at once, the last
    reply of each number counts later.
    """

    def __init__(self, cache: SolutionCache, key: str) -> None:
        self._cache = cache
        self._key = key
        self._next: Counter[str] = Counter()

    def take(self, request: str) -> Reply | None:
        """Take the next reply to a request.

        Args:
            request: A hash of the whole request.

        Returns:
            The reply; `None` if there are no more stored replies, so that the model must be called.
        """
        content = self._cache._content(self._key, request, self._next[request])
        with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError):
            data = json.loads(content)
            if {name: type(value) for name, value in data.items()} == _FIELDS:
                self._next[request] += 1
                self._cache._hits += 1
                return Reply(**data)
        return None

    def add(self, request: str, reply: Reply) -> None:
        """Record a new reply; it is on disk when this returns.

        Args:
            request: A hash of the whole request.
            reply: The reply.
        """
        data = asdict(reply)
        # Pure ASCII, so that lone surrogates survive: later requests contain the reply.
        self._cache._store(self._key, request, self._next[request], data, json.dumps(data, allow_nan=False).encode())
        self._next[request] += 1

    def find(self, kind: str, request: Any) -> Any:
        """The reply to a request, as data; `None` if it is not known."""
        reply = self.take(request["key"])
        return None if reply is None else as_data(reply)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Record a new reply."""
        if not known:
            self.add(request["key"], of_data(result))

    def forget(self) -> None:
        """Remove all replies of this work."""
        self._cache._run("DELETE FROM solutions WHERE key = ? AND request <> ''", self._key, writes=True)
        self._next.clear()
