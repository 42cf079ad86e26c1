"""The same team files through `autogenstudio serve`, and in plain AutoGen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from autogen_agentchat.base import Team

from coderoom.agents import metadata as keys
from tests.agents.helpers import decide, python, verdict
from tests.studio.autogens import calls_a_tool
from tests.studio.processes import below, wait_until_gone
from tests.studio.teams import ACT, EXECUTOR, ROUND, agent, replay, sandbox, shipped, team
from tests.support.commands import ROOT
from tests.support.studio import studio_environment, studio_python, wait_for

pytestmark = pytest.mark.studio

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
def serving(team: dict[str, Any], tmp_path: Path) -> Iterator[tuple[int, Callable[[], Any]]]:
    """A server for this team: its process id, and what asks it."""
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
        yield server.pid, lambda: _ask(f"http://127.0.0.1:{port}/predict/{quote(TASK)}", server, tmp_path / "log")
    finally:
        server.terminate()
        server.wait(30)


def test_serve_answers_with_the_whole_result(tmp_path: Path) -> None:
    with serving(component(tmp_path / "work"), tmp_path) as (pid, ask):
        answer = ask()
        assert wait_until_gone(below(pid), 2) == {}
    assert (answer["status"], answer["message"]) == (True, "Task successfully completed")
    result = answer["data"]["task_result"]
    assert [message["type"] for message in result["messages"]] == TYPES
    assert result["messages"][-2]["metadata"]["coderoom.outcome"] == "ok"
    assert result["messages"][-1]["metadata"]["coderoom.approved"] == "true"
    assert "approved" in result["stop_reason"].lower()


def test_serve_leaves_nothing_of_a_run(tmp_path: Path) -> None:
    """Of a team with agents that Studio does not close."""
    folder = tmp_path / "work"
    models = {"model_client": replay(GOOD, "It is 42.")}
    ours = agent(EXECUTOR, "coder", **models, code_executor=sandbox(folder))
    acting = agent(ACT, "coder", **models, code_executor=sandbox(folder))
    nested_twice = team(ROUND, team(ROUND, acting, name="innermost"), name="inner")
    inner = team(ROUND, ours, name="inner")
    provider = "autogen_agentchat.agents.SocietyOfMindAgent"
    society = agent(provider, "society", team=inner, model_client=replay("It is 42."))
    component = team(ROUND, nested_twice, society, calls_a_tool("print(6 * 7)", sandbox(folder)))
    with serving(component, tmp_path) as (pid, ask):
        for _ in range(2):
            answer = ask()
            assert answer["status"], answer
            assert wait_until_gone(below(pid), 2) == {}


def test_serve_ends_one_run_and_not_another(tmp_path: Path) -> None:
    replies = (python("import time\nx = 41\ntime.sleep(4)"), python("print(x + 1)"), "It is 42.")
    acting = agent(ACT, "coder", model_client=replay(*replies), code_executor=sandbox(tmp_path / "work"))
    component = team(ROUND, team(ROUND, acting, name="inner"))
    with serving(component, tmp_path) as (pid, ask), ThreadPoolExecutor() as threads:
        first = threads.submit(ask)
        wait_for(lambda: bool(below(pid)))
        time.sleep(2)
        for answer in (ask(), first.result()):
            assert answer["status"], answer
            assert "42" in json.dumps(answer["data"]["task_result"]["messages"])
        assert wait_until_gone(below(pid), 2) == {}


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
