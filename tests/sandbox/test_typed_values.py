# ruff: noqa: DTZ001 (dates without a time zone are values, too)
"""Values of cells that JSON lacks come back with their type; what lies about its type does no harm."""

from __future__ import annotations

import datetime
import json
import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings

from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, Session
from tests.support.typed import type_tree, values

from .places import on_each_engine

IMPORTS = "import datetime\nfrom datetime import timedelta\nfrom decimal import Decimal\n"
MORE_IMPORTS = "from fractions import Fraction\nfrom uuid import UUID\n"

VALUES: list[Any] = [
    (),
    (1, (2.5, None), ["a"]),
    {1, 2},
    frozenset({"a"}),
    {(1, 2): {3}, None: 4},
    {"$tuple": [(1,)]},
    b"\x00\xff",
    -2.5j,
    (math.inf,),
    Decimal("1.10"),
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, 0, 1),
    datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC),
    datetime.time(12, 30),
    timedelta(days=-1, microseconds=5),
    {"rows": [{"day": datetime.date(2024, 1, 2), "total": Decimal("9.99")}]},
]
UNKNOWN_TO_MONTY: list[Any] = [bytearray(b"x"), Fraction(1, 3), UUID(int=5), ("a\ud800",)]

NUMPY: dict[str, Any] = {
    "numpy.int64(499500)": 499500,
    "numpy.float32(0.5)": 0.5,
    "numpy.bool_(True)": True,
    "numpy.complex128(1 + 2j)": 1 + 2j,
    "numpy.str_('a')": "a",
    "numpy.bytes_(b'a')": b"a",
    "[{'mean': numpy.float64(1.5)}, (numpy.uint8(255),)]": [{"mean": 1.5}, (255,)],
    "numpy.arange(6).reshape(2, 3)": [[0, 1, 2], [3, 4, 5]],
    "numpy.array(5)": 5,
    "numpy.zeros((0, 3))": [],
    "numpy.array([1.5, numpy.inf])": [1.5, math.inf],
    "numpy.array([1j])": [1j],
    "numpy.array(['a', 'bc'])": ["a", "bc"],
    "numpy.array([{'a': (1,)}, None])": [{"a": (1,)}, None],
    "numpy.array([(1, 'x')], dtype=[('n', 'i4'), ('s', 'U1')])": [(1, "x")],
    "numpy.ma.array([1, 2], mask=[False, True])": [1, None],
    "numpy.datetime64('2024-02-29')": datetime.date(2024, 2, 29),
    "numpy.datetime64('2024-02-29T12:30:00.000001002')": datetime.datetime(2024, 2, 29, 12, 30, 0, 1),
    "numpy.array(['2024-02-29', 'NaT'], dtype='datetime64[ns]')": [datetime.datetime(2024, 2, 29), None],
    "numpy.timedelta64(90, 's')": timedelta(seconds=90),
    "numpy.datetime64('NaT')": None,
}

PANDAS: dict[str, Any] = {
    "pd.DataFrame({'city': ['Oslo', 'Rome'], 'n': [1, 2]})": [{"city": "Oslo", "n": 1}, {"city": "Rome", "n": 2}],
    "pd.DataFrame({'c': ['a', 'b', 'a'], 'n': [1, 2, 3]}).groupby('c').sum()": [{"c": "a", "n": 4}, {"c": "b", "n": 2}],
    "pd.DataFrame({'n': [5, 6]}, index=['x', 'y'])": [{"index": "x", "n": 5}, {"index": "y", "n": 6}],
    "pd.DataFrame({('a', 'b'): [1]})": [{("a", "b"): 1}],
    "pd.DataFrame()": [],
    "pd.DataFrame({'t': pd.to_datetime(['2024-02-29', None])})": [{"t": datetime.datetime(2024, 2, 29)}, {"t": None}],
    "pd.Series([1.5, 2.5])": {0: 1.5, 1: 2.5},
    "pd.Series(['b', 'a', 'b']).value_counts()": {"b": 2, "a": 1},
    "pd.Series(pd.array([1, None]))": {0: 1, 1: None},
    "pd.Index(['a', 'b'])": ["a", "b"],
    "pd.Series(['a', 'b', 'a']).unique()": ["a", "b"],
    "pd.Categorical(['a'])": ["a"],
    "pd.Timestamp('2024-02-29 12:30')": datetime.datetime(2024, 2, 29, 12, 30),
    "pd.Timedelta('1D')": timedelta(days=1),
    "[pd.NaT, pd.NA]": [None, None],
}
PANDAS_REPRS = [
    "pd.DataFrame([[1, 2]], columns=['a', 'a'])",
    "pd.Series([1, 2], index=['a', 'a'])",
    "pd.Interval(0, 1)",
]

