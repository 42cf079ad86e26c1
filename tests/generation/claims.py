# ruff: noqa: E501 (cases, one to a line)
"""Wrong answers, tests and replies by kind, each of which would be a false success if it were accepted.

`test_claims` runs them, many in one call. `hostile` has what code does to the process that runs it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["COMPARISONS", "HARNESS", "REPLIES", "SILENT", "STATES", "VARYING"]

# The function is right if this is true; it is true in some runs, and false in others.
VARYING = """random.random() < 0.9
random.getrandbits(3) > 0
random.choice([0, 1, 1, 1])
random.SystemRandom().random() < 0.9
random.shuffle(x := [0, 1, 2, 3]) or x[0]
random.Random().random() < 0.9
uuid.uuid4().int % 8
secrets.randbelow(8)
os.urandom(1)[0] > 16
time.time_ns() // 1000 % 8
time.perf_counter_ns() // 1000 % 8
time.monotonic_ns() // 1000 % 8
time.process_time_ns() // 1000 % 8
datetime.datetime.now().microsecond % 8
time.monotonic() % 1 < 0.5
os.getpid() % 4
os.getppid() % 2
os.getppid() % 3 < 2
os.getsid(0) % 3 > 0
os.getpid() < 50
id(object()) >> 12 & 1
id(object()) >> 16 & 1
id([]) >> 14 & 1
id(C) < id(f)
int(repr(C())[-5], 16) & 1
hash('text') % 4
hash(C()) >> 8 & 1
hash(b'x') & 1
list({'one', 'two', 'three'})[0] != 'one'
list(frozenset('ab'))[0] == 'a'
{'a': 1, 'b': 2}.keys() - {'c'} and list({'a': 1, 'b': 2}.keys() & {'a', 'b'})[0] == 'a'""".splitlines()

# The function is right if this is true, as it is in one of the processes of the harness but not in all.
HARNESS = """type(sys.stdout.buffer).__name__ == 'Printed'
type(sys.stdout.buffer).__name__ != 'Printed'
type(sys.stdin).__name__ == 'StringIO'
sys.stdout.fileno() == 1
sys.stdin.isatty()
sys.stdin is None
__name__ == '__main__'
f.__module__ == '__main__'
sys.modules['__main__'].__name__ == '__main__'
C.__module__ == '__main__'
repr(C()).startswith('<__main__')
'__file__' not in globals()
__spec__ is None
f.__code__.co_filename.startswith('<')
linecache.getline(f.__code__.co_filename, 1) == ''
sys._getframe(1).f_code.co_name == '<module>'
sys._getframe().f_back is None
depth() < 8
depth() > 12
depth() < 4
inspect.stack()[-1].function != '<module>'
sys.argv == ['-c']
sys.argv[0] == ''
len(sys.argv) > 1
os.environ.get('PATH') is None
len(os.environ) > 50
'TMPDIR' not in os.environ
'PYTEST_CURRENT_TEST' in os.environ
len(os.listdir('/proc/self/fd')) > 12
len(os.listdir('/proc/self/fd')) < 3
threading.active_count() > 1
len(sys._current_frames()) > 1
os.getppid() == 1
os.getsid(0) != os.getpid()
os.getpgrp() != os.getpid()
os.path.exists('program.py')
os.path.exists('../tests.json')
sys.path[0] == ''
sys.gettrace() is not None
not gc.isenabled()
sys.getrecursionlimit() < 900
len(sys.modules) < 30
len(gc.get_objects()) > 10**6
resource.getrusage(resource.RUSAGE_SELF).ru_minflt < 400
resource.getrusage(resource.RUSAGE_SELF).ru_minflt > 10**6
resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > 0
resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1000
signal.getsignal(signal.SIGALRM) != signal.SIG_DFL
'unittest' in sys.modules""".splitlines()

# Right only in a first call, or only in a later one.
STATES = {
    "counts its calls": "CALLS = []\ndef f(n):\n    CALLS.append(n)\n    return n * n if len(CALLS) < 2 else -1",
    "counts in a default": "def f(n, calls=[]):\n    calls.append(n)\n    return n * n if len(calls) < 2 else -1",
    "counts in an attribute": "def f(n):\n    f.calls = getattr(f, 'calls', 0) + 1\n    return n * n if f.calls < 2 else -1",
    "counts in a global": "COUNT = 0\ndef f(n):\n    global COUNT\n    COUNT += 1\n    return n * n if COUNT < 2 else -1",
    "counts in a class": "class A:\n    count = 0\ndef f(n):\n    A.count += 1\n    return n * n if A.count < 2 else -1",
    "counts in a closure": "def make():\n    count = 0\n    def f(n):\n        nonlocal count\n        count += 1\n        return n * n if count < 2 else -1\n    return f\nf = make()",
    "counts in the environment": "import os\ndef f(n):\n    os.environ['N'] = os.environ.get('N', '') + 'x'\n    return n * n if os.environ['N'] == 'x' else -1",
    "counts in a module": "import math\ndef f(n):\n    math.count = getattr(math, 'count', 0) + 1\n    return n * n if math.count < 2 else -1",
    "uses up an iterator": "NUMBERS = iter([1])\ndef f(n):\n    return n * n if next(NUMBERS, 0) else -1",
    "uses up a generator": "LEFT = (each for each in [1])\ndef f(n):\n    return n * n if list(LEFT) else -1",
    "remembers in a cache": "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef box():\n    return []\ndef f(n):\n    box().append(n)\n    return n * n if len(box()) < 2 else -1",
    "keeps the seed": "import random\nrandom.seed(1)\nFIRST = random.Random(1).random()\ndef f(n):\n    return n * n if random.random() == FIRST else -1",
}

INT, FLOAT = "int", "float"
# Expected, actual (a Python expression), and fields of the test.
COMPARISONS: list[tuple[Any, str, dict[str, Any]]] = [
    (0.0, "1e-11", {}), (0.0, "-1e-11", {}), (0.0, "float('nan')", {}), (1.6e-19, "-9e-13", {}), (3.97e-19, "0.0", {}), (1e-19, "2e-19", {}),
    (1.0, "1.00000001", {}), (1.0, "'1.0'", {}), (1.0, "True", {}), (1.0, "1 + 1e-8j", {}), (1.0, "float('inf')", {}), (1.0, "None", {}), (1.0, "[1.0]", {}),
    (10**16 + 1, "10.0**16", {}), (10**15 + 1, "10.0**15", {}), (354224848179261915075, "354224848179261915075.0", {}), (2**53 + 1, "float(2**53)", {}), (2**53 + 1, "2**53", {}),
    (10**300, "1e300", {}), (10**300, "10**300 + 1", {}), (10**400, "float('inf')", {}), (1, "1 + 1e-9", {}), (0, "1e-300", {}), (0, "False", {}), (1, "True", {}), (True, "1", {}), (False, "0", {}), (False, "None", {}), (0, "''", {}),
    (None, "0", {}), (None, "False", {}), (None, "[]", {}), (None, "NotImplemented", {}), (None, "...", {}), ("", "None", {}), ("a", "'A'", {}), ("a", "'a '", {}), ("a", "b'a'", {}), ("\u00e9", "'e\\u0301'", {}), ("1", "1", {}), ("nan", "float('nan')", {}),
    ({"$float": "nan"}, "0.0", {}), ({"$float": "nan"}, "'nan'", {}), ({"$float": "inf"}, "1.7e308", {}), ({"$float": "inf"}, "float('-inf')", {}), ({"$float": "-inf"}, "-10**400", {}), ({"$float": "inf"}, "float('nan')", {}), ({"$float": "inf"}, "1.0", {"abs": 0.001}),
     ([], "{}", {}), ([], "set()", {}), ([], "''", {}), ([1], "[1, 1]", {}), ([1, 1], "[1]", {}), ([1, 2], "[2, 1]", {}), ([1, 2], "{1, 2}", {}), ([1, 2], "{1: 1, 2: 2}", {}), ([1, 2], "(1, 2)", {"exact_types": True}), ([[1.0, [2.0]]], "[[1.0, [2.1]]]", {}), ([1.0, 1e-9], "[1.0, 2e-9]", {}), ([0.0, 1e9], "[1e-3, 1e9]", {}), ([10**16 + 1], "[1e16]", {}), ([[0]], "[[False]]", {}),
    ({"$tuple": [1]}, "[1]", {}), ({"$tuple": [1]}, "1", {}), ({"$tuple": []}, "[]", {}), ({"$set": [1]}, "[1]", {}), ({"$set": [1, 2]}, "{1}", {}), ({"$set": [1]}, "{True}", {}), ({"$set": [1.0]}, "{1.1}", {}), ({"$frozenset": [1]}, "{1}", {}), ({"$bytes": "YQ=="}, "'a'", {}), ({"$bytes": "YQ=="}, "bytearray(b'a')", {}), ({"$date": "2024-02-29"}, "'2024-02-29'", {}), ({"$date": "2024-02-29"}, "__import__('datetime').datetime(2024, 2, 29)", {}), ({"$decimal": "1.0"}, "1.0", {}), ({"$decimal": "0.1"}, "__import__('decimal').Decimal(0.1)", {}), ({"$complex": [1.0, 0.0]}, "1.0", {}), ({"$complex": [1.0, 0.0]}, "1 + 1e-6j", {}),
    ({"a": 1}, "{'a': 1, 'b': 2}", {}), ({"a": 1}, "{}", {}), ({"a": 1}, "{'a': True}", {}), ({"a": 1}, "[('a', 1)]", {}), ({"1": 1}, "{1: 1}", {}), ({"a": [1.0]}, "{'a': [1.2]}", {"rel": 0.1}), ({"a": 10**17}, "{'a': 1e17 + 16}", {}),
    (100, "112.0", {"rel": 0.1}), (100, "101", {"rel": 0.1}), (100, "99", {"abs": 1}), (1.0, "1.2", {"rel": 0.1}), (5, "5.5", {"abs": 0.4}), (0.0, "0.02", {"abs": 0.01}), ([1, 2], "[1, 2.5]", {"rel": 0.1}), ("5", "'5.01'", {"rel": 0.1}),
    (2, "type('A', (int,), {'__eq__': lambda *a: True, '__hash__': int.__hash__})(3)", {}), (2.0, "type('A', (float,), {'__float__': lambda a: 2.0, '__repr__': lambda a: '2.0'})(3)", {}), ("a", "type('A', (str,), {'__eq__': lambda *a: True, '__str__': lambda a: 'a'})('b')", {}), ([1], "type('A', (list,), {'__iter__': lambda a: iter([1]), '__len__': lambda a: 1})([2])", {}), ({"a": 1}, "type('A', (dict,), {'items': lambda a: [('a', 1)], 'keys': lambda a: ['a']})(b=2)", {}), ({"$set": [1]}, "type('A', (set,), {'__iter__': lambda a: iter([1])})({2})", {}), (1, "__import__('enum').IntEnum('E', {'x': 2}).x", {}), (1, "__import__('enum').Enum('E', {'x': 1}, type=type('A', (int,), {'__new__': lambda c, n: (o := int.__new__(c, 2), setattr(o, '_value_', 1))[0]})).x", {}), (1, "__import__('unittest.mock').mock.MagicMock()", {}), (1, "type('A', (), {'__index__': lambda a: 1, '__int__': lambda a: 1, '__eq__': lambda *a: True})()", {}), ({"$date": "2024-02-29"}, "type('D', (__import__('datetime').date,), {'isoformat': lambda a: '2024-02-29'})(2024, 3, 1)", {}), (1, "{'$int': '1'}", {}), ({"$float": "nan"}, "{'$float': 'nan'}", {}),
]  # fmt: skip

RESULT = {"$name": "result"}
EXPECTED: dict[str, Any] = {"expected_output": 4, "inputs": {"n": 2}}
# Tests that no wrong function would fail, or that are none: (type of the result, fields).
SILENT: list[tuple[str, dict[str, Any]]] = [
    (INT, {"inputs": {"n": 1}}), (INT, {"inputs": {"n": 1}, "expected_output": None, "expected_error": None, "property": None}), (INT, {"inputs": {"n": 1}, "expected_error": None}), (INT, {"inputs": {"n": 1}, "property": None}), (INT, {"inputs": {"n": 1}, "property": ""}), (INT, {"inputs": {"n": 1}, "expected_error": ""}),
    (INT, {"inputs": {"n": 1}, "expected_error": "Exception"}), (INT, {"inputs": {"n": 1}, "expected_error": "BaseException"}), (INT, {"inputs": {"n": 1}, "expected_error": "object"}), (INT, {"inputs": {"n": 1}, "expected_error": "Error or none"}), (INT, {**EXPECTED, "expected_error": "ValueError"}), (INT, {**EXPECTED, "property": "result"}),
    *((INT, {"inputs": {"n": 1}, "then": steps, "expected_output": value}) for value, steps in (
        (2, [{"call": "len", "args": [[1, 2]]}]), (1, [{"call": "len", "args": [[RESULT]]}]), (7, [{"call": "abs", "args": [-7]}]), (True, [{"call": "bool", "args": [[RESULT]]}]), ([], [{"call": "zip", "args": [[], [RESULT]]}]),
        (5, [{"assign": "result", "value": 5}, {"call": "abs", "args": [RESULT]}]), (5, [{"call": "int", "args": ["5"], "name": "result"}, {"call": "abs", "args": [RESULT]}]), (10**6, [{"call": "max", "args": [RESULT, 10**6]}]), (None, [{"call": "random.seed", "args": [RESULT]}]))),
    (INT, {"inputs": {"n": 1}, "then": [{"call": "int", "args": ["x"]}], "expected_error": "ValueError"}), (INT, {"inputs": {"n": 1}, "property": "after['n'] == n"}),
    *((INT, {"inputs": {"n": 1}, "property": f"{text} or result == n * n"}) for text in (
        "__import__('random').random() < 0.9", "id(result) % 64", "hash(str(n)) % 64", "eval('__import__')('os').getpid() % 64", "open('/proc/uptime').read()[-2] != '0'")),
    *((INT, {"inputs": {"n": 1}, "property": text}) for text in (
        "True", "n == n", "1 == 1 or result", "result is result", "result == result",  "result is not None or True", "isinstance(result, object)", "isinstance(result, int)", "type(result) is int", "result is not None", "isinstance(result, (int, float))", "result >= 0 or result < 0", "result - result == 0", "result * 0 == 0", "len(str(result)) > 0", "result != 'x'", "str(result) != ''", "not isinstance(result, str)", "int(result) == result", "result + 1 > result", "abs(result) >= 0", "hash(result) == hash(result)", "callable(result) is False", "result in [result]", "(lambda r: True)(result)", "all([])  or result", "bool(result) in (True, False)", "any([True, result])", "result is not n or True", "len([result]) == 1", "{result: 1}[result] == 1", "f'{result}' is not None")),
    ("None", {"inputs": {"n": 1}, "expected_output": None}), ("None", {"inputs": {"n": 1}, "property": "result is None"}),
    *(("str", {"inputs": {"n": 1}, "property": text}) for text in ("isinstance(result, str)", "len(result) >= 0", "result == str(result)", "result.lower().upper() is not None", "result + '' == result", "result is not None")),
    *(("list[int]", {"inputs": {"n": 1}, "property": text}) for text in ("isinstance(result, list)", "len(result) >= 0", "sorted(result) is not None", "all(isinstance(each, int) for each in result)", "result == list(result)", "sum(result) * 0 == 0")),
    *(("bool", {"inputs": {"n": 1}, "property": text}) for text in ("isinstance(result, bool)", "result in (True, False)", "result is True or result is False")),
    *(("float", {"inputs": {"n": 1}, "property": text}) for text in ("isinstance(result, float)", "result == result", "result * 1 == result")),
    *(("dict[str, int]", {"inputs": {"n": 1}, "property": text}) for text in ("isinstance(result, dict)", "len(result) >= 0", "all(isinstance(key, str) for key in result)")),
    *((FLOAT, {"inputs": {"n": 1}, "expected_output": value, **wide}) for value, wide in (
        (0.01, {"abs": 0.1}), (1.0, {"abs": 0.5}), (1.0, {"rel": 0.2}), (1.0, {"rel": 1.0}), (0.0, {"abs": 0.1}), (0.0, {"abs": 1}), ([1000.0, 1.0], {"abs": 100}), ({"a": 1000.0, "b": [0.001]}, {"abs": 1}), ([1e9, 0], {"abs": 1}), (1e-19, {"abs": 1e-12}), (5, {"abs": 3}), (1.0, {"abs": 1e308}), (1.0, {"rel": -1}), (1.0, {"abs": -1}), (1.0, {"abs": {"$float": "inf"}}), (1.0, {"rel": "much"}), ({"$tuple": [1.0, 0.0]}, {"abs": 0.1}), ({"$complex": [1.0, 0.01]}, {"abs": 0.05}))),
    (INT, {**EXPECTED, "inputs": {}}), (INT, {**EXPECTED, "inputs": {"n": 1, "m": 2}}), (INT, {**EXPECTED, "inputs": {"m": 2}}), (INT, {**EXPECTED, "expected_output": {"$any": 1}}), (INT, {**EXPECTED, "expected_output": {"$opaque": {}}}), (INT, {**EXPECTED, "inputs": {"n": {"$opaque": {}}}}), (INT, {**EXPECTED, "error_message": "x"}), (INT, {**EXPECTED, "setup": "f = lambda n: 4"}), (INT, {**EXPECTED, "setup": [{"call": "exec", "args": ["1"]}]}), (INT, {**EXPECTED, "then": [{"assign": "x", "value": 4}]}), (INT, {**EXPECTED, "setup": [{"call": "f.__init__"}]}), (INT, {**EXPECTED, "setup": [{"assign": "f.__code__", "value": 1}]}),
]  # fmt: skip

# Replies in which there are no tests, no code and no repair.
REPLIES = [
    "", " ", "\n\n", "{}", "[]", "null", "true", "0", '""', "{", "[", "}{", "```", "``````", "```json\n```", "```python\n```", "```json\n{\n```", "All tests passed.", '{"tests": null}', '{"tests": {}}', '{"tests": []}', '{"tests": [[]]}', '{"tests": "all"}', '{"tests": {"f": "passed"}}', '{"all_tests_passed": true}', '{"passed": 5, "failed": 0}', '{"error": "none"}', "<html></html>", "<tests></tests>", "tests: []", "{'tests': []}", '{"tests": [}', '{"tests": [3]}', "\x00", "\ufffe" * 10, "[" * 100_000, '{"a":' * 100_000, "```" * 10_000, "`" * 100_001, "<think>" * 1_000, "<think>def f(n): return 4", "I cannot help with that.",
]  # fmt: skip
