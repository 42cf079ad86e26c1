"""Skills of a `CodeActAgent`: saved in one run, used in the next one; each save is done once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.agents import CodeActAgent
from coderoom.executors import SandboxCodeExecutor
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
