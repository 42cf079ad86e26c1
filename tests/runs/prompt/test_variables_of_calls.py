"""What code has set with results of functions is there in a chat that goes on, with another model, and in `/run`."""

from __future__ import annotations

from pathlib import Path

import pytest
from autogen_core.code_executor import ImportFromModule
from autogen_core.tools import FunctionTool

from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel, dump_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.teams import CodingTeam
from tests.support.commands import coderoom_process
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow


def draw() -> int:
    """Draw a number."""
    with Path("drawn").open("a") as file:
        return file.write("drawn\n") * 7


def python(code: str) -> str:
    return f"```python\n{code}\n```"


@pytest.mark.parametrize(
    ("begin", "go_on"),
    [
        ("Draw.\n/model {url}#other\n", "/run print('x is', x)\n"),
        ("Say.\n/run x = draw()\n", "/model {url}#other\nLook.\n"),
    ],
)
def test_variables_come_back_without_calling_functions_again(tmp_path: Path, begin: str, go_on: str) -> None:
    tool = FunctionTool(draw, "Draw.", global_imports=[ImportFromModule("pathlib", ("Path",))])
    agent = CodeActAgent("ann", ReplayModel([]), SandboxCodeExecutor(), tools=[tool])
    dump_team(CodingTeam([agent], max_turns=1), tmp_path / "team.yaml")
    env = {
        "CODEROOM_JOURNAL": str(tmp_path / "journal"),
        "CODEROOM_API_KEY": "k",
        "COLUMNS": "200",
        "PYTHONWARNINGS": "ignore",  # AutoGen warns of each function whose source stands in a config.
    }
    first = [python("x = draw()"), "Drawn."] if begin.startswith("Draw") else ["Well."]
    with OpenAIServer([*first, python("print('x is', x)"), "Seen."]) as server:
        for arguments, lines in (["team.yaml", "--model", f"{server.base_url}#m"], begin), (["--continue"], go_on):
            stdin = lines.format(url=server.base_url)
            done = coderoom_process("chat", *arguments, cwd=tmp_path, env=env, stdin=stdin)
    assert "x is 42" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "drawn").read_text() == "drawn\n"
