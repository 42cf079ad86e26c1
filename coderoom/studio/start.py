"""Starts AutoGen Studio and its server process, and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console

from coderoom._util.text import visible
from coderoom.configs import make_gallery
from coderoom.errors import RequestError, StudioError
from coderoom.executors import adopt_orphans, descendants, kill_until_gone
from coderoom.models.services import OPENAI, key_of
from coderoom.studio.contents import Contents, RefusedError, Rest, forget_if_new
from coderoom.studio.environment import (
    Report,
    default_folder,
    open_log,
    prepare_environment,
    server_environment,
    use_folder,
)

_WINDOWS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_NO_KEY: Final = (
    "OPENAI_API_KEY is not set, and teams with OpenAI's models need it; --model gives all of them another model."
)


@dataclass(frozen=True)
class RunningStudio:
    """A Studio that answers.

    Attributes:
        url: Its address.
        appdir: The folder with its teams, sessions and runs.
        log: The log of its server.
        left: The contents of an earlier start that this one left unchanged, each with the reason.
        lacks_key: Whether teams have OpenAI's models and there is no key for them.
    """

    url: str
    appdir: Path
    log: Path
    left: Sequence[str] = ()
    lacks_key: bool = False

    def to_json(self) -> dict[str, Any]:
        """The facts for programs. Ending the process `pid` ends everything."""
        places = {"url": self.url, "appdir": str(self.appdir), "log": str(self.log)}
        return {**places, "pid": os.getpid(), "left": list(self.left)}

    def open(self) -> None:
        """Open it in the browser, if there is a graphical one."""
        # A text browser would take the terminal.
        if sys.platform != "linux" or any(os.environ.get(name) for name in _WINDOWS):
            threading.Thread(target=_open, args=(self.url,), daemon=True).start()

    def show(self, console: Console) -> None:
        """Print the facts for a person."""
        lines = [
            f"AutoGen Studio with CodeRoom's teams: {self.url}",
            f"Teams, sessions and runs are kept in {self.appdir}; the log is {self.log}",
            *(f"Left unchanged: {what}" for what in self.left),
            *((_NO_KEY,) if self.lacks_key else ()),
            "It has no authentication: anyone who can reach this port on this machine can run code here as you.",
            "Ctrl-C ends it.",
        ]
        for line in lines:
            console.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def run_studio(
    teams: Sequence[str | Path],
    console: Console,
    *,
    appdir: Path | None = None,
    port: int = 8081,
    model: str | None = None,
    trust: Sequence[str] = (),
    begin: Callable[[RunningStudio], None],
) -> NoReturn:
    """Start AutoGen Studio with CodeRoom's teams and serve it until a signal comes.

    Args:
        teams: More teams, as for `load_team`.
        console: Where to print the progress.
        appdir: The folder for Studio's data; `None`: one below the user's data folder.
        port: The port on this machine; 0 is any free one.
        model: A text that `make_model` understands; this model replaces those of the teams.
        trust: Namespaces whose components may be loaded, besides `autogen_*` and `coderoom`.
        begin: Called when Studio answers.

    Raises:
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP came; everything has ended.
        ConfigError: A team has mistakes.
        RequestError: A team does not exist, or the port or the folder cannot be used.
        MissingDependencyError: Studio cannot be installed, or a trusted package does not work in its environment.
        StudioError: The server did not start, or ended unexpectedly.
    """
    gallery = make_gallery(teams, model=model, trust=trust)
    key = None if model is None else key_of(model, os.environ)
    folder = (appdir or default_folder()).absolute()
    with _signals_interrupt(), use_folder(folder) as lock, listen(port) as listening:
        log = folder / "studio.log"
        forget_if_new(folder)
        with contextlib.ExitStack() as stack:
            with _progress(console) as report:
                interpreter = prepare_environment(report)
                report("Starting AutoGen Studio")
                environment = server_environment(interpreter, trust, key)
                server = stack.enter_context(run_server(interpreter, folder, log, listening, lock, environment))
                server.wait_until_ready()
                try:
                    left = Contents(Rest(server.port), folder).put(gallery)
                except (OSError, RefusedError) as error:
                    # Only Studio's log says that its database cannot be read.
                    raise StudioError(
                        f"CodeRoom's teams cannot be put into AutoGen Studio: {error}. If the database in "
                        f"{str(folder)!r} is broken, or of another Studio, name another folder with --appdir."
                        f"{server.end_of_log()}"
                    ) from error
            models = gallery["components"]["models"]
            needs_key = any(model["provider"] == OPENAI and "api_key" not in model["config"] for model in models)
            has_key = key is not None or any(os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"))
            begin(RunningStudio(server.url, folder, log, left, needs_key and not has_key))
            server.wait()


def _open(url: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Report]:
    with console.status("") as status:

        def report(words: str, detail: str = "") -> None:
            if console.is_terminal:
                status.update(f"{words}{detail}")
            elif not detail:
                console.print(words, soft_wrap=True)

        yield report


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a `KeyboardInterrupt`, and ignore further ones."""
    # Under `nohup`, or in the background of a script, some of them are ignored.
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(number: int, frame: Any) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 90
_END_SECONDS: Final = 5
_SETTLE_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 0.1
_LINES_SHOWN: Final = 20


