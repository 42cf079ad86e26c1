"""The prompts. Change `PROMPT_VERSION` with every change of a prompt: it is part of the key of cached solutions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coderoom.generation.models import Message
from coderoom.generation.specs import FunctionSpec
from coderoom.judge import FunctionTest, Verdict, show

if TYPE_CHECKING:
    from coderoom.generation.program import Program

PROMPT_VERSION = "6"

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

TESTS = """\
Instruction of the whole program:

{instruction}

Write the tests of the function `{name}`, before there is any code:

{spec}

Answer with one JSON object: {{"tests": [...]}}, with 5 to 12 tests: normal cases, edge cases and, where the spec
names any, errors. Each test is an object with

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
        facts |= {
            "name": spec.name,
            "spec": json.dumps(spec.model_dump(mode="json"), ensure_ascii=False, indent=1),
            "signature": language.signature(spec),
            "dependencies": _dependencies(program, spec),
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


def _dependencies(program: Program, spec: FunctionSpec) -> str:
    """The dependencies of a function, each with its code if that passes its tests."""
    parts = ["\nThese functions of the program exist when it runs; call them, and do not define them:\n"]
    for name in spec.dependencies:
        other = program.specs[name]
        text = f"{program.language.signature(other)}\n    ...  # {other.purpose}"
        text = program.code[name] if name in program.passed else text
        parts.append(f"```{program.language.name}\n{text}\n```\n")
    return "\n".join(parts) if spec.dependencies else ""
