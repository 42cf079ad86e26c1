# ruff: noqa: E501 (programs and tests, one to a line)
"""Files for pytest stand alone, and say of code what the runner says of it: of right code, and of wrong code too."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coderoom.generation import (
    FrozenTests,
    FunctionTest,
    PythonLanguage,
    TestRunner,
    freeze,
)
from tests.support.commands import PYTEST

from .examples import spec, test_of


def run_pytest(folder: Path, sources: dict[str, str], tests: FrozenTests) -> dict[tuple[str, str], bool]:
    """Which tests of the file pass, where there is no CodeRoom and nothing in the environment."""
    (folder / "solution.py").write_text(PythonLanguage().write_module(sources, "A program."), "utf-8")
    specs = [spec(name) for name in sources]
    for name, text in PythonLanguage().write_tests(tests.tests, "solution", specs).items():
        (folder / name).write_text(text, "utf-8")
    (folder / "coderoom.py").write_text("raise ImportError('this is somewhere else')")
    command = [sys.executable, "-I", "-B", *PYTEST, "-W", "error"]
    environment = {"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "--junit-xml=done.xml"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    found = [not list(each) for each in ElementTree.parse(folder / "done.xml").iter("testcase")]
    assert "error" not in done.stdout.splitlines()[-1], done.stdout
    names = names_in((folder / "test_solution.py").read_text("utf-8"), {*tests.tests})
    return dict(zip(names, found, strict=True))


def names_in(text: str, functions: set[str]) -> list[tuple[str, str]]:
    """The tests of a file in their order, each as the name of its function and its own name."""
    found = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        [function] = functions & {
            each.attr
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "program"
        }
        ids = [each.value for each in ast.walk(node) if isinstance(each, ast.keyword) and each.arg == "id"]
        if not ids and isinstance(node.body[0], ast.Expr):
            ids = [node.body[0].value]
        found += [(function, ast.literal_eval(each)) for each in ids]
    return found


async def agrees(
    runner: TestRunner,
    folder: Path,
    right: dict[str, str],
    tests: FrozenTests,
    *wrong: dict[str, str],
    not_written: Sequence[str] = (),
) -> None:
    """Run tests both ways over right and over wrong code. All tests are in the file, but those that are named."""
    results = await runner.run(right, tests)
    assert [each.why for each in results if not each.passed] == []
    written = {(function, each.name) for function, several in tests.tests.items() for each in several}
    written -= {(function, name) for function in tests.tests for name in not_written}
    assert run_pytest(folder, right, tests) == dict.fromkeys(written, True)
    for sources in wrong:
        judged = {(each.function, each.test): each.passed for each in await runner.run(sources, tests)}
        passed = run_pytest(folder, sources, tests)
        assert passed == {name: judged[name] for name in written}, sources
        assert not all(passed.values())


SAME = """
import collections, dataclasses, datetime, decimal, enum, fractions
@dataclasses.dataclass
class Point:
    x: float
    y: object = 0
class Plain:
    def __init__(self, x): self.x = x
class Slots:
    __slots__ = ("x", "y")
    def __init__(self, x): self.x = x
Pair = collections.namedtuple("Pair", "x y")
class Color(enum.Enum):
    RED = 1
    BLUE = 2
class Word(str, enum.Enum):
    YES = "yes"
class Text(str):
    def __str__(self): return "?"
class Missing(LookupError): ...
def f(what, x=None):
    made = {
        "point": lambda: Point(0.1 + 0.2, [1]), "plain": lambda: Plain(x), "slots": lambda: Slots(x),
        "pair": lambda: Pair(1, 2.5), "red": lambda: Color.RED, "yes": lambda: Word.YES, "text": lambda: Text("a"),
        "error": lambda: Missing("gone", 1), "default": lambda: collections.defaultdict(int, {"a": 1}),
        "deep": lambda: [{"a": (Point(1, {Color.RED}), Word.YES)}], "keys": lambda: {Color.RED: 1, (1, 2): 2, None: 3, 1.5: 4},
    }
    return made[what]() if what in made else x
