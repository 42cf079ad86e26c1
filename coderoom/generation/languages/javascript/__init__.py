"""`JavaScriptLanguage`, used by the generator through `Language`. The folder `node` has the files that run in Node."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

from coderoom.generation.languages import Language
from coderoom.generation.languages.javascript import source
from coderoom.generation.languages.javascript.declared import as_declared
from coderoom.generation.languages.javascript.source import RESERVED, grammar, read_program
from coderoom.generation.specs import FunctionSpec
from coderoom.judge import Comparison, compare
from coderoom.judge.harness import START, Job, call_inside, harness_modules
from coderoom.judge.values import fields_of, parts, tag_of
from coderoom.sandbox import SourceModule

if TYPE_CHECKING:
    from coderoom.judge import FunctionTest

_SAFE = 2**53
_BIGINT, _MAP = "$bigint", "$map"  # What a declared type or Node says is one.
_KINDS = {"$frozenset": "$set", "$bytearray": "$bytes", "$namedtuple": "$object"}
_WITH_ITEMS = ("$tuple", "$set", "$frozenset")
_WITH_FIELDS = ("$object", "$namedtuple")
_CLOSE = 10**6  # Smaller whole floats are compared like integers.
_ERRORS = frozenset(
    {"TypeError", "RangeError", "SyntaxError", "ReferenceError", "EvalError", "URIError", "AggregateError", "Error"}
)


class JavaScriptLanguage(Language):
    """JavaScript on Node 18 or later, tested in a session of the engine `cpython`.

    Node must be installed where the code runs (`apt-get install nodejs`). Each test runs in its own Node process.
    JavaScript has only one type of number, list and set: 2 equals 2.0, and an array equals an expected tuple. Integers
    of more than 53 bits may be BigInts, and an expected one never equals a rounded number. Other integers are BigInts,
    and dicts whose keys are text are Maps, only if the declared type says so.

    Raises:
        MissingDependencyError: The extra `javascript` is not installed.
    """

    name = "javascript"
    labels = frozenset({"javascript", "js", "node", "mjs"})
    suffix = ".mjs"
    comment = "//"
    reserved = RESERVED
    processes = 16
    runs_jobs = ("nodes", "nodes")
    statements = staticmethod(source.statements)
    as_declared = staticmethod(as_declared)
    check = staticmethod(source.check_source)  # Syntax errors are found when the code is loaded.
    write_module = staticmethod(source.javascript_module)
    ways = (
        "JavaScript (ES2022) on Node 18 or later, as a module. At the top level of the code there are only functions, "
        "classes, constants and imports of Node's own modules; nothing runs when it is loaded. Functions that it "
        "depends on are in scope and are not imported; nothing needs to be exported. The function may be async. Its "
        "parameters are positional, with the names of the spec, in its order. A wrong argument throws a fitting error: "
        "TypeError, RangeError, or a class that extends Error; a test that expects Error is not met by the first two. "
        "Null and undefined are None. A dict is a plain object, or a Map if its keys are no text; a set is a Set, "
        "bytes are a Uint8Array, a moment is a Date in UTC, and an integer beyond 2**53 is a BigInt. There is no "
        "network, and nobody to answer a prompt."
    )

    def __init__(self) -> None:
        grammar()

    def tests_file(self, module: str) -> str:
        """See `Language.tests_file`."""
        return f"{module}.test{self.suffix}"

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`; types are in a comment."""
        lines = [f" * @param {{{_in_comment(each.type)}}} {each.name}" for each in spec.inputs]
        lines.append(f" * @returns {{{_in_comment(spec.outputs.type)}}}")
        return "\n".join(
            ["/**", *lines, " */", f"function {spec.name}({', '.join(each.name for each in spec.inputs)})"]
        )

    def names_defined(self, source: str) -> list[str]:
        """See `Language.names_defined`."""
        return read_program(source).names

    def imports(self, source: str) -> dict[str, str]:
        """See `Language.imports`."""
        kinds = {"*": "all of {}", "default": "the default of {}"}
        return {
            here: kinds.get(there, f"{{}}.{there}").format(each.module.removeprefix("node:"))
            for each in read_program(source).imported
            for there, here in each.names
        }

    def harness(self) -> Sequence[SourceModule]:
        """See `Language.harness`."""
        return _harness()

    def load(self, sources: Collection[str]) -> str:
        """See `Language.load`."""
        return START + call_inside("nodes", "load")

    def define(self, function: str, source: str) -> str:
        """See `Language.define`."""
        return call_inside("nodes", "define", *self._part(function, source))

    def _part(self, function: str, source: str) -> list[Any]:
        """The function, its code, its imports, and its parameters with whether each is a rest parameter, if known."""
        program = read_program(source)
        found = next((each for each in program.declared if each.name == function and each.is_function), None)
        parameters = [[name, rest] for name, _, rest in found.parameters()] if found else [["", False]]
        known = parameters if all(name for name, _ in parameters) else None
        return [function, program.body(), program.imports(), known]

    def job(self, job: Job) -> Job:
        """See `Language.job`."""
        if "property" in job:
            after = {"after": {name: _for_judge(data) for name, data in job["after"].items()}} if "after" in job else {}
            return {**job, "result": _for_judge(job["result"]), **after}
        steps = {
            kind: [
                {**step, **{key: _for_node(step[key]) for key in ("args", "value") if key in step}}
                for step in job[kind]
            ]
            for kind in ("setup", "then")
            if kind in job
        }
        return {**job, **steps, "inputs": {name: _for_node(data) for name, data in job["inputs"].items()}}

    def program(self, sources: Mapping[str, str]) -> Any:
        """See `Language.program`; it has the arguments of `define` in the session for each function."""
        return [self._part(*each) for each in sources.items()]

    def compare(self, test: FunctionTest, actual: Any) -> Comparison:
        """See `Language.compare`."""
        expected = _as_expected(test.expected_output)
        strict = any(isinstance(each, dict) and _BIGINT in each for each in parts(expected))
        return compare(expected, _as_actual(actual, strict), rel=test.rel, abs=test.abs, exact_types=test.exact_types)

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Language.error_matches`.

        Thrown values other than errors match nothing. Only the built-in class of `base` counts: an expected `Error` is
        not met by the TypeError of a mistake in the code.
        """
        return base in _ERRORS and (expected == base if expected in _ERRORS else expected in types)

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; the file is for `node --test`. It skips tests with a property or steps."""
        orders = {spec.name: [each.name for each in spec.inputs] for spec in specs}
        cases = [
            _case(function, test, orders.get(function) or list(test.inputs))
            for function, several in tests.items()
            for test in several
        ]
        # As a plain key of an object literal, `__proto__` would set the prototype. In strings, its quotes are escaped.
        lines = ["  " + json.dumps(case).replace('"__proto__":', '["__proto__"]:') + "," for case in cases]
        listed = "\n".join(["const CASES = [", *lines, "];\n"])
        program = f"import * as program from {json.dumps(f'./{module}{self.suffix}')};\n\n"
        return {self.tests_file(module): "\n".join([program + listed, *_helpers("decode.mjs", "tests.mjs").values()])}


@functools.cache
def _harness() -> tuple[SourceModule, ...]:
    files = _helpers("harness.mjs", "values.mjs", "decode.mjs", "left.mjs")
    return harness_modules(nodes=f"\n_helpers.update({files!r})\n")


def _helpers(*names: str) -> dict[str, str]:
    folder = resources.files("coderoom.generation.languages.javascript") / "node"
    return {name: (folder / name).read_text("utf-8") for name in names}


def _in_comment(text: str) -> str:
    return " ".join(text.replace("*/", "* /").split())


def _for_node(data: Any) -> Any:
    """Tagged data without tags that the reader in Node does not know: large integers, lone surrogates, dates."""
    tag, content = tag_of(data)
    if tag == "int" and abs(content) > _SAFE:
        return {"$int": hex(content)}
    if tag == "$str":
        return base64.b64decode(content).decode("utf-8", "surrogatepass")
    return _moment(tag, content) or _deeper(data, _for_node)


def _as_expected(data: Any) -> Any:
    """An expected value as JavaScript can represent it: with one type each of lists, sets, bytes and moments."""
    tag, content = tag_of(data)
    if tag == "$enum" and content.get("mixed") is True:
        return _as_expected(content["value"])
    found: Any = _moment(tag, content) or _deeper(data, _as_expected)
    if tag == "$tuple":
        return found[tag]
    if tag == "$dict" and tag in data and any(tag_of(key)[0] not in ("str", "$str") for key, _ in found[tag]):
        return {_MAP: found[tag]}
    return {_KINDS[tag]: found[tag]} if tag in _KINDS else found


def _as_actual(data: Any, strict: bool) -> Any:
    """An actual value, with whole numbers as integers, so that expected integers are compared exactly.

    Unless `strict`, they may be BigInts beyond 53 bits.
    """
    if type(data) is float and data.is_integer():
        return int(data)
    tag, content = tag_of(data)
    if tag == _BIGINT and not strict:
        with contextlib.suppress(TypeError, ValueError):
            number = int(content, 0)
            if abs(number) >= _SAFE:
                return {"$int": content} if "x" in content else number
    return _deeper(data, lambda item: _as_actual(item, strict))


def _for_judge(data: Any, *, hashed: bool = False) -> Any:
    """An actual value as Python can represent it: in sets and as keys, lists become tuples and sets frozen sets."""
    tag, content = tag_of(data)
    if tag == "$set" and isinstance(content, list):
        return {"$frozenset" if hashed else "$set": [_for_judge(item, hashed=True) for item in content]}
    if tag in ("$dict", _MAP) and tag in data and isinstance(content, list):
        pairs = [pair for pair in content if isinstance(pair, list) and len(pair) == 2]
        return {"$dict": [[_for_judge(key, hashed=True), _for_judge(item)] for key, item in pairs]}
    found = _deeper(data, lambda item: _for_judge(item, hashed=hashed))
    return {"$tuple": found} if hashed and tag == "list" else found


def _moment(tag: str, content: Any) -> dict[str, str] | None:
    """A moment in UTC, which is also the default time zone."""
    if tag not in ("$date", "$datetime") or not isinstance(content, str):
        return None
    moment = datetime.fromisoformat(content)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return {"$datetime": moment.isoformat()}


def _deeper(data: Any, change: Callable[[Any], Any]) -> Any:
    """The data with a change applied to each part."""
    tag, content = tag_of(data)
    if tag == "$dict" and "$dict" not in data:
        return {key: change(item) for key, item in content}
    if tag in ("$dict", _MAP) and isinstance(content, list):
        return {tag: [[*map(change, pair)] if isinstance(pair, list) else pair for pair in content]}
    if tag in ("list", *_WITH_ITEMS) and isinstance(content, list):
        items = [*map(change, content)]
        return items if tag == "list" else {tag: items}
    if tag in _WITH_FIELDS and isinstance(content, dict):
        return {tag: {**content, "fields": {name: change(item) for name, item in fields_of(content)}}}
    return data


def _case(function: str, test: FunctionTest, names: Sequence[str]) -> dict[str, Any]:
    case: dict[str, Any] = {"name": f"{function}: {test.name}"}
    if test.expects == "property" or test.has_steps:
        what = "its property is a Python expression" if test.expects == "property" else "it has steps"
        return {**case, "omitted": what}
    # Omitted arguments at the end take their defaults.
    last = max((names.index(name) for name in test.inputs if name in names), default=-1)
    inputs = {name: _for_node(data) for name, data in test.inputs.items()}
    case |= {"call": function, "order": names[: last + 1], "inputs": inputs}
    if test.expects == "error":
        return {**case, "error": test.expected_error, "message": test.error_message or ""}
    expected = _with_tolerance(_for_node(_as_expected(test.expected_output)))
    return {**case, "expected": expected, "rel": test.rel, "abs": test.abs}


def _with_tolerance(data: Any) -> Any:
    """Expected data with tags for whole floats and for large integers that may be BigInts or not."""
    tag, content = tag_of(data)
    if tag == "float" and data.is_integer() and abs(data) > _CLOSE:
        return {"$whole": data}
    return {"$large": content} if tag == "$int" else _deeper(data, _with_tolerance)
