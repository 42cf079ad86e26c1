# ruff: noqa: E501 (programs, one to a line)
"""Examples at the top level of Python code are removed; calls that prepare what its functions use stay."""

from __future__ import annotations

import pytest

from coderoom.generation import PythonLanguage

NODE = "class Node:\n    def __init__(self):\n        self.next = {}\n"
ITEM = "class Item:\n    all = []\n    def __init__(self, key):\n        self.key = key\n"
PREPARING = {
    "an argument": "TABLE = {}\ndef register(table, key):\n    table[key] = 1\nregister(TABLE, 'a')",
    "an argument by name": "TABLE = {}\ndef register(key, *, into):\n    into.update({key: 1})\nregister('a', into=TABLE)",
    "a loop": "TABLE = {}\ndef register(table, key):\n    table[key] = 1\nfor key in 'abc':\n    register(TABLE, key)",
    "a helper": "TABLE = {}\ndef _add(key):\n    TABLE[key] = 1\ndef _build():\n    for key in 'abc':\n        _add(key)\n_build()",
    "a helper and progress": "T = []\ndef _add(x):\n    T.append(x)\ndef _build():\n    _add(1)\n    print('built')\n_build()",
    "passed on": "T = {}\ndef _add(t, key):\n    t[key] = 1\ndef _build(t):\n    _add(t, 'a')\n_build(T)",
    "a list of the class": f"{ITEM}        Item.all.append(self)\nItem('a')",
    "a list of all objects": f"{ITEM}        self.all.append(self)\nItem('a')",
    "a list of the base": f"{ITEM}        self.all.append(self)\nclass Part(Item):\n    pass\nPart('a')",
    "a number of the class": f"{ITEM}        type(self).number = 1\nItem('a')",
    "a method": "class App:\n    def route(self, key):\n        pass\napp = App()\ndef _setup():\n    app.route('a')\n_setup()",
    "part of an argument": f"{NODE}ROOT = Node()\ndef insert(root, text):\n    node = root\n    for each in text:\n        "
    "node = node.next.setdefault(each, Node())\ninsert(ROOT, 'abc')",
    "rows": "ROWS = [[0], [0]]\ndef _fill():\n    for i, row in enumerate(ROWS):\n        row[0] = i\n_fill()",
    "a function of a module": "import heapq\nHEAP = []\ndef push(heap, x):\n    heapq.heappush(heap, x)\npush(HEAP, 1)",
    "an imported object": "import os\ndef _set():\n    os.environ['A'] = 'b'\n_set()",
    "a database": "import sqlite3\ndb = sqlite3.connect(':memory:')\ndef _setup():\n    db.execute('create table t(x)')\n_setup()",
    "a global": "N = 0\ndef _init():\n    global N\n    N = 1\n_init()",
}  # fmt: skip
EXAMPLES = {
    "print": "def f(x):\n    return x\n#\nprint(f(1))\nassert f(2) == 2\nf(3)",
    "within": "def f(x):\n    return x\n#\nfor each in (1, 2):\n    print(f(each))\nif f(1):\n    f(2)",
    "a main function": "def f(x):\n    return x\ndef main():\n    print(f(1))\n#\nmain()",
    "a cache": "CACHE = {}\ndef f(x):\n    CACHE[x] = x\n    return x\ndef main():\n    y = f(1)\n    print(y)\n#\nmain()",
    "tests": "CACHE = {}\ndef f(x):\n    CACHE[x] = x\n    return x\ndef test():\n    assert f(1) == 1\n#\ntest()",
    "a constant table": "ROMAN = [(5, 'V'), (1, 'I')]\ndef f(x):\n    found = []\n    for value, sign in ROMAN:\n        "
    "found.append(sign)\n    return found\n#\nf(6)",
    "a copy": "WORDS = ['a']\ndef f(x):\n    words = sorted(WORDS)\n    words.append(x)\n    return words\n#\nf('b')",
    "objects": "from dataclasses import dataclass, field\n@dataclass\nclass Box:\n    items: list = field(default_factory=list)"
    "\n    size: int = 0\n    def put(self, x):\n        self.items.append(x)\n        self.size += 1\ndef main():\n    "
    "box = Box()\n    box.put(1)\n#\nBox()\nmain()",
    "an array": "import numpy as np\ndef f(n):\n    found = np.zeros(n)\n    found[0] = 1\n    return found\n#\nf(3)",
    "a pattern": "import re\nWORD = re.compile('a')\ndef f(x):\n    found = WORD.findall(x)\n    found.pop()\n    return found\n#\nf('a')",
    "logging": "import logging\nlogger = logging.getLogger('a')\ndef f(x):\n    logger.info(x)\n    return x\n#\nf(1)",
    "sorting": "def sort(x):\n    x.sort()\ndef main():\n    data = [2, 1]\n    sort(data)\n    print(data)\n#\nmain()",
}  # fmt: skip


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in PREPARING.items()])
def test_calls_that_change_what_lasts_stay(code: str) -> None:
    assert PythonLanguage().without_examples(code) == (code, [])


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in EXAMPLES.items()])
def test_examples_are_removed(code: str) -> None:
    text, notes = PythonLanguage().without_examples(code)
    assert text == code.partition("#")[0] + "#"
    assert notes[0].endswith("an example at the top level, was removed")
