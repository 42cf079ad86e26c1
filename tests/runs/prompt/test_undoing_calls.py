"""`/undo` of tasks whose code has called functions: what is undone, what is told, and after a kill in the middle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import ImportFromModule
from autogen_core.tools import FunctionTool

from coderoom.agents import CodeActAgent
from coderoom.approval import AlwaysApprove, CallRule
from coderoom.configs import ReplayModel, dump_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.teams import CodingTeam
from tests.support.commands import coderoom_process
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

FAILS = "1 / 0"


def book(name: str) -> int:
    """Book something."""
    with Path("booked").open("a") as file:
        return file.write(f"{name}\n")


def cancel(name: str) -> None:
    """Cancel it, unless the machine breaks down."""
    with Path("booked").open("a") as file:
        file.write(f"not {name}\n")
    if Path("breaks").exists():
        Path("breaks").unlink()
        os._exit(9)


def send(text: str) -> None:
    """Send something."""


class Service:
    """A model service, and chats with a team whose agents have functions."""

    def __init__(self, path: Path, *replies: str) -> None:
        self.path, self.server = path, OpenAIServer([*replies])
        used: list[Any] = ["os", ImportFromModule("pathlib", ("Path",))]
        tools = [FunctionTool(each, "Calls.", global_imports=used) for each in (book, cancel, send)]
        rules = [CallRule(function="book", effect="write", inverse="cancel")]
        agents = [
            CodeActAgent(
                name,
                ReplayModel([]),
                SandboxCodeExecutor(),
                tools=tools,
                call_approval=AlwaysApprove(),
                call_rules=rules,
            )
            for name in ("ann", "bob")
        ]
        dump_team(CodingTeam(agents, max_turns=2), path / "team.yaml")

    def chat(self, *arguments: str, lines: str) -> tuple[str, int]:
        env = {
            "CODEROOM_JOURNAL": str(self.path / "journal"),
            "CODEROOM_API_KEY": "k",
            "COLUMNS": "500",
            "PYTHONWARNINGS": "ignore",  # AutoGen warns of each function whose source stands in a config.
        }
        done = coderoom_process("chat", *arguments, cwd=self.path, env=env, stdin=lines)
        return done.stdout + done.stderr, done.returncode

    @property
    def booked(self) -> list[str]:
        return (self.path / "booked").read_text().split("\n")[:-1]


def python(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


def test_calls_are_undone_across_agents_and_what_has_no_inverse_is_told(tmp_path: Path) -> None:
    first = python("book(name='a')"), "Booked.", "Nothing to add."
    second = python("book(name='b')", FAILS), python("send(text='hello')"), "So.", python("book(name='c')"), "Booked."
    service = Service(tmp_path, *first, *second, *["Well."] * 4)
    with service.server as server:
        given = ["team.yaml", "--model", f"{server.base_url}#m"]
        lines = "Book a.\nBook more.\n/run book(name='d')\n/undo\nGo on.\n/undo\n/undo\n"
        shown, code = service.chat(*given, lines=lines)
        assert code == 0, shown
        service.chat("--continue", lines="Once more.\n")
        assert service.booked == ["a", "b", "c", "d", "not d", "not c", "not b", "not a"]
        for name in "dcb":
            assert f"book(name='{name}') was undone by cancel()." in shown
        assert "Not undone: the calls of functions send(text='hello'): ok." in shown
        for task in ("Go on.", "Once more."):  # The second one is in another process, after all were undone.
            [asked] = [text for each in server.requests if task in (text := str(each.body["messages"][-1]["content"]))][
                :1
            ]
            assert asked.count("The person has undone a task since. These calls of functions were made before") == 1
            assert "- send(text='hello'): ok" in asked
            assert "book(name='b')" not in asked


def test_a_chat_that_is_killed_when_it_undoes_calls_goes_on_with_the_rest(tmp_path: Path) -> None:
    (tmp_path / "breaks").touch()
    replies = python("for each in 'abc': book(name=each)"), "Booked.", "Nothing to add.", "Well.", "Well."
    service = Service(tmp_path, *replies)
    with service.server as server:
        given = ["team.yaml", "--model", f"{server.base_url}#m"]
        shown, code = service.chat(*given, lines="Book them.\n/undo\n")
        assert (code, service.booked[3:]) == (9, ["not c"]), shown
        shown, _ = service.chat("--continue", lines="Go on.\n")
        assert service.booked[3:] == ["not c", "not b", "not a"]
        assert "cancel() may have undone it: it had begun when the run was ended" in shown
        shown, _ = service.chat("--continue", lines="/undo\n")
        assert len(service.booked) == 6
