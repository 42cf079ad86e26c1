"""The functions for files of a repository, which an agent's code may call."""

from __future__ import annotations

from pathlib import Path

from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import CodeActAgent
from coderoom.executors import SandboxCodeExecutor
from tests.executors.helpers import run_in as run


async def test_an_agents_code_edits_files(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("def area(a, b):\n    return a + b\n")
    edit = "```python\nprint(read_file('box.py'))\nprint(edit_file('box.py', 'a + b', 'a * b'))\n```"
    model = ReplayChatCompletionClient([edit, "Fixed."])
    executor = SandboxCodeExecutor(work_dir=tmp_path, editing=True)
    agent = CodeActAgent("coder", model, code_executor=executor)
    try:
        await agent.on_messages([TextMessage(content="Fix area.", source="user")], CancellationToken())
        assert (tmp_path / "box.py").read_text() == "def area(a, b):\n    return a * b\n"
        asked = [str(call["messages"]) for call in model.create_calls]
        assert "edit_file(path, old, new" in asked[0]
        assert "2|     return a + b" in asked[1]
        # After variables were lost, the functions are there all the same.
        assert (await run(executor, "import os; os.kill(os.getpid(), 9)")).exit_code
        assert "box.py" in (await run(executor, "print(list_files())")).output
        await executor.restart()
        assert "box.py" in (await run(executor, "print(list_files())")).output
    finally:
        await agent.close()
        await executor.stop()
