"""A run whose code waits inside a call for a person at a terminal, which is killed there, and goes on in that call."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coderoom.runs import Journal
from tests.approval.test_killed import Person, wait_for
from tests.support.commands import ROOT, environment

pytestmark = pytest.mark.slow

TEAM, MODEL = ROOT / "examples/approved_calls_team.yaml", f"replay:{ROOT / 'examples/approved_calls.replay.yaml'}"
QUESTION = "[y/N/a/e] "
EDIT = ["e\npay(to='Ann', amount=2)\n.\n", "y\n"]


class Payer(Person):
    question = QUESTION.encode()


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Payer]:
    def begin(*arguments: str, answers: list[str]) -> Payer:
        ours, theirs = pty.openpty()
        told = {
            "TERM": "xterm",
            "EDITOR": "",
            "VISUAL": "",
            "COLUMNS": "120",
            "CODEROOM_JOURNAL": str(tmp_path / "journal.sqlite3"),
        }
        env = environment({**told, "PYTHONWARNINGS": "ignore"})  # AutoGen warns of each function in a config.
        command = [sys.executable, "-m", "coderoom", *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        return Payer(process, ours, answers)

    return begin


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_goes_on_at_the_waiting_call(begin: Callable[..., Payer], tmp_path: Path, number: signal.Signals) -> None:
    person = begin("run", str(TEAM), "Pay the bills.", "--model", MODEL, "--workspace", "work", answers=[*EDIT])
    wait_for(lambda: person.shown.count(Payer.question) == 3)
    person.process.send_signal(number)
    person.process.wait(60)
    assert (tmp_path / "payments.txt").read_text() == "2 to Ann\n"
    shown = begin("resume", answers=["e\npay(to='Bob', amount=90)\n.\n", "y\n"]).end()
    assert (tmp_path / "payments.txt").read_text() == "2 to Ann\n90 to Bob\n"
    assert shown.count("Make this call?") == 2  # The second one is about the edited call.
    for said in ("paid 2 to Ann", "paid 90 to Bob", "Mallory: pay() is forbidden here"):
        assert said in shown
    journal = Journal(tmp_path / "journal.sqlite3")
    [code] = [step for step in journal.steps(journal.find("last").id) if step.kind == "code"]
    paid = [call for call in code.result["calls"] if call["name"] == "pay"]
    assert [(call["arguments"]["amount"], call["edited"]) for call in paid] == [(2, True), (90, True), (10, False)]
