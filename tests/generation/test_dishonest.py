# ruff: noqa: E501 (pieces of code, one to a line)
"""Code that wants to pass without doing what it should. None of it may, and none may harm another function's tests."""

from __future__ import annotations

import re
import secrets
import textwrap

import pytest

from coderoom.generation import FrozenTests, FunctionTest, TestRunner, freeze
from coderoom.sandbox import Sandbox

from .examples import test_of
from .hostile import AT_CALL, AT_LOAD, some
from .hostile import source_of as source_of_median
from .test_honesty import RIGHT as MEDIAN
from .test_honesty import ROMAN, TESTS

HONEST = "def g(x):\n    return x + 1\n"

# What each of these does is the body of `f(x)`, or all of the code if it defines `f` itself.
DISHONEST = {
    "is of every class": "class A:\n    @property\n    def __class__(self): return str\n    def __repr__(self): return 'x'\nreturn A()",
    "raises everything": "class A(ValueError, KeyError, TypeError, OSError): pass\nraise A",
    "patches json": "import json\njson.dumps = json.JSONEncoder.encode = lambda *a, **k: '{\"passed\": true}'\nreturn 1",
    "prints a verdict": "print('1 passed')\nprint('{\"value\": \"passed\", \"passed\": true}')\nreturn {'passed': True}",
    "skips": "import pytest\npytest.skip('not today', allow_module_level=True)",
    "expects to fail": "import pytest\npytest.xfail('known')",
    "exits": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "kills its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "kills everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "stops its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)",
    "hangs": "while True:\n    pass",
    "hangs and catches all": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: return SECRET if 0 else None"
    ),
    "sleeps in C": "import ctypes\nctypes.PyDLL(None).sleep(100)",
    "floods": "while True:\n    print('passed ' * 1000)",
    "floods the pipe": "import os\nwhile True:\n    os.write(1, b'x' * 60000)",
    "forks": "import os\nwhile True:\n    os.fork()",
    "leaves a child": "import os, time\nif not os.fork():\n    time.sleep(60)\nreturn True",
    "leaves a daemon": (
        "import os, time\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "    for fd in range(300):\n        try: os.close(fd)\n        except OSError: pass\n    time.sleep(60)\nreturn 1"
    ),
    "takes all memory": "x = []\nwhile True:\n    x.append(bytearray(10**7))",
    "fills the disk": "with open('big', 'wb') as file:\n    while True: file.write(bytes(10**6))",
    "closes all files": "import os\nos.closerange(0, 4096)\nreturn 1",
    "is equal to all": "class A:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\nreturn A()",
    "is text that is equal to all": (
        "class A(str):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "    __hash__ = str.__hash__\nreturn A('x')"
    ),
    "patches builtins": (
        "import builtins\nfor name in ('isinstance', 'len', 'type', 'repr', 'all', 'any', 'bool', 'compile'):\n"
        "    setattr(builtins, name, lambda *a, **k: True)\nreturn 1"
    ),
    "patches the encoder": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('_coderoom'):\n"
        "        for each in list(vars(module)):\n"
        "            if callable(vars(module)[each]): setattr(module, each, lambda *a, **k: '{\"value\": true}')\nreturn 1"
    ),
    "patches at once": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name == '_coderoom_tests_.calls':\n"
        '        real = module.answer\n        module.answer = lambda call, encoder: \'{"value": "passed"}\' '
        "if call[0].__name__ == 'f' else real(call, encoder)\ndef f(x):\n    return 1"
    ),
    "returns a verdict": "return {'passed': True, 'equal': True, 'value': {'$opaque': {}}, 'actual_output': True}",
    "writes an answer to all it finds": (
        "import os\nfor fd in range(3, 300):\n    for data in (b'{\"value\": true}\\n\\0', b'{\"value\": 1}\\n'):\n"
        "        try: os.write(fd, data)\n        except OSError: pass\nreturn 1"
    ),
    "forges the end": (
        "import gc, os\n"
        "for each in gc.get_objects():\n"
        "    if type(each).__name__ == 'Channel':\n"
        "        for number in range(200):\n"
        "            each.send({'event': 'done', 'id': number, 'outcome': 'ok', 'exit_code': 0,\n"
        "                       'value': [['{\"value\": 1}', '', 0, 0]] * 48, 'value_repr': ''})\n"
        "            each.send({'event': 'done', 'id': number, 'outcome': 'ok', 'exit_code': 0,\n"
        "                       'value': '{\"value\": true}', 'value_repr': ''})\n"
        "os._exit(0)"
    ),
    "starts a thread": "import threading\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\nreturn 1",
    "spoils the recursion": "import sys\nsys.setrecursionlimit(30)\nreturn [[[[]]]]",
    "exits later": "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit(0)",
    "defines its equal": "import builtins, operator\noperator.eq = lambda *a: True\nreturn NotImplemented",
    "returns what contains itself": "x = []\nx.append(x)\nreturn x",
    "returns nothing": "return None",
    "puts another function in its neighbour's place": "global g\ng = f\nreturn g.__name__",
    "makes one two in its parent": (  # The digit of an integer is at 24.
        "import os\nfile = os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)\nos.pwrite(file, bytes([2]), id(1) + 24)\nreturn 1"
    ),
}