"""
POINT = {"$object": {"type": "Point", "fields": {"x": 0.3, "y": [1]}}}
RED = {"$enum": {"type": "Color", "name": "RED", "value": 1, "mixed": False}}
YES = {"$enum": {"type": "Word", "name": "YES", "value": "yes", "mixed": True}}
PAIR = {"$namedtuple": {"type": "Pair", "fields": [["x", 1], ["y", 2.5]]}}
NAN = {"$float": "nan"}
MADE: list[tuple[str, Any]] = [
    ("point", POINT), ("plain", {"$object": {"type": "Plain", "fields": {"x": None}}}),
    ("slots", {"$object": {"type": "Slots", "fields": [["x", None]]}}), ("pair", PAIR), ("pair", {"$tuple": [1, 2.5]}),
    ("pair", [1, 2.5]), ("red", RED), ("yes", YES), ("yes", "yes"), ("text", "a"), ("default", {"a": 1}),
    ("error", {"$object": {"type": "Missing", "fields": {"args": {"$tuple": ["gone", 1]}}}}),
    ("deep", [{"a": [{"$object": {"type": "Point", "fields": {"x": 1, "y": {"$set": [RED]}}}}, "yes"]}]),
    ("keys", {"$dict": [[RED, 1], [{"$tuple": [1, 2]}, 2], [None, 3], [1.5, 4]]}),
]  # fmt: skip
ECHOED: list[tuple[Any, Any]] = [
    (3, 3), (0, 0), (1, 1), (1, 1.0), (True, True), (None, None), ("", ""), ("it's \"\"\"\n\\", "it's \"\"\"\n\\"), ("\u202e\u3164", "\u202e\u3164"),
    ([1, 2], [1, 2]), ({"$tuple": [1, 2]}, [1, 2]), ({"$tuple": [1]}, {"$tuple": [1]}), ({"$tuple": []}, {"$tuple": []}),
    ({"$set": []}, {"$set": []}), ({"$frozenset": [3, 4]}, {"$set": [3, 4]}), ({"$set": [0.30000000000000004, 2]}, {"$set": [0.3, 2]}),
    ([[NAN, {"a": NAN}]], [[NAN, {"a": NAN}]]), ([{"$float": "inf"}, {"$float": "-inf"}], [{"$float": "inf"}, {"$float": "-inf"}]),
    ({"a": [0.1, {"b": 0.30000000000000004}]}, {"a": [0.1, {"b": 0.3}]}), ({"$bytes": "aGk="}, {"$bytes": "aGk="}), ({"$bytearray": "aGk="}, {"$bytearray": "aGk="}),
    ({"$complex": [1.0, -2.0]}, {"$complex": [1, -2]}), ({"$complex": [NAN, {"$float": "-inf"}]}, {"$complex": [NAN, {"$float": "-inf"}]}),
    ({"$int": hex(7 ** 9_999)}, {"$int": hex(7 ** 9_999)}), (10**3_000, 10**3_000), ({"$str": "7aCA"}, {"$str": "7aCA"}),
    ({"$decimal": "1.10"}, {"$decimal": "1.1"}), ({"$decimal": "NaN"}, {"$decimal": "NaN"}), ({"$fraction": [1, 3]}, {"$fraction": [1, 3]}),
    ({"$datetime": "2024-02-29T12:30:00+02:00"}, {"$datetime": "2024-02-29T10:30:00+00:00"}), ({"$date": "2024-02-29"}, {"$date": "2024-02-29"}),
    ({"$time": "12:30:00"}, {"$time": "12:30:00"}), ({"$timedelta": [1, 30, 0]}, {"$timedelta": [1, 30, 0]}), (PAIR, PAIR), (POINT, POINT),
    ({"$dict": [["$x", 1], [{"$frozenset": [1]}, 2], [NAN, 3], [True, 4]]}, {"$dict": [[True, 4], ["$x", 1], [{"$frozenset": [1]}, 2], [NAN, 3]]}),
    (list(range(200)), list(range(200))), ({"key": ["long text " * 9] * 3}, {"key": ["long text " * 9] * 3}),
    ({"$object": {"type": "not a name", "fields": {"a b": 1, "class": [2]}}}, {"$object": {"type": "not a name", "fields": {"a b": 1, "class": [2]}}}),
]  # fmt: skip
WRONG = [
    0,
    1,
    True,
    False,
    None,
    "wrong",
    3.0000000001,
    [1, 2.0000001],
    {"$tuple": [1, 2]},
    {"$set": [1]},
    {"$decimal": "1.1"},
    [[NAN, {"a": 1}]],
]


def cases() -> list[FunctionTest]:
    made = [
        test_of(f"{what} {number}", inputs={"what": what}, expected_output=it) for number, (what, it) in enumerate(MADE)
    ]
    return made + [
        test_of(f"echo {number}", inputs={"what": "x", "x": x}, expected_output=it)
        for number, (x, it) in enumerate(ECHOED)
    ]


@pytest.mark.slow
async def test_every_form_of_value(runner: TestRunner, tmp_path: Path) -> None:
    tests = freeze({"f": cases()})
    wrong = []
    for other in ("True", "'yes'", "range(200)", "made(x)"):
        wrong.append(
            {"f": f"def made(x): return tuple(x) if isinstance(x, list) else x\ndef f(what, x=None): return {other}"}
        )
    tags = ("$object", "$enum", "$namedtuple")
    own = [each.name for each in cases() if any(tag in json.dumps(each.model_dump(mode="json")) for tag in tags)]
    assert len(own) == 12
    await agrees(runner, tmp_path, {"f": SAME}, tests, *wrong, not_written=own)


@pytest.mark.slow
async def test_exact_types_and_tolerances(runner: TestRunner, tmp_path: Path) -> None:
    tests = [
        test_of("exact", inputs={"x": {"$tuple": [3, 4]}}, expected_output={"$tuple": [3, 4]}, exact_types=True),
        test_of("exact list", inputs={"x": [3, 4]}, expected_output=[3, 4], exact_types=True),
        test_of("exact set", inputs={"x": {"$set": [3]}}, expected_output={"$set": [3]}, exact_types=True),
        test_of("rel", inputs={"x": [[1, {"a": 2.0}]]}, expected_output=[[1.0, {"a": 1.0}]], rel=0.5),
        test_of("abs", inputs={"x": {"$set": [1.0, 2.0]}}, expected_output={"$set": [1.4, 2.4]}, abs=0.5),
        test_of("int", inputs={"x": 2.0000000000000004}, expected_output=2.0),
    ]
    right = {"f": "def f(x): return x"}
    wrong = (
        "tuple(x) if isinstance(x, (list, tuple)) else x",
        "list(x) if isinstance(x, (tuple, set)) else x",
        "frozenset(x) if isinstance(x, set) else x",
        "3",
    )
    await agrees(runner, tmp_path, right, freeze({"f": tests}), *({"f": f"def f(x): return {each}"} for each in wrong))


ERRORS = """
import json
class Missing(LookupError): ...
class TimeoutError(Exception): ...
def f(x):
    class Hidden(Missing): ...
    if x == 0: raise Missing("No SUCH (thing) [x]")
    if x == 1: raise Hidden("\\u0130 and \\u00df")
    if x == 2: return json.loads("{")
    if x == 3: raise KeyError("it's")
    if x == 4: raise SystemExit(3)
    if x == 5: input()
    if x == 6: raise KeyboardInterrupt
    return f(x)
