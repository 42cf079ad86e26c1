"""`execute_code` with skills: code imports them under the policy `restricted` too."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom import execute_code
from coderoom.configs import ReplayModel
from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox
from coderoom.skills import Skills
from tests.runs.answers import model

AREA = '''\
from __future__ import annotations
import math

FACTOR = math.pi


def square(x):
    return x * x


def area(radius: float) -> float:
    """Compute the area of a circle."""
    return FACTOR * square(radius)
'''
USE = """\
~~~python
from skills import (
    area as of_circle,
)
def square(x): raise ValueError("the skill has its own one")
result = round(of_circle(1), 2)
~~~"""


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("skills")
    async with Skills(path) as skills:
        await skills.save("area", "assert round(area(1), 2) == 3.14", AREA)
        code = "import os\n\n\ndef cores() -> int:\n    'Count the processors.'\n    return os.cpu_count()\n"
        await skills.save("cores", "assert cores() > 0", code)
    return path


@pytest.mark.slow
async def test_code_imports_a_skill_with_what_it_needs(folder: Path) -> None:
    answer = await execute_code("The area of a circle?", model=ReplayModel([USE]), skills=folder)
    assert (answer["result"], answer["error"], answer["attempts"]) == (3.14, None, 1)
    assert "from skills import (" in answer["code"]


async def test_the_prompt_names_those_that_the_policy_lets_run(folder: Path) -> None:
    async with Sandbox(policy="restricted") as sandbox, Sandbox() as open_sandbox:
        for place, names in ((sandbox, ["area"]), (open_sandbox, ["area", "cores"])):
            client = model("No.", "No.")
            await execute_code("How?", model=client, sandbox=place, skills=folder)
            system = str(client.create_calls[0]["messages"][0].content)
            assert [name for name in ("area", "cores") if f"- {name}(" in system] == names


async def test_a_skill_that_does_not_exist_or_is_refused_is_told_to_the_model(folder: Path) -> None:
    missing = "~~~python\nfrom skills import volume\nresult = volume(1)\n~~~"
    refused = "~~~python\nfrom skills import cores\nresult = cores()\n~~~"
    answer = await execute_code("The area?", model=ReplayModel([missing, USE]), skills=folder)
    assert (answer["result"], answer["attempts"]) == (3.14, 2)
    answer = await execute_code("How many?", model=ReplayModel([refused]), skills=folder, max_retries=0)
    assert answer["outcome"] == "rejected"


async def test_the_folder_must_be_out_of_reach(tmp_path: Path) -> None:
    async with Sandbox(workspace=tmp_path) as sandbox:
        with pytest.raises(RequestError, match="could change skills without"):
            await execute_code("?", model=ReplayModel([]), sandbox=sandbox, skills=tmp_path)


async def test_a_folder_that_is_not_there_is_refused_before_a_model_is_asked(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"skills='.*skils' is not a folder"):
        await execute_code("?", model=ReplayModel([]), skills=tmp_path / "skils")
