"""Environments with the packages that code asks for: built once, outside of the sandbox, and shared by all sandboxes.

An environment is a virtual environment in a cache folder. No code of a package runs while it is built, since only
wheels are unpacked, nor afterwards on the host: even its own interpreter is started behind a wall only. What packages
would have each interpreter run at its start is taken away.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from coderoom._util.distribution import install_command
from coderoom._util.temporary import remove_folder
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.package_builds import install_behind_wall, take_over
from coderoom.sandbox.requirements import ALLOW_BUILDS, near_names, requirements_of
from coderoom.sandbox.walls.layout import Interpreter, know_interpreter

MARK: Final = "coderoom.json"
"""The file that says that all of an environment is there."""
_MOST_BYTES: Final = 20 * 1024**3
"""The size of the cache, above which the environments are removed that were not used for the longest time."""
_STILL_USED: Final = 86_400  # Seconds after its last use for which an environment is left to those who use it.
_SECONDS_TO_WAIT: Final = 0.05
_LONGEST_SAID: Final = 2_000
_ELSEWHERE: Final = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "UV_TARGET", "UV_PREFIX", "VIRTUAL_ENV")
# What an installer says, and whose fault that is.
_NO_INDEX: Final = re.compile(
    r"Failed to fetch|error sending request|dns error|NewConnectionError|ConnectTimeout|ReadTimeout|"
    r"was not found in the cache|Temporary failure in name resolution"
)
_NO_SPACE: Final = re.compile(r"No space left on device|os error 28|Errno 28")
_NO_WHEELS: Final = re.compile(r"no usable wheels|no wheels with a matching|Building source distributions")
_UNKNOWN: Final = re.compile(
    r"Because (\S+) was not found in the package registry|No matching distribution found for ([\w.-]+)"
)
_NO_NEWS: Final = re.compile(
    r"(?m)^(WARNING|hint|\[notice\]|error: No solution|ERROR: Could not find).*\n?|^ *cause: |^(ERROR|error): "
)


class Environment(NamedTuple):
    """A virtual environment with packages.

    Attributes:
        python: Its interpreter, for `Sandbox(python=...)`.
        lock: The requirements file of what was resolved, with exact versions and digests.
        folder: Where it is.
    """

    python: Path
    lock: str
    folder: Path

    @property
    def site_packages(self) -> Path:
        """The folder of its packages."""
        return _site_packages(self.folder)


class Added(NamedTuple):
    """What code has had installed while it runs.

    Attributes:
        packages: The folder that Python imports them from; empty: there are none of Python.
        env: The variables with which other programs find them.
        programs: The folders of their programs, for `PATH`.
    """

    packages: str = ""
    env: Mapping[str, str] = {}
    programs: Sequence[str] = ()


def cache_folder() -> Path:
    """The folder of all environments: `coderoom/packages` in `$XDG_CACHE_HOME` or `~/.cache`."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base.absolute() / "coderoom" / "packages"


