"""The program that is being generated: what is known of it so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from coderoom.generation.languages import Language, SecurityFinding
from coderoom.generation.options import GeneratorOptions, Severity
from coderoom.generation.replies import unclear_values
from coderoom.generation.solution import GenerationEvent, Warned
from coderoom.generation.specs import FunctionSpec, order
from coderoom.generation.tests import read_tests, tolerance_problem
from coderoom.judge import FrozenTests, FunctionTest, Judge, Verdict

_HASHES = frozenset({"B303", "B324"})  # Weak hashes are dangerous for secrets, not to run; instructions ask for md5.
_NO_TESTS = FrozenTests(tests={}, hash="")
_LEVELS = get_args(Severity)


@dataclass
class Program:
    """The program under construction.

    In `specs`, dependencies come first. `tests` are those with all changes, and `original` those that were frozen
    first. `code` is the best one of each function so far, and `passed` has the functions whose code passes its tests.
    Of functions in `existing`, only the tests are written. `last` has the code, the hash of the tests and the results
    of the last run, if it was one of the whole program.
    """

    instruction: str
    language: Language
    options: GeneratorOptions
    emit: Callable[[GenerationEvent], None] = lambda _: None
    specs: dict[str, FunctionSpec] = field(default_factory=dict)
    tests: FrozenTests = _NO_TESTS
    original: FrozenTests = _NO_TESTS
    code: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    existing: Mapping[str, str] = field(default_factory=dict)
    last: tuple[Mapping[str, str], str, list[Verdict]] | None = None
    _codes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def take_specs(self, specs: Sequence[FunctionSpec]) -> list[list[FunctionSpec]]:
        """Set the functions; return them in layers."""
        layers = order(specs)
        self.specs = {spec.name: spec for layer in layers for spec in layer}
        return layers

    def without_repeats(self, spec: FunctionSpec, code: str) -> tuple[str, tuple[str, ...]]:
        """Code without repeated definitions of its dependencies, and notes on what was removed."""
        known = {name: self.code[name] for name in self.in_order(self._needed(spec.name) - {spec.name})}
        code, notes = self.language.without_examples(code)
        code, names = self.language.without_repeats(code, known)
        return code, (*notes, *(f"its own {name!r} was removed; the tested function is used" for name in names))

    def check(self, spec: FunctionSpec, code: str) -> tuple[list[str], tuple[SecurityFinding, ...]]:
        """Why code may not be run, and what the scanner found. Names of accepted code are reserved until `tried`."""
        taken = {name: owner for owner, codes in self._codes.items() for name in self._defined(*codes)}
        taken |= {name: name for name in self.specs}  # Including functions that are not written yet.
        problems = self.language.check(code, spec, taken=taken, allowed_imports=self.options.allowed_imports)
        if wrong := [*map(str, problems), *self._clashes(spec, code)]:
            return wrong, ()
        findings = tuple(self.language.scan(code))
        levels = _LEVELS[_LEVELS.index(self.options.block_severity or "none") :]
        serious = [each for each in findings if each.severity in levels and each.id not in _HASHES]
        blocked = [f"the security scanner blocks it: {each}" for each in serious]
        if not blocked:
            self._codes[spec.name] = code, self.code.get(spec.name, "")
        return blocked, findings

    def tried(self, spec: FunctionSpec, best: str) -> None:
        """Set the best code of a function after an attempt; only its names stay reserved."""
        self.code[spec.name] = best
        self._codes[spec.name] = (best,)

    async def run(self, runner: Judge, spec: FunctionSpec, code: str) -> list[Verdict]:
        """Run the tests of a function with the best code of its dependencies."""
        needed = self._needed(spec.name)
        sources = {name: code if name == spec.name else self.code[name] for name in self.specs if name in needed}
        whole = len(self.specs) == 1
        results = await runner.run(sources, self.tests, functions=[spec.name], final=whole)
        self.last = (sources, self.tests.hash, results) if whole else None
        return results

    def read_test(self, spec: FunctionSpec, data: Any) -> tuple[FunctionTest, list[str]]:
        """A test of a function, and what is unclear about it; `GenerationError` if it is not valid."""
        test = read_tests({spec.name: [data]}, [spec], functions=list(self.specs))[spec.name][0]
        return test, [*unclear_values(test, spec, self.language), *filter(None, [tolerance_problem(test)])]

    def tests_of(self, function: str) -> tuple[FunctionTest, ...]:
        """The tests of a function, with all changes."""
        return self.tests.tests.get(function, ())

    def warn(self, text: str) -> None:
        """Add a remark for the reader."""
        self.warnings.append(text)
        self.emit(Warned(text))

    def in_order(self, names: Collection[str]) -> list[str]:
        """Names of functions, dependencies first."""
        return [name for name in self.specs if name in names]

    def _needed(self, name: str) -> set[str]:
        """The function and all that it depends on, directly or not, as far as they have code."""
        found = {name}
        for spec in reversed(self.specs.values()):  # Its dependencies are still to come.
            if spec.name in found:
                found.update(each for each in spec.dependencies if each in self.code)
        return found

    def _defined(self, *codes: str) -> set[str]:
        """The names that pieces of code define other than by imports."""
        return {
            name for code in codes for name in {*self.language.names_defined(code)} - {*self.language.imports(code)}
        }

    def _clashes(self, spec: FunctionSpec, code: str) -> list[str]:
        """Imports that would conflict in one module: the same name for different things."""
        own, defined = self.language.imports(code), self._defined(code)
        found = dict[str, None]()
        if "*" in own and len(self.specs) > 1:
            found[f"names from {own['*']} could replace names of other functions; import each by its name"] = None
        others = [(owner, each) for owner, codes in self._codes.items() if owner != spec.name for each in codes]
        for owner, other in others:
            for name, what in self.language.imports(other).items():
                here = own.get(name, "something else" if name in defined else what)
                if here != what:
                    text = f"{name!r} is {here} here, but {what} in the code of {owner!r}, which is in the same module"
                    found[f"{text}; import the same, or take another name"] = None
        return [*found]
