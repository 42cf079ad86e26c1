"""Functions of one module import what they need under names that mean the same in all of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, JavaScriptLanguage, PythonLanguage, Solution, write_solution
from coderoom.sandbox import Sandbox
from tests.support.commands import PYTEST

from .scripted import ScriptedModel, function, test


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import datetime", {"datetime": "datetime"}),
        ("from datetime import datetime", {"datetime": "datetime.datetime"}),
        ("import datetime as dt, os.path", {"dt": "datetime", "os": "os"}),
        ("import os.path as path", {"path": "os.path"}),
        ("from os import path", {"path": "os.path"}),
        ("from math import *", {"*": "math.*"}),
        ("try:\n    import a\nexcept ImportError:\n    import b as a", {"a": "a or b"}),
        ("try:\n    import a\nexcept ImportError:\n    a = None", {}),
        ("if TYPE_CHECKING:\n    from typing import Iterable", {"Iterable": "collections.abc.Iterable"}),
        ("from typing import List, Any", {"List": "typing.List", "Any": "typing.Any"}),
        ("import copy\ncopy = 3", {}),
        ("def f():\n    import copy", {}),
        ("class C:\n    import copy", {}),
        ("import copy(", {}),
    ],
)
def test_what_names_stand_for(source: str, expected: Mapping[str, str]) -> None:
    assert PythonLanguage().imports(source) == expected


def test_what_they_stand_for_in_javascript() -> None:
    source = "import fs, { join as j } from 'node:path'\nimport * as all from 'fs'\nimport 'os'"
    assert JavaScriptLanguage().imports(source) == {
        "fs": "the default of path",
        "j": "path.join",
        "all": "all of fs",
    }


YEAR = "import datetime\n\n\ndef year(x):\n    return datetime.date(x, 1, 1).year\n"
DAY = "from datetime import datetime\n\n\ndef day(x):\n    return datetime(2024, 1, x).day\n"
MENDED = "import datetime\n\n\ndef day(x):\n    return datetime.datetime(2024, 1, x).day\n"
TESTS = {name: [test(f"{n}", n, x=n) for n in (1, 2, 3)] for name in ("year", "day")}


async def solved(
    sandbox: Sandbox, year: str, day: str, mended: str = "No.", needs: tuple[str, ...] = (), **options: Any
) -> tuple[Solution, ScriptedModel]:
    fence = "javascript" if options else "python"
    model = ScriptedModel(
        [function("year"), function("day", needs=needs)],
        TESTS,
        {"year": f"```{fence}\n{year}\n```", "day": f"```{fence}\n{day}\n```"},
        {"day": f"```{fence}\n{mended}\n```", "year": "No."},
    )
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False, concurrency=1, **options)
    return await generator.generate_solution("Years and days."), model


OTHERS = {
    "time": ("import time", "time.gmtime(0) and x", "from time import gmtime as time", "time(0) and x"),
    "copy": ("import copy", "copy.copy(x)", "from copy import copy", "copy(x)"),
    "random": ("from random import random", "random() * 0 + x", "import random", "random.randint(x, x)"),
    "defined": ("from copy import copy", "copy(x)", "def copy(x):\n    return [x]", "copy(x)[0]"),
    "star": ("from math import *", "floor(x)", "import math", "math.floor(x)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("needs", [(), ("year",)])
async def test_code_that_imports_something_else_under_a_name_is_sent_back(
    default_sandbox: Sandbox, tmp_path: Path, needs: tuple[str, ...]
) -> None:
    solution, model = await solved(default_sandbox, YEAR, DAY, MENDED, needs)
    assert solution.all_tests_passed, solution.missing
    assert model.count("repair", "day") == 1
    assert model.count("repair", "year") == 0
    said = "'datetime' is datetime.datetime here, but datetime in the code of 'year'"
    assert any(said in question for question in model.questions)
    written = write_solution(solution, tmp_path / "out", name="solution")
    command = [sys.executable, *PYTEST, str(written.tests)]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name", ["copy", "star", *(pytest.param(name, marks=pytest.mark.slow) for name in ("time", "random", "defined"))]
)
async def test_whatever_it_is(default_sandbox: Sandbox, name: str) -> None:
    first, one, second, other = OTHERS[name]
    year, day = f"{first}\n\n\ndef year(x):\n    return {one}\n", f"{second}\n\n\ndef day(x):\n    return {other}\n"
    solution, model = await solved(default_sandbox, year, day, "def day(x):\n    return x\n")
    assert name == "star" or solution.all_tests_passed, solution.missing
    assert model.count("repair", "year" if name == "star" else "day") >= 1


@pytest.mark.slow
async def test_the_same_twice_is_nothing_to_mend(default_sandbox: Sandbox) -> None:
    head = (
        "from __future__ import annotations\n\nimport datetime\nfrom typing import TYPE_CHECKING\n\n"
        "if TYPE_CHECKING:\n    from collections.abc import Iterable\n\n"
    )
    other = head.replace("collections.abc", "typing").replace("import datetime", "import datetime, os.path, os")
    solution, model = await solved(default_sandbox, head + YEAR, other + MENDED)
    assert solution.all_tests_passed, solution.missing
    assert not model.count("repair", "day")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")
@pytest.mark.slow
async def test_in_javascript_too(node_sandbox: Sandbox) -> None:
    year = "import path from 'node:path'\nexport function year(x) { return path.sep ? x : 0 }"
    day = "import * as path from 'path'\nexport function day(x) { return path.sep ? x : 0 }"
    mended = "import path from 'path'\nexport function day(x) { return path.sep ? x : 0 }"
    solution, model = await solved(node_sandbox, year, day, mended, language="javascript")
    assert solution.all_tests_passed, solution.missing
    assert "'path' is all of path here, but the default of path in the code of 'year'" in model.questions[-1]
