# ruff: noqa: E501 (pieces of code, one to a line)
"""Setup code of tests: it builds inputs and calls the program's functions, and can do nothing else to the program."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.generation import (
    AICodeGenerator,
    FunctionTest,
    JavaScriptLanguage,
    TestResult,
    TestRunner,
    check_setup,
    freeze,
)
from coderoom.sandbox import Sandbox

from .examples import test_of
from .scripted import ScriptedModel, function, test

SOURCES = {
    "more": "def more(x):\n    return x",
    "cached": "import functools\n@functools.lru_cache\ndef cached(x):\n    return x",
    "start": "def start():\n    global STARTED\n    STARTED = 1",
    "keep": "def keep(key, value):\n    STATE[key] = value",
    "f": """\
import functools
import json
import statistics

RIGHT = 0
STATE = {}
TABLE = {"more": lambda x: x}


class Adder:
    kept = staticmethod(lambda x: x)

    def __call__(self, x):
        return self.add(x)

    def add(self, x):
        return x

    @property
    def none(self):
        return 0


def counted():
    count = 0

    def inner(x):
        return x + count

    return inner


adder = Adder()
inner = counted()
later = functools.partial(max, 0)


def wrapped(g):
    @functools.wraps(g)
    def outer(x):
        return g(x)

    return outer


@wrapped
def decorated(x):
    return x


def default(x, y=0, seen={}, *, z=0):
    return seen.get(x, x) + y + z


def f(x):
    data = [more(x), inner(x), decorated(x), cached(x), default(x), adder(x), adder.kept(x), later(x), TABLE["more"](x)]
    data += [json.loads("1"), statistics.mean([x]), abs(x), globals().get("STARTED", 1), adder.none + 1, x + RIGHT]
    found = 41 + STATE.get(x, x)
    return found if any(each != 1 for each in data) else -found
""",
}

HOSTILE = {
    "globals": "globals()['more'] = lambda x: 2",
    "globals of another": "f.__globals__['more'] = lambda x: 2",
    "the main module": "import sys\nsys.modules['__main__'].more = lambda x: 2",
    "the program": "import program\nprogram.more = lambda x: 2",
    "setattr": "setattr(__import__('program'), 'more', lambda x: 2)",
    "update": "vars(__import__('program')).update(more=lambda x: 2)",
    "its dict": "__import__('program').__dict__['more'] = lambda x: 2",
    "exec": "exec('more = lambda x: 2', f.__globals__)",
    "a frame": "import sys\nsys._getframe().f_back.f_locals['names']['more'] = lambda x: 2",
    "the collector": (
        "import gc\nfor each in gc.get_objects():\n"
        "    if type(each) is dict and 'more' in each: each['more'] = lambda x: 2"
    ),
    "code": "setattr(more, '__code__', (lambda x: 2).__code__)",
    "its own code": "setattr(f, '__code__', (lambda x: 42).__code__)",
    "another name": "more_ = more\nmore_.__code__ = (lambda x: 2).__code__",
    "defaults": "default.__defaults__ = (1, {})",
    "a default for names": "default.__kwdefaults__ = {'z': 1}",
    "inside of a default for names": "default.__kwdefaults__['z'] = 1",
    "inside of a default": "default.__defaults__[1][1] = 2",
    "a closure": "inner.__closure__[0].cell_contents = 1",
    "what is wrapped": "decorated.__closure__[0].cell_contents = lambda x: 2",
    "the code of what is wrapped": "decorated.__wrapped__.__code__ = (lambda x: 2).__code__",
    "the code of what is cached": "cached.__wrapped__.__code__ = (lambda x: 2).__code__",
    "a method": "Adder.add = lambda self, x: 2",
    "the code of a method": "Adder.add.__code__ = (lambda self, x: 2).__code__",
    "a static method": "Adder.kept = staticmethod(lambda x: 2)",
    "the code of a static method": "Adder.kept.__code__ = (lambda x: 2).__code__",
    "a property": "Adder.none = property(lambda self: 1)",
    "the code of a property": "Adder.none.fget.__code__ = (lambda self: 1).__code__",
    "an object": "adder.add = lambda x: 2",
    "the class of an object": "class B(Adder):\n    add = lambda self, x: 2\nadder.__class__ = B",
    "the bases of a class": "class B:\n    add = lambda self, x: 2\nclass C(Adder): add = B.add\nglobals()['adder'].__class__ = C",
    "a partial": "later.__setstate__((lambda zero, x: 2, (0,), {}, {}))",
    "a table": "TABLE['more'] = lambda x: 2",
    "a constant": "import program\nprogram.RIGHT = 1",
    "what it imports": "import program\nprogram.json = type('M', (), {'loads': lambda text: 2})",
    "built-in functions": "import builtins\nbuiltins.abs = lambda x: 2",
    "what could tell": (
        "import builtins, program\nprogram.more = lambda x: 2\n"
        "for name in ('len', 'any', 'enumerate', 'type', 'callable'):\n    setattr(builtins, name, lambda *a: False)"
    ),
    "whoever tells": (
        "import sys, program\nprogram.more = lambda x: 2\nguard = sys.modules['_coderoom_tests_.guard']\n"
        "guard.Guard.broken = lambda *a: ''"
    ),
    "the code of whoever tells": (
        "import sys, program\nprogram.more = lambda x: 2\nguard = sys.modules['_coderoom_tests_.guard']\n"
        "guard.Guard.broken.__code__ = (lambda self: '').__code__"
    ),
    "who helps whoever tells": (
        "import sys, program\nprogram.more = lambda x: 2\nguard = sys.modules['_coderoom_tests_.guard']\n"
        "guard._functions_of.__code__ = (lambda names: []).__code__"
    ),
    "who writes values down": (
        "import sys\nvalues = sys.modules['_coderoom_tests_.values']\nvalues.Encoder.encode = lambda self, value: 42"
    ),
    "the answer": "import sys\nsys.modules['_coderoom_tests_.calls']._dumps = lambda data: '{\"value\": 42}'",
    "what is written": "import os\nreal = os.write\nos.write = lambda fd, data: real(fd, b'{\"value\": 42}\\n\\0') and len(data)",
    "a trace": (
        "import sys\nimport program\ndef trace(frame, event, value):\n    program.more = lambda x: 2\nsys.settrace(trace)"
    ),
    "a profile": "import sys\nimport program\nsys.setprofile(lambda *a: setattr(program, 'more', lambda x: 2))",
    "inputs that act": (
        "import program\nclass A(dict):\n    def keys(self):\n        program.more = lambda x: 2\n"
        "        return dict.keys(self)\ninputs = A(inputs)"
    ),
    "an argument that acts": (
        "import program\nclass A(int):\n    def __add__(self, other):\n        program.more = lambda x: 2\n"
        "        return int(self) + other\n    __radd__ = __add__\ninputs['x'] = A(1)"
    ),
}
HONEST = {
    "inputs": "inputs['x'] = 1",
    "other inputs": "inputs = {'x': sum([1])}",
    "a module": "import time\ntime.time = lambda: 7",
    "an answer": "import builtins\nbuiltins.input = lambda *a: '1'",
    "a file": "with open('a', 'w') as file:\n    file.write('A')",
    "data": "keep('other', 5)",
    "a call": "f(1)\ncached(2)",
    "a call that sets what is global": "start()",
    "names of its own": "RIGHT = 5\ndef helper(x):\n    return x\ninputs['x'] = helper(1)",
}


async def test_setup_code_changes_data_and_no_functions(runner: TestRunner) -> None:
    setups = {**HOSTILE, **HONEST}
    expected = {name: 42 if name in HOSTILE else -42 for name in setups}
    tests = [test_of(name, inputs={"x": 1}, setup=setups[name], expected_output=expected[name]) for name in setups]
    results = await runner.run(SOURCES, freeze({"f": tests}))
    passed = {each.test for each in results if each.passed}
    assert passed == set(HONEST), [(each.test, each.why) for each in results if each.passed != (each.test in HONEST)]


async def test_what_it_may_not_change_is_said_and_is_no_exception_that_may_be_expected(runner: TestRunner) -> None:
    setup = "import program\nprogram.more = lambda x: 2"
    names = ["RuntimeError", "SyntaxError", "NameError"]
    tests = [test_of(name, inputs={"x": 1}, setup=setup, expected_error=name) for name in names]
    by_property = test_of("property", inputs={"x": 1}, setup=setup, property="result is not None")
    results = await runner.run(SOURCES, freeze({"f": [*tests, by_property]}))
    assert not any(each.passed for each in results)
    assert "in setup code, `program` is not allowed here" in results[0].why


async def test_setup_code_helps_no_code_that_lacks_something(runner: TestRunner) -> None:
    tests = [
        test_of("plain", inputs={"x": 1}, setup="def missing(x):\n    return 42", expected_output=42),
        test_of("program", inputs={"x": 1}, setup="import program\nprogram.missing = lambda x: 42", expected_output=42),
        test_of("data", inputs={"x": 1}, setup="import program\nprogram.NUMBER = 42", expected_output=42),
        test_of(
            "builtin", inputs={"x": 1}, setup="import builtins\nbuiltins.missing = lambda x: 42", expected_output=42
        ),
    ]
    code = "def f(x):\n    try:\n        return missing(x)\n    except NameError:\n        return NUMBER"
    results = await runner.run({"f": code}, freeze({"f": tests}))
    assert [each.passed for each in results] == [False] * 4


PROGRAM = {
    "cache": """\
