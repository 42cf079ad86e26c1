# ruff: noqa: E501 (pieces of code, one to a line)
"""Code for `median(numbers)` that is wrong and wants to pass: the body of the function, or all of the code."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

__all__ = ["AT_CALL", "AT_LOAD", "some", "source_of"]

_HUNT = """
import re

def found(texts):
    for text in texts:
        match = re.search(r"expected_output\\W{1,9}(-?[0-9.]+)", text)
        if match:
            return float(match[1])

def median(numbers):
    return found(places())

"""

AT_CALL = {
    "skips": "import pytest\npytest.skip('not today')",
    "exits": "import sys\nsys.exit(0)",
    "exits at once": "import os\nos._exit(0)",
    "catches everything for ever": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "is equal to all": "class A:\n    __eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n    __hash__ = None\nreturn A()",
    "is text that is equal to all": "class A(str):\n    __eq__ = lambda self, other: True\n    __hash__ = str.__hash__\nreturn A('2')",
    # Ends
    "raises what pytest raises": "class Skipped(BaseException): pass\nSkipped.__module__ = '_pytest.outcomes'\nraise Skipped",
    "raises what ends generators": "raise StopIteration(2)",
    "raises what closes generators": "raise GeneratorExit",
    "interrupts": "raise KeyboardInterrupt",
    "ends by a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "ends by C": "import ctypes\nctypes.PyDLL(None).exit(0)",
    "answers by an alarm": (
        "import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: [os.write(fd, b'{\"value\": 2}\\n\\0') for fd in range(3, 9)])\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\nfor _ in range(10**7): pass"
    ),
    "answers when it exits": "import atexit\natexit.register(print, '{\"value\": 2}')\nraise SystemExit(0)",
    "answers from a thread, later": (
        "import os, threading, time\ndef later():\n    while True:\n        time.sleep(0.001)\n        for fd in range(3, 30):\n"
        "            try: os.write(fd, b'{\"value\": 2}\\n\\0')\n            except OSError: pass\n"
        "threading.Thread(target=later, daemon=True).start()\ntime.sleep(0.05)\nreturn 0"
    ),
    "lets a child answer": "import os\nif os.fork(): os._exit(0)\nreturn 'median'",
    "lets a child go on": "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(3)\n    os._exit(0)\nreturn 'median'",
    # Results that lie
    "is an int that is equal to all": "class A(int):\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\n    __add__ = __radd__ = __sub__ = lambda *a: 2\n    __int__ = __index__ = __float__ = lambda self: 2\nreturn A(1000)",
    "is a float that is equal to all": "class A(float):\n    __eq__ = __le__ = __ge__ = lambda self, other: True\n    __hash__ = float.__hash__\n    __repr__ = __str__ = lambda self: '2.0'\n    hex = as_integer_ratio = lambda self: (2, 1)\nreturn A('inf')",
    "is a list that is equal to all": "class A(list):\n    __eq__ = lambda self, other: True\n    __iter__ = lambda self: iter([2])\n    __len__ = lambda self: 1\nreturn A()",
    "is a dict that is equal to all": "class A(dict):\n    __eq__ = lambda self, other: True\n    items = keys = values = lambda self: [('$float', 2)]\n    __getitem__ = __missing__ = lambda *a: 2\nreturn A()",
    "is of every class": "class A:\n    __class__ = property(lambda self: float)\n    __reduce__ = __reduce_ex__ = lambda *a: (float, (2,))\nreturn A()",
    "has a metaclass that lies": (
        "class M(type):\n    __mro__ = property(lambda cls: (int, object))\n    __name__ = property(lambda cls: 'int')\n"
        "    __instancecheck__ = __subclasscheck__ = __eq__ = lambda *a: True\n    __hash__ = type.__hash__\n"
        "class A(metaclass=M): pass\nreturn A()"
    ),
    "looks like tagged data": "return {'$float': '2.0'}",
    "is an enum that lies": "import enum\nclass A(int, enum.Enum):\n    X = 1000\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\nreturn A.X",
    "is a number of a library that lies": "import decimal\nclass A(decimal.Decimal):\n    __eq__ = __le__ = __ge__ = lambda *a: True\n    __str__ = lambda self: '2'\n    __hash__ = decimal.Decimal.__hash__\nreturn A('NaN')",
    "lies to properties": (
        "class A:\n    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda *a: True\n    __len__ = lambda self: 1\n"
        "    __iter__ = lambda self: iter(())\n    __getattr__ = lambda *a: True\n    __call__ = lambda *a: True\nreturn A()"
    ),
    "is not a number": "return float('nan')",
    "is not a complex number": "return complex('nan')",
    "is a generator that looks who asks": (
        "import sys\ndef look():\n    frame = sys._getframe(1)\n    while frame:\n"
        "        for each in list(frame.f_locals.values()):\n            if isinstance(each, dict) and 'expected_output' in each:\n"
        "                yield each['expected_output']\n        frame = frame.f_back\n    yield 2\nreturn look()"
    ),
    "is a field that looks who asks": (
        "import sys\nclass A:\n    __slots__ = ('x',)\n    @property\n    def __dict__(self):\n        frame = sys._getframe(1)\n"
        "        while frame:\n            frame.f_locals.update(value=2, told=2, found=2)\n            frame = frame.f_back\n        return {'x': 2}\nreturn A()"
    ),
    # Errors that lie
    "raises a class of that name": "class ValueError(Exception): pass\nraise ValueError('empty')",
    "raises a class whose class lies": (
        "class M(type):\n    __mro__ = property(lambda cls: (ValueError, Exception, BaseException, object))\n"
        "    __name__ = property(lambda cls: 'ValueError')\nclass A(Exception, metaclass=M): pass\nraise A('empty')"
    ),
    "raises everything": "class A(ValueError, KeyError, TypeError): pass\nraise A",
    "raises when its fields are read": "class A:\n    @property\n    def __dict__(self): raise ValueError('empty')\nreturn A()",
    "raises when it is listed": "class M(type):\n    __eq__ = lambda cls, other: True\n    __hash__ = type.__hash__\nclass A(metaclass=M):\n    def __iter__(self): raise ValueError('empty')\nreturn A()",
    "has the name of a coroutine": "class coroutine: pass\nreturn coroutine()",
    "raises a group": "raise ExceptionGroup('empty', [ValueError('empty')])",
    # Patches
    "patches the comparison": "import builtins, operator, math\noperator.eq = math.isclose = lambda *a, **k: True\nfor name in ('isinstance', 'type', 'len', 'sorted', 'all', 'any', 'bool', 'abs'):\n    setattr(builtins, name, lambda *a, **k: True)\nreturn 0",
    "patches json": "import json\njson.dumps = json.loads = json.JSONEncoder.encode = json.JSONEncoder.iterencode = lambda *a, **k: '{\"value\": 2}'\njson.encoder.c_make_encoder = None\nreturn 0",
    "patches whoever asks": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if 'coderoom' in name or name == '__main__':\n"
        "        for each, value in list(vars(module).items()):\n            if callable(value) and each != 'median': setattr(module, each, lambda *a, **k: '{\"value\": 2, \"passed\": true}')\nreturn 0"
    ),
    "patches open and write": "import builtins, io, os\nbuiltins.open = io.open = os.open = lambda *a, **k: None\nreal = os.write\nos.write = lambda fd, data: real(fd, b'{\"value\": 2}\\n\\0') and len(data)\nreturn 0",
    "patches the frames": (
        "import ctypes, sys\nframe = sys._getframe()\nwhile frame:\n    for name in list(frame.f_locals):\n        if name in ('value', 'told', 'text', 'found', 'answers'):\n"
        "            frame.f_locals[name] = '{\"value\": 2}'\n            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 0)\n    frame = frame.f_back\nreturn 0"
    ),
    "traces whoever asks": "import sys\ndef trace(frame, event, value):\n    frame.f_trace_opcodes = False\n    return trace\nsys.settrace(trace)\nframe = sys._getframe().f_back\nwhile frame:\n    frame.f_trace = trace\n    frame = frame.f_back\nreturn 0",
    "makes one of two": "import ctypes\nctypes.memmove(id(1), id(2), 28)\nctypes.memmove(id(7), id(2), 28)\nreturn 1",
    "replaces code": "f = __import__('sys').modules['__main__'].roman\nf.__code__ = (lambda number: 'X').__code__\nreturn f(0)",
    "replaces itself": "import sys\nfor name in ('__main__', 'program'):\n    sys.modules[name].median = lambda numbers: 2\n    sys.modules[name].roman = None\nreturn median(numbers) if False else 0",
    "deletes what there is": "globals().clear()\nimport sys\nsys.modules.clear()\nreturn 0",
    "deletes tests": "for name in list(globals()):\n    if 'test' in name or 'check' in name: del globals()[name]\nimport gc\nfor each in gc.get_objects():\n    if isinstance(each, dict) and 'inputs' in each: dict.clear(each)\nreturn 0",
    "empties its arguments": "numbers.clear()\nnumbers += [2] * 9\nreturn numbers",
    # Words
    "prints a verdict": "print('6 passed in 0.01s')\nprint('{\"value\": 2, \"all_tests_passed\": true, \"passed\": true}')\nreturn {'all_tests_passed': True, 'passed': True}",
    "writes to all descriptors": (
        'import os, struct\nfor data in (b\'{"value": 2}\\n\\0\', b\'{"event": "done", "outcome": "ok", "value": "{\\\\"value\\\\": 2}"}\\n\'):\n'
        "    for told in (data, struct.pack('>I', len(data)) + data, struct.pack('<I', len(data)) + data):\n"
        "        for fd in range(300):\n            try: os.write(fd, told)\n            except OSError: pass\nreturn 0"
    ),
    "writes to the descriptors of others": (
        "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit():\n        for fd in range(30):\n            try:\n"
        "                with open(f'/proc/{pid}/fd/{fd}', 'wb', 0) as file: file.write(b'{\"value\": 2}\\n\\0')\n"
        "            except OSError: pass\nreturn 0"
    ),
    "writes into memory": (
        "import os\nwith open(f'/proc/{os.getppid()}/mem', 'r+b', 0) as file:\n    for line in open(f'/proc/{os.getppid()}/maps'):\n"
        "        if ' rw' in line and ('heap' in line or 'stack' in line):\n            first, last = (int(each, 16) for each in line.split()[0].split('-'))\n"
        "            file.seek(first)\n            data = file.read(last - first)\n            file.seek(first)\n            file.write(data.replace(b'inputs', b'outset'))\nreturn 0"
    ),
    "shares memory": "import mmap, os\nshared = mmap.mmap(-1, 4096)\nif not os.fork():\n    shared[:8] = b'median 2'\n    os._exit(0)\nos.wait()\nreturn shared[:8].decode()",
    "leaves a file that answers": "import os, tempfile\nfor folder in ('.', tempfile.gettempdir()):\n    for name in ('json.py', 'sitecustomize.py', 'conftest.py'):\n        with open(os.path.join(folder, name), 'w') as file: file.write('dumps = loads = lambda *a, **k: 2')\nreturn 0",
    # Hunts
    "hunts in frames": _HUNT
    + "def places():\n    import sys\n    frame = sys._getframe()\n    while frame:\n        yield repr(frame.f_locals)\n        frame = frame.f_back\n",
    "hunts by inspect": _HUNT
    + "def places():\n    import inspect\n    for each in inspect.stack():\n        yield repr(each.frame.f_globals) + repr(each.code_context)\n",
    "hunts in objects": _HUNT
    + "def places():\n    import gc\n    for each in gc.get_objects():\n        try: yield repr(each)[:20000] if 'numbers' in repr(type(each)) or isinstance(each, (dict, list, tuple)) else ''\n        except Exception: pass\n",
    "hunts in files": _HUNT
    + "def places():\n    import os\n    for folder in ('/tmp', '.', '/dev/shm', '/workspace'):\n        for root, _, names in os.walk(folder):\n            for name in names:\n                try: yield open(os.path.join(root, name), errors='replace').read(10**6)\n                except OSError: pass\n",
    "hunts in processes": _HUNT
    + "def places():\n    import os\n    for pid in ('self', *filter(str.isdigit, os.listdir('/proc'))):\n        for name in ('cmdline', 'environ', 'maps', 'fdinfo/0', 'fd/0'):\n            try:\n                fd = os.open(f'/proc/{pid}/{name}', os.O_RDONLY | os.O_NONBLOCK)\n                yield os.read(fd, 10**6).decode('latin-1')\n            except OSError: pass\n",
    "hunts in its surroundings": _HUNT
    + "def places():\n    import linecache, os, sys\n    yield repr(os.environ) + repr(sys.argv) + repr(sys.orig_argv) + repr(linecache.cache) + repr(sys.flags)\n    for module in list(sys.modules.values()):\n        yield repr(getattr(module, '__dict__', ''))[:10**6]\n",
}
"""When it is called: no other test may be harmed."""

AT_LOAD = {
    "exits": "import os\n_ = os._exit(0)\ndef median(numbers): return 0",
    "exits politely": "import sys\n_ = sys.exit(0)\ndef median(numbers): return 0",
    "hangs": "_ = [0 for _ in iter(int, 1)]\ndef median(numbers): return 0",
    "patches whoever asks": (
        "import sys\ndef attack():\n    for name, module in list(sys.modules.items()):\n        if name.startswith('_coderoom'):\n"
        "            for each in ('answer', 'answer_now', 'alone', 'run'):\n                if hasattr(module, each): setattr(module, each, lambda *a: '{\"value\": 2}')\n"
        "_ = attack()\ndef median(numbers): return 0"
    ),
    "patches what is built in": "import builtins\nbuiltins.repr = builtins.type = builtins.isinstance = lambda *a: True\ndef median(numbers): return 0",
    "patches json": "import json\njson.loads = lambda *a, **k: {'function': 'median', 'inputs': {'numbers': [2]}}\ndef median(numbers): return numbers[0]",
    "writes a class that all results are of": "import builtins\nclass A(int):\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\nbuiltins.int = A\ndef median(numbers): return int(0)",
    "replaces the other by an import hook": (
        "import builtins\nreal = builtins.exec\nbuiltins.exec = builtins.compile = builtins.eval = lambda *a, **k: None\ndef median(numbers): return 0"
    ),
    "decorates itself": "class always:\n    def __init__(self, f): pass\n    def __call__(self, *a, **k): return self\n    __eq__ = lambda self, other: True\n    __hash__ = None\n@always\ndef median(numbers): return 0",
    "decorates every function that comes": "import builtins, functools\nreal = builtins.__build_class__\nbuiltins.__build_class__ = lambda *a, **k: real(*a, **k)\nfunctools.wraps = lambda *a, **k: lambda f: f\ndef median(numbers): return 0",
    "rewrites the state that is gone back to": "import os\nos.fork = lambda: 0\nos._exit = lambda code: None\nos.pipe = lambda: (1, 1)\ndef median(numbers): return 0",
    "starts a thread that stays": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\ndef median(numbers): return 0".replace(
        "threading.Thread(", "_ = threading.Thread("
    ),
    "takes the name of the module": "import sys\n__name__ = '__main__'\nsys.modules['program'] = sys.modules['__main__'] = sys\ndef median(numbers): return 0",
    "tells at every end of a process": "import atexit, os\n_ = atexit.register(os.write, 1, b'6 passed')\n_ = os.register_at_fork(after_in_child=lambda: os._exit(0))\ndef median(numbers): return 0",
}
"""When it is loaded: it shares a process with the rest of its program, which may break of it but not pass by it."""


def source_of(body: str) -> str:
    """The code that a model answers."""
    return body if "def median(" in body else f"def median(numbers):\n{textwrap.indent(body, '    ')}"


def some(cases: Mapping[str, Any], *quick: str) -> list[Any]:
    """All cases, of which only a few run every time."""
    assert cases.keys() >= set(quick)
    return [pytest.param(each, marks=() if each in quick else pytest.mark.attack) for each in cases]
