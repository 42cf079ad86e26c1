"""Changes of a workspace that stays as it is, at the end of a run: shown, asked about, written or not."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from autogen_agentchat.agents import AssistantAgent
from rich.console import Console

from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.approval import AlwaysApprove, Approval, ChainApproval, Rule, RuleApproval, approve_changes
from coderoom.configs import ReplayModel, dump_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs import Journal, Run, RunRecord, prepare_run, read_blocks, run_file, run_team
from coderoom.sandbox import Changes, Patch
from coderoom.teams import CodingTeam

WRITES = "```python\nopen('a.txt', 'a').write('b')\n```"


def asking(approval: Approval) -> object:
    async def ask(changes: Changes, patch: Patch) -> str:
        answer = await approve_changes(approval, changes, patch)
        return "" if answer.approved else answer.reason

    return ask


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_file_is_run_and_its_workspace_stays_as_it_is(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "a.txt").write_text("a")
    source = read_blocks("-", f"{WRITES}\n```python\n# filename: made.py\nprint(open('a.txt').read())\n```".encode())
    result = await run_file(
        source, Console(quiet=True), workspace=tmp_path, timeout=30, fresh=fresh, workspace_mode="overlay"
    )
    assert result.runs[-1].output == "ab\n"
    assert result.reviewed is not None
    assert result.reviewed.changes == ["modified a.txt", "added made.py"]
    assert not result.reviewed.written
    assert result.to_json()["review"]["diff"] == result.reviewed.diff
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("approval", "written"),
    [
        (AlwaysApprove(), True),
        (ChainApproval([RuleApproval([Rule(pattern=r"^# deleted ", action="deny")]), AlwaysApprove()]), True),
        (RuleApproval([Rule(pattern=r"^\+ab$", action="deny", language="diff", reason="no ab")]), False),
    ],
)
async def test_what_a_team_has_changed_is_written_if_it_is_approved(
    tmp_path: Path, approval: Approval, written: bool
) -> None:
    (tmp_path / "a.txt").write_text("a")
    executor = SandboxCodeExecutor(tmp_path, workspace_mode="overlay")
    team = CodingTeam(
        [AssistantAgent("coder", ReplayModel([WRITES])), CodeExecutorAgent("executor", executor)], max_turns=2
    )
    record = await run_team(team, RunRecord("t", "x"), lambda _: None, ask=asking(approval))  # type: ignore[arg-type]
    assert record.outcome == "ok"
    assert record.reviewed is not None
    assert record.reviewed.written is written
    assert record.reviewed.why == ("" if written else "no ab")
    assert (tmp_path / "a.txt").read_text() == ("ab" if written else "a")
    assert record.files == ([tmp_path / "a.txt"] if written else [])


@pytest.mark.parametrize("state", ["session", "fresh"])
async def test_a_resumed_run_has_the_changes_of_code_that_is_not_run_as_a_step_again(
    tmp_path: Path, state: Literal["session", "fresh"]
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("a")
    executor = SandboxCodeExecutor(tmp_path / "work", state=state, workspace_mode="overlay")
    ends = "```python\nimport os\nos._exit(0)\n```"
    agent = CodeActAgent("actor", ReplayModel([WRITES, ends, "Written."]), executor)
    file, journal = tmp_path / "team.yaml", Journal(tmp_path / "journal")
    dump_team(CodingTeam([agent], max_turns=1), file)

    def stop(message: object) -> None:
        if "Written." in str(message):
            raise RuntimeError("stop here")

    await Run.begin(prepare_run(str(file), "Write."), journal).go(stop)
    resumed = await Run.resume("last", journal).go(lambda message: None)
    assert resumed.reviewed is not None, resumed.notices
    assert resumed.reviewed.changes == ["modified a.txt"]
    assert "+ab" in resumed.reviewed.diff
    assert (tmp_path / "work" / "a.txt").read_text() == "a"
