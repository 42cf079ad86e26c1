"""Private names of AutoGen Studio are in one module, and the installed Studio has each of them."""

from __future__ import annotations

import ast
import json
import subprocess

import pytest

from tests.support.commands import ROOT
from tests.support.studio import studio_environment, studio_python

MODULE = "coderoom/studio/autogenstudio.py"
MARKED = "coderoom/_util/closing.py"
"""It only asks whether a module of Studio is loaded."""

MISSING = """
import importlib, json
from coderoom.studio.autogenstudio import NAMES, TOKENS

def has(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(f"autogenstudio.{module}")
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return TOKENS in vars(found(None)) if part == "WebSocketManager" else True

print(json.dumps([name for name in NAMES if not has(name)]))
"""


@pytest.mark.slow
def test_no_other_module_names_studio() -> None:
    found = set()
    for path in (ROOT / "coderoom").rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "autogenstudio" in source else ():
            is_import = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autogenstudio")
            is_name = isinstance(node, ast.Constant) and str(node.value).startswith("autogenstudio.")
            if is_import or is_name:
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {MODULE, MARKED}


@pytest.mark.studio
def test_studio_has_each_of_them() -> None:
    python = studio_python()
    env = studio_environment({"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"})
    done = subprocess.run([python, "-c", MISSING], env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
