"""The policy `restricted` while the code runs: each piece in a fork of its own, and unchecked before."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import coderoom.sandbox.guest.restricted as inside
from coderoom.sandbox.policy import restricted_rules
from tests.sandbox.policy_cases import ORDINARY, REFUSED_BUILTINS

RULES = restricted_rules()

RUN = """
import json, os, sys, types
guest = sys.modules["coderoom_guest"] = type(sys)("coderoom_guest")
guest.__path__ = [sys.argv[1]]
from coderoom_guest.restricted import make_namespace_builtins
request = json.load(sys.stdin)
def run(code):
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = make_namespace_builtins(request["rules"])
    try:
        exec(compile(code, "<cell>", "exec"), vars(main))
        return [None, repr(getattr(main, "result", None))]
    except BaseException as error:
        return [type(error).__name__, str(error)]
for code in request["codes"]:
    if not os.fork():
        sys.__stderr__.write(json.dumps(run(code)) + "\\n")
        sys.__stderr__.flush()
        os._exit(0)
    os.wait()
"""


def run_all(codes: Iterable[str]) -> list[tuple[str | None, str]]:
    """For each the name of the exception's class and its text, or `None` and the `repr` of the variable `result`."""
    codes = list(codes)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-W", "error", "-c", RUN, str(Path(inside.__file__).parent)],
        input=json.dumps({"codes": codes, "rules": RULES}),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(answers) == len(codes), done.stderr
    return [(kind, text) for kind, text in answers]


def run(code: str) -> tuple[str | None, str]:
    return run_all([code])[0]


def value(code: str) -> Any:
    kind, text = run(code)
    assert kind is None, f"{kind}: {text}"
    return text


def test_ordinary_python_runs() -> None:
    found = dict(zip(ORDINARY, run_all(ORDINARY.values()), strict=True))
    assert found == dict.fromkeys(ORDINARY, (None, "None"))


# --- Imports ---------------------------------------------------------------------------------------------------------


IMPORTS = [
    ("import os", "`os` is not allowed here: files are out of reach under this policy, put the data in the code; "),
    ("import os.path as p", "`os.path` is not allowed here: files"),
    ("from os import path", "`os` is not allowed here: files"),
    ("from os import *", "`os` is not allowed here: files"),
    ("import no_such_module", "`no_such_module` is not allowed here; allowed: __future__, abc, "),
    ("import json.tool", "`json.tool` is not allowed here; allowed: "),
    ("from . import x", "relative imports are not allowed here"),
    ("from random import _os", "`random._os` is not allowed here"),
    ("from json import codecs", "`json.codecs` is not allowed here"),
    ("from json import scanner", "`json.scanner` is not allowed here"),
    ("from asyncio import subprocess", "`asyncio.subprocess` is not allowed here"),
    ("from math import tau_squared", "cannot import name 'tau_squared' from 'math'"),
    ("__import__('o' + 's')", "`os` is not allowed here: files"),
    ("class Os(str):\n    def partition(self, _): return ('math', '', '')\n__import__(Os('os'))", "`os` is not"),
]


def test_import_is_refused_as_the_check_refuses_it() -> None:
    found = run_all(statement for statement, _ in IMPORTS)
    for (statement, start), (kind, text) in zip(IMPORTS, found, strict=True):
        assert kind == "ImportError", statement
        assert text.startswith(start), statement


def test_import_error_can_be_caught() -> None:
    code = "try:\n    import numpy\nexcept ImportError as error:\n    result = error.name"
    assert value(code) == "'numpy'"


def test_modules_keep_their_own_builtins() -> None:
    # Neither was imported before; both import others, and open files.
    assert value("import asyncio, decimal, statistics\nresult = asyncio.run(asyncio.sleep(0, 'slept'))") == "'slept'"


def test_functions_in_c_import_what_they_need() -> None:
    code = "from datetime import datetime\nimport re\n"
    assert value(code + "result = datetime.strptime('2024', '%Y').year") == "2024"
    assert value(code + r"result = re.compile('(a)').sub(r'\1\1', 'a')") == "'aa'"


def test_modules_are_the_same_every_time() -> None:
    code = "import json, json.decoder\nimport json as other\ndef f():\n    import json\n    return json\n"
    assert (
        value(code + "result = f() is json is other and json.decoder.JSONDecodeError is json.JSONDecodeError") == "True"
    )
    assert value("import math, types\nresult = isinstance(math, types.ModuleType), math") == "(True, <module 'math'>)"


def test_changing_a_module_changes_it_only_for_the_cell() -> None:
    code = (
        "import random, statistics\nrandom.random = lambda: 5\nresult = random.random(), random.Random().random() < 1"
    )
    assert value(code) == "(5, True)"


MEMBERS = [
    ("random._os", "`random._os`"),
    ("getattr(random, '_o' + 's')", "`random._os`"),
    ("(lambda m: m.codecs)(json)", "`json.codecs`"),
    ("json.decoder.scanner", "`json.decoder.scanner`"),
    ("asyncio.create_subprocess_exec", "`asyncio.create_subprocess_exec`"),
    ("types.CodeType", "`types.CodeType`"),
    ("json.nothing", "module 'json' has no attribute 'nothing'"),
]


