"""`PythonLanguage`, used by the generator through `Language`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from coderoom.generation.guest import calls
from coderoom.generation.guest.values import LIBRARIES
from coderoom.generation.languages import START, Job, Language, Level, SecurityFinding, Variation, call_inside
from coderoom.generation.languages.python import check as checks
from coderoom.generation.languages.python import declared, module
from coderoom.generation.languages.python.pytest_file import pytest_files
from coderoom.generation.languages.python.stateless import is_stateless, is_stateless_expression
from coderoom.generation.languages.python.varying import variation
from coderoom.generation.specs import FunctionSpec

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = ["PythonLanguage"]


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

    as_declared = staticmethod(declared.as_declared)
    fits = staticmethod(declared.fits)
    unclear = staticmethod(declared.unclear)
    without_examples = staticmethod(checks.without_examples)
    without_repeats = staticmethod(module.without_repeats)
    check = staticmethod(checks.check_implementation)
    names_defined = staticmethod(checks.names_defined)
    imports = staticmethod(module.imported_names)
    write_module = staticmethod(module.python_module)
    error_matches = staticmethod(calls.error_matches)

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`; a type that is not a valid expression is omitted."""
        parameters = [f"{each.name}: {each.type}" if _is_type(each.type) else each.name for each in spec.inputs]
        returned = f" -> {spec.outputs.type}" if _is_type(spec.outputs.type) else ""
        return f"def {spec.name}({', '.join(parameters)}){returned}:"

    def scan(self, source: str, *, severity: Level = "low", confidence: Level = "medium") -> list[SecurityFinding]:
        """See `Language.scan`."""
        return checks.scan(source, severity=severity, confidence=confidence)

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

    def variation(self, sources: Collection[str]) -> Variation:
        """See `Language.variation`; only code that provably keeps no state is known well enough for `NONE`."""
        least = Variation.NONE if is_stateless(tuple(sources)) else Variation.PROCESS
        return max(least, variation(tuple(sources)))

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Language.program`."""
        return self.marked(module.python_module(sources, self.about))

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; the files are for pytest."""
        return pytest_files(tests, module, [spec.name for spec in specs] or list(tests))


def _is_type(text: str) -> bool:
    try:
        checks.parsed_expression(text)
    except checks.UNREADABLE:
        return False
    return True