HOSTILE = {
    "a lying class": "class Liar:\n    __class__ = property(lambda self: tuple)\nLiar()",
    "a name of a library": "class date:\n    __module__ = 'datetime'\n    isoformat = lambda self: 'never'\ndate()",
    "a name, and garbage": "class date:\n    __module__ = 'datetime'\n    def isoformat(self): return object\ndate()",
    "a name, and an error": "class Decimal:\n    __module__ = 'decimal'\n    def __str__(self): 1 / 0\n"
    "    __repr__ = object.__repr__\nDecimal()",
    "an endless tuple": "class Endless(tuple):\n    def __iter__(self):\n        while True: yield 1\n[Endless((1,))]",
    "an endless set": "class Endless(set):\n    def __iter__(self):\n        while True: yield 1\n"
    "    def __len__(self): return 1 << 60\n    __repr__ = object.__repr__\nEndless({1})",
    "a named tuple": "import collections\ncollections.namedtuple('P', 'x')(1)",
    "an endless iterator": "import itertools\n(itertools.count(),)",
    "a class whose module is no text": "class Meta(type):\n    __module__ = property(lambda cls: 1 / 0)\n"
    "class A(metaclass=Meta):\n    def __repr__(self): return 'A'\nA()",
    "tuples in tuples": "x = ()\nfor _ in range(5000): x = (x,)\nx",
    "a cycle": "x = []\nx.append((x,))\nx",
    "a cycle of dicts": "x = {1: 2}\nx[3] = {4: x}\nx",
    "a long integer": "(10 ** 5000,)",
    "a low recursion limit": "import sys\nx = ()\nfor _ in range(50): x = (x,)\nsys.setrecursionlimit(60)\nx",
    "a library that is none": "import sys\nsys.modules['numpy'] = type('', (), {'ndarray': 1})()\nobject()",
    "too long doubles": "import numpy\nnumpy.longdouble('1.1')",
    "a duration without length": "import numpy\nnumpy.timedelta64(5, 'M')",
    "an array of such durations": "import numpy\nnumpy.array([[5]], dtype='m8[Y]')",
    "an array without list": "import numpy\nclass Array(numpy.ndarray):\n    def tolist(self): 1 / 0\n"
    "numpy.zeros(2).view(Array)",
    "an array with garbage": "import numpy\nclass Array(numpy.ndarray):\n    def tolist(self): return object()\n"
    "numpy.zeros(2).view(Array)",
    "an array that contains itself": "import numpy\na = numpy.array([None])\na[0] = a\na",
}


async def assert_values(session: Session, cases: dict[str, Any]) -> None:
    for code, value in cases.items():
        result = await session.run(code)
        assert (result.outcome, result.value, result.value_is_data) == (Outcome.OK, value, True), code
        assert type_tree(result.value) == type_tree(value), code


@on_each_engine
async def test_each_type_comes_back(session: Session) -> None:
    await session.run(f"{IMPORTS}inf = float('inf')")
    await assert_values(session, {repr(value): value for value in VALUES})


async def test_other_types_of_the_standard_library(session: Session) -> None:
    await session.run(MORE_IMPORTS)
    await assert_values(session, {repr(value): value for value in UNKNOWN_TO_MONTY})
    await assert_values(session, {"import pathlib\n[pathlib.Path('a/b')]": ["a/b"]})


@given(values)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_value_comes_back_with_its_types(session: Session, value: Any) -> None:
    result = await session.run(f"{IMPORTS}{MORE_IMPORTS}from math import inf\ninfj = complex(0, inf)\n{value!r}")
    if value is None:
        assert result.value is None
    else:
        assert (result.value, result.value_is_data) == (value, True)
    assert type_tree(result.value) == type_tree(value)


async def test_numpy(session: Session) -> None:
    await session.run("import numpy")
    await assert_values(session, NUMPY)
    mean = await session.run("(numpy.array([]).mean(), numpy.nan)")
    assert [math.isnan(item) for item in mean.value] == [True, True]


@pytest.mark.slow
async def test_pandas() -> None:
    pytest.importorskip("pandas")
    async with Sandbox(preload=["pandas"]) as sandbox, sandbox.session() as session:
        await session.run("import pandas as pd")
        await assert_values(session, PANDAS)
        for code in PANDAS_REPRS:
            result = await session.run(code)
            assert (result.value, result.value_is_data) == (result.value_repr, False), code


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_something_else_has_a_repr(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run(code)
    assert (result.outcome, result.error, result.limit) == (Outcome.OK, None, None)
    assert result.value_repr
    assert (result.value, result.value_is_data) == (result.value_repr, False)


async def test_a_generator_is_not_consumed(session: Session) -> None:
    assert not (await session.run("items = iter([1, 2])\nitems")).value_is_data
    assert (await session.run("list(items)")).value == [1, 2]


async def test_the_limit_is_that_of_json() -> None:
    codes = {"numpy.arange({})": 400, "numpy.zeros(({}, 9))": 60, "('x' * {},)": 2000, "Decimal('1' * {})": 2000}
    async with Sandbox(limits=Limits(value_bytes=2048)) as sandbox, sandbox.session() as session:
        await session.run("import numpy\nfrom decimal import Decimal")
        for code, size in codes.items():
            small, large, huge = [await session.run(code.format(n)) for n in (size // 2, size * 2, size * 1000)]
            assert (small.limit, small.value_is_data) == (None, True), code
            for result in (large, huge):
                assert (result.outcome, result.limit, result.value_is_data) == (Outcome.OK, "value", False), code
                assert result.value == result.value_repr


async def test_forged_data_is_not_a_value(sandbox: Sandbox) -> None:
    forge = "import sys\nmodule = sys.modules['coderoom_guest.interpreter']\n"
    tagged: list[Any] = [
        {"$set": [[1]]},
        {"$date": "never"},
        {"$object": {"type": "A", "fields": {}}},
        {"$fraction": [1, 0]},
        {"$nothing": 1},
        {"$set": [number * (2**61 - 1) for number in range(3000)]},
    ]
    for data in tagged:
        answer = json.dumps({"value_repr": "shown", "tagged": data})
        result = await sandbox.run(f"{forge}module.describe = lambda *_: {answer}\n1")
        assert (result.value, result.value_is_data) == ("shown", False), data
