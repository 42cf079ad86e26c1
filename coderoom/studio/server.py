"""Starts Studio's server process, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from coderoom._util.python import VARIABLE, default_python
from coderoom._util.temporary import temporary_folder
from coderoom.errors import MissingDependencyError, RequestError, StudioError
from coderoom.studio.environment import PINS, without_python_settings
from coderoom.studio.folder import open_log
from coderoom.studio.marks import end_orphans
from coderoom.studio.rest import RefusedError, Rest
from coderoom.studio.trusted import check_imports, link_packages, modules_of, pinned

__all__ = ["StudioServer", "listen", "run_server", "server_environment"]

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 90
_END_SECONDS: Final = 5
_AGAIN_SECONDS: Final = 0.1
_LINES_TOLD: Final = 20
_TRUSTED: Final = "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"


def listen(port: int) -> socket.socket:
    """Listen on a port of this machine; 0 is any that is free.

    Raises:
        RequestError: It is in use or not allowed.
    """
    listening = socket.socket()
    try:
        # A port that an earlier server has just closed is free.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise RequestError(
            f"Port {port} cannot be used: {os.strerror(error.errno or 0)}. Choose another with --port, or any that is "
            "free with --port 0."
        ) from error
    return listening


class StudioServer:
    """A running server of AutoGen Studio.

    Args:
        process: Its process.
        port: The port that it listens on.
        log: Its log file.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._log = log
        self.port = port
        self.url = f"http://{_HOST}:{port}"

    def wait_until_it_answers(self) -> None:
        """Wait for its first response.

        Raises:
            StudioError: It ended, or does not respond.
        """
        rest = Rest(self.port, timeout=5)
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise self._ended()
            with contextlib.suppress(OSError, RefusedError):
                rest.ask("GET", "/health")
                return
            time.sleep(_AGAIN_SECONDS)
        raise StudioError(f"AutoGen Studio did not answer within {_START_SECONDS} seconds.{self.last_words()}")

    def wait_for_its_end(self) -> NoReturn:
        """Wait for the end of the server.

        Raises:
            StudioError: It ended by itself.
        """
        self._process.wait()
        raise self._ended()

    def _ended(self) -> StudioError:
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return StudioError(f"AutoGen Studio ended by itself ({how}).{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log, to append to a message."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_TOLD:]
        told = "\n".join(f"  {line}" for line in lines)
        return f" The last lines of {str(self._log)!r}:\n{told}" if lines else ""


@contextlib.contextmanager
def run_server(
    interpreter: Path,
    appdir: Path,
    log: Path,
    listening: socket.socket,
    lock: int,
    environment: Mapping[str, str],
) -> Iterator[StudioServer]:
    """Start a server; at the end, end it and its child processes.

    Args:
        interpreter: The interpreter of Studio's environment.
        appdir: Studio's folder.
        log: Its log file.
        listening: The socket to serve on; it is closed here.
        lock: A descriptor that the server keeps open as long as it lives.
        environment: The result of `server_environment`.
    """
    port = listening.getsockname()[1]
    life, hold = os.pipe()
    try:
        with listening, open_log(log) as file:
            kept = (listening.fileno(), life, lock)
            process = subprocess.Popen(
                # -P: nothing is imported from the current folder. -B: nothing is written to linked packages.
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
            os.close(hold)
            hold = -1
            _await_end(process)
            if process.returncode:
                end_orphans()
    finally:
        for fd in (life, hold):
            if fd >= 0:
                os.close(fd)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _some_key(environment: Mapping[str, str]) -> Mapping[str, str]:
    """OpenAI's client requires a key; the user's own server often needs none."""
    if environment.get("OPENAI_BASE_URL") and not environment.get("OPENAI_API_KEY"):
        return {**environment, "OPENAI_API_KEY": "none"}
    return environment


def server_environment(interpreter: Path, trust: Sequence[str], components: Any = None) -> dict[str, str]:
    """The environment variables of the server, which make the user's packages importable.

    Args:
        interpreter: The interpreter of Studio's environment.
        trust: Namespaces whose components may be loaded, besides CodeRoom's and AutoGen's.
        components: The components for Studio; the modules that they and `trust` name must be importable.

    Raises:
        MissingDependencyError: One of them is not importable, or needs other versions than Studio.
    """
    named = ["coderoom", *trust, *os.environ.get(_TRUSTED, "").split(",")]
    trusted = list(dict.fromkeys(name.strip() for name in named if name.strip()))
    folder, versions = temporary_folder(), pinned(PINS)
    conflicts = link_packages(folder, trusted, versions)
    environment = {
        **_some_key(without_python_settings(os.environ)),
        # The same CodeRoom, and the same interpreter for code, as here.
        "PYTHONPATH": str(folder),
        VARIABLE: default_python(),
        _TRUSTED: ",".join(trusted),
    }
    # The variable may name packages for other programs; those need not work here.
    modules = {*(name.partition(".")[0] for name in trust), *modules_of(components, trusted[1:])}
    wrong = [
        words for root in sorted({module.partition(".")[0] for module in modules}) for words in conflicts.get(root, ())
    ]
    if wrong:
        told = "\n".join(f"  {words}" for words in wrong)
        raise MissingDependencyError(
            f"What --trust names does not fit into AutoGen Studio's environment:\n{told}\nInstall versions that take "
            "those beside CodeRoom, or start without --trust and the teams that need it."
        )
    check_imports(interpreter, environment, modules)
    return environment
