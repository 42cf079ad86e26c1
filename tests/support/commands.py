"""The command line and scripts, run in the test's process, which saves a second of imports for each."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import runpy
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coderoom.cli import main

__all__ = ["PYTEST", "ROOT", "chat_process", "coderoom", "coderoom_process", "environment", "recording", "run_script"]

ROOT = Path(__file__).resolve().parents[2]
PYTEST = [
    "-m",
    "pytest",
    "-q",
    "--disable-plugin-autoload",
    "-p",
    "no:cacheprovider",
    "--noconftest",
    "-c",
    os.devnull,
    "--rootdir",
    ".",
]
"""Options of Python: tests that nothing in folders above changes."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without keys, in which a console has 100 columns."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "CODEROOM"))}
    ours = {
        "COLUMNS": "100",
        "PYTHONWARNINGS": "error",
        "XDG_CONFIG_HOME": str(ROOT / "tests" / "no-config"),
        "CODEROOM_JOURNAL": "off",
    }
    return {**kept, **ours, **(more or {})}


@contextlib.contextmanager
def chat_process(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A chat as a process of its own, which a test that fails does not leave behind."""
    command = [sys.executable, "-m", "coderoom", "chat", *arguments]
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def coderoom(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process and wait for its end."""
    # The test's process has children of other tests.
    return _in_process(partial(main, owns_process=False), ["coderoom", *arguments], cwd, env, stdin)


def coderoom_process(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, for what only a process shows: `-m`, interpreter settings, signals."""
    command = [sys.executable, "-m", "coderoom", *arguments]
    given: Any = {"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(env),
        **given,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )


def run_script(
    path: Path, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Python script in this process, as `python PATH` does."""

    def run() -> None:
        runpy.run_path(str(path), run_name="__main__")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(path.parent), *sys.path])
        try:
            return _in_process(run, [str(path), *arguments], cwd, env)
        finally:
            for neighbour in path.parent.glob("*.py"):
                sys.modules.pop(neighbour.stem, None)


def _in_process(
    call: Callable[[], object],
    argv: list[str],
    cwd: Path,
    env: Mapping[str, str] | None,
    stdin: str | bytes = b"",
) -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(call, argv, cwd, environment(env), data)
    with ThreadPoolExecutor(1) as pool:  # An event loop runs in this thread already.
        return pool.submit(_run, call, argv, cwd, environment(env), data).result()


def _run(
    call: Callable[[], object], argv: list[str], cwd: Path, env: Mapping[str, str], data: bytes
) -> subprocess.CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    logger = logging.getLogger("autogen_core")
    level = logger.level
    code: object = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        _input(data) as stdin,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
        warnings.catch_warnings(),
    ):
        for name in os.environ.keys() - env.keys():
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", argv)
        patch.setattr(sys, "stdin", stdin)
        try:
            call()
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            traceback.print_exc()
            code = 1
        finally:
            logger.setLevel(level)
    assert isinstance(code, int)
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(argv, code, *said)


@contextlib.contextmanager
def _input(data: bytes) -> Iterator[io.TextIOWrapper]:
    reading, writing = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as pipe:  # noqa: PTH123
            pipe.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    with open(reading, encoding="utf-8") as stdin:  # noqa: PTH123
        yield stdin
    writer.join()


def recording(path: Path, replies: Sequence[str | Mapping[str, Any]]) -> str:
    """Write a recorded conversation and return what `--model` takes."""
    path.write_text(json.dumps({"replies": list(replies)}), encoding="utf-8")
    return f"replay:{path}"
