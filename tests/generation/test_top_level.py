# ruff: noqa: E501 (programs, one to a line)
"""Examples at the top level of Python code are removed; calls that prepare what its functions use stay."""

from __future__ import annotations

import pytest

from coderoom.generation import PythonLanguage

PREPARING = {
    "an argument": "TABLE = {}\ndef register(table, key):\n    table[key] = 1\nregister(TABLE, 'a')",
    "a loop": "TABLE = {}\ndef register(table, key):\n    table[key] = 1\nfor key in 'abc':\n    register(TABLE, key)",
    "a helper": "TABLE = {}\ndef _add(key):\n    TABLE[key] = 1\ndef _build():\n    for key in 'abc':\n        _add(key)\n_build()",
    "an object": "class Item:\n    all = []\n    def __init__(self, key):\n        self.all.append(key)\nItem('a')",
    "an argument and progress": "TABLE = {}\ndef register(table, key):\n    table[key] = 1\n    print(key)\nregister(TABLE, 'a')",
    "progress": "TABLE = []\ndef _build():\n    TABLE.append(1)\n    print('built')\n_build()",
    "progress and a helper": "TABLE = {}\ndef _add(key):\n    TABLE[key] = 1\ndef _build():\n    for key in 'abc':\n        _add(key)\n    print('built')\n_build()",
    "progress and recursion": "TABLE = {}\ndef _add(n):\n    _build(n - 1)\n    TABLE[n] = 1\ndef _build(n=3):\n    if n:\n        _add(n)\n    print(n)\n_build()",
    "a global": "N = 0\ndef _init():\n    global N\n    N = 1\n    print(N)\n_init()",
}  # fmt: skip
EXAMPLES = {
    "print": "def f(x):\n    return x\n#\nprint(f(1))\nassert f(2) == 2",
    "a loop": "def f(x):\n    return x\n#\nfor each in (1, 2):\n    print(f(each))",
    "a main function": "def f(x):\n    return x\ndef main():\n    print(f(1))\n#\nmain()",
    "tests": "CACHE = {}\ndef f(x):\n    CACHE[x] = x\n    return x\ndef test():\n    assert f(1) == 1\n#\ntest()",
    "a helper that shows": "def f(x):\n    return x\ndef show(x):\n    print(f(x))\ndef main():\n    show(1)\n    print('done')\n#\nmain()",
    "what it shows": "def sort(x):\n    x.sort()\ndef main():\n    data = [2, 1]\n    data[0] = 3\n    sort(data)\n    print(data)\n#\nmain()",
}  # fmt: skip


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in PREPARING.items()])
def test_calls_that_prepare_something_stay(code: str) -> None:
    assert PythonLanguage().without_examples(code) == (code, [])


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in EXAMPLES.items()])
def test_examples_are_removed(code: str) -> None:
    text, notes = PythonLanguage().without_examples(code)
    assert text == code.partition("#")[0] + "#"
    assert notes[0].endswith("an example at the top level, was removed")
