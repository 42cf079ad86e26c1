"""Writes the tests of a Python module: a generic pytest file, and the cases as JSON.

The file judges by the same code as CodeRoom does: it contains the modules that make calls and compare values.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from coderoom.judge.harness import job_of

if TYPE_CHECKING:
    from coderoom.judge import FunctionTest

# What the file contains, in this order: packages and modules. No two of them define the same name.
_PARTS = (
    ("coderoom.sandbox.guest", "encoding"),
    ("coderoom.sandbox.guest", "decoding"),
    ("coderoom.judge.guest", "values"),
    ("coderoom.judge.guest", "steps"),
    ("coderoom.judge.guest", "calls"),
    ("coderoom.judge", "values"),
)
_OWN = ("from .", "from coderoom.", "from __future__ ")  # Imports that it does not need.

_FILE = '''\
"""Tests of {module}: run them with pytest. The cases are in {cases}."""

from __future__ import annotations

{imports}
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, {folder!r}))  # pytest does this in only some of its import modes.
MODULE = {module!r}
with open(os.path.join(HERE, {cases!r}), encoding="utf-8") as file:
    CASES = json.load(file)["cases"]
ROOT = logging.getLogger()
KEPT = [(each, dict(vars(each))) for each in (builtins, math)]  # Before the program changes them.


@pytest.fixture
def program(monkeypatch, tmp_path):
    """The module, imported again for each test, which starts in an empty folder and without input.

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
            yield found
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{{case['function']}}: {{case['test']['name']}}")
def test_case(program, case):
    space["program"] = MODULE
    budget["text"] = sys.maxsize
    ROOT.handlers = [each for each in ROOT.handlers if not of_pytest(each)]
    report = answer_now(case["job"])
    for module, names in KEPT:  # What properties see.
        for name in [each for each in module.__dict__ if each not in names]:
            del module.__dict__[name]
        module.__dict__.update(names)
    why = why_wrong(case["test"], json.loads(report))
    if why:
        pytest.fail(why, pytrace=False)


def why_wrong(test, report):
    """Why what a call returned or raised is wrong; empty if it is right."""
    raised = report.get("error")
    if raised is None:
        said = f"it returned {{show(report['value'])}}"
    else:
        said = f"it raised {{[*raised['types'], raised['base']][0]}}: {{raised['message'][:300]}}"
    expected = test.get("expected_error")
    if expected is not None:
        if raised is None or not error_matches(expected, raised["types"], raised["base"]):
            return f"expected {{expected}}, but {{said}}"
        message = test.get("error_message", "")
        found = message.lower() in raised["message"].lower()
        return "" if found else f"expected {{expected}} with {{message!r}} in its message, but {{said}}"
    if raised is not None:
        return said
    if "property" in test:
        inputs = {{name: data for name, data in test["inputs"].items() if '"$name"' not in json.dumps(data)}}
        job = {{"property": test["property"], "result": report["value"], "inputs": inputs}}
        if "after" in report:
            job["after"] = report["after"]
        found = json.loads(answer_now(job))
        return "" if found.get("value") is True else f"the property {{test['property']!r}} does not hold: {{said}}"
    given = {{name: test[name] for name in ("rel", "abs") if name in test}}
    return compare(test["expected_output"], report["value"], exact_types=test.get("exact_types", False), **given).why


# The rest is CodeRoom's code that makes calls and compares what they return.

{support}'''


def pytest_files(tests: Mapping[str, Sequence[FunctionTest]], module: str, functions: Sequence[str]) -> dict[str, str]:
    """See `Language.write_tests`; steps may call the functions."""
    folder, _, module = module.rpartition("/")
    name = f"test_{module}"
    imports, support = _support()
    cases = [
        {"function": function, "test": test.model_dump(mode="json"), "job": job_of(function, test, functions)}
        for function, several in tests.items()
        for test in several
    ]
    data = {"about": f"Written by CodeRoom: the cases of {name}.py.", "cases": cases}
    return {
        f"{name}.py": _FILE.format(
            folder=folder, module=module, cases=f"{name}.json", imports=imports, support=support
        ),
        f"{name}.json": json.dumps(data, indent=1, ensure_ascii=False) + "\n",
    }


@functools.cache
def _support() -> tuple[str, str]:
    """The imports and the code of the modules that the file contains."""
    imports = {
        f"import {name}"
        for name in ("builtins", "decimal", "importlib", "io", "json", "logging", "math", "os", "random", "sys")
    }
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
