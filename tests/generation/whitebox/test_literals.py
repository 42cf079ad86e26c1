"""Values as Python source: it reads back as the same value, in lines that are short where they can be."""

from __future__ import annotations

import ast
import datetime
import decimal
import fractions
import math
import uuid
from typing import Any

import pytest

from coderoom.generation.languages.python.literals import MODULES, call_of, inputs_literal, laid_out, literal
from coderoom.judge import encode

SPACE = {module.__name__: module for module in (datetime, decimal, fractions, math, uuid)}
VALUES: list[Any] = [
    None,
    -3,
    10**5000,
    1.5,
    -math.inf,
    True,
    'it\'s "so"\n\u202e\ud800',
    b"\x00'",
    bytearray(b"x"),
    (),
    (1,),
    set(),
    frozenset(),
    frozenset({2}),
    {"a": [1, {2, 3}], (4, 5): {}},
    1 + 2j,
    fractions.Fraction(2, 3),
    decimal.Decimal("1.10"),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC),
    datetime.date(2026, 1, 2),
    datetime.time(3, 4),
    datetime.timedelta(-1, 2, 3),
    uuid.UUID(int=7),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back(value: Any) -> None:
    assert SPACE.keys() == set(MODULES)
    for each in (value, [value] * 9, {"x" * 90: value}):
        source = laid_out(literal(encode(each)))
        found = eval(source, dict(SPACE))
        assert (found, type(found)) == (each, type(each))
        assert source.isprintable() or "\n" in source


def test_nan_comes_back() -> None:
    assert math.isnan(eval(str(literal(encode(math.nan))), dict(SPACE)))


def test_long_source_has_a_line_for_each_part_or_short_ones_packed() -> None:
    long, short = ["x" * 60] * 2, list(range(40))
    source = laid_out(call_of("f", inputs_literal({"long": encode(long), "short": encode(short)})), 4, "y = ", ";")
    lines = source.splitlines()
    assert max(map(len, lines)) <= 100
    assert (lines[0], lines[-1]) == ("    y = f(", "    );")
    assert sum("x" * 60 in line for line in lines) == 2
    assert sum(line.strip()[0].isdigit() for line in lines) == 2
    call = ast.parse(source.strip().removesuffix(";")).body[0].value.args[0]  # type: ignore[attr-defined]
    assert ast.literal_eval(call) == {"long": long, "short": short}
    assert laid_out(literal(encode(short[:5])), 2, "z = ") == "  z = [0, 1, 2, 3, 4]"