def source_of(body: str) -> str:
    return body if "def f(" in body else f"def f(x):\n{textwrap.indent(body, '    ')}"


def expectations(secret: str) -> list[FunctionTest]:
    return [
        test_of(f"gives {secret}", inputs={"x": 1}, expected_output=secret),
        test_of(f"holds {secret}", kind="edge", inputs={"x": 1}, property=f"result == {secret!r}"),
        test_of(f"raises {secret}", kind="error", inputs={"x": 1}, expected_error="ZeroDivisionError"),
    ]


def named(code: str, old: str, new: str) -> str:
    """The code with another name of its function; `f'...'` is no name."""
    return re.sub(rf"(?<=['\"]){old}(?=['\"])|\b{old}\b(?!['\"])", new, code)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(10))
async def test_it_does_not_pass_and_harms_no_other(hasty: TestRunner, part: int) -> None:
    """Each program has several of them, and a function that must pass."""
    secret = f"SECRET-{secrets.token_hex(8)}"
    names = [*DISHONEST][part::10]
    sources = {f"f{n}": named(source_of(DISHONEST[name]), "f", f"f{n}") for n, name in enumerate(names)}
    honest = [test_of(f"{number}", inputs={"x": number}, expected_output=number + 1) for number in range(2)]
    tests = dict.fromkeys(sources, expectations(secret))
    results = await hasty.run({"g": HONEST, **sources}, freeze({**tests, "g": honest}))
    assert [each.passed for each in results if each.function == "g"] == [True] * 2, names
    for name, function in zip(names, sources, strict=True):
        told = [each for each in results if each.function == function]
        assert [each.passed for each in told] == [False] * 3, name
        assert all(each.why for each in told), name


@pytest.fixture
def median_tests() -> FrozenTests:
    cases = {"median": TESTS["median"], "roman": TESTS["roman"][:2]}
    return freeze({name: [FunctionTest.model_validate(each) for each in several] for name, several in cases.items()})


QUICK = ["patches whoever asks"]
LATER = [name for name in AT_CALL if name not in QUICK]


@pytest.mark.parametrize(
    "names", [QUICK, *(pytest.param(LATER[n::12], marks=pytest.mark.attack) for n in range(12))], ids=range(13)
)
async def test_a_median_that_cheats_when_it_is_called(
    hasty: TestRunner, median_tests: FrozenTests, names: list[str]
) -> None:
    sources = {
        f"media{n}": named(source_of_median(AT_CALL[name]), "median", f"media{n}") for n, name in enumerate(names)
    }
    tests = dict.fromkeys(sources, median_tests.tests["median"])
    results = await hasty.run({"roman": ROMAN, **sources}, freeze({**tests, "roman": median_tests.tests["roman"]}))
    assert all(each.passed for each in results if each.function == "roman"), names
    for name, function in zip(names, sources, strict=True):
        assert not all(each.passed for each in results if each.function == function), name


@pytest.mark.parametrize("name", some(AT_LOAD, "takes the name of the module"))
async def test_a_median_that_cheats_when_it_is_loaded(hasty: TestRunner, median_tests: FrozenTests, name: str) -> None:
    results = await hasty.run({"roman": ROMAN, "median": source_of_median(AT_LOAD[name])}, median_tests)
    assert not all(each.passed for each in results if each.function == "median")


