"""The functions for files of a repository, which an agent's code may call."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import ApprovalRequest, ApprovalResponse, CodeActAgent, ReviewerAgent
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


async def test_a_diff_in_a_reply_is_applied_after_approval(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_bytes(b'# "Box" \\ one\r\ndef area(a, b):\r\n    return a + b\r\n')
    head = "--- a/box.py\n+++ b/box.py\n"
    wrong = f"```diff\n{head}@@ -2,2 +2,2 @@\n def area(a, b):\n-    return a - b\n+    return a * b\n```"
    right = (
        f'```patch\n{head}@@ -1,3 +1,3 @@\n-# "Box" \\ one\n+# """Box""" \\ two\n'
        " def area(a, b):\n-    return a + b\n+    return a * b\n```"
    )
    model = ReplayChatCompletionClient([wrong, right, right.replace("a * b", "b"), "Fixed."])
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        asked.append(request.code)
        return ApprovalResponse(approved=len(asked) < 3, reason="")

    executor = SandboxCodeExecutor(work_dir=tmp_path, editing=True)
    agent = CodeActAgent("coder", model, code_executor=executor, approval_func=approve)
    try:
        answer = await agent.on_messages([TextMessage(content="Fix area.", source="user")], CancellationToken())
        assert (tmp_path / "box.py").read_bytes() == b'# """Box""" \\ two\r\ndef area(a, b):\r\n    return a * b\r\n'
        heard = [str(call["messages"][-1].content) for call in model.create_calls]
        assert "The lines most like it" in heard[1]
        assert heard[2].startswith("box.py: +2 -2\n")
        assert asked[1].startswith("```diff\n--- a/box.py")
        assert "not approved" in answer.chat_message.to_text()
    finally:
        await agent.close()
        await executor.stop()


async def test_without_editing_a_diff_is_not_run_and_the_model_learns_why(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("one\n")
    diff = "```diff\n--- a/box.py\n+++ b/box.py\n@@ -1 +1 @@\n-one\n+two\n```\n"
    model = ReplayChatCompletionClient([diff + "```python\nprint(1)\n```", "Done."])
    executor = SandboxCodeExecutor(work_dir=tmp_path)
    agent = CodeActAgent("coder", model, code_executor=executor)
    try:
        await agent.on_messages([TextMessage(content="Fix it.", source="user")], CancellationToken())
        assert (tmp_path / "box.py").read_text() == "one\n"
        assert "No diff is applied here: write code that changes the files." in str(
            model.create_calls[1]["messages"][-1]
        )
    finally:
        await agent.close()
        await executor.stop()


@pytest.mark.parametrize("mode", ["direct", "overlay"])
async def test_a_long_output_of_code_that_is_undone_can_be_read(
    tmp_path: Path, mode: Literal["direct", "overlay"]
) -> None:
    bad = "```python\nprint('x' * 900); open('made', 'w').close(); 1 / 0\n```"
    reads = "```python\nimport os; [name] = os.listdir(); [file] = os.listdir(name); print(name, file[:7])\n```"
    model = ReplayChatCompletionClient([bad, reads, "Done."])
    executor = SandboxCodeExecutor(work_dir=tmp_path, workspace_mode=mode)
    agent = CodeActAgent("coder", model, code_executor=executor, max_output_chars=300, on_error="rollback")
    try:
        answer = await agent.on_messages([TextMessage(content="Print.", source="user")], CancellationToken())
        assert "Output:\n\n```text no-run\n.coderoom output-\n" in answer.chat_message.to_text()
    finally:
        await agent.close()
        await executor.stop()


async def test_a_long_output_is_kept_apart_from_a_folder_that_stays_as_it_is(tmp_path: Path) -> None:
    prints, reads = (
        "print('x' * 900)",
        "import os; [name] = os.listdir('.coderoom'); print(len(read_file(f'.coderoom/{name}')))",
    )
    model = ReplayChatCompletionClient([f"```python\n{prints}\n```", f"```python\n{reads}\n```", "Done."])
    executor = SandboxCodeExecutor(work_dir=tmp_path, editing=True, workspace_mode="overlay")
    agent = CodeActAgent("coder", model, code_executor=executor, max_output_chars=300)
    try:
        answer = await agent.on_messages([TextMessage(content="Print.", source="user")], CancellationToken())
        assert "the whole output is in .coderoom/output-" in str(model.create_calls[1]["messages"][-1])
        assert "Output:\n\n```text no-run\n430\n" in answer.chat_message.to_text()
        assert (len(await executor.changes()), str(await executor.diff()), list(tmp_path.iterdir())) == (0, "", [])
    finally:
        await agent.close()
        await executor.stop()


async def test_a_reviewer_sees_the_diff_of_all_turns(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text("one\n")
    first = "```python\nwrite_file('new.py', '``` x\\n')\nwrite_file('.pytest_cache/x', 'cached')\n```"
    second = "```python\nedit_file('box.py', 'one', 'two')\n```"
    model = ReplayChatCompletionClient([first, "Added.", second, "Edited."])
    verdict = '{"approved": true, "issues": [], "summary": "Fine."}'
    reviewing = ReplayChatCompletionClient([verdict, verdict, verdict])
    executor = SandboxCodeExecutor(work_dir=tmp_path, editing=True, workspace_mode="overlay")
    coder, reviewer = CodeActAgent("coder", model, code_executor=executor), ReviewerAgent("reviewer", reviewing)
    try:
        for _ in range(2):
            task = TextMessage(content="Go on.", source="user")
            done = await coder.on_messages([task], CancellationToken())
            await reviewer.on_messages([task, done.chat_message], CancellationToken())
        restored = ReviewerAgent("reviewer", reviewing)
        await restored.load_state(await reviewer.save_state())
        await restored.on_messages([], CancellationToken())
    finally:
        await coder.close()
        await executor.stop()
    first, second, third = (str(call["messages"][-2].content) for call in reviewing.create_calls)
    assert "+``` x\n" in first
    assert "box.py" not in first
    assert "-one\n+two\n" in second
    assert "+``` x\n" in second
    assert "cached" not in second
    assert third == second
    assert list(tmp_path.iterdir()) == [tmp_path / "box.py"]
