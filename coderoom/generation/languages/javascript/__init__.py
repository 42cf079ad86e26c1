"""`JavaScriptLanguage`, used by the generator through `Language`. The folder `node` has the files that run in Node."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from coderoom.generation.compare import Comparison, compare, is_sound
from coderoom.generation.languages import START, Job, Language, call_inside, harness_modules
from coderoom.generation.languages.javascript import source
from coderoom.generation.languages.javascript.source import RESERVED, grammar, read_program
from coderoom.generation.languages.javascript.values import as_actual, as_expected, for_judge, for_node, node_test_file
from coderoom.generation.specs import FunctionSpec
from coderoom.sandbox import SourceModule

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = ["JavaScriptLanguage"]

_HELPERS = ("harness.mjs", "values.mjs", "decode.mjs")
_ERRORS = frozenset(
    {"TypeError", "RangeError", "SyntaxError", "ReferenceError", "EvalError", "URIError", "AggregateError", "Error"}
)


class JavaScriptLanguage(Language):
    """JavaScript on Node 18 or later, tested in a session of the engine `cpython`.

    Node must be installed where the code runs (`apt-get install nodejs`). Each test runs in its own Node process.
    JavaScript has only one type of number, list and set: 2 equals 2.0, and an array equals an expected tuple. Integers
    of more than 53 bits are BigInts, and an expected one never equals a rounded number.

    Raises:
        MissingDependencyError: The extra `javascript` is not installed.
    """

    name = "javascript"
    labels = frozenset({"javascript", "js", "node", "mjs"})
    suffix = ".mjs"
    comment = "//"
    reserved = RESERVED
    processes = 16
    _runs_jobs = ("nodes", "nodes")
    without_repeats = staticmethod(source.without_repeats)
    check = staticmethod(source.check_source)  # Syntax errors are found when the code is loaded.
    write_module = staticmethod(source.javascript_module)
    ways = (
        "JavaScript (ES2022) on Node 18 or later, as a module. At the top level of the code there are only functions, "
        "classes, constants and imports of Node's own modules; nothing runs when it is loaded. Functions that it "
        "depends on are in scope and are not imported; nothing needs to be exported. The function may be async. Its "
        "parameters are positional, with the names of the spec, in its order. A wrong argument throws a fitting error: "
        "TypeError, RangeError, or a class that extends Error. Null and undefined are None. A dict is a plain object, "
        "or a Map if its keys are no text; a set is a Set, bytes are a Uint8Array, a moment is a Date in UTC, and an "
        "integer beyond 2**53 is a BigInt. There is no network, and nobody to answer a prompt."
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
            after = {"after": {name: for_judge(data) for name, data in job["after"].items()}} if "after" in job else {}
            return {**job, "result": for_judge(job["result"]), **after}
        steps = {kind: [_step_for_node(step) for step in job[kind]] for kind in ("setup", "then") if kind in job}
        return {**job, **steps, "inputs": {name: for_node(data) for name, data in job["inputs"].items()}}

    def program(self, sources: Mapping[str, str]) -> Any:
        """See `Language.program`; it has the arguments of `define` in the session for each function."""
        return [self._part(*each) for each in sources.items()]

    def compare(self, test: FunctionTest, actual: Any) -> Comparison:
        """See `Language.compare`."""
        if not is_sound(actual):
            return compare(None, actual)
        expected = as_expected(test.expected_output)
        return compare(expected, as_actual(actual), rel=test.rel, abs=test.abs, exact_types=test.exact_types)

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Language.error_matches`.

        Thrown values other than errors match nothing. As in Python, only the built-in class of `base` counts.
        """
        if base not in _ERRORS:
            return False
        return expected in (base, "Error") if expected in _ERRORS else expected in types

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; the file is for `node --test`. It skips tests with a property or steps."""
        return {self.tests_file(module): node_test_file(tests, module + self.suffix, specs)}


@functools.cache
def _harness() -> tuple[SourceModule, ...]:
    folder = resources.files("coderoom.generation.languages.javascript") / "node"
    files = {name: (folder / name).read_text("utf-8") for name in _HELPERS}
    return harness_modules(nodes=f"\n_helpers.update({files!r})\n")


def _step_for_node(step: Mapping[str, Any]) -> dict[str, Any]:
    return {**step, **{key: for_node(step[key]) for key in ("args", "value") if key in step}}


def _in_comment(text: str) -> str:
    return " ".join(text.replace("*/", "* /").split())
