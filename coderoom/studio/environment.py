"""The virtual environment that AutoGen Studio runs in: created once, kept in the cache folder, shared by all starts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from coderoom._util.temporary import remove_folder
from coderoom.errors import MissingDependencyError
from coderoom.studio.folder import take_lock

__all__ = ["PINS", "environment_folder", "prepare_environment", "without_python_settings"]

PINS: Final = Path(__file__).with_name("requirements.txt")
"""The exact version of every package in it."""

_READY = ".ready"
_LAST_LINES = 15
_ELSEWHERE = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET")
_NO_VENV = "Install it (Debian, Ubuntu: apt-get install python3-venv), and start again."


class Tell(Protocol):
    """Reports what is being done, and the progress."""

    def __call__(self, words: str, detail: str = "") -> None: ...


def environment_folder(pins: Path = PINS, python: str = sys.executable) -> Path:
    """The path of the environment for these pins and this interpreter."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kind = [sys.implementation.cache_tag or "", sysconfig.get_platform(), str(Path(python).resolve())]
    key = hashlib.sha256("\0".join([*kind, pins.read_text(encoding="utf-8")]).encode()).hexdigest()[:16]
    return base.absolute() / "coderoom" / f"studio-{key}"


def prepare_environment(tell: Tell, *, pins: Path = PINS, python: str = sys.executable) -> Path:
    """Create the environment unless it exists.

    Args:
        tell: Reports progress; not called if the environment exists.
        pins: What to install, as a requirements file that names everything.
        python: The interpreter that the environment is made with.

    Returns:
        The environment's interpreter.

    Raises:
        MissingDependencyError: It cannot be created; the message has the end of pip's output and what to do.
    """
    folder = environment_folder(pins, python)
    interpreter = folder / "bin" / "python"
    if _is_ready(folder):
        return interpreter
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        wait = partial(tell, "Another start is installing AutoGen Studio; waiting for it")
        lock = take_lock(folder.with_name(f"{folder.name}.lock"), wait)
        try:
            if not _is_ready(folder):  # Another process may have created it meanwhile.
                remove_folder(folder)
                _make(folder, interpreter, tell, pins, python, lock)
                (folder / _READY).touch()
        finally:
            os.close(lock)
    except OSError as error:
        raise MissingDependencyError(
            f"The environment for AutoGen Studio cannot be made: {error}. XDG_CACHE_HOME names another cache folder."
        ) from error
    return interpreter


def without_python_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables without those for another interpreter, such as `PYTHONPATH` and `PYTHONWARNINGS`."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTHON")}


def _is_ready(folder: Path) -> bool:
    # The interpreter is a link to one that may have been uninstalled.
    return (folder / _READY).exists() and (folder / "bin" / "python").exists()


def _make(folder: Path, interpreter: Path, tell: Tell, pins: Path, python: str, lock: int) -> None:
    tell("Making an environment for AutoGen Studio")
    # Debian's Python has `venv` always, and `ensurepip` only with the package python3-venv.
    venv = [python, "-m", "venv", "--without-pip", str(folder)]
    _run(venv, lock, f"{python} cannot make virtual environments. {_NO_VENV}")
    pip = [str(interpreter), "-m", "pip"]
    if _fails([str(interpreter), "-m", "ensurepip"], lock):
        pip = [python, "-m", "pip", "--python", str(interpreter)]
        if _fails([*pip, "--version"], lock):
            raise MissingDependencyError(
                f"AutoGen Studio cannot be installed: {python} has neither pip nor `ensurepip`. {_NO_VENV}"
            )
    options = ["--no-deps", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    install = [*pip, "install", *options, "--requirement", str(pins)]
    remedy = f"To see all of pip's output, run it by hand; start again when it succeeds:\n  {shlex.join(install)}"
    _run(install, lock, remedy, _progress(tell, pins))


def _progress(tell: Tell, pins: Path) -> Callable[[str], None]:
    """Turn pip's output into progress reports."""
    total = sum("==" in line for line in pins.read_text(encoding="utf-8").splitlines())
    begun = 0
    words = "Installing AutoGen Studio, which takes a minute or two and is done once"
    tell(words)

    def follow(line: str) -> None:
        nonlocal begun
        if line.startswith("Collecting "):
            begun += 1
            tell(words, f": {begun} of {total} packages")
        elif line.startswith("Installing collected packages"):
            tell(words, ": unpacking")

    return follow


def _fails(command: Sequence[str], lock: int) -> bool:
    return _call(command, lock, lambda line: None) != 0


def _run(command: Sequence[str], lock: int, remedy: str, follow: Callable[[str], None] | None = None) -> None:
    output: deque[str] = deque(maxlen=_LAST_LINES)

    def hear(line: str) -> None:
        if line.strip():
            output.append(line.rstrip())
        if follow is not None:
            follow(line)

    if _call(command, lock, hear):
        words = "\n".join(f"  {line}" for line in output)
        raise MissingDependencyError(
            f"AutoGen Studio cannot be installed. The last lines of the output:\n{words}\n{remedy}"
        )


def _call(command: Sequence[str], lock: int, hear: Callable[[str], None]) -> int:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(),
        # If this process is killed, its child holds the lock until it ends.
        pass_fds=(lock,),
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                hear(line)
        except BaseException:
            # For another interpreter, pip starts a child process.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode


def _environment() -> dict[str, str]:
    # The user may have configured pip to install elsewhere.
    kept = {name: value for name, value in without_python_settings(os.environ).items() if name not in _ELSEWHERE}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
