# ruff: noqa: E501 (data, a test to a line)
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coderoom.generation import Language, PythonLanguage, encode, freeze
from coderoom.judge.harness import run_inside
from tests.support.commands import PYTEST

from .examples import test_of

RIGHT = """
import math
class Missing(LookupError): ...
def f(x, y=1):
    if x == "missing":
        raise Missing("there is no such thing")
    return x
"""
TESTS = [
    test_of("a number", inputs={"x": 0.1 + 0.2}, expected_output=0.3),
    test_of("it's \"odd\"\n", inputs={"x": {"$tuple": [1, {"$set": [2]}]}}, expected_output={"$tuple": [1, {"$set": [2]}]}),
    test_of("json", inputs={"x": {"$tuple": [1]}}, expected_output=[1]),
    test_of("nan", inputs={"x": {"$float": "nan"}}, expected_output={"$float": "nan"}),
    test_of("inf", inputs={"x": [{"$float": "-inf"}]}, expected_output=[{"$float": "-inf"}]),
    test_of("none", inputs={"x": None}, expected_output=None),
    test_of("true", inputs={"x": True}, expected_output=True),
    test_of("keys", inputs={"x": {"$dict": [[1, {"$bytes": "aGk="}]]}}, expected_output={"$dict": [[1, {"$bytes": "aGk="}]]}),
    test_of("decimal", inputs={"x": {"$decimal": "1.10"}}, expected_output={"$decimal": "1.1"}),
    test_of("date", inputs={"x": {"$date": "2024-02-29"}}, expected_output={"$date": "2024-02-29"}),
    test_of("error", inputs={"x": "missing"}, expected_error="Missing", error_message="No such"),
    test_of("a base", inputs={"x": "missing"}, expected_error="LookupError"),
    test_of("property", inputs={"x": [1, 2]}, property="result == x and math.pi > 3 and all(e in x for e in result)"),
    test_of("setup", inputs={"x": {"$name": "y"}}, setup=[{"assign": "y", "value": 4}], property="result > 3"),
]  # fmt: skip


def run_pytest(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "solution.py").write_text(source)
    for name, text in PythonLanguage().write_tests(freeze({"f": TESTS}).tests, "solution").items():
        (folder / name).write_text(text)
    command = [sys.executable, *PYTEST, "test_solution.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_tests_are_written_for_pytest(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, RIGHT)
    assert f"{len(TESTS)} passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_written_tests_fail_where_the_code_is_wrong(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "import math\nclass Missing(LookupError): ...\ndef f(x, y=1): return 'wrong'")
    assert f"{len(TESTS)} failed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("expected", "types", "base", "matches"),
    [
        ("ValueError", [], "ValueError", True),
        ("Exception", [], "ValueError", True),
        ("ValueError", ["JSONDecodeError"], "ValueError", True),
        ("JSONDecodeError", ["JSONDecodeError"], "ValueError", True),
        ("OSError", [], "FileNotFoundError", True),
        ("KeyError", [], "ValueError", False),
        ("KeyError", ["KeyError"], "ValueError", False),
        ("Own", ["Own"], "nothing", False),
        ("Own", ["Own"], "print", False),
        ("object", [], "ValueError", True),
    ],
)
def test_one_line_of_classes_counts(expected: str, types: list[str], base: str, matches: bool) -> None:
    assert PythonLanguage().error_matches(expected, types, base) is matches


def test_nothing_in_a_job_is_code() -> None:
    nasty = '\'); import os; os._exit(3) #\n""" \\ {} \ud83d\ude00 \0'
    cell = run_inside("batches", "alone", 1_000, {"function": "f", "inputs": {"x": encode(nasty)}})
    assert "\n" not in cell
    compile(cell, "cell", "eval")


def test_names() -> None:
    language: Language = PythonLanguage()
    assert language.name_problem("f") is None
    assert language.name_problem("import")
    found: Any = (language.name, language.suffix)
    assert found == ("python", ".py")


def test_what_asks_for_the_future_goes_to_the_top_and_takes_nothing_with_it() -> None:
    source = (
        "from __future__ import annotations; K = 2\nfrom __future__ import (\n    division,\n)\n\ndef f(): return K\n"
    )
    text = PythonLanguage().write_module({"f": source}, "About.")
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["f"]() == 2
    assert text.count("__future__") == 1
