"""The test command of a repository, on code that has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coderoom.judge import Judge, Repository, Verdict
from coderoom.judge.mutants import Mutants
from tests.support.commands import coderoom

TESTS = """\
import pytest
from shop import total

@pytest.mark.parametrize("price", [1, 2])
def test_total(price):
    assert total([price]) == price

@pytest.mark.skip(reason="later")
def test_later():
    assert False
"""
UNITTESTS = """\
import unittest

class Tests(unittest.TestCase):
    def test_fails(self):
        assert False
    def test_raises(self):
        1 / 0
    @unittest.skip("later")
    def test_later(self):
        pass
    def test_passes(self):
        pass
"""
RIGHT = "def total(prices):\n    return sum(prices)\n"
WRONG = "def total(prices):\n    return 1\n"
NAMES = ["tests.test_shop::test_total[1]", "tests.test_shop::test_total[2]", "tests.test_shop::test_later"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "shop"
    for name, content in {"shop.py": WRONG, "tests/test_shop.py": TESTS, "pytest.ini": "[pytest]\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return Repository(folder=folder, command="python3 -m pytest -q --disable-plugin-autoload")


async def run(repository: Repository, code: dict[str, str], timeout: float = 60) -> list[Verdict]:
    async with Judge(timeout=timeout) as judge:
        return await judge.run(code, repository)


async def test_each_test_of_the_report_has_its_verdict(repository: Repository) -> None:
    for code, passed in ({"shop.py": RIGHT}, [True, True]), ({}, [True, False]):
        verdicts = await run(repository, code)
        assert [each.test for each in verdicts] == NAMES
        assert [each.passed for each in verdicts] == [*passed, False]
        assert [each.skipped for each in verdicts] == [False, False, True]
        assert [each.can_be_fooled for each in verdicts] == [*passed, False]
    assert "assert 1 == 2" in verdicts[1].why
    assert sorted(each.name for each in repository.folder.iterdir()) == ["pytest.ini", "shop.py", "tests"]


@pytest.mark.slow
async def test_what_belongs_to_the_tests_does_not_count(repository: Repository) -> None:
    patch = "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return True\n"
    code = {
        "conftest.py": patch,
        "tests/conftest.py": patch,
        "tests/test_shop.py": "def test_total():\n    pass\n",
        "pytest.ini": "[pytest]\naddopts = -p patch\n",
        "sitecustomize.py": "import os\nos._exit(0)\n",
        "pytest.py": "import sys\nsys.exit(0)\n",
        "patch.egg-info/entry_points.txt": "[pytest11]\npatch = patch\n",
        "pytest.toml": "[pytest]\naddopts = ['--collect-only']\n",
        "tests.py": patch,
        "anyio/pytest_plugin.py": patch,
    }
    verdicts = await run(repository, code)
    assert [each.test for each in verdicts] == NAMES
    assert [each.passed for each in verdicts] == [True, False, False]
    assert all(name in verdicts[0].warning for name in code)
    async with Judge() as judge:
        found = await judge.strength({**code, "shop.py": RIGHT}, repository, most=1)
    assert (found.mutants, found.killed, found.possible) == (1, 1, Mutants(RIGHT).count), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os\nos._exit(0)", "did not run"),  # Without tests=: there is no report.
        ("import sys\nsys.exit(0)", "did not run"),
        ("while True: pass", "stopped after"),
        ("def total(", "SyntaxError"),
    ],
)
async def test_code_that_ends_the_command_does_not_pass(repository: Repository, code: str, why: str) -> None:
    repository = repository.model_copy(update={"tests": tuple(NAMES[:2])})
    verdicts = await run(repository, {"shop.py": code}, 4 if "while" in code else 60)
    assert not any(each.passed for each in verdicts)
    assert any(why in each.why for each in verdicts), verdicts


@pytest.mark.parametrize(
    ("command", "tests"),
    [
        ("echo 1..2; echo ok 1 - one; echo not ok 2 - two; exit 1", [("one", True), ("two", False)]),
        ("make test", [("make test", True)]),
        (
            "python3 -m unittest tests.py",
            [("unittest 1", False), ("unittest 2", False), ("unittest 3", False), ("unittest 4", True)],
        ),
        ("echo 1..3; echo ok 1; echo ok", [("test 1", True), ("test 2", True), ("", False)]),
        ("echo broken; exit 3", [("", False)]),
    ],
)
async def test_other_commands(repository: Repository, command: str, tests: list[tuple[str, bool]]) -> None:
    (repository.folder / "Makefile").write_text("test:\n\ttrue\n")
    (repository.folder / "tests.py").write_text(UNITTESTS)
    verdicts = await run(repository.model_copy(update={"command": command}), {"Makefile": "test:\n\tfalse\n"})
    assert [(each.test, each.passed) for each in verdicts] == tests
    if "unittest" in command:
        assert [each.skipped for each in verdicts] == [False, False, True, False]
        assert [each.why.partition(" (")[0] for each in verdicts[:2]] == ["ERROR: test_raises", "FAIL: test_fails"]


@pytest.mark.slow
def test_the_command_line(repository: Repository, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    (changed / "tests").mkdir(parents=True)
    (changed / "shop.py").write_text(RIGHT)
    (changed / "tests" / "test_shop.py").write_text("")
    command = ["judge", "shop", "--command", repository.command, "--candidate", "changed", "--json"]
    done = coderoom(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout)
    assert [each["can_be_fooled"] for each in facts["tests"]] == [True, True, False]
    assert "tests/test_shop.py of the code did not count" in facts["tests"][0]["warning"]
