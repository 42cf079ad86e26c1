"""A cell: its language, the check before anything runs, its output, results of stopped cells, remarks on results.

Used by `Sandbox`, `Session`, the engines, executors and servers.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import functools
import json
import mimetypes
import stat
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

from coderoom._util.tasks import aside
from coderoom._util.text import encodable
from coderoom.errors import CodeRoomError, RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox.config import MIB, Limits, SandboxConfig, shown
from coderoom.sandbox.languages import LANGUAGES, PROGRAMS, Program, language_named
from coderoom.sandbox.policy import check_apart, check_restricted
from coderoom.sandbox.registry import ENGINES
from coderoom.sandbox.result import Artifact, CodeError, ExecutionResult, Limit, OutputChunk

StreamName = Literal["stdout", "stderr"]
Input: TypeAlias = str | bytes | Iterable[str | bytes] | AsyncIterable[str | bytes]
"""What a cell reads from standard input: all of it, or pieces that come while it runs."""

_PARSED_HERE = 10_000
"""Characters of code that take the parser some milliseconds."""
_LINE_SECONDS, _LONGEST_BEGUN = 0.01, 4096
_Decoder = codecs.getincrementaldecoder("utf-8")

STATE_LOST = "The session was restarted: earlier variables are gone."
STATE_KEPT = "Variables that were set before are still there."
_MOST_ARTIFACTS = 100
_LONGEST_NAME = 4096
_NOT_IN_OUTPUT = ("Limit", "Timeout", "Cancelled", "Signal")


_engine = functools.cache(ENGINES.load)  # Each cell asks for it.


async def check(
    config: SandboxConfig, code: str, language: str, timeout: float | None
) -> tuple[Program | None, ExecutionResult | None]:
    """As `check_cell`, without stopping the event loop for long code."""
    if config.policy != "restricted" or not isinstance(code, str) or len(code) <= _PARSED_HERE:
        return check_cell(config, code, language, timeout)
    return await aside(partial(check_cell, check=check_apart), config, code, language, timeout, large=True)


def check_cell(
    config: SandboxConfig,
    code: str,
    language: str,
    timeout: float | None,
    check: Callable[[str], CodeError | None] = check_restricted,
) -> tuple[Program | None, ExecutionResult | None]:
    """Check the arguments of a run, and the code against the policy.

    The results are the program that runs the cell, `None` for Python, and the result if the policy rejects the cell.
    """
    if not isinstance(code, str):
        raise RequestError(f"code={shown(code)} is a {type(code).__name__}, and text was expected.")
    if timeout is not None and not (_is_number(timeout) and 0 < float(timeout) < float("inf")):
        raise RequestError(
            f"timeout={shown(timeout)} is not a number of seconds above 0; without one code has limits.wall_seconds."
        )
    if not isinstance(language, str):
        raise RequestError(f"language={language!r} is not the name of a language; there are {', '.join(LANGUAGES)}.")
    name = language_named(language)
    error, engine = None, _engine(config.engine)
    if name != "python" and config.policy == "restricted":
        error = CodeError("PolicyError", f"Only Python runs under the policy {config.policy!r}, not {language!r}.")
    elif name not in engine.languages and name in LANGUAGES:
        runs = ", ".join(engine.languages).replace("python", "Python")
        elsewhere = "engine='cpython' runs it."
        raise RequestError(f"The engine {engine.name!r} runs only {runs}, and this is {language!r}. {elsewhere}")
    elif name not in engine.languages:
        raise RequestError(f"The sandbox does not run {language!r}; it runs {', '.join(engine.languages)}.")
    elif config.policy == "restricted":
        error = check(code)
    if error is None:
        return PROGRAMS.get(name), None
    text = f"{error}\n"
    return None, ExecutionResult(Outcome.REJECTED, 126, stderr=text, output=text, error=error, code=code)


def input_of(config: SandboxConfig, stdin: Input | None) -> dict[str, bytes | AsyncGenerator[bytes]]:
    """The argument of `EngineSession.run` that has the standard input of a cell, if it is given one."""
    if stdin is None:
        return {}
    if not isinstance(stdin, str | bytes | Iterable | AsyncIterable):
        raise RequestError(f"stdin={shown(stdin)} is a {type(stdin).__name__}, and text or bytes were expected.")
    engine = _engine(config.engine)
    if "stdin" in engine.lacks:
        raise RequestError(f"stdin=: code has no standard input in the engine {engine.name!r}; engine='cpython' has.")
    return {"stdin": _as_bytes(stdin) if isinstance(stdin, str | bytes) else _pieces(stdin)}


async def _pieces(stdin: Iterable[str | bytes] | AsyncIterable[str | bytes]) -> AsyncGenerator[bytes]:
    """The pieces of a stream; a plain iterable is waited for in a thread, since it may be a file or a queue."""
    end = object()
    try:
        if isinstance(stdin, AsyncIterable):
            async for piece in stdin:
                yield _as_bytes(piece)
        else:
            pieces = iter(stdin)
            while (given := await asyncio.to_thread(partial(next, pieces, end))) is not end:
                yield _as_bytes(given)
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"stdin=: what gives the input has failed: {type(error).__name__}: {error}.") from error
    finally:
        if isinstance(stdin, AsyncGenerator):
            await stdin.aclose()


def _as_bytes(piece: object) -> bytes:
    if not isinstance(piece, str | bytes):
        raise RequestError(f"stdin= has {shown(piece)}, a {type(piece).__name__}, and text or bytes were expected.")
    return piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece


def check_can_start(
    config: SandboxConfig,
    argv: Sequence[str] = ("sh",),
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    size: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Check that a program can be started beside the cells; return the request of the engine."""
    if "processes" in _engine(config.engine).lacks:
        raise RequestError(f"The engine {config.engine!r} runs no programs; engine='cpython' does.")
    if config.policy == "restricted":
        raise RequestError(f"Only Python runs under the policy {config.policy!r}, and no program beside it.")
    texts = None if isinstance(argv, str) or not isinstance(argv, Iterable) else list(argv)
    if not texts or not texts[0] or not all(isinstance(each, str) and "\0" not in each for each in texts):
        raise RequestError(
            f"argv={shown(argv)} is not a command; give a list, such as ['python', '-m', 'http.server']."
        )
    if not isinstance(cwd, str) or "\0" in cwd:
        raise RequestError(f"cwd={shown(cwd)} is not the path of a folder.")
    given = dict(SandboxConfig(env=env or {}).env)  # Which refuses wrong ones.
    is_size = size is None or (len(size) == 2 and all(isinstance(each, int) and 0 < each < 32_768 for each in size))
    if not is_size:
        raise RequestError(f"size={shown(size)} is not a number of rows and one of columns, such as (24, 80).")
    # What a program prints would come late otherwise, and a terminal can do more than the one of DEFAULTS.
    more = {"PYTHONUNBUFFERED": "1"} if size is None else {"TERM": "xterm-256color"}
    return {"cwd": cwd, "env": {**more, **given}, "terminal": size is not None}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def stopped(seconds: float | None, limit: Limit | None, rest: str) -> dict[str, Any]:
    """The facts of the result of a cell that was stopped; without seconds, it was cancelled."""
    if seconds is None:
        error = CodeError("Cancelled", f"The code was cancelled. {rest}".rstrip())
        return {"outcome": Outcome.CANCELLED, "exit_code": 125, "error": error}
    what = (
        f"used more than {seconds:g} seconds of processor time"
        if limit == "cpu"
        else f"was stopped after {seconds:g} seconds"
    )
    error = CodeError("Timeout", f"The code {what}. {rest}".rstrip())
    return {"outcome": Outcome.TIMEOUT, "exit_code": 124, "error": error, "limit": limit}