def made_cache_folder() -> Path:
    """The folder of all environments, which is made if it does not exist.

    Raises:
        SandboxUnavailable: It cannot be made.
    """
    folder = cache_folder()
    with reporting(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def reporting(folder: Path) -> Iterator[None]:
    """Say of an error of the file system that the packages cannot be stored."""
    try:
        yield
    except OSError as error:
        raise SandboxUnavailable(
            f"The packages cannot be stored in {str(folder)!r}: {error.strerror or error}. XDG_CACHE_HOME names "
            "another folder."
        ) from error


async def environment_with(
    packages: Sequence[str], python: Path | None, workspace: Path | None, below: Environment | None = None
) -> Environment:
    """An environment with packages, and below them those of the interpreter; it is built if it is not there.

    Args:
        packages: Packages and requirements files, as `SandboxConfig.packages` has them.
        python: The interpreter; `None`: the default one.
        workspace: The folder that code may write to, in which the interpreter must not be.
        below: An environment that has some of the packages already: then this one has only the others.

    Raises:
        RequestError: There is no such package, or none that can be installed without running its code.
        SandboxUnavailable: The packages cannot be fetched or stored.
        MissingDependencyError: There is neither uv nor pip.
    """
    base, kind, wanted = await asyncio.to_thread(_asked, packages, python, workspace)
    folder = await asyncio.to_thread(made_cache_folder)
    if ALLOW_BUILDS in packages:
        return await _with_builds(folder, base, kind, wanted)
    with reporting(folder):
        lock_file = folder / f"{digest_of(*kind, *wanted)}.lock"
        lock = lock_file.read_text("utf-8") if lock_file.exists() else None
        if lock is None:
            async with locked(lock_file) as busy:
                lock = lock_file.read_text("utf-8") if lock_file.exists() else None
                if lock is None:
                    lock = await _resolve(wanted, base.executable, busy)
                    new = lock_file.with_suffix(".new")
                    new.write_text(lock, "utf-8")
                    new.rename(lock_file)
        there = _entries("" if below is None else below.lock)
        own = "".join(each for each in _entries(lock) if each not in there)
        place = folder / digest_of(*kind, own, *([] if below is None else [below.folder.name]))
        if not is_whole(place):
            async with locked(place) as busy:
                if not is_whole(place):
                    await asyncio.to_thread(remove_folder, place)
                    await asyncio.to_thread(make_space)
                    await _build(place, own, base, busy, below)
        for each in (lock_file, place / MARK):
            os.utime(each)  # The last use.
    found = place / "bin" / "python"
    know_interpreter(_interpreter_in(place, found, base))
    return Environment(found, lock, place)


async def _with_builds(folder: Path, base: Interpreter, kind: Sequence[str], wanted: Sequence[str]) -> Environment:
    """As `environment_with`, but built behind a wall if need be: what is resolved there depends on code of packages."""
    place = folder / digest_of("built", *kind, *wanted)
    with reporting(folder):
        async with locked(place) as busy:
            if not is_whole(place):
                workspace = place.with_name(f"{place.name}.building")
                for each in (place, workspace):
                    await asyncio.to_thread(remove_folder, each)
                await asyncio.to_thread(make_space)
                workspace.mkdir()
                try:
                    built = await install_behind_wall(wanted, base.executable, _find_uv(), workspace)
                    await _make_empty(place, base, busy)
                    lock = await take_over(built, _site_packages(place))
                    (place / "requirements.lock").write_text(lock, "utf-8")
                    await _finish(place, base, busy)
                finally:
                    await asyncio.to_thread(remove_folder, workspace)
        os.utime(place / MARK)
    found = place / "bin" / "python"
    know_interpreter(_interpreter_in(place, found, base))
    return Environment(found, (place / "requirements.lock").read_text("utf-8"), place)


def _asked(
    packages: Sequence[str], python: Path | None, workspace: Path | None
) -> tuple[Interpreter, list[str], list[str]]:
    """The interpreter, what tells it from others and from a later version of itself, and the packages."""
    base = Interpreter.of(python, workspace)
    program = Path(base.executable).resolve()
    status = program.stat()
    kind = [base.executable, str(program), str(status.st_mtime_ns), str(status.st_size)]
    return base, kind, sorted(set(requirements_of(packages)))


def _entries(lock: str) -> list[str]:
    """The packages of a lock file, each with its digests."""
    return re.findall(r"(?m)^\w.*\n(?:[ \t].*\n)*", lock)


def digest_of(*parts: str) -> str:
    """The name of what is kept for some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@asynccontextmanager
async def locked(place: Path) -> AsyncGenerator[int, None]:
    """Wait until no other process builds the same. The installer has the lock too, also if this process is killed."""
    with place.with_name(f"{place.name}.busy").open("w") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(_SECONDS_TO_WAIT)
        yield file.fileno()


def is_whole(place: Path) -> bool:
    """Whether an environment was built to its end, and none of its packages is missing since."""
    try:
        records = json.loads((place / MARK).read_text("utf-8"))["records"]
        there = (place / "bin" / "python").exists() or (place / "node_modules").exists()
        return there and all((place / name).stat().st_size == size for name, size in records.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


async def _resolve(wanted: Sequence[str], python: str, busy: int) -> str:
    uv = _find_uv()
    if uv:
        arguments = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        arguments += ["--only-binary", ":all:", "--python", python]
        try:
            return await run_installer(busy, [*arguments, "-"], "\n".join(wanted))
        except SandboxUnavailable as error:
            with contextlib.suppress(RequestError, SandboxUnavailable):  # uv has a cache, too.
                return await run_installer(busy, [*arguments, "--offline", "-"], "\n".join(wanted))
            raise error from None
    arguments = [*_pip(python), "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = json.loads(await run_installer(busy, [*arguments, "--only-binary", ":all:", *wanted]))
    lines = []
    for each in report["install"]:
        digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{each['metadata']['name']}=={each['metadata']['version']} --hash=sha256:{digest}\n")
    return "".join(sorted(lines))


async def _build(place: Path, lock: str, base: Interpreter, busy: int, below: Environment | None) -> None:
    uv = _find_uv()
    python = str(place / "bin" / "python")
    await _make_empty(place, base, busy)
    if uv:
        # Linked files would be those of uv's own cache.
        install = [uv, "pip", "install", "--quiet", "--python", python, "--link-mode", "copy"]
    else:
        install = [*_pip(python), "install", "--quiet", "--no-compile"]
    file = place / "requirements.lock"
    file.write_text(lock, "utf-8")
    if lock.strip():
        await run_installer(
            busy, [*install, "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(file)]
        )
    await _finish(place, base, busy, () if below is None else (str(below.site_packages),))


async def _make_empty(place: Path, base: Interpreter, busy: int) -> None:
    uv = _find_uv()
    if uv:
        await run_installer(busy, [uv, "venv", "--quiet", "--no-project", "--python", base.executable, str(place)])
    else:
        await run_installer(busy, [base.executable, "-m", "venv", "--without-pip", str(place)])


async def _finish(place: Path, base: Interpreter, busy: int, more: Sequence[str] = ()) -> None:
    """Compile the modules, show it more folders and the packages of its interpreter, and mark it as whole."""
    site = _site_packages(place)
    _take_starters(site)
    # Without `site`, since that would run what the packages have put there.
    await run_installer(busy, [base.executable, "-I", "-S", "-m", "compileall", "-qq", str(site)], may_fail=True)
    below = [*more, *(path for path in map(str, base.folders) if path.endswith(("site-packages", "dist-packages")))]
    below += [str(path) for path in base.code if str(path).endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(below)]
    (site / "zzz_coderoom.pth").write_text("".join(lines), "utf-8")
    records = {str(each.relative_to(place)): each.stat().st_size for each in site.glob("*.dist-info/RECORD")}
    facts = {"python": base.executable, "records": records, "seconds": time.time(), "size": size_of(place)}
    (place / MARK).write_text(json.dumps(facts), "utf-8")


def _take_starters(site: Path) -> None:
    """Take away what packages have each interpreter run at its start: the worker is one, which has no limits.

    What is left of a path file are the folders that it names.
    """
    for name in ("sitecustomize", "usercustomize"):
        (site / f"{name}.py").unlink(missing_ok=True)
        shutil.rmtree(site / name, ignore_errors=True)
    for file in site.glob("*.pth"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(line for line in lines if not line.startswith((b"import ", b"import\t"))))


def size_of(place: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(each.lstat().st_size for each in place.rglob("*"))


def make_space() -> None:
    """Remove what was not used for long, if the cache is full.

    Raises:
        SandboxUnavailable: All of it was used within a day.
    """
    kept = kept_environments()
    size = sum(each.size for each in kept)
    while kept and size > _MOST_BYTES and kept[-1].used < time.time() - _STILL_USED:
        size -= kept[-1].size
        _remove(kept.pop())
    if size > _MOST_BYTES:
        raise SandboxUnavailable(
            f"The packages that were installed within a day have more than {_MOST_BYTES >> 30} GiB in "
            f"{str(cache_folder())!r}: coderoom packages --prune DAYS removes those that are no longer used."
        )


def _site_packages(place: Path) -> Path:
    return next(place.glob("lib/python*/site-packages"))


def _interpreter_in(place: Path, python: Path, base: Interpreter) -> Interpreter:
    """What its interpreter would say of itself, which must not be started on the host."""
    links = ((str(python), str(python.readlink())),) if python.is_symlink() else ()
    return Interpreter(
        executable=str(python),
        folders=(place, *base.folders),
        links=(*links, *base.links),
        packages=(),  # It finds them by itself, after its own.
        code=(_site_packages(place), *base.code),
    )


def _find_uv() -> str | None:
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return str(find_uv_bin())
    return shutil.which("uv")


def installer() -> str:
    """What installs packages for code; empty if there is nothing."""
    return _find_uv() or ("pip" if importlib.util.find_spec("pip") else "")


def _pip(python: str) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise MissingDependencyError(f"packages need uv or pip: {install_command('packages')}")
    return [sys.executable, "-m", "pip", "--python", python, "--no-input", "--disable-pip-version-check"]


async def run_installer(
    busy: int, command: Sequence[str], stdin: str = "", *, may_fail: bool = False, folder: str | Path = "/"
) -> str:
    """Run a program that installs packages, which keeps a lock (`locked`), and return what it prints.

    Raises:
        RequestError: It has failed.
        SandboxUnavailable: It has failed, which is not the fault of what it was asked for.
    """
    env = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE and name[:6] != "PYTHON"}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**env, "NO_COLOR": "1", "PIP_REQUIRE_VIRTUALENV": "0"},
        cwd=folder,  # By default where no project has settings.
        umask=0o022,  # Behind a wall it is read by another user.
        start_new_session=True,
        pass_fds=(busy,),
    )
    try:
        out, said = await process.communicate(stdin.encode())
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode and not may_fail:
        raise _failure(said.decode(errors="replace").strip())
    return out.decode(errors="replace")


def _failure(said: str) -> Exception:
    words = _NO_NEWS.sub("", said).strip() or said
    words = words if len(words) <= _LONGEST_SAID else f"...{words[-_LONGEST_SAID:]}"
    if _NO_SPACE.search(said):
        return SandboxUnavailable(f"There is no space left for the packages in {str(cache_folder())!r}: {words}")
    if _NO_INDEX.search(said):
        return SandboxUnavailable(f"The packages can be fetched from no index, and are not in the cache: {words}")
    if _NO_WHEELS.search(said):
        return RequestError(
            "packages: one has no wheel for this interpreter; building it would run its code, which 'allow-builds' in "
            f"packages (--allow-builds) does behind a wall. {words}"
        )
    if unknown := _UNKNOWN.search(said):
        name = str(unknown[1] or unknown[2])
        near = near_names(name)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Look for its name at the index."
        return RequestError(f"packages: there is no {name!r} with these versions and a wheel. {hint} {words}")
    return RequestError(f"packages: {words}")


class Kept(NamedTuple):
    """An environment in the cache.

    Attributes:
        folder: Where it is.
        packages: What is in it, with exact versions.
        python: The interpreter that it was made for.
        size: Its size in bytes.
        used: When it was last used, in seconds since 1970.
    """

    folder: Path
    packages: list[str]
    python: str
    size: int
    used: float


def kept_environments() -> list[Kept]:
    """The environments in the cache, the one that was last used first."""
    found = []
    for mark in cache_folder().glob(f"*/{MARK}"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            lock = (mark.parent / "requirements.lock").read_text("utf-8")
            names = [line.split()[0] for line in lock.splitlines() if line[:1].isalnum()]
            facts = json.loads(mark.read_text("utf-8"))
            size = facts["size"] if type(facts.get("size")) is int else size_of(mark.parent)
            found.append(Kept(mark.parent, names, facts["python"], size, mark.stat().st_mtime))
    return sorted(found, key=lambda each: -each.used)


def prune_environments(unused_days: float) -> list[Kept]:
    """Remove the environments that were not used for so many days, and what was resolved.

    What a sandbox uses now should stay: `unused_days` is to be longer than its life.
    """
    before = time.time() - unused_days * 86_400
    removed = [each for each in kept_environments() if each.used <= before]
    for each in removed:
        _remove(each)
    for lock in cache_folder().glob("*.lock"):
        if lock.stat().st_mtime <= before:
            lock.unlink(missing_ok=True)
    return removed


def _remove(environment: Kept) -> None:
    (environment.folder / MARK).unlink(missing_ok=True)  # First, so that nothing half is used.
    remove_folder(environment.folder)
