"""The repositories of `examples/fix` are fixed by their recordings, and the README prints what really comes of it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from coderoom.blocks import extract_code_blocks
from tests.support.commands import ROOT, coderoom

EXAMPLES = ROOT / "examples" / "fix"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "test", "failed", "passed", "changed"),
    [
        ("words", "pytest -q", 2, 3, ["words.py"]),
        ("timesheet", "pytest -q", 3, 5, ["timesheet/weeks.py"]),
        ("rotate", "sh test/run.sh", 2, 3, ["lib/archives.sh", "rotate.sh"]),
    ],
)
def test_an_example_is_fixed(
    tmp_path: Path, name: str, test: str, failed: int, passed: int, changed: list[str]
) -> None:
    repository = shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    before = {path: (path.read_bytes(), path.stat().st_mode) for path in repository.rglob("*") if path.is_file()}
    model = f"replay:{EXAMPLES / name}.replay.yaml"
    done = coderoom(
        "fix", name, "It is wrong.", "--test", test, "--model", model, "--no-journal", "--json", cwd=tmp_path
    )
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["succeeded"], facts["problems"], facts["tests_changed"]) == (0, True, [], [])
    assert facts["before"] == {"failed": failed, "passed": passed, "skipped": 0}
    assert facts["after"] == {"failed": 0, "passed": failed + passed, "skipped": 0}
    assert facts["changes"] == [f"changed {path}" for path in changed]
    now = {path: (path.read_bytes(), path.stat().st_mode) for path in repository.rglob("*") if path.is_file()}
    assert now == before
    subprocess.run(["git", "apply", str(tmp_path / facts["patch"])], cwd=repository, check=True)
    differ = [path for path, (data, _) in before.items() if path.read_bytes() != data]
    assert sorted(str(path.relative_to(repository)) for path in differ) == changed


@pytest.mark.slow
def test_the_readme_prints_what_comes_of_it(tmp_path: Path) -> None:
    blocks = extract_code_blocks((ROOT / "README.md").read_text())
    [place] = [number for number, block in enumerate(blocks) if block.code.startswith("coderoom fix ")]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = coderoom(*shlex.split(blocks[place].code)[1:], cwd=tmp_path)
    assert done.stdout.endswith(f"\n{blocks[place + 1].code}\n")
