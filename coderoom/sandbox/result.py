"""The result of a cell, and its parts. Made by the engines, returned by `Sandbox.run` and `Session.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from coderoom._util.files import read_inside
from coderoom._util.html import LARGEST_PICTURE, PICTURES, lines_html, picture_html, shown_html, text_html
from coderoom._util.text import counted
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox.proxy.rules import shown

_MOST_SHOWN: Final = 20
Limit = Literal["wall", "cpu", "memory", "processes", "open_files", "file_size", "disk", "output", "value"]


@dataclass(frozen=True)
class CodeError:
    """Why a cell failed.

    Attributes:
        type: The name of the exception's class, `ValueError` for instance; `Exit` for an exit code other than 0,
            `Signal` for a process that was ended by a signal, `Timeout` for code that took too long, `Limit` for code
            that was ended at another limit, `Cancelled` for code that was cancelled, `PolicyError` for code that the
            policy rejected.
        message: The exception's text, or what happened and what to do about it.
        traceback: The traceback as it was written to standard error, with only the user's lines and their source;
            empty if there is none.
        line: The number of the line of the cell that failed, counted from 1, or `None`.
    """

    type: str
    message: str
    traceback: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return self.traceback or (f"{self.type}: {self.message}" if self.message else self.type)


@dataclass(frozen=True)
class Artifact:
    """A file that a cell created or changed.

    Attributes:
        name: Its path inside the workspace, with `/` between the parts.
        size: Its size in bytes.
        media_type: Its type, guessed from its name, for instance `image/png`.
        path: Its path on this machine; `None` if the workspace is not a folder of this machine.
        data: Its content if it has no path and all such contents of the cell together have at most 8 MiB; else `None`.
        position: How many characters of the cell's `output` come before it, if the code has shown it, for instance by
            `display` or `plt.show`; `None` for other files.
    """

    name: str
    size: int
    media_type: str
    path: Path | None = None
    data: bytes | None = None
    position: int | None = None

    def _repr_html_(self) -> str:
        shown = ""
        if self.media_type in PICTURES and self.size <= LARGEST_PICTURE and (data := self._content()):
            shown = picture_html(data, self.media_type, self.name)
        return f"<div>{text_html(self.name)} <small>{self.size:,} bytes</small>{shown}</div>"

    def _content(self) -> bytes | None:
        if self.path is None or self.data is not None:
            return self.data
        with suppress(OSError, RequestError):  # It may be gone, or a link now, which could lead anywhere.
            return read_inside(self.path.parents[self.name.count("/")], self.name, LARGEST_PICTURE)
        return None


@dataclass(frozen=True)
class OutputChunk:
    """A piece of output of a running cell.

    Attributes:
        stream: The stream that it was written to. `shown` is for what code shows by `display` and the like, where that
            does not become files: its forms by media types, as JSON.
        text: The text.
    """

    stream: Literal["stdout", "stderr", "shown"]
    text: str


@dataclass(frozen=True)
class FunctionCall:
    """A call that a cell made to a function of the host.

    Attributes:
        name: The function's name.
        arguments: Its arguments, by the names of the parameters; a long one is replaced by shortened text.
        outcome: `ok`; `error` if it raised an exception; `rejected` if it was not made, because the arguments did
            not fit, there were too many calls, or nobody allowed it; `timeout`; `cancelled` if the cell ended first.
        duration: How long it took, in seconds.
        error: Why it failed, as in the exception that the code got; `None` if it did not.
        edited: Whether the code gave other arguments, and an approval has edited the call.
        id: What tells it from all other calls; empty if that is not known.
        reads: Whether its function declares that its calls change nothing.
    """

    name: str
    arguments: Mapping[str, Any]
    outcome: Outcome
    duration: float
    error: str | None = None
    edited: bool = False
    id: str = field(default="", compare=False, repr=False)
    reads: bool = field(default=False, compare=False, repr=False)

    @property
    def has_effect(self) -> bool:
        """Whether it may have changed something: its function has run, and is not one that only reads."""
        return not self.reads and self.outcome is not Outcome.REJECTED

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        edited = ", as it was edited" if self.edited else ""
        return f"{self.name}({shown}){edited}: {self.outcome.value}{f', {self.error}' if self.error else ''}"


@dataclass(frozen=True)
class NetworkUse:
    """What a cell asked the proxy for: one host, let through or refused. There is none without a list of hosts.

    Attributes:
        host: The name or the address.
        port: The port; `None` if only the name was asked for.
        why: Why it was refused, or the connection failed, and what would allow it; empty if it was let through.
        connections: How many times.
        sent: Bytes that went to it.
        received: Bytes that came from it.
    """

    host: str
    port: int | None
    why: str = ""
    connections: int = 0
    sent: int = 0
    received: int = 0

    @property
    def place(self) -> str:
        """The host and the port as an allow-list has them."""
        return shown(self.host, self.port)

    def __str__(self) -> str:
        counts = f"{counted(self.connections, 'connection')}, {self.sent:,} bytes sent, {self.received:,} received"
        return self.why or f"{self.place}: {counts}"


def network_sum(uses: Iterable[NetworkUse]) -> tuple[NetworkUse, ...]:
    """What several cells asked for, with one entry for each host and port, and for each reason why it was refused."""
    found: dict[tuple[str, int | None, str], NetworkUse] = {}
    for use in uses:
        key = use.host, use.port, use.why
        old = found.get(key, NetworkUse(*key))
        counts = {name: getattr(old, name) + getattr(use, name) for name in ("connections", "sent", "received")}
        found[key] = replace(use, **counts)
    return tuple(found.values())


@dataclass(frozen=True)
class ExecutionResult:
    """The result of a cell.

    Attributes:
        outcome: How it ended.
        exit_code: 0, or what the code exited with; 1 for an exception, 124 for a timeout, 125 if it was cancelled,
            126 if it was rejected, 137 for too much memory, 128 plus the signal's number for a process ended by one.
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
        output: Both, in the order of writing. Programs that a Python cell starts have a separate pipe for each stream,
            so what they write to both at nearly the same time may be swapped.
        value: The value of a last expression. JSON-like data, tuples, sets, bytes, complex numbers, and decimals,
            fractions, UUIDs, dates and times of the standard library keep their type. NumPy's scalars and arrays
            become numbers, text and lists; a pandas `DataFrame` becomes a list of dicts, one for each row, and a
            `Series` a dict. Anything else is its `repr`. Under the restricted policy also the variable `result`.
        value_repr: The `repr` of that value, shortened if it is long; `None` if there was no value.
        value_is_data: Whether `value` is data, neither a `repr` nor the `None` for no value.
        error: Why it failed; `None` if it did not.
        duration: How long it took, in seconds.
        truncated: Whether part of its output was left out.
        output_size: How many bytes it wrote, including those left out.
        artifacts: The files that it created or changed in the workspace, the first hundred by name, without hidden
            ones; also pictures and HTML of what it has displayed, and of a last expression that is not data. Those that
            were displayed come first, in that order. Only for Python.
        artifacts_left_out: How many more there were.
        code: The code.
        limit: The limit that it met, if it met one; see `Limits`.
        state_lost: Whether the session was restarted, so that earlier variables are gone.
        peak_memory: The peak memory of its process in bytes, including what it shares with the warm worker; in a
            session, since its start. `None` if it is not known.
        calls: Its calls to functions of the host, in the order of arrival.
        network: The hosts that it asked for, with a list of hosts as `network`; also what ran beside it.
    """

    outcome: Outcome
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    value: Any = None
    value_repr: str | None = None
    value_is_data: bool = False
    error: CodeError | None = None
    duration: float = 0.0
    truncated: bool = False
    output_size: int = 0
    artifacts: tuple[Artifact, ...] = ()
    artifacts_left_out: int = 0
    code: str = ""
    limit: Limit | None = None
    state_lost: bool = False
    peak_memory: int | None = None
    calls: tuple[FunctionCall, ...] = ()
    network: tuple[NetworkUse, ...] = ()

    @property
    def success(self) -> bool:
        """Whether it ran to its end with exit code 0."""
        return self.outcome is Outcome.OK

    @property
    def result(self) -> Any:
        """The value; the name that `execute_code` uses."""
        return self.value

    def _repr_html_(self) -> str:
        facts = {
            "took": f"{self.duration:.3g} s",
            "limit": self.limit,
            "exit code": self.exit_code or "",
            "output": "cut" if self.truncated else "",
        }
        error = str(self.error) if self.error and str(self.error).strip() not in self.output else ""
        files = [artifact._repr_html_() for artifact in self.artifacts[:_MOST_SHOWN]]
        parts = [lines_html(self.output), lines_html(self.value_repr or "", "value"), lines_html(error), *files]
        if (more := max(len(self.artifacts) - _MOST_SHOWN, 0) + self.artifacts_left_out) > 0:
            parts.append(f"<div>and {counted(more, 'more file')}</div>")
        return shown_html(self.outcome.value, self.success, facts, *parts)


CANCELLED_CODE = 125
"""The exit code of code that was cancelled."""
OnOutput = Callable[[OutputChunk], None]
"""Is called with the output of code while it runs."""
