"""Other values of a declared type: a test says something only if it fails for some of them."""

from __future__ import annotations

import ast
import datetime
import functools
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

from coderoom.judge.cases import FunctionTest, freeze
from coderoom.judge.harness import look_of
from coderoom.judge.source import UNREADABLE, WRAPPERS, is_dots, named, parsed_expression, read_type
from coderoom.judge.values import TaggedError, canonical, decode, encode, show

if TYPE_CHECKING:
    from coderoom.judge.judge import Judge

_COUNT = 24
_LONGEST = 300
_DAY = datetime.datetime.fromisoformat("2024-02-29")

Make = Callable[[Random, int], Any]
"""Makes a value: an empty one, zero or `False` for the size 0, and otherwise a random one."""


@functools.lru_cache(maxsize=256)
def other_values(declared: str) -> tuple[Any, ...]:
    """Different values of a type, as tagged data; none if it is unknown.

    An empty one or zero comes first, then random ones, half of the numbers negative. Unknown parts of a type, such as
    the items of `list[Point]`, may be anything.
    """
    try:
        make = _of(_expression(declared[:_LONGEST]))
        random = Random(0)
        values = [encode(make(random, min(number, 3))) for number in range(_COUNT)]
    except (*UNREADABLE, LookupError, TypeError, TaggedError):
        return ()
    return tuple({canonical(value): value for value in values}.values())


def _expression(declared: str) -> ast.expr:
    """A type as an expression: Python's as it is, `T[]` and `Array<T>` of TypeScript, `str (a note)`, `list of T`."""
    try:
        return parsed_expression(declared)
    except SyntaxError:
        words = _OF.fullmatch(declared.partition(" (")[0].strip())
        return read_type(f"{words[1]}[Any]" if words else declared)


def _of(kind: ast.expr) -> Make:
    """What makes values of a type; `LookupError` if it is unknown."""
    if isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):  # In TypeScript, text in it is a literal.
        return _one_of([_literal([each]) if isinstance(each, ast.Constant) else _of(each)
                        for each in (kind.left, kind.right)])  # fmt: skip
    if isinstance(kind, ast.Subscript) and is_dots(kind.slice):
        items = [_part(kind.value)]
        return lambda random, size: [items[0](random, size) for _ in range(size)]
    name, parts = ("object", ()) if isinstance(kind, ast.Dict) else named(kind)
    name = _ALIASES.get(name.lower(), name.lower())
    if name == "union":
        return _one_of([_of(each) for each in parts])
    if name == "literal":
        return _literal(parts)
    if name in WRAPPERS:
        return _of(parts[0])
    if not parts and name in _SIMPLE:
        return _SIMPLE[name]
    parts = parts or [ast.Name("int")] * (2 if name == "dict" else 1)
    items = [_part(each) for each in parts if not is_dots(each)]
    if name == "tuple" and len(items) == len(parts):
        return lambda random, size: tuple(item(random, size) for item in items)
    if name == "dict":
        key, value = (*items, _int)[:2]
        return lambda random, size: {key(random, size): value(random, size) for _ in range(size)}
    collect = _COLLECTIONS[name]
    return lambda random, size: collect(items[0](random, size) for _ in range(size))


def _part(kind: ast.expr) -> Make:
    """What makes parts of a value: anything, if their type is unknown."""
    try:
        return _of(kind)
    except LookupError:
        return lambda random, size: random.choice(_PARTS) if size else None


def _one_of(makers: Sequence[Make]) -> Make:
    return lambda random, size: random.choice(makers)(random, size)


def _literal(parts: Sequence[ast.expr]) -> Make:
    values = [ast.literal_eval(each) for each in parts]
    return lambda random, size: random.choice(values)


def _int(random: Random, size: int) -> int:
    return random.randint(-99, 99) if size else 0


_COLLECTIONS: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_ALIASES = {
    **dict.fromkeys(("array", "sequence", "iterable", "iterator", "generator", "collection"), "list"),
    **dict.fromkeys(("mapping", "mutablemapping", "defaultdict", "ordereddict", "counter", "map", "record"), "dict"),
    **dict.fromkeys(("string", "text"), "str"),
    **dict.fromkeys(("integer", "number", "bigint"), "int"),
    **dict.fromkeys(("null", "undefined", "void"), "none"),
    "double": "float",
    "boolean": "bool",
}
_PARTS = (None, 1, -2.5, "a", True, ("b", 0))
_OF = re.compile(r"(?:an? )?(\w+) of .+", re.IGNORECASE)
_SIMPLE: dict[str, Make] = {
    "object": lambda random, size: {random.choice("abc"): random.choice(_PARTS) for _ in range(size)},
    "none": lambda random, size: None,
    "bool": lambda random, size: bool(size) and random.random() < 0.5,
    "int": _int,
    "float": lambda random, size: _int(random, size) / 7,
    "complex": lambda random, size: complex(_int(random, size), _int(random, size)),
    "str": lambda random, size: "".join(random.choice("aB 0é-") for _ in range(size)),
    "bytes": lambda random, size: bytes(random.choice(b"aB 0-") for _ in range(size)),
    "decimal": lambda random, size: Decimal(_int(random, size)) / 100,
    "fraction": lambda random, size: Fraction(_int(random, size), 7),
    "datetime": lambda random, size: _DAY + datetime.timedelta(_int(random, size), 60 * size),
    "date": lambda random, size: (_DAY + datetime.timedelta(_int(random, size))).date(),
    "time": lambda random, size: datetime.time(abs(_int(random, size)) % 24, size),
    "timedelta": lambda random, size: datetime.timedelta(_int(random, size), size),
}


