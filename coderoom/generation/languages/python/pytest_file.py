"""Writes the tests of a Python module: a pytest file that a person reads, and a small module that it uses.

The small module compares plain data as the judge does. A test that needs more of the judge is not written: the file
says how many, and why.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from coderoom._util.text import visible
from coderoom.generation.languages import MARK
from coderoom.generation.languages.python.literals import (
    MODULES,
    Group,
    call_of,
    inputs_literal,
    laid_out,
    literal,
    prefixed,
    text_literal,
)
from coderoom.generation.languages.python.pytest_checks import CHECKS
from coderoom.judge import Step, decode
from coderoom.judge.guest.steps import BUILTINS
from coderoom.judge.source import parsed_expression
from coderoom.judge.values import canonical, is_sound, parts
from coderoom.sandbox.guest.decoding import TAGS

if TYPE_CHECKING:
    from coderoom.judge import FunctionTest

_HELPERS: Final = ("listed", "own", "plain", "program", "raises", "run", "same")
_RESERVED: Final = {*_HELPERS, *MODULES, *BUILTINS, "after", "io", "os", "pathlib", "pytest", "random", "result", "sys"}
"""Names that a test uses itself."""
_PLAIN: Final = {*TAGS, "$int", "$name"} - {"$array"}
_BUILT_IN: Final = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
_TRUE_OR_FALSE: Final = ("all", "any", "bool", "isinstance", "issubclass")
_ENVIRONMENT: Final = "os.environ."

_TESTS = '''\
"""Tests of {module}. Run them with: pytest {name}.py{left_out}"""

{imports}

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from {checks} import {names}  # noqa: E402
{tests}'''


def is_plain(data: Any) -> bool:
    """Whether a value stands in Python source without classes of a program or a library."""
    tags = {key for item in parts(data) if isinstance(item, dict) for key in item if key.startswith("$")}
    return tags <= _PLAIN and is_sound(data)


def why_not(test: FunctionTest) -> str:
    """Why a test is not written as plain Python; empty if it is."""
    steps = [*test.setup, *test.then]
    values = [*test.inputs.values(), test.expected_output]
    values += [each for step in steps for each in (*step.args, *step.kwargs.values(), step.value)]
    if not all(map(is_plain, values)):
        return "they have values of classes or arrays"
    names = {name for step in steps for name in (step.name, step.assign) if name and "." not in name}
    if test.property is not None:
        if not _line_of(test.property) or _asks_for_fields(test.property):
            return "they look at objects or arrays"
        if names & test.inputs.keys():
            return "they use a name twice"
        names |= test.inputs.keys()
    if any(keyword.iskeyword(name) or name in _RESERVED for name in names):
        return "they use names that these files need themselves"
    return ""


def _asks_for_fields(text: str) -> bool:
    """Whether an expression uses attributes that no value of a built-in type has."""
    used = [each.attr for each in ast.walk(parsed_expression(text.strip())) if isinstance(each, ast.Attribute)]
    return not all(any(hasattr(kind, name) for kind in (*_BUILT_IN, math)) for name in used)


def _line_of(text: str) -> str:
    """An expression as one line without comments; empty if it has characters that cannot be seen."""
    line = text.strip()
    if any(each in line for each in "\n\t\\#") or visible(line, exact=True) != line:
        line = ast.unparse(parsed_expression(line))
    return line if visible(line, exact=True) == line and "\n" not in line else ""


def pytest_files(tests: Mapping[str, Sequence[FunctionTest]], module: str, functions: Sequence[str]) -> dict[str, str]:
    """See `Language.write_tests`; steps may call the functions."""
    folder, _, module = module.rpartition("/")
    name, checks = f"test_{module}", f"{module}_checks"
    reasons = Counter(filter(None, (why_not(each) for several in tests.values() for each in several)))
    kept = {function: [each for each in several if not why_not(each)] for function, several in tests.items()}
    taken: set[str] = set()
    text = "".join(
        f"\n\n{each}\n" for function, several in kept.items() for each in _tests_of(function, several, taken, functions)
    )
    modules = ("io", "pathlib", "random", *MODULES)
    used = ["os", "sys", *(each for each in modules if f"{each}." in text)]
    names = [each for each in _HELPERS if f"{each}(" in text or f"({each}" in text]
    return {
        f"{name}.py": _TESTS.format(
            module=module,
            name=name,
            checks=checks,
            tests=text,
            imports="\n".join(f"import {each}" for each in sorted(used)),
            names=", ".join(names or ["program"]),
            left_out=left_out(reasons),
        ),
        f"{checks}.py": CHECKS.replace("{module!r}", repr(module))
        .replace("{module}", module)
        .replace("{folder!r}", repr(folder))
        .replace("{mark}", MARK),
    }


def left_out(reasons: Mapping[str, int]) -> str:
    """What a file says of tests that are not in it."""
    if not reasons:
        return ""
    lines = [f"{count} of the tests {'is' if count == 1 else 'are'} not here: {why}." for why, count in reasons.items()]
    return "\n\n" + "\n".join([*lines, "CodeRoom judges them: see report.md."]) + "\n"


def _tests_of(function: str, tests: Sequence[FunctionTest], taken: set[str], functions: Sequence[str]) -> Iterator[str]:
    """The tests of a function: those that expect an output in one table, errors in another one, and all others."""
    plain = [each for each in tests if not each.has_steps]
    outputs = [each for each in plain if each.expects == "output" and not _how(each)]
    errors = [each for each in plain if each.expects == "error"]
    if outputs:
        rows = [_row(each, literal(each.expected_output)) for each in outputs]
        check = f"    assert same(run(program.{function}, **inputs), expected)"
        yield _table(_free(f"test_{function}", taken), ("inputs", "expected"), rows, check)
    if errors:
        rows = [_row(each, *map(text_literal, (str(each.expected_error), each.error_message or ""))) for each in errors]
        check = f"    with raises(error, message):\n        listed(run(program.{function}, **inputs))"
        yield _table(_free(f"test_{function}_raises", taken), ("inputs", "error", "message"), rows, check)
    for each in tests:
        if each not in outputs and each not in errors:
            words = "_".join(re.findall(r"[a-z0-9]+", each.name.lower()))[:60].strip("_")
            yield _Alone(function, each, functions).written(_free(f"test_{function}_{words}".rstrip("_"), taken))


def _free(name: str, taken: set[str]) -> str:
    """The name, or the next one like it that no other test has."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    found = next(each for each in names if each not in taken)
    taken.add(found)
    return found


