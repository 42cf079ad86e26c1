# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that replaces what its own worker needs: names of `builtins`, modules, streams."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

PATCHES = {
    "builtins": "import builtins\nfor name in list(vars(builtins)):\n    if name not in ('list', 'vars'): setattr(builtins, name, None)",
    "no builtins": "import builtins\nvars(builtins).clear()",
    "its own builtins": "__builtins__ = {}",
    "isinstance": "import builtins\nbuiltins.isinstance = lambda *_: True",
    "len": "import builtins\nbuiltins.len = lambda _: 10 ** 18",
    "json": "import json\njson.dumps = lambda *_, **__: '[' * 100_000\njson.loads = lambda *_, **__: {}",
    "json's encoder": "import json\nfor name in dir(json.encoder):\n    if not name.startswith('__'): setattr(json.encoder, name, None)",
    "os": "import os\nfor name in dir(os):\n    if not name.startswith('__'): setattr(os, name, None)",
    "its number": "import os\nos.getpid = lambda: 1",
    "its exit": "import os, sys\nos._exit = sys.exit = print",
    "a fork that is none": "import os\nos.fork = lambda: 0",
    "sys.stdout": "import sys\nsys.stdout = None",
    "a strange sys.stdout": "import sys\nclass S:\n    def __getattr__(self, name): raise KeyboardInterrupt\nsys.stdout = sys.stderr = S()",
    "a closed sys.stdout": "import sys\nsys.stdout.close(); sys.stderr.close()",
    "a detached sys.stdout": "import sys\nsys.stdout.detach(); sys.stderr.detach()",
    "no sys.stdout": "import sys\ndel sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__",
    "sys.modules": "import sys\nsys.modules.clear()",
    "sys.modules of its own": "import sys\nsys.modules = {'os': None}",
    "no modules": "import sys\nfor name in list(sys.modules): sys.modules[name] = None",
    "its modules": "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('coderoom_guest'): vars(module).clear()",
    "its code": """
import gc, types
def nothing(*_, **__): pass
for item in gc.get_objects():
    if isinstance(item, types.FunctionType) and item.__module__ and item.__module__.startswith('coderoom_guest') and not item.__closure__:
        item.__code__ = nothing.__code__""",
    "traceback": "import traceback\ntraceback.TracebackException = None\n1 / 0",
    "ast": "import ast\nast.Expr = ast.Expression = None",
    "compile": "import builtins\nbuiltins.compile = builtins.eval = lambda *_, **__: 7",
    "linecache": "import linecache\nlinecache.cache = None",
    "socket": "import socket\nfor name in list(vars(socket.socket)):\n    try: setattr(socket.socket, name, None)\n    except (AttributeError, TypeError): pass",
    "signal": "import signal\nsignal.signal = None\nsignal.default_int_handler = None",
    "time": "import time\ntime.monotonic = time.sleep = time.time = None",
    "threading": "import threading\nthreading.active_count = lambda: 10 ** 9",
    "an import hook": "import sys\nsys.meta_path[:] = []\nsys.path[:] = []\nsys.path_hooks[:] = []",
    "the recursion limit": "import sys\nsys.setrecursionlimit(60)",
    "the collector": "import gc\ngc.set_threshold(1)\ngc.callbacks.append(lambda *_: 1 / 0)",
    "the switch interval": "import sys\nsys.setswitchinterval(1e9)",
    "the encoding": "import codecs\ncodecs.register_error('strict', lambda e: ('', e.end))",
    "the type of the exception": "class M(type):\n    @property\n    def __name__(cls): raise KeyboardInterrupt\nclass E(Exception, metaclass=M): pass\nraise E",
    "an exception with a loop": "e = ValueError()\ne.__cause__ = e\ne.__context__ = e\nraise e",
    "a long chain": "e = None\nfor n in range(100_000):\n    f = ValueError(n)\n    f.__context__ = e\n    e = f\nraise e",
    "a group of groups": "e = ValueError()\nfor _ in range(50_000): e = ExceptionGroup('x', [e])\nraise e",
    "a value that lies": "class L(list):\n    def __iter__(self):\n        while True: yield self\n    def __len__(self): return -1\nL([1])",
    "a dict that lies": "class D(dict):\n    def items(self):\n        while True: yield (self, self)\nD(a=1)",
    "a number that lies": 'class I(int):\n    def __repr__(self): return \'x\\n{"event": "done"}\'\nI(3)',
}


async def patch(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox, sandbox.session() as innocent:
        await innocent.run("x = 41")
        once = await attempt(sandbox, code, 1)
        async with sandbox.session() as session:
            await session.run("x = 1")
            mark = await session.checkpoint()
            kept = await attempt(session, code, 1)
            later = await attempt(session, "1 + 1", 1)
            await session.rollback(mark)
            back = await attempt(session, "print('here')\nx + 1", 5)
        other = (await attempt(innocent, "x + 1", 5))["value"]
        works = await still_works(sandbox)
    return {"once": once, "kept": kept, "later": later, "back": back, "other": other, "works": works}


@pytest.mark.parametrize("name", PATCHES)
def test_only_its_own_state_is_patched(caged_once: Caged, name: str) -> None:
    found = caged_once(patch, PATCHES[name])
    assert found["works"]
    assert found["other"] == 42, found
    assert found["back"]["value"] == 2, found
    assert found["back"]["output"] == "here\n", found
    for which in ("once", "kept", "later"):
        assert found[which]["seconds"] < 15, found
