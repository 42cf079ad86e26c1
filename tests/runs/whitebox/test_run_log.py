"""The log of a run: what a resumed run finds in it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from random import Random

from autogen_core.models import UserMessage

from coderoom._util.model_steps import watch_client
from coderoom._util.tasks import observing
from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel
from coderoom.runs import Journal
from coderoom.runs.run_log import RunLog, conversations


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


def test_conversations_that_grow_shrink_and_change_are_read_back(tmp_path: Path) -> None:
    chance, messages = Random(5), [UserMessage(content=f"{number}", source="user") for number in range(30)]
    journal = Journal(tmp_path / "journal.sqlite3")
    log = RunLog(journal)
    log.begin("run", "team", "Count.", None, {})
    asked: list[list[str]] = []
    given: list[UserMessage] = []
    for _ in range(300):
        cut = chance.randrange(len(given) + 1)
        given = chance.choice(
            [given, given[cut:], given[:cut], [*given[:cut], chance.choice(messages), *given[cut + 1 :]]]
        )
        given = given + chance.choices(messages, k=chance.randrange(4))
        request = {"messages": given, "model": "m"}
        assert log.find("model", request) is None
        log.keep("model", request, {"content": "Yes."}, 0.0, known=False)
        asked.append([message.content for message in given if isinstance(message.content, str)])
    steps = list(journal.steps(str(log.run)))
    contents = {name: json.loads(journal.content(str(log.run), name))["content"]
                for names in conversations(steps).values() for name in names}  # fmt: skip
    assert [[contents[name] for name in conversations(steps)[step.number]] for step in steps] == asked
    assert len({step.key for step in steps}) == len(set(map(tuple, asked)))
