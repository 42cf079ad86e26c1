"""The program that is being generated: what is known of it so far, and what the model is told about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from coderoom.generation.languages import Language, SecurityFinding
from coderoom.generation.models import Message
from coderoom.generation.options import GeneratorOptions, Severity
from coderoom.generation.replies import unclear_values
from coderoom.generation.solution import GenerationEvent, Warned
from coderoom.generation.specs import FunctionSpec, order, read_tests, tolerance_problem
from coderoom.judge import FrozenTests, FunctionTest, Judge, Strength, Verdict, show

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
        """Why code may not be run, and what the scanner found. Names of accepted code are reserved until `tried`.

        Several pieces of code may be tried at the same time.
        """
        taken = {name: owner for owner, codes in self._codes.items() for name in self._defined(*codes)}
        taken |= {name: name for name in self.specs}  # Including functions that are not written yet.
        problems = self.language.check(code, spec, taken=taken, allowed_imports=self.options.allowed_imports)
        # Imports conflict in one module if they give the same name to different things.
        own, defined = self.language.imports(code), self._defined(code)
        clashes = dict[str, None]()
        if "*" in own and len(self.specs) > 1:
            clashes[f"names from {own['*']} could replace names of other functions; import each by its name"] = None
        others = [(owner, each) for owner, codes in self._codes.items() if owner != spec.name for each in codes]
        for owner, other in others:
            for name, what in self.language.imports(other).items():
                here = own.get(name, "something else" if name in defined else what)
                if here != what:
                    text = f"{name!r} is {here} here, but {what} in the code of {owner!r}, which is in the same module"
                    clashes[f"{text}; import the same, or take another name"] = None
        if wrong := [*map(str, problems), *clashes]:
            return wrong, ()
        findings = tuple(self.language.scan(code))
        levels = _LEVELS[_LEVELS.index(self.options.block_severity or "none") :]
        serious = [each for each in findings if each.severity in levels and each.id not in _HASHES]
        blocked = [f"the security scanner blocks it: {each}" for each in serious]
        if not blocked:
            self._codes[spec.name] = *self._codes.get(spec.name, ()), code
        return blocked, findings

    def tried(self, spec: FunctionSpec, best: str) -> None:
        """Set the best code of a function after an attempt; only its names stay reserved."""
        self.code[spec.name] = best
        self._codes[spec.name] = (best,)

    async def run(self, runner: Judge, spec: FunctionSpec, code: str) -> list[Verdict]:
        """Run the tests of a function with the best code of its dependencies."""
        sources, whole = {**self._sources(spec), spec.name: code}, len(self.specs) == 1
        results = await runner.run(sources, self.tests, functions=[spec.name], final=whole)
        self.last = (sources, self.tests.hash, results) if whole else None
        return results

    async def measure(self, runner: Judge, spec: FunctionSpec, seconds: float) -> Strength:
        """Measure how strong the tests of a function are, with its code and that of its dependencies."""
        return await runner.strength(self._sources(spec), self.tests, functions=[spec.name], seconds=seconds)

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

    def _sources(self, spec: FunctionSpec) -> dict[str, str]:
        """The code of a function and of all that it needs, in order."""
        needed = self._needed(spec.name)
        return {name: self.code.get(name, "") for name in self.specs if name in needed}

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


PROMPT_VERSION = "6"
"""Changes with every change of a prompt below: it is part of the key of cached solutions."""

_MOST_SHOWN = 6
_LONGEST = 1_500

_SYSTEM = (
    "You are a careful engineer who turns an instruction into small functions in {language}, tests first. "
    "Answer exactly in the requested form, and with nothing else."
)

SPECS = """\
Instruction:

{instruction}

Name the functions of a program that does this: as few as make sense, one if one is enough, each of which can be
tested on its own. If the instruction gives a name or a signature, keep it. Answer with one JSON object:

{{"function_specs": [{{"name": "...", "purpose": "what it does, exactly, edge cases and errors included",
"inputs": [{{"name": "...", "type": "..."}}], "outputs": {{"type": "...", "description": "..."}},
"dependencies": ["names of functions in this list that it calls"], "complexity": "simple" | "medium" | "complex"}}]}}

Dependencies must not form a cycle; a function that calls itself does not depend on itself. Functions return their
results, text that is to be printed too; a function changes its arguments only if the instruction asks for that, and
then its purpose says so.

{ways}"""

_TESTS = """\
Instruction of the whole program:

{instruction}

Write the tests of the function `{name}`, before there is any code:

{spec}

Answer with one JSON object: {{"tests": [...]}}, with 5 to 12 tests: normal cases, edge cases and, where the spec
names any, errors. """

_TEST_FORM = """\
Each test is an object with

- "name": what it tests, different for each test,
- "kind": "normal", "edge" or "error",
- "inputs": an object with the arguments by their names,
- and exactly one of
  "expected_output": the value that must be returned,
  "expected_error": the name of the exception that must be raised (with "error_message", text that its message must
  contain, only if the instruction demands it),
  "property": a Python expression over `result` and the inputs that must be True, for functions with many right results
  or for a function that changes its arguments: the inputs are as before the call, and the dict `after` has them as
  after the call. For a function that sorts its list `xs`, "result is None and after['xs'] == [1, 2, 3]" must be True.
  A function that returns nothing needs such a property, or "then",
- "setup", only if it is necessary: a list of steps before the call, each of which is one of
  {{"call": "a function or class of the program, or object.method", "args": [...], "name": "for what it returns"}},
  {{"assign": "a name, or object.attribute", "value": ...}},
  {{"file": "a path in the folder of the test, or - for standard input", "text": "..."}}.
  In inputs, args and values, {{"$name": "x"}} stands for what a step named x made, or for a function of the program,
- "then", only if what the function returns has to be used (an object, a closure, an endless generator): a list of steps
  after the call, in which the name result is what it returned; the test is about what the last call returns.

Work out every expected value step by step before you write it down; test only what the instruction says. Values are
JSON; for types that JSON lacks there are {{"$tuple": [...]}}, {{"$set": [...]}}, {{"$frozenset": [...]}},
{{"$dict": [[key, value], ...]}} for keys that are not strings, {{"$bytes": "base64"}},
{{"$float": "nan" | "inf" | "-inf"}}, {{"$complex": [1.0, 2.0]}}, {{"$decimal": "1.10"}},
{{"$fraction": [1, 3]}}, {{"$datetime": "2024-02-29T12:30:00"}},
{{"$date": "2024-02-29"}}, {{"$time": "12:30:00"}}, {{"$timedelta": [days, seconds, microseconds]}}.
An expected list also matches a tuple. An expected integer matches only the same number, and a float one within a
relative tolerance of 1e-9; for a rougher result, add "rel" or "abs" with the tolerance."""

TESTS = f"{_TESTS}{_TEST_FORM}"

MORE_TESTS = f"""\
Instruction of the whole program:

{{instruction}}

The specification of the function `{{name}}`:

{{spec}}
{{dependencies}}
Its code, which passes all of its tests:

```{{language}}
{{code}}
```

Its tests:

{{tests}}

The tests are too weak. They pass also if one of these changes is made in the code:

{{alive}}

Write more tests, which fail for as many of these changes as possible. Work out what they expect from the instruction,
and not from the code, which may be wrong. Leave out a change that no test can show, and what the instruction leaves
open.

Answer with one JSON object: {{{{"tests": [...]}}}}, with the new tests only, at most 12. {_TEST_FORM}"""

_CODE = """\
Instruction of the whole program:

{instruction}

Write the function `{name}`{how}

{spec}

Signature:

```{language}
{signature}
```
{dependencies}
{trouble}{ways}

Answer with one {language} code block with all of its code, including helpers and imports."""

_AGAIN = " from scratch, with a different approach: earlier code for it kept failing."

REPAIR = """\
Instruction of the whole program:

{instruction}

The specification of the function `{name}`:

{spec}
{dependencies}
Its current code:

```{language}
{code}
```

{trouble}

Find out which is wrong: the implementation, or a test that contradicts the instruction. Answer with one JSON object:

{{"wrong": "implementation" | "test", "reason": "...", "implementation": "the whole new code of the function, or null",
"test": the whole test as it should be, under its name, or null}}

A test is wrong only if it contradicts the instruction, not because the code fails it. At most {changes} more of its
tests may be changed. Each change is recorded with your reason, and a function that passes only that way is not done.

{ways}"""


def request(text: str, program: Program, spec: FunctionSpec | None = None, **facts: object) -> list[Message]:
    """The request of a prompt, for a function or for the whole program; `facts` are further fields of the prompt."""
    language = program.language
    if spec is not None:
        # Each dependency has its code if that passes its tests.
        parts = ["\nThese functions of the program exist when it runs; call them, and do not define them:\n"]
        for name in spec.dependencies:
            other = program.specs[name]
            known = f"{language.signature(other)}\n    ...  # {other.purpose}"
            known = program.code[name] if name in program.passed else known
            parts.append(f"```{language.name}\n{known}\n```\n")
        facts |= {
            "name": spec.name,
            "spec": json.dumps(spec.model_dump(mode="json"), ensure_ascii=False, indent=1),
            "signature": language.signature(spec),
            "dependencies": "\n".join(parts) if spec.dependencies else "",
        }
    question = text.format(instruction=program.instruction, language=language.name, ways=language.ways, **facts)
    return [Message("system", _SYSTEM.format(language=language.name)), Message("user", question)]


def code_request(program: Program, spec: FunctionSpec, trouble: str = "") -> list[Message]:
    """Request the code of a function; after trouble, with another approach, without showing the code that failed."""
    more = {"how": _AGAIN, "trouble": f"{trouble}\n\n"} if trouble else {"how": ":", "trouble": ""}
    return request(_CODE, program, spec, **more)


def again(messages: Sequence[Message], answer: str, problems: Sequence[str]) -> list[Message]:
    """Send a reply back with its problems."""
    listed = "\n".join(f"- {problem}" for problem in problems[:20])
    text = f"This cannot be used:\n\n{listed}\n\nAnswer again, in the requested form and in full."
    return [*messages, Message("assistant", answer[:20_000] or "(nothing)"), Message("user", text)]


def failures(results: Sequence[Verdict], tests: Sequence[FunctionTest], notes: Sequence[str] = ()) -> str:
    """Describe failed tests to the model, and the changes made to its code; equal failures give equal texts."""
    by_name = {test.name: test for test in tests}
    failed = [result for result in results if not result.passed]
    lines = [f"{len(results) - len(failed)} of its {len(results)} tests pass. These do not:"]
    for result in failed[:_MOST_SHOWN]:
        test = by_name[result.test]
        lines += ["", f"Test: {json.dumps(test.model_dump(mode='json'), ensure_ascii=False)[:_LONGEST]}"]
        if result.actual_output is not None:
            lines.append(f"Returned: {show(result.actual_output, _LONGEST)}")
        if result.arguments_after is not None:
            after = {"$dict": [*map(list, result.arguments_after.items())]}
            lines.append(f"Arguments after the call: {show(after, _LONGEST)}")
        lines.append(f"Failed because: {result.why[:_LONGEST]}")
        if result.error:
            lines.append(f"Raised:\n{result.error[:_LONGEST]}")
    if len(failed) > _MOST_SHOWN:
        lines.append(f"\n... and {len(failed) - _MOST_SHOWN} more.")
    return "\n".join([*lines, *_noted(notes)])


def refusals(problems: Sequence[str], notes: Sequence[str] = ()) -> str:
    """Describe to the model why code was not run."""
    return "\n".join(["It was not run:\n", *(f"- {problem}" for problem in problems[:20]), *_noted(notes)])


def _noted(notes: Sequence[str]) -> list[str]:
    return ["", *(f"Note: {note}." for note in notes[:20])] if notes else []
