"""The server's process, as whoever started it sees it."""

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
    """Take a port of this machine; 0 is any that is free.

    Raises:
        RequestError: It is in use, or not for this user.
    """
    listening = socket.socket()
    try:
        # What an earlier server has closed a moment ago does not count.
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
    """A server of AutoGen Studio that was started.

    Args:
        process: Its process.
        port: The port that it listens on.
        log: The file that it writes to.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._log = log
        self.port = port
        self.url = f"http://{_HOST}:{port}"

    def wait_until_it_answers(self) -> None:
        """Wait for its first answer.

        Raises:
            StudioError: It ended, or answers nothing.
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
        """Wait as long as it serves.

        Raises:
            StudioError: It has ended by itself.
        """
        self._process.wait()
        raise self._ended()

    def _ended(self) -> StudioError:
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return StudioError(f"AutoGen Studio ended by itself ({how}).{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log, as a text to put behind a sentence."""
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
    """Start a server; at the end, end it and all that is below it.

    Args:
        interpreter: That of Studio's environment.
        appdir: Studio's folder.
        log: The file for what it writes.
        listening: The socket to serve; it is closed here.
        lock: A descriptor that the server keeps open as long as it lives.
        environment: What `server_environment` has made.
    """
    port = listening.getsockname()[1]
    life, hold = os.pipe()
    try:
        with listening, open_log(log) as file:
            kept = (listening.fileno(), life, lock)
            process = subprocess.Popen(
                # -P: what lies in the current folder is not to be imported. -B: nothing is written to what is linked.
                [interpreter, "-P", "-B", "-m", "coderoom.studio.serve", appdir, *map(str, kept)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                pass_fds=kept,
                start_new_session=True,  # Ctrl-C at a terminal is for this process, which then ends that one.
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
    """OpenAI's client insists on a key; a server of one's own often needs none."""
    if environment.get("OPENAI_BASE_URL") and not environment.get("OPENAI_API_KEY"):
        return {**environment, "OPENAI_API_KEY": "none"}
    return environment


def server_environment(interpreter: Path, trust: Sequence[str], components: Any = None) -> dict[str, str]:
    """The environment of the server, in which packages of the user's can be imported.

    Args:
        interpreter: That of Studio's environment.
        trust: Namespaces whose components may be loaded, besides CodeRoom's and AutoGen's.
        components: Those that Studio is to have; what they and `trust` name must be importable.

    Raises:
        MissingDependencyError: It is not, or needs other versions than Studio.
    """
    named = ["coderoom", *trust, *os.environ.get(_TRUSTED, "").split(",")]
    trusted = list(dict.fromkeys(name.strip() for name in named if name.strip()))
    folder, versions = temporary_folder(), pinned(PINS)
    conflicts = link_packages(folder, trusted, versions)
    environment = {
        **_some_key(without_python_settings(os.environ)),
        # CodeRoom there is the one that runs here, and code finds the packages that it would find here.
        "PYTHONPATH": str(folder),
        VARIABLE: default_python(),
        _TRUSTED: ",".join(trusted),
    }
    # The variable may name what is for other programs; what is not used here need not work.
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
