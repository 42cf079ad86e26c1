"""Skills of a `CodeActAgent`: saved in one run, used in the next one; each save is done once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel, dump_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.models.budgets import Budget
from coderoom.runs import Journal, Run, prepare_run
from coderoom.skills import Skills
from tests.agents.acting import MakeActor, outputs
from tests.agents.helpers import TASK, Client, python, turn

DEFINE = python("def double(number):\n    '''Multiply by two.'''\n    return 2 * number")
SAVE = python("save_skill('double', 'assert double(2) == 4')")
USE = python("from skills import double\ndouble(21)")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "skills"


async def test_one_run_saves_and_the_next_one_uses(actor: MakeActor, folder: Path) -> None:
    client = Client(DEFINE, SAVE, "Done.")
    first = actor(client, skills=folder)
    await turn(first, TASK)
    assert "save_skill(name: str, tests: str" in client.calls[0].system[0]
    assert "from skills import" not in client.calls[0].system[0].partition("These functions were left")[2]
    await first.close()
    client = Client(USE, "It is 42.")
    response = await turn(actor(client, skills=str(folder)), TASK)
    assert "- double(number): Multiply by two." in client.calls[0].system[0]
    assert outputs(response.inner_messages or []) == ["42\n"]


async def test_what_fails_its_tests_is_told_to_the_model(actor: MakeActor, folder: Path) -> None:
    client = Client(DEFINE, SAVE.replace("== 4", "== 5"), "I give up.")
    await turn(actor(client, skills=folder), TASK)
    assert "does not pass its tests" in client.calls[2].texts[-1]
    assert not folder.exists()


@pytest.mark.slow
async def test_a_restored_session_saves_nothing_again_and_reads_what_it_has_read(
    actor: MakeActor, folder: Path
) -> None:
    agent = actor(Client(DEFINE, SAVE, "Saved.", USE, "42."), skills=folder)
    await turn(agent, TASK)
    await turn(agent, TASK)
    state = await agent.save_state()
    await agent.close()
    for file in folder.iterdir():
        file.unlink()
    client = Client(python("double(4)"), "8.")
    again = actor(client, skills=folder)
    await again.load_state(state)
    response = await turn(again, TASK)
    assert outputs(response.inner_messages or []) == ["8\n"]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
async def test_a_resumed_run_saves_nothing_again_and_asks_the_same(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    create = ReplayModel.create

    async def note(self: ReplayModel, messages: Any, **arguments: Any) -> Any:
        asked.append(messages[0].content)
        return await create(self, messages, **arguments)

    monkeypatch.setattr(ReplayModel, "create", note)
    coder = CodeActAgent("coder", ReplayModel([DEFINE, SAVE, "Saved."]), skills=str(folder))
    dump_team(RoundRobinGroupChat([coder], max_turns=1), tmp_path / "team.yaml")
    journal = Journal(tmp_path / "journal")
    begun = Run.begin(prepare_run(str(tmp_path / "team.yaml"), TASK), journal, budget=Budget(model_calls=2))
    assert not (await begun.go(lambda message: None)).succeeded
    (folder / "double.py").unlink()
    resumed = await Run.resume("last", journal, budget={"model_calls": 9}).go(lambda message: None)
    assert (resumed.outcome, resumed.answer) == ("ok", "Saved.")
    assert [file.name for file in folder.iterdir()] == ["double.tests.py"]
    assert len(set(asked)) == 1


@pytest.mark.slow
async def test_skills_are_judged_with_the_interpreter_of_the_agent(tmp_path: Path, folder: Path) -> None:
    """It has no pytest, and a module that this one does not have."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "only_there.py").write_text("TWO = 2\n")
    define = python("import only_there\ndef double(number):\n    'Multiply.'\n    return only_there.TWO * number")
    executor = SandboxCodeExecutor(python=tmp_path / "venv" / "bin" / "python")
    agent = CodeActAgent("actor", Client(define, SAVE, "Done."), executor, skills=folder)
    response = await turn(agent, TASK)
    await agent.close()
    assert outputs(response.inner_messages or [])[-1].startswith("'Saved double(number)")


@pytest.mark.slow
async def test_what_a_lost_branch_has_saved_stays_and_is_told(folder: Path) -> None:
    """Calls of functions of the host are never undone."""
    fails = python("1 / 0")
    client = Client(fails, python("'the first one works'"), DEFINE.replace("\n```", "\n") + SAVE[10:], "Done.")
    agent = CodeActAgent("actor", client, SandboxCodeExecutor(), branches=2, skills=folder)
    await turn(agent, TASK)
    assert Skills(folder).folder.names() == ["double"]
    assert "save_skill" in client.calls[-1].texts[-1]
    await agent.close()


def test_the_folder_comes_back_from_a_config(folder: Path) -> None:
    agent = CodeActAgent("actor", Client(), skills=str(folder))
    assert agent.dump_component().config.get("skills") == str(folder)


@pytest.mark.parametrize(
    ("executor", "why"),
    [
        ({"policy": "restricted"}, "policy='open'"),
        ({"state": "fresh"}, "state='session'"),
        ({"work_dir": "."}, "could change skills without"),
    ],
)
def test_where_skills_cannot_be_used(executor: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CodeActAgent("actor", Client(), SandboxCodeExecutor(**executor), skills="skills")
