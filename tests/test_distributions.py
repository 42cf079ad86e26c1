"""What is published, and that the sandbox and the judge need only what `coderoom-slim` installs."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.commands import ROOT

_REFUSING = """
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        known = *sys.stdlib_module_names, *ALLOWED
        if name.partition(".")[0] not in known and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ALLOWED = ["coderoom", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"]
ALLOWED += ["markdown_it", "mdurl"]
sys.meta_path.insert(0, Refusing())
"""


def test_sandbox_judge_exec_and_doctor_import_nothing_that_slim_does_not_install() -> None:
    code = _REFUSING + (
        "for package in 'coderoom.sandbox', 'coderoom.judge', 'coderoom.blocks':\n"
        "    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f'{package}.')\n"
        "    for each in found:\n"
        "        if each.name != 'coderoom.sandbox.proxy.credentials':\n"  # Which needs the extra `proxy`.
        "            importlib.import_module(each.name)\n"
        "import coderoom.runs.exec, coderoom.runs.doctor, coderoom.cli\n"
        "print(len([name for name in sys.modules if name.startswith('coderoom.')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.stderr
    assert int(done.stdout) > 80


def test_no_module_of_slim_needs_one_that_slim_has_not() -> None:
    files = runpy.run_path(str(ROOT / "scripts" / "dist"))["files"]()
    rest = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files["full"]}
    found = [
        (file, name)
        for file in files["slim"]
        if file.endswith(".py")
        for name in re.findall(r"^(?:from|import) ([\w.]+)", (ROOT / file).read_text("utf-8"), re.MULTILINE)
        if name in rest or name.startswith("autogen")
    ]
    assert found == []  # Else it belongs into `without` of pyproject.toml.


_CODE = """
import asyncio
from coderoom.judge import FunctionTest, Judge, freeze, make_sandbox
from coderoom.sandbox import Sandbox

async def main():
    def add(a: int, b: int) -> int:
        return a + b

    async with Sandbox(WALL) as sandbox, sandbox.session(functions=[add]) as session:
        await session.run("x = add(40, 1)")
        assert (await session.run("x + 1")).value == 42
    async with Sandbox(WALL, policy="restricted") as sandbox:
        assert (await sandbox.run("import os")).outcome == "rejected"
    tests = freeze({"add": [FunctionTest(name="small", inputs={"a": 1, "b": 2}, expected_output=3)]})
    async with make_sandbox(WALL) as sandbox:
        for sign, passed in ("+", True), ("-", False):
            source = f"def add(a: int, b: int) -> int:\\n    return a {sign} b\\n"
            [verdict] = await Judge(sandbox).run({"add": source}, tests)
            assert verdict.passed is passed, verdict

asyncio.run(main())
"""
_MISSING = """
import importlib
from coderoom.errors import MissingDependencyError

for name in "agents", "teams", "approval", "executors", "generation", "studio", "budgets", "ray", "agents.base":
    try:
        importlib.import_module(f"coderoom.{name}")
    except MissingDependencyError as error:
        assert str(error).endswith("pip install coderoom"), error
    else:
        raise AssertionError(name)
import coderoom, coderoom.configs, coderoom.models, coderoom.runs
try:
    import coderoom.agent
except ModuleNotFoundError as error:
    assert str(error) == "No module named 'coderoom.agent'"
for module, name in (coderoom, "load_team"), (coderoom, "execute_code"), (coderoom.configs, "make_model"), (
    coderoom.models, "Budget"), (coderoom.runs, "run_team"):
    try:
        getattr(module, name)
    except MissingDependencyError as error:
        assert str(error).endswith("pip install coderoom"), error
    else:
        raise AssertionError(name)
"""
_MOST_PACKAGES = 8
_MOST_MIB = 21


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_slim_works_in_an_empty_environment(tmp_path: Path) -> None:
    dist = runpy.run_path(str(ROOT / "scripts" / "dist"))
    dist["build"](tmp_path / "dist")
    wheels = {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in (tmp_path / "dist").glob("*.whl")}
    files = {name: {each for each in wheel.namelist() if ".dist-info/" not in each} for name, wheel in wheels.items()}
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "coderoom").rglob("*") if path.is_file()}
    assert sorted([*files["coderoom_slim"], *files["coderoom"]]) == sorted(
        each for each in here if "__pycache__" not in each
    )

    python = dist["install"](tmp_path / "dist", tmp_path / "venv", "coderoom-slim")
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    tools = ("pip", "setuptools", "_distutils_hack", "distutils-precedence.pth")
    packages = [path for path in site.glob("*.dist-info") if not path.name.startswith(tools)]
    ours = [path for top in site.iterdir() if not top.name.startswith(tools) for path in (top, *top.rglob("*"))]
    size = sum(path.stat().st_size for path in ours if path.is_file()) / 2**20
    assert len(packages) <= _MOST_PACKAGES, packages
    assert size <= _MOST_MIB

    def run(*words: str, code: int = 0) -> str:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("CODEROOM", "OPENAI", "PYTHON"))}
        env |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "CODEROOM_JOURNAL": str(tmp_path / "journal.sqlite3")}
        done = subprocess.run([python, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr or done.stdout
        return done.stdout or done.stderr

    def coderoom(*words: str, code: int = 0) -> str:
        return run("-m", "coderoom", *words, code=code)

    # A release is not built where no wall works, but tests run there.
    findings = {each["name"]: each for each in json.loads(coderoom("doctor", "--json"))["findings"]}
    wall = "auto" if findings["isolation"]["state"] == "ok" else "none"
    assert "pip install coderoom" in findings["coderoom"]["detail"]
    assert "pip install 'coderoom-slim[monty]'" in findings["engine monty"]["detail"]
    assert "pip install 'coderoom-slim[sandlock]'" in findings["wall sandlock"]["detail"]
    assert "isolation" in coderoom("doctor")
    run("-c", _CODE.replace("WALL", repr(wall)))
    run("-c", _MISSING)
    wheels["coderoom"].extractall(tmp_path / "rest")  # As if the other one was uninstalled.
    alone = f"import sys; sys.path.insert(0, {str(tmp_path / 'rest')!r}); import coderoom.agents"
    command = [sys.executable, "-S", "-c", alone]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    assert said.splitlines()[-1].endswith("pip install --force-reinstall coderoom")

    (tmp_path / "a.py").write_text("import sys\nprint(sys.argv[1:])\nopen('made.txt', 'w').close()")
    (tmp_path / "a.sh").write_text("echo $(( $1 + 1 ))")
    (tmp_path / "a.md").write_text("```python\nx = 41\n```\nand\n```python\nx + 1\n```\n")
    cells = [{"cell_type": "code", "source": "6 * 7", "metadata": {}, "outputs": []}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    shown = coderoom("exec", "a.py", "--wall", wall, "--", "-x", "--", "y")
    assert "['-x', '--', 'y']" in shown
    assert "made.txt" in shown.partition("files made or changed: ")[2]
    assert "1 of 1 blocks succeeded" in shown
    for file, arguments, last in ("a.sh", ["41"], "42\n"), ("a.md", [], "42\n"), ("a.ipynb", [], "42\n"):
        options = ["--json", "--timeout=9", "-w", str(tmp_path), f"--wall={wall}"]
        facts = json.loads(coderoom("exec", file, *options, *arguments))
        assert (facts["succeeded"], facts["runs"][-1]["output"]) == (True, last)
    facts = json.loads(run("-m", "coderoom", "exec", "a.md", "--fresh", "--json", "--wall", wall, code=1))
    assert "'x' is not defined" in facts["runs"][-1]["error"]["message"]
    assert "a.ipynb" in coderoom("runs")

    assert coderoom("--version") == run("-c", "import coderoom; print('coderoom', coderoom.__version__)")
    assert "--workspace" in coderoom("exec", "--help")
    assert "doctor" in coderoom("--help")
    assert "No such option: --walls" in coderoom("exec", "a.py", "--walls", "none", code=2)
    assert "not in the range" in coderoom("exec", "a.py", "--timeout", "0", code=2)
    for words in _all_others():
        said = coderoom(*words, code=3)
        assert len(said.splitlines()) == 1, said
        assert "pip install" in said
    (tmp_path / "config" / "coderoom").mkdir(parents=True)
    (tmp_path / "config" / "coderoom" / "config.yaml").write_text("wall: none\n")
    assert "pip install 'coderoom-slim[cli]'" in coderoom("exec", "a.py", code=3)


def _all_others() -> Sequence[Sequence[str]]:
    return [
        ["run", "coder-executor", "x"],
        ["chat", "coder-executor"],
        ["ask", "x"],
        ["batch", "coder-executor", "items.jsonl", "--out", "o"],
        ["solve", "Double a number."],
        ["cache", "show"],
        ["teams"],
        ["show", "analyst"],
        ["init", "team.yaml"],
        ["validate", "team.yaml"],
        ["convert", "team.yaml"],
        ["gallery"],
        ["studio"],
        ["schema"],
        ["mcp"],
        ["serve", "coder-executor"],
        ["models"],
    ]
