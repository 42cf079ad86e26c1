"""`PythonLanguage`, used by the generator through `Language`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coderoom.generation.guest.calls import error_matches
from coderoom.generation.guest.values import LIBRARIES
from coderoom.generation.languages import (
    START,
    CodeProblem,
    Job,
    Language,
    Level,
    SecurityFinding,
    Variation,
    call_inside,
)
from coderoom.generation.languages.python.check import (
    UNREADABLE,
    check_implementation,
    names_defined,
    parsed_expression,
    scan,
    without_examples,
)
from coderoom.generation.languages.python.declared import as_declared, fits, unclear
from coderoom.generation.languages.python.module import imported_names, python_module, without_repeats
from coderoom.generation.languages.python.pytest_file import pytest_files
from coderoom.generation.languages.python.stateless import is_stateless, is_stateless_expression
from coderoom.generation.languages.python.varying import variation
from coderoom.generation.specs import FunctionSpec

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = [
    "PythonLanguage",
]


class PythonLanguage(Language):
    """Python, tested in a session of the engine `cpython`."""

    name = "python"
    labels = frozenset({"python", "py", "python3"})
    suffix = ".py"
    processes = 16  # A set of two has each order in half of them.
    ways = (
        "Python 3. The top level of the code has imports, definitions and constants, and no examples. The parameters "
        "have the names of the spec, in its order. A wrong argument raises a fitting built-in exception, such as "
        "ValueError or TypeError. There is no network, and nobody to answer input()."
    )

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`; a type that is not a valid expression is omitted."""
        parameters = [f"{each.name}: {each.type}" if _is_type(each.type) else each.name for each in spec.inputs]
        returned = f" -> {spec.outputs.type}" if _is_type(spec.outputs.type) else ""
        return f"def {spec.name}({', '.join(parameters)}){returned}:"

    def as_declared(self, data: Any, declared: str, *, result: bool = False) -> Any:
        """See `Language.as_declared`."""
        return as_declared(data, declared, result=result)

    def fits(self, data: Any, declared: str) -> bool:
        """See `Language.fits`."""
        return fits(data, declared)

    def unclear(self, data: Any, declared: str) -> str:
        """See `Language.unclear`."""
        return unclear(data, declared)

    def without_examples(self, source: str) -> tuple[str, list[str]]:
        """See `Language.without_examples`."""
        return without_examples(source)

    def without_repeats(self, source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
        """See `Language.without_repeats`."""
        return without_repeats(source, known)

    def check(
        self,
        source: str,
        spec: FunctionSpec,
        *,
        taken: Mapping[str, str] | None = None,
        allowed_imports: Collection[str] | None = None,
    ) -> list[CodeProblem]:
        """See `Language.check`."""
        return check_implementation(source, spec, taken=taken, allowed_imports=allowed_imports)

    def names_defined(self, source: str) -> list[str]:
        """See `Language.names_defined`."""
        return names_defined(source)

    def imports(self, source: str) -> dict[str, str]:
        """See `Language.imports`."""
        return imported_names(source)

    def scan(self, source: str, *, severity: Level = "low", confidence: Level = "medium") -> list[SecurityFinding]:
        """See `Language.scan`."""
        return scan(source, severity=severity, confidence=confidence)

    def define(self, function: str, source: str) -> str:
        """See `Language.define`."""
        return source

    def is_stateless(self, sources: Collection[str], job: Job) -> bool:
        """See `Language.is_stateless`."""
        if not is_stateless(tuple(sources)) or "functions" in job:
            return False
        names = frozenset({*job["inputs"], "result", "after"})
        return "property" not in job or is_stateless_expression(job["property"], names)

    def load(self, sources: Collection[str]) -> str:
        """See `Language.load`."""
        named = [name for name in LIBRARIES if any(name in source for source in sources)]
        return START + call_inside("values", "keep_libraries", " ".join(named))

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Language.error_matches`."""
        return error_matches(expected, types, base)

    def variation(self, sources: Collection[str]) -> Variation:
        """See `Language.variation`; only code that provably keeps no state is known well enough for `NONE`."""
        least = Variation.NONE if is_stateless(tuple(sources)) else Variation.PROCESS
        return max(least, variation(tuple(sources)))

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Language.program`."""
        return self.marked(python_module(sources, self.about))

    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """See `Language.write_module`."""
        return python_module(implementations, about)

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; the files are for pytest."""
        return pytest_files(tests, module, [spec.name for spec in specs] or list(tests))


def _is_type(text: str) -> bool:
    try:
        parsed_expression(text)
    except UNREADABLE:
        return False
    return True