def _how(test: FunctionTest) -> list[str]:
    """How the output is compared, if not as usual."""
    given = {"rel": test.rel, "abs": test.abs, "exact_types": test.exact_types or None}
    return [f"{name}={value!r}" for name, value in given.items() if value is not None]


def _row(test: FunctionTest, *expected: Group | str) -> Group:
    return call_of("pytest.param", inputs_literal(test.inputs), *expected, f"id={text_literal(test.name)}")


def _table(name: str, columns: Sequence[str], rows: Sequence[Group], check: str) -> str:
    table = "\n".join(laid_out(row, 8, after=",") for row in rows)
    names = ", ".join(f'"{each}"' for each in columns)
    return (
        f"@pytest.mark.parametrize(\n    ({names}),\n    [\n{table}\n    ],\n)\n"
        f"def {name}(program, {', '.join(columns)}):\n{check}"
    )


class _Alone:
    """A test with a function of its own: its steps, the call, and what is expected."""

    def __init__(self, function: str, test: FunctionTest, functions: Sequence[str]) -> None:
        self._function = function
        self._test = test
        self._functions = functions
        self._made: set[str] = set()  # Names of the test's own data, whose methods steps may call.
        self._names: set[str] = {"result"}

    def written(self, name: str) -> str:
        """The source."""
        test = self._test
        lines = [f"def {name}(program):", f"    {_documented(test.name)}"]
        lines += [laid_out(each, 4, before) for before, each in self._before()]
        call = self._call(f"program.{self._function}", [], test.inputs)
        if test.property is not None:
            lines += self._of_property()
        elif test.expects == "error":
            said = [text_literal(each) for each in (test.expected_error, test.error_message) if each]
            lines.append(f"    with {call_of('raises', *said)}:")
            for before, each in self._then(call) if test.then else ():
                lines.append(laid_out(each, 8, before))
            lines.append("        listed(result)" if test.then else laid_out(call_of("listed", call), 8))
        else:
            if test.then:
                lines += [laid_out(each, 4, before) for before, each in self._then(call)]
            actual = "result" if test.then else call
            lines.append(laid_out(call_of("same", actual, literal(test.expected_output), *_how(test)), 4, "assert "))
        return "\n".join(lines)

    def _of_property(self) -> list[str]:
        """The inputs as names, the result, and the property, which sees copies of plain data."""
        test = self._test
        seen = {name: data for name, data in test.inputs.items() if '"$name"' not in canonical(data)}
        lines = [laid_out(literal(data), 4, f"{name} = ") for name, data in seen.items()]
        how = "builtin=True" if "types" in test.judges_by else "exact=True"
        given = {name: f"plain({name})" if name in seen else self._value(data) for name, data in test.inputs.items()}
        call = call_of("run", f"program.{self._function}", *(prefixed(f"{each}=", given[each]) for each in given))
        if test.sees_after:
            copies = Group("{", [prefixed(f"{text_literal(each)}: ", given[each]) for each in given], "}")
            lines.append(laid_out(copies, 4, "after = "))
            call = call_of("run", f"program.{self._function}", "**after")
        steps = self._then(call) if test.then else [("result = ", call)]
        lines += [laid_out(each, 4, before) for before, each in steps]
        lines.append(f"    result = plain(result, {how})")
        lines += [f"    after = plain(after, {how})"] if test.sees_after else []
        line = _line_of(test.property or "")
        lines.append(f"    assert {line}" if _is_bool(parsed_expression(line)) else f"    assert ({line}) is True")
        return lines

    def _before(self) -> Iterator[tuple[str, Group | str]]:
        return self._steps(self._test.setup, "")

    def _then(self, call: Group) -> Iterator[tuple[str, Group | str]]:
        yield "result = ", call
        self._names.add("result")
        last = max(number for number, step in enumerate(self._test.then) if step.call)
        yield from self._steps(self._test.then[:last], "")
        step = self._test.then[last]
        yield "result = ", self._call(self._found(str(step.call)), step.args, step.kwargs)
        yield from self._steps(self._test.then[last + 1 :], "")

    def _steps(self, steps: Sequence[Step], indent: str) -> Iterator[tuple[str, Group | str]]:
        for step in steps:
            if step.call is not None:
                before = f"{step.name} = " if step.name else ""
                yield before, self._call(self._found(step.call), step.args, step.kwargs)
                self._name(step.name, made=step.call in BUILTINS)
            elif step.file is not None:
                yield from _file(step)
            else:
                place = str(step.assign)
                owner, _, attribute = place.rpartition(".")
                target = f"{self._found(owner)}.{attribute}" if owner else place
                if place.startswith(_ENVIRONMENT):
                    target = f"os.environ[{text_literal(place.removeprefix(_ENVIRONMENT))}]"
                yield f"{target} = ", self._value(step.value)
                self._name(
                    place if not owner else None, made=not (isinstance(step.value, dict) and "$name" in step.value)
                )

    def _name(self, name: str | None, *, made: bool) -> None:
        if name:
            self._names.add(name)
            (self._made.add if made else self._made.discard)(name)

    def _call(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Group:
        named = [prefixed(f"{name}=", self._value(data)) for name, data in kwargs.items()]
        return call_of("run", function, *map(self._value, args), *named)

    def _value(self, data: Any) -> Group | str:
        return literal(data, self._found)

    def _found(self, path: str) -> str:
        """The source of an object of the test, or of a function or class of the program."""
        first, *rest = path.split(".")
        if path == "random.seed" or (path in BUILTINS and path not in self._functions):
            return path
        source = first if first in self._names else f"program.{first}"
        for part in rest:
            source = f"{source}.{part}" if source in self._made or part == "send" else f"own({source}).{part}"
        return source


def _file(step: Step) -> Iterator[tuple[str, Group | str]]:
    content = decode({"$bytes": step.bytes}) if step.bytes is not None else (step.text or "").encode()
    if step.file == "-":
        yield "sys.stdin = ", call_of("io.TextIOWrapper", call_of("io.BytesIO", repr(content)))
        return
    folder, _, _ = str(step.file).rpartition("/")
    if folder:
        yield "", f"os.makedirs({text_literal(folder)}, exist_ok=True)"
    yield "", f"pathlib.Path({text_literal(str(step.file))}).write_bytes({content!r})"


def _is_bool(node: ast.expr) -> bool:
    """Whether an expression with plain data is always `True` or `False`."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_bool, node.values))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _TRUE_OR_FALSE
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _documented(name: str) -> str:
    source = text_literal(name)
    return f'"""{name}"""' if source[1:-1] == name and '"' not in name else source