@pytest.mark.parametrize(
    "name",
    [
        "raises a class of that name",
        "raises a class whose class lies",
        "raises a group",
        "raises when its fields are read",
        "raises when it is listed",
        "has the name of a coroutine",
    ],
)
async def test_an_exception_that_lies_is_not_the_one_that_is_expected(
    runner: TestRunner, median_tests: FrozenTests, name: str
) -> None:
    body = AT_CALL[name].replace("\n", "\n        ")
    code = MEDIAN.replace('raise ValueError("there are none")', body)
    results = await runner.run({"median": code}, median_tests, functions=["median"])
    assert [each.passed for each in results] == [True, True, True, True, False]


HUNTER = """
import re

PATTERN = re.compile(rb"SECRET-[0-9a-f]{16}")

def hunted():
    import gc, os, sys, linecache
    frame = sys._getframe()
    while frame:
        yield repr(frame.f_locals) + repr(frame.f_globals)
        frame = frame.f_back
    for each in gc.get_objects():
        try:
            yield repr(each)[:100_000]
        except Exception:
            pass
    yield repr(linecache.cache)
    yield repr(os.environ) + repr(sys.argv) + repr(sys.modules.keys())
    for folder in (".", "/tmp", "/dev/shm", "/run", "/workspace"):
        for root, _, names in os.walk(folder):
            for name in names:
                try:
                    yield open(os.path.join(root, name), "rb").read(10**6).decode("latin-1")
                except OSError:
                    pass
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for name in ("cmdline", "environ"):
                try:
                    yield open(f"/proc/{pid}/{name}", "rb").read().decode("latin-1")
                except OSError:
                    pass
            try:
                maps = open(f"/proc/{pid}/maps").read().splitlines()
                memory = open(f"/proc/{pid}/mem", "rb", 0)
            except OSError:
                continue
            for line in maps:
                first, last = (int(each, 16) for each in line.split()[0].split("-"))
                if " rw" in line and last - first < 10**8:
                    try:
                        memory.seek(first)
                        yield memory.read(last - first).decode("latin-1")
                    except (OSError, ValueError):
                        pass

def f(x):
    for text in hunted():
        found = PATTERN.search(text.encode("utf-8", "replace"))
        if found:
            return found.group().decode()
    return "nothing"
"""


@pytest.mark.attack
async def test_what_is_expected_is_nowhere_to_be_found(sandbox: Sandbox) -> None:
    secret = f"SECRET-{secrets.token_hex(8)}"
    runner = TestRunner(sandbox, timeout=20)
    results = await runner.run({"f": HUNTER}, freeze({"f": expectations(secret)}))
    assert [each.passed for each in results] == [False] * 3
    assert results[0].actual_output == "nothing"


@pytest.mark.attack
async def test_the_hunter_finds_what_is_there(sandbox: Sandbox) -> None:
    secret = f"SECRET-{secrets.token_hex(8)}"
    runner = TestRunner(sandbox, timeout=20)
    test = test_of(inputs={"x": secret}, expected_output=secret)
    (result,) = await runner.run({"f": HUNTER}, freeze({"f": [test]}))
    assert result.passed


LIES = [
    '{"error": {"types": ["ZeroDivisionError", "ValueError", "KeyError"], "base": "SystemError", "message": ""}}',
    '{"error": {"types": [], "base": "Exception", "message": "ZeroDivisionError"}}',
    '{"error": {"types": [], "base": "object", "message": ""}}',
    '{"error": {"types": "ZeroDivisionError", "base": "ZeroDivisionError"}}',
    '{"error": true}',
    '{"value": {"$opaque": {}}, "passed": true}',
    '{"value": NaN}',
    '{"value": 1e999}',
    '{"value": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "[]",
    "null",
    "",
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
async def test_an_answer_of_its_own_making_says_nothing(runner: TestRunner, lie: str) -> None:
    source = (
        "import sys\n"
        "inside = sys.modules['_coderoom_tests_.batches']\n"
        f"inside.answer = inside.answer_now = lambda *a: {lie!r}\n"
        "def f(x): return 1"
    )
    results = await runner.run({"f": source}, freeze({"f": expectations("SECRET-1")}))
    assert [each.passed for each in results] == [False] * 3
