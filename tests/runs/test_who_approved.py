"""Who allowed a call, and in which words, stands in all that tells a run; the code that asks is shown once."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from tests.support.commands import ROOT, coderoom

ALLOWED = "pay(to='Ann', amount=20) was allowed by a person at the terminal"
REFUSED = "pay(to='Bob', amount=900) was not allowed by a person at the terminal: too much"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Functions of a team file")
def test_a_person_is_shown_the_code_once_and_their_answers_are_told(tmp_path: Path) -> None:
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal.sqlite3")}
    examples = ROOT / "examples"
    model = f"replay:{examples / 'approved_calls.replay.yaml'}"
    ran = coderoom(
        *("run", str(examples / "approved_calls_team.yaml"), "Pay the bills.", "--model", model),
        cwd=tmp_path,
        env=env,
        stdin="y\nn because too much\n",
    )
    assert ran.stderr.count("| for to, amount in open_bills().items():") == 1
    assert ran.stderr.count("| 3: print(pay(to, amount))") == 1
    for arguments in (["show", "last"], ["show", "last", "--html", "-"], ["export", "last", "--as", "markdown"]):
        shown = unescape(coderoom("runs", *arguments, cwd=tmp_path, env=env).stdout)
        told = " ".join(shown.split())
        assert ALLOWED in told, arguments
        assert REFUSED in told, arguments
