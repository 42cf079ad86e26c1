"""The policy `restricted`, before anything runs, and what it says to the author of the code."""

from __future__ import annotations

import ast
import json
import threading
import warnings
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from coderoom.sandbox import CodeError, Sandbox, find_violations, restricted_rules
from tests.sandbox.policy_cases import (
    ALLOWED_MODULES,
    ORDINARY,
    REFUSED_ATTRIBUTES,
    REFUSED_BUILTINS,
    REFUSED_MODULES,
)

RESTRICTED = Sandbox("none", policy="restricted")


def findings(code: str) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_violations(ast.parse(code))


def check(code: str) -> CodeError | None:
    result = RESTRICTED.reject(code, "python")
    return None if result is None else result.error


def refused(code: str) -> list[tuple[int, str]]:
    """The line and the first name in backticks of each finding."""
    return [(finding.line, finding.message.split("`")[1]) for finding in findings(code)]


def names(code: str) -> list[str]:
    return [name for _, name in refused(code)]


def error_of(code: str) -> CodeError:
    error = check(code)
    assert error is not None
    return error


# --- Ordinary Python -------------------------------------------------------------------------------------------------


def test_ordinary_python_passes() -> None:
    assert {name: check(code) for name, code in ORDINARY.items()} == dict.fromkeys(ORDINARY)


def test_modules_are_allowed_in_every_form() -> None:
    for module in ALLOWED_MODULES:
        code = f"import {module}\nimport {module} as m\nfrom {module} import *\nimport math, {module}\nm.__doc__"
        assert names(code) == [], module


def test_submodules_that_are_allowed() -> None:
    assert names("import collections.abc\nfrom collections import abc\nfrom collections.abc import Set\nabc.Set") == []
    assert names("import json.decoder as d\nfrom json import decoder\nd.JSONDecodeError, decoder.JSONDecoder") == []
    assert names("from __future__ import annotations, division") == []


# --- Imports ---------------------------------------------------------------------------------------------------------


def test_modules_that_are_refused() -> None:
    for module in REFUSED_MODULES:
        assert names(f"import {module}") == [module]
        assert names(f"import {module} as math") == [module]
        assert names(f"import math, {module}.x") == [f"{module}.x"]
        assert names(f"from {module} import *") == [module]
        assert names(f"from {module} import a, b as c") == [module]
        assert refused(f"def f():\n    try:\n        import {module}\n    except ImportError:\n        pass") == [
            (3, module)
        ]


def test_submodules_that_are_refused() -> None:
    assert names("import json.tool") == ["json.tool"]
    assert names("import os.path as path") == ["os.path"]
    assert names("from concurrent.futures import wait") == ["concurrent.futures"]


def test_relative_imports_are_refused() -> None:
    for code in ("from . import x", "from .. import x", "from .math import pi", "from .x import *"):
        assert [finding.message for finding in findings(code)] == [
            "relative imports are not allowed here: there is no package around this code"
        ]


def test_names_with_letters_that_python_takes_for_others() -> None:
    fullwidth = str.maketrans({letter: chr(ord(letter) + 0xFEE0) for letter in "abcdefghijklmnopqrstuvwxyz"})
    assert names("import " + "os".translate(fullwidth)) == ["os"]
    assert names("open".translate(fullwidth) + "('x')") == ["open"]
    assert names("x.__bases__".translate(fullwidth)) == ["__bases__"]
    assert names("\N{MATHEMATICAL BOLD ITALIC SMALL E}val('1')") == ["eval"]


# --- Builtins and other names ----------------------------------------------------------------------------------------


def test_names_that_are_refused() -> None:
    for name in (*REFUSED_BUILTINS, "__import__", "__builtins__", "__loader__", "__spec__"):
        assert names(f"{name}()") == [name]
        assert names(f"x = {name}") == [name]
        assert names(f"list(map({name}, []))") == [name]
        assert names(f"lambda f={name}: f") == [name]
        assert names(f"@{name}\ndef f(): pass") == [name]
        assert names(f"class A({name}): x = [y for y in {name}]") == [name]
        assert names(f"(f := {name})") == [name]
        assert names(f"f'{{{name}}}'") == [name]
        assert names(f"match 1:\n    case _ if {name}(): pass") == [name]


