"""Cells are compiled in parts, which together do what their code does as a whole."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from coderoom.sandbox.guest.cells import compile_cell

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

CELLS = [
    "x = 1\nx",
    "x = 1; x + 1",
    "y = 2\nx = 1; x + y",
    "def f():\n  return 1\nf()",
    "if 0:\n  a = 1\nelif 0:\n  a = 2\nelse:\n  a = 3",
    "try:\n  1 / 0\nexcept ZeroDivisionError:\n  a = 1\nfinally:\n  b = 2",
    "for a in [1]:\n  pass\nelse:\n  b = 1",
    "t = '''\nb\n'''",
    "t = '''\nb\n'''\nt",
    "t = '''\n@a\n'''\nt",
    "a = 1\n@(lambda _: 5)\n@(lambda f: f)\ndef f(): pass\n# end\n",
    "a = 3\nprint(\na,\n)",
    "a = 3\n[\na,\n]  # end",
    "a = 1 + \\\n2",
    "a = 1 + \\\n2\na",
    "a = 1\n*[1], 2",
    "a = 1\n\n1 / 0\n",
    "a = 0\nb = 1\nb / a",
    "a = 1\nb = (\n  a /\n  0)",
    "elsewhere = 1\nelsewhere",
    "from __future__ import annotations\ndef f(x: Nope): pass\nf.__annotations__",
    "x = 1\nfrom __future__ import annotations",
    "a = 1\r\na",
    "a = 1\nx = = 1\nb",
    "a = (1\nb",
    "a = 1\nreturn 2",
    "a = 1\n  b = 2",
    "\n  a",
    "",
    "# end",
]


def as_a_whole(code: str) -> list[CodeType]:
    tree = compile(code, "<cell>", "exec", FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    whole = compile(tree, "<cell>", "exec", FLAGS, dont_inherit=True)
    return [whole] if last is None else [whole, compile(last, "<cell>", "eval", FLAGS, dont_inherit=True)]


def in_parts(code: str) -> list[CodeType]:
    return compile_cell(code, "<cell>", FLAGS)


def outcome(compiled: Callable[[str], list[CodeType]], code: str) -> Any:
    names: dict[str, Any] = {}
    value = None
    try:
        for part in compiled(code):
            value = eval(part, names)
    except SyntaxError as error:
        return error.msg, error.lineno, error.offset
    except Exception as error:
        return repr(error), [frame.lineno for frame in traceback.extract_tb(error.__traceback__)[1:]]
    return value, {name: each for name, each in names.items() if not name.startswith("__") and not callable(each)}


@pytest.mark.parametrize("code", CELLS)
def test_parts_do_the_same_as_the_whole(code: str) -> None:
    assert outcome(in_parts, code) == outcome(as_a_whole, code)


@pytest.mark.parametrize("code", ["x = await f()\nfor _ in x:\n  y = 1", "x = 1\nawait f()", "await f()\nx"])
def test_code_that_awaits_is_one_part(code: str) -> None:
    assert len(in_parts(code)) == 1
