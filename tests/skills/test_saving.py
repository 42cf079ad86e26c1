"""What becomes a skill, with which source, and what does not."""

from __future__ import annotations

import re

import pytest

from coderoom.sandbox import Session
from coderoom.skills import Skills

ROWS = '''\
import re
import xml.dom.minidom, json

SEPARATOR = ","
NUMBER = re.compile(r"\\d+")
text = "a variable of the session with the name of a parameter"


def number(text):
    return int(NUMBER.search(text)[0])


def number(text):
    return int(NUMBER.search(text)[0]) + 0


def parse_rows(text: str) -> list[int]:
    """Parse numbers between commas."""
    return [number(each) for each in text.split(SEPARATOR)]
'''
TESTS = "assert parse_rows('1,2') == [1, 2]"


async def save(session: Session, *arguments: str, code: str = "") -> str:
    """What came of `save_skill`: what it returned, or the error."""
    if code:
        assert (await session.run(code)).error is None
    ran = await session.run(f"save_skill({', '.join(arguments)})")
    return str(ran.value) if ran.error is None else f"{ran.error.type}: {ran.error.message}"


async def test_a_function_is_saved_with_what_it_needs_and_nothing_else(session: Session, skills: Skills) -> None:
    said = await save(session, "'parse_rows'", repr(TESTS), code=ROWS)
    assert said.startswith("Saved parse_rows(text: str) -> list[int]. Its tests: ")
    code = (skills.folder.path / "parse_rows.py").read_text()
    head, _, source = code.partition("\n")
    assert head.startswith("# Judged ")
    assert "mutants killed" in head
    for part in ("import re\n", 'SEPARATOR = ","', "NUMBER = re.compile", "+ 0", "def parse_rows"):
        assert part in source
    for part in ("json", "a variable of the session", "[0])\n"):
        assert part not in source
    # A person can run both files.
    compile(code, "parse_rows.py", "exec")
    assert (skills.folder.path / "parse_rows.tests.py").read_text() == f"from parse_rows import parse_rows\n\n{TESTS}\n"


@pytest.mark.parametrize(
    ("code", "arguments", "why"),
    [
        ("", ("'parse_rows'", "'assert parse_rows(\"1\") == [2]'"), "does not pass its tests.*AssertionError"),
        ("", ("'parse_rows'", "'parse_rows(\"1\")'"), "assert nothing"),
        ("", ("'parse_rows'", "'parse_rows(\"1\")\\nassert 1 + 1 == 2'"), "pass whatever it returns"),
        ("", ("'parse_rows'", "'assert parse_rows('"), "cannot be run"),
        ("", ("'number'", "'assert number(\"1\") == 1'"), "no docstring"),
        ("", ("'../escape'", "'assert True'", "code='def f(): 1'"), "cannot be the name of a skill"),
        ("", ("'json'", "'assert True'", "code='def f(): 1'"), "name of a module"),
        ("", ("'conftest'", "'assert True'", "code='def f(): 1'"), "name of a module"),
        ("", ("'nothing'", "'assert True'"), "'nothing' is not a function of this session"),
        ("", ("'f'", "'assert f() == 1'", "code='def g(): 1'"), "defines no function 'f'"),
        ("", ("'f'", "'assert f() == 1'", "code='def f(: 1'"), "is no Python"),
        ("", ("'f'", "'assert f() == 1'", "code='def f(a=' + '1+' * 3000 + '1): 1'"), "can be read"),
        ("", ("'f'", "'assert f() == 1'", "code='#' * 30_000"), "longer than 20,000 characters"),
        (
            "def f():\n    'Finds.'\n    return search_skills('x')",
            ("f", "'assert f() == []'"),
            "'search_skills', which a",
        ),
        ("o = object()\ndef f():\n    'Is.'\n    return o\no = [o]", ("f", "'assert f()'"), "does not pass its tests"),
        (
            "def f():\n    'Is.'\n    return later",
            ("f", "'assert f()'"),
            "needs 'later', which this session does not have",
        ),
    ],
)
async def test_what_does_not_become_a_skill(
    session: Session, skills: Skills, code: str, arguments: tuple[str, ...], why: str
) -> None:
    said = await save(session, *arguments, code=ROWS + code)
    assert said.startswith("ValueError: ")
    assert re.search(why, said), said
    assert list(skills.folder.path.iterdir()) == []


async def test_values_are_those_of_the_source_or_else_of_the_session(session: Session, skills: Skills) -> None:
    code = """\
from dataclasses import dataclass
from functools import lru_cache
seen = {}
rows = [1, 2, 3]
most = len(rows)
most += 1
try:
    import no_such_module
except ImportError:
    no_such_module = None
@dataclass
class Pair:
    first: int
    second: int
@lru_cache
def even(n):
    return n == 0 or odd(n - 1)
def odd(n):
    return n != 0 and even(n - 1)
def pair(n: int) -> Pair:
    'Make a pair.'
    seen[n] = Pair(most, even(n))
    return [seen[n].first, seen[n].second, len(seen), no_such_module]
pair(2), pair(4)
"""
    tests = "assert pair(2) == [4, True, 1, None]\nassert pair(3) == [4, False, 2, None]"
    assert (await save(session, "pair", repr(tests), code=code)).startswith("Saved")
    source = skills.folder.read("pair").code
    for part in ("seen = {}\n", "most = 4\n", "try:\n", "@dataclass\n", "@lru_cache\n"):
        assert part in source
    assert "rows" not in source


async def test_a_test_cannot_be_passed_by_looking_at_it(session: Session, skills: Skills) -> None:
    """The skill is judged as any other code that cheats: its own equality decides nothing."""
    code = (
        "class Same(int):\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "def answer():\n    'Give the answer.'\n    return Same(1)"
    )
    assert "does not pass its tests" in await save(session, "answer", "'assert answer() == 42'", code=code)
    assert skills.folder.names() == []


@pytest.mark.slow
async def test_another_skill_is_replaced_only_if_that_is_said(session: Session, skills: Skills) -> None:
    await save(session, "'parse_rows'", repr(TESTS), code=ROWS)
    other = ROWS.replace("number(each)", "-number(each)"), "'assert parse_rows(\"1\") == [-1]'"
    said = await save(session, "parse_rows", other[1], code=other[0])
    assert "There is a skill 'parse_rows' already" in said
    assert "-number" not in (await skills.get("parse_rows")).code
    assert (await save(session, "parse_rows", other[1], "replace=True")).startswith("Saved")
    ran = await session.run("from skills import parse_rows as negative\nnegative('7')")
    assert ran.value == [-7]


async def test_what_is_there_already_is_saved_once(session: Session, skills: Skills) -> None:
    first = await save(session, "'parse_rows'", repr(TESTS), code=ROWS)
    file = skills.folder.path / "parse_rows.py"
    before = file.stat().st_ino
    assert await save(session, "'parse_rows'", repr(TESTS)) == first
    assert file.stat().st_ino == before


@pytest.mark.slow
async def test_a_skill_that_uses_another_one_has_it_inside(session: Session, skills: Skills) -> None:
    await save(session, "'parse_rows'", repr(TESTS), code=ROWS)
    code = (
        "from skills import parse_rows as rows\n"
        "def total(text):\n    'Add numbers between commas.'\n    return sum(rows(text))"
    )
    assert (await save(session, "total", "'assert total(\"1,2\") == 3'", code=code)).startswith("Saved")
    for file in skills.folder.path.glob("parse_rows*"):
        file.unlink()
    assert (await session.run("from skills import total\ntotal('3,4')")).value == 7
