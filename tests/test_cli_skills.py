"""The command `skills`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import coderoom

CODE = 'def twice(n: int) -> int:\n    """Double a number."""\n    return 2 * n\n'


def test_a_folder_is_listed_judged_and_shown(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(CODE)
    (tmp_path / "twice.tests.py").write_text("from twice import twice\n\nassert twice(2) == 4\n")
    (tmp_path / "thrice.py").write_text(CODE)
    listed = coderoom("skills", ".", cwd=tmp_path)
    assert "- twice(n: int) -> int: Double a number. (not judged since" in listed.stdout
    checked = coderoom("skills", ".", "--check", "--json", cwd=tmp_path)
    assert checked.returncode == 1
    bad, good = json.loads(checked.stdout)["skills"]
    assert (bad["name"], bad["why"]) == ("thrice", "The code defines no function 'thrice'.")
    assert (good["name"], good["why"]) == ("twice", "")
    assert good["strength"].endswith("mutants killed")
    shown = coderoom("skills", ".", "twice", cwd=tmp_path)
    assert good["strength"] in shown.stdout
    assert CODE in shown.stdout
    missing = coderoom("skills", ".", "nothing", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "coderoom: There is no skill 'nothing'.\n")
