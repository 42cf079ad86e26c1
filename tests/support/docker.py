"""A real Docker engine with a small image, for tests.

A test takes the fixtures `docker_host` and `docker_image`, which a `conftest.py` imports from here. They use the engine
that DOCKER_HOST names; else, as root, they start one that all workers of the run share, and that stops when pytest's
main process ends, however it does. Without either a test is skipped, and fails where CI is set: there it must run.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import pytest

from tests.support.commands import ROOT

__all__ = ["client", "docker_host", "docker_image", "find_engine", "find_image"]

_ENGINE = ROOT / "scripts" / "docker-engine"
_IMAGE = ROOT / "scripts" / "docker-image"
_PATIENCE = 900


class _MissingError(Exception):
    """Why the engine or the image is missing."""


@pytest.fixture
def docker_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an engine, which is in DOCKER_HOST too."""
    host = find_engine()
    monkeypatch.setenv("DOCKER_HOST", host)
    return host


@pytest.fixture
def docker_image(docker_host: str) -> str:
    """The name of an image with Python; CODEROOM_TEST_IMAGE names another one than our own."""
    return find_image(docker_host)


def find_engine() -> str:
    """The address of an engine, for fixtures that last longer than a test."""
    return _or_give_up(_engine())


def find_image(host: str) -> str:
    """The name of an image with Python that this engine has."""
    return _or_give_up(_image(host))


def client(host: str) -> Any:
    """A client of the engine."""
    return docker.APIClient(base_url=host, version="auto", timeout=60)


# A failure is kept too: the next test would only wait for the same.


@functools.cache
def _engine() -> str | _MissingError:
    host = os.environ.get("DOCKER_HOST")
    if host and _answers(host):
        return host
    if os.geteuid() != 0:
        return _MissingError("DOCKER_HOST names none that answers, and only root can start one")
    if shutil.which("dockerd") is None and not _must_run():
        return _MissingError("DOCKER_HOST names none that answers, and dockerd is not installed")
    with _shared() as folder:
        host = f"unix://{folder}/socket"
        if _answers(host):
            return host
        try:
            started = _run([str(_ENGINE), "start", str(folder), str(_main_process())])
        except _MissingError as missing:
            with contextlib.suppress(_MissingError):
                _run([str(_ENGINE), "stop", str(folder)])
            return missing
    return started.strip().removeprefix("DOCKER_HOST=")


@contextlib.contextmanager
def _shared() -> Iterator[Path]:
    """The folder that all workers of this run share, for one of them at a time."""
    # Tests may have set other folders for temporary files; and the path of a socket has to be short.
    folder = Path(os.environ.get("TMPDIR") or "/tmp", f"coderoom-engine-{_main_process()}")
    folder.mkdir(mode=0o711, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def _main_process() -> int:
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _answers(host: str) -> bool:
    # docker-py forgets to close a socket that it could not connect.
    with socket.socket(socket.AF_UNIX) as sock:
        return host.startswith("unix://") and sock.connect_ex(host.removeprefix("unix://")) == 0


@functools.cache
def _image(host: str) -> str | _MissingError:
    name = os.environ.get("CODEROOM_TEST_IMAGE") or "coderoom-base:test"
    engine = client(host)
    try:
        engine.inspect_image(name)
    except docker.errors.ImageNotFound:
        if name != "coderoom-base:test" or os.geteuid() != 0:
            return _MissingError(
                f"the engine has no image {name!r}: as root `scripts/docker-image` makes one, or CODEROOM_TEST_IMAGE "
                "names one that has Python"
            )
        try:
            with _shared():
                _run([str(_IMAGE)], DOCKER_HOST=host)  # Which does nothing if another worker has made it meanwhile.
        except _MissingError as missing:
            return missing
    finally:
        engine.close()
    return name


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    if done.returncode:
        raise _MissingError(f"{' '.join(command)} failed: {done.stderr}")
    return done.stdout


def _must_run() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _or_give_up(found: str | _MissingError) -> str:
    if isinstance(found, str):
        return found
    if _must_run():
        pytest.fail(f"no Docker engine for a test that must run: {found}")
    pytest.skip(f"no Docker engine: {found}")