def remark_on(result: ExecutionResult, limits: Limits, in_session: bool) -> str:
    """Return a remark on why code was ended or which limit it reached; empty if the output says so already."""
    error, message, is_printed = result.error, "", False
    # An error with a traceback was raised by the code.
    if error is not None and not error.traceback and error.type in _NOT_IN_OUTPUT:
        if in_session:
            return error.message
        return error.message.partition(". ")[0].rstrip(".") + "."  # The rest is about the session.
    if result.outcome is Outcome.MEMORY:
        message = f"The code wanted more memory than the {limits.memory_bytes // MIB:,} MiB that it may have."
        is_printed = error is not None and message in error.message
        if is_printed:
            message = ""
    elif result.outcome is Outcome.ERROR:
        message = {
            "open_files": f"The code may have {limits.open_files} files open at a time.",
            "processes": f"The code may have {limits.processes} processes and threads at a time.",
            "file_size": f"The code may write files of up to {limits.file_bytes:,} bytes.",
            "disk": f"The disk is full, or /tmp has the {limits.disk_bytes // MIB:,} MiB that it may have.",
        }.get(str(result.limit), "")
    if in_session and result.state_lost:
        return f"{message} {STATE_LOST}".strip()
    return f"{message} {STATE_KEPT}".strip() if in_session and (message or is_printed) else message


