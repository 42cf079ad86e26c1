"""The same team files through `autogenstudio serve`, and in plain AutoGen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from autogen_agentchat.base import Team

from coderoom.agents import metadata as keys
from tests.agents.helpers import decide, python, verdict
from tests.studio.processes import below, wait_until_gone
from tests.studio.teams import CODING, ROUND, agent, replay, sandbox, shipped, team
from tests.support.commands import ROOT
from tests.support.studio import studio_environment, studio_python

TASK = "Compute six times seven, and say it."
BAD, GOOD = python("print(nothing)"), python("print(6 * 7)")
TYPES = [
    *["TextMessage", "CodeGenerationEvent", "CodeExecutionEvent", "CodeGenerationEvent", "CodeGenerationEvent"],
    *["CodeExecutionEvent", "TextMessage", "TextMessage"],
]


def component(folder: Path) -> dict[str, Any]:
    coder = replay(BAD, decide(True, "the name is wrong"), GOOD, "It is 42.")
    return shipped("coder-reviewer", folder, coder, replay(verdict(True, "Fine.")))


@contextmanager
def served(team: dict[str, Any], tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], Any]]]:
    """`autogenstudio serve` with a team, and what asks it."""
    file = tmp_path / "team.json"
    file.write_text(json.dumps(team))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    program = str(studio_python().with_name("autogenstudio"))
    command = [program, "serve", "--team", str(file), "--port", str(port)]
    more = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    environment = studio_environment({**more, "PYTHONWARNINGS": "default"})
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        yield server, lambda: _ask(f"http://127.0.0.1:{port}/predict/{quote(TASK)}", server, tmp_path / "log")
    finally:
        server.terminate()
        server.wait(30)


def test_serve_answers_with_the_whole_result(tmp_path: Path) -> None:
    with served(component(tmp_path / "work"), tmp_path) as (server, ask):
        answer = ask()
        assert wait_until_gone(below(server.pid), 2) == {}
    assert (answer["status"], answer["message"]) == (True, "Task successfully completed")
    result = answer["data"]["task_result"]
    assert [message["type"] for message in result["messages"]] == TYPES
    assert result["messages"][-2]["metadata"]["coderoom.outcome"] == "ok"
    assert result["messages"][-1]["metadata"]["coderoom.approved"] == "true"
    assert "approved" in result["stop_reason"].lower()


def test_serve_leaves_nothing_of_autogens_own_agents(tmp_path: Path) -> None:
    own = agent(
        "autogen_agentchat.agents.CodeExecutorAgent",
        "coder",
        model_client=replay(GOOD, "It is 42."),
        code_executor=sandbox(tmp_path / "work"),
    )
    for kind in (CODING, ROUND):
        with served(team(kind, own), tmp_path) as (server, ask):
            for _ in range(2):
                assert ask()["status"]
                assert wait_until_gone(below(server.pid), 2) == {}


def _ask(url: str, server: subprocess.Popen[bytes], log: Path) -> Any:
    end = time.monotonic() + 60
    while True:
        try:
            return httpx.get(url, trust_env=False, timeout=60).json()
        except httpx.ConnectError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)


async def test_plain_autogen_loads_and_runs_it(tmp_path: Path) -> None:
    team = Team.load_component(component(tmp_path))
    assert team.dump_component().provider == "coderoom.teams.CodingTeam"
    before = below(os.getpid())
    async with team:  # type: ignore[attr-defined]
        result = await team.run(task=TASK)
    assert [message.to_text() for message in result.messages][-1] == "Approved. Fine."
    assert [type(message).__name__ for message in result.messages] == TYPES
    assert not any(keys.SHOWN in message.metadata for message in result.messages)
    assert wait_until_gone([pid for pid in below(os.getpid()) if pid not in before], 2) == {}
