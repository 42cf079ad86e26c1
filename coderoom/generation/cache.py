"""The cache of solutions, and the journal of replies with which interrupted work continues."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.generation.database import ANSWER, SOLUTION, Name, Rows, Unavailable
from coderoom.generation.models import Reply
from coderoom.generation.solution import Solution
from coderoom.generation.tests import FrozenTests
from coderoom.generation.values import canonical

__all__ = [
    "CacheStats",
    "Journal",
    "SolutionCache",
    "cache_key",
]

_log = logging.getLogger("coderoom.generation")
_FILE: Final = "solutions.sqlite3"


@dataclass(frozen=True)
class CacheStats:
    """What is in a cache.

    Attributes:
        entries: The number of solutions.
        answers: The number of replies of unfinished work.
        bytes: The size of both, as counted for the limit.
        max_bytes: The size limit.
        oldest: When the oldest of them was stored; `None` if the cache is empty.
        newest: When the newest of them was stored.
        hits: How often the current solutions and replies were found.
    """

    entries: int
    answers: int
    bytes: int
    max_bytes: int
    oldest: datetime | None
    newest: datetime | None
    hits: int


class SolutionCache:
    """Keeps solutions that passed, and model replies of unfinished work, in a SQLite file.

    Many processes and threads can use it at once, and may be killed at any moment. Damaged data is removed or set
    aside, with a warning. If the file cannot be used, the cache behaves as if it were empty. The file is not protected
    against changes by others, so run the tests of a cached solution again.

    Args:
        folder: The folder of the file `solutions.sqlite3`; `None`: `$XDG_CACHE_HOME/coderoom` or `~/.cache/coderoom`.
            It is created when something is stored.
        max_bytes: The size limit. The least recently used entries are removed first.

    Raises:
        RequestError: `max_bytes` is negative, or `folder` is not given and there is no home folder.
    """

    def __init__(self, folder: str | Path | None = None, *, max_bytes: int = 100 * 1024 * 1024) -> None:
        if max_bytes < 0:
            raise RequestError(f"max_bytes={max_bytes!r} must not be below 0.")
        self._max_bytes = max_bytes
        self._path = _folder(folder) / _FILE
        self._rows = Rows(self._path, max_bytes)

    @property
    def path(self) -> Path:
        """The path of the file, which may not exist yet."""
        return self._path

    def get(self, key: str) -> Solution | None:
        """Look up a solution, and count that as a use.

        Args:
            key: Its key; see `cache_key`.

        Returns:
            The solution as it was stored; `None` if there is no valid one.
        """
        return self._rows.read(Name(SOLUTION, key), _parse_solution)

    def put(self, key: str, solution: Solution) -> None:
        """Store a solution and replace an earlier one. A solution above the size limit is not stored.

        Args:
            key: Its key; see `cache_key`.
            solution: The solution.

        Raises:
            RequestError: Not all of its tests passed, or it is inconsistent.
        """
        why = _why_unsound(solution)
        if why:
            raise RequestError(f"Only a solution that passed all of its tests can be cached: {why}.")
        try:
            body = _dump(solution)
            _parse_solution(body)
        except (ValueError, TypeError, RecursionError) as error:
            why = str(error).strip().partition("\n")[0]
            _log.warning("A solution was not cached, because it cannot be stored as JSON: %s", why)
            return
        self._rows.write(Name(SOLUTION, key), body, replace=True)

    def remove(self, key: str) -> None:
        """Remove a solution, if there is one."""
        self._rows.remove(SOLUTION, key)

    def clear(self) -> int:
        """Remove all solutions and all replies of unfinished work.

        Returns:
            The number of solutions that were removed.

        Raises:
            RequestError: The file exists but cannot be used, so nothing was removed.
        """
        try:
            return self._rows.clear()
        except Unavailable as error:
            raise RequestError(f"The cache cannot be cleared: {error}.") from error

    def stats(self) -> CacheStats:
        """Statistics of the current content."""
        found = self._rows.totals()
        return CacheStats(
            entries=found.solutions,
            answers=found.answers,
            bytes=found.size,
            max_bytes=self._max_bytes,
            oldest=found.oldest,
            newest=found.newest,
            hits=found.hits,
        )

    def journal(self, key: str) -> Journal:
        """A journal of the replies for the solution with a key, starting at the first one."""
        return Journal(self._rows, key)


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


def _folder(folder: str | Path | None) -> Path:
    try:
        if folder is not None:
            return Path(folder).expanduser().absolute()
        # The XDG specification says that relative paths are to be ignored.
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (cache if cache.is_absolute() else Path.home() / ".cache").absolute() / "coderoom"
    except RuntimeError as error:
        raise RequestError(f"There is no folder for the cache: {error} Pass folder=.") from error


def _dump(solution: Solution) -> bytes:
    try:
        return solution.model_dump_json(warnings=False).encode()
    except ValueError:  # Lone surrogates cannot be encoded.
        data = solution.model_dump(mode="json", warnings=False)
        return encodable(json.dumps(data, ensure_ascii=False, allow_nan=False)).encode()


def _parse_solution(body: bytes) -> Solution:
    solution = Solution.model_validate_json(body)
    why = _why_unsound(solution)
    if why:
        raise ValueError(why)
    return solution


def _why_unsound(solution: Solution) -> str:
    """Why a solution cannot be a consistent one that passed; empty if it can."""
    if not solution.all_tests_passed:
        return "it does not say that all tests passed"
    names = {spec.name for spec in solution.function_specs}
    lacking = [name for name in sorted(names) if not (solution.implementations.get(name) and solution.tests.get(name))]
    if lacking or not names:
        return f"there is no code or no test for {', '.join(map(repr, lacking)) or 'any function'}"
    if not all(result.passed for result in solution.test_results):
        return "a test of it failed"
    expected = sorted((function, test.name) for function, tests in solution.tests.items() for test in tests)
    if expected != sorted((result.function, result.test) for result in solution.test_results):
        return "its results are not those of its tests"
    if not all(report.passed and not report.only_by_changed_tests for report in solution.functions):
        return "a function of it did not pass"
    return _why_other_tests(solution)


def _why_other_tests(solution: Solution) -> str:
    """Why the tests do not follow from those that were frozen first and the recorded changes; empty if they do."""
    frozen = solution.tests_hash
    for change in solution.test_changes:
        if change.hash_before != frozen:
            return "the changes of its tests do not follow each other"
        frozen = change.hash_after
    try:
        FrozenTests(tests=solution.tests, hash=frozen).verify()
    except (ValueError, TypeError, RecursionError):
        return "its tests are not those that were frozen"
    return ""


_FIELDS: Final = {"text": str, "prompt_tokens": int, "completion_tokens": int, "complete": bool}


class Journal:
    """The model replies of one unfinished piece of work; `SolutionCache.journal` creates it.

    Replies to the same request are numbered, and each journal has its own position. If several processes do the same
    work at once, the first reply of each number is stored, and each process continues with its own replies.
    """

    def __init__(self, rows: Rows, key: str) -> None:
        self._rows = rows
        self._key = key
        self._next: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, request: str) -> Reply | None:
        """Take the next reply to a request.

        Args:
            request: A hash of the whole request.

        Returns:
            The reply; `None` if there are no more stored replies, so that the model must be called.
        """
        with self._lock:
            reply = self._rows.read(self._name(request), _parse_reply)
            if reply is not None:
                self._next[request] += 1
        return reply

    def add(self, request: str, reply: Reply) -> None:
        """Record a new reply; it is on disk when this returns.

        Args:
            request: A hash of the whole request.
            reply: The reply.
        """
        # Pure ASCII, so that lone surrogates survive: later requests contain the reply.
        body = json.dumps(asdict(reply), allow_nan=False).encode()
        with self._lock:
            self._rows.write(self._name(request), body, replace=False)
            self._next[request] += 1

    def forget(self) -> None:
        """Remove all replies of this work."""
        with self._lock:
            self._rows.remove(ANSWER, self._key)
            self._next.clear()

    def _name(self, request: str) -> Name:
        return Name(ANSWER, self._key, request, self._next[request])


def _parse_reply(body: bytes) -> Reply:
    data = json.loads(body)
    if not isinstance(data, dict) or {name: type(value) for name, value in data.items()} != _FIELDS:
        raise ValueError("it is not a reply of a model")
    return Reply(**data)
