"""The virtual environment and the folder of AutoGen Studio, and the environment variables of its server."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, requires
from pathlib import Path
from typing import BinaryIO, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coderoom import __version__
from coderoom._util.processes import PYTHON_VARIABLE, default_python
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.models.services import NO_KEY

PINS: Final = Path(__file__).with_name("requirements.txt")
"""The exact version of every package in Studio's environment."""

_READY = ".ready"
_LAST_LINES = 15
_ELSEWHERE = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET")
_NO_VENV = "Install it (Debian, Ubuntu: apt-get install python3-venv), and start again."


Report = Callable[..., None]
"""Reports a step in words, and perhaps a detail of its progress."""


def environment_folder(pins: Path = PINS, python: str = sys.executable) -> Path:
    """The folder of the environment for these pins and this interpreter."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kind = [sys.implementation.cache_tag or "", sysconfig.get_platform(), str(Path(python).resolve())]
    key = hashlib.sha256("\0".join([*kind, pins.read_text(encoding="utf-8")]).encode()).hexdigest()[:16]
    return base.absolute() / "coderoom" / f"studio-{key}"


def prepare_environment(report: Report, *, pins: Path = PINS, python: str = sys.executable) -> Path:
    """Create the environment unless it exists.

    Args:
        report: Reports progress; not called if the environment exists.
        pins: A requirements file that names every package to install.
        python: The interpreter to create the environment with.

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
        wait = partial(report, "Another start is installing AutoGen Studio; waiting for it")
        lock = take_lock(folder.with_name(f"{folder.name}.lock"), wait)
        try:
            if not _is_ready(folder):  # Another process may have created it meanwhile.
                remove_folder(folder)
                _make(folder, interpreter, report, pins, python, lock)
                (folder / _READY).touch()
        finally:
            os.close(lock)
    except OSError as error:
        raise MissingDependencyError(
            f"The environment for AutoGen Studio cannot be created: {error}. XDG_CACHE_HOME sets another cache folder."
        ) from error
    return interpreter


def without_python_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables without those of Python itself, such as `PYTHONPATH` and `PYTHONWARNINGS`."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTHON")}


def _is_ready(folder: Path) -> bool:
    # The interpreter is a link, whose target may have been uninstalled.
    return (folder / _READY).exists() and (folder / "bin" / "python").exists()


def _make(folder: Path, interpreter: Path, report: Report, pins: Path, python: str, lock: int) -> None:
    report("Creating an environment for AutoGen Studio")
    # Debian's Python has `ensurepip` only with the package python3-venv.
    _run([python, "-m", "venv", str(folder)], lock, f"{python} cannot create virtual environments with pip. {_NO_VENV}")
    options = ["--no-deps", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    install = [str(interpreter), "-m", "pip", "install", *options, "--requirement", str(pins)]
    remedy = f"To see all of its output, run pip yourself; start again when it succeeds:\n  {shlex.join(install)}"
    _run(install, lock, remedy, _progress(report, pins))


def _progress(report: Report, pins: Path) -> Callable[[str], None]:
    total = sum("==" in line for line in pins.read_text(encoding="utf-8").splitlines())
    begun = 0
    words = "Installing AutoGen Studio, which takes a minute or two and is done once"
    report(words)

    def follow(line: str) -> None:
        nonlocal begun
        if line.startswith("Collecting "):
            begun += 1
            report(words, f": {begun} of {total} packages")
        elif line.startswith("Installing collected packages"):
            report(words, ": unpacking")

    return follow


def _run(command: Sequence[str], lock: int, remedy: str, follow: Callable[[str], None] = lambda line: None) -> None:
    output: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(),
        # If this process is killed, the child keeps the lock until it ends.
        pass_fds=(lock,),
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                follow(line)
                if line.strip():
                    output.append(f"  {line.rstrip()}")
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        words = "\n".join(output)
        raise MissingDependencyError(
            f"AutoGen Studio cannot be installed. The last lines of the output:\n{words}\n{remedy}"
        )


def _environment() -> dict[str, str]:
    # The user may have configured pip to install elsewhere.
    kept = {name: value for name, value in without_python_settings(os.environ).items() if name not in _ELSEWHERE}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}