_PLAIN: tuple[Any, ...] = (None, -1, "x", [])
_ABSURD = (*_PLAIN, {"$object": {"type": "Nothing", "fields": {}}})
_ANYTHING = "None, -1, 'x', [] and any object"
_NOTHING = "a function that does nothing"


_MIXED: tuple[Any, ...] = (0, 1, 7, -2.5, True, "", "abc", [1, 2], [[]], {}, {"a": 1}, {"$tuple": [0, "y"]})
"""Values for a declared type that is not known; a property may fail for a few of them and still say nothing."""
_FEW = 2
_FEW_TYPED = 6
_LITERAL = (type(None), bool, int, float, complex, str, bytes, list, tuple, set, dict)


async def vacuous_tests(
    tests: Sequence[FunctionTest], function: str, declared: str, judge: Judge
) -> list[tuple[FunctionTest, str]]:
    """The tests that say nothing, each with the reason.

    They hold for several absurd results, or for several other values of the type that the function is declared to
    return. Properties and the steps after the call are tried in the sandbox.
    """
    typed = other_values(declared)
    found = await _pass_anyway([test for test in tests if test.then], function, declared, judge)
    silent = [test for test in tests if test.expects == "output" and test.expected_output is None and not test.then]
    # Beside a test that expects an error, they say that other inputs raise none.
    does_nothing = typed == (None,) and not any(test.expects == "error" for test in tests)
    found += [(test, _NOTHING) for test in silent if does_nothing]
    candidates = [test for test in tests if test.property is not None and test not in [each for each, _ in found]]
    results = [*_ABSURD, *(typed or _MIXED)]
    looks = [look_of(each, result, dict.fromkeys(each.inputs, result)) for each in candidates for result in results]
    verdicts = iter(await judge.look(looks))
    for test in candidates:
        absurd, others = ([next(verdicts) for _ in several] for several in (_ABSURD, typed or _MIXED))
        if all(absurd):
            found.append((test, _ANYTHING))
        elif not typed and sum(others) >= len(others) - _FEW:
            found.append((test, "nearly all values of any type"))
        elif does_nothing and all(others):
            found.append((test, _NOTHING))
        elif len(typed) > 1 and all(others):
            found.append((test, f"other values of the type, such as {', '.join(map(show, typed[:3]))}"))
    return found


async def trivial_program(tests: Sequence[FunctionTest], inputs: Sequence[str], declared: str, judge: Judge) -> str:
    """A function of these inputs without any use that passes all of these tests; empty if none does."""
    if not (tests and inputs) or any(test.has_steps for test in tests):
        return ""
    if all(test.expects == "error" and test.expected_error == tests[0].expected_error for test in tests):
        return "one that always fails"
    constants = [test.expected_output for test in tests if test.expects == "output"][:1]
    programs = {f"one that always returns {show(each)}": [each] * len(tests)
                for each in constants or other_values(declared)[:_FEW_TYPED]}  # fmt: skip
    programs["one that returns its first argument"] = [test.inputs.get(inputs[0]) for test in tests]
    for program, results in programs.items():
        pairs = [*zip(tests, results, strict=True)]
        compared = [judge.language.compare(*pair).equal for pair in pairs if pair[0].expects == "output"]
        looks = [look_of(test, result, test.inputs) for test, result in pairs if test.expects == "property"]
        if all(compared) and len(compared) + len(looks) == len(tests) and all(await judge.look(looks)):
            return program
    return ""


async def _pass_anyway(
    tests: Sequence[FunctionTest], function: str, declared: str, judge: Judge
) -> list[tuple[FunctionTest, str]]:
    """The tests with steps after the call that functions pass which return always the same."""
    if not tests or judge.language.name != "python":
        return []
    values = map(decode, (*_PLAIN, *other_values(declared)[:_FEW_TYPED]))
    sources = {f"{function}_{number}": f"def {function}_{number}(*args, **kwargs):\n    return {value!r}\n"
               for number, value in enumerate(values) if type(value) in _LITERAL}  # fmt: skip
    results = await judge.run(sources, freeze(dict.fromkeys(sources, tests)), final=False)
    found = []
    for number, test in enumerate(tests):
        passed = [each.passed for each in results[number :: len(tests)]]
        plain, typed = passed[: len(_PLAIN)], passed[len(_PLAIN) :]
        if all(plain) or (len(typed) > 1 and all(typed)):
            found.append((test, _ANYTHING if all(plain) else "other values of the type"))
    return found
