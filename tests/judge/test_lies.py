# ruff: noqa: E501 (pieces of code, one to a line)
"""Values that lie about themselves, code that changes its tester or depends on how it is called; and honest relatives."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from coderoom.judge import FunctionTest, Judge, Verdict, freeze
from coderoom.sandbox import Sandbox

SQUARES: list[dict[str, Any]] = [{"inputs": {"n": n}, "expected_output": n * n} for n in (2, 3, 5)]


def one(expected: Any, **inputs: Any) -> list[dict[str, Any]]:
    return [{"inputs": inputs or {"n": 1}, "expected_output": expected}]


LIES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "a number that is not equal": ("class A(int):\n    __eq__ = lambda self, other: False\n    __hash__ = int.__hash__\ndef f(n): return A(4)\n", one(4)),
    "a number that adds up wrongly": ("class A(int):\n    __add__ = lambda self, other: -1\ndef f(n): return A(4)\n", one(4)),
    "a list with other items": ("class A(list):\n    __iter__ = lambda self: iter([9])\ndef f(n): return A([1])\n", one([1])),
    "the name of a date": ("import datetime\nclass date(datetime.date):\n    __module__ = 'datetime'\n    isoformat = lambda self: '2024-02-29'\ndef f(n): return date(1999, 3, 1)\n", one({"$date": "2024-02-29"})),
    "the name of a path": ("class P(int):\n    __module__ = 'pathlib'\n    __str__ = lambda self: 'x'\ndef f(n): return P(7)\n", one("x")),
    "too few fields": ("class R(tuple):\n    _fields = ('a',)\ndef f(n): return R((1, 9, 9))\n", one({"$tuple": [1]})),
    "another numpy": ("import sys, types\nclass G(int):\n    def item(self): return 4\nclass N: pass\nsys.modules['numpy'] = types.SimpleNamespace(ndarray=N, generic=G, datetime64=N, timedelta64=N)\ndef f(n): return G(-1)\n", one(4)),
    "other fields": ("class P:\n    def __init__(self): self.x = 9\n    @property\n    def __dict__(self): return {'x': 1}\ndef f(n): return P()\n", one({"$object": {"type": "P", "fields": {"x": 1}}})),
    "fields that are computed": ("class P:\n    def __init__(self): self.__dict__['x'] = 1\n    x = property(lambda self: 9, lambda self, value: None)\ndef f(n): return P()\n", one({"$object": {"type": "P", "fields": {"x": 1}}})),
    "an equal with slots": ("class P:\n    __slots__ = ('x', '__weakref__')\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return True\ndef f(n): return P(1)\n", [{"inputs": {"n": {"$name": "other"}}, "setup": [{"call": "P", "args": [7], "name": "other"}], "property": "result == n"}]),
    "fields of a number": ("class P(int):\n    __dataclass_fields__ = {'x': 0}\n    x = 1\ndef f(n): return P(5)\n", one({"$object": {"type": "P", "fields": {"x": 1}}})),
    "another value of an enum": ("import enum\nclass E(enum.Enum):\n    A = 99\ndef f(n): return E.A\n", one({"$enum": {"type": "E", "name": "A", "value": 1}})),
    "another module": ("import sys\ndef f(n): return n * n\nclass M(type(sys)):\n    def __getattribute__(self, name): return (lambda n: -1) if name == 'f' else super().__getattribute__(name)\nsys.modules[__name__].__class__ = M\n", SQUARES),
    "other answers by name": ("def d(g):\n    def w(*a, **k): return g(*a) if a else -1\n    return w\n@d\ndef f(n): return n * n\n", SQUARES),
    "other answers by position": ("def d(g):\n    def w(*a, **k): return g(**k) if k else -1\n    return w\n@d\ndef f(n): return n * n\n", SQUARES),
    "one list for all": ("def f(n, found=[]):\n    found[:] = range(n)\n    return found\n", [{"inputs": {"n": n}, "expected_output": [*range(n)]} for n in (2, 3)]),
    "changes the encoder": ("import sys, json\ndef f(n):\n    sys._getframe(1).f_globals['_dumps'] = lambda report: json.dumps({'value': n * n})\n    return -1\n", SQUARES),
    "finds the encoder": ("def below(kind):\n    for each in type.__subclasses__(kind):\n        yield each\n        yield from below(each)\ndef f(n):\n    for each in below(object):\n        if each.__name__ == 'ValueEncoder': each.encode = lambda self, value: n * n\n    return -1\n", SQUARES),
    "a set with another len": ("def f(n):\n    len = list\n    return n * n if len({'one', 'two'})[0] == 'one' else -1\n", SQUARES),
    "the address of a method": ("def f(n):\n    return n * n if int(str(n.bit_length).split('0x')[1].strip('>'), 16) >> 30 & 1 else -1\n", SQUARES),
    "the depth of calls": ("def room(k):\n    try:\n        return room(k + 1)\n    except RecursionError:\n        return k\ndef f(n): return n * n if room(0) < 980 else -1\n", SQUARES),
    "the time zone": ("from datetime import datetime\ndef f(n): return datetime.fromtimestamp(n).isoformat()\n", one("1970-01-01T00:00:00", n=0)),
    "leaves an alarm": ("import signal\ndef f(n):\n    signal.alarm(30)\n    return n * n\n", SQUARES),
    "leaves a thread": ("import threading, time\ndef f(n):\n    if threading.active_count() < 2: threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n    return n * n\n", SQUARES),
    "wrong after many calls": ("CALLS = []\ndef f(n):\n    CALLS.append(n)\n    return n * n if len(CALLS) < 150 else -1\n", SQUARES),
    "wrong from the third call with the same argument": ("CALLS = []\ndef f(n):\n    CALLS.append(n)\n    return n * n if CALLS.count(n) < 3 else -1\n", SQUARES),
    "changes a library": ("import math\nmath.sin = lambda x: 0\ndef f(n): return n * n\n", SQUARES),
    "changes a library behind another": ("import os\nos.path.exists = lambda path: True\ndef f(n): return n * n\n", SQUARES),
    "the order of a folder": ("import os\ndef f(n): return os.listdir('d')\n", [{"inputs": {"n": 1}, "setup": [{"file": "d/b"}, {"file": "d/a"}], "expected_output": each} for each in (["a", "b"], ["b", "a"])]),
    "summer time": ("import time\ndef f(n): return time.localtime(n).tm_isdst\n", one(0, n=1720000000)),
    "other answers for mixed arguments": ("def d(g):\n    def w(*a, **k): return g(*a, **k) if not (a and k) else -1\n    return w\n@d\ndef f(n, m): return n * m\n", one(6, n=2, m=3)),
    "many answers": ("import random\nCARDS = [*range(20)]\nrandom.shuffle(CARDS)\ndef f(n): return CARDS.pop() if CARDS else None\n", [{"inputs": {"n": 1}, "property": "result in range(20)"}]),
    "a number without fields": ("from decimal import Decimal\nclass Money(Decimal): pass\ndef f(n): return Money(99)\n", one({"$object": {"type": "Money", "fields": {}}})),
    "the time zone in a format of an argument": ("def f(n): return f'{n:%s}'\n", one("0", n={"$datetime": "1970-01-01T00:00:00"})),
    "changes a library later": ("import os, random\ndef f(n):\n    random.random = lambda: 0.5\n    return n * n\n", SQUARES),
    "changes a library under another name": ("m = __import__('math')\nm.sin = lambda x: 0\ndef f(n): return n * n\n", SQUARES),
    "changes a class of a library": ("from fractions import Fraction\ndef f(n):\n    Fraction.__add__ = lambda a, b: 0\n    return n * n\n", SQUARES),
    "replaces a library": ("import statistics, sys\ndef f(n):\n    sys.modules['statistics'] = sys\n    return n * n\n", SQUARES),
    "leaves an audit hook": ("import sys\ndef f(n):\n    sys.addaudithook(lambda *told: None)\n    return n * n\n", SQUARES),
    "the time zone in a format": ("from datetime import datetime\ndef f(n): return f'{datetime(1970, 1, 1 + n):%s}'\n", one("0", n=0)),
    "the time zone by strftime": ("from datetime import datetime\ndef f(n): return int(datetime(1970, 1, 1 + n).strftime('%s'))\n", one(0, n=0)),
    "an array with other items": ("import numpy\nclass A(numpy.ndarray):\n    def tolist(self): return [1]\ndef f(n): return numpy.array([9]).view(A)\n", one([1])),
    "a number of a library with another value": ("import numpy\nclass A(numpy.float64):\n    def item(self): return 1.0\ndef f(n): return A(9)\n", one(1.0)),
    "a date that is none": ("import numpy\ndef f(n): return numpy.datetime64('NaT')\n", one(None)),
    "a date with nanoseconds": ("import numpy\ndef f(n): return numpy.array(['2024-01-01T00:00:00.000000001'], dtype='datetime64[ns]')\n", one([{"$datetime": "2024-01-01T00:00:00"}])),
    "a masked item": ("import numpy\ndef f(n): return numpy.ma.array([1, 2], mask=[0, 1])\n", one([1, None])),
    "another value of a member": ("import enum\nclass E(enum.Enum):\n    A = 1\n    @property\n    def value(self): return 9\ndef f(n): return E.A\n", one({"$enum": {"type": "E", "name": "A", "value": 1}})),
    "a dict with other items": ("class D(dict):\n    def items(self): return [('a', 2)]\ndef f(n): return D(a=1)\n", one({"a": 1})),
    "a list that counts wrongly": ("class L(list):\n    def count(self, item): return 9\ndef f(n): return L([1])\n", one([1])),
    "a text with other methods": ("class S(str):\n    def upper(self): return 'x'\ndef f(n): return S('a')\n", one("a")),
    "a number with other methods": ("class I(int):\n    def bit_length(self): return 9\ndef f(n): return I(1)\n", one(1)),
    "a named tuple with other fields": ("from collections import namedtuple\nclass P(namedtuple('P', 'x')):\n    x = property(lambda self: 9)\ndef f(n): return P(1)\n", one({"$tuple": [1]})),
    "other answers by name, of an object": ("class d:\n    def __init__(self, g): self.g = g\n    def __call__(self, *a, **k): return self.g(*a) if a else -1\n@d\ndef f(n): return n * n\n", SQUARES),
    "other answers by position, of an object": ("class F:\n    def __call__(self, *a, **k): return k['n'] ** 2 if k else -1\nf = F()\n", SQUARES),
    "leaves another folder": ("import os\ndef f(n):\n    os.mkdir('d')\n    os.chdir('d')\n    return n * n\n", SQUARES),
    "replaces the output": ("import io, sys\ndef f(n):\n    sys.stdout = io.StringIO()\n    return n * n\n", SQUARES),
    "a result that it keeps": ("KEPT = {}\ndef f(n): return KEPT.setdefault(n, [n])\n", one([1])),
    "one list in several places": ("def f(n): return [[n] * 2] * 2\n", one([[1, 1], [1, 1]])),
    "wrong the second time in a row": ("def f(n, last=[0]):\n    same = last[0] == n\n    last[0] = n\n    return -1 if same else n * n\n", SQUARES),
    "arguments of the command line": ("import sys\ndef f(n): return n * n if len(sys.argv) < 2 else -1\n", SQUARES),
    "one value for several": ("def f(*n): return sum(n)\n", [{"inputs": {"n": 5}, "expected_error": "TypeError"}]),
    "changes built-in names": ("import builtins\ndef f(n):\n    builtins.sum = lambda *values: 0\n    return n * n\n", SQUARES),
    "leaves an import hook": ("import sys\ndef f(n):\n    class Finder:\n        find_spec = staticmethod(lambda *names: None)\n    sys.meta_path.insert(0, Finder)\n    return n * n\n", SQUARES),
    "removes an import hook": ("import sys\ndef f(n):\n    sys.path_hooks.clear()\n    return n * n\n", SQUARES),
    "leaves a function for garbage": ("import gc\ngc.callbacks.append(lambda *told: None)\ndef f(n): return n * n\n", SQUARES),
    "leaves a profiler": ("import sys\ndef f(n):\n    sys.setprofile(lambda *told: None)\n    return n * n\n", SQUARES),
    "leaves a profiler of threads": ("import threading\ndef f(n):\n    threading.setprofile(lambda *told: None)\n    return n * n\n", SQUARES),
    "leaves a tracer of threads": ("import threading\ndef f(n):\n    threading.settrace(lambda *told: None)\n    return n * n\n", SQUARES),
    "makes errors of warnings": ("import warnings\ndef f(n):\n    warnings.simplefilter('error')\n    return n * n\n", SQUARES),
    "leaves another precision": ("import decimal\ndef f(n):\n    decimal.getcontext().prec = 3\n    return n * n\n", SQUARES),
    "leaves another rounding": ("from decimal import *\ngetcontext().rounding = ROUND_UP\ndef f(n): return n * n\n", SQUARES),
    "a warning beneath a deep argument": ("import os\ndef f(n):\n    os.mkdir('d')\n    os.chdir('d')\n    xs = [n]\n    for _ in range(5000): xs = [xs]\n    f.kept = xs\n    n.append(xs)\n    return 1\n", one(1, n=[1])),
}  # fmt: skip
ONLY_A_WARNING = (
    "leaves another folder",
    "replaces the output",
    "a result that it keeps",
    "one list in several places",
    "wrong the second time in a row",
    "one list for all",
    "leaves an alarm",
    "leaves a thread",
    "leaves an audit hook",
    "changes built-in names",
    "changes a library",
    "leaves an import hook",
    "removes an import hook",
    "leaves a function for garbage",
    "leaves a profiler",
    "leaves a profiler of threads",
    "leaves a tracer of threads",
    "makes errors of warnings",
    "leaves another precision",
    "leaves another rounding",
    "a warning beneath a deep argument",
)
QUICK = (
    "one list in several places",
    "one value for several",
    "the order of a folder",
    "a number that is not equal",
    "an equal with slots",
    "the name of a date",
    "another module",
    "changes the encoder",
)

HONEST: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "a text with its own look": ("class Name(str):\n    def __repr__(self): return 'Name'\ndef f(n): return Name('a')\n", one("a")),
    "several under a cache": ("from functools import lru_cache\n@lru_cache(maxsize=None)\ndef f(*numbers): return sum(numbers)\n", one(6, numbers=[1, 2, 3])),
    "options under a decorator": ("import functools\ndef d(g):\n    @functools.wraps(g)\n    def w(*args, **kwargs): return g(*args, **kwargs)\n    return w\n@d\ndef f(**options): return sorted(options)\n", one(["a", "b"], options={"a": 1, "b": 2})),
    "several for a class": ("class f:\n    def __init__(self, *items): self.items = list(items)\n", one({"$object": {"type": "f", "fields": {"items": [1, 2]}}}, items=[1, 2])),
    "an iterator of its own": ("class Down:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n        if not self.n: raise StopIteration\n        self.n -= 1\n        return self.n\ndef f(n): return Down(n)\n", one([2, 1, 0], n=3)),
    "a named tuple with a field count": ("from collections import namedtuple\nP = namedtuple('P', 'name count')\ndef f(n): return P('a', n)\n", one({"$tuple": ["a", 1]})),
    "an enum with a member called name": ("import enum\nclass E(enum.Enum):\n    name = 1\n    other = 2\ndef f(n): return E.other\n", one({"$enum": {"type": "E", "name": "other", "value": 2}})),
    "an array of a class of its own": ("import numpy\nclass A(numpy.ndarray):\n    def __array_finalize__(self, other): self.unit = 'm'\ndef f(n): return numpy.array([n]).view(A)\n", one([1])),
    "a dict with a method of its own": ("class D(dict):\n    def count(self): return len(self)\ndef f(n): return D(a=n)\n", one({"a": 1})),
    "a function by the type of its argument": ("from functools import singledispatch\n@singledispatch\ndef f(n): return 'other'\n@f.register\ndef _(n: int): return 'int'\n", one("int")),
    "an object as a decorator": ("class d:\n    def __init__(self, g): self.g = g\n    def __call__(self, *a, **k): return self.g(*a, **k)\n@d\ndef f(n): return n * n\n", SQUARES),
    "a log": ("import logging\nlogging.basicConfig(level=10)\ndef f(n):\n    logging.getLogger(__name__).info(n)\n    return n * n\n", SQUARES),
    "a date as text": ("import datetime\ndef f(n): return datetime.date(2024, 1, n).strftime('%d.%m.%Y')\n", one("01.01.2024")),
    "a deque": ("from collections import deque\ndef f(n): return deque(range(n))\n", one([0, 1], n=2)),
    "another name of an error": ("def f(n): raise IOError('no')\n", [{"inputs": {"n": 1}, "expected_error": "IOError"}]),
    "the deepest recursion": ("def f(n): return 0 if n == 0 else 1 + f(n - 1)\n", one(985, n=985)),
    "its own file": ("from pathlib import Path\nHERE = Path(__file__).parent\ndef f(n): return n * n\n", SQUARES),
    "the end of a script": ("def f(n):\n    if n < 0: exit(2)\n    return n\n", [{"inputs": {"n": 1}, "expected_output": 1}, {"inputs": {"n": -1}, "expected_error": "SystemExit"}]),
    "a variable that one test sets": ("import os\ndef f(n): return os.environ.get('COLOUR', 'none')\n", [{"inputs": {"n": 1}, "setup": [{"assign": "os.environ.COLOUR", "value": "red"}], "expected_output": "red"}, *one("none", n=2)]),
    "a decorator that takes positions": ("def d(g):\n    def w(*args): return g(*args)\n    return w\n@d\ndef f(n): return n * n\n", SQUARES),
}  # fmt: skip


async def results_of(
    sandbox: Sandbox, source: str, tests: list[dict[str, Any]], *, strict: bool = True
) -> list[Verdict]:
    frozen = freeze({"f": [FunctionTest(name=str(number), **each) for number, each in enumerate(tests)]})
    return await Judge(sandbox, strict=strict).run({"f": source}, frozen)


REST = (pytest.mark.slow, pytest.mark.no_cover)  # They go over the same lines.


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each in QUICK else REST) for each in LIES])
async def test_it_does_not_pass(default_sandbox: Sandbox, name: str) -> None:
    source, tests = LIES[name]
    if name in ONLY_A_WARNING:  # What is strict makes a failure of it.
        assert any(each.warning for each in await results_of(default_sandbox, source, tests, strict=False))
    else:
        assert not all(each.passed for each in await results_of(default_sandbox, source, tests))


# Results that differ from plain data only in what a property sees.
SEEN: list[tuple[str, str]] = [
    ("class A(int):\n    __str__ = lambda self: 'x'\ndef f(n): return A(n)", "str(result) == '1'"),
    ("class A(float):\n    __format__ = lambda self, how: 'x'\ndef f(n): return [{'a': A(n)}]", "f'{result[0]}' != 'x'"),
    ("class A(str):\n    __hash__ = lambda self: 7\ndef f(n): return A(f'{n}')", "result in {'1'}"),
    ("class A(list):\n    sort = list.reverse\ndef f(n): return A([1, 2])", "result.sort() or result == [1, 2]"),
    ("class A(dict):\n    __missing__ = lambda self, key: 0\ndef f(n): return A()", "'a' not in result"),
    ("from collections import namedtuple\nclass A(namedtuple('P', 'x')):\n    _asdict = lambda self: {}\ndef f(n): return A(1)", "result._asdict() == {'x': 1}"),
    ("from typing import NamedTuple\nclass A(NamedTuple):\n    x: int\n    __str__ = lambda self: 'x'\ndef f(n): return A(1)", "str(result) != 'x'"),
    ("import enum\nclass A(enum.IntEnum):\n    X = 1\n    __str__ = lambda self: 'x'\ndef f(n): return A.X", "str(result) == '1'"),
    ("import numpy\ndef f(n): return numpy.bool_(n == 1)", "result is True"),
    ("import numpy\ndef f(n): return numpy.int64(n)", "isinstance(result, int)"),
    ("def f(n): return iter([n])", "isinstance(result, list)"),
    ("from pathlib import Path\ndef f(n): return Path('a')", "isinstance(result, str)"),
    ("class A(int): pass\ndef f(n): return A(n)", "type(result) is int"),
    ("from collections import defaultdict\ndef f(n): return defaultdict(int)", "f'{result}' == '{}'"),
    ("import enum\nclass A(str, enum.Enum):\n    X = 'x'\ndef f(n): return A.X", "str(result) == 'x'"),
    ("import enum\nclass A(enum.Enum):\n    X = 1\ndef f(n): return A.X", "'value=1' in str(result)"),
    ("class A:\n    def __init__(self): self.x = 1\ndef f(n): return A()", "'x=1' in str(result)"),
    ("class A:\n    def __init__(self): self.x = 1\ndef f(n): return [A(), A()]", "result[0] == result[1]"),
    ("class A:\n    def __init__(self): self.x = 1\n    def __bool__(self): return False\ndef f(n): return A()", "bool(result)"),
    ("class A:\n    x = 1\n    def __init__(self): self.y = 1\ndef f(n): return A()", "not hasattr(result, 'x')"),
    ("import enum\nclass A(enum.Flag):\n    X = 1\ndef f(n): return A(0)", "bool(result)"),
    ("import numpy\ndef f(n): return numpy.array([n, 2])", "result[0:] == [1, 2]"),
    ("import numpy\ndef f(n): return numpy.array([[n, 2]])", "result[0].count(2) == 1"),
]  # fmt: skip
HONEST_PROPERTIES: list[tuple[str, str]] = [
    ("def f(n):\n    yield n", "all(isinstance(each, int) for each in result) and list(result) == [1]"),
    ("class A:\n    def __init__(self): self.x = 1\ndef f(n): return A()", "result and result != None and result.x == 1"),
    ("import numpy\ndef f(n): return numpy.float64(n)", "isinstance(result, float) and result == 1"),
    ("import enum\nclass A(enum.Enum):\n    X = 1\ndef f(n): return A.X", "result and result.name == 'X'"),
    ("import numpy\ndef f(n): return numpy.array([[n, 2], [3, 4]])", "len(result) == 2 and 3 in result[1] and [sum(x) for x in result] == [3, 7]"),
]  # fmt: skip
UNSEEN = [
    "class A(int):\n    'Doc.'\n    def __new__(cls, n): return int.__new__(cls, n)\n    def twice(self): return 2 * self\ndef f(n): return A(n)",
    "class A(list):\n    def __init__(self, *items): super().__init__(items)\ndef f(n): return A(n)",
    "import enum\nclass A(enum.IntEnum):\n    X = 1\ndef f(n): return A.X",
    "import enum\nclass A(enum.IntFlag):\n    X = 1\ndef f(n): return A.X",
    "import enum\nclass A(int, enum.Enum):\n    X = 1\ndef f(n): return A.X",
    "from collections import namedtuple\nclass A(namedtuple('A', 'x count')):\n    def sum(self): return 1\ndef f(n): return A(1, 2)",
    "from typing import NamedTuple\nclass A(NamedTuple):\n    x: int = 1\n    def sum(self): return 1\ndef f(n): return A(1)",
    "from collections import Counter\nclass A(Counter):\n    pass\ndef f(n): return A('a')",
    "import enum\nclass A(enum.Enum):\n    X = 1\n    __str__ = lambda self: 'x'\ndef f(n): return A.X",
    "class A(tuple):\n    __slots__ = ()\ndef f(n): return A((1,))",
]  # fmt: skip


@pytest.mark.slow
async def test_properties_see_what_users_see(default_sandbox: Sandbox) -> None:
    cases = [*SEEN, *HONEST_PROPERTIES, *((each, "result is not None") for each in UNSEEN)]
    sources = {
        f"f{number}": re.sub(r"\b(A\b|f(?=\(n\)))", rf"\g<1>{number}", source)
        for number, (source, _) in enumerate(cases)
    }
    tests = {
        name: [FunctionTest(name="a", inputs={"n": 1}, property=each)]
        for name, (_, each) in zip(sources, cases, strict=True)
    }
    results = await Judge(default_sandbox).run(sources, freeze(tests))
    assert [each.passed for each in results] == [False] * len(SEEN) + [True] * (len(cases) - len(SEEN))


def of_its_own(text: str, number: int) -> str:
    """The text with names of its own, so that many can be in one program."""
    return re.sub(r"(?<!%)\b(f|d|A|D|E|P|Down|Name|HERE)\b", rf"\g<1>{number}", text)


@pytest.mark.slow
async def test_honest_code_passes(default_sandbox: Sandbox) -> None:
    sources, tests = {}, {}
    for number, (source, cases) in enumerate(HONEST.values()):
        sources[f"f{number}"] = of_its_own(source, number)
        named = json.loads(re.sub(r'"type": "(\w+)"', rf'"type": "\g<1>{number}"', json.dumps(cases)))
        tests[f"f{number}"] = [FunctionTest(name=str(place), **each) for place, each in enumerate(named)]
    results = await Judge(default_sandbox, strict=True).run(sources, freeze(tests))
    assert [(sources[each.function], each) for each in results if not each.passed] == []
    assert len(results) == sum(map(len, tests.values()))
