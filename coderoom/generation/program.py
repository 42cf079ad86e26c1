"""The program while it is being written: the state that all of its functions share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from coderoom.generation.events import GenerationEvent
from coderoom.generation.frozen_tests import FrozenTests
from coderoom.generation.languages.base import Language, Level, SecurityFinding
from coderoom.generation.specs import FunctionSpec, order
from coderoom.generation.testing.results import TestResult
from coderoom.generation.testing.runner import TestRunner

__all__ = ["Program", "Rules"]

_HASHES = frozenset({"B303", "B324"})  # Weak hashes are dangerous for secrets, not to run; instructions ask for md5.
_LEVELS: tuple[Level, ...] = ("low", "medium", "high")


@dataclass(frozen=True)
class Rules:
    """What holds for the work on each function.

    Attributes:
        max_attempts: How many attempts there may be.
        max_test_changes: How many of its tests may be changed.
        allowed_imports: The modules that may be imported; `None`: all.
        block_severity: The least severity of a scanner's finding that keeps code from being run; `None`: none does. A
            weak hash never does.
        accept_changed_tests: Whether a function that passes only since its tests were changed has passed.
    """

    max_attempts: int = 6
    max_test_changes: int = 2
    allowed_imports: tuple[str, ...] | None = None
    block_severity: Level | None = "high"
    accept_changed_tests: bool = False


@dataclass
class Program:
    """A program that comes about.

    Attributes:
        instruction: The instruction.
        language: The language.
        rules: What holds for the work on each function.
        emit: Called with each event.
        specs: The functions, each after what it needs.
        tests: The tests as they are.
        original: The tests as they were frozen first.
        code: The best code of each function so far.
        passed: The functions whose code passes its tests.
        findings: What a scanner found in the best code of each function.
        warnings: What the reader should know.
    """

    instruction: str
    language: Language
    rules: Rules
    emit: Callable[[GenerationEvent], None]
    specs: dict[str, FunctionSpec] = field(default_factory=dict)
    tests: FrozenTests | None = None
    original: FrozenTests | None = None
    code: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    findings: dict[str, tuple[SecurityFinding, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _codes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def take_specs(self, specs: Sequence[FunctionSpec]) -> list[list[FunctionSpec]]:
        """Take the functions, and return them layer by layer."""
        layers = order(specs)
        self.specs = {spec.name: spec for layer in layers for spec in layer}
        return layers

    def dependencies(self, spec: FunctionSpec) -> dict[FunctionSpec, str | None]:
        """What a function calls, with the code of those that pass their tests."""
        return {self.specs[name]: self.code.get(name) if name in self.passed else None for name in spec.dependencies}

    def without_repeats(self, spec: FunctionSpec, code: str) -> tuple[str, tuple[str, ...]]:
        """Code without what it repeats of the functions that it needs, and what there is to be said of that."""
        known = {name: self.code[name] for name in self.in_order(self._needed(spec.name) - {spec.name})}
        code, names = self.language.without_repeats(code, known)
        return code, tuple(f"its own {name!r} was left out; the one that was tested is used" for name in names)

    def check(self, spec: FunctionSpec, code: str) -> tuple[list[str], tuple[SecurityFinding, ...]]:
        """Why code may not be run, and what a scanner found in it. Code that may has its names until it is tried."""
        taken = {name: owner for owner, codes in self._codes.items() for name in self._defined(*codes)}
        taken |= {name: name for name in self.specs}  # Also of those that are not written yet.
        problems = self.language.check(code, spec, taken=taken, allowed_imports=self.rules.allowed_imports)
        if wrong := [*map(str, problems), *self._clashes(spec, code)]:
            return wrong, ()
        findings = tuple(self.language.scan(code))
        blocked = self._refusals(findings)
        if not blocked:
            self._codes[spec.name] = code, self.code.get(spec.name, "")
        return blocked, findings

    def tried(self, spec: FunctionSpec, best: str) -> None:
        """Take the best code so far of a function, after one more was tried; only that one has names from now on."""
        self.code[spec.name] = best
        self._codes[spec.name] = (best,)

    def check_setup(self, source: str | None) -> list[str]:
        """Why the setup code of a test may not be run."""
        if not source:
            return []
        problems = self.language.check_setup(source, list(self.specs), allowed_imports=self.rules.allowed_imports)
        return [f"setup: {each}" for each in problems or self._refusals(self.language.scan(source))]

    async def run(self, runner: TestRunner, spec: FunctionSpec, code: str) -> list[TestResult]:
        """Run the tests of a function, with the best code so far of what it needs."""
        assert self.tests is not None
        needed = self._needed(spec.name)
        sources = {name: code if name == spec.name else self.code[name] for name in self.specs if name in needed}
        return await runner.run(sources, self.tests, functions=[spec.name])

    def in_order(self, names: Collection[str]) -> list[str]:
        """Names of functions, each after what it needs."""
        return [name for name in self.specs if name in names]

    def _needed(self, name: str) -> set[str]:
        found: set[str] = {name}
        left: Iterable[str] = [name]
        while left:
            further = {each for one in left for each in self.specs[one].dependencies if each in self.code}
            left = further - found
            found |= further
        return found

    def _defined(self, *codes: str) -> set[str]:
        """The names that codes define, and do not only import."""
        return {
            name for code in codes for name in {*self.language.names_defined(code)} - {*self.language.imports(code)}
        }

    def _clashes(self, spec: FunctionSpec, code: str) -> list[str]:
        """What would change in one module, because codes import something else under the same name."""
        own, defined = self.language.imports(code), self._defined(code)
        found = dict[str, None]()
        if "*" in own and len(self.specs) > 1:
            found[f"what {own['*']} has could take the place of names of other functions; import each by its name"] = (
                None
            )
        others = [(owner, each) for owner, codes in self._codes.items() if owner != spec.name for each in codes]
        for owner, other in others:
            for name, what in self.language.imports(other).items():
                here = own.get(name, "something else" if name in defined else what)
                if here != what:
                    text = f"{name!r} is {here} here, and {what} in the code of {owner!r}, which is in the same module"
                    found[f"{text}; import the same, or take another name"] = None
        return [*found]

    def _refusals(self, findings: Iterable[SecurityFinding]) -> list[str]:
        return [f"a security scanner refuses it: {each}" for each in findings if self._is_blocked(each)]

    def _is_blocked(self, finding: SecurityFinding) -> bool:
        least = self.rules.block_severity
        return (
            least is not None and finding.id not in _HASHES and _LEVELS.index(finding.severity) >= _LEVELS.index(least)
        )