def test_modules_show_only_what_is_public() -> None:
    found = run_all(f"import asyncio, json, random, types\n{expression}" for expression, _ in MEMBERS)
    for (expression, refused), (kind, text) in zip(MEMBERS, found, strict=True):
        assert kind == "AttributeError", expression
        assert text.startswith(refused), expression


def test_no_module_can_be_reached_through_another() -> None:
    modules = ", ".join(RULES["modules"])
    code = f"""
import {modules}
result = sorted(
    (module.__name__, name)
    for module in [{modules}]
    for name in dir(module)
    if name[:1] != "_" and isinstance(getattr(module, name), types.ModuleType)
)
"""
    assert value(code) == "[('collections', 'abc'), ('json', 'decoder'), ('json', 'encoder')]"


def test_a_star_brings_nothing_more() -> None:
    assert value("from json import *\nfrom math import *\nresult = dumps([int(pi)])") == "'[3]'"
    assert run("from json import *\ncodecs")[0] == "NameError"


# --- Builtins --------------------------------------------------------------------------------------------------------


def test_builtins_are_refused_with_a_reason() -> None:
    forms = ("{0}()", "f = {0}\nf(1, x=2)", "list(map({0}, ['1']))")
    names = [name for name in REFUSED_BUILTINS for _ in forms]
    found = run_all(form.format(name) for name in REFUSED_BUILTINS for form in forms)
    for name, (kind, text) in zip(names, found, strict=True):
        assert kind == "PermissionError", name
        assert text.startswith(f"`{name}` is not allowed here: ")


def test_what_nobody_needs_is_not_there() -> None:
    names = ("__loader__", "__spec__", "__file__", "license", "credits")
    for kind, _ in run_all(f"if {name} is not None:\n    raise ValueError" for name in names):
        assert kind in (None, "NameError")


def test_everything_else_is_there() -> None:
    refused = set(RULES["builtins"]) | set(RULES["names"])
    wanted = sorted(name for name in vars(builtins) if name not in refused and not name.startswith("_"))
    wanted = [name for name in wanted if name not in ("copyright", "credits", "license", "exit", "quit")]
    assert value(f"result = [{', '.join(wanted)}] and 'all'") == "'all'"


# --- Names of attributes as data -------------------------------------------------------------------------------------

SNEAKY = """
class Sneaky(str):
    def __str__(self): return "real"
    def __eq__(self, other): return False
    def __hash__(self): return 0
    def startswith(self, *_): return False
"""


REFUSED = [
    "getattr((), '__cl' + 'ass__')",
    "getattr((), '__cl' + 'ass__', None)",
    "setattr(lambda: 0, '__co' + 'de__', 1)",
    "delattr(lambda: 0, '__di' + 'ct__')",
    "getattr((x for x in []), 'gi_' + 'frame')",
    "list(map(getattr, [int], ['__subclasses__']))",
    "import functools\nfunctools.reduce(getattr, ['__class__', '__base__'], ())",
    SNEAKY + "getattr((), Sneaky('__class__'))",
    "import operator\noperator.attrgetter('real.__cl' + 'ass__')(1)",
    "from operator import attrgetter as a\na('real', '__class__')",
    SNEAKY + "import operator\noperator.attrgetter(Sneaky('__class__'))",
    "import operator\noperator.methodcaller('__subclass' + 'es__')(int)",
    "from string import Formatter\nFormatter().format('{0.__cl' + 'ass__}', 1)",
    "import string\nclass F(string.Formatter): pass\nF().vformat('{x[0].__class__}', (), {'x': [1]})",
    "vars()",
    "vars(int)",
    "import json\nvars(json)",
]


def test_it_is_refused() -> None:
    for code, (kind, text) in zip(REFUSED, run_all(REFUSED), strict=True):
        assert kind == "PermissionError", code
        assert "is not allowed here" in text, code


ERRORS = [
    ("getattr(1, 2)", "TypeError"),
    ("getattr(1)", "TypeError"),
    ("getattr(1, 'x', 2, 3)", "TypeError"),
    ("getattr(1, 'x')", "AttributeError"),
    ("setattr(1, 'x', 2)", "AttributeError"),
    ("vars(1)", "TypeError"),
    ("vars(1, 2)", "TypeError"),
    ("import operator\noperator.attrgetter(1)", "TypeError"),
    ("import operator\noperator.methodcaller()", "TypeError"),
]


def test_other_errors_are_python_s() -> None:
    found = run_all(code for code, _ in ERRORS)
    assert [kind for kind, _ in found] == [error for _, error in ERRORS]


def test_guards_look_like_what_they_stand_for() -> None:
    assert value("result = [f.__name__ for f in (getattr, setattr, delattr, vars, open, __import__)]") == (
        "['getattr', 'setattr', 'delattr', 'vars', 'open', '__import__']"
    )
    assert value("result = type(1) is int and isinstance(int, type) and callable(getattr)") == "True"


def test_rules_differ_from_namespace_to_namespace() -> None:
    make = inside.make_namespace_builtins
    only_math = make({**RULES, "modules": {"math": None}})
    with pytest.raises(ImportError, match=r"`json` is not allowed here; allowed: math$"):
        exec("import json", {"__builtins__": only_math})
    exec("import json", {"__builtins__": make(RULES)})
