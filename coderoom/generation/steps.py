"""The first two steps of the pipeline: write the specs, and write the tests of each function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from coderoom.errors import GenerationError
from coderoom.generation.languages.base import Language
from coderoom.generation.model import Message
from coderoom.generation.model_client import BudgetedModel
from coderoom.generation.program import Program
from coderoom.generation.prompts import again, specs_request, tests_request
from coderoom.generation.replies import as_specs, as_tests, unclear_values
from coderoom.generation.reply_forms import Form, SpecsForm, TestsForm, read_specs_data, read_tests_data
from coderoom.generation.specs import FunctionSpec, read_specs
from coderoom.generation.testing.runner import TestRunner
from coderoom.generation.testing.values import canonical
from coderoom.generation.tests import FunctionTest
from coderoom.generation.tests_data import read_tests
from coderoom.generation.vacuous_tests import say_nothing, what_it_says, why_too_wide

__all__ = ["write_specs", "write_tests"]

_LEAST_TESTS, _MOST_TESTS = 3, 50
_NOTHING = "there is no JSON object of the form that was asked for"
_SAID = 300
_CUT_OFF = "the answer was cut off at a limit; be briefer"
_SAY = "say what the result has to be"
T = TypeVar("T")


async def write_specs(asker: BudgetedModel, instruction: str, language: Language) -> list[FunctionSpec]:
    """Ask for the functions; what is wrong with them is sent back once.

    Raises:
        GenerationError: They are wrong still.
    """

    async def read(text: str) -> list[FunctionSpec]:
        data = read_specs_data(text)
        if data is None:
            raise GenerationError(_NOTHING)
        specs = read_specs(as_specs(data))
        wrong = [problem for spec in specs for problem in _name_problems(spec, language)]
        if wrong:
            raise GenerationError("\n".join(wrong))
        return specs

    specs, problems = await _ask_twice(asker, "specs", "", specs_request(instruction, language), SpecsForm, read)
    if specs is None:
        raise GenerationError("The model gave no usable functions, also when it was told why:\n" + "\n".join(problems))
    return specs


async def write_tests(
    spec: FunctionSpec, program: Program, asker: BudgetedModel, runner: TestRunner
) -> tuple[list[FunctionTest], list[str]]:
    """Ask for the tests of a function; what is wrong with them is sent back once.

    Args:
        spec: What the function is to do.
        program: The program that it belongs to.
        asker: Asks the model.
        runner: Looks at properties.

    Returns:
        The tests that are right, and what is to be said of those that are not.
    """
    kept: list[FunctionTest] = []

    async def read(text: str) -> list[FunctionTest]:
        data = read_tests_data(text, spec.name)
        if data is None:
            raise GenerationError(_NOTHING)
        tests, wrong = _sound_tests(data, spec, program)
        for test in await say_nothing(tests, runner):
            wrong.append(f"the property of {test.name!r} holds of None, -1, 'x', [] and any object too: {_SAY}")
            tests.remove(test)
        if len(tests) >= len(kept):
            kept[:] = tests
        if len(tests) < _LEAST_TESTS:
            wrong.append(f"there are {len(tests)} usable tests, and should be {_LEAST_TESTS} or more")
        if wrong:
            raise GenerationError("\n".join(wrong))
        return tests

    request = tests_request(program.instruction, spec, program.language, _LEAST_TESTS)
    tests, problems = await _ask_twice(asker, "tests", spec.name, request, TestsForm, read)
    if tests is not None:
        return tests, []
    return kept, [f"tests of {spec.name}: {problem}" for problem in problems]


async def _ask_twice(
    asker: BudgetedModel,
    step: str,
    function: str,
    messages: Sequence[Message],
    form: type[Form],
    read: Callable[[str], Awaitable[T]],
) -> tuple[T | None, list[str]]:
    problems: list[str] = []
    for last in (False, True):
        reply = await asker.ask(step, function, messages, form)
        try:
            return await read(reply.text), []
        except GenerationError as error:
            problems = str(error).splitlines() if reply.complete else [_CUT_OFF]
            said = " ".join(reply.text.split())[:_SAID]
        if not last:
            messages = again(messages, reply.text, problems)
    return None, [*problems, f"the model said: {said or 'nothing'}"]


def _name_problems(spec: FunctionSpec, language: Language) -> list[str]:
    found = [language.name_problem(name) for name in (spec.name, *(each.name for each in spec.inputs))]
    return [problem for problem in found if problem is not None]


def _sound_tests(data: Any, spec: FunctionSpec, program: Program) -> tuple[list[FunctionTest], list[str]]:
    """The tests that are right one by one, and what is wrong with the others."""
    tests: list[FunctionTest] = []
    wrong: list[str] = []
    names: set[str] = set()
    known: dict[str, str] = {}
    said: dict[str, str] = {}
    if len(data) > _MOST_TESTS:
        wrong.append(f"there are {len(data)} tests, and may be {_MOST_TESTS}")
    for index, each in enumerate(as_tests(data[:_MOST_TESTS], spec, program.language)):
        place = f"tests[{index}]"
        try:
            test = read_tests({spec.name: [each]}, [spec], language=program.language)[spec.name][0]
        except GenerationError as error:
            wrong += [line.replace(f"tests.{spec.name}[0]", place) for line in str(error).splitlines()]
            continue
        problems = [*unclear_values(test, spec, program.language), *program.check_setup(test.setup)]
        if too_wide := why_too_wide(test):
            problems.append(too_wide)
        wrong += [f"{place}: {problem}" for problem in problems]
        if test.name in names:
            wrong.append(f"{place}: another test has the name {test.name!r} too")
        elif (same := said.setdefault(what_it_says(test), test.name)) != test.name:
            wrong.append(f"{place}: it is the same as {same!r}, and shows nothing that that does not")
            continue
        call, expected = _call_of(test), _expected_of(test)
        if known.setdefault(call, expected) != expected and test.property is None:
            wrong.append(f"{place}: another test expects something else of the same call")
        elif not problems and test.name not in names:
            tests.append(test)
            names.add(test.name)
    return tests, wrong


def _call_of(test: FunctionTest) -> str:
    # What has a property can have several.
    about = test.name if test.property is not None else ""
    return canonical([test.inputs, test.setup, about])


def _expected_of(test: FunctionTest) -> str:
    return canonical([test.expected_output, test.expected_error])