def unavailable(error: Exception) -> Exception:
    """What the callers of an engine get for an exception in it: it says nothing about their code."""
    if isinstance(error, CodeRoomError):
        return error
    number = getattr(error, "errno", None)
    remedy = " Raise the limit of this process (`ulimit -n`)." if number in (errno.EMFILE, errno.ENFILE) else ""
    broken = SandboxUnavailable(f"The sandbox has failed: {type(error).__name__}: {error}.{remedy}")
    broken.__cause__ = error
    return broken


@contextlib.contextmanager
def reporting_failures() -> Iterator[None]:
    """Raise whatever breaks in an engine as `unavailable` says."""
    try:
        yield
    except Exception as error:
        found = unavailable(error)
        if found is error:
            raise
        raise found from error


class Collector:
    """Collects output: of more than `limit` bytes the beginning and the end; `size` counts all.

    With a `loop`, the beginning of a line is reported when nothing follows soon: `print` writes its end separately.
    """

    def __init__(
        self,
        limit: int,
        on_chunk: Callable[[OutputChunk], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._on_chunk = on_chunk
        self._loop = loop
        self._begun: OutputChunk | None = None  # The beginning of a line that was not reported yet.
        self._decoders: defaultdict[StreamName, codecs.IncrementalDecoder] = defaultdict(lambda: _Decoder("replace"))
        self._head: list[tuple[StreamName, str]] = []
        self._tail: deque[tuple[StreamName, str, int]] = deque()
        self._head_size = self._tail_size = 0
        self._dropped: dict[StreamName, int] = {}
        self._length = 0  # Of all text.
        self._marks: dict[str, int] = {}
        self.size = 0
        self.on_excess: Callable[[], None] | None = None
        """Called when something comes that is above the limit."""

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return bool(self._dropped)

    def add(self, stream: StreamName, data: bytes, final: bool = False) -> None:
        """Add bytes that were written to a stream; `final`: nothing follows."""
        self.size += len(data)
        if self.on_excess is not None and self._dropped:
            self.on_excess()
        text = self._decoders[stream].decode(data, final)
        if not text:
            return
        self._length += len(text)
        if self._on_chunk is not None:
            self._report(OutputChunk(stream, text))
        room = self._head_limit - self._head_size
        if room > 0:
            # A character has up to four bytes; the rest goes to the tail.
            begin = text if len(data) <= room else text[: max(room // 4, 1)]
            self._head.append((stream, begin))
            self._head_size += len(begin.encode("utf-8", "replace"))
            text = text[len(begin) :]
            if not text:
                return
            self._head_limit = self._head_size  # Later output goes to the tail only.
        size = len(text.encode("utf-8", "replace"))
        self._tail.append((stream, text, size))
        self._tail_size += size
        while self._tail_size > self._tail_limit:
            name, oldest, size = self._tail.popleft()
            over = self._tail_size - self._tail_limit
            self._tail_size -= size
            rest = "" if size <= over else oldest.encode("utf-8", "replace")[over:].decode("utf-8", "ignore")
            if rest:
                size = len(rest.encode("utf-8", "replace"))
                self._tail.appendleft((name, rest, size))
                self._tail_size += size
            self._dropped[name] = self._dropped.get(name, 0) + len(oldest) - len(rest)

    def show(self, data: Mapping[str, Any], main: bool) -> None:
        """Report what the code shows, by media types; `main`: it is the value of the cell."""
        self._report_begun()
        if self._on_chunk is not None:
            self._on_chunk(OutputChunk("shown", json.dumps({"main": main, "data": data})))

    def mark(self, name: str) -> None:
        """Note that a file is shown after the output so far."""
        if len(self._marks) < _MOST_ARTIFACTS and len(name) <= _LONGEST_NAME:
            self._marks[name] = self._length

    def marked(self) -> dict[str, int]:
        """The files that are shown, with the places in the text of both streams."""
        dropped = sum(self._dropped.values())
        if not dropped:
            return self._marks
        head, shift = sum(len(text) for _, text in self._head), len(self.text()) - self._length
        return {name: place if place <= head else max(head, place + shift) for name, place in self._marks.items()}

    def finish(self) -> None:
        """End the output; incomplete characters are replaced."""
        for stream in self._decoders:
            self.add(stream, b"", final=True)
        self._report_begun()
        self._on_chunk = None  # Later output is not reported.

    def _report(self, chunk: OutputChunk) -> None:
        if self._begun is not None and self._begun.stream == chunk.stream:
            chunk, self._begun = OutputChunk(chunk.stream, self._begun.text + chunk.text), None
        self._report_begun()
        self._begun = chunk
        if self._loop is None or chunk.text.endswith("\n") or len(chunk.text) > _LONGEST_BEGUN:
            self._report_begun()
        else:
            self._loop.call_later(_LINE_SECONDS, lambda: self._report_begun() if self._begun is chunk else None)

    def _report_begun(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None and self._on_chunk is not None:
            self._on_chunk(begun)

    def text(self, stream: StreamName | None = None) -> str:
        """Return what was kept of one stream, or of both in the order of writing."""
        head = "".join([text for name, text in self._head if stream in (None, name)])
        tail = "".join([text for name, text, _ in self._tail if stream in (None, name)])
        dropped = sum([count for name, count in self._dropped.items() if stream in (None, name)])
        if not dropped:
            return head + tail
        gap = "" if not head or head.endswith("\n") else "\n"
        return f"{head}{gap}[... {dropped:,} characters left out ...]\n{tail}"

    def make_result(self, **facts: Any) -> ExecutionResult:
        """Make a result with this output and other facts."""
        stdout, stderr = self.text("stdout"), self.text("stderr")
        return ExecutionResult(
            **facts,
            stdout=stdout,
            stderr=stderr,
            output=self.text() if stdout and stderr else stdout or stderr,
            truncated=self.truncated,
            output_size=self.size,
        )


def artifacts_of(
    untrusted: Any, contents: bytes, workspace: Path | None, places: Mapping[str, int]
) -> tuple[Artifact, ...]:
    """The artifacts that a cell reports: from memory with their contents, from a workspace here with their paths.

    Of a workspace here, those that are not regular files are left out. `places` are those of the ones that are shown.
    """
    found: list[Artifact] = []
    offset = 0
    for item in untrusted[:_MOST_ARTIFACTS] if isinstance(untrusted, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        name, size, length = encodable(item["name"]), item.get("size"), item.get("length")
        if type(size) is not int or not 0 <= size < 1 << 63 or len(name) > _LONGEST_NAME:
            continue
        data = None
        if type(length) is int and 0 <= length <= len(contents) - offset:
            data = contents[offset : offset + length]
            offset += length
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        artifact = Artifact(name, size, media_type, None, data, places.get(item["name"]))
        if workspace is None:
            found.append(artifact)
            continue
        path, root = workspace / name, workspace.resolve()
        # Names are untrusted and may point anywhere.
        with contextlib.suppress(OSError, ValueError):
            facts = path.lstat()
            real = path.resolve()
            if real == root / name and real.is_relative_to(root) and stat.S_ISREG(facts.st_mode):
                found.append(replace(artifact, path=path, size=facts.st_size))
    order = {name: number for number, name in enumerate(places)}
    return tuple(sorted(found, key=lambda artifact: order.get(artifact.name, len(order))))
