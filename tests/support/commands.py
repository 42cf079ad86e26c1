"""The command line as a person starts it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "coderoom", "environment", "recording"]

ROOT = Path(__file__).resolve().parents[2]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without keys, in which a console has 100 columns."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "CODEROOM"))}
    return {**kept, "COLUMNS": "100", "PYTHONWARNINGS": "error", **(more or {})}


def coderoom(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes = b"",
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run the command line and wait for its end."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "coderoom", *arguments],
        cwd=cwd,
        env=environment(env),
        input=data,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def recording(path: Path, replies: Sequence[str | Mapping[str, Any]]) -> str:
    """Write a recorded conversation and return what `--model` takes."""
    path.write_text(json.dumps({"replies": list(replies)}), encoding="utf-8")
    return f"replay:{path}"
