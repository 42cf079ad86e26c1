"""Writes the tests of a Python module: a pytest file that a person reads, and two modules that it uses.

The tests judge by the same code as CodeRoom does: one of the modules contains what makes calls and compares values.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from coderoom.generation.languages import MARK
from coderoom.generation.languages.python.literals import (
    MODULES,
    Group,
    call_of,
    dict_literal,
    inputs_literal,
    laid_out,
    literal,
    text_literal,
)

if TYPE_CHECKING:
    from coderoom.judge import FunctionTest, Step

# What the judging module contains, in this order: packages and modules. No two of them define the same name.
_PARTS = (
    ("coderoom.sandbox.guest", "encoding"),
    ("coderoom.sandbox.guest", "decoding"),
    ("coderoom.judge.guest", "values"),
    ("coderoom.judge.guest", "steps"),
    ("coderoom.judge.guest", "calls"),
    ("coderoom.judge", "values"),
)
_OWN = ("from .", "from coderoom.", "from __future__ ")  # Imports that it does not need.

_CHECKS = '''\
"""What the tests of {module} use. {mark}."""

from __future__ import annotations

import builtins
import decimal
import importlib
import io
import json
import logging
import math
import os
import random
import sys

import pytest
from {judge} import Encoder, Record, answer_now, budget, canonical, compare, error_matches, show, space  # noqa: F401

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), {folder!r}))
MODULE = {module!r}
FUNCTIONS = {functions!r}
PROPERTIES = {properties!r}
ROOT = logging.getLogger()
KEPT = [(each, dict(vars(each))) for each in (builtins, math)]  # Before the program changes them.


@pytest.fixture
def program(monkeypatch, tmp_path):
    """The functions of the module, imported again for each test, which starts in an empty folder and without input.

    What a test changes elsewhere is restored: the environment, and the modules that the program imports.
    """
    environ, limit, numbers = dict(os.environ), sys.getrecursionlimit(), random.getstate()
    handlers, level = [each for each in ROOT.handlers if not of_pytest(each)], ROOT.level
    ROOT.handlers = []  # As in a script: `logging.basicConfig` does nothing if there are some.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr("builtins.input", input)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    modules = []
    try:
        found = importlib.import_module(MODULE)
        modules += [(each, dict(vars(each))) for each in vars(found).values() if type(each) is type(sys)]
        with decimal.localcontext():
            yield Program()
    finally:
        for module, names in modules:
            for name in [each for each in vars(module) if each not in names]:
                delattr(module, name)
            vars(module).update(names)
        sys.setrecursionlimit(limit)
        random.setstate(numbers)
        os.environ.clear()
        os.environ.update(environ)
        ROOT.handlers = [*filter(of_pytest, ROOT.handlers), *handlers]
        ROOT.setLevel(level)


def of_pytest(handler):
    return type(handler).__module__.startswith("_pytest.")


class Program:
    """`program.f(x=1)` is a call of the function `f`."""

    def __getattribute__(self, name):
        return lambda **inputs: Call(name, inputs)


class Call:
    """A call of the program. It is made once, when something asks what came of it."""

    __hash__ = None

    def __init__(self, function, inputs):
        self.job = {{"function": function, "inputs": {{name: as_data(value) for name, value in inputs.items()}}}}
        if '"$name"' in json.dumps(self.job["inputs"]):
            self.job["functions"] = FUNCTIONS
        self.report = None

    def after(self, *steps):
        """The call, with steps before it."""
        self.job.update(functions=FUNCTIONS, setup=steps)
        return self

    def then(self, *steps):
        """The call, with steps after it, the last of which gives the result."""
        self.job.update(functions=FUNCTIONS, then=steps)
        return self

    def __eq__(self, expected):
        return self.equals(expected)

    def equals(self, expected, **how):
        """Whether it returned a value: exactly (`exact_types=True`), or within a tolerance (`rel`, `abs`)."""
        report = self.made()
        if "error" in report:
            return False
        return compare(as_data(expected), report["value"], **{{"exact_types": False, **how}}).equal

    def raises(self, error, message=""):
        """Whether it raised an exception of this class, or of one derived from it, with this text in its message."""
        raised = self.made().get("error")
        if raised is None or not error_matches(error, raised["types"], raised["base"]):
            return False
        return message.lower() in raised["message"].lower()

    def satisfies(self, text):
        """Whether an expression is true of what it returned. It sees copies of `result`, the inputs, and `after`."""
        more = PROPERTIES[text]
        report = self.made(judged=more["judged"], **{{"after": True}} if more["after"] else {{}})
        if "error" in report:
            return False
        inputs = {{name: data for name, data in self.job["inputs"].items() if '"$name"' not in json.dumps(data)}}
        job = {{"property": text, "result": report["value"], "inputs": inputs}}
        if "after" in report:
            job["after"] = report["after"]
        return json.loads(answer_now(job)).get("value") is True

    def made(self, **more):
        if self.report is None:
            space["program"] = MODULE
            budget["text"] = sys.maxsize
            ROOT.handlers = [each for each in ROOT.handlers if not of_pytest(each)]
            text = answer_now({{**self.job, **more}})
            for module, names in KEPT:  # What properties see.
                for name in [each for each in module.__dict__ if each not in names]:
                    del module.__dict__[name]
                module.__dict__.update(names)
            self.report = json.loads(text)
        return self.report

    def __repr__(self):
        said = ", ".join(f"{{name}}={{show(data)}}" for name, data in self.job["inputs"].items())
        report = self.made()
        if "error" in report:
            raised = report["error"]
            came = f"which raised {{[*raised['types'], raised['base']][0]}}: {{raised['message'][:300]}}"
        else:
            came = f"which returned {{show(report['value'])}}"
        return f"{{self.job['function']}}({{said}}), {{came}}"


def step(**what):
    """A step before or after a call: another call, an assignment, or a file."""
    for kind in {{"args", "kwargs", "value"}} & what.keys():
        several = what[kind]
        if kind == "args":
            what[kind] = [as_data(each) for each in several]
        elif kind == "kwargs":
            what[kind] = {{name: as_data(each) for name, each in several.items()}}
        else:
            what[kind] = as_data(several)
    return what


class Tagged:
    """A value that stands for an object: an array, a member of an enumeration, an object of a step."""

    def __init__(self, data):
        self.data = data

    def __eq__(self, other):
        return type(other) is Tagged and self.data == other.data

    def __hash__(self):
        return hash(canonical(self.data))

    def __repr__(self):
        return show(self.data)


tagged = Tagged


def the(name):
    """An object that a step has made, or a function of the program."""
    return Tagged({{"$name": name}})


def as_data(value):
    encoder = Encoder()
    encoder._exact[Tagged] = lambda each: each.data
    return encoder.encode(value)
'''

_JUDGE = '''\
"""CodeRoom's own code that makes calls and compares values. {mark}."""

