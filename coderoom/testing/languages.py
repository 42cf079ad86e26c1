"""What every language of `solve` promises: the same questions to each, in its own words.

class TestPerl(LanguageConformance):
    language = PerlLanguage()
    same = "sub f { my ($x) = @_; return $x }"
    ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from coderoom.generation import FunctionSpec, Language, make_sandbox
from coderoom.judge import FrozenTests, FunctionTest, Judge, Verdict, freeze
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox
from coderoom.testing.suites import Suite

_SPEC = FunctionSpec.model_validate(
    {
        "name": "f",
        "purpose": "Something.",
        "inputs": [{"name": "x", "type": "int"}],
        "outputs": {"type": "int"},
        "dependencies": ["dep"],
    }
)


class LanguageConformance(Suite):
    """What a language promises. All but the first two attributes are code in it.

    Attributes:
        language: The language.
        timeout: The seconds that a test has.
        same: A function `f(x)` that returns what it is given.
        adds: One that returns a list of `x` and `x + 1`.
        raises: One that raises what `error` names, with `no` as its message.
        error: The name of an exception.
        twice: Code that calls `f` of `same` twice, as `g(x)`, and returns a list of both results.
        waits: One that never ends.
        prints: One without inputs that prints `x` 50,000 times and returns nothing.
        alone: Functions that return 1 where no other test has been.
        failing: A function that fails, and one that calls it, as `f`.
        traceback: What is told of that.
        unloadable: The code of `f`, `h` and `i`, none of which can be loaded.
        one: A function without inputs that returns 1, to be named.
    """

    language: ClassVar[Language]
    timeout: ClassVar[float] = 5
    same: ClassVar[str]
    adds: ClassVar[str]
    raises: ClassVar[str]
    error: ClassVar[str]
    twice: ClassVar[str]
    waits: ClassVar[str]
    prints: ClassVar[str]
    alone: ClassVar[Sequence[str]]
    failing: ClassVar[Mapping[str, str]]
    traceback: ClassVar[Sequence[str]]
    unloadable: ClassVar[Mapping[str, str]]
    one: ClassVar[str]

    def make(self, **arguments: Any) -> Sandbox:
        """Make a sandbox in whose worker the harness of the language is."""
        return make_sandbox(language=self.language, **{**self.arguments, **arguments})

    @pytest.fixture
    def judge(self, sandbox: Sandbox) -> Judge:
        """The judge."""
        return Judge(sandbox, timeout=self.timeout, language=self.language)

    async def run_one(self, judge: Judge, source: str, **fields: Any) -> Verdict:
        (result,) = await judge.run({"f": source}, _frozen("f", _case(**fields)))
        return result

    async def test_what_came_is_compared_with_what_was_expected(self, judge: Judge) -> None:
        result = await self.run_one(judge, self.adds, inputs={"x": 1}, expected_output=[1, 2])
        assert (result.passed, result.actual_output, result.outcome) == (True, [1, 2], Outcome.OK)
        assert result.duration > 0
        assert result.peak_memory
        result = await self.run_one(judge, self.adds, inputs={"x": 1}, expected_output=[1, 3])
        assert (result.passed, result.why) == (False, "result[1]: expected 3, got 2")
        result = await self.run_one(judge, self.same, inputs={"x": 1}, expected_output=True)
        assert not result.passed

    async def test_an_error_may_be_expected(self, judge: Judge) -> None:
        expected = {"inputs": {"x": 1}, "expected_error": self.error}
        assert (await self.run_one(judge, self.raises, **expected, error_message="NO")).passed
        assert "'yes' in its message" in (await self.run_one(judge, self.raises, **expected, error_message="yes")).why
        assert f"expected {self.error}, but it returned 1" in (await self.run_one(judge, self.same, **expected)).why
        result = await self.run_one(judge, self.raises, inputs={"x": 1}, expected_error="RangeError")
        assert f"expected RangeError, but it raised {self.error}: no" in result.why
        result = await self.run_one(judge, self.raises, inputs={"x": 1}, expected_output=1)
        assert f"expected 1, but it raised {self.error}: no" in result.why

    async def test_a_property_is_an_expression_of_python(self, judge: Judge) -> None:
        assert (await self.run_one(judge, self.adds, inputs={"x": 1}, property="sum(result) == 2 * x + 1")).passed
        result = await self.run_one(judge, self.adds, inputs={"x": 1}, property="sum(result) == 2 * x")
        assert "does not hold" in result.why
        assert (
            "but it raised" in (await self.run_one(judge, self.raises, inputs={"x": 1}, property="result is None")).why
        )

    async def test_steps_make_what_is_given_and_use_what_is_returned(self, judge: Judge) -> None:
        setup = [{"call": "f", "args": [4], "name": "y"}]
        assert (
            await self.run_one(judge, self.same, inputs={"x": {"$name": "y"}}, setup=setup, expected_output=4)
        ).passed
        then = [{"call": "f", "args": [{"$name": "result"}]}]
        assert (await self.run_one(judge, self.adds, inputs={"x": 1}, then=then[:0], expected_output=[1, 2])).passed
        assert (await self.run_one(judge, self.same, inputs={"x": 1}, then=then, expected_output=1)).passed
        result = await self.run_one(judge, self.raises, inputs={"x": 1}, setup=setup, expected_error=self.error)
        assert f"expected {self.error}, but it raised StepError" in result.why

    async def test_functions_call_each_other(self, judge: Judge) -> None:
        tests = _frozen("g", _case(inputs={"x": "a"}, expected_output=["a", "a"]))
        (result,) = await judge.run({"f": self.same, "g": self.twice}, tests)
        assert result.passed, result

    async def test_what_never_ends_is_stopped(self, judge: Judge) -> None:
        result = await self.run_one(judge, self.waits, inputs={"x": 1}, expected_output=None)
        assert f"The code was stopped after {self.timeout:g} seconds." in result.why

    async def test_an_error_has_the_lines_of_the_program(self, judge: Judge) -> None:
        (result,) = await judge.run(self.failing, _frozen("f", _case(inputs={"x": 0}, expected_output=1)))
        assert result.error.splitlines() == list(self.traceback)
        assert result.outcome is Outcome.ERROR

    async def test_what_is_printed_is_kept_and_bounded(self, judge: Judge) -> None:
        for expected in (None, 1):
            result = await self.run_one(judge, self.prints, expected_output=expected)
            assert result.passed == (expected is None)
            assert result.stdout == "x" * 10_000

    @pytest.mark.slow
    async def test_no_test_sees_what_another_did(self, judge: Judge) -> None:
        for source in self.alone:
            tests = [_case(f"{number}", inputs={"x": number}, expected_output=1) for number in range(3)]
            results = await judge.run({"f": source}, _frozen("f", *tests))
            assert [each.passed for each in results] == [True] * 3, source

    async def test_a_function_that_cannot_be_loaded_harms_no_other(self, judge: Judge) -> None:
        tests = freeze({name: [_case(expected_output=1)] for name in "fghi"})
        results = await judge.run({**self.unloadable, "g": self.one.format(name="g")}, tests)
        assert [each.passed for each in results] == [False, True, False, False]

    async def test_it_needs_no_preloaded_harness(self) -> None:
        tests = [_case(f"{n}", inputs={"x": n}, expected_output=n + n % 2) for n in range(30)]
        async with Sandbox(**self.arguments) as sandbox:
            results = await Judge(sandbox, language=self.language).run({"f": self.same}, _frozen("f", *tests))
        assert [each.passed for each in results] == [True, False] * 15

    def test_code_is_checked_before_it_runs(self) -> None:
        language = self.language

        def said(source: str, **more: Any) -> str:
            return "\n".join(map(str, language.check(source, _SPEC, **more)))

        assert said(self.same) == ""
        assert "does not define the function 'f'" in said(self.twice)
        assert "the parameter 'x' of f(x) is missing" in said(self.one.format(name="f"))
        assert "'dep' is another function" in said(f"{self.same}\n{self.one.format(name='dep')}")
        taken = f"{self.same}\n{self.one.format(name='other')}"
        assert "'other' is already defined by the code of 'g'" in said(taken, taken={"other": "g"})
        assert language.names_defined(taken) == ["f", "other"]

    def test_names_of_a_language_are_told_from_others(self) -> None:
        assert self.language.name_problem("median") is None
        assert self.language.name_problem("class")
        assert self.language.name_problem("2a")
        assert "roman" in self.language.tests_file("roman")
        assert self.language.as_declared([1], "Any") == [1]
        assert self.language.without_repeats(self.same, {}) == (self.same, [])


def _case(name: str = "one", **fields: Any) -> FunctionTest:
    return FunctionTest.model_validate({"name": name, **fields})


def _frozen(function: str, *tests: FunctionTest) -> FrozenTests:
    return freeze({function: tests})