def default_folder() -> Path:
    """The default app folder."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "coderoom" / "studio"


@contextlib.contextmanager
def use_folder(folder: Path) -> Iterator[int]:
    """Create the folder if needed, and lock it while any process has the yielded descriptor open."""
    with _refusing(folder):
        # Studio stores what is typed into it, including keys, as plain text.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = take_lock(folder / "coderoom.lock")
        except BlockingIOError:
            raise RequestError(
                f"The folder {str(folder)!r} is in use by another `coderoom studio`; end that one, or choose "
                "another folder with --appdir."
            ) from None
    try:
        yield lock
    finally:
        os.close(lock)


def open_log(path: Path) -> BinaryIO:
    """Create a log that only this user can read."""
    with _refusing(path.parent):
        return open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))


def forget(path: Path) -> None:
    """Remove a file of the folder, if it exists."""
    with _refusing(path.parent):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = "" if error.filename in (None, str(folder)) else f" ({str(error.filename)!r})"
        raise RequestError(
            f"The folder {str(folder)!r} cannot be used: {error.strerror}{where}. Choose another with --appdir."
        ) from error


def take_lock(path: Path, wait: Callable[[], None] | None = None) -> int:
    """Lock a file, while any process has the descriptor open.

    If another process has it, `wait` is called before waiting; without `wait`, that is a `BlockingIOError`.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait is None:
                raise
            wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock


_TRUSTED: Final = "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"
_ADD_PATHS: Final = """\
import site
for folder in {folders!r}:
    site.addsitedir(folder)
"""


def server_environment(interpreter: Path, trust: Sequence[str], key: str | None = None) -> dict[str, str]:
    """The environment variables of the server, which make the user's packages importable.

    The key is that of the model of all teams, if it has OpenAI's protocol: Studio's teams are stored without keys.

    Studio's own packages come first, and keep their versions. Its environment has the same interpreter, so packages
    that are installed here work there too. Packages of `trust` that do not work there are a `MissingDependencyError`.
    """
    named = ["coderoom", *trust, *os.environ.get(_TRUSTED, "").split(",")]
    trusted = list(dict.fromkeys(name.strip() for name in named if name.strip()))
    folder = temporary_folder()
    (folder / "coderoom").symlink_to(PINS.parents[1])
    # A package without metadata has no entry points. What CodeRoom finds by them only: what makes functions of tools.
    adapters = [each for each in entry_points(group="coderoom.adapters") if each.module.startswith("coderoom.")]
    facts = folder / "coderoom.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: coderoom\nVersion: {__version__}\n", encoding="utf-8")
    lines = ["[coderoom.adapters]", *(f"{each.name} = {each.value}" for each in adapters)]
    (facts / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    if trusted[1:]:
        folders = [path for path in sys.path if Path(path).is_dir() and path]
        (folder / "sitecustomize.py").write_text(_ADD_PATHS.format(folders=folders), encoding="utf-8")
    environment = {
        **without_python_settings(os.environ),
        # The same CodeRoom, and the same interpreter for code, as here.
        "PYTHONPATH": str(folder),
        PYTHON_VARIABLE: default_python(),
        _TRUSTED: ",".join(trusted),
    }
    if key:
        environment["OPENAI_API_KEY"] = key
    elif environment.get("OPENAI_BASE_URL") and not environment.get("OPENAI_API_KEY"):
        environment["OPENAI_API_KEY"] = NO_KEY
    roots = list(dict.fromkeys(name.partition(".")[0] for name in trust))
    _check_versions(roots)
    for name in roots:
        command = [str(interpreter), "-P", "-B", "-c", f"import {name}"]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            error = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
            raise MissingDependencyError(
                f"{name!r} cannot be imported in AutoGen Studio's environment: {error}. Install what it needs beside "
                "CodeRoom, or leave out --trust and the teams that need it."
            )
    return environment


def _check_versions(packages: Sequence[str]) -> None:
    """Check that packages and what they require accept the versions of Studio's packages."""
    lines = [line.partition(";")[0].strip() for line in PINS.read_text(encoding="utf-8").splitlines()]
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    owners = packages_distributions()
    waiting = [owner for package in packages for owner in owners.get(package, ())]
    conflicts: list[str] = []
    seen: set[str] = set()
    while waiting:
        owner = waiting.pop()
        if (known := canonicalize_name(owner)) in seen or known in pinned or known == "coderoom":
            continue
        seen.add(known)
        needs: list[str] = []
        with contextlib.suppress(PackageNotFoundError):
            needs = requires(owner) or []
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting.append(need.name)
                version = pinned.get(canonicalize_name(need.name))
                if version is not None and not need.specifier.contains(version, prereleases=True):
                    conflicts.append(f"  {owner} needs {need.name}{need.specifier}, and it has {need.name} {version}")
    if conflicts:
        listed = "\n".join(conflicts)
        raise MissingDependencyError(
            f"The packages of --trust conflict with AutoGen Studio's environment:\n{listed}\nInstall versions of them "
            "that accept those, or start without --trust and the teams that need it."
        )
