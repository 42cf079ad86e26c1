"""`coderoom fix`: what comes of a repository, and whether the report is true."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ROOT, coderoom, recording

WORDS = ROOT / "examples" / "fix" / "words"
APPROVED = json.dumps({"approved": True, "issues": [], "summary": "Fine."})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fix(tmp_path: Path, model: str) -> tuple[int, dict[str, Any], Path]:
    """Fix a copy of the example, from inside; return the exit code, the report, and a copy with the patch applied."""
    repository, patched = tmp_path / "words", tmp_path / "patched"
    for folder in (repository, patched):
        shutil.copytree(WORDS, folder, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    before = contents(repository)
    done = coderoom("fix", ".", "It is wrong.", "--model", model, "--no-journal", "--json", cwd=repository)
    assert contents(repository) == before
    facts = json.loads(done.stdout)
    subprocess.run(["git", "apply", str(tmp_path / facts["patch"])], cwd=patched, check=True)
    return done.returncode, facts, patched


@pytest.mark.slow
def test_changed_tests_do_not_count_and_are_named(tmp_path: Path) -> None:
    cheat = (
        "```python\nwrite_file('test_words.py', 'def test_nothing() -> None:\\n    pass\\n')\n"
        "write_file('conftest.py', 'collect_ignore = [\"words.py\"]\\n')\n"
        "edit_file('words.py', 'text.lower()', 'text')\n```"
    )
    code, facts, patched = fix(tmp_path, recording(tmp_path / "r.yaml", [cheat, "Done.", APPROVED]))
    assert (code, facts["succeeded"]) == (1, False)
    assert facts["tests_changed"] == ["added conftest.py", "changed test_words.py"]
    assert facts["after"] == {"failed": 3, "passed": 2, "skipped": 0}
    assert facts["with_changed_tests"] == {"failed": 0, "passed": 1, "skipped": 0}
    assert any("test_words_are_counted" in each for each in facts["problems"])
    assert (patched / "conftest.py").exists()


@pytest.mark.slow
def test_deleted_code_is_judged_as_deleted(tmp_path: Path) -> None:
    delete = "```sh\nrm words.py test_words.py\n```"
    code, facts, patched = fix(tmp_path, recording(tmp_path / "r.yaml", [delete, "Done.", APPROVED]))
    assert (code, facts["tests_changed"]) == (1, ["deleted test_words.py"])
    assert facts["after"]["passed"] == 0
    assert any("does not run any more: test_words::test_words_are_counted" in each for each in facts["problems"])
    assert list(patched.iterdir()) == []
