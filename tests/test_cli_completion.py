"""What a shell completes, in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.configs import shipped_teams
from coderoom.runs import Journal
from tests.support.commands import environment

# As `--install-completion` has it, for words as bash splits them at the cursor.
SCRIPT = """\
source <(coderoom --show-completion bash)
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _coderoom_completion coderoom; echo "${COMPREPLY[*]}"; }
"""


@pytest.fixture
def completed(tmp_path: Path) -> dict[str, list[str]]:
    """What is completed after words, all in one shell."""
    journal = Journal(tmp_path / "journal.sqlite3")
    for model in ("openai:gpt-4o-2024-08-06", "vllm:my-own"):
        journal.end(journal.begin("run", "code-act", "Do it.", model, {}), "ok", {})
    (tmp_path / "team.yaml").touch()
    (tmp_path / "recorded.json").touch()
    lines = [
        "coderoom as",
        "coderoom run ''",
        "coderoom run te",
        "coderoom runs show ''",
        "coderoom exec n.md --wall bub",
        "coderoom ask x -m vl",
        "coderoom ask x -m vllm :",
        "coderoom ask x -m replay : rec",
        "coderoom ask x --model = openai : gpt-4o-2",
        "coderoom solve --max-att",
    ]
    script = SCRIPT + "".join(f"complete_words {line}\n" for line in lines)
    env = environment({"CODEROOM_JOURNAL": str(journal.path), "SHELL": "/bin/bash"})
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = done.stdout.split("\n")
    return {line: words.split() for line, words in zip(lines, found, strict=False)}


@pytest.mark.slow
def test_a_shell_completes_what_there_is(completed: dict[str, list[str]]) -> None:
    shown, runs = completed.pop("coderoom run ''"), completed.pop("coderoom runs show ''")
    assert {*shown} == {*shipped_teams(), "team.yaml", "recorded.json"}
    assert len(runs) == 2
    assert list(completed.values()) == [
        ["ask"],
        ["test-driven", "team.yaml"],
        ["bubblewrap"],
        ["vllm:my-own", "vllm:"],
        ["my-own"],
        ["recorded.json"],
        ["gpt-4o-2024-08-06"],
        ["--max-attempts"],
    ]


def test_what_a_shell_completes_needs_no_autogen(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from coderoom.cli import completion\n"
        "found = completion.teams(''), completion.runs(''), completion.walls(''), completion.models('')\n"
        "slow = 'autogen', 'openai', 'ruamel', 'pydantic', 'rich'\n"
        "slow = [name for name in sys.modules if name.startswith(slow)]\n"
        "assert found[0] and not slow, slow\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), check=True)