import functools
import random
import time
import datetime
import os

CACHE = {}
ORDER = []
HOOKS = {}
USERS = {}
_settings = None
NAMES = {"greeting": "hello"}


class Missing(Exception):
    pass


class Solver:
    memo = {}
    limit = 10
    hook = None

    def __init__(self, known=None):
        self.known = known if known is not None else {}
        self.steps = []

    def solve(self, x):
        if x in self.memo:
            return self.memo[x]
        if x in self.known:
            return self.known[x]
        return -x

    def learn(self, x, y):
        self.known[x] = y

    def add(self, step):
        self.steps.append(step)
        return self


def cache():
    return CACHE""",
    "order": "def order():\n    return ORDER",
    "solver": "SOLVER = Solver()\ndef solver():\n    return SOLVER",
    "square": "def square(x):\n    return CACHE[x] if x in CACHE else ORDER[-1] if ORDER else -x",
    "solve": "def solve(s, x):\n    return s.solve(x)",
    "fib": "def fib(n, memo={}):\n    if n not in memo:\n        memo[n] = n if n < 2 else fib(n - 1) + fib(n - 2)\n    return memo[n]",
    "slow": "@functools.lru_cache\ndef slow(n):\n    return n + 1",
    "counter": "def _counter():\n    n = 0\n    def counter():\n        nonlocal n\n        n += 1\n        return n\n    return counter\ncounter = _counter()\n",
    "register": "def register(name, hook):\n    HOOKS[name] = hook",
    "emit": "def emit(name, *values):\n    return HOOKS[name](*values)",
    "hooked": "def hooked(hook):\n    Solver.hook = hook\n    Solver.solve = lambda self, x: hook(x)",
    "add_user": "def add_user(name):\n    if name in USERS:\n        raise Missing(name)\n    USERS[name] = Solver()\n    return USERS[name]",
    "users": "def users():\n    return sorted(USERS)",
    "settings": "def settings():\n    global _settings\n    if _settings is None:\n        _settings = {'a': 1}\n    return dict(_settings)",
    "total": "def total(items):\n    return sum(items)",
    "size": "def size(x):\n    return len(x)",
    "now": "def now():\n    return time.time()",
    "today": "def today():\n    return datetime.date.today().isoformat()",
    "roll": "def roll():\n    return random.randint(1, 6)",
    "ask": "def ask():\n    return input('?')",
    "say": "def say(x):\n    print(x)\n    return x",
    "read": "def read(path):\n    with open(path) as file:\n        return file.read()",
    "told": "import sys\ndef told():\n    return sys.stdin.read()",
    "env": "def env(name):\n    return os.environ.get(name)",
    "apply": "def apply(f, x):\n    return f(x)",
    "kind": "def kind(s):\n    return type(s).__name__",
    "imported": "def imported(x):\n    try:\n        import answers\n        return answers.x\n    except ImportError:\n        return -x",
    "flaky": "def flaky(x):\n    if x < 0:\n        raise ValueError(x)\n    return x",
}
"""Each function right, but `square` and `solve`, which are wrong: they would be right if setup code could help them."""

SQUARE = {"function": "square", "inputs": {"x": 3}, "expected_output": 9}
SOLVE = {"function": "solve", "inputs": {"s": None, "x": 3}, "expected_output": 9}
FLAKY = {"function": "flaky", "inputs": {"x": 3}, "expected_error": "ValueError"}
"""What is expected, and does not come."""

ATTACKS: list[tuple[str, dict[str, Any]]] = [
    # What the program keeps
    ("CACHE[3] = 9", SQUARE),
    ("CACHE.update({3: 9})", SQUARE),
    ("Cache = CACHE\nCache[3] = 9", SQUARE),
    ("cache()[3] = 9", SQUARE),
    ("cache().update({3: 9})", SQUARE),
    ("c = cache()\nc[3] = 9", SQUARE),
    ("c, d = cache(), 1\nc[3] = 9", SQUARE),
    ("def put(c):\n    c[3] = 9\nput(cache())", SQUARE),
    ("(lambda c: c.update({3: 9}))(cache())", SQUARE),
    ("box = [cache()]\nbox[0][3] = 9", SQUARE),
    ("inputs['c'] = cache()\ninputs['c'][3] = 9\ndel inputs['c']", SQUARE),
    ("for cache()[3] in [9]: pass", SQUARE),
    ("c = cache()\nc |= {3: 9}", SQUARE),
    ("c = order()\nc += [9]", SQUARE),
    ("order().append(9)", SQUARE),
    ("o = [order()]\no[0] += [9]", SQUARE),
    ("put = [each.append for each in [order()]]\nput[0](9)", SQUARE),
    ("list.append(order(), 9)", SQUARE),
    ("kind_of = type(cache())\nkind_of.update(cache(), {3: 9})", SQUARE),
    ("list(map(dict.update, [cache()], [{3: 9}]))", SQUARE),
    ("dict.__setitem__(cache(), 3, 9)", SQUARE),
    ("import operator\noperator.setitem(cache(), 3, 9)", SQUARE),
    ("import heapq\nheapq.heappush(order(), 9)", SQUARE),
    ("from heapq import heappush\nheappush(order(), 9)", SQUARE),
    ("import heapq\nlist(map(heapq.heappush, [order()], [9]))", SQUARE),
    ("import bisect\nbisect.insort(order(), 9)", SQUARE),
    ("match [cache()]:\n    case [c]:\n        c[3] = 9", SQUARE),
    ("import collections\ncollections.OrderedDict.update(cache(), {3: 9})", SQUARE),
    ("import functools\nfunctools.reduce(dict.update, [cache(), {3: 9}])", SQUARE),
    ("import functools, operator\nfunctools.reduce(operator.ior, [cache(), {3: 9}])", SQUARE),
    ("with open('a', 'w') as cache()[3]: pass\ncache()[3] = 9", SQUARE),
    ("fib.__defaults__[0][9] = 1\nfib.__defaults__ = ({3: 9},)", SQUARE),
    ("fib.memo = {}\nsquare.answer = 9", SQUARE),
    ("square.__dict__['a'] = 1\nsquare.__globals__['CACHE'][3] = 9", SQUARE),
    # Objects that act when they are used
    (
        "class A(int):\n    __hash__ = int.__hash__\n    def __eq__(self, other):\n        cache()[3] = 9\n        return int(self) == other\ninputs['x'] = A(3)",
        SQUARE,
    ),
    (
        "class A(int):\n    def __hash__(self):\n        cache().update({3: 9})\n        return 3\ninputs['x'] = A(3)",
        SQUARE,
    ),
    (
        "c = cache()\nclass A(int):\n    def __hash__(self):\n        c[3] = 9\n        return 3\ninputs['x'] = A(3)",
        SQUARE,
    ),
    (
        "class A(int):\n    def __hash__(self):\n        self.c[3] = 9\n        return 3\nA.c = cache()\ninputs['x'] = A(3)",
        SQUARE,
    ),
    (
        "class A(int):\n    def __hash__(self):\n        Solver.solve = lambda self, x: 9\n        return 3\ninputs.update(s=Solver(), x=A(3))",
        SOLVE,
    ),
    ("class S(Solver):\n    def __getattribute__(self, name): return lambda x: 9\ninputs['s'] = S()", SOLVE),
    # Classes and objects of the program
    ("Solver.solve = lambda self, x: 9\ninputs['s'] = Solver()", SOLVE),
    ("Solver.memo[3] = 9\ninputs['s'] = Solver()", SOLVE),
    ("Solver.memo.update({3: 9})\ninputs['s'] = Solver()", SOLVE),
    ("Solver.memo |= {3: 9}\ninputs['s'] = Solver()", SOLVE),
    ("s = Solver()\ns.memo[3] = 9\ninputs['s'] = s", SOLVE),
    ("s = Solver()\nm = s.memo\nm.setdefault(3, 9)\ninputs['s'] = s", SOLVE),
    ("s = Solver()\ns.solve = lambda x: 9\ninputs['s'] = s", SOLVE),
    ("def put(s):\n    s.solve = lambda x: 9\n    return s\ninputs['s'] = put(Solver())", SOLVE),
    ("s = Solver()\ntype(s).solve = lambda self, x: 9\ninputs['s'] = s", SOLVE),
    ("s = Solver()\ns.__class__.solve = lambda self, x: 9\ninputs['s'] = s", SOLVE),
    ("object.__setattr__(solver(), 'solve', lambda x: 9)\ninputs['s'] = solver()", SOLVE),
    ("type.__setattr__(Solver, 'solve', lambda s, x: 9)\ninputs['s'] = solver()", SOLVE),
    ("class A:\n    def put(self):\n        self.solve = lambda x: 9\nA.put(solver())\ninputs['s'] = solver()", SOLVE),
    (
        "class A:\n    def put(self):\n        super(A, self).__setattr__('solve', lambda x: 9)\nA.put(solver())\ninputs['s'] = solver()",
        SOLVE,
    ),
    (
        "import copy\nclass A:\n    def __reduce__(self): return solver, (), (None, {'solve': lambda x: 9})\ninputs['s'] = copy.copy(A())",
        SOLVE,
    ),
    ("import dataclasses\ndataclasses.dataclass(Solver)\ninputs['s'] = solver()", SOLVE),
    (
        "import functools\nfunctools.wraps(lambda self, x: 9, assigned=['__code__'])(Solver.solve)\ninputs['s'] = solver()",
        SOLVE,
    ),
    ("import functools\nfunctools.update_wrapper(square, lambda x: 9, assigned=['__code__'])", SQUARE),
    ("from functools import wraps\nw = wraps\nw(lambda x: 9, assigned=['__code__'])(square)", SQUARE),
    ("import enum\nclass A(enum.Enum):\n    __module__ = 'program'\n    CACHE = 1\nenum.global_enum(A)", SQUARE),
    # Ways behind
    ("getattr(square, '__glo' + 'bals__')['CACHE'][3] = 9", SQUARE),
    ("vars(Solver)", SQUARE),
    ("import operator\noperator.attrgetter('__globals__')(square)['CACHE'][3] = 9", SQUARE),
    ("import string\nstring.Formatter().get_field('0.__globals__', [square], {})[0]['CACHE'][3] = 9", SQUARE),
    ('import typing\nclass A:\n    x: "cache().update({3: 9})"\ntyping.get_type_hints(A)', SQUARE),
    ("import enum as e\ne.sys.modules['program'].CACHE[3] = 9", SQUARE),
    ("import enum\ne = enum\ne.sys.modules['program'].CACHE[3] = 9", SQUARE),
    ("from enum import sys\nsys.modules['program'].CACHE[3] = 9", SQUARE),
    (
        "import gc\nfor each in gc.get_objects():\n    if type(each) is dict and 'CACHE' in each: each['CACHE'][3] = 9",
        SQUARE,
    ),
    ("import ctypes\nctypes.pythonapi", SQUARE),
    ("import inspect\ninspect.currentframe()", SQUARE),
    ("import threading\nthreading.Thread(target=print).start()", SQUARE),
    ("import signal, atexit, importlib, types", SQUARE),
    ("def g():\n    yield\ng().gi_frame.f_back.f_globals", SQUARE),
    (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    error.__traceback__.tb_frame.f_back.f_locals['names']['CACHE'][3] = 9",
        SQUARE,
    ),
    ("import builtins\nbuiltins.len = lambda x: 9", SQUARE),
    ("import json\njson.loads = lambda x: 9", SQUARE),
    ("match square:\n    case object(__globals__=names):\n        names['CACHE'][3] = 9", SQUARE),
    ("eval('1')", SQUARE),
    ("import sys\nsys.settrace(lambda *a: None)", SQUARE),
    ("__builtins__['len'] = 9", SQUARE),
    ("inputs['x'] = type('int', (), {})()\ntype('A', (), {'__module__': 'program'})", SQUARE),
    ("import functools\nfunctools.partial(cache)().update({3: 9})", SQUARE),
    ("class A(dict):\n    def put(self):\n        super().update({3: 9})\nA.put(cache())", SQUARE),
    (
        "class D:\n    def __init__(self): self.d = cache()\n    def __setitem__(self, k, v): self.d[k] = v\nD()[3] = 9",
        SQUARE,
    ),
    ("import contextlib\nwith contextlib.nullcontext(cache()) as c:\n    c[3] = 9", SQUARE),
    ("def g():\n    yield cache()\nfor c in g():\n    c[3] = 9", SQUARE),
    ("import asyncio\nasync def g():\n    return cache()\nasyncio.run(g())[3] = 9", SQUARE),
    ("c = next(iter([cache()]))\nc[3] = 9", SQUARE),
    ("import copy\nc = copy.copy([cache()])[0]\nc[3] = 9", SQUARE),
    ("cache().__ior__({3: 9})", SQUARE),
    ("add_user('a').known[3] = 9\ninputs['s'] = add_user('b')\ninputs['s'].known.update({3: 9})", SOLVE),
    ("s = add_user('a')\nk = [s.known]\nk[0][3] = 9\ninputs['s'] = s", SOLVE),
    ("inputs['s'] = solver()\ninputs['s'].memo[3] = 9", SOLVE),
    ("inputs['s'] = solver()\ninputs['s'].solve = lambda x: 9", SOLVE),
    ("inputs['s'] = solver()\ndel inputs['s'].steps", {**SOLVE, "expected_output": -4}),
    ("import io, json\nclass W:\n    def write(self, text): cache()[3] = 9\njson.dump(1, W())", SQUARE),
    ("import builtins\nbuiltins.print = lambda *a: None\nbuiltins.abs = print", SQUARE),
    ("from builtins import abs", SQUARE),
    ("import datetime\ndatetime.datetime.now = None", SQUARE),
    ("import random\nrandom.Random.random = lambda self: 9", SQUARE),
    ("import os\nos.environ = {}\nos.getcwd = None", SQUARE),
    ("import sys\nsys.stdout.write = None", SQUARE),
    ("import sys\nsys.stdout.kept.append('9')", {**SQUARE, "expected_output": -4}),
    ("square.register(int, lambda x: 9)", {**SQUARE, "expected_output": 9}),
    ("[s] = [Solver()]\ns.known[3] = 9\ninputs['s'] = s", SOLVE),
    ("[s] = [Solver()]\nk = [s.known]\nk[0].update({3: 9})\ninputs['s'] = s", SOLVE),
    ("import collections\ncollections.ChainMap(cache())[3] = 9", SQUARE),
    ("from collections import ChainMap as C\nc = C(cache())\nc[3] = 9", SQUARE),
    ("import random\nr = random.Random()\nr.shuffle(order())\norder().insert(0, 9)", SQUARE),
    ("import collections.abc\ncollections.abc.MutableMapping.update(cache(), {3: 9})", SQUARE),
    ("dict = cache\nd = dict()\nd[3] = 9", SQUARE),
    (
        "import copy\nA = type('A', (), {'__reduce__': lambda self: (solver, (), (None, {'solve': lambda x: 9}))})\ninputs['s'] = copy.copy(A())",
        SOLVE,
    ),
    (
        "import copy\nA = type('A', (), {'__reduce__': lambda self: (cache, (), None, None, iter([(3, 9)]))})\ncopy.copy(A())",
        SQUARE,
    ),
    (
        "import copy\nclass M(type):\n    @classmethod\n    def __prepare__(cls, *a): return {'__reduce__': lambda self: (cache, (), None, None, iter([(3, 9)]))}\nclass A(metaclass=M): pass\ncopy.deepcopy([A()])",
        SQUARE,
    ),
    (
        "import dataclasses\nA = type('A', (), {'__reduce_ex__': lambda self, n: (cache, (), None, None, iter([(3, 9)]))})\n@dataclasses.dataclass\nclass B:\n    a: object\ndataclasses.asdict(B(A()))",
        SQUARE,
    ),
    (
        "t = type\nA = t('A', (Solver,), {'__module__': 'program', 'solve': lambda s, x: 9})\nSolver.memo.clear()",
        SQUARE,
    ),
    ('x = f"{cache().update({3: 9})}"', SQUARE),
    ("x: cache().update({3: 9}) = 1", SQUARE),
    ("@cache().update\ndef g(): pass", SQUARE),
    (
        "class B:\n    def __enter__(self): return cache()\n    def __exit__(self, *a): pass\nwith B() as c:\n    c.setdefault(3, 9)",
        SQUARE,
    ),
    ("try:\n    raise ValueError(cache())\nexcept ValueError as error:\n    error.args[0][3] = 9", SQUARE),
    ("[s] = [Solver()]\nmatch s:\n    case Solver(known=k):\n        k[3] = 9\ninputs['s'] = s", SOLVE),
    ("import collections\nu = collections.UserDict()\nu.data = cache()\nu[3] = 9", SQUARE),
    ("with open('answers.py', 'w') as file: file.write('x = 9')", {**SQUARE, "function": "imported"}),
    # The process itself
    (
        "square(3)\nclass F(int):\n    __eq__ = lambda *a: False\n    __hash__ = lambda self: 0\nfor fd in range(3, 64):\n    try:\n        with open(F(fd), 'wb', closefd=False) as file: file.write(b'{\"value\": 9}\\n\\0')\n    except OSError: pass",
        SQUARE,
    ),
    (
        "square(3)\nclass S(str):\n    startswith = lambda *a: False\nfor fd in range(3, 64):\n    try:\n        with open(S(f'/proc/self/fd/{fd}'), 'wb') as file: file.write(b'{\"value\": 9}\\n\\0')\n    except OSError: pass",
        SQUARE,
    ),
    (
        "square(3)\nfor fd in range(3, 64):\n    try:\n        with open(f'/dev/fd/{fd}'.encode(), 'wb') as file: file.write(b'{\"value\": 9}\\n\\0')\n    except OSError: pass",
        SQUARE,
    ),
    (
        "square(3)\nfor fd in range(3, 64):\n    try:\n        with open(fd, 'wb', closefd=False) as file: file.write(b'{\"value\": 9}\\n\\0')\n    except OSError: pass",
        SQUARE,
    ),
    (
        "square(3)\nimport pathlib\nfor fd in range(3, 64):\n    try: pathlib.Path(f'/proc/self/fd/{fd}').write_bytes(b'{\"value\": 9}\\n\\0')\n    except OSError: pass",
        SQUARE,
    ),
    ("square(3)\nimport os\nos.symlink('/proc/self/mem', 'm')\nopen('m', 'r+b')", SQUARE),
    ("square(3)\nwith open('random.py', 'w') as file: file.write('x = 9')", SQUARE),
    # What setup code raises itself
    ("raise ValueError", FLAKY),
    ("flaky(-1)", FLAKY),
    ("class ValueError(Exception): pass\nraise ValueError", FLAKY),
    ("raise SystemExit", {**FLAKY, "expected_error": "SystemExit"}),
    ("raise ValueError", {**FLAKY, "expected_error": "SetupError"}),
    ("def f(): f()\nf()", {**FLAKY, "expected_error": "RecursionError"}),
    ("(" * 60 + "1" + ")" * 60 + "\n" + "-" * 3000 + "1", {**FLAKY, "expected_error": "RecursionError"}),
    ("CONSTANT", {**FLAKY, "expected_error": "NameError"}),
]

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("", {"function": "flaky", "inputs": {"x": 3}, "expected_output": 3}),
    ("inputs['x'] = 3", {"function": "flaky", "inputs": {}, "expected_output": 3}),
    ("inputs = {'x': sum([1, 2])}", {"function": "flaky", "inputs": {}, "expected_output": 3}),
    # State by calls
    ("add_user('b')\nadd_user('a')", {"function": "users", "expected_output": ["a", "b"]}),
    ("for name in ['b', 'a']:\n    add_user(name)", {"function": "users", "expected_output": ["a", "b"]}),
    (
        "try:\n    add_user('a')\n    add_user('a')\nexcept Missing:\n    add_user('c')",
        {"function": "users", "expected_output": ["a", "c"]},
    ),
    ("register('a', square)", {"function": "emit", "inputs": {"name": "a"}, "expected_error": "TypeError"}),
    (
        "def double(x):\n    return 2 * x\nregister('a', lambda: double(4))",
        {"function": "emit", "inputs": {"name": "a"}, "expected_output": 8},
    ),
    (
        "log = []\nregister('a', log.append)\nemit('a', 1)\nlog.clear()\nlog.append(2)\ninputs['items'] = log",
        {"function": "total", "expected_output": 2},
    ),
    (
        "calls = []\nclass Hook:\n    def __init__(self, name):\n        self.name = name\n        self.seen = []\n    def __call__(self, *values):\n        self.seen.append(values)\n        calls.append(self.name)\n        return len(self.seen)\nhook = Hook('h')\nregister('a', hook)\nemit('a', 1)\nhook.seen.append(2)",
        {"function": "emit", "inputs": {"name": "a"}, "expected_output": 3},
    ),
    ("fib(20)", {"function": "fib", "inputs": {"n": 30}, "expected_output": 832040}),
    (
        "memo = {0: 0, 1: 1}\nmemo[2] = 1\ninputs['memo'] = memo",
        {"function": "fib", "inputs": {"n": 2}, "expected_output": 1},
    ),
    ("slow.cache_clear()\nslow(3)", {"function": "slow", "inputs": {"n": 3}, "expected_output": 4}),
    ("counter()\ncounter()", {"function": "counter", "expected_output": 3}),
    ("settings()", {"function": "settings", "expected_output": {"a": 1}}),
    (
        "hooked(lambda x: x + 1)\ninputs['s'] = Solver()",
        {"function": "solve", "inputs": {"x": 8}, "expected_output": 9},
    ),
    (
        "s = Solver()\ns.learn(3, 9)\ns.add('a').add('b')\ninputs['s'] = s",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": 9},
    ),
    ("inputs['s'] = Solver({3: 9})", {"function": "solve", "inputs": {"x": 3}, "expected_output": 9}),
    (
        "known = {}\nknown[3] = 9\ninputs['s'] = Solver(known=known)",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": 9},
    ),
    (
        "user = add_user('a')\nuser.learn(3, 9)\ninputs['s'] = user",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": 9},
    ),
    (
        "user = add_user('a')\nuser.add('step')\ninputs['items'] = [len(user.steps)]",
        {"function": "total", "expected_output": 1},
    ),
    ("seen = dict(cache())\nseen[3] = 9\ninputs['x'] = seen", {"function": "size", "expected_output": 1}),
    (
        "known = dict()\ns = Solver(known)\nknown[3] = 9\ninputs['s'] = s",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": 9},
    ),
    # Classes of its own
    (
        "class S(Solver):\n    def __init__(self):\n        super().__init__()\n        self._n = 1\n    def solve(self, x):\n        return super().solve(x) + self._n\ninputs['s'] = S()",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": -2},
    ),
    (
        "class Fake:\n    def solve(self, x):\n        self.last = x\n        return x * x\nfake = Fake()\nfake.last = None\ninputs['s'] = fake",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": 9},
    ),
    (
        "class Bag:\n    __slots__ = ('items',)\n    def __init__(self, *items):\n        self.items = list(items)\n    def __len__(self): return len(self.items)\n    def __iter__(self): return iter(self.items)\nbag = Bag(1)\nbag.items.append(2)\ninputs['x'] = bag",
        {"function": "size", "expected_output": 2},
    ),
    (
        "class L(list):\n    def append(self, item):\n        super().append(item)\n        super().append(item)\nl = L()\nl.append(1)\ninputs['x'] = l",
        {"function": "size", "expected_output": 2},
    ),
    (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\np = P()\np.x += 1\ninputs['x'] = [0] * p.x",
        {"function": "size", "expected_output": 2},
    ),
    (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ninputs['items'] = P(1, 2)._replace(x=5)",
        {"function": "total", "expected_output": 7},
    ),
    (
        "import types\ns = types.SimpleNamespace(solve=lambda x: x + 1)\ns.more = 1\ninputs['s'] = s",
        {"function": "solve", "inputs": {"x": 3}, "expected_output": 4},
    ),
    ("def steps():\n    yield 1\n    yield 2\ninputs['items'] = steps()", {"function": "total", "expected_output": 3}),
    ("inputs['items'] = (each * 2 for each in range(3))", {"function": "total", "expected_output": 6}),
    ("inputs['f'] = square", {"function": "apply", "inputs": {"x": 3}, "expected_output": -3}),
    ("inputs['f'] = lambda x: x + 1", {"function": "apply", "inputs": {"x": 3}, "expected_output": 4}),
    (
        "def outer():\n    n = 0\n    def inner(x):\n        nonlocal n\n        n += x\n        return n\n    return inner\ninputs['f'] = outer()",
        {"function": "apply", "inputs": {"x": 3}, "expected_output": 3},
    ),
    ("class Color(Solver): pass\ninputs['s'] = Color", {"function": "kind", "expected_output": "type"}),
    (
        "import copy\nclass P:\n    def __init__(self): self.items = [1]\np = copy.deepcopy(P())\np.items.append(2)\ns = copy.copy(Solver())\nt = copy.deepcopy(add_user('a'))\nt.add('x')\ninputs['items'] = p.items",
        {"function": "total", "expected_output": 3},
    ),
    (
        "import copy, datetime, decimal\ninputs['x'] = copy.deepcopy([datetime.date(2024, 1, 1), decimal.Decimal(1)])",
        {"function": "size", "expected_output": 2},
    ),
    (
        "class P:\n    def __init__(self, shuffle): self.shuffle = shuffle\ninputs['items'] = [1] if P(False).shuffle else [2]",
        {"function": "total", "expected_output": 2},
    ),
    (
        "import functools\nclass P:\n    @functools.cache\n    def add(self, x): return x + 1\ninputs['items'] = [P().add(1)]",
        {"function": "total", "expected_output": 2},
    ),
    # Data
    (
        "tree = {'left': None}\nnode = tree\nfor _ in range(3):\n    node['left'] = {'left': None}\n    node = node['left']\ninputs['x'] = tree",
        {"function": "size", "expected_output": 1},
    ),
    (
        "items = []\nitems += [1, 2]\nitems.extend(range(3))\nitems[0] += 4\ndel items[1]\nitems.sort(key=lambda each: -each)\ninputs['items'] = items",
        {"function": "total", "expected_output": 8},
    ),
    (
        "def fill(items, n):\n    for each in range(n):\n        items.append(each)\n    return items\ninputs['items'] = fill([], 4)",
        {"function": "total", "expected_output": 6},
    ),
    (
        "import heapq, random\nheap = [3, 1, 2]\nheapq.heapify(heap)\nrandom.shuffle(heap)\ninputs['items'] = heap",
        {"function": "total", "expected_output": 6},
    ),
    (
        "from collections import Counter, defaultdict, deque\nc = Counter()\nc.update('aab')\nd = defaultdict(list)\nd['a'].append(1)\nq = deque([1])\nq.appendleft(2)\ninputs['items'] = [*c.values(), *q]",
        {"function": "total", "expected_output": 6},
    ),
    (
        "import json, copy\nx = json.loads('[[1], [2]]')\nx[0].append(2)\ny = copy.deepcopy(x)\ny.append(3)\ninputs['x'] = y",
        {"function": "size", "expected_output": 3},
    ),
    (
        "from datetime import date, timedelta\ninputs['x'] = (date(2024, 2, 28) + timedelta(days=1)).isoformat()",
        {"function": "size", "expected_output": 10},
    ),
    (
        "import math, itertools, string\nfrom decimal import Decimal\ninputs['items'] = [math.floor(math.pi), *itertools.chain([1], [2])]",
        {"function": "total", "expected_output": 6},
    ),
    (
        "inputs['x'] = [0] * 3\ninputs['x'][1] = 5\ninputs.setdefault('y', 1)\ndel inputs['y']",
        {"function": "size", "expected_output": 3},
    ),
    (
        "match [1, 2]:\n    case [a, b] if a < b:\n        inputs['items'] = [a, b]",
        {"function": "total", "expected_output": 3},
    ),
    (
        "words = ['b', 'A']\ninputs['x'] = ' '.join(sorted(map(str.lower, words), key=str.upper))",
        {"function": "size", "expected_output": 3},
    ),
    # Surroundings
    ("import time\ntime.time = lambda: 7.5", {"function": "now", "expected_output": 7.5}),
    (
        "import datetime\nclass Fake(datetime.date):\n    @classmethod\n    def today(cls):\n        return cls(2024, 2, 29)\ndatetime.date = Fake",
        {"function": "today", "expected_output": "2024-02-29"},
    ),
    ("import random\nrandom.seed(4)\ninputs['x'] = [random.random()]", {"function": "size", "expected_output": 1}),
    ("import random\nrandom.randint = lambda a, b: 4", {"function": "roll", "expected_output": 4}),
    (
        "import builtins\nanswers = iter(['yes'])\nbuiltins.input = lambda *_: next(answers)",
        {"function": "ask", "expected_output": "yes"},
    ),
    ("import sys, io\nsys.stdin = io.StringIO('yes')", {"function": "told", "expected_output": "yes"}),
    (
        "import builtins\nsaid = []\nbuiltins.print = lambda *values: said.append(values)",
        {"function": "say", "inputs": {"x": 1}, "expected_output": 1},
    ),
    (
        "import builtins, io\nbuiltins.open = lambda path, *more: io.StringIO('fake ' + path)",
        {"function": "read", "inputs": {"path": "a"}, "expected_output": "fake a"},
    ),
    (
        "with open('a', 'w') as file:\n    file.write('A')",
        {"function": "read", "inputs": {"path": "a"}, "expected_output": "A"},
    ),
    (
        "import tempfile, pathlib\npath = pathlib.Path(tempfile.mkdtemp()) / 'a'\npath.write_text('A')\ninputs['path'] = str(path)",
        {"function": "read", "expected_output": "A"},
    ),
    (
        "import os\nos.makedirs('d', exist_ok=True)\nwith open(os.path.join('d', 'a'), 'w') as file: file.write('A')",
        {"function": "read", "inputs": {"path": "d/a"}, "expected_output": "A"},
    ),
    (
        "import os\nos.environ['KEY'] = 'v'\nos.environ.pop('OTHER', None)",
        {"function": "env", "inputs": {"name": "KEY"}, "expected_output": "v"},
    ),
]


async def results_of(runner: TestRunner, cases: list[tuple[str, dict[str, Any]]]) -> list[TestResult]:
    tests: dict[str, list[FunctionTest]] = {}
    for number, (setup, fields) in enumerate(cases):
        given = {key: value for key, value in fields.items() if key != "function"}
        tests.setdefault(fields["function"], []).append(test_of(f"{number}", setup=setup or None, **given))
    return sorted(await runner.run(PROGRAM, freeze(tests)), key=lambda result: int(result.test))


async def test_nothing_that_setup_code_tries_makes_wrong_code_pass(runner: TestRunner) -> None:
    results = await results_of(runner, ATTACKS)
    assert [ATTACKS[int(each.test)][0] for each in results if each.passed] == []
    assert all(each.why for each in results)


async def test_right_code_passes_with_setup_code_that_keeps_the_rule(runner: TestRunner) -> None:
    results = await results_of(runner, RIGHT)
    assert [(RIGHT[int(each.test)][0], each.why) for each in results if not each.passed] == []


@pytest.mark.parametrize("setup", [each for each, _ in RIGHT])
def test_what_keeps_the_rule_is_not_sent_back(setup: str) -> None:
    assert check_setup(setup, list(PROGRAM)) == []


ATTACKS_IN_JAVASCRIPT = [
    "CACHE[3] = 9",
    "CACHE.set(3, 9)",
    "cache()[3] = 9",
    "cache().push(9)",
    "Solver.prototype.solve = () => 9",
    "Object.assign(Solver, {solve: 1})",
    "Object.defineProperty(Solver, 'solve', {value: 1})",
    "Solver.memo[3] = 9",
    "delete Solver.memo",
    "Solver.count++",
    "++Solver.count",
    "globalThis.x = 1",
    "eval('CACHE[3] = 9')",
    "(() => 1).constructor('return 1')()",
    "process.exit(0)",
    "process.binding('fs')",
    "const p = process",
    "JSON.stringify = () => '9'",
    "Math.max = () => 9",
    "Array.from = 1",
    "const fs = await import('node:fs'); fs.writeSync(3, 'x')",
    "const fs = await import('node:fs'); fs.writeFileSync(3, 'x')",
    "const fs = await import('node:fs'); fs.writeFileSync('/proc/self/fd/3', 'x')",
    "const cp = await import('node:child_process')",
    "const m = await import(name)",
    "((a = CACHE) => { a[3] = 9 })()",
    "const {a = CACHE} = {}; a[3] = 9",
    "const a = [CACHE]",
    "const a = 1, b = CACHE",
    "[Solver.memo] = [{3: 9}]",
    "coderoom$({}, 'CACHE[3] = 9')",
    "arguments[1]",
    "if (CACHE[3] = 9) {}",
    "for (CACHE[3] of [9]) {}",
    "f['__proto__'].x = 1",
    "f.x = 1",
    "memo = {3: 9}",
    "(cache())[3] = 9",
    "({a: Solver.memo} = {a: {}})",
]
RIGHT_IN_JAVASCRIPT = [
    "inputs.x = 5",
    "inputs = {x: 5}",
    "inputs.items.push(3); inputs.items[0] = 5; delete inputs.y",
    "addUser('a'); for (const name of ['b', 'c']) addUser(name)",
    "for (let i = 0; i < 3; i++) addUser(`u${i}`)",
    "const log = []; register('a', (x) => log.push(x)); emit('a', 1); inputs.x = log.length",
    "inputs.s = new Solver({3: 9})",
    "const s = new Solver(); s.learn(3, 9); inputs.s = s",
    "class Fake { constructor(n) { this.n = n } solve(x) { return x * this.n } static make() { return new Fake(1) } }; inputs.s = Fake.make()",
    "class Fake extends Solver { solve(x) { return super.solve(x) + 1 } }; inputs.s = new Fake()",
    "inputs.s = { solve(x) { return x * x }, n: 1, get m() { return 2 } }",
    "inputs.f = function (a, b = 2) { return a + b }",
    "Date.now = () => 7",
    "Math.random = () => 0.5",
    "process.env.KEY = 'v'",
    "const fs = await import('node:fs'); fs.writeFileSync('a', 'A')",
    "inputs.x = 1 + (await import('node:path')).sep.length",
    "const m = new Map(); m.set(1, 2); m.delete(1); inputs.m = m",
    "const {a, b: [c]} = inputs; inputs.x = a + c",
    "const tree = {left: null}; let node = tree; node.left = {left: null}; node = node.left",
    "try { addUser('a') } catch (error) { inputs.e = error.message }",
    "inputs.x = Object.assign({}, inputs.y); inputs.z = Object.entries(inputs)",
    "inputs.when = new Date(2024, 1, 29).toISOString()",
    "let n = 0; n += 1; n++; inputs.x = n > 0 ? n : -n",
    "const add = async (x) => { await x; return x }; inputs.x = await add(1)",
    "const [x, ...rest] = [1, 2]; inputs.x = rest.map(each => each * 2)",
    "inputs.g = function* () { yield 1 }",
    "const a = [3, 1]; a.sort((x, y) => x - y); inputs.a = a.slice().reverse()",
    "const s = addUser('a'); s.add('x'); inputs.s = s",
]


def test_the_same_rule_in_javascript() -> None:
    names = ["f", "cache", "addUser", "register", "emit"]
    language = JavaScriptLanguage()
    assert [each for each in ATTACKS_IN_JAVASCRIPT if not language.check_setup(each, names)] == []
    assert [(each, found) for each in RIGHT_IN_JAVASCRIPT if (found := language.check_setup(each, names))] == []


async def test_setup_code_that_breaks_the_rule_is_sent_back_with_the_reason(sandbox: Sandbox) -> None:
    broken = {**test("cached", 6, x=3), "setup": "CACHE[3] = 6"}
    behind = {**test("behind", 3, x=1), "setup": "import sys\nsys.modules['program'].double = None"}
    other = {**test("honest", 4, x=1), "setup": "inputs['x'] = 2"}
    calling = {**test("calls", 8, x=1), "setup": "inputs['x'] = double(2)"}
    tests = [test("two", 4, x=2), test("zero", 0, x=0), broken, behind, other, calling]
    model = ScriptedModel([function("double")], {"double": tests}, {"double": "def double(x):\n    return 2 * x"})
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False)
    solution = await generator.generate_solution("Double a number.")
    assert (
        "tests[2]: setup: line 1: setup code may not change 'CACHE', which belongs to the program" in model.questions[2]
    )
    assert "tests[3]: setup: line 2: " in model.questions[2]
    assert "changes only objects of its own" in model.questions[2]
    assert [each.name for each in solution.tests["double"]] == ["two", "zero", "honest", "calls"]