from __future__ import annotations

{imports}

{support}'''

_TESTS = '''\
"""Tests of {module}. Run them with: pytest {name}.py"""

{imports}

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from {checks} import {names}  # noqa: E402
{tests}'''


def pytest_files(tests: Mapping[str, Sequence[FunctionTest]], module: str, functions: Sequence[str]) -> dict[str, str]:
    """See `Language.write_tests`; steps may call the functions."""
    folder, _, module = module.rpartition("/")
    name, checks, judge = f"test_{module}", f"{module}_checks", f"{module}_judge"
    taken: set[str] = set()
    text = "".join(
        f"\n\n{each}\n" for function, several in tests.items() for each in _tests_of(function, several, taken)
    )
    used = ["os", "sys", *(each for each in MODULES if f"{each}." in text)]
    names = ["program", *(each for each in ("Record", "step", "tagged", "the") if f"{each}(" in text)]
    properties = {
        each.property: {"judged": each.judges_by, "after": each.sees_after}
        for several in tests.values()
        for each in several
        if each.property is not None
    }
    imports, support = _support()
    imported = "\n".join(f"import {each}" for each in sorted(used))
    return {
        f"{name}.py": _TESTS.format(
            module=module, name=name, checks=checks, tests=text, imports=imported, names=", ".join(sorted(names))
        ),
        f"{checks}.py": _CHECKS.format(
            mark=MARK, folder=folder, module=module, judge=judge, functions=[*functions], properties=properties
        ),
        f"{judge}.py": _JUDGE.format(mark=MARK, imports=imports, support=support),
    }


def _tests_of(function: str, tests: Sequence[FunctionTest], taken: set[str]) -> Iterator[str]:
    """The tests of a function: those that expect an output in one table, errors in another one, and all others."""
    plain = [each for each in tests if not each.setup and not each.then]
    outputs = [each for each in plain if each.expects == "output" and not _how(each)]
    errors = [each for each in plain if each.expects == "error"]
    if outputs:
        rows = [_row(each, literal(each.expected_output)) for each in outputs]
        check = "call == expected"
        yield _table(_free(f"test_{function}", taken), function, ("inputs", "expected"), rows, check)
    if errors:
        rows = [_row(each, *map(text_literal, (str(each.expected_error), each.error_message or ""))) for each in errors]
        check = "call.raises(error, message)"
        name = _free(f"test_{function}_raises", taken)
        yield _table(name, function, ("inputs", "error", "message"), rows, check)
    for each in tests:
        if each not in outputs and each not in errors:
            words = "_".join(re.findall(r"[a-z0-9]+", each.name.lower()))[:60].strip("_")
            yield _alone(_free(f"test_{function}_{words}".rstrip("_"), taken), function, each)


def _free(name: str, taken: set[str]) -> str:
    """The name, or the next one like it that no other test has."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    found = next(each for each in names if each not in taken)
    taken.add(found)
    return found


def _how(test: FunctionTest) -> list[str]:
    """How the output is compared, if not as usual."""
    given = {"rel": test.rel, "abs": test.abs, "exact_types": test.exact_types or None}
    return [f"{name}={value!r}" for name, value in given.items() if value is not None]


def _row(test: FunctionTest, *expected: Group | str) -> Group:
    return call_of("pytest.param", inputs_literal(test.inputs), *expected, f"id={text_literal(test.name)}")


def _table(name: str, function: str, columns: Sequence[str], rows: Sequence[Group], check: str) -> str:
    table = "\n".join(laid_out(row, 8, after=",") for row in rows)
    names = ", ".join(f'"{each}"' for each in columns)
    return (
        f"@pytest.mark.parametrize(\n    ({names}),\n    [\n{table}\n    ],\n)\n"
        f"def {name}(program, {', '.join(columns)}):\n    call = program.{function}(**inputs)\n    assert {check}"
    )


def _alone(name: str, function: str, test: FunctionTest) -> str:
    lines = [f"def {name}(program):", f"    {_documented(test.name)}"]
    lines.append(laid_out(inputs_literal(test.inputs), 4, "inputs = "))
    call = f"program.{function}(**inputs)"
    for word, steps in (("after", test.setup), ("then", test.then)):
        if steps:
            lines.append(laid_out(Group("[", [*map(_step, steps)], "]"), 4, f"{word} = "))
            call += f".{word}(*{word})"
    lines.append(f"    call = {call}")
    if test.expects == "property":
        lines.append(laid_out(call_of("assert call.satisfies", text_literal(test.property or "")), 4))
    elif test.expects == "error":
        said = [text_literal(each) for each in (test.expected_error, test.error_message) if each]
        lines.append(laid_out(call_of("assert call.raises", *said), 4))
    elif how := _how(test):
        lines.append(laid_out(call_of("assert call.equals", literal(test.expected_output), *how), 4))
    else:
        lines.append(laid_out(literal(test.expected_output), 4, "assert call == "))
    return "\n".join(lines)


def _documented(name: str) -> str:
    source = text_literal(name)
    return f'"""{name}"""' if source[1:-1] == name and '"' not in name else source


def _step(step: Step) -> Group:
    arguments: list[Group | str] = []
    for name, value in step.model_dump(mode="json").items():
        if name == "args":
            source: Group | str = Group("[", [*map(literal, value)], "]")
        elif name == "kwargs":
            source = dict_literal((text_literal(key), item) for key, item in value.items())
        else:
            source = literal(value) if name == "value" else text_literal(value)
        if isinstance(source, Group):
            arguments.append(Group(f"{name}={source.opening}", source.parts, source.closing, source.is_tuple))
        else:
            arguments.append(f"{name}={source}")
    return call_of("step", *arguments)


@functools.cache
def _support() -> tuple[str, str]:
    """The imports and the code of the modules that the module beside the tests contains."""
    imports = set()
    parts = []
    for package, name in _PARTS:
        source = (resources.files(package) / f"{name}.py").read_text("utf-8")
        lines = source.split("\n")
        body = ast.parse(source).body
        imported = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        imports |= {each for each in map(ast.unparse, imported) if not each.startswith(_OWN)}
        named = [node for node in body if lines[node.lineno - 1].startswith("__all__ =")]
        left_out = {
            number
            for node in (body[0], *imported, *named)
            for number in range(node.lineno - 1, node.end_lineno or node.lineno)
        }
        parts.append("\n".join(line for number, line in enumerate(lines) if number not in left_out).strip("\n"))
    return "\n".join(sorted(imports)) + "\n", "\n\n\n".join(parts) + "\n"
