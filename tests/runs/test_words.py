"""What a person says while a team works: each agent gets it before its next request, at the same place when resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_ext.tools.code_execution import PythonCodeExecutionTool

from coderoom.agents import CodeActAgent, CodeExecutorAgent, ReviewerAgent
from coderoom.agents import metadata as keys
from coderoom.configs import ReplayModel, dump_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs import Journal, Run, RunRecord, export_run, prepare_run
from coderoom.runs.run_log import read_steps
from coderoom.steps import StepObserver, observing
from tests.agents.helpers import decide, python, verdict

WORDS = "No, the other file."
SLOW = pytest.mark.slow


def coder() -> ChatAgent:
    model = ReplayModel([python("1 / 0"), decide(True), python("print(6 * 7)"), "It is 42."])
    return CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=model, max_retries_on_error=1)


def actor(*, eager: bool = False) -> ChatAgent:
    model = ReplayModel([python("print(6)"), python("print(7)"), "It is 42."])
    return CodeActAgent("actor", model, model_client_stream=eager, eager=eager)


def eager() -> ChatAgent:
    return actor(eager=True)


def assistant() -> ChatAgent:
    call = {"id": "1", "name": "CodeExecutor", "arguments": json.dumps({"code": "print('seen')"})}
    model = ReplayModel([{"content": [call]}, {"content": [call]}, "It is seen."], {"function_calling": True})
    tool = PythonCodeExecutionTool(SandboxCodeExecutor())
    return AssistantAgent("assistant", model, tools=[tool], max_tool_iterations=3)


class Saying(StepObserver):
    """Says the next of these words whenever code, or a tool, has ended."""

    def __init__(self, say: Callable[[str], None], words: Sequence[str]) -> None:
        self.words = list(words)
        self._say = say

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        if kind in ("code", "call") and not known and self.words:
            self._say(self.words.pop(0))


def begin(folder: Path, journal: Journal, *agents: ChatAgent) -> Run:
    dump_team(RoundRobinGroupChat(list(agents), max_turns=len(agents)), folder / "team.yaml")
    return Run.begin(prepare_run(str(folder / "team.yaml"), "Compute it."), journal)


def requests(journal: Journal) -> list[tuple[str, list[str]]]:
    """Each request to a model: who asked, and the texts of its messages."""
    steps = read_steps(journal, journal.find("last"))["steps"]
    asked = [(step["actor"], step["request"]["messages"]) for step in steps if step["kind"] == "model"]
    return [(actor, [str(json.loads(message)["content"]) for message in messages]) for actor, messages in asked]


def counts(journal: Journal, words: str = WORDS) -> list[tuple[str, int]]:
    """How often words are in each request."""
    return [(actor, texts.count(words)) for actor, texts in requests(journal)]


def transcript(record: RunRecord) -> Sequence[tuple[str, str]]:
    return [(message.source, message.to_text()) for message in record.messages]


@pytest.mark.parametrize("make", [actor, *(pytest.param(make, marks=SLOW) for make in (coder, eager, assistant))])
async def test_the_agent_that_works_gets_words_before_its_next_request(
    make: Callable[[], ChatAgent], tmp_path: Path
) -> None:
    journal, agent = Journal(tmp_path / "journal"), make()
    run = begin(tmp_path, journal, agent)
    with observing(Saying(run.tell, [WORDS])):
        record = await run.go(lambda message: None)
    name, later = agent.name, len(requests(journal)) - 1
    assert counts(journal) == [(name, 0), *[(name, 1)] * later]
    heard = [message for message in record.messages if keys.HEARD_BY in message.metadata]
    assert [(each.source, each.metadata[keys.HEARD_BY]) for each in heard] == [("user", name)]
    place = record.messages.index(heard[0])
    assert record.messages[place - 1].source == name
    assert "42" in record.answer or "seen" in record.answer
    assert not run.untold()


@SLOW
async def test_a_team_gets_words_once_and_a_resumed_run_at_the_same_places(tmp_path: Path) -> None:
    def team() -> list[ChatAgent]:
        reviewer = ReviewerAgent("reviewer", ReplayModel([verdict(True)]))
        return [coder(), actor(), reviewer, AssistantAgent("writer", ReplayModel(["Written."]))]

    words = [WORDS, "Thanks.", "Go on."]
    journal = Journal(tmp_path / "journal")
    run = begin(tmp_path, journal, *team())
    with observing(Saying(run.tell, words)):
        whole = await run.go(lambda message: None)
    assert counts(journal) == [
        ("coder", 0),
        *[("coder", 1)] * 3,
        *[("actor", 1)] * 3,
        ("reviewer", 1),
        ("writer", 1),
    ]
    assert [number for _, number in counts(journal, "Go on.")] == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    told = [m.to_text() for m in whole.messages if keys.HEARD_BY in m.metadata]
    assert told == words
    shown = export_run(journal, journal.find("last"), "markdown")
    assert shown.index("ZeroDivisionError") < shown.index(WORDS) < shown.index("It is 42.")

    places = [place for place, message in enumerate(whole.messages) if keys.HEARD_BY in message.metadata]
    for stop in (places[0], places[1] + 2):
        again, token = Journal(tmp_path / f"journal-{stop}"), CancellationToken()
        seen: list[Any] = []

        def watch(message: Any, seen: list[Any] = seen, stop: int = stop, token: CancellationToken = token) -> None:
            seen.append(message)
            if len(seen) > stop:
                token.cancel()

        run = begin(tmp_path, again, *team())
        with observing(saying := Saying(run.tell, words)):
            assert (await run.go(watch, token=token)).cancelled
        resumed = Run.resume("last", again)
        for text in run.untold():  # What nobody has got is gone with the process.
            resumed.tell(text)
        with observing(Saying(resumed.tell, saying.words)):
            record = await resumed.go(lambda message: None)
        assert transcript(record) == transcript(whole)
        assert requests(again) == requests(journal)


@SLOW
async def test_words_from_another_process_and_those_that_come_too_late(tmp_path: Path) -> None:
    journal, other = Journal(tmp_path / "journal"), Journal(tmp_path / "journal")
    model = ReplayModel([python("1"), python("import time; time.sleep(1.5)"), "It is 42."])
    run = begin(tmp_path, journal, CodeActAgent("actor", model))
    says = Saying(lambda words: other.say(str(run.log.run), words), [WORDS])
    late: list[str] = []

    def watch(message: Any) -> None:
        if "It is 42." in message.to_text():
            late.append("Too late.")
            run.tell("Too late.")

    with observing(says):
        record = await run.go(watch)
    assert counts(journal)[-1] == ("actor", 1)
    assert late
    assert any("Too late." in notice for notice in record.notices)
    assert run.untold() == ["Too late."]
    assert run.untold() == []
