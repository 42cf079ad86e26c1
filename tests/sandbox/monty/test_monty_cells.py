"""What a cell means to the engine `monty`: values, errors, and what its Python lacks."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, Session
from coderoom.sandbox.engines.monty.cells import MARKERS, read_marker

from .looking import error_of

VALUES: list[tuple[str, Any, str | None]] = [
    ("1 + 1", 2, "2"),
    ("[1, (2, None)]", [1, (2, None)], "[1, (2, None)]"),
    ("{'a': {'b': [True, 1.5]}}", {"a": {"b": [True, 1.5]}}, "{'a': {'b': [True, 1.5]}}"),
    ("{1: 2}", {1: 2}, "{1: 2}"),
    ("import decimal\ndecimal.Decimal('1.5')", Decimal("1.5"), "Decimal('1.5')"),
    ("class A:\n    def __repr__(self): return 'mine'\nA()", "mine", "mine"),
    (
        "class A:\n    def __repr__(self): return 1 / 0\nA()",
        "<A whose repr raised ZeroDivisionError>",
        "<A whose repr raised ZeroDivisionError>",
    ),
    ("10 ** 5000", "<int whose repr raised ValueError>", "<int whose repr raised ValueError>"),
    ("x = []\nx.append(x)\nx", "[[...]]", "[[...]]"),
    ("x = 5  # a comment\nx  # another", 5, "5"),
    ("'é'; (\n 1,\n 2)", (1, 2), "(1, 2)"),
    ("1, *[2]", (1, 2), "(1, 2)"),
    ("repr = len = type = str = dict = 3\n'a'", "a", "'a'"),
    ("x = 1\nprint(x)", None, None),
    ("x = 1", None, None),
    ("# nothing", None, None),
    ("", None, None),
]
LARGE = [
    ("list(range(1_000_000))", "[0, 1, 2", "... (1,000,000 items)"),
    ("'ab' * 1_000_000", "'abab", "... (2,000,000 characters)"),
    ("{'a': 'b' * 2_000_000}", "{'a': ...", "... (1 items)"),
    ("x = (1,)\nfor _ in range(60): x = (x, x)\nx", "(...", "... (2 items)"),
    ("{*range(600_000)}", "{", "... (600,000 items)"),
    ("b'ab' * 1_000_000", "b'abab", "... (2,000,000 bytes)"),
]


class TestValues:
    async def test_a_last_expression(self, session: Session) -> None:
        for code, value, shown in VALUES:
            result = await session.run(code)
            assert (result.outcome, result.value, result.value_repr) == (Outcome.OK, value, shown), code

    @pytest.mark.slow
    async def test_a_large_one_is_cut_where_it_is(self, session: Session) -> None:
        for code, begins, ends in LARGE:
            result = await session.run(code)
            assert result.value == result.value_repr
            assert result.value_repr is not None
            assert result.value_repr.startswith(begins)
            assert result.value_repr.endswith(ends)
            assert len(result.value_repr) < 20_100

    async def test_an_expression_over_lines_and_a_line_that_goes_on(self, session: Session) -> None:
        result = await session.run('x = "\\n"\n\nprint(\n    x,\n)\n(\n    x\n)')
        assert (result.value, result.stdout) == ("\n", "\n\n")
        assert error_of(await session.run("x = (\\\n5\n")).type == "SyntaxError"

    async def test_the_restricted_policys_variable(self) -> None:
        async with Sandbox(engine="monty", policy="restricted") as sandbox:
            session = sandbox.session()
            assert (await session.run("x = 1")).value is None
            assert (await session.run("result = 6 * 7")).value == 42
            assert (await session.run("'its own'")).value == "its own"
            assert (await session.run("print('none')")).value == 42


class TestErrors:
    async def test_the_traceback_has_the_codes_lines_only(self, session: Session) -> None:
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

    async def test_columns_are_those_of_the_code(self, session: Session) -> None:
        error = error_of(await session.run("é = 1; (é + nope)"))
        assert error.traceback.splitlines()[2:4] == ["    é = 1; (é + nope)", "                ~~~~"]

    async def test_a_deep_recursion_is_short(self, session: Session) -> None:
        error = error_of(await session.run("def f():\n    return f()\nf()"))
        assert error.type == "RecursionError"
        assert "[Previous line repeated" in error.traceback
        assert len(error.traceback) < 1000

    async def test_input(self, session: Session) -> None:
        assert "input() is not available" in error_of(await session.run("input('name?')")).message
        assert (await session.run("def input(): return 3\ninput()")).value == 3

    async def test_exit(self, session: Session) -> None:
        await session.run("x = 1")
        for code, exit_code, stderr in (
            ("exit()", 0, ""),
            ("quit(3)", 3, ""),
            ("raise SystemExit('because')", 1, "because\n"),
            ("exit(-1)", 255, ""),
        ):
            result = await session.run(code)
            assert (result.exit_code, result.stderr, result.success) == (exit_code, stderr, exit_code == 0)
            assert (await session.run("x")).value == 1

    async def test_what_is_no_text(self, session: Session) -> None:
        assert error_of(await session.run("'\ud800'")).type == "SyntaxError"
        assert error_of(await session.run("a\0b")).type == "SyntaxError"

    async def test_other_languages(self, session: Session) -> None:
        with pytest.raises(RequestError, match="'monty' runs only Python, and this is 'bash'"):
            await session.run("echo 1", language="bash")


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
    async def test_is_named_with_the_way_out(self, session: Session) -> None:
        for code, says in GAPS:
            error = error_of(await session.run(code))
            assert says in error.message, code
            assert "engine='cpython' runs all of Python" in error.message
            assert error.message in error.traceback

    async def test_differs_without_a_word(self, session: Session) -> None:
        for code, value in (
            ("class A:\n    def __bool__(self): return False\nbool(A())", True),
            ("class A:\n    def __setattr__(self, n, v): pass\na = A()\na.x = 1\nhasattr(a, 'x')", True),
            ("class A:\n    def __format__(self, s): return 'A'\nf'{A()}' == 'A'", False),
        ):
            assert (await session.run(code)).value is value, code  # The other one, in CPython.

    async def test_it_has_the_modules_that_it_says(self, session: Session) -> None:
        said = error_of(await session.run("import numpy")).message
        names = said.partition("only these modules: ")[2].partition(".")[0].split(", ")
        assert len(names) > 5
        assert (await session.run("\n".join(f"import {name}" for name in names))).success, said

    async def test_an_ordinary_mistake_is_not_blamed_on_it(self, session: Session) -> None:
        for code in ("nope", "[].nope", "1 + ''", "import math\nmath.sqrt(-1)", "x = ("):
            assert "monty" not in str(error_of(await session.run(code)))


# For each marker, code whose error has it.
MARKED = {
    "memory": "'x' * 10 ** 9",
    "cpu": "while True: pass",
    "disk": "open('big', 'w').write('x' * 70_000)",
    "syntax": "del x",
    "module": "import numpy",
    "name": "callable(1)",
    "attribute": "import sys\nsys.exit(1)",
    "import": "from functools import wraps",
    "special": "def f(): pass\nf.__name__",
    "stream": "import sys\nsys.stdout.write('x')",
    "not yet": "import re\nre.sub('a', lambda m: 'b', 'a')",
    "unsupported": "from math import *",
    "object": "object()",
    "bug": "raise SystemExit(3)",
    "print": "print(1, file=3)",
}


@pytest.mark.parametrize("meaning", MARKERS)
async def test_what_the_engine_says_in_words_is_understood(tmp_path: Path, meaning: str) -> None:
    limits = Limits(cpu_seconds=0.2, disk_bytes=65_536, memory_bytes=64 << 20)
    async with Sandbox(engine="monty", workspace=tmp_path, limits=limits) as sandbox:
        result = await sandbox.run(MARKED[meaning])
    if meaning in ("memory", "cpu", "disk"):
        assert result.limit == meaning
        return
    error = error_of(result)
    said, _, hint = error.message.partition(". The engine 'monty'")
    assert read_marker(error.type, said)[0] == meaning or "does not know 'del'" in said
    assert hint or meaning == "syntax"
