"""What a cell means to the engine `monty`: values, errors, and what its Python lacks."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox.engines.monty.cells import MODULES, MontyCell
from coderoom.sandbox.engines.monty.engine import MontyEngine, MontySession

from .looking import error_of


class TestValues:
    @pytest.mark.parametrize(
        ("code", "value", "shown"),
        [
            ("1 + 1", 2, "2"),
            ("[1, (2, None)]", [1, [2, None]], "[1, (2, None)]"),
            ("{'a': {'b': [True, 1.5]}}", {"a": {"b": [True, 1.5]}}, "{'a': {'b': [True, 1.5]}}"),
            ("{1: 2}", "{1: 2}", "{1: 2}"),
            ("import decimal\ndecimal.Decimal('1.5')", "Decimal('1.5')", "Decimal('1.5')"),
            ("class A:\n    def __repr__(self): return 'mine'\nA()", "mine", "mine"),
            ("class A:\n    def __repr__(self): return 1 / 0\nA()", *["<A whose repr raised ZeroDivisionError>"] * 2),
            ("10 ** 5000", *["<int whose repr raised ValueError>"] * 2),
            ("x = []\nx.append(x)\nx", *["[[...]]"] * 2),
            ("x = 5  # a comment\nx  # another", 5, "5"),
            ("'é'; (\n 1,\n 2)", [1, 2], "(1, 2)"),
            ("1, *[2]", [1, 2], "(1, 2)"),
            ("repr = len = type = str = dict = 3\n'a'", "a", "'a'"),
            ("x = 1\nprint(x)", None, None),
            ("x = 1", None, None),
            ("# nothing", None, None),
            ("", None, None),
        ],
    )
    async def test_a_last_expression(self, session: MontySession, code: str, value: Any, shown: str | None) -> None:
        result = await session.run(code)
        assert (result.outcome, result.value, result.value_repr) == (Outcome.OK, value, shown)

    @pytest.mark.parametrize(
        ("code", "begins", "ends"),
        [
            ("list(range(1_000_000))", "[0, 1, 2", "... (1,000,000 items)"),
            ("'ab' * 1_000_000", "'abab", "... (2,000,000 characters)"),
            ("{'a': 'b' * 2_000_000}", "{'a': ...", "... (1 items)"),
            ("x = (1,)\nfor _ in range(60): x = (x, x)\nx", "(...", "... (2 items)"),
        ],
    )
    async def test_a_large_one_is_cut_where_it_is(
        self, session: MontySession, code: str, begins: str, ends: str
    ) -> None:
        result = await session.run(code)
        assert result.value == result.value_repr
        assert result.value_repr is not None
        assert result.value_repr.startswith(begins)
        assert result.value_repr.endswith(ends)
        assert len(result.value_repr) < 20_100

    def test_syntax_that_is_newer_than_this_interpreter(self) -> None:
        code = 'x = f"{"a"}" if "\\n" else t\'{1}\'\n\nprint(\n    x,\n)\n'
        cell = MontyCell.read(code, None)
        assert cell.source.replace("__coderoom_show__((", "").replace("))\n", ")\n").count("print(") == 1
        assert (cell.line, cell.column) == (3, 0)
        assert MontyCell.read("x = (\\\n5\n", None).source == "x = (\\\n5\n"

    async def test_the_restricted_policys_variable(self) -> None:
        async with MontyEngine(policy="restricted") as engine:
            session = await engine.open()
            assert (await session.run("x = 1")).value is None
            assert (await session.run("result = 6 * 7")).value == 42
            assert (await session.run("'its own'")).value == "its own"
            assert (await session.run("print('none')")).value == 42


class TestErrors:
    async def test_the_traceback_has_the_codes_lines_only(self, session: MontySession) -> None:
        await session.run("def half(x):\n    return x / 0")
        result = await session.run("y = 1\nhalf(\n    y)")
        error = error_of(result)
        assert (error.type, error.message, error.line) == ("ZeroDivisionError", "division by zero", 2)
        assert error.traceback == (
            "Traceback (most recent call last):\n"
            '  File "<cell 2>", line 2, in <module>\n    half(\n'
            '  File "<cell 1>", line 2, in half\n    return x / 0\n           ~~~~~\n'
            "ZeroDivisionError: division by zero\n"
        )
        assert result.stderr == error.traceback

    async def test_columns_are_those_of_the_code(self, session: MontySession) -> None:
        error = error_of(await session.run("é = 1; (é + nope)"))
        assert error.traceback.splitlines()[2:4] == ["    é = 1; (é + nope)", "                ~~~~"]

    async def test_a_deep_recursion_is_short(self, session: MontySession) -> None:
        error = error_of(await session.run("def f():\n    return f()\nf()"))
        assert error.type == "RecursionError"
        assert "[Previous line repeated" in error.traceback
        assert len(error.traceback) < 1000

    async def test_input(self, session: MontySession) -> None:
        assert "input() is not available" in error_of(await session.run("input('name?')")).message
        assert (await session.run("def input(): return 3\ninput()")).value == 3

    @pytest.mark.parametrize(
        ("code", "exit_code", "stderr"),
        [("exit()", 0, ""), ("quit(3)", 3, ""), ("raise SystemExit('because')", 1, "because\n"), ("exit(-1)", 255, "")],
    )
    async def test_exit(self, session: MontySession, code: str, exit_code: int, stderr: str) -> None:
        await session.run("x = 1")
        result = await session.run(code)
        assert (result.exit_code, result.stderr, result.success) == (exit_code, stderr, exit_code == 0)
        assert (await session.run("x")).value == 1

    async def test_what_is_no_text(self, session: MontySession) -> None:
        assert error_of(await session.run("'\ud800'")).type == "SyntaxError"
        assert error_of(await session.run("a\0b")).type == "SyntaxError"

    @pytest.mark.parametrize("language", ["bash", "js"])
    async def test_other_languages(self, session: MontySession, language: str) -> None:
        with pytest.raises(RequestError, match=f"'monty' runs only Python, and this is '{language}'"):
            await session.run("echo 1", language)

    async def test_a_language_that_nobody_runs(self, session: MontySession) -> None:
        with pytest.raises(RequestError, match="'cobol'"):
            await session.run("DISPLAY 1", "cobol")


# What this engine's Python lacks, and what it says. Whoever finds one of these working deletes it here.
GAPS = [
    ("class E(Exception): pass", "does not know class inheritance and metaclasses"),
    ("class A:\n    @property\n    def x(self): return 1", "does not know method decorators"),
    ("def f():\n    yield 1", "does not know yield expressions"),
    ("del x", "does not know 'del' statement"),
    ("try:\n    pass\nexcept* ValueError:\n    pass", "does not know exception groups"),
    ("async def f():\n    async with x: pass", "does not know async context managers"),
    ("async def f():\n    async for x in y: pass", "does not know async for loops"),
    ("type X = int", "does not know type aliases"),
    ("t'x'", "does not know template strings"),
    ("from math import *", "does not do this"),
    ("import numpy", "has no 'numpy' but only these modules: asyncio"),
    ("import statistics, string, operator", "has no 'statistics' but only these modules"),
    ("import sys\nsys.exit(1)", "has only a part of 'sys'"),
    ("import sys\nsys.stdout.write('x')", "has only a part of '_io.TextIOWrapper': use print()"),
    ("from functools import wraps", "has only a part of 'functools'"),
    ("import asyncio\nasyncio.create_task(1)", "has only a part of 'asyncio'"),
    ("import re\nre.sub('a', lambda m: 'b', 'a')", "does not do this"),
    ("callable(1)", "has no 'callable'"),
    ("globals()", "has no 'globals'"),
    ("__import__('os')", "has no '__import__'"),
    ("bytearray(2)", "has no 'bytearray'"),
    ("super()", "has no 'super'"),
    ("object()", "does not do this"),
    ("raise SystemExit(3)", "does not do this"),
    ("def f(): pass\nf.__name__", "has no '__name__' there"),
    ("class A:\n    def __len__(self): return 3\nlen(A())", "does not call '__len__'"),
    ("class A:\n    def __lt__(self, o): return True\nsorted([A(), A()])", "does not call '__lt__'"),
    ("class A:\n    def __getattr__(self, n): return 3\nA().x", "does not call '__getattr__'"),
]


class TestGaps:
    @pytest.mark.parametrize(("code", "says"), GAPS, ids=[code.splitlines()[-1].strip() for code, _ in GAPS])
    async def test_is_named_with_the_way_out(self, session: MontySession, code: str, says: str) -> None:
        error = error_of(await session.run(code))
        assert says in error.message
        assert "engine='cpython' runs all of Python" in error.message
        assert error.message in error.traceback

    @pytest.mark.parametrize(
        ("code", "value", "cpython"),
        [
            ("class A:\n    def __bool__(self): return False\nbool(A())", True, False),
            ("class A:\n    def __setattr__(self, n, v): pass\na = A()\na.x = 1\nhasattr(a, 'x')", True, False),
            ("class A:\n    def __format__(self, s): return 'A'\nf'{A()}' == 'A'", False, True),
        ],
    )
    async def test_differs_without_a_word(self, session: MontySession, code: str, value: Any, cpython: Any) -> None:
        result = await session.run(code)
        assert result.value == value
        assert result.value != cpython

    async def test_it_has_the_modules_that_it_says(self, session: MontySession) -> None:
        assert (await session.run("\n".join(f"import {name}" for name in MODULES))).success

    async def test_an_ordinary_mistake_is_not_blamed_on_it(self, session: MontySession) -> None:
        for code in ("nope", "[].nope", "1 + ''", "import math\nmath.sqrt(-1)", "x = ("):
            assert "monty" not in str(error_of(await session.run(code)))
