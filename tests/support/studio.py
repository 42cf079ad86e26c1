"""A real AutoGen Studio, as `coderoom studio` starts it."""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from coderoom.errors import MissingDependencyError
from coderoom.studio import prepare_environment
from tests.studio.driving import USER
from tests.studio.processes import below
from tests.support.commands import environment

__all__ = ["KEY", "Studio", "alive", "ask", "end", "start_studio", "studio_environment", "studio_python", "wait_for"]

KEY = "sk-a-key-that-nobody-accepts"
_PATIENCE = 150


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def ask(url: str, method: str, path: str, body: Any = None, **query: str) -> Any:
    """The data that a REST route of a Studio answers with."""
    with httpx.Client(trust_env=False, timeout=120) as client:
        response = client.request(method, f"{url}/api{path}", json=body, params=query).raise_for_status()
    answer = response.json()
    assert not isinstance(answer, dict) or answer.get("status") is not False, answer
    return answer.get("data", answer)


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@dataclass(frozen=True)
class Studio:
    """A Studio that was started.

    Attributes:
        process: The command.
        told: What it has said of itself.
        url: Where it answers.
        pid: The command's process id.
        appdir: Its folder.
        log: Its log.
        left: What it has left unchanged, as it says.
    """

    process: subprocess.Popen[str]
    told: Mapping[str, Any]

    @property
    def url(self) -> str:
        return str(self.told["url"])

    @property
    def pid(self) -> int:
        return int(self.told["pid"])

    @property
    def appdir(self) -> Path:
        return Path(self.told["appdir"])

    @property
    def log(self) -> Path:
        return Path(self.told["log"])

    @property
    def left(self) -> list[str]:
        return list(self.told["left"])

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The data that one of its REST routes answers with."""
        return ask(self.url, method, path, body, **query)

    @property
    def server_pid(self) -> int:
        """The process that serves."""
        return next(pid for pid, command in below(self.pid).items() if "coderoom.studio.serve" in command)

    def teams(self) -> dict[str, dict[str, Any]]:
        """The rows of its teams, by their labels; no label may be there twice."""
        rows = self.ask("GET", "/teams/", user_id=USER)
        found = {row["component"]["label"]: row for row in rows}
        assert len(found) == len(rows)
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


def end(studio: Studio, how: str) -> None:
    """End a Studio in one of the ways that there are."""
    server = studio.server_pid
    match how:
        case "the server is killed":
            os.kill(server, signal.SIGKILL)
            assert studio.process.wait(60) == 1
        case "the command is killed":
            os.kill(studio.pid, signal.SIGKILL)
        case "the command is ended":
            assert studio.end() == 130
        case _:
            raise AssertionError(how)


def studio_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the command. Studio's own environment is kept between runs of the tests."""
    kept = os.environ.get("CODEROOM_TEST_CACHE")
    cache = {"XDG_CACHE_HOME": kept} if kept else {}
    return environment({"OPENAI_API_KEY": KEY, **cache, **(more or {})})


def studio_python() -> Path:
    """The interpreter of Studio's environment, which is made if it is not there."""
    made = _make_environment()
    if isinstance(made, Path):
        return made
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"no AutoGen Studio for a test that must run: {made}")
    pytest.skip(f"no AutoGen Studio: {made}")


@functools.cache
def _make_environment() -> Path | str:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in studio_environment().items():
            patch.setenv(name, value)
        try:
            return prepare_environment(lambda words, detail="": None)
        except MissingDependencyError as error:
            return str(error)


@contextmanager
def start_studio(appdir: Path, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Studio]:
    """Run `coderoom studio` until the end of the block."""
    studio_python()
    options = ["--port", "0", "--json", "--appdir", str(appdir), *arguments]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "coderoom", "studio", *options],
            cwd=cwd,
            env=studio_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        assert process.stdout is not None
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                line = process.stdout.readline() if selector.select(_PATIENCE) else ""
            if not line.startswith('{"url"'):
                said.seek(0)
                raise AssertionError(f"Studio did not start: {line}{said.read()}")
            yield Studio(process, json.loads(line))
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()
                process.stdout.close()
