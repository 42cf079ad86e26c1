"""Runs one program with everything that it starts, keeps its output in bounds, and ends all of it.

    python -I -S _launch.py CONTROL PROGRAM [ARGUMENT...]

This is a script, started in place of the program itself. It needs the standard library of Python 3.8 and nothing else.
`CONTROL` is a private folder: `settings.json` is read from it, `report.json` and `whole.txt` are written to it. How the
program ended is known from the report, so that nothing a program prints can claim another ending.

It is written for Linux, where a subreaper sees every orphan of the program again, also one that made itself a daemon.
Elsewhere only the program's own process group is ended. It is no wall: the program runs with its user's rights.
"""

# pathlib is slow to import, and this script is started for every piece of code.
# ruff: noqa: PTH105, PTH108, PTH110, PTH112, PTH114, PTH118, PTH123, PTH208

from __future__ import annotations

import codecs
import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any

KEEP = 1 << 20  # bytes of output that are handed on
WHOLE = 64 << 20  # bytes of output that are written to the file
TIMEOUT_CODE = 124
CANCELLED_CODE = 125
BROKEN_CODE = 70
STOP_GRACE = 0.3  # from asking the processes to end until they are killed
LEFTOVER_GRACE = 0.2  # for what outlives the program by a moment, such as the `tee` of a process substitution
KILL_PATIENCE = 2.0
PARENT_CHECK = 0.5
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> bool:
    """Call Linux's `prctl`; false where there is none."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def descendants(*roots: int) -> list[int]:
    """Return the ids of all living processes below `roots`; none where there is no `/proc`."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            # A process may end between the listing and the reading.
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                # The program's name is in parentheses and may itself contain some.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    open_ends = [*roots]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes of which some may be gone by now."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class Output:
    """The output of the program: its beginning and its end in memory, the whole of it in a file."""

    def __init__(self, path: str, keep: int, whole: int) -> None:
        self.path = path
        self.head_size = keep * 6 // 10
        self.tail_size = keep - self.head_size
        self.room = whole
        self.head = bytearray()
        self.tail = bytearray()
        self.total_bytes = 0
        self.total_chars = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def feed(self, chunk: bytes) -> None:
        """Take the next piece."""
        self.total_bytes += len(chunk)
        self.total_chars += len(self._decoder.decode(chunk))
        self._save(chunk)
        missing = self.head_size - len(self.head)
        if missing > 0:
            self.head += chunk[:missing]
            chunk = chunk[missing:]
        self.tail += chunk
        if len(self.tail) > 2 * self.tail_size:
            del self.tail[: -self.tail_size]

    def _save(self, chunk: bytes) -> None:
        piece = memoryview(chunk)[: self.room]
        try:
            while self._file is not None and piece:
                written = os.write(self._file, piece)
                self.room -= written
                piece = piece[written:]
        except OSError:  # A full disk costs the copy and not the run.
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def truncated(self) -> bool:
        """Whether the kept text is less than the whole."""
        return self.total_bytes > self.head_size + self.tail_size

    def text(self) -> str:
        """Return what was kept, as text that can be encoded."""
        if not self.truncated:
            return bytes(self.head + self.tail).decode("utf-8", "replace")
        head, tail = bytes(self.head), bytes(self.tail[-self.tail_size :])
        # Cut at line ends where one is near.
        end = head.rfind(b"\n", max(0, len(head) - 4096))
        head = head[: end + 1] if end >= 0 else head
        start = tail.find(b"\n", 0, 4096)
        tail = tail[start + 1 :] if start >= 0 else tail
        left_out = self.total_bytes - len(head) - len(tail)
        notice = f"[... {left_out:,} of {self.total_bytes:,} bytes left out ...]\n"
        gap = "" if head.endswith(b"\n") else "\n"
        return head.decode("utf-8", "replace") + gap + notice + tail.decode("utf-8", "replace")