"""


@pytest.mark.slow
async def test_errors(runner: TestRunner, tmp_path: Path) -> None:
    expected = [
        (0, "Missing", "such (THING) ["), (0, "LookupError", None), (0, "LookupError", ""), (1, "Hidden", None),
        (1, "Missing", "\u0130 AND \u00df"), (2, "JSONDecodeError", "expecting"), (2, "ValueError", None), (3, "KeyError", "'s"),
        (4, "SystemExit", "3"), (5, "EOFError", None), (6, "KeyboardInterrupt", None), (7, "RecursionError", "maximum"),
    ]  # fmt: skip
    tests = [
        test_of(
            f"{number}", inputs={"x": x}, expected_error=name, **({} if message is None else {"error_message": message})
        )
        for number, (x, name, message) in enumerate(expected)
    ]
    wrong = (
        "return x",
        "raise ValueError('no')",
        "raise Missing('such (thing) [')",
        "raise KeyError('No such')",
        "import sys; sys.exit(3)",
    )
    codes = [{"f": f"class Missing(LookupError): ...\ndef f(x): {each}"} for each in wrong]
    await agrees(runner, tmp_path, {"f": ERRORS}, freeze({"f": tests}), *codes)


PROPERTIES = [
    ("result == x and len(x) == 2", [3, 4]), ("all(e in x for e in result)", [3]), ("math.isclose(sum(result), 7)", [3, 4]),
    ("not (lambda e: e)(result == 3)", [1]), ("(y := result) == x", [1]), ("result\t== x", [1]), ("(result ==\n x)", [1]),
    ("result == x # said", [1]), ("isinstance(result, list)  ", []), ("bool(result) or 1 == 1", []), ("result is not None", 3),
    ("result in (True, False) and type(result) is bool", True), ("[f for f in result] == x", [1]), ("result.x == 1", {"$object": {"type": "P", "fields": {"x": 1}}}),
    ("result.x == x.x", {"$object": {"type": "P", "fields": {"x": 1}}}), ("result == '\u202e\"\"\"'", "\u202e\"\"\""),
]  # fmt: skip


@pytest.mark.slow
async def test_properties(runner: TestRunner, tmp_path: Path) -> None:
    tests = [test_of(f"{number}", inputs={"x": x}, property=text) for number, (text, x) in enumerate(PROPERTIES)]
    right, *wrong = ({"f": f"def f(x): return {each}"} for each in ("x", "'w'", "None", "[5]", "0", "[x, x]"))
    await agrees(runner, tmp_path, right, freeze({"f": tests}), *wrong, not_written=["13", "14"])


@pytest.mark.slow
async def test_properties_see_the_inputs_as_they_were(runner: TestRunner, tmp_path: Path) -> None:
    tests = freeze({"add": [test_of(inputs={"x": [1], "add": 2}, property="result == x + [add]")]})
    right = {"add": "def add(x, add):\n    x.append(add)\n    return x"}
    await agrees(runner, tmp_path, right, tests, {"add": "def add(x, add): return x"})


@pytest.mark.slow
async def test_properties_with_names_that_the_file_uses(runner: TestRunner, tmp_path: Path) -> None:
    names = ["datetime", "run", "math", "same", "finished", "asyncio", "pytest", "solution", "given"]
    value = {"$tuple": [{"$date": "2024-02-29"}, {"$float": "inf"}]}
    text = "result[0] == {0}[0] and result[1] == {0}[1]"
    tests = {f"f_{name}": [test_of(name, inputs={name: value}, property=text.format(name))] for name in names}
    sources = {f"f_{name}": f"async def f_{name}({name}): return {name}" for name in names}
    wrong = {f"f_{name}": f"async def f_{name}({name}): return 2" for name in names}
    await agrees(
        runner, tmp_path, sources, freeze(tests), wrong, not_written=["datetime", "run", "math", "same", "pytest"]
    )


@pytest.mark.slow
async def test_properties_see_no_changes_of_the_code(runner: TestRunner, tmp_path: Path) -> None:
    texts = (
        "result == sum(range(x))",
        "result == math.sqrt(x * x * (x - 1) ** 2 / 4)",
        "f'{result}' == str(sum(range(x)))",
    )
    tests = [test_of(f"{text}, {x}", inputs={"x": x}, property=text) for text in texts for x in (4, 6)]
    wrong = (
        "import builtins\nbuiltins.sum = lambda *a: 0\ndef f(x): return 0",
        "import math\ndef f(x):\n    math.sqrt = lambda x: 1\n    return 1",
        "class A(int):\n    def __str__(self): return '6'\n    __format__ = lambda self, how: '6'\ndef f(x): return A(sum(range(x)))",
    )
    right = {"f": "def f(x): return sum(range(x))"}
    await agrees(runner, tmp_path, right, freeze({"f": tests}), *({"f": each} for each in wrong))


@pytest.mark.slow
async def test_arrays_stand_for_lists(runner: TestRunner, tmp_path: Path) -> None:
    array = {"$array": {"dtype": "int64", "shape": [2], "items": [1, 2]}}
    tests = [
        test_of("bool", inputs={"x": 1}, property="result == True"),
        test_of("expected bool", inputs={"x": 1}, expected_output=True),
        test_of("scalar", inputs={"x": 2}, expected_output=1.5),
        test_of("list", inputs={"x": 0}, expected_output=[1, 2]),
        test_of("same", inputs={"x": 0}, expected_output=array),
    ]
    right = {"f": "import numpy\ndef f(x): return [numpy.array([1, 2]), numpy.bool_(True), numpy.float32(1.5)][x]"}
    wrong = ("numpy.array([[1, 2]])", "numpy.array([1.0, 2.5])", "[1, 2]", "numpy.int64(1)", "(numpy.int8(1), 2)")
    codes = [{"f": f"import numpy\ndef f(x): return {each}"} for each in wrong]
    await agrees(runner, tmp_path, right, freeze({"f": tests}), *codes, not_written=["same"])


LIARS = """
import collections
class Yes:
    def __eq__(self, other): return True
    __hash__ = int.__hash__
