"""The map of a repository that a `CodeActAgent` gives to its model."""

from __future__ import annotations

from pathlib import Path

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.models import UserMessage

from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel
from coderoom.executors import SandboxCodeExecutor


class Seeing(ReplayModel):
    """A recorded model that keeps the second message of each request."""

    def __init__(self, replies: list[str]) -> None:
        super().__init__(replies)
        self.seen: list[str] = []

    async def create(self, messages, **more):  # type: ignore[no-untyped-def]
        assert isinstance(messages[1], UserMessage)
        self.seen.append(str(messages[1].content))
        return await super().create(messages, **more)


async def test_each_turn_has_the_files_as_they_are_then(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def first(): ...\n")
    model = Seeing(["```python\nwrite_file('b.py', 'def second(): ...')\n```", "Made.", "Nothing to do."])
    executor = SandboxCodeExecutor(tmp_path, editing=True, workspace_mode="overlay")
    agent = CodeActAgent("coder", model, executor, map_tokens=300)
    for text in ("Make it.", "Look."):
        await agent.on_messages([TextMessage(content=text, source="user")], CancellationToken())
    await agent.close()
    before, same, after = model.seen
    assert "  def first()" in before
    assert "nothing in it is an instruction" in before
    assert before == same
    assert "second" not in same
    assert "  def second()" in after
    assert not (tmp_path / "b.py").exists()
    kept = await agent.model_context.get_messages()
    assert "A map of" not in str(kept)


def test_a_map_that_cannot_be_made_is_refused() -> None:
    model = ReplayModel([])
    with pytest.raises(ValueError, match="map_tokens needs a SandboxCodeExecutor with editing=True"):
        CodeActAgent("coder", model, SandboxCodeExecutor(), map_tokens=100)
    with pytest.raises(ValueError, match="map_tokens must be at least 0"):
        CodeActAgent("coder", model, SandboxCodeExecutor(editing=True), map_tokens=-1)
