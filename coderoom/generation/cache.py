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
        entries: How many solutions there are.
        answers: How many answers of unfinished work there are.
        bytes: How much both take, as it counts for the limit.
        max_bytes: The limit.
        oldest: When the oldest of them was put there; `None` if there is nothing.
        newest: When the newest of them was put there.
        hits: How often the solutions and answers that are there now were found.
    """

    entries: int
    answers: int
    bytes: int
    max_bytes: int
    oldest: datetime | None
    newest: datetime | None
    hits: int


class SolutionCache:
    """Keeps solutions that passed, and the answers of models for work that is not finished, in a file.

    Many processes and threads can use it at once, and may be killed at any moment. What is damaged in it is removed or
    set aside, with a warning; where the file cannot be used, it is as if the cache were empty. Whoever can write to
    the file can change what is in it, so run the tests of what comes out of it again.

    Args:
        folder: The folder of the file `solutions.sqlite3`; `None`: `$XDG_CACHE_HOME/coderoom`, or else
            `~/.cache/coderoom`. Nothing is made there before something is kept.
        max_bytes: How much may be kept; what was not used for the longest time goes first.

    Raises:
        RequestError: `max_bytes` is below 0, or there is no home folder and no other is given.
    """

    def __init__(self, folder: str | Path | None = None, *, max_bytes: int = 100 * 1024 * 1024) -> None:
        if max_bytes < 0:
            raise RequestError(f"max_bytes={max_bytes!r} must not be below 0.")
        self._max_bytes = max_bytes
        self._path = _folder(folder) / _FILE
        self._rows = Rows(self._path, max_bytes)

    @property
    def path(self) -> Path:
        """The file; it need not be there yet."""
        return self._path

    def get(self, key: str) -> Solution | None:
        """Look for a solution, and count that as a use of it.

        Args:
            key: What it was put under; see `cache_key`.

        Returns:
            The solution as it was put there; `None` if there is none that is sound.
        """
        return self._rows.read(Name(SOLUTION, key), _parse_solution)

    def put(self, key: str, solution: Solution) -> None:
        """Keep a solution, in the place of what was under the key. What is larger than the limit is not kept.

        Args:
            key: What it is found by; see `cache_key`.
            solution: The solution.

        Raises:
            RequestError: Not all of its tests passed, or it does not hold together.
        """
        why = _why_unsound(solution)
        if why:
            raise RequestError(f"Only a solution that passed all of its tests can be kept: {why}.")
        try:
            body = _dump(solution)
            _parse_solution(body)
        except (ValueError, TypeError, RecursionError) as error:
            why = str(error).strip().partition("\n")[0]
            _log.warning("A solution is not kept, since it would not come back from JSON as it is: %s", why)
            return
        self._rows.write(Name(SOLUTION, key), body, replace=True)

    def remove(self, key: str) -> None:
        """Remove a solution, if there is one."""
        self._rows.remove(SOLUTION, key)

    def clear(self) -> int:
        """Remove all solutions, and the answers of unfinished work.

        Returns:
            How many solutions there were.

        Raises:
            RequestError: The file is there and cannot be used, so nothing was removed.
        """
        try:
            return self._rows.clear()
        except Unavailable as error:
            raise RequestError(f"The cache cannot be cleared: {error}.") from error

    def stats(self) -> CacheStats:
        """Count what is there."""
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
        """The answers of work that is to lead to a solution under a key, from the first one on."""
        return Journal(self._rows, key)


def cache_key(
    *, instruction: str, model: str, prompt_version: str, package_version: str, options: Mapping[str, Any]
) -> str:
    """The key of everything that a solution depends on: a sha256, the same in every process.

    Args:
        instruction: The instruction. How its characters are composed, and white space at its end, do not count.
        model: What the model is called.
        prompt_version: The version of the prompts.
        package_version: The version of this package.
        options: What else counts, as JSON-like data.

    Raises:
        RequestError: The options are not JSON-like.
    """
    told = {
        "instruction": unicodedata.normalize("NFC", instruction).rstrip(),
        "model": model,
        "prompt_version": prompt_version,
        "package_version": package_version,
        "options": dict(options),
    }
    try:
        return hashlib.sha256(canonical(told).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"options= has to be JSON-like data: {error}.") from error


def _folder(folder: str | Path | None) -> Path:
    try:
        if folder is not None:
            return Path(folder).expanduser().absolute()
        # One that is not absolute does not count; so says the standard of these variables.
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (cache if cache.is_absolute() else Path.home() / ".cache").absolute() / "coderoom"
    except RuntimeError as error:
        raise RequestError(f"There is no place for a cache: {error} Say folder=.") from error


def _dump(solution: Solution) -> bytes:
    try:
        return solution.model_dump_json(warnings=False).encode()
    except ValueError:  # Halves of characters cannot be written.
        told = solution.model_dump(mode="json", warnings=False)
        return encodable(json.dumps(told, ensure_ascii=False, allow_nan=False)).encode()


def _parse_solution(body: bytes) -> Solution:
    solution = Solution.model_validate_json(body)
    why = _why_unsound(solution)
    if why:
        raise ValueError(why)
    return solution


def _why_unsound(solution: Solution) -> str:
    """Why a solution cannot be one that passed, by all that it says itself; empty if it can."""
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
    """Why the tests are not those that were frozen, together with the changes that are told of."""
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
    """The answers to the requests of one piece of work; `SolutionCache.journal` makes them.

    The answers to the same request are numbered, and each journal counts for itself where it is. If several processes
    do the same work at once, the first answer of a number is the one that stays, and each goes on with what it was
    answered itself.
    """

    def __init__(self, rows: Rows, key: str) -> None:
        self._rows = rows
        self._key = key
        self._next: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, request: str) -> Reply | None:
        """Take the next answer to a request.

        Args:
            request: A hash of the whole request.

        Returns:
            The answer; `None` if there is none (any more), and the model has to be asked.
        """
        with self._lock:
            reply = self._rows.read(self._name(request), _parse_reply)
            if reply is not None:
                self._next[request] += 1
        return reply

    def add(self, request: str, reply: Reply) -> None:
        """Record what the model has answered now; it is on disk when this returns.

        Args:
            request: A hash of the whole request.
            reply: The answer.
        """
        # Pure ASCII, so that halves of characters come back as they were: later requests are made of them.
        body = json.dumps(asdict(reply), allow_nan=False).encode()
        with self._lock:
            self._rows.write(self._name(request), body, replace=False)
            self._next[request] += 1

    def forget(self) -> None:
        """Remove all answers of this work."""
        with self._lock:
            self._rows.remove(ANSWER, self._key)
            self._next.clear()

    def _name(self, request: str) -> Name:
        return Name(ANSWER, self._key, request, self._next[request])


def _parse_reply(body: bytes) -> Reply:
    told = json.loads(body)
    if not isinstance(told, dict) or {name: type(value) for name, value in told.items()} != _FIELDS:
        raise ValueError("it is no reply of a model")
    return Reply(**told)
