"""The cache of solutions, and the journal of replies with which interrupted work continues. Used by the generator.

Both are plain files in one folder: a JSON file for each solution, perhaps one more for the embedding of its
instruction, and a file of JSON lines for the replies of each unfinished work. Any number of processes, threads and
event loops may use the folder at once without a lock: a solution appears by a rename, and each reply is one write at
the end of its file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import re
import stat
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.generation.frozen import FrozenTests
from coderoom.generation.models import Reply
from coderoom.generation.solution import Solution
from coderoom.generation.values import canonical

_log = logging.getLogger("coderoom.generation")

# The folder may hold other files too, such as the environments of AutoGen Studio.
_OURS: Final = re.compile(r"(?:solution|replies|vector)-[0-9a-f]{64}\.(?:json|jsonl|vec|\w+\.tmp)")
_SUFFIXES: Final = {"solution": ".json", "replies": ".jsonl", "vector": ".vec"}
_FORMER: Final = "solutions.sqlite3*"  # Earlier versions had a database.
_KEEP_REPLIES: Final = 30 * 86_400.0


@dataclass(frozen=True)
class CacheStats:
    """What is in a cache.

    Attributes:
        entries: The number of solutions.
        answers: The number of replies of unfinished work.
        bytes: The size of all files.
        max_bytes: The size limit.
        oldest: When the least recently used file was used; `None` if the cache is empty.
        newest: When the most recently used file was used.
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
        bytes: The size of its file.
    """

    instruction: str
    model: str
    language: str
    functions: tuple[str, ...]
    used: datetime
    bytes: int


class SolutionCache:
    """Keeps solutions that passed, and model replies of unfinished work, in files.

    Many processes and threads can use it at once, and may be killed at any moment. Damaged files are removed, with a
    warning. If the folder cannot be used, the cache behaves as if it were empty. The files are not protected against
    changes by others, so run the tests of a cached solution again.

    Args:
        folder: The folder; `None`: `$XDG_CACHE_HOME/coderoom` or `~/.cache/coderoom`. It is created when something is
            stored.
        max_bytes: The size limit. The least recently used files are removed first.

    Raises:
        RequestError: `max_bytes` is negative, or `folder` is not given and there is no home folder.
    """

    def __init__(self, folder: str | Path | None = None, *, max_bytes: int = 100 * 1024 * 1024) -> None:
        if max_bytes < 0:
            raise RequestError(f"max_bytes={max_bytes!r} must not be below 0.")
        self._max_bytes = max_bytes
        self._folder = _folder(folder)
        self._hits = 0
        self._warned = False

    @property
    def path(self) -> Path:
        """The folder, which may not exist yet."""
        return self._folder

    def get(self, key: str) -> Solution | None:
        """Look up a solution, and count that as a use.

        Args:
            key: Its key; see `cache_key`.

        Returns:
            The solution as it was stored; `None` if there is no valid one.
        """
        path = self._file(key)
        with self._tolerant(), contextlib.suppress(FileNotFoundError):
            self._check_folder()
            try:
                solution = _parse(path.read_bytes())
            except (ValueError, RecursionError) as error:
                _log.warning("A solution in the cache is damaged and was removed (%s): %s", path.name, _line(error))
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
            self._hits += 1
            return solution
        return None

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
            data = solution.model_dump(mode="json", warnings=False)
            body = encodable(json.dumps(data, ensure_ascii=False, allow_nan=False)).encode()
            _parse(body)
        except (ValueError, TypeError, RecursionError) as error:
            _log.warning("A solution was not cached, because it cannot be stored as JSON: %s", _line(error))
            return
        if len(body) > self._max_bytes:
            _log.info("A solution of %d bytes is too large for the cache.", len(body))
            return
        self._replace(self._file(key), body)

    def put_vector(self, key: str, group: str, vector: Sequence[float]) -> None:
        """Store the embedding of the instruction of a solution, by which `nearest` finds it.

        Args:
            key: The solution's key.
            group: Only embeddings of the same group are compared.
            vector: The embedding.
        """
        self._replace(self._file(key, "vector"), json.dumps({"key": key, "group": group, "vector": vector}).encode())

    def nearest(self, group: str, vector: Sequence[float], similarity: float) -> str | None:
        """The key of the solution whose instruction has the nearest embedding.

        Args:
            group: See `put_vector`.
            vector: The embedding of an instruction.
            similarity: The least cosine of the two embeddings.
        """
        found: list[tuple[float, str]] = []
        for path, _ in self._readable_files():
            with self._tolerant(), contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
                if path.suffix == _SUFFIXES["vector"]:
                    data = json.loads(path.read_bytes())
                    cosine = _cosine(vector, data["vector"]) if data["group"] == group else 0.0
                    found += [(cosine, str(data["key"]))] if cosine >= similarity else []
        return max(found, default=(0.0, None))[1]

    def _replace(self, path: Path, body: bytes) -> None:
        with self._tolerant():
            self._prepare_folder()
            descriptor, name = tempfile.mkstemp(".tmp", f"{path.stem}.", self._folder)
            temporary = Path(name)
            try:
                _write(descriptor, body)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._evict(path)

    def remove(self, key: str) -> None:
        """Remove a solution, if there is one."""
        self._remove(self._file(key))
        self._remove(self._file(key, "vector"))

    def clear(self) -> int:
        """Remove all solutions and all replies of unfinished work.

        Returns:
            The number of solutions that were removed.

        Raises:
            RequestError: The folder cannot be used, so that not everything was removed.
        """
        removed = 0
        try:
            for path, _ in self._files():
                path.unlink(missing_ok=True)
                removed += path.suffix == ".json"
            self._remove_former()
        except OSError as error:
            raise RequestError(f"The cache cannot be cleared: {error}.") from error
        return removed

    def stats(self) -> CacheStats:
        """Statistics of the current content."""
        files = self._readable_files()
        used = [_moment(status) for _, status in files]
        return CacheStats(
            entries=sum(path.suffix == ".json" for path, _ in files),
            answers=sum(len(self._replies(path)) for path, _ in files if path.suffix == ".jsonl"),
            bytes=sum(status.st_size for _, status in files),
            max_bytes=self._max_bytes,
            oldest=used[0] if used else None,
            newest=used[-1] if used else None,
            hits=self._hits,
        )

    def entries(self) -> list[CacheEntry]:
        """The solutions, the most recently used first."""
        found: list[CacheEntry] = []
        for path, status in reversed(self._readable_files()):
            # Another version of this package may have written a file that this one cannot read.
            with self._tolerant(), contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
                if path.suffix == ".json":
                    each = _parse(path.read_bytes())
                    facts = each.instruction, each.model, each.language, tuple(each.implementations)
                    found.append(CacheEntry(*facts, _moment(status), status.st_size))
        return found

    def journal(self, key: str) -> Journal:
        """A journal of the replies for the solution with a key, starting at the first one."""
        return Journal(self, key)

    def _file(self, key: str, kind: str = "solution") -> Path:
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{kind}-{digest}{_SUFFIXES[kind]}"

    def _prepare_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_folder()
        self._remove_former()

    def _check_folder(self) -> None:
        """Check that other users cannot put files into the folder, if it exists."""
        try:
            status = self._folder.stat()
        except FileNotFoundError:
            return
        if status.st_uid not in (os.geteuid(), 0):
            raise PermissionError(f"{str(self._folder)!r} belongs to another user ({status.st_uid})")
        if status.st_mode & stat.S_IWOTH:
            raise PermissionError(f"every user may write to {str(self._folder)!r}")

    def _remove_former(self) -> None:
        for path in self._folder.glob(_FORMER):
            path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """The files of the cache, the least recently used first."""
        self._check_folder()
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if _OURS.fullmatch(path.name):
                        found.append((path, path.lstat()))
        return sorted(found, key=lambda each: each[1].st_mtime_ns)

    def _readable_files(self) -> list[tuple[Path, os.stat_result]]:
        files: list[tuple[Path, os.stat_result]] = []
        with self._tolerant():
            files += self._files()
        return files

    def _evict(self, written: Path) -> None:
        """Remove replies that nobody continued, and as many other files as necessary, but not the one just written."""
        files = self._files()
        total = sum(status.st_size for _, status in files)
        for path, status in files:
            forgotten = path.suffix != ".json" and status.st_mtime < time.time() - _KEEP_REPLIES
            if path != written and (total > self._max_bytes or forgotten):
                path.unlink(missing_ok=True)
                total -= status.st_size

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Go on without the files if they cannot be used, so that paid work is not lost. Warn once."""
        try:
            yield
        except OSError as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            _log.log(level, "The cache of solutions cannot be used: %s.", error)

    def _append(self, path: Path, line: bytes) -> None:
        with self._tolerant():
            size = len(line) + (path.stat().st_size if path.exists() else 0)
            if size > self._max_bytes:
                _log.info("A reply is not stored: %d bytes are too large for the cache.", size)
                return
            self._prepare_folder()
            # The line break comes first: it ends a line that a killed process may have left unfinished.
            _write(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), b"\n" + line)
            self._evict(path)

    def _replies(self, path: Path) -> dict[tuple[str, int], Reply]:
        with self._tolerant(), contextlib.suppress(FileNotFoundError):
            self._check_folder()
            return _read_replies(path)
        return {}

    def _remove(self, path: Path) -> None:
        with self._tolerant():
            self._check_folder()
            path.unlink(missing_ok=True)


