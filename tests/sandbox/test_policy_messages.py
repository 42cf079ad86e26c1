"""What the policies are, and what `restricted` says to the author of the code."""

from __future__ import annotations

import ast
import json

from coderoom.sandbox import CodeError, Sandbox, find_violations, restricted_rules

RESTRICTED = Sandbox("none", policy="restricted")


def error_of(code: str) -> CodeError:
    result = RESTRICTED.reject(code, "python")
    assert result is not None
    assert result.error is not None
    return result.error


# --- What is said ----------------------------------------------------------------------------------------------------


def test_message_lists_everything_with_its_line_and_the_way_out() -> None:
    error = error_of("import os\nimport sys, os\nopen('x')\neval('1')\nopen('y')")
    lines = error.message.splitlines()
    assert error.type == "PolicyError"
    assert error.line == 1
    assert error.traceback == ""
    assert lines[0].startswith(
        "lines 1, 2: `os` is not allowed here: files are out of reach under this policy, put the data in the code; "
        "allowed: __future__, abc, asyncio, bisect, "
    )
    assert lines[1:] == [
        "line 2: `sys` is not allowed here: to end early, use `raise SystemExit`",
        "lines 3, 5: `open` is not allowed here: files are out of reach under this policy, put the data in the code",
        "line 4: `eval` is not allowed here: write the code out, or read data with `json.loads`",
        "Nothing of this code was run.",
    ]


def test_modules_are_listed_only_where_one_was_refused() -> None:
    assert "allowed:" not in error_of("open('x')").message
    assert error_of("open('x')\nimport os\nimport io").message.count("; allowed: ") == 1


def test_message_stays_short() -> None:
    many = error_of("\n".join(f"import package_{i}" for i in range(50))).message
    assert len(many.splitlines()) == 22
    assert many.splitlines()[-2] == "and 30 more"
    assert error_of("open\n" * 100).message.startswith("lines 1, 2, 3, 4, 5 and 95 more: `open`")


def test_message_can_always_be_written() -> None:
    error = error_of(r"getattr(x, '__\ud800\n__')" + "\nx.__" + "a" * 1000 + "__")
    assert error.message.splitlines()[0] == r"line 1: `__\ud800\n__` is not allowed here"
    assert len(str(error).encode()) < 300


def test_ways_out() -> None:
    assert "use `type(x)`" in error_of("().__class__").message
    assert "use `vars(x)`" in error_of("x.__dict__").message
    assert "put the values in the code" in error_of("input()").message
    assert "the network cannot be used" in error_of("import requests").message


def test_finding() -> None:
    (finding,) = find_violations(ast.parse("\nimport os"))
    assert (finding.line, finding.kind) == (2, "import")
    assert str(finding).startswith("line 2: `os` is not allowed here: ")


def test_open_refuses_nothing() -> None:
    assert Sandbox("none").reject("import os\n().__class__.__bases__", "python") is None


def test_rules_are_data() -> None:
    rules = restricted_rules()
    assert json.loads(json.dumps(rules)) == rules
    assert rules is not restricted_rules()
