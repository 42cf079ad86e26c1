"""An MCP server whose tools are called by code in the sandbox: a real one, over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_core import CancellationToken
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

from coderoom.agents import CodeActAgent
from coderoom.approval import CallRule, NeverApprove
from coderoom.configs import check_team, dump_team, load_team
from coderoom.errors import RequestError
from tests.agents.acting import MakeActor, outputs, remembered
from tests.agents.helpers import TASK, Client, begin, is_alive, python, stream, text_of, turn
from tests.support.commands import ROOT, coderoom


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """AutoGen logs each server that dies with its traceback."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def params(log: Path) -> StdioServerParams:
    arguments = ["-m", "tests.support.mcp_server", str(log)]
    return StdioServerParams(command=sys.executable, args=arguments, cwd=ROOT, read_timeout_seconds=60)


def calls(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if not line.isdigit()]


def servers(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines() if line.isdigit()]


async def ended(log: Path) -> bool:
    """Whether all servers that were started have ended; the system may need a moment to take note."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            while any(is_alive(pid) for pid in servers(log)):
                await asyncio.sleep(0.01)
            return True
    return False


async def test_code_calls_the_servers_tools(actor: MakeActor, log: Path) -> None:
    code = "n = int(count('apples'))\nprint(n, take_out(item='apples', number=n - 2))\nprint(photograph()['type'])"
    client = Client(python(code), "Two are left.")
    agent = actor(client, workbench=McpWorkbench(params(log)))
    assert outputs(await stream(agent, TASK)) == ["12 2 apples are left\nimage\n"]
    assert calls(log) == ["count apples", "take_out apples 10"]
    [told] = client.calls[0].system
    assert 'def count(item: str):\n    """How many of an item are in stock."""' in told
    assert "def take_out(item: str, number: int = 1):" in told
    assert "These give text (str), also where it is a number" in told
    assert "without await: count, take_out, wait, photograph, collapse." in told
    await agent.close()
    assert len(servers(log)) == 1
    assert await ended(log)


@pytest.mark.slow
async def test_a_tool_that_fails_is_an_exception_in_the_code(actor: MakeActor, log: Path) -> None:
    code = "try:\n    take_out('pears', 99)\nexcept RuntimeError as error:\n    print(error)\ncount(7)"
    client = Client(python(code), "No.")
    [output] = outputs(await stream(actor(client, workbench=McpWorkbench(params(log))), TASK))
    assert "there are only 5 pears" in output
    assert "TypeError: count(): item: 7 is not of type 'string'" in output
    assert calls(log) == ["take_out pears 99"]
    assert "- take_out(item='pears', number=99): error" in client.calls[1].texts[-1]


@pytest.mark.slow
async def test_cancel_in_a_call(actor: MakeActor, log: Path) -> None:
    agent = actor(Client(python("wait()"), python("print(count('pears'))"), "5."), workbench=McpWorkbench(params(log)))
    running, token = begin(agent, TASK)
    async with asyncio.timeout(30):
        while not log.exists() or "wait" not in calls(log):
            await asyncio.sleep(0.01)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "- wait(): cancelled" in (await remembered(agent))[-1]
    assert outputs(await stream(agent, "Go on.")) == ["5\n"]
    await agent.close()
    assert await ended(log)


# --- Servers that die ---


@pytest.mark.parametrize(
    ("command", "arguments", "cause"),
    [
        ("no-such-program", [], "No such file or directory: 'no-such-program'"),
        (sys.executable, ["-c", "input(); raise SystemExit(3)"], "Connection closed"),
        (sys.executable, ["-c", "import time; time.sleep(60)"], "Timed out"),
    ],
)
@pytest.mark.slow
async def test_a_server_that_cannot_be_started_is_a_clear_error(
    actor: MakeActor, command: str, arguments: Sequence[str], cause: str
) -> None:
    timeout = 1 if cause == "Timed out" else 60
    server = StdioServerParams(command=command, args=list(arguments), read_timeout_seconds=timeout)
    client = Client("never asked")
    agent = actor(client, workbench=McpWorkbench(server))
    for _ in range(2):
        with pytest.raises(RequestError, match="The workbench 'McpWorkbench' cannot be used") as caught:
            await turn(agent, TASK)
        assert cause in str(caught.value)
    assert client.calls == []
    await agent.close()


@pytest.mark.slow
async def test_a_server_that_dies_is_told_and_started_anew(actor: MakeActor, log: Path) -> None:
    client = Client(python("x = 1\ncollapse()"), python("print(x, count('pears'))"), "5.")
    agent = actor(client, workbench=McpWorkbench(params(log)))
    first, second = outputs(await stream(agent, TASK))
    assert "Connection closed" in first
    assert second == "1 5\n"
    await agent.close()
    assert len(servers(log)) == 2
    assert await ended(log)


# --- Who starts and stops it ---


@pytest.mark.slow
async def test_one_that_was_started_before_is_left_to_its_owner(actor: MakeActor, log: Path) -> None:
    async with McpWorkbench(params(log)) as workbench:
        agent = actor(Client(python("print(count('pears'))"), "5."), workbench=workbench)
        assert outputs(await stream(agent, TASK)) == ["5\n"]
        await agent.close()
        assert (await workbench.call_tool("count", {"item": "apples"})).is_error is False
    assert len(servers(log)) == 1
    assert await ended(log)


@pytest.mark.slow
async def test_close_reset_and_use_again(actor: MakeActor, log: Path) -> None:
    client = Client(python("n = count('pears')"), "5.", python("print(n)"), "5.", python("print(count('pears'))"), "5.")
    agent = actor(client, workbench=McpWorkbench(params(log)))
    await turn(agent, TASK)
    await agent.close()
    assert await ended(log)
    assert outputs(await stream(agent, "Again.")) == ["5\n"]
    assert calls(log) == ["count pears"]
    await agent.on_reset(CancellationToken())
    assert outputs(await stream(agent, "Once more.")) == ["5\n"]
    await agent.close()
    assert await ended(log)


@pytest.mark.slow
def test_another_event_loop(log: Path) -> None:
    replies = [python("n = count('pears')"), "5.", python("print(n, count('apples'))"), "12."]
    agent = CodeActAgent("actor", Client(*replies), workbench=McpWorkbench(params(log)))

    async def one_turn(close: bool) -> str:
        text = text_of(await turn(agent, TASK))
        if close:
            await agent.close()
        return text

    asyncio.run(one_turn(False))
    assert "5 12\n" in asyncio.run(one_turn(True))
    assert calls(log) == ["count pears", "count apples"]
    assert not any(is_alive(pid) for pid in servers(log))


# --- In a team file ---

TEAM = """\
provider: {team}
config:
  participants:
    - provider: coderoom.agents.CodeActAgent
      config:
        name: keeper
        model_client:
          provider: coderoom.configs.ReplayModel
          config:
            replies: {replies}
        workbench:
          - provider: autogen_ext.tools.mcp.McpWorkbench
            config:
              server_params:
                type: StdioServerParams
                command: {python}
                args: [-m, tests.support.mcp_server, {log}]
                cwd: {root}
                read_timeout_seconds: 60
  max_turns: 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["autogen_agentchat.teams.RoundRobinGroupChat", "coderoom.teams.CodingTeam"])