BINDINGS = [
    "open = 1",
    "for open in []: pass",
    "def open(): pass",
    "async def open(): pass",
    "class open: pass",
    "def f(open): return open",
    "def f(*open): return open",
    "lambda *, open: open",
    "import math as open",
    "from math import pi as open",
    "(open := 1)",
    "a, *open = 1, 2",
    "with x as open: pass",
    "try: pass\nexcept KeyError as open: pass",
    "match x:\n    case [*open]: pass",
    "match x:\n    case {**open}: pass",
    "match x:\n    case int() as open: pass",
    "match x:\n    case open: pass",
]


def test_names_that_the_code_binds_are_its_own() -> None:
    for binding in BINDINGS:
        assert names(f"{binding}\nprint(open)") == []
        assert names("print(open)") == ["open"]


def test_names_that_may_not_be_bound() -> None:
    for code in (
        "__builtins__ = {}",
        "import math as __builtins__",
        "def f(__builtins__): pass",
        "class __builtins__: pass",
    ):
        assert names(code) == ["__builtins__"]


def test_vars_needs_an_object() -> None:
    assert names("vars()") == ["vars()"]
    assert names("vars(x)") == []


# --- Attributes ------------------------------------------------------------------------------------------------------


def test_attributes_that_are_refused() -> None:
    for name in REFUSED_ATTRIBUTES:
        assert names(f"x.{name}") == [name]
        assert names(f"f().{name}[0]") == [name]
        assert names(f"x.{name} = 1") == [name]
        assert names(f"del x.{name}") == [name]
        assert names(f"getattr(x, '{name}')") == [name]
        assert names(f"setattr(x, '{name}', 1)") == [name]
        assert names(f"delattr(x, '{name}')") == [name]
        assert names(f"'{{0.{name}}}'.format(x)") == [name]
        assert names(f"match x:\n    case object({name}=y): pass") == [name]


def test_class_of_a_name_is_what_type_gives() -> None:
    assert names("self.__class__(1), other.__class__ is x.__class__, self.__class__.count") == []
    assert names("f(x)[0].__class__.__name__, ().__class__.__qualname__") == []
    assert names("().__class__, f().__class__, x.y.__class__, f().__class__.real") == ["__class__"]
    assert names("x.__class__ = A") == ["__class__"]
    assert names("self.__class__.__bases__") == ["__bases__"]


def test_private_names_are_ordinary() -> None:
    assert names("self.__x, self._y, self.__z_, p._replace(a=1), p._asdict(), _A__x") == []


PRIVATE = [
    ("import random\nrandom._os", "random._os"),
    ("import random as r\nr._os", "random._os"),
    ("import json\njson.codecs.builtins.open", "json.codecs"),
    ("import json\njson.decoder.scanner", "json.decoder.scanner"),
    ("import json.decoder\njson.decoder.scanner", "json.decoder.scanner"),
    ("from json import decoder as d\nd.scanner", "json.decoder.scanner"),
    ("import dataclasses\ndataclasses.sys", "dataclasses.sys"),
    ("import collections\ncollections._sys = 1", "collections._sys"),
    ("import asyncio\nasyncio.create_subprocess_shell('ls')", "asyncio.create_subprocess_shell"),
    ("import types\ntypes.CodeType", "types.CodeType"),
    ("def f():\n    import statistics\ndef g():\n    statistics.sys", "statistics.sys"),
]


def test_what_a_module_uses_itself_is_out_of_reach() -> None:
    for code, member in PRIVATE:
        assert member in names(code)


def test_the_same_with_from() -> None:
    assert names("from random import _os as o, choice") == ["random._os"]
    assert names("from json import codecs") == ["json.codecs"]
    assert names("from asyncio import run, open_connection") == ["asyncio.open_connection"]
    assert names("from datetime import datetime, time\nimport time as t, copy\nt.time(), copy.copy") == []


def test_names_that_are_modules_only_sometimes_are_left_to_the_run() -> None:
    assert names("import json\ndef f(json): return json.codecs") == []
    assert names("import json as m\nimport random as m\nm._os") == []
    assert names("import random\nself.random._os") == []


# --- Templates -------------------------------------------------------------------------------------------------------


TEMPLATES = [
    "{0.__class__}",
    "{.__class__}",
    "{x.y.__globals__[a]}",
    "{x[0].__dict__!r:>5}",
    "{0:{1.__class__}}",
    "{{}}{0.gi_frame}",
    "{0.__class__.__mro__}",
    "{0.__class__.__name__} {0.__init__.__globals__}",
]


