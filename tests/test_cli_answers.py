"""What `run` prints for pipes and scripts: the answer alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import coderoom, recording
from tests.support.terminals import in_terminal

CODE = "```python\nprint(42)\n```"
# Wider than a terminal, with Markdown, colours of a terminal and characters that it does not show.
ANSWER = "It is **42**, \x1b[31mred\x1b[0m, \u05d0\u200f. " + "word " * 40 + "\n\n- and a list"


@pytest.mark.parametrize("options", [[], ["--print"]])
def test_a_pipe_gets_the_answer_as_it_is(tmp_path: Path, options: list[str]) -> None:
    model = recording(tmp_path / "r.json", [CODE, ANSWER])
    done = coderoom("run", "code-act", "6 * 7?", "--model", model, *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n")
    assert ("outcome  ok" in done.stderr) == (options == [])
    assert "╭─ answer" not in done.stderr


@pytest.mark.slow
def test_an_answer_that_nothing_proves_is_printed_with_the_exit_code_of_a_failure(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", ["Forty-two."])
    done = coderoom("run", "code-act", "6 * 7?", "--model", model, "-p", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "Forty-two.\n")
    assert "outcome  no_code" in done.stderr


@pytest.mark.slow
def test_a_failure_prints_no_answer_and_says_why(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", ["```python\n1 / 0\n```"] * 2)
    done = coderoom("run", "coder-executor", "Fail.", "--model", model, "-p", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "outcome  error" in done.stderr


@pytest.mark.slow
def test_a_terminal_gets_the_answer_with_control_characters_visible(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [CODE, ANSWER])
    command = [sys.executable, "-m", "coderoom", "run", "code-act", "6 * 7?", "--model", model, "--print"]
    code, shown = in_terminal(command, tmp_path)
    assert code == 0
    answer = shown.rpartition("\x1b[2K")[2]  # After what it waited for was erased.
    assert answer.startswith("It is **42**, \u241b[31mred")
    assert "\x1b" not in answer