class Launch:
    """One run of a program."""

    def __init__(self, control: str, settings: dict[str, Any]) -> None:
        self.host = int(settings["host"])
        self.settings = settings
        self.output = Output(
            os.path.join(control, "whole.txt"), int(settings.get("keep", KEEP)), int(settings.get("whole", WHOLE))
        )
        self.stopped: str | None = None  # the outcome, if it was not the program that came to its end
        self.signalled = False
        self.child = 0
        self.status: int | None = None
        self.childless = False
        self.exact = False
        self.pipe: int | None = None
        self.wake, self._wake_end = os.pipe()

    def guard(self) -> None:
        """See to it that this process ends with its host, and that all below it can be found."""
        with contextlib.suppress(OSError):
            os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        self.exact = prctl(PR_SET_CHILD_SUBREAPER, 1)
        for end in (self.wake, self._wake_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def _on_stop(self, number: int, frame: object) -> None:
        self.signalled = True

    def host_is_gone(self) -> bool:
        """Tell whether the process that wanted this run has ended."""
        return os.getppid() != self.host

    def start(self, command: list[str]) -> None:
        """Start the program, with both its outputs in one pipe so that their order is kept."""
        self.pipe, writing = os.pipe()
        os.set_blocking(self.pipe, False)
        failed, failing = os.pipe()
        launcher = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            self._become(command, writing, failing, launcher)
        os.close(writing)
        os.close(failing)
        problem = os.read(failed, 4096)  # Empty as soon as the program has taken over.
        os.close(failed)
        if problem:
            raise RuntimeError(problem.decode("utf-8", "replace"))

    def _become(self, command: list[str], output: int, failing: int, launcher: int) -> None:
        try:
            # A group of its own, so that a program which ends its own group does not end its keeper.
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:
                os._exit(127)
            for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and a program inherits that.
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if self.settings.get("cwd"):
                os.chdir(self.settings["cwd"])
            os.execve(command[0], command, child_environment(self.settings))
        except BaseException as error:  # The fork must never go on as a second launcher.
            os.write(failing, f"{command[0]!r} cannot be started: {error}".encode("utf-8", "replace"))
        finally:
            os._exit(127)

    def pump(self, seconds: float) -> None:
        """Wait for something to happen, at most so long; read what there is and collect who ended."""
        sources = [self.wake] if self.pipe is None else [self.wake, self.pipe]
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self.wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)
        if self.pipe is not None and self.pipe in ready:
            self._read()
        while not self.childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.child:
                self.status = status

    def _read(self) -> bool:
        try:
            chunk = os.read(self.pipe or 0, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            os.close(self.pipe or 0)
            self.pipe = None
            return False
        self.output.feed(chunk)
        return True

    def wait(self, end: float) -> None:
        """Wait until the program has ended or has to end."""
        while self.status is None:
            left = end - time.monotonic()
            if self.signalled or self.host_is_gone():
                self.stopped = "cancelled"
                return
            if left <= 0:
                self.stopped = "timeout"
                return
            # The look at the parent is for systems without a signal for its death.
            self.pump(min(left, PARENT_CHECK))

    def end(self) -> None:
        """End whatever is left, and take the last of the output."""
        if self.stopped:
            self._signal_all(signal.SIGTERM)
        end = time.monotonic() + (STOP_GRACE if self.stopped else LEFTOVER_GRACE)
        while not self.childless and time.monotonic() < end:
            self.pump(0.05)
        end = time.monotonic() + KILL_PATIENCE
        if not self.exact:
            self._signal_all(signal.SIGKILL)
        # Where orphans come back to this process, having no child is having no descendant.
        while not self.childless and time.monotonic() < end:
            self._signal_all(signal.SIGKILL)
            self.pump(0.02)
        end = time.monotonic() + STOP_GRACE
        while self.pipe is not None and time.monotonic() < end and self._read():
            pass
        self.output.close()

    def _signal_all(self, number: int) -> None:
        send(descendants(os.getpid()), number)
        if not self.exact and self.child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child, number)

    def report(self, seconds: float) -> dict[str, Any]:
        """Return how it ended."""
        if self.stopped:
            outcome, code = self.stopped, TIMEOUT_CODE if self.stopped == "timeout" else CANCELLED_CODE
        else:
            status = self.status or 0
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            outcome = "error" if code else "ok"
        return {
            "outcome": outcome,
            "exit_code": code,
            "duration": seconds,
            "total_bytes": self.output.total_bytes,
            "total_chars": self.output.total_chars,
            "truncated": self.output.truncated,
            "whole": self.output.path if os.path.exists(self.output.path) else None,
        }


def child_environment(settings: dict[str, Any]) -> dict[str, str]:
    """Return the program's environment: ours, or of ours the names that are allowed."""
    names, prefixes = settings.get("names"), tuple(settings.get("prefixes", ()))
    allowed = {
        name: value
        for name, value in os.environ.items()
        if names is None or name in names or (prefixes and name.startswith(prefixes))
    }
    return {**allowed, **settings.get("set", {})}


def write_report(control: str, report: dict[str, Any]) -> None:
    """Write the report whole or not at all."""
    path = os.path.join(control, "report.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(path + ".new", path)


def remove(paths: list[str]) -> None:
    """Remove what the host would have removed, had it lived."""
    import shutil  # Rarely needed, and slow to import.

    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)


def hand_on(text: str) -> None:
    """Write the output to our own; a reader who went away is no failure."""
    data = memoryview(text.encode("utf-8", "replace"))
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


def main(arguments: list[str]) -> int:
    """Run the program of the command line and return the exit code to end with."""
    control = arguments[0]
    with open(os.path.join(control, "settings.json"), encoding="utf-8") as file:
        settings = json.load(file)
    launch = Launch(control, settings)
    launch.guard()
    begin = time.monotonic()
    try:
        try:
            launch.start(settings.get("command") or arguments[1:])
            launch.wait(begin + float(settings["deadline"]))
        finally:
            launch.end()
        report = launch.report(time.monotonic() - begin)
    except Exception as error:  # Told as our failure: it must not look like the program's.
        report = {"outcome": "unavailable", "exit_code": BROKEN_CODE, "message": str(error) or repr(error)}
    if launch.host_is_gone():
        remove(settings.get("litter", []))
        return int(report["exit_code"])
    write_report(control, report)
    # From here on nothing is left to end but this process, so a signal may do what it does by nature. Who sent one has
    # stopped reading, and writing to them could wait for ever.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not launch.signalled:
        hand_on(launch.output.text())
    return int(report["exit_code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
