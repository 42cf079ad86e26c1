# ruff: noqa: E501 (programs, one to a line)
"""Code whose answers depend on its arguments alone, and code whose answers may not."""

from __future__ import annotations

import pytest

from coderoom.judge import PythonHarness

PURE = {
    "arithmetic": "def f(x):\n    return [x % 2, x ** 2]\n",
    "a list of a set": "def f(x):\n    return sorted(list(set(x)))\n",
    "annotations": "from typing import List\ndef f(x: List[str]) -> str:\n    return f'{len(x)}'\n",
    "sets without order": "def f(x):\n    return len(set(x)), sorted(set(x)), x[0] in {1, 2}, set(x) == {1}\n",
    "messages": "def f(x):\n    raise ValueError(f'{x!r} is wrong: {sorted(x, key=lambda y: y)}')\n",
    "a usual encoding": "# -*- coding: utf-8 -*-\ndef f(x):\n    return x  # encoding=UTF8 is a usual one, too\n",
    "text": "def f(x):\n    return ''.join(str(each) for each in x) + f'{len(x)}'\n",
}
OTHERS = {
    "attributes by name": "def f(x):\n    return getattr(x, 'name', None)\n",
    "modules": "import math, collections.abc\nfrom functools import lru_cache\n@lru_cache\ndef f(x):\n    return math.sqrt(x)\n",
    "a class": "class A:\n    def __init__(self, x):\n        self._x = x\n    @property\n    def x(self):\n        return self._x\n",
    "state": "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)\n",
    "the order of a set": "def f(x):\n    return list(set(x))\n",
    "the order of a set display": "def f(x):\n    return [each for each in {'a', 'b'}]\n",
    "the order of views": "def f(x, y):\n    return list(x.keys() | y.keys())\n",
    "the order of views in variables": "def f(x, y):\n    x, y = x.keys(), y.keys()\n    return list(x - y)\n",
    "the order of views by a function": "from operator import and_\ndef f(x, y):\n    return list(and_(x.keys(), y.keys()))\n",
    "a name that is list": "def f(x, list):\n    return sorted(list(set(x)))\n",
    "a time zone": "from datetime import datetime\ndef f(x):\n    return datetime(2024, 1, x).strftime('%d')\n",
    "a time zone in a format": "from datetime import datetime\ndef f(x):\n    return f'{datetime(2024, 1, x):%s}'\n",
    "ties": "def f(x):\n    return sorted(set(x), key=len)\n",
    "hashes": "def f(x):\n    return hash(x)\n",
    "addresses": "def f(x):\n    return sorted(x, key=id)\n",
    "the text of an object": "class A: ...\ndef f(x):\n    return str(A())\n",
    "the text of an iterator": "def f(x):\n    return '%s' % iter(x)\n",
    "the text of a generator": "def f(x):\n    return repr(each for each in x)\n",
    "the text of a method": "def f(x):\n    name = x.append\n    return f'{name}'\n",
    "the text of an iterator by another name": "def f(x):\n    i = iter\n    return str(i(x))\n",
    "the text of an iterator of a library": "import re\ndef f(x):\n    return str(re.finditer(x, x))\n",
    "the text of an iterator imported by name": "from re import finditer\ndef f(x):\n    return str(finditer(x, x))\n",
    "the depth of the stack by a name": "def f(x):\n    error = RecursionError\n    try:\n        return f(x)\n    except error:\n        return 1\n",
    "the text of a library's function": "import statistics\ndef f(x):\n    return str(statistics.mean)\n",
    "the text of an imported function": "from statistics import mean\ndef f(x):\n    return str(mean)\n",
    "the text of an item": "def f(x):\n    return str(dict(a=iter(x)))\n",
    "the text of a digest": "import hashlib\ndef f(x):\n    return str(hashlib.md5(x))\n",
    "the text of a module's function": "import base64\ndef f(x):\n    return str(base64.b64encode)\n",
    "a time zone in a format of parts": "from datetime import datetime\ndef f(x):\n    return '{0:%{1}}'.format(datetime(2024, 1, x), 's')\n",
    "the order of a set with NaN": "def f(x):\n    return sorted(set([1e308 * 10 - 1e308 * 10, x]))\n",
    "the text of mapped iterators": "def f(x):\n    return [str(y) for y in map(iter, x)]\n",
    "a start that is returned": "def f(x):\n    return str(sum([], iter(x)))\n",
    "a function as the value of a key": "def g():\n    return 1\ndef f(x):\n    return str(dict(key=g))\n",
    "a type that is kept": "import typing\ndef f(x):\n    return str(typing.Tuple[x, 8])\n",
    "the text of the largest iterator": "def f(x):\n    return str(max(iter(x), x, key=len))\n",
    "the text by a template in a variable": "def f(x, y):\n    return x % (each for each in y)\n",
    "the text in an exception": "def f(x):\n    try:\n        [].index(iter(x))\n    except ValueError as e:\n        return e.args\n",
    "a method that shows": "class A: ...\ndef f(x):\n    return A().__repr__()\n",
    "random numbers": "import random\ndef f(x):\n    return random.random()\n",
    "a copy of a set that is compared": "def f(x):\n    return list(set(x)) == x\n",
    "a call in an annotation": "def f(x):\n    out = []\n    def g(y: out.append(str(lambda: 0))):\n        pass\n    return out\n",
    "a text in an exception that is read": "def f(x):\n    try:\n        raise OSError(1, f'{(lambda: 0)}')\n    except OSError as error:\n        return error.strerror\n",
    "a text that decides what is raised": "def f(x):\n    raise ValueError(x if f'{(lambda: 0)}' > '<' else 0)\n",
    "a clock": "import time\ndef f(x):\n    return time.time()\n",
    "the date": "from datetime import date\ndef f(x):\n    return date.today()\n",
    "the date by a pattern": "from datetime import datetime\ndef f(x):\n    match x:\n        case datetime(now=n):\n            return n()\n",
    "the system": "def f(x):\n    import sys\n    return sys.stdout\n",
    "evaluation": "def f(x):\n    return eval(x)\n",
    "an attribute by a computed name": "def f(x):\n    return getattr(f, '__glo' + 'bals__')\n",
    "globals": "def f(x):\n    return f.__globals__['__builtins__']\n",
    "subclasses": "def f(x):\n    return ().__class__.__base__.__subclasses__()\n",
    "a class's dictionary": "def f(x):\n    return type.__dict__[x](f)\n",
    "frames": "def f(x):\n    g = (y for y in x)\n    return g.gi_frame.f_back\n",
    "a traceback": "class A:\n    def __enter__(self): ...\n    def __exit__(self, *e):\n        return e[2].tb_frame\n",
    "a module of a module": "import contextlib\ndef f(x):\n    return contextlib.sys.stdout\n",
    "an imported module of a module": "from contextlib import sys\n",
    "a module as a value": "import contextlib\ndef f(x):\n    m = contextlib\n    return m.sys\n",
    "a template": "def f(x):\n    return x.format(f)\n",
    "fields of a template": "def f(x):\n    return '{0.__globals__}'.format(f)\n",
    "a formatter": "import string\ndef f(x):\n    return string.Formatter().format(x, f)\n",
    "annotations": "from typing import get_type_hints\ndef f(x: \"__import__('os')\"): ...\n",
    "an attribute getter": "import operator\ndef f(x):\n    return operator.attrgetter(x)(f)\n",
    "copied attributes": "from functools import wraps\ndef f(x):\n    return wraps(f, ('__globals__',))(x)\n",
    "copied attributes by another name": "from functools import wraps as w\ndef f(x):\n    return w(f, ('__globals__',))(x)\n",
    "copied attributes by a variable": "import functools\nw = functools.wraps\n",
    "copied attributes by a list": "from functools import wraps\ndef f(x):\n    return wraps(*x)(f)\n",
    "getattr as a value": "def f(x):\n    return x(getattr, 'a', f, '__globals__')\n",
    "a template by a name": "def f(x):\n    return getattr(str, 'format')(x, f)\n",
    "frames by a template": "def f(x):\n    return '{0.gi_frame.f_globals}'.format(x)\n",
    "all of a module": "from operator import *\ndef f(x):\n    return attrgetter(x)(f)\n",
    "attributes named by a class": "def f(x, C):\n    match f:\n        case C(g):\n            return g\n",
    "the stream": "import contextlib\nclass A(contextlib.redirect_stdout):\n    _stream = 'modules'\n",
    "a relative import": "from . import os\n",
    "another encoding": "# coding: utf-7\n# +AAo-import os+AAo-\ndef f(x):\n    return x\n",
    "a name that is only declared": "exec: int\ndef f(x):\n    return exec(x)\n",
    "the depth of the stack by finally": "def f(x):\n    try:\n        return f(x + 1)\n    finally:\n        return x\n",
}


@pytest.mark.parametrize(("pure", "sources"), [(True, PURE), (False, OTHERS)], ids=["pure", "others"])
def test_it_is_found(pure: bool, sources: dict[str, str]) -> None:
    assert {name: PythonHarness().is_pure([source]) for name, source in sources.items()} == dict.fromkeys(sources, pure)


def test_every_source_counts() -> None:
    assert not PythonHarness().is_pure([PURE["text"], OTHERS["a clock"]])
    assert not PythonHarness().is_pure(
        ["def g(x):\n    return x.keys()\n", "def f(x, y):\n    return list(g(x) & g(y))\n"]
    )
    assert PythonHarness().is_pure([])
