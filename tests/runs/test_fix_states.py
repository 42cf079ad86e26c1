"""`coderoom fix` in all states of a repository: true reports, patches that apply, and a folder that stays the same."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.runs.fix_scenarios import SCENARIOS, TEST, Scenario
from tests.support.commands import coderoom, recording

APPROVED = json.dumps({"approved": True, "issues": [], "summary": "Fine."})
QUICK = ("edits the test",)
"""What is tried by the quick tests, too."""


def fingerprint(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All that is in a folder, that of git included."""
    found = {}
    for above, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(above, name)
            facts = path.lstat()
            content = os.fsencode(path.readlink()) if stat.S_ISLNK(facts.st_mode) else b""
            if stat.S_ISREG(facts.st_mode):
                large = facts.st_size > 1 << 20  # A hole of many GiB.
                content = str(facts.st_size).encode() if large else hashlib.sha256(path.read_bytes()).digest()
            found[str(path)] = facts.st_mode, content
    return found


def tally(folder: Path, report: Path) -> dict[str, int]:
    """What pytest says of a folder, asked without CodeRoom."""
    command = [sys.executable, *TEST.split()[1:], "-p", "no:cacheprovider", f"--junitxml={report}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    subprocess.run(command, cwd=folder, env=env | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, check=False)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = sum(any(each.tag in ("failure", "error") for each in case) for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - failed - skipped, "failed": failed, "skipped": skipped}


def fixed(scenario: Scenario, tmp_path: Path) -> tuple[int, dict[str, Any], Path, Path]:
    """Fix the repository of a scenario; return the exit code, the report, and two copies of it as it was."""
    top = tmp_path / "repository"
    top.mkdir()
    scenario.prepare(top)
    copies = [tmp_path / name for name in ("patched", "as_were")]
    for copy in copies:
        subprocess.run(["cp", "-a", "--sparse=always", str(top), str(copy)], check=True)
    before = fingerprint(tmp_path)
    model = recording(tmp_path / "model.yaml", [f"```python\n{scenario.cell}```", "It is fixed.", APPROVED])
    options = (
        "--test",
        scenario.test,
        "--model",
        model,
        "--no-journal",
        "--json",
        "--out",
        str(tmp_path / "fix.patch"),
    )
    done = coderoom("fix", str(top / scenario.below), "It is wrong.", *options, cwd=tmp_path)
    assert done.stdout, done.stderr
    for made in (tmp_path / "model.yaml", tmp_path / "fix.patch"):
        made.rename(tmp_path.with_name(f"{tmp_path.name}-{made.name}")) if made.exists() else None
    assert fingerprint(tmp_path) == before
    return done.returncode, json.loads(done.stdout), *copies


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SCENARIOS]
)
def test_the_report_is_true_and_the_patch_applies(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    code, facts, patched, as_were = fixed(scenario, tmp_path)
    assert (facts["succeeded"], code) == (scenario.succeeds, 0 if scenario.succeeds else 1), facts
    assert all(each in facts["changes"] for each in scenario.changes), facts
    assert facts["tests_changed"] == list(scenario.tests), facts
    for path in scenario.left_out:
        assert any(each.startswith(f"{path}: ") for each in facts["left_out"]), facts
    report = tmp_path / "report.xml"
    inside, kept = patched / scenario.below, as_were / scenario.below
    assert facts["before"] == tally(kept, report)
    patch = tmp_path.with_name(f"{tmp_path.name}-fix.patch")
    if facts["patch"] is None:
        assert not patch.exists()
        assert not scenario.changes
        return
    if scenario.changes:
        assert facts["changes"] == list(scenario.changes), facts
    for folder in (patched, as_were):
        subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)
    frozen = {each.partition(" ")[2] for each in scenario.tests}
    if scenario.lies:
        return
    assert facts["with_changed_tests"] == (tally(inside, report) if frozen else None), facts
    for path in frozen:  # As they were.
        original = tmp_path / "repository" / scenario.below / path
        (kept / path).unlink(missing_ok=True)
        if original.exists():
            (kept / path).write_bytes(original.read_bytes())
    assert facts["after"] == tally(kept, report), facts
