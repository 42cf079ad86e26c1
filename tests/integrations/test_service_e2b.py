"""E2B's client for JavaScript at a server of sandboxes, and the table of what works; for Python, see `inside`."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.studio.environment import take_lock
from tests.integrations.service import serving
from tests.integrations.support import INSIDE
from tests.support.commands import ROOT

CLIENT = "@e2b/code-interpreter@2.8.0"


@pytest.fixture(scope="module")
def packages() -> Path:
    """A folder with the client."""
    folder = Path(sys.prefix) / f"npm-{CLIENT.replace('/', '-').replace('@', '')}"
    lock = take_lock(folder.with_suffix(".lock"), lambda: None)
    try:
        if not (folder / ".ready").exists():
            folder.mkdir(exist_ok=True)
            subprocess.run(["npm", "install", "--no-audit", "--prefix", str(folder), CLIENT], check=True)
            (folder / ".ready").touch()
    finally:
        os.close(lock)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_client_for_javascript(packages: Path, tmp_path: Path) -> None:
    script = Path(shutil.copy(INSIDE / "e2b" / "client.mjs", packages))
    with serving(tmp_path) as url:
        names = {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": "token-of-one"}
        done = subprocess.run(["node", str(script)], env={**os.environ, **names}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ["42", ["out\n", "<b>x</b>", "42"]],
        "ZeroDivisionError",
        "/tmp",
        True,
        "42",
        ["one", ["a.txt", "b.txt"]],
        True,
        "two1\n",
        ["CommandExitError", 3],
        "hello\n",
        "one",
        {"of": "node"},
        ["2", "1", ["of-node:default"]],
        [True, True, True],
        [True, True, False],
    ]


def test_the_table_has_what_is_checked() -> None:
    tree = ast.parse((INSIDE / "e2b" / "e2b_checks.py").read_text())
    checks = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]
    rows = [f"| {ast.get_docstring(each)} |" for each in checks]
    page = (ROOT / "docs" / "e2b.md").read_text().splitlines()
    assert [line for line in page if line.startswith("| ") and line not in ("| What works |", "| --- |")] == rows
