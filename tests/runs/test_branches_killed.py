"""Runs that end in the middle of branches, and are resumed until they end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from autogen_core import CancellationToken, Component
from autogen_core.models import LLMMessage
from pydantic import BaseModel

from benchmarks.kills import not_killed, trial
from coderoom.agents import BranchJudge, Candidate, CodeActAgent, Mark
from coderoom.configs import ReplayModel, dump_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs import Journal, Run, prepare_run
from coderoom.teams import CodingTeam

TEAM = "branches.json"


class NoConfig(BaseModel):
    pass


class Second(BranchJudge, Component[NoConfig]):
    """Chooses the second branch, but breaks at first."""

    component_config_schema = NoConfig
    component_provider_override = "tests.runs.test_branches_killed.Second"
    broken: ClassVar[bool] = True

    async def judge(
        self, candidates: Sequence[Candidate], conversation: Sequence[LLMMessage], cancellation_token: CancellationToken
    ) -> list[Mark]:
        if Second.broken:
            raise RuntimeError("stop here")
        return [Mark(True, each.number == 2) for each in candidates]

    def _to_config(self) -> NoConfig:
        return NoConfig()

    @classmethod
    def _from_config(cls, config: NoConfig) -> Second:
        return cls()


async def test_the_files_of_a_winner_whose_fork_has_ended_are_there_after_a_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEN_ALLOWED_PROVIDER_NAMESPACES", "tests")
    (work := tmp_path / "work").mkdir()
    replies = ["x = 41\n1 / 0", "open('one', 'w')", "open('two', 'w').write(str(x + 1))"]
    model = ReplayModel([*(f"```python\n{code}\n```" for code in replies), "Written."])
    agent = CodeActAgent("coder", model, SandboxCodeExecutor(work), branches=2, branch_judge=Second())
    dump_team(CodingTeam([agent], max_turns=1), tmp_path / "team.yaml")
    journal = Journal(tmp_path / "journal")
    seen: list[Any] = []
    stopped = await Run.begin(prepare_run(str(tmp_path / "team.yaml"), "Go."), journal).go(seen.append)
    assert "stop here" in str(stopped.error)
    assert list(work.iterdir()) == []
    monkeypatch.setattr(Second, "broken", False)
    resumed = await Run.resume("last", journal).go(seen.append)
    assert (resumed.outcome, resumed.answer) == ("ok", "Written.")
    assert [path.name for path in work.iterdir()] == ["two"]
    assert (work / "two").read_text() == "42"
    assert sum(step.kind == "model" for step in journal.steps(str(resumed.run))) == 4


@pytest.mark.slow
@pytest.mark.timeout(300)  # It begins many processes, one after the other.
def test_a_run_that_was_killed_in_branches_ends_as_one_that_was_not() -> None:
    whole, requests, seconds = not_killed(TEAM)
    assert (whole["outcome"], set(whole["ran"]), requests) == ("ok", {"a", "1", "b2"}, 8)
    assert whole["answer"] == "The count is a-1-b2."
    _, wrong = trial(TEAM, 0, whole, requests, seconds)
    assert not wrong