def listen(port: int) -> socket.socket:
    """Listen on a port of this machine; 0 is any free one."""
    listening = socket.socket()
    try:
        # The port of a server that has just ended can be used again.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise RequestError(
            f"Port {port} cannot be used: {os.strerror(error.errno or 0)}. Choose another with --port, or any free "
            "one with --port 0."
        ) from error
    return listening


class StudioServer:
    """A running server of AutoGen Studio."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._log = log
        self.port = port
        self.url = f"http://{_HOST}:{port}"

    def wait_until_ready(self) -> None:
        """Wait for its first response; a server that ends or does not respond is a `StudioError`."""
        rest = Rest(self.port, timeout=5)
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise self._ended()
            with contextlib.suppress(OSError, RefusedError):
                rest.ask("GET", "/health")
                return
            time.sleep(_AGAIN_SECONDS)
        raise StudioError(f"AutoGen Studio did not answer within {_START_SECONDS} seconds.{self.end_of_log()}")

    def wait(self) -> NoReturn:
        """Wait until the server ends, which is a `StudioError`."""
        self._process.wait()
        raise self._ended()

    def _ended(self) -> StudioError:
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return StudioError(f"AutoGen Studio ended unexpectedly ({how}).{self.end_of_log()}")

    def end_of_log(self) -> str:
        """The end of its log, to append to a message."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_SHOWN:]
        shown = "\n".join(f"  {line}" for line in lines)
        return f" The last lines of {str(self._log)!r}:\n{shown}" if lines else ""


@contextlib.contextmanager
def run_server(
    interpreter: Path,
    appdir: Path,
    log: Path,
    listening: socket.socket,
    lock: int,
    environment: Mapping[str, str],
) -> Iterator[StudioServer]:
    """Start a server with a listening socket, and at the end stop it and its child processes.

    The server keeps the descriptor `lock` open while it lives.
    """
    port = listening.getsockname()[1]
    adopt_orphans()  # A killed server leaves its child processes to this one.
    others = set(descendants(os.getpid()))
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as life, os.fdopen(writer, "wb") as hold:
        with listening, open_log(log) as file:
            kept = (listening.fileno(), life.fileno(), lock)
            process = subprocess.Popen(
                # -P: import nothing from the current folder. -B: write nothing to linked packages.
                [interpreter, "-P", "-B", "-m", "coderoom.studio.serve", appdir, *map(str, kept)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                pass_fds=kept,
                start_new_session=True,  # Ctrl-C in a terminal goes to this process, which ends the server.
            )
        try:
            yield StudioServer(process, port, log)
        finally:
            hold.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.returncode:
                time.sleep(_SETTLE_SECONDS)  # Sandboxes end by themselves, and temporary folders are removed.
                kill_until_gone(lambda: [pid for pid in descendants(os.getpid()) if pid not in others])