class Items(list):
    def __eq__(self, other): return True
class Number(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
class Text(str):
    def __str__(self): return "yes"
Pair = collections.namedtuple("Pair", "x y")
class Wrong(Exception): ...
Wrong.__name__ = "Failed"
def f(what):
    if what == "ends":
        raise BaseException
    if what == "skips":
        import unittest
        raise unittest.SkipTest("no")
    return {
        "yes": Yes(), "items": Items(), "number": Number(3), "text": Text("no"), "in a list": [[Yes()]], "in a set": {Number(1)},
        "as a key": {True: 1, (True,): 2}, "in a tuple": ({(True,)}, 1), "pair": Pair(1, 2), "endless": iter(int, 1),
        "close": {1.4, 1.9}, "many": {n + 1e-12 for n in range(1, 90)},
    }[what]
"""


@pytest.mark.slow
async def test_no_value_passes_by_what_its_class_says(runner: TestRunner, tmp_path: Path) -> None:
    expected: dict[str, Any] = {
        "ends": None, "skips": None, "yes": 1, "items": [1], "number": 2, "text": "yes", "in a list": [[1]], "in a set": {"$set": [2]},
        "as a key": {"$dict": [[1, 1], [{"$tuple": [1]}, 2]]}, "in a tuple": {"$tuple": [{"$set": [{"$tuple": [1]}]}, 1]},
        "pair": [1, 3], "endless": [0], "many": {"$set": [*range(1, 90)]},
    }  # fmt: skip
    cases = [test_of(name, inputs={"what": name}, expected_output=data) for name, data in expected.items()]
    cases += [test_of(f"{name}: property", inputs={"what": name}, property="result == result and f'{result}' == 'yes'")
              for name in ("yes", "text", "number", "pair")]  # fmt: skip
    cases.append(test_of("close", inputs={"what": "close"}, expected_output={"$set": [1.0, 1.4]}, abs=0.5))
    cases.append(test_of("exact", inputs={"what": "pair"}, expected_output={"$tuple": [1, 2]}, exact_types=True))
    cases.append(test_of("no error", inputs={"what": "endless"}, expected_error="Failed"))
    sources = {"f": LIARS}
    judged = {("f", each.test): each.passed for each in await runner.run(sources, freeze({"f": cases}))}
    assert not any(judged.values())
    assert run_pytest(tmp_path, sources, freeze({"f": cases})) == judged


STATE = """
import functools, os, random, time, decimal, sys, asyncio
CALLS = []
count = 0
def f(x=0, seen=[]):
    global count
    count += 1
    CALLS.append(x)
    seen.append(x)
    f.calls = getattr(f, "calls", 0) + 1
    os.environ["COUNT"] = os.environ.get("COUNT", "") + "x"
    decimal.getcontext().prec += 1
    with open("log", "a") as file: file.write("x")
    size = os.path.getsize("log")
    patched = time.strftime("%Y") == "now"
    time.strftime = lambda *a: "now"
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    return [count, len(CALLS), len(seen), f.calls, os.environ["COUNT"], decimal.getcontext().prec, size, patched, sys.getrecursionlimit() > 1]
@functools.cache
def made(): return []
def g(x):
    made().append(x)
    return made()
"""


@pytest.mark.slow
async def test_each_test_begins_in_a_clean_state(runner: TestRunner, tmp_path: Path) -> None:
    expected = [1, 1, 1, 1, "x", 29, 1, False, True]
    tests = {"f": [test_of(f"{number}", inputs={"x": number}, expected_output=expected) for number in range(4)]}
    tests["g"] = [test_of(f"{number}", inputs={"x": number}, expected_output=[number]) for number in range(4)]
    sources = {"f": STATE, "g": "def g(x):\n    made().append(x)\n    return made()"}
    sources["f"] = STATE.split("def g")[0]
    await agrees(runner, tmp_path, sources, freeze(tests), {**sources, "f": sources["f"] + "\nf = lambda x: x"})


@pytest.mark.slow
async def test_steps(runner: TestRunner, tmp_path: Path) -> None:
    point = {"call": "Point", "args": [3], "name": "p"}
    tests = [
        test_of("an object", inputs={"x": {"$name": "p"}}, setup=[point], expected_output=3),
        test_of(
            "its attribute",
            inputs={"x": {"$name": "p"}},
            setup=[point, {"assign": "p.x", "value": 4}],
            expected_output=4,
        ),
        test_of(
            "its method", inputs={"x": {"$name": "p"}}, then=[{"call": "p.half"}], setup=[point], expected_output=1.5
        ),
        test_of("a call", inputs={"x": 1}, setup=[{"call": "keep", "args": [5]}], expected_output=6),
        test_of("no call", inputs={"x": 1}, expected_output=1),
        test_of("a file", inputs={"x": "a/b"}, setup=[{"file": "a/b", "text": "12"}], expected_output=12),
        test_of("input", inputs={"x": "-"}, setup=[{"file": "-", "text": "7\n"}], expected_output=7),
        test_of("no input", inputs={"x": "-"}, expected_error="EOFError"),
    ]
    right = {
        "keep": "STATE = {}\ndef keep(n): STATE['more'] = n",
        "f": "class Point:\n    def __init__(self, x): self.x = x\n    def half(self): return self.x / 2\n"
        "def f(x):\n    if isinstance(x, str): return int(input() if x == '-' else __import__('pathlib').Path(x).read_text())\n"
        "    return getattr(x, 'x', x) + STATE.get('more', 0)",
    }
    wrong = {**right, "f": right["f"].replace("getattr(x, 'x', x)", "1")}
    await agrees(runner, tmp_path, right, freeze({"f": tests}), wrong)


@pytest.mark.slow
async def test_it_judges_as_strictly(runner: TestRunner, tmp_path: Path) -> None:
    values = {
        "0.0": {"$float": "nan"}, "-9e-13": 1.6e-19, "10.0 ** 17": 10**17 + 1, "1e-17": 0, "3.0000000001": 3, "True": 1, "1": True,
        "354224848179261915075.0": 354224848179261915075, "(1, 2)": [1, 2], "[1, 2]": {"$tuple": [1, 2]}, "3.97e-19": 0.0, "0": 3.97e-19,
    }  # fmt: skip
    tests = {f"f{number}": [test_of("one", expected_output=value)] for number, value in enumerate(values.values())}
    sources = {f"f{number}": f"def f{number}(): return {code}" for number, code in enumerate(values)}
    judged = [each.passed for each in await runner.run(sources, freeze(tests))]
    assert [code for code, passed in zip(values, judged, strict=True) if passed] == ["(1, 2)", "3.97e-19"]
    assert [*run_pytest(tmp_path, sources, freeze(tests)).values()] == judged


@pytest.mark.slow
async def test_coroutines(runner: TestRunner, tmp_path: Path) -> None:
    sources = {
        "f": "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x",
        "g": "def g(x): return f(x) if x else 0",
        "h": "def odd(function): return lambda x: 5\n@odd\nasync def h(x): return x",
    }
    tests = {
        name: [test_of("zero", inputs={"x": 0}, expected_output=0), test_of("two", inputs={"x": 2}, expected_output=2)]
        for name in "fg"
    }
    tests["h"] = [test_of(inputs={"x": 1}, expected_output=5)]
    wrong = {**sources, "f": "async def f(x): return 'wrong'"}
    await agrees(runner, tmp_path, sources, freeze(tests), wrong)


NAMES = [
    "it's \"odd\"", '"""', "a\nb", "a b", "a-b", "A b", "größer als 0", "\u202e\u2028\x0c\r", "x" * 300, "x" * 299, "   ", "日本",
    "# coding: latin-1", "\\", "{}%s", "1", "\t",
]  # fmt: skip


