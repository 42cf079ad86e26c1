"""The log of a run: what a resumed run finds in it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from coderoom._util.model_steps import watch_client
from coderoom._util.steps import observing
from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel
from coderoom.runs import Journal
from coderoom.runs.run_log import RunLog


async def test_a_function_answers_old_code_from_the_journal_and_new_code_itself(tmp_path: Path) -> None:
    calls: list[int] = []

    def status() -> int:
        calls.append(len(calls))
        return len(calls)

    undone = "```python\nprint(f'status {status()}')\n1 / 0\n```"
    polls, journal = "```python\nseen = status()\nprint(f'status {seen}')\n```", Journal(tmp_path / "journal")
    log = RunLog(journal)
    log.begin("run", "t", "x", None, {})
    outputs = []
    for replies in ([polls, undone], [polls, undone, polls, "Done."]):
        model = ReplayModel(replies)
        watch_client(model)
        agent = CodeActAgent("actor", model, tools=[status], on_error="rollback")
        with observing(log), suppress(Exception):
            result = await agent.run(task="Poll.")
            outputs = re.findall(r"status \d", str([message.to_text() for message in result.messages[1:-1]]))
        await agent.close()
        log = RunLog(journal, run=log.run, known=list(journal.steps(str(log.run))))
    assert outputs == ["status 1", "status 2", "status 3"]
    assert len(calls) == 3
