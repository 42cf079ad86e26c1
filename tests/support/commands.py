"""The command line, run in this process or, for what only a process shows, in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

from coderoom.cli import main

__all__ = ["ROOT", "coderoom", "environment", "recording"]

ROOT = Path(__file__).resolve().parents[2]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without keys, in which a console has 100 columns."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "CODEROOM"))}
    return {**kept, "COLUMNS": "100", "PYTHONWARNINGS": "error", **(more or {})}


def coderoom(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process, which saves a second of imports, and wait for its end."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(arguments, cwd, environment(env), data)
    with ThreadPoolExecutor(1) as pool:  # An event loop runs in this thread already.
        return pool.submit(_run, arguments, cwd, environment(env), data).result()


def _run(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], data: bytes
) -> subprocess.CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    logger = logging.getLogger("autogen_core")
    level = logger.level
    with (
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "argv", ["coderoom", *arguments]),
        _input(data) as stdin,
        patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
        warnings.catch_warnings(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            logger.setLevel(level)
    assert isinstance(code, int)
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["coderoom", *arguments], code, *said)


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