async def test_a_team_file_loads_runs_is_saved_and_goes_on(tmp_path: Path, log: Path, kind: str) -> None:
    def load(*replies: str) -> Team:
        file = tmp_path / "team.yaml"
        facts = {"team": kind, "python": sys.executable, "log": log, "root": ROOT, "replies": json.dumps(replies)}
        file.write_text(TEAM.format(**facts))
        assert check_team(file) == []
        return load_team(file)

    first = load(python("left = int(count('apples')) - 2\nprint(take_out('apples', left))"), "2 are left.")
    result = await first.run(task="Sell all but two apples.")
    assert outputs(result.messages) == ["2 apples are left\n"]
    assert "workbench" in dump_team(first)
    state = json.dumps(await first.save_state())
    await close(first)
    assert await ended(log)

    second = load(python("print(left, count('pears'))"), "10 were sold.")
    await second.load_state(json.loads(state))
    assert outputs((await second.run(task="How many were sold?")).messages) == ["10 5\n"]
    assert calls(log) == ["count apples", "take_out apples 10", "count pears"]
    await close(second)
    assert await ended(log)


async def close(team: Any) -> None:
    for agent in team._participants:
        await agent.close()


@pytest.mark.slow
def test_the_command_line_runs_it_and_leaves_nothing(tmp_path: Path, log: Path) -> None:
    replies = json.dumps([python("print(count('pears'))"), "5."])
    kind = "coderoom.teams.CodingTeam"
    text = TEAM.format(team=kind, python=sys.executable, log=log, root=ROOT, replies=replies)
    (tmp_path / "team.yaml").write_text(text)
    assert coderoom("validate", "team.yaml", cwd=tmp_path).returncode == 0
    done = coderoom("run", "team.yaml", "How many pears?", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "ok"
    assert calls(log) == ["count pears"]
    assert not any(is_alive(pid) for pid in servers(log))
    assert os.getpid() not in servers(log)


@pytest.mark.slow
async def test_a_server_hints_at_effects(actor: MakeActor, log: Path) -> None:
    code = "print(count('apples'))\n"
    for call in ("take_out('apples')", "photograph()"):
        code += f"try: {call}\nexcept PermissionError as error: print(error)\n"
    client = Client(python(code), "Well.")
    agent = actor(client, workbench=McpWorkbench(params(log)), call_approval=NeverApprove(reason="no"))
    no = "take_out() was not allowed: no\nphotograph() was not allowed: no\n"
    assert outputs(await stream(agent, TASK)) == [f"12\n{no}"]
    assert calls(log) == ["count apples"]


@pytest.mark.slow
async def test_a_rule_may_name_a_tool_as_its_server_does(actor: MakeActor, log: Path) -> None:
    code = "try: take_out('apples')\nexcept PermissionError as error: print(error)"
    rules = [CallRule(function="take-*", effect="forbidden")]
    agent = actor(Client(python(code), "Well."), workbench=McpWorkbench(params(log)), call_rules=rules)
    assert outputs(await stream(agent, TASK)) == ["take_out() is forbidden here\n"]
