"""Runs the type checker `ty` over code: a process for each check, which reads and never imports or runs the code."""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from coderoom._util.distribution import install_command
from coderoom.errors import MissingDependencyError

RULES = (
    "invalid-argument-type",
    "missing-argument",
    "too-many-positional-arguments",
    "unknown-argument",
    "unresolved-reference",
)
"""The rules whose errors are read."""
_SECONDS = 5.0
_MEMORY = 1024 * 1024 * 1024


@dataclass(frozen=True)
class Finding:
    """An error that the checker has found.

    Attributes:
        rule: The name of its rule.
        message: What is wrong.
        line: Its line, counted from 1.
        column: Its column in characters, counted from 0.
    """

    rule: str
    message: str
    line: int
    column: int


@cache
def checker_program() -> str:
    """The path of the type checker.

    Raises:
        MissingDependencyError: It is not installed.
    """
    try:
        from ty import find_ty_bin

        return find_ty_bin()
    except (ImportError, FileNotFoundError):
        raise MissingDependencyError(f"The check of types needs ty: {install_command('types')}") from None


def run_checker(imports: str, code: str, modules: Mapping[str, str]) -> list[Finding]:
    """Check code that imports what it needs of these modules, which are given as stubs.

    Nothing is found in code that the checker cannot cope with, or needs too long for.
    """
    with tempfile.TemporaryDirectory(prefix="coderoom-types-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # An environment without packages, instead of that of the host: what is installed here says nothing of there.
        (folder / "none/lib/python3.11/site-packages").mkdir(parents=True)
        (folder / "none/pyvenv.cfg").write_text(f"home = {folder}\n")
        (folder / "cell.py").write_text(f"{imports}\n{code}", "utf-8", "replace")
        for module, text in modules.items():
            (folder / f"{module}.pyi").write_text(text, "utf-8", "replace")
        options = ["--python", "none", "--output-format", "gitlab", "--exit-zero", "--no-progress"]
        chosen = ["--ignore", "all", *(word for rule in RULES for word in ("--error", rule))]
        with subprocess.Popen(
            [checker_program(), "check", *options, *chosen, "cell.py"],
            cwd=folder,
            env={"HOME": name, "XDG_CONFIG_HOME": name, "TY_MAX_PARALLELISM": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            if hasattr(resource, "prlimit"):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            try:
                output, _ = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return []
    try:
        return [_finding(each) for each in json.loads(output)] if process.returncode == 0 else []
    except (ValueError, KeyError, TypeError):
        return []


def _finding(data: Any) -> Finding:
    begin = data["location"]["positions"]["begin"]
    rule = str(data["check_name"])
    message = str(data["description"]).removeprefix(f"{rule}: ")
    return Finding(rule, message, int(begin["line"]) - 1, int(begin["column"]) - 1)