def test_templates_that_climb() -> None:
    for template in TEMPLATES:
        (finding, *_) = findings(f"x = 1\nt = {template!r}\nt.format(x)")
        assert (finding.line, finding.kind) == (2, "attribute")
        assert finding.message.startswith("in a template, `")


def test_texts_that_do_not() -> None:
    for text in (
        "{0.name} {x[__class__]}",
        "{__name__}",
        "{0.__class__.__name__}",
        "x.__dict__ {}",
        "{a: b.__dict__}",
        "{_",
    ):
        assert names(f"t = {text!r}") == []


# --- What evades other checkers --------------------------------------------------------------------------------------


EVASIONS = [
    "().__class__.__base__.__subclasses__()",
    "[c for c in ().__class__.__mro__[1].__subclasses__() if c.__name__ == 'Popen']",
    "__builtins__['open']('/etc/passwd')",
    "__builtins__.__dict__['ev' + 'al']('1')",
    "e = eval\ne('1')",
    "print.__self__.open('x')",
    "(lambda: 0).__globals__['__builtins__']",
    "g = (x for x in [])\ng.gi_frame.f_back.f_globals",
    "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_back",
    "class A:\n    def f(self, x=open): pass",
    "class A(eval): pass",
    "@exec\n@input\ndef f(): pass",
    "def f() -> eval: pass",
    "def f(x: open = 1): pass",
    "[*map(eval, ['1'])]",
    "(e := exec)('1')",
    "type.__getattribute__(int, '__subclasses__')",
    "object.__getattribute__(1, '__class__')",
    "import json as math, os as json",
    "async def f(): (await g()).cr_frame",
    "''.join.__self__",
    "str.format('{0.__class__}', 1)",
    "'{x.__class__}'.format_map({})",
    "class A:\n    __getattr__ = eval",
    "match 1:\n    case int(__class__=c): c",
    "lambda: (yield ().__class__)",
    "f'{().__class__}'",
    "f'{1:{().__class__}}'",
    "x[().__class__] = {**().__class__}",
    "del ().__class__",
    "assert eval",
    "with open('x') as f: pass",
]


def test_evasions_are_found() -> None:
    for code in EVASIONS:
        assert check(code), code


# --- Code that is hard to read ---------------------------------------------------------------------------------------


def test_what_is_no_python_is_left_to_the_interpreter() -> None:
    for code in ("", "def", "!ls", "a\0b", "x = '\ud800'", "(" * 300 + ")" * 300, "\ufeff1", "9" * 5000):
        assert check(code) is None, code


def test_code_that_is_nested_too_deeply_is_a_finding() -> None:
    for code in ("-" * 100_000 + "1", "a" + ".b" * 100_000, "x = 1" + "+1" * 50_000):
        assert "nested too deeply" in error_of(code).message


def test_code_that_is_too_long_is_a_finding() -> None:
    fits = "x = '" + "a" * (250_000 - 6) + "'"
    assert check(fits) is None
    assert "250,001 characters" in error_of(fits + "\n").message


def test_warnings_are_left_to_the_interpreter() -> None:
    code = r"x = '\d'; open(x)"
    before = list(warnings.filters)
    assert "`open`" in error_of(code).message  # Where warnings are errors, as in these tests, parsing would fail.
    threads = [threading.Thread(target=check, args=(code,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before


PIECES = """
    import from os json . _x __class__ ( ) x = : eval getattr ' " {0. } f' match case * ** , lambda async def class 0 \\
"""


@given(st.text() | st.lists(st.sampled_from([*PIECES.split(), "\n", "\n    ", " ", "\0"]), max_size=30).map("".join))
@example("getattr(x, 'y\ud800')")
@example("getattr(x, 0)")
@example("from . import *")
@example("import a.b.c")
@example("getattr(*x)")
@settings(deadline=None)
def test_any_text_gets_an_answer(code: str) -> None:
    error = check(code)
    assert error is None or (error.type == "PolicyError" and error.line is not None and error.line >= 1)


def test_what_others_put_on_nodes_that_all_trees_share_is_not_followed() -> None:
    shared = ast.parse("1 + 1", mode="eval").body.op  # type: ignore[attr-defined]
    assert shared is ast.parse("2 + 2", mode="eval").body.op  # type: ignore[attr-defined]
    shared.parent = ast.parse("import os\n1 + 1")
    try:
        assert findings("x = 1 + 2") == []
    finally:
        del shared.parent


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
