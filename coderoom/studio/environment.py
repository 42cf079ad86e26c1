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
from coderoom.studio.locks import take_lock

__all__ = ["PINS", "environment_folder", "prepare_environment", "without_python_settings"]

PINS: Final = Path(__file__).with_name("requirements.txt")
"""The exact versions of everything in it."""

_READY = ".ready"
_LINES_TOLD = 15
_ELSEWHERE = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET")
_NO_VENV = "Install it (Debian, Ubuntu: apt-get install python3-venv), and start again."


class Tell(Protocol):
    """Reports what is being done, and the progress."""

    def __call__(self, words: str, detail: str = "") -> None: ...


def environment_folder(pins: Path = PINS, python: str = sys.executable) -> Path:
    """Where the environment of these pins is, or will be, for this interpreter."""
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
        MissingDependencyError: It cannot be made; the message has pip's last words and what to do.
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
            if not _is_ready(folder):  # Another start may have made it meanwhile.
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
    """The environment without what was said about another interpreter, such as `PYTHONPATH` and `PYTHONWARNINGS`."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTHON")}


def _is_ready(folder: Path) -> bool:
    # The interpreter is a link, to one that may have been uninstalled.
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
    remedy = f"To see all that pip says, run it by hand; when it goes well, start again:\n  {shlex.join(install)}"
    _run(install, lock, remedy, _progress(tell, pins))


def _progress(tell: Tell, pins: Path) -> Callable[[str], None]:
    """Make words of what pip prints."""
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
    said: deque[str] = deque(maxlen=_LINES_TOLD)

    def hear(line: str) -> None:
        if line.strip():
            said.append(line.rstrip())
        if follow is not None:
            follow(line)

    if _call(command, lock, hear):
        words = "\n".join(f"  {line}" for line in said)
        raise MissingDependencyError(f"AutoGen Studio cannot be installed. The last that was said:\n{words}\n{remedy}")


def _call(command: Sequence[str], lock: int, hear: Callable[[str], None]) -> int:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(),
        # Should this process be killed, what it started holds the lock until it has come to its end.
        pass_fds=(lock,),
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                hear(line)
        except BaseException:
            # For another interpreter, pip starts itself once more.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode


def _environment() -> dict[str, str]:
    # A user may have told pip to install elsewhere.
    kept = {name: value for name, value in without_python_settings(os.environ).items() if name not in _ELSEWHERE}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
