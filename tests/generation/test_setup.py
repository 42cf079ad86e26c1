# ruff: noqa: E501 (pieces of code, one to a line)
"""Setup code of tests: what it may change, and what not."""

from __future__ import annotations

from coderoom.generation import AICodeGenerator, TestRunner, freeze
from coderoom.sandbox import Sandbox

from .examples import test_of
from .scripted import ScriptedModel, function, test

SOURCES = {
    "more": "def more(x):\n    return x",
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


@functools.lru_cache
def cached(x):
    return x


def start():
    global STARTED
    STARTED = 1


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
    "what is built in": "import builtins\nbuiltins.abs = lambda x: 2",
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
    "data": "STATE['other'] = 5",
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
    names = ["RuntimeError", "Exception", "BaseException", "NameError"]
    tests = [test_of(name, inputs={"x": 1}, setup=setup, expected_error=name) for name in names]
    by_property = test_of("property", inputs={"x": 1}, setup=setup, property="result is not None")
    results = await runner.run(SOURCES, freeze({"f": [*tests, by_property]}))
    assert not any(each.passed for each in results)
    assert "setup code may not change functions of the program" in results[0].why


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


async def test_tests_that_pass_by_their_setup_code_alone_are_sent_back() -> None:
    raising = {"name": "raises", "inputs": {"x": 1}, "setup": "raise ValueError('x')", "expected_error": "ValueError"}
    forging = {
        **test("forges", 3, x=1),
        "setup": "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'{\"value\": 3}\\n\\0')\n    except OSError: pass",
    }
    other = {**test("honest", 4, x=1), "setup": "inputs['x'] = 2"}
    calling = {**test("calls", 8, x=1), "setup": "inputs['x'] = double(2)"}
    tests = [test("two", 4, x=2), test("zero", 0, x=0), raising, forging, other, calling]
    model = ScriptedModel([function("double")], {"double": tests}, {"double": "def double(x):\n    return 2 * x"})
    async with Sandbox() as sandbox:
        generator = AICodeGenerator(model, sandbox=sandbox, cache=False)
        solution = await generator.generate_solution("Double a number.")
    assert "the setup code of 'raises' makes it pass where there is no code yet" in model.questions[2]
    assert [each.name for each in solution.tests["double"]] == ["two", "zero", "honest", "calls"]
