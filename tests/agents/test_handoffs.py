"""Handing over to other agents, and memories, as with AutoGen's own agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import HandoffMessage, MemoryQueryEvent
from autogen_agentchat.teams import Swarm
from autogen_core import ComponentLoader
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType

from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.configs import ReplayModel, check_team
from coderoom.executors import SandboxCodeExecutor
from tests.support.commands import coderoom

CALLS = {"function_calling": True}
FAILS = "```python\nprint(1 / 0)\n```"
WORKS = "```python\nprint(6 * 7)\n```"


def call(*names: str) -> dict[str, Any]:
    return {"content": [{"id": str(number), "name": name, "arguments": "{}"} for number, name in enumerate(names)]}


def memory() -> ListMemory:
    return ListMemory(memory_contents=[MemoryContent(content="They like 42.", mime_type=MemoryMimeType.TEXT)])


def swarm() -> Swarm:
    coder_model = ReplayModel(
        [FAILS, '{"retry": true, "reason": "again"}', call("transfer_to_actor", "to_boss")], CALLS
    )
    actor_model = ReplayModel([WORKS, call("transfer_to_boss")], CALLS)
    coder = CodeExecutorAgent(
        "coder",
        SandboxCodeExecutor(),
        model_client=coder_model,
        max_retries_on_error=1,
        memory=[memory()],
        handoffs=["actor", Handoff(target="boss", name="to_boss")],
    )
    actor = CodeActAgent("actor", actor_model, memory=[memory()], handoffs=["boss"])
    boss = AssistantAgent("boss", ReplayModel(["It is 42. END"], CALLS), handoffs=["coder"])
    return Swarm([coder, actor, boss], termination_condition=TextMentionTermination("END"))


async def test_a_swarm_of_our_agents_and_autogens() -> None:
    result = await swarm().run(task="Compute it.")
    handed = [message for message in result.messages if isinstance(message, HandoffMessage)]
    assert [(message.source, message.target) for message in handed] == [("coder", "actor"), ("actor", "boss")]
    assert "ZeroDivisionError" in str(handed[0].context)
    assert "print(6 * 7)" in str(handed[1].context)
    assert [message.source for message in result.messages if isinstance(message, MemoryQueryEvent)] == [
        "coder",
        "actor",
    ]
    assert result.messages[-1].to_text() == "It is 42. END"


async def test_it_is_dumped_loaded_and_run_from_a_file(tmp_path: Path) -> None:
    dumped = swarm().dump_component()
    again = ComponentLoader.load_component(dumped, Swarm).dump_component()
    assert again == dumped
    data = json.loads(dumped.model_dump_json(exclude_none=True))
    data["config"]["participants"][1]["config"]["handoffs"] = ["boss"]
    file = tmp_path / "swarm.json"
    file.write_text(json.dumps(data))
    assert check_team(file) == []
    done = coderoom("run", "swarm.json", "Compute it.", "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert run["error"] is None
    assert (run["outcome"], run["answer"], run["attempts"]) == ("ok", "It is 42.", 2)


async def test_memories_are_in_the_conversation() -> None:
    model = ReplayModel(["It is 42."])
    agent = CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=model, memory=[memory()])
    await agent.run(task="What do they like?")
    assert "They like 42." in str(model.create_calls[0]["messages"])


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (None, {"handoffs": ["x"]}, "handoffs need a model_client"),
        (None, {"memory": [memory()]}, "memory needs a model_client"),
        (ReplayModel([]), {"handoffs": ["x"]}, "a model that can call functions"),
        (ReplayModel([], CALLS), {"handoffs": ["x", "x"]}, "the same name"),
    ],
)
def test_wrong_arguments(model: ReplayModel | None, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=model, **arguments)