@pytest.mark.slow
async def test_no_name_hides_a_test(runner: TestRunner, tmp_path: Path) -> None:
    functions = ("solution", "test_x", "Test", "set", "same", "pytest", "result")
    value = {"$set": [1.5]}
    tests = {
        function: [test_of(name, inputs={"x": value}, expected_output=value) for name in NAMES[number::2]]
        for number, function in enumerate(functions)
    }
    tests["other"] = [
        test_of("1 a", inputs={"x": 1}, expected_output=3),
        test_of("one", inputs={"x": 1}, property="result == 3"),
    ]
    tests["other_1"] = [
        test_of("a", inputs={"x": 1}, expected_output=3),
        test_of("set", inputs={"x": 1}, expected_error="TypeError"),
    ]
    sources = {
        **{function: f"def {function}(x): return x" for function in functions},
        "other": "def other(x): return 3",
        "other_1": "TestError = TypeError\ndef other_1(x):\n    return 3",
    }
    tests["other_1"].pop()
    wrong = {name: source.split("return")[0] + "return {1}" for name, source in sources.items()}
    await agrees(runner, tmp_path, sources, freeze(tests), wrong)


def test_it_defines_no_name_twice() -> None:
    tests = {"f": [test_of(expected_output=1)]}
    tree = ast.parse(PythonLanguage().write_tests(tests, "solution", [spec("f")])["test_solution.py"])
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            names += [each.id for each in stored if isinstance(each.ctx, ast.Store)]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"TYPE_CHECKING", "CASES"}


def test_it_runs_in_a_package_beside_tests_of_the_same_module(tmp_path: Path) -> None:
    source = "import logging\nlogging.basicConfig(level=10)\ndef f(): return logging.getLogger().isEnabledFor(10)\n"
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "solution.py").write_text(source)
    tests = {"f": [test_of(inputs={}, expected_output=True)]}
    for name, text in PythonLanguage().write_tests(tests, "solution", [spec("f")]).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test_zz.py").write_text(
        "import sys\nsys.path.insert(0, __file__.rpartition('/')[0])\nimport solution\n"
        "def test_it(): assert sys.modules['solution'] is solution\n"
    )
    done = subprocess.run(
        [sys.executable, *PYTEST, "--import-mode=importlib"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert b"2 passed" in done.stdout, done.stdout
