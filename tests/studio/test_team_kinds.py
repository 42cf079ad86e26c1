"""Our agents in AutoGen's teams of all kinds, in Studio's playground: their runs end and leave nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.agents.helpers import python
from tests.studio.autogens import assistant
from tests.studio.driving import Studio
from tests.studio.processes import below, wait_until_gone
from tests.studio.teams import ACT, ROUND, agent, part, replay, sandbox, team
from tests.support.studio import Studio as Server
from tests.support.studio import wait_for

pytestmark = pytest.mark.studio

SECONDS = 10.0
"""How long to wait for the end of a run that is stopped. It takes less than two on a quiet machine."""

ENDLESS = python("open('begun', 'w').close()\nwhile True:\n    pass")
GOOD = python("print(6 * 7)")
TEAMS = "autogen_agentchat.teams"

Json = dict[str, Any]


def coder(code: str, folder: Path) -> Json:
    models = {"model_client": replay(code, "It is 42."), "model_client_stream": True}
    return agent(ACT, "coder", **models, code_executor=sandbox(folder))


def listens() -> Json:
    return assistant("nothing", {})


def selector(agent: Json) -> Json:
    config = {"selector_prompt": "{roles} {history} {participants}", "allow_repeated_speaker": False}
    return team(f"{TEAMS}.SelectorGroupChat", agent, listens(), turns=1, model_client=replay("coder"), **config)


def swarm(agent: Json) -> Json:
    handoff = {"target": "coder", "description": "", "name": "transfer_to_coder", "message": "Go."}
    first = assistant("transfer_to_coder", {}, handoffs=[handoff])
    return team(f"{TEAMS}.Swarm", first, agent)


def graph(agent: Json) -> Json:
    nodes = {"coder": {"name": "coder", "edges": []}}
    return team(f"{TEAMS}.GraphFlow", agent, graph={"nodes": nodes, "default_start_node": "coder"})


def magentic(agent: Json) -> Json:
    def ledger(over: bool) -> str:
        answers = {
            "is_request_satisfied": over,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "coder",
            "instruction_or_question": "Go.",
        }
        return json.dumps({name: {"answer": answer, "reason": "so"} for name, answer in answers.items()})

    models = replay("Facts.", "A plan.", ledger(False), ledger(True), "It is 42.", json_output=True)
    config = {"final_answer_prompt": "Say it.", "max_stalls": 3}
    return team(f"{TEAMS}.MagenticOneGroupChat", agent, turns=3, model_client=models, **config)


def society(agent_: Json) -> Json:
    inner = team(ROUND, agent_, name="inner")
    provider = "autogen_agentchat.agents.SocietyOfMindAgent"
    return team(ROUND, agent(provider, "society", team=inner, model_client=replay("It is 42.")))


def tool(agent_: Json) -> Json:
    made = part("tool", "autogen_agentchat.tools.AgentTool", agent=agent_, return_value_as_last_message=True)
    return team(ROUND, assistant("coder", {"task": "Go."}, tools=[made]))


KINDS: dict[str, Callable[[Json], Json]] = {
    "a selector": selector,
    "a swarm": swarm,
    "a graph": graph,
    "Magentic-One": magentic,
    "a society of mind": society,
    "an agent as a tool": tool,
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_after_a_run(kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    before = below(studio_server.pid)
    run = driver.run(KINDS[kind](coder(GOOD, tmp_path)), "Compute it.")
    assert run.record()["status"] == "complete", run.record()
    assert "42" in json.dumps(run.events[-1])
    left = [pid for pid in below(studio_server.pid) if pid not in before]
    assert wait_until_gone(left, SECONDS) == {}


@pytest.mark.parametrize(("kind", "how"), list(zip(KINDS, cycle(["stop", "close_tab"]), strict=False)))
def test_it_ends_at_once(kind: str, how: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    before = below(studio_server.pid)
    with driver.running(KINDS[kind](coder(ENDLESS, tmp_path)), "Go.") as run:
        wait_for((tmp_path / "begun").exists, 30)
        started = [pid for pid in below(studio_server.pid) if pid not in before]
        assert started
        getattr(run, how)()
        assert wait_until_gone(started, SECONDS) == {}
        assert run.wait_for_record(SECONDS)["status"] == "stopped"
