# ruff: noqa: E501 (programs, one to a line)
"""Instructions with specs, tests and right code as models write them: classes, generators, closures, state, results.

`test_honest` gives them to the generator; all must succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True)
class Task:
    """One function with its code and tests.

    Attributes:
        title: What is asked for.
        name: The name of the function.
        inputs: The types of its parameters by name.
        output: The type of its result.
        code: The right code.
        tests: Each a list of inputs, the expected result (or a dict of fields of a test), and steps before and after.
    """

    title: str
    name: str
    inputs: dict[str, str]
    output: str
    code: str
    tests: list[dict[str, Any]]


def of(*values: Any, **fields: Any) -> dict[str, Any]:
    return {"values": values, **fields}


def gives(*values: Any) -> dict[str, Any]:
    *inputs, expected = values
    return of(*inputs, expected_output=expected)


def holds(*values: Any) -> dict[str, Any]:
    *inputs, text = values
    return of(*inputs, property=text)


def fails(*values: Any) -> dict[str, Any]:
    *inputs, error = values
    return of(*inputs, expected_error=error)


def call(what: str, *args: Any, name: str | None = None, **kwargs: Any) -> dict[str, Any]:
    step: dict[str, Any] = {"call": what, "args": list(args)}
    return step | ({"kwargs": kwargs} if kwargs else {}) | ({"name": name} if name else {})


RESULT = {"$name": "result"}


def made(*values: Any, then: list[dict[str, Any]], gives: Any) -> dict[str, Any]:
    return of(*values, then=then, expected_output=gives)


def calls(*args: Any) -> list[dict[str, Any]]:
    """Calls of the result, one for each argument."""
    return [call("result", each) for each in args]


def nexts(count: int) -> list[dict[str, Any]]:
    return [call("next", RESULT) for _ in range(count)]


def method(name: str, *args: Any) -> dict[str, Any]:
    return call(f"result.{name}", *args)


INT = {"x": "int"}
TASKS = [
    Task("an LRU cache", "make_cache", {"capacity": "int"}, "LRUCache",
         "from collections import OrderedDict\n\nclass LRUCache:\n    def __init__(self, capacity):\n        if capacity < 1:\n            raise ValueError('capacity must be positive')\n        self.capacity = capacity\n        self._data = OrderedDict()\n    def get(self, key):\n        if key not in self._data:\n            return -1\n        self._data.move_to_end(key)\n        return self._data[key]\n    def put(self, key, value):\n        self._data[key] = value\n        self._data.move_to_end(key)\n        if len(self._data) > self.capacity:\n            self._data.popitem(last=False)\n\ndef make_cache(capacity):\n    return LRUCache(capacity)\n",
         [made(2, then=[method("put", 1, 5), method("get", 1)], gives=5), made(1, then=[method("put", 1, 5), method("put", 2, 6), method("get", 1)], gives=-1),
          made(2, then=[method("put", 1, 5), method("put", 2, 6), method("get", 1), method("put", 3, 7), method("get", 2)], gives=-1), fails(0, "ValueError")]),
    Task("a bank account", "open_account", {"balance": "float"}, "Account",
         "class InsufficientFunds(Exception):\n    pass\n\nclass Account:\n    def __init__(self, balance):\n        self.balance = balance\n    def deposit(self, amount):\n        self.balance += amount\n        return self.balance\n    def withdraw(self, amount):\n        if amount > self.balance:\n            raise InsufficientFunds('too little')\n        self.balance -= amount\n        return self.balance\n\ndef open_account(balance):\n    return Account(balance)\n",
         [made(10, then=[method("deposit", 5)], gives=15), made(10.5, then=[method("withdraw", 0.5)], gives=10.0), of(1, then=[method("withdraw", 2)], expected_error="InsufficientFunds")]),
    Task("a matrix class", "multiply", {"a": "list[list[int]]", "b": "list[list[int]]"}, "list[list[int]]",
         "class Matrix:\n    def __init__(self, rows):\n        self.rows = rows\n    def __matmul__(self, other):\n        return Matrix([[sum(a * b for a, b in zip(row, column)) for column in zip(*other.rows)] for row in self.rows])\n\ndef multiply(a, b):\n    return (Matrix(a) @ Matrix(b)).rows\n",
         [gives([[1, 2], [3, 4]], [[1, 0], [0, 1]], [[1, 2], [3, 4]]), gives([[1, 2]], [[3], [4]], [[11]]), gives([[2]], [[3]], [[6]])]),
    Task("an iterator with reset", "make_iterator", {"items": "list[int]"}, "ResettableIterator",
         "class ResettableIterator:\n    def __init__(self, items):\n        self._items = list(items)\n        self._index = 0\n    def __iter__(self):\n        return self\n    def __next__(self):\n        if self._index >= len(self._items):\n            raise StopIteration\n        self._index += 1\n        return self._items[self._index - 1]\n    def reset(self):\n        self._index = 0\n\ndef make_iterator(items):\n    return ResettableIterator(items)\n",
         [made([1, 2], then=nexts(2), gives=2), made([1, 2], then=[*nexts(1), method("reset"), *nexts(1)], gives=1), made([4, 5], then=[call("list", RESULT)], gives=[4, 5]), of([], then=nexts(1), expected_error="StopIteration")]),
    Task("a memoized closure", "memoize", {"f": "Callable"}, "Callable",
         "def memoize(f):\n    cache = {}\n    def wrapper(x):\n        if x not in cache:\n            cache[x] = f(x)\n        return cache[x]\n    return wrapper\n",
         [made({"$name": "abs"}, then=calls(-3), gives=3), made({"$name": "abs"}, then=calls(-3, -3), gives=3), made({"$name": "str"}, then=calls(5), gives="5")]),
    Task("a counter factory", "make_counter", {"start": "int"}, "Callable[[], int]",
         "def make_counter(start):\n    count = start\n    def counter():\n        nonlocal count\n        count += 1\n        return count\n    return counter\n",
         [made(0, then=[call("result")], gives=1), made(5, then=[call("result"), call("result")], gives=7), made(-1, then=[call("result")], gives=0)]),
    Task("a generator of primes", "primes", {}, "Iterator[int]",
         "def primes():\n    found = []\n    n = 2\n    while True:\n        if all(n % p for p in found):\n            found.append(n)\n            yield n\n        n += 1\n",
         [made(then=nexts(1), gives=2), made(then=nexts(2), gives=3), made(then=nexts(10), gives=29)]),
    Task("a generator with an end", "countdown", {"n": "int"}, "Iterator[int]",
         "def countdown(n):\n    while n > 0:\n        yield n\n        n -= 1\n",
         [gives(3, [3, 2, 1]), gives(0, []), gives(1, [1])]),
    Task("a generator expression", "squares", {"n": "int"}, "Generator[int, None, None]",
         "def squares(n):\n    return (i * i for i in range(n))\n",
         [gives(3, [0, 1, 4]), gives(0, []), holds(5, "sum(result) == 30")]),
    Task("a tree with insert", "build_tree", {"values": "list[int]"}, "Tree",
         "class Node:\n    def __init__(self, value):\n        self.value = value\n        self.left = None\n        self.right = None\n\nclass Tree:\n    def __init__(self):\n        self.root = None\n    def insert(self, value):\n        if self.root is None:\n            self.root = Node(value)\n            return\n        node = self.root\n        while True:\n            side = 'left' if value < node.value else 'right'\n            child = getattr(node, side)\n            if child is None:\n                setattr(node, side, Node(value))\n                return\n            node = child\n    def in_order(self, node=None, top=True):\n        node = self.root if top else node\n        if node is None:\n            return []\n        return self.in_order(node.left, False) + [node.value] + self.in_order(node.right, False)\n\ndef build_tree(values):\n    tree = Tree()\n    for value in values:\n        tree.insert(value)\n    return tree\n",
         [made([3, 1, 2], then=[method("in_order")], gives=[1, 2, 3]), made([], then=[method("in_order")], gives=[]), made([2], then=[method("insert", 1), method("in_order")], gives=[1, 2])]),
    Task("a priority queue", "make_queue", {}, "PriorityQueue",
         "import heapq\nimport itertools\n\nclass PriorityQueue:\n    def __init__(self):\n        self._heap = []\n        self._count = itertools.count()\n    def push(self, item, priority):\n        heapq.heappush(self._heap, (priority, next(self._count), item))\n    def pop(self):\n        return heapq.heappop(self._heap)[2]\n    def __len__(self):\n        return len(self._heap)\n\ndef make_queue():\n    return PriorityQueue()\n",
         [made(then=[method("push", "a", 2), method("push", "b", 1), method("pop")], gives="b"), made(then=[method("push", "a", 1), method("push", "b", 1), method("pop")], gives="a"), of(then=[method("pop")], expected_error="IndexError"), made(then=[method("push", "a", 1), call("len", RESULT)], gives=1)]),
    Task("a context manager", "log_of", {"names": "list[str]"}, "list[str]",
         "class Recorder:\n    def __init__(self, log, name):\n        self.log = log\n        self.name = name\n    def __enter__(self):\n        self.log.append('enter ' + self.name)\n        return self\n    def __exit__(self, *error):\n        self.log.append('exit ' + self.name)\n        return False\n\ndef log_of(names):\n    log = []\n    for name in names:\n        with Recorder(log, name):\n            log.append('in')\n    return log\n",
         [gives(["a"], ["enter a", "in", "exit a"]), gives([], []), holds(["a", "b"], "len(result) == 6")]),
    Task("a context manager by contextlib", "run_within", {"fail": "bool"}, "list[str]",
         "from contextlib import contextmanager\n\n@contextmanager\ndef section(log):\n    log.append('begin')\n    try:\n        yield log\n    finally:\n        log.append('end')\n\ndef run_within(fail):\n    log = []\n    try:\n        with section(log):\n            if fail:\n                raise ValueError('x')\n    except ValueError:\n        log.append('failed')\n    return log\n",
         [gives(False, ["begin", "end"]), gives(True, ["begin", "end", "failed"]), holds(True, "result[-1] == 'failed'")]),
    Task("a property with a setter", "make_temperature", {"celsius": "float"}, "Temperature",
         "class Temperature:\n    def __init__(self, celsius):\n        self.celsius = celsius\n    @property\n    def celsius(self):\n        return self._celsius\n    @celsius.setter\n    def celsius(self, value):\n        if value < -273.15:\n            raise ValueError('below absolute zero')\n        self._celsius = value\n    def to_fahrenheit(self):\n        return self.celsius * 9 / 5 + 32\n\ndef make_temperature(celsius):\n    return Temperature(celsius)\n",
         [made(100, then=[method("to_fahrenheit")], gives=212.0), fails(-300, "ValueError"), made(0.0, then=[method("to_fahrenheit")], gives=32.0)]),
    Task("attributes that steps set", "area", {"box": "Box"}, "int",
         "class Box:\n    def __init__(self, width, height):\n        self.width = width\n        self.height = height\n\ndef area(box):\n    return box.width * box.height\n",
         [of({"$name": "b"}, setup=[call("Box", 2, 3, name="b")], expected_output=6), of({"$name": "b"}, setup=[call("Box", 2, 3, name="b"), {"assign": "b.width", "value": 5}], expected_output=15), of({"$name": "b"}, setup=[call("Box", width=1, height=1, name="b")], expected_output=1)]),
    Task("a dataclass", "midpoint", {"a": "Point", "b": "Point"}, "Point",
         "from dataclasses import dataclass\n\n@dataclass\nclass Point:\n    x: float\n    y: float\n\ndef midpoint(a, b):\n    return Point((a.x + b.x) / 2, (a.y + b.y) / 2)\n",
         [of({"$name": "a"}, {"$name": "b"}, setup=[call("Point", 0, 0, name="a"), call("Point", x, y, name="b")], expected_output={"$object": {"type": "Point", "fields": {"x": x / 2, "y": y / 2}}}) for x, y in ((2, 4), (0, 0), (-2, 1))]),
    Task("a frozen dataclass with a property test", "move", {"x": "int", "y": "int"}, "Place",
         "import dataclasses\n\n@dataclasses.dataclass(frozen=True, order=True)\nclass Place:\n    x: int\n    y: int\n    tags: list = dataclasses.field(default_factory=list)\n\ndef move(x, y):\n    return dataclasses.replace(Place(x, y), x=x + 1)\n",
         [holds(1, 2, "result.x == 2 and result.y == 2"), holds(0, 0, "result.x == 1 and result.tags == []"), holds(-1, 5, "(result.x, result.y) == (0, 5)")]),
    Task("an enum", "next_light", {"name": "str"}, "Light",
         "from enum import Enum\n\nclass Light(Enum):\n    RED = 'red'\n    GREEN = 'green'\n    YELLOW = 'yellow'\n\ndef next_light(name):\n    lights = list(Light)\n    return lights[(lights.index(Light[name]) + 1) % len(lights)]\n",
         [gives("RED", {"$enum": {"type": "Light", "name": "GREEN", "value": "green"}}), gives("YELLOW", {"$enum": {"type": "Light", "name": "RED", "value": "red"}}), fails("BLUE", "KeyError")]),
    Task("a coroutine", "gather", {"numbers": "list[int]"}, "list[int]",
         "import asyncio\n\nasync def _double(x):\n    await asyncio.sleep(0)\n    return 2 * x\n\nasync def gather(numbers):\n    return list(await asyncio.gather(*(_double(x) for x in numbers)))\n",
         [gives([1, 2], [2, 4]), gives([], []), holds([3], "result == [6]")]),
    Task("asyncio.run inside", "total", {"numbers": "list[int]"}, "int",
         "import asyncio\n\nasync def _add(numbers):\n    return sum(numbers)\n\ndef total(numbers):\n    return asyncio.run(_add(numbers))\n",
         [gives([1, 2], 3), gives([], 0), gives([-1], -1)]),
    Task("a range", "evens", {"n": "int"}, "range", "def evens(n):\n    return range(0, n, 2)\n", [gives(5, [0, 2, 4]), gives(0, []), holds(7, "len(result) == 4")]),
    Task("a map", "doubled", {"numbers": "list[int]"}, "Iterable[int]", "def doubled(numbers):\n    return map(lambda x: 2 * x, numbers)\n", [gives([1, 2], [2, 4]), gives([], []), holds([5], "result == [10]")]),
    Task("a filter and a zip", "pairs", {"a": "list[int]", "b": "list[int]"}, "Iterator[tuple[int, int]]", "def pairs(a, b):\n    return filter(all, zip(a, b))\n", [gives([1, 0], [2, 3], [{"$tuple": [1, 2]}]), gives([], [], []), gives([1], [1], [[1, 1]])]),
    Task("a view of keys", "names", {"ages": "dict[str, int]"}, "KeysView[str]", "def names(ages):\n    return ages.keys()\n", [gives({"a": 1, "b": 2}, ["a", "b"]), gives({}, []), holds({"c": 1}, "'c' in result")]),
    Task("a view of items", "entries", {"ages": "dict[str, int]"}, "ItemsView", "def entries(ages):\n    return ages.items()\n", [gives({"a": 1}, [{"$tuple": ["a", 1]}]), gives({}, []), gives({"b": 2}, [{"$tuple": ["b", 2]}])]),
    Task("a path", "with_suffix", {"path": "str", "suffix": "str"}, "Path", "from pathlib import Path\n\ndef with_suffix(path, suffix):\n    return Path(path).with_suffix(suffix)\n", [gives("a/b.txt", ".md", "a/b.md"), gives("c", ".py", "c.py"), fails("", ".x", "ValueError")]),
    Task("a tuple", "min_max", {"numbers": "list[int]"}, "tuple[int, int]", "def min_max(numbers):\n    return min(numbers), max(numbers)\n", [gives([3, 1], [1, 3]), gives([2], {"$tuple": [2, 2]}), fails([], "ValueError")]),
    Task("a named tuple", "divide", {"a": "int", "b": "int"}, "Division", "from typing import NamedTuple\n\nclass Division(NamedTuple):\n    quotient: int\n    remainder: int\n\ndef divide(a, b):\n    return Division(*divmod(a, b))\n", [gives(7, 2, {"$tuple": [3, 1]}), holds(9, 4, "result.quotient == 2"), fails(1, 0, "ZeroDivisionError")]),
    Task("a date", "next_day", {"day": "date"}, "date", "from datetime import date, timedelta\n\ndef next_day(day):\n    return day + timedelta(days=1)\n", [gives("2024-02-28", "2024-02-29"), gives("2023-12-31", "2024-01-01"), holds("2024-02-29", "result > day")]),
    Task("a set", "letters", {"text": "str"}, "set[str]", "def letters(text):\n    return {each for each in text.lower() if each.isalpha()}\n", [gives("abA", ["a", "b"]), gives("", []), gives("1", [])]),
    Task("a Counter", "count", {"words": "list[str]"}, "Counter", "from collections import Counter\n\ndef count(words):\n    return Counter(words)\n", [gives(["a", "b", "a"], {"a": 2, "b": 1}), gives([], {}), holds(["x"], "result['x'] == 1")]),
    Task("a defaultdict", "group", {"words": "list[str]"}, "dict[int, list[str]]", "from collections import defaultdict\n\ndef group(words):\n    found = defaultdict(list)\n    for word in words:\n        found[len(word)].append(word)\n    return found\n", [gives(["a", "bb", "c"], {"1": ["a", "c"], "2": ["bb"]}), gives([], {}), holds(["abc"], "result[3] == ['abc']")]),
    Task("any number of arguments", "average", {"numbers": "*float"}, "float", "def average(*numbers):\n    if not numbers:\n        raise ValueError('no numbers')\n    return sum(numbers) / len(numbers)\n", [gives([1, 2, 3], 2.0), fails([], "ValueError"), gives([5], 5.0)]),
    Task("options by name", "url", {"base": "str", "options": "**str"}, "str", "def url(base, **options):\n    query = '&'.join(f'{key}={value}' for key, value in sorted(options.items()))\n    return base + ('?' + query if query else '')\n", [gives("x", {"b": "2", "a": "1"}, "x?a=1&b=2"), gives("x", {}, "x"), gives("", {"a": "b"}, "?a=b")]),
    Task("both kinds of arguments", "describe", {"args": "*int", "kwargs": "**int"}, "dict[str, int]", "def describe(*args, **kwargs):\n    return {'args': len(args), **kwargs}\n", [gives([1, 2], {"x": 3}, {"args": 2, "x": 3}), gives([], {}, {"args": 0}), gives([1], {}, {"args": 1})]),
    Task("a deep recursion", "depth", INT, "int", "import sys\n\nsys.setrecursionlimit(10_000)\n\ndef depth(x):\n    return 0 if x == 0 else 1 + depth(x - 1)\n", [gives(3, 3), gives(0, 0), gives(5000, 5000)]),
    Task("a table filled by a loop", "is_prime", INT, "bool", "SIEVE = [True] * 1000\nSIEVE[0] = SIEVE[1] = False\nfor number in range(2, 32):\n    if SIEVE[number]:\n        for multiple in range(number * number, 1000, number):\n            SIEVE[multiple] = False\n\ndef is_prime(x):\n    return SIEVE[x]\n", [gives(7, True), gives(1, False), gives(997, True), gives(999, False)]),
    Task("a table filled by a helper", "code_of", {"letter": "str"}, "int", "TABLE = {}\n\ndef _register(table, letter):\n    table[letter] = ord(letter)\n\ndef _build():\n    for letter in 'abc':\n        _register(TABLE, letter)\n\ndef code_of(letter):\n    return TABLE[letter]\n\n_build()\nprint(code_of('a'))\n", [gives("a", 97), gives("c", 99), fails("d", "KeyError")]),
    Task("logging", "checked", INT, "int", "import logging\n\nlogging.basicConfig(level=logging.INFO)\nlogger = logging.getLogger(__name__)\n\ndef checked(x):\n    logger.info('checking %s', x)\n    return abs(x)\n", [gives(-3, 3), gives(0, 0), gives(4, 4)]),
    Task("an example at the end", "double", INT, "int", "def double(x):\n    return 2 * x\n\n# Example usage:\nprint(double(4))\nresult = double(3)\n", [gives(2, 4), gives(0, 0), gives(-1, -2)]),
    Task("assertions at the end", "triple", INT, "int", "def triple(x):\n    return 3 * x\n\nassert triple(2) == 6\nassert triple(0) == 0, 'zero'\n", [gives(2, 6), gives(0, 0), gives(-1, -3)]),
    Task("a main block", "half", {"x": "float"}, "float", "def half(x):\n    return x / 2\n\ndef main():\n    print(half(3))\n\nif __name__ == '__main__':\n    main()\n", [gives(2, 1.0), gives(0, 0.0), gives(-1, -0.5)]),
    Task("an lru_cache", "fibonacci", {"n": "int"}, "int", "from functools import lru_cache\n\n@lru_cache(maxsize=None)\ndef fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n", [gives(10, 55), gives(0, 0), gives(90, 2880067194370816120)]),
    Task("a global cache", "collatz", {"n": "int"}, "int", "_lengths = {1: 0}\n\ndef collatz(n):\n    if n < 1:\n        raise ValueError('n must be positive')\n    if n not in _lengths:\n        _lengths[n] = 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)\n    return _lengths[n]\n", [gives(1, 0), gives(6, 8), gives(27, 111), fails(0, "ValueError")]),
    Task("100,000 items and a property", "ascending", {"n": "int"}, "list[int]", "def ascending(n):\n    return list(range(n))\n", [holds(100_000, "len(result) == n and all(a < b for a, b in zip(result, result[1:]))"), gives(2, [0, 1]), gives(0, [])]),
    Task("a megabyte of text", "repeat", {"text": "str", "n": "int"}, "str", "def repeat(text, n):\n    return text * n\n", [holds("ab", 500_000, "len(result) == 1_000_000 and result.count('a') == n"), gives("x", 2, "xx"), gives("x", 0, "")]),
    Task("sorting in place", "sort", {"numbers": "list[int]"}, "None", "def sort(numbers):\n    numbers.sort()\n", [holds([3, 1], "result is None and after['numbers'] == sorted(numbers)"), holds([], "result is None and after['numbers'] == []"), holds([1], "result is None and after['numbers'] == [1]")]),
    Task("seeded random numbers", "shuffled", {"numbers": "list[int]", "seed": "int"}, "list[int]", "import random\n\ndef shuffled(numbers, seed):\n    chance = random.Random(seed)\n    found = list(numbers)\n    chance.shuffle(found)\n    return found\n", [holds([1, 2, 3], 1, "sorted(result) == numbers"), gives([], 1, []), gives([7], 3, [7])]),
    Task("random numbers within limits", "roll", {"sides": "int"}, "int", "import random\n\ndef roll(sides):\n    if sides < 1:\n        raise ValueError('sides')\n    return random.randint(1, sides)\n", [holds(6, "1 <= result <= 6"), gives(1, 1), fails(0, "ValueError")]),
    Task("a file", "count_lines", {"path": "str"}, "int", "def count_lines(path):\n    with open(path, encoding='utf-8') as file:\n        return sum(1 for _ in file)\n", [of("a.txt", setup=[{"file": "a.txt", "text": "x\ny\n"}], expected_output=2), of("a.txt", setup=[{"file": "a.txt", "text": ""}], expected_output=0), fails("none.txt", "FileNotFoundError")]),
    Task("a decorator with arguments", "retry", {"times": "int"}, "Callable", "import functools\n\ndef retry(times):\n    def decorate(f):\n        @functools.wraps(f)\n        def wrapper(*args, **kwargs):\n            for left in reversed(range(times)):\n                try:\n                    return f(*args, **kwargs)\n                except ValueError:\n                    if not left:\n                        raise\n        return wrapper\n    return decorate\n", [made(2, then=[call("result", {"$name": "int"}, name="g"), call("g", "5")], gives=5), of(2, then=[call("result", {"$name": "int"}, name="g"), call("g", "x")], expected_error="ValueError"), made(1, then=[call("result", {"$name": "len"}, name="g"), call("g", "ab")], gives=2)]),
    Task("an abstract class", "area_of", {"kind": "str", "size": "float"}, "float", "from abc import ABC, abstractmethod\nimport math\n\nclass Shape(ABC):\n    def __init__(self, size):\n        self.size = size\n    @abstractmethod\n    def area(self): ...\n\nclass Circle(Shape):\n    def area(self):\n        return math.pi * self.size ** 2\n\nclass Square(Shape):\n    def area(self):\n        return self.size ** 2\n\nSHAPES = {'circle': Circle, 'square': Square}\n\ndef area_of(kind, size):\n    return SHAPES[kind](size).area()\n", [gives("square", 3, 9.0), of("circle", 1, expected_output=3.14159, abs=0.001), fails("line", 1, "KeyError")]),
    Task("operators of a class", "add_vectors", {"a": "Vector", "b": "Vector"}, "Vector", "class Vector:\n    __slots__ = ('x', 'y')\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def __add__(self, other):\n        return Vector(self.x + other.x, self.y + other.y)\n    def __eq__(self, other):\n        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)\n    def __hash__(self):\n        return hash((self.x, self.y))\n    def __repr__(self):\n        return f'Vector({self.x}, {self.y})'\n\ndef add_vectors(a, b):\n    return a + b\n", [of({"$name": "a"}, {"$name": "b"}, setup=[call("Vector", 1, 2, name="a"), call("Vector", x, 0, name="b")], property=f"result.x == {1 + x} and result.y == 2") for x in (1, 0, -5)]),
    Task("a lambda", "tripled", INT, "int", "tripled = lambda x: 3 * x\n", [gives(2, 6), gives(0, 0), gives(-1, -3)]),
    Task("a function for each version", "tripled", INT, "int", "import sys\n\nif sys.version_info >= (3, 8):\n    def tripled(x):\n        return 3 * x\nelse:\n    def tripled(x):\n        return x + x + x\n", [gives(2, 6), gives(0, 0), gives(-1, -3)]),
    Task("overloads", "twice", {"x": "int | str"}, "int | str", "import typing as t\n\n@t.overload\ndef twice(x: int) -> int: ...\n@t.overload\ndef twice(x: str) -> str: ...\ndef twice(x):\n    return x * 2\n", [gives(2, 4), gives("a", "aa"), gives(0, 0)]),
    Task("a generator that is sent values", "averages", {}, "Generator[float, float, None]", "def averages():\n    total, count, average = 0.0, 0, None\n    while True:\n        total += yield average\n        count += 1\n        average = total / count\n", [made(then=[*nexts(1), *(method("send", x) for x in xs)], gives=average) for xs, average in (([10], 10.0), ([10, 20], 15.0), ([1, 2, 6], 3.0))]),
]  # fmt: skip
