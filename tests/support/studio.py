"""A real AutoGen Studio, as `coderoom studio` starts it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.studio import prepare_environment
from tests.support.commands import environment

__all__ = ["KEY", "Studio", "start_studio", "studio_environment", "studio_python"]

KEY = "sk-a-key-that-nobody-accepts"
_PATIENCE = 120


@dataclass(frozen=True)
class Studio:
    """A Studio that was started.

    Attributes:
        process: The command.
        url: Where it answers.
        pid: The command's process id.
        appdir: Its folder.
        log: Its log.
    """

    process: subprocess.Popen[str]
    url: str
    pid: int
    appdir: Path
    log: Path

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


def studio_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the command. Studio's own environment is kept between runs of the tests."""
    kept = os.environ.get("CODEROOM_TEST_CACHE")
    cache = {"XDG_CACHE_HOME": kept} if kept else {}
    return environment({"OPENAI_API_KEY": KEY, **cache, **(more or {})})


def studio_python() -> Path:
    """The interpreter of Studio's environment, which is made if it is not there."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in studio_environment().items():
            patch.setenv(name, value)
        try:
            return prepare_environment(lambda words, detail="": None)
        except MissingDependencyError as error:
            if os.environ.get("CI", "").lower() not in ("", "0", "false"):
                pytest.fail(f"no AutoGen Studio for a test that must run: {error}")
            pytest.skip(f"no AutoGen Studio: {error}")


@contextmanager
def start_studio(appdir: Path, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Studio]:
    """Run `coderoom studio` until the end of the block."""
    studio_python()
    options = ["--no-browser", "--port", "0", "--json", "--appdir", str(appdir), *arguments]
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
            told = json.loads(line)
            yield Studio(process, told["url"], told["pid"], Path(told["appdir"]), Path(told["log"]))
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()
                process.stdout.close()
