from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, JavaScriptLanguage, PythonLanguage, Solution, report_markdown
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

DOUBLE = """\
import math

LIMIT = 100
SEEN = {}


class Big(ValueError):
    pass


def _checked(x):
    if x > LIMIT:
        raise Big(x)
    return x


def double(x):
    return 2 * _checked(x)
"""
FOUR = "def four(x):\n    return double(double(x))\n"


def without(source: str) -> tuple[str, list[str]]:
    return PythonLanguage().without_repeats(source, {"double": DOUBLE})


@pytest.mark.parametrize(
    "repeat",
    [
        "def double(x):\n    return x + x\n",
        "async def double(x):\n    return x + x\n",
        "class double:\n    pass\n",
        "@print\n@(\n    print\n)\ndef double(x, y=print(1)) -> print(2):\n"
        "    '''\n    Text.\n\n    '''\n    return 7  # .\n",
        "def double(x): return 7\n\n\n\n\n",
        "def double(x): return 7\ndef double(x): return 8\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_function_that_is_there_is_not_defined_again(repeat: str, end: str) -> None:
    before, after = (f"import math\n\n{repeat}\n{FOUR}", f"{FOUR}\n{repeat}")
    for source in (before, after):
        text, names = without(source.replace("\n", end))
        assert text.replace("import math", "").strip() == FOUR.strip()
        assert set(names) == {"double"}


def test_what_stands_beside_it_goes_with_it() -> None:
    source = DOUBLE.replace("> LIMIT", ">= LIMIT").replace("100", "50") + FOUR
    text, names = without(source)
    assert text == f"import math\n\n{FOUR}"
    assert set(names) == {"LIMIT", "SEEN", "Big", "_checked", "double"}


def test_what_is_the_same_is_used_by_both() -> None:
    text, names = without(f"{DOUBLE}\n\ndef four(x):\n    return double(_checked(x)) if x < LIMIT else Big\n")
    assert text == "import math\n\ndef four(x):\n    return double(_checked(x)) if x < LIMIT else Big\n"
    assert "_checked" in names


@pytest.mark.parametrize(
    ("own", "use"),
    [
        ("LIMIT = 50", "LIMIT"),
        ("SEEN = {}", "SEEN"),  # Each of both would find in it what the other one has put there.
        ("class Big(ValueError):\n    x = 1", "Big"),
        ("def _checked(x):\n    return x", "_checked"),
    ],
)
def test_what_differs_and_is_used_stays_to_be_refused(own: str, use: str) -> None:
    source = f"{own}\n\n\ndef double(x):\n    return 7\n\n\ndef four(x):\n    return {use}\n"
    text, names = without(source)
    assert text == f"{own}\n\n\ndef four(x):\n    return {use}\n"
    assert names == ["double"]


@pytest.mark.parametrize(
    "source",
    [
        FOUR,
        "def four(x):\n    def double(x): ...\n    return double(x)",
        "double = lambda x: 7\n" + FOUR,
        "from math import sqrt as double\n" + FOUR,
        "if True:\n    def double(x): ...\n" + FOUR,
        "try:\n    double\nexcept NameError:\n    def double(x): ...\n" + FOUR,
        "LIMIT = 3; OTHER = 4\n" + FOUR,
        "double(",
        "\0",
        "-" * 100_000 + "1",
    ],
)
def test_nothing_else_is_touched(source: str) -> None:
    assert without(source) == (source, [])
    assert JavaScriptLanguage().without_repeats(source, {"double": "function double(x) {}"}) == (source, [])


DOUBLE_TESTS = [test("two", 4, x=2), test("zero", 0, x=0), {**test("big", 0, x=101), "expected_error": "Big"}]
del DOUBLE_TESTS[2]["expected_output"]
FOUR_TESTS = [test("three", 12, x=3), test("none", 0, x=0), test("one", 4, x=1)]


async def solved(
    sandbox: Sandbox, four: Any, repair: Sequence[Any] = ("No.",), of_four: Sequence[Any] = FOUR_TESTS
) -> tuple[Solution, ScriptedModel]:
    model = ScriptedModel(
        [function("four", needs=["double"]), function("double")],
        {"double": DOUBLE_TESTS, "four": of_four},
        {"double": DOUBLE, "four": four},
        {"four": list(repair)},
    )
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False, max_attempts=2, block_severity=None)
    return await generator.generate_solution("Four times a number."), model


@pytest.mark.slow
async def test_an_answer_that_repeats_a_function_costs_no_further_question(default_sandbox: Sandbox) -> None:
    solution, model = await solved(default_sandbox, f"{DOUBLE}\n\n{FOUR}")
    assert solution.all_tests_passed
    assert model.count("repair", "four") == 0
    assert solution.implementations["double"].strip() == DOUBLE.strip()
    assert "def double" not in solution.implementations["four"]
    (attempt,) = solution.functions[1].attempts
    assert "its own 'double' was removed; the tested function is used" in attempt.notes
    assert "was removed; the tested function is used" in report_markdown(solution)


@pytest.mark.slow
async def test_the_model_learns_of_it_where_the_code_fails(default_sandbox: Sandbox) -> None:
    own = "def double(x, times=2):\n    return x * times\n\n\ndef four(x):\n    return double(x, times=4)"
    solution, model = await solved(default_sandbox, own, [f"```python\n{FOUR}```"])
    assert solution.all_tests_passed
    assert "Note: its own 'double' was removed" in model.questions[-1]


EVIL = "lambda x: x"
WRONG = "def four(x):\n    return double(x)\n"
OTHER_WAYS = {
    "defines it": f"def double(x):\n    return ({EVIL})(x)",
    "decorates it": "import sys\n\n\ndef put(f):\n    sys.modules['__main__'].double = f\n    return f\n\n\n@put\n"
    f"def double(x):\n    return ({EVIL})(x)",
    "gives it defaults": f"def double(x, y=globals().update(double={EVIL})):\n    return x",
    "defines it twice": f"def double(x):\n    return 1\n\n\ndef double(x):\n    return ({EVIL})(x)",
    "defines it under a condition": f"if True:\n    def double(x):\n        return ({EVIL})(x)",
    "assigns it": f"def double(x):\n    return 1\n\n\ndouble = {EVIL}",
    "assigns it in an expression": f"_ = (double := {EVIL})",
    "assigns it in a default": f"def helper(_=(double := {EVIL})):\n    pass",
    "assigns it in a decorator": f"@(double := {EVIL})\ndef helper():\n    pass",
    "assigns it in a class": f"class Helper((double := {EVIL}) and object):\n    pass",
    "imports it": "from operator import pos as double",
    "changes what it uses": "LIMIT = 1000\n\n\ndef helper():\n    return LIMIT",
    "changes what it calls": "def _checked(x):\n    return x / 2\n\n\ndef helper():\n    return _checked",
    "repeats it beside": f"def double(x):\n    return 1\n\n\n_ = globals().__setitem__('double', {EVIL})",
    "repeats it beside by code": (
        "def double(x):\n    return 1\n\n\ndef other(x):\n    return x / 2\n\n\n"
        "_ = setattr(globals()['double'], '__code__', other.__code__)"
    ),
}


QUICK = ("defines it",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in OTHER_WAYS]
)
async def test_a_repeat_cannot_take_the_place_of_what_was_tested(default_sandbox: Sandbox, name: str) -> None:
    # Right only if `double` does not double any more.
    of_four = [test("three", 3, x=3), test("none", 0, x=0), test("one", 1, x=1)]
    solution, _ = await solved(default_sandbox, f"{OTHER_WAYS[name]}\n\n\n{WRONG}", of_four=of_four)
    assert not solution.all_tests_passed
    assert not solution.functions[1].passed or not solution.functions[0].passed
    if "beside" not in name:
        assert solution.functions[0].passed, "what was tested is as it was"
        assert not solution.functions[1].passed
