"""Tables as models read them, in place of their `repr`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coderoom.executors import SandboxCodeExecutor
from coderoom.sandbox import Sandbox, Session
from tests.executors.helpers import run_in

MAKE = """
import pandas as pd
table = pd.DataFrame({"city": ["Oslo", "Rome"] * 50, "mean": [1234567890.125, None] * 50}, index=range(100, 200))
"""
HEAD = "DataFrame, 100 rows x 2 columns\ntypes: city str, mean float64 (50 missing)\n | city | mean\n"


@pytest.fixture(scope="module")
async def session() -> AsyncIterator[Session]:
    async with Sandbox(preload=["pandas"], describe_tables=True) as sandbox, sandbox.session() as made:
        await made.run(MAKE)
        yield made


async def test_a_table_has_its_size_its_types_and_both_ends(session: Session) -> None:
    result = await session.run("table")
    rows = str(result.value_repr).removeprefix(HEAD).splitlines()
    assert rows[:2] == ["100 | Oslo | 1234567890.12", "101 | Rome | nan"]
    assert (len(rows), rows[5], rows[-1]) == (11, "[90 rows in between]", "199 | Rome | nan")
    assert len(result.value) == 100


@pytest.mark.parametrize("how", ["print(table)", "display(table)"])
async def test_it_is_the_same_wherever_it_is_shown(session: Session, how: str) -> None:
    assert (await session.run(how)).output == f"{(await session.run('table')).value_repr}\n"


async def test_what_is_written_elsewhere_is_as_the_library_has_it(session: Session) -> None:
    code = (
        "import io\nfile = io.StringIO()\nprint(table, file=file)\nfile.getvalue()[:-1] == str(table), str(table)[:12]"
    )
    assert (await session.run(code)).value == (True, "     city   ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            "table.mean(numeric_only=True)",
            "Series, 1 row x 1 column\ntypes: value float64\n | value\nmean | 1234567890.12",
        ),
        ("table.head(0)", "DataFrame, 0 rows x 2 columns\ntypes: city str, mean float64"),
        (
            "pd.DataFrame([[1, 2]], columns=['a', 'a'])",
            "DataFrame, 1 row x 2 columns\ntypes: all int64\n | a | a\n0 | 1 | 2",
        ),
        (
            "pd.DataFrame({'n': [1]}, index=pd.MultiIndex.from_tuples([('a', 1)], names=['x', 'y']))",
            "DataFrame, 1 row x 1 column\ntypes: n int64\nx, y | n\na, 1 | 1",
        ),
        ("pd.DataFrame({'t': ['a\\nb']})", "DataFrame, 1 row x 1 column\ntypes: t str\n | t\n0 | a\\nb"),
        (
            "import pyarrow\npyarrow.table({'n': [1, None]})",
            "Table, 2 rows x 1 column\ntypes: n int64 (1 missing)\n | n\n0 | 1\n1 | None",
        ),
        ("[1, 2]", "[1, 2]"),
    ],
)
async def test_every_kind_of_table(session: Session, value: str, shown: str) -> None:
    assert (await session.run(value)).value_repr == shown


async def test_a_long_list_of_dicts_is_a_table(session: Session) -> None:
    code = "[{'a': number, 'b': 'x' * (number % 3)} for number in range(500)]"
    result = await session.run(code)
    assert str(result.value_repr).startswith(
        "list of dicts, 500 rows x 2 columns\ntypes: a int, b str\n | a | b\n0 | 0 | \n"
    )
    assert result.value[499] == {"a": 499, "b": "x"}
    async with Sandbox(engine="monty", describe_tables=True) as sandbox:
        same = await sandbox.run(code)
    assert (same.value, same.value_repr) == (result.value, result.value_repr)


@pytest.mark.parametrize(
    "value",
    [
        "pd.DataFrame([list(range(300))] * 100)",
        "pd.DataFrame({f'{'name' * 50}{number}': ['text' * 100] * 30 for number in range(50)})",
    ],
)
async def test_no_table_is_longer_than_a_limit(session: Session, value: str) -> None:
    assert len(str((await session.run(value)).value_repr)) < 8_100


async def test_a_table_whose_library_fails_has_its_repr(session: Session) -> None:
    code = "class Odd(pd.DataFrame):\n    isna = None\n    def __repr__(self): return 'odd'\nOdd({'a': [1]})"
    assert (await session.run(code)).value_repr == "odd"


@pytest.mark.slow
async def test_without_being_asked_a_sandbox_shows_the_repr_and_an_executor_describes(tmp_path: Path) -> None:
    async with Sandbox() as sandbox:
        assert str((await sandbox.run(f"{MAKE}\ntable")).value_repr).endswith("[100 rows x 2 columns]")
    async with SandboxCodeExecutor(tmp_path) as executor:
        assert (await run_in(executor, f"{MAKE}\ntable")).output.startswith(HEAD)