def _write(descriptor: int, data: bytes) -> None:
    """Write to a file and close it; the data is on disk when this returns."""
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "the file could not be written completely")
        os.fsync(descriptor)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors; 0 if they cannot be compared."""
    size = math.hypot(*one) * math.hypot(*other)
    if len(one) != len(other) or not size or not math.isfinite(size):
        return 0.0
    return sum(a * b for a, b in zip(one, other, strict=True)) / size


def _moment(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


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
    work at once, the first reply of each number counts later, and each process continues with its own replies.
    """

    def __init__(self, cache: SolutionCache, key: str) -> None:
        self._cache = cache
        self._path = cache._file(key, "replies")
        self._known: dict[tuple[str, int], Reply] | None = None
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
            if self._known is None:
                self._known = self._cache._replies(self._path)
            reply = self._known.get((request, self._next[request]))
            if reply is not None:
                self._next[request] += 1
                self._cache._hits += 1
        return reply

    def add(self, request: str, reply: Reply) -> None:
        """Record a new reply; it is on disk when this returns.

        Args:
            request: A hash of the whole request.
            reply: The reply.
        """
        with self._lock:
            # Pure ASCII, so that lone surrogates survive: later requests contain the reply.
            line = json.dumps({"request": request, "number": self._next[request], **asdict(reply)}, allow_nan=False)
            self._cache._append(self._path, line.encode())
            self._next[request] += 1

    def forget(self) -> None:
        """Remove all replies of this work."""
        with self._lock:
            self._cache._remove(self._path)
            self._known = None
            self._next.clear()


def _read_replies(path: Path) -> dict[tuple[str, int], Reply]:
    """The replies in a journal's file, by request and number. Lines that are no replies are skipped."""
    found: dict[tuple[str, int], Reply] = {}
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
            data = json.loads(line)
            place = data.pop("request"), data.pop("number")
            if {name: type(value) for name, value in data.items()} == _FIELDS:
                found.setdefault(place, Reply(**data))
    return found
