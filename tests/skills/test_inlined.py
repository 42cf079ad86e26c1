"""Skills in code that calls no functions of the host: their imports become a cell before it."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.skills import Skills, inline

AREA = '''\
from __future__ import annotations
import math

SCALE = 2


def area(radius: float) -> float:
    """The area of a circle, twice."""
    return SCALE * math.pi * radius**2
'''


@pytest.fixture
async def saved(skills: Skills) -> Skills:
    await skills.save("area", "assert round(area(1), 2) == 6.28", AREA)
    return skills


@pytest.mark.slow
async def test_a_cell_before_it_binds_the_names_that_are_imported_and_no_others(saved: Skills) -> None:
    code = "x = 1; from skills import (\n    area as round_area,\n    area,\n); y = round_area(1) - area(1)\nz = 3\n"
    found = await inline(saved, code)
    space: dict[str, Any] = {}
    exec(found.before, space)
    assert space.keys() - {"__builtins__"} == {"round_area", "area"}
    exec(found.code, space)
    assert (space["x"], space["y"], space["z"]) == (1, 0, 3)
    assert found.code.splitlines() == ["x = 1; pass; y = round_area(1) - area(1)", "", "", "", "z = 3"]


async def test_other_code_stays_as_it_is_and_what_does_not_exist_is_an_import_error(saved: Skills) -> None:
    for code in ("skills = 1", "import skills", "from .skills import area", "from skills.more import area", "skills ("):
        found = await inline(saved, code)
        assert (found.before, found.code) == ("", code)
    found = await inline(saved, "from skills import area, volume")
    assert found.code == "from skills import area, volume"
    with pytest.raises(ImportError, match="no skill 'volume'"):
        exec(found.before)
